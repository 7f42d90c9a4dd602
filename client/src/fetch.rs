//! Fetching a connect token from a token issuer over HTTP, for tools and tests.
//!
//! A shipped game asks its backend instead, which knows the player and asks the issuer. The issuer's API key must never
//! be in a shipped game.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::USER_DATA_BYTES;
use slipgate_netcode::wire::token::TokenLayoutError;
pub use slipgate_os::authorities::CertificateAuthorities;
use slipgate_session::connection::plain_text;
use ureq::http::Uri;
use ureq::tls::TlsConfig;

/// How long the whole request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest response in bytes. A token in base64 has 2,732 bytes.
const MAX_RESPONSE_BYTES: u64 = 16 * 1024;

/// A request for a token. The issuer chooses a value for each field that is `None`.
///
/// # Examples
/// ```no_run
/// use slipgate_client::fetch::{FetchRequest, fetch};
/// use slipgate_client::{Client, Clock};
///
/// # fn join(bearer_key: &str) -> Result<(), Box<dyn std::error::Error>> {
/// let request = FetchRequest { client_id: 42.into(), ..FetchRequest::default() };
/// let token = fetch("http://127.0.0.1:8080", bearer_key, &request)?;
/// Client::new()?.connect(token, Clock::start().now())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FetchRequest {
    /// The client id of the player.
    pub client_id: ClientId,
    /// Servers of the issuer's allow-list.
    pub servers: Option<Vec<SocketAddr>>,
    /// A group of servers that register with the issuer, in place of `servers`.
    pub group: Option<String>,
    /// Regions of the group in order of preference.
    pub regions: Vec<String>,
    /// The protocol id of the game, for an issuer with several games.
    pub protocol_id: Option<u64>,
    /// Data of the application for the game server, at most 256 bytes.
    pub user_data: Option<Vec<u8>>,
    /// How long the token is valid, in seconds.
    pub lifetime_seconds: Option<u32>,
    /// After how many seconds of silence the connection times out.
    pub timeout_seconds: Option<u32>,
}

/// Why no token was fetched.
#[derive(Debug)]
#[non_exhaustive]
pub enum FetchError {
    /// The user data has more than 256 bytes.
    UserData,
    /// The issuer's URL is malformed, or its scheme is neither `http` nor `https`.
    Url(String),
    /// The issuer could not be reached: a network or TLS error, or no response within 10 s.
    Transport {
        /// The issuer's URL.
        url: String,
        /// The error.
        error: Box<ureq::Error>,
    },
    /// The issuer refused the request. Its texts have no characters that control a terminal, a log or the direction of
    /// writing: an error is often written to one.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The issuer's code for the reason, if there is one.
        code: Option<String>,
        /// The issuer's message, if there is one.
        message: Option<String>,
    },
    /// The response is malformed.
    Response,
    /// The response contains no valid connect token.
    Token(TokenLayoutError),
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserData => write!(f, "user data has at most {USER_DATA_BYTES} bytes"),
            Self::Url(url) => write!(f, "the address of an issuer starts with http:// or https://: {url:?}"),
            Self::Transport { url, error } => write!(f, "the token issuer cannot be reached at {url}: {error}"),
            Self::Refused { status, message: Some(message), .. } => {
                write!(f, "the token issuer refused (HTTP {status}): {message}")
            }
            Self::Refused { status, .. } => write!(f, "the token issuer refused (HTTP {status})"),
            Self::Response => f.write_str("the token issuer sent a malformed response"),
            Self::Token(error) => write!(f, "the token issuer sent an invalid connect token: {error}"),
        }
    }
}

impl std::error::Error for FetchError {}

#[derive(Serialize)]
struct TokenRequestBody {
    /// Text, because many JSON parsers lose precision above 2^53.
    client_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_addresses: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regions: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u32>,
}

#[derive(Deserialize)]
struct ResponseBody {
    token: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: RefusalReason,
}

#[derive(Deserialize)]
struct RefusalReason {
    code: String,
    message: String,
}

/// Requests a token from the issuer at `url` (`http://host:port` or `https://…`) with its bearer key. Blocks for at
/// most 10 s.
///
/// An issuer on this machine is reached directly, another one through the proxy in the environment, if there is one.
///
/// # Errors
/// - `UserData`, `Url`: an argument is invalid.
/// - `Transport`: the issuer could not be reached.
/// - `Refused`: the issuer refused the request.
/// - `Response`, `Token`: the response is malformed.
pub fn fetch(url: &str, bearer_key: &str, request: &FetchRequest) -> Result<ConnectToken, FetchError> {
    fetch_with_tls(url, bearer_key, request, TlsConfig::default())
}

/// Does the same as [`fetch`], with an issuer whose certificate is signed by one of these authorities, instead of the
/// public ones. They have no effect on `http://`.
///
/// # Errors
/// As [`fetch`].
pub fn fetch_with_authorities(
    url: &str,
    bearer_key: &str,
    request: &FetchRequest,
    authorities: &CertificateAuthorities,
) -> Result<ConnectToken, FetchError> {
    fetch_with_tls(url, bearer_key, request, authorities.tls_config())
}

fn fetch_with_tls(
    url: &str,
    bearer_key: &str,
    request: &FetchRequest,
    tls: TlsConfig,
) -> Result<ConnectToken, FetchError> {
    let body = body(request)?;
    let tokens = tokens_url(url)?;
    let unreachable = |error| FetchError::Transport { url: url.to_owned(), error: Box::new(error) };
    let mut response = agent(&tokens, tls)
        .post(&tokens)
        .header("authorization", &format!("Bearer {bearer_key}"))
        .header("content-type", "application/json")
        .send(&body)
        .map_err(unreachable)?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(MAX_RESPONSE_BYTES).read_to_vec().map_err(unreachable)?;
    if status.is_success() { parse_token(&body) } else { Err(refused(status.as_u16(), &body)) }
}

/// Returns the URL of the tokens of the issuer at `url`.
fn tokens_url(url: &str) -> Result<Uri, FetchError> {
    let tokens = format!("{}/v1/tokens", url.trim_end_matches('/')).parse::<Uri>();
    let is_http = |tokens: &Uri| matches!(tokens.scheme_str(), Some("http" | "https")) && tokens.host().is_some();
    tokens.ok().filter(is_http).ok_or_else(|| FetchError::Url(url.to_owned()))
}

fn agent(url: &Uri, tls: TlsConfig) -> ureq::Agent {
    let config =
        ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).http_status_as_error(false).tls_config(tls);
    // A proxy cannot reach this machine's loopback addresses, and must not receive the bearer key.
    let config = if is_loopback(url) { config.proxy(None) } else { config };
    config.build().into()
}

fn is_loopback(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.to_canonical().is_loopback())
}

fn body(request: &FetchRequest) -> Result<Vec<u8>, FetchError> {
    if request.user_data.as_ref().is_some_and(|data| data.len() > USER_DATA_BYTES) {
        return Err(FetchError::UserData);
    }
    let body = TokenRequestBody {
        client_id: request.client_id.to_string(),
        server_addresses: request.servers.as_ref().map(|servers| servers.iter().map(SocketAddr::to_string).collect()),
        group: request.group.clone(),
        regions: request.regions.clone(),
        protocol_id: request.protocol_id.map(|id| id.to_string()),
        user_data: request.user_data.as_ref().map(|data| STANDARD.encode(data)),
        lifetime_seconds: request.lifetime_seconds,
        timeout_seconds: request.timeout_seconds,
    };
    serde_json::to_vec(&body).map_err(|_| FetchError::Response)
}

fn parse_token(response: &[u8]) -> Result<ConnectToken, FetchError> {
    let response: ResponseBody = serde_json::from_slice(response).map_err(|_| FetchError::Response)?;
    let bytes = STANDARD.decode(response.token).map_err(|_| FetchError::Response)?;
    ConnectToken::from_bytes(&bytes).map_err(FetchError::Token)
}

fn refused(status: u16, response: &[u8]) -> FetchError {
    // The text is shown to players and logged, so nothing in it may control a terminal.
    let reason = serde_json::from_slice::<Refusal>(response).ok().map(|refusal| refusal.error);
    let (code, message) = reason.map(|reason| (plain_text(&reason.code), plain_text(&reason.message))).unzip();
    FetchError::Refused { status, code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_loopback_issuer_bypasses_the_proxy() {
        for (url, loopback) in [
            ("http://127.0.0.1:8080", true),
            ("http://127.1.2.3/", true),
            ("http://[::1]:8080", true),
            ("http://[::ffff:127.0.0.1]:8080", true),
            ("http://LocalHost:8080", true),
            ("https://issuer.example", false),
            ("http://127.0.0.1.example:80", false),
            ("http://localhost.example", false),
            ("http://127.0.0.1@issuer.example", false),
            ("http://192.0.2.1", false),
        ] {
            assert_eq!(is_loopback(&tokens_url(url).expect("a URL")), loopback, "{url}");
        }
    }

    #[test]
    fn texts_of_an_issuer_are_shown_as_plain_text() {
        let body = br#"{"error": {"code": "no\u0007", "message": "\u001b[2Jno\nINFO connected\u202e\u009b31m"}}"#;
        let error = refused(403, body);
        let FetchError::Refused { status: 403, code: Some(code), message: Some(message) } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((code.as_str(), message.as_str()), ("no", "[2Jno INFO connected31m"));
        assert_eq!(error.to_string(), "the token issuer refused (HTTP 403): [2Jno INFO connected31m");
    }

    #[test]
    fn a_url_without_http_scheme_is_refused() {
        for url in ["", "127.0.0.1:8080", "localhost:8080", "issuer.example", "ftp://issuer.example", "http://"] {
            assert!(matches!(tokens_url(url), Err(FetchError::Url(_))), "{url}");
        }
    }
}
