//! The address that Agones has chosen for the server: with a dynamic port nothing else knows it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::HttpCaller;

/// The maximum time until the sidecar knows the address. It may start after the server.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(500);

/// Why the address of the server is not known from Agones.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgonesAddressError {
    /// The sidecar did not respond, or had no address, for 60 s. The text says what failed last.
    NoAddress(String),
    /// The address is a host name, which connect tokens cannot list.
    HostName(String),
}

impl fmt::Display for AgonesAddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress(error) => write!(f, "Agones has had no address of this server for 60 s: {error}"),
            Self::HostName(name) => {
                write!(f, "Agones names this server {name:?}, but connect tokens list IP addresses: give --advertise")
            }
        }
    }
}

impl std::error::Error for AgonesAddressError {}

/// Asks the sidecar at this loopback port for the public address of the server: its port `game`, or the first one.
/// Blocks for up to 60 s, so a program calls it before its game starts.
///
/// # Errors
/// - [`AgonesAddressError::NoAddress`]: the sidecar did not respond, or had no address, for 60 s.
/// - [`AgonesAddressError::HostName`]: the address is a host name.
pub fn agones_address(port: u16) -> Result<SocketAddr, AgonesAddressError> {
    let (http, url) = (HttpCaller::new(true), format!("http://127.0.0.1:{port}/gameserver"));
    let start = Instant::now();
    loop {
        let error = match http.get(&url) {
            Ok(response) => match parse_address(&response.body) {
                Ok(Some(address)) => return Ok(address),
                Ok(None) => "the game server has no address or port yet".to_owned(),
                Err(error) => return Err(error),
            },
            Err(error) => error,
        };
        if start.elapsed() >= MAX_WAIT {
            return Err(AgonesAddressError::NoAddress(error));
        }
        thread::sleep(PAUSE);
    }
}

/// Returns the address of a game server's description, `None` if it has none yet.
fn parse_address(game_server: &Value) -> Result<Option<SocketAddr>, AgonesAddressError> {
    let Some(status) = game_server.get("status") else { return Ok(None) };
    let address = status.get("address").and_then(Value::as_str).unwrap_or_default();
    let ports: Vec<_> = status.get("ports").and_then(Value::as_array).into_iter().flatten().collect();
    let named = ports.iter().find(|port| port.get("name").and_then(Value::as_str) == Some("game"));
    let port = named.or(ports.first()).and_then(|port| port.get("port")).and_then(Value::as_u64);
    let port = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0);
    match (address, port) {
        ("", _) | (_, None) => Ok(None),
        (address, Some(port)) => match address.parse::<IpAddr>() {
            Ok(ip) => Ok(Some(SocketAddr::new(ip, port))),
            Err(_) => Err(AgonesAddressError::HostName(address.escape_debug().take(100).collect())),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn address_and_port_of_the_game_are_found() {
        let ports = json!([{"name": "query", "port": 7000}, {"name": "game", "port": 7654}]);
        let server = |address: &str, ports: &Value| json!({"status": {"address": address, "ports": ports}});
        let parse = |value: &Value| parse_address(value).unwrap();
        assert_eq!(parse(&server("203.0.113.5", &ports)), Some("203.0.113.5:7654".parse().unwrap()));
        assert_eq!(parse(&server("2001:db8::5", &json!([{"port": 7}]))), Some("[2001:db8::5]:7".parse().unwrap()));
        for missing in [json!(null), json!({}), server("", &ports), server("203.0.113.5", &json!([]))] {
            assert_eq!(parse(&missing), None, "{missing}");
        }
        for port in [json!(0), json!(70_000), json!("7"), json!(-1)] {
            assert_eq!(parse(&server("203.0.113.5", &json!([{"port": port}]))), None, "{port}");
        }
        let error = parse_address(&server("node-1.example", &ports)).unwrap_err();
        assert!(error.to_string().contains("give --advertise"), "{error}");
    }
}
