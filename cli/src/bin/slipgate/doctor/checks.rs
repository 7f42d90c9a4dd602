//! The checks, in the order in which one may explain the next.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use serde::Deserialize;
use slipgate_client::ConnectToken;
use slipgate_client::fetch::{FetchRequest, fetch};

use super::finding::DoctorFinding;
use super::flags::DoctorFlags;
use super::handshake::{HandshakeResult, attempt};
use super::http_date::{parse_date, skew};
use crate::admin_http::AdminPort;

/// The largest payload, and a small one for comparison.
const LARGEST_BYTES: usize = 1200;
const SMALL_BYTES: usize = 64;
/// The difference of two clocks from which tokens are refused at the edges of their lifetime, in seconds.
const MAX_SKEW: i64 = 2;
/// The longest lifetime that servers accept by default, in seconds.
const MAX_LIFETIME: u64 = 45;
/// The shortest timeout that a stall of a radio does not exceed often, in seconds.
const MIN_TIMEOUT: i32 = 3;
/// The name of the metric of dropped datagrams, in two parts, with its label.
const PREFIX: &str = "slipgate";
const DROPPED: &str = "_dropped_datagrams_total{reason=\"";
/// The table that explains each reason to drop a datagram.
const DROPPED_DATAGRAMS: &str = include_str!("dropped-datagrams.md");

/// Returns the findings of all checks.
pub(super) fn examine(flags: &DoctorFlags, key: &str, admin: Option<&AdminPort>) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let issuer_skew = check_issuer(flags, &mut findings);
    let server_skew = admin.and_then(|admin| check_admin(admin, &mut findings));
    if let (Some(issuer), Some(server)) = (issuer_skew, server_skew) {
        findings.push(compare_clocks(issuer, server));
    }
    match token(flags, key, None) {
        Err(error) => findings.push(DoctorFinding::problem("token", error, remedy_of_issuer())),
        Ok(token) => {
            findings.extend(check_times(&token));
            for server in servers(&token) {
                findings.extend(check_address(server));
                check_server(flags, key, server, admin, &mut findings);
            }
        }
    }
    findings
}

const fn remedy_of_issuer() -> &'static str {
    "The issuer's log has a line for this refusal, with its request id; specs/http-api.md explains the codes."
}

/// Requests the health of the issuer. Returns the skew of its clock against this machine's.
fn check_issuer(flags: &DoctorFlags, findings: &mut Vec<DoctorFinding>) -> Option<i64> {
    // The same requests as to an admin port, without its token.
    let port = match AdminPort::new(&flags.issuer, None) {
        Ok(port) => port,
        Err(failure) => {
            findings.push(DoctorFinding::problem("issuer", failure.to_string(), "Give --issuer as http://HOST:PORT."));
            return None;
        }
    };
    let before = SystemTime::now();
    match port.get("/v1/health") {
        Ok(response) if response.status == 200 => {
            findings.push(DoctorFinding::ok("issuer", format!("{} serves", port.url())));
            clock_skew("issuer's clock", response.date.as_deref(), before, findings)
        }
        Ok(response) => {
            let text = format!("{} returned HTTP {} for /v1/health", port.url(), response.status);
            findings.push(DoctorFinding::problem(
                "issuer",
                text,
                "Check that the URL is that of a token issuer, without a path.",
            ));
            None
        }
        Err(error) => {
            let text = format!("{} cannot be reached: {error}", port.url());
            findings.push(DoctorFinding::problem(
                "issuer",
                text,
                "Start the issuer, or correct --issuer and the firewall.",
            ));
            None
        }
    }
}

#[derive(Deserialize)]
struct DoctorReadiness {
    reason: Option<String>,
}

/// Requests readiness and metrics of the server. Returns the skew of its clock against this machine's.
fn check_admin(admin: &AdminPort, findings: &mut Vec<DoctorFinding>) -> Option<i64> {
    let before = SystemTime::now();
    let response = match admin.get("/readyz") {
        Ok(response) => response,
        Err(error) => {
            let text = format!("{} cannot be reached: {error}", admin.url());
            findings.push(DoctorFinding::problem(
                "admin port",
                text,
                "Start the server with --admin, or correct the address.",
            ));
            return None;
        }
    };
    let reason = serde_json::from_str::<DoctorReadiness>(&response.body).ok().and_then(|readiness| readiness.reason);
    match (response.status, reason) {
        (200, _) => findings.push(DoctorFinding::ok("admin port", "the server takes new clients")),
        (_, Some(reason)) => {
            let text = format!("the server takes no new clients: {reason}");
            findings.push(DoctorFinding::problem(
                "admin port",
                text,
                "docs/operations.md explains this reason of /readyz.",
            ));
        }
        (status, None) => {
            let text = format!("{} returned HTTP {status} for /readyz", admin.url());
            findings.push(DoctorFinding::problem("admin port", text, "Check that the address is that of --admin."));
        }
    }
    if let Err(error) = drops(admin) {
        findings.push(DoctorFinding::problem(
            "admin port",
            error,
            "Correct the address or the token of the admin port.",
        ));
    }
    clock_skew("server's clock", response.date.as_deref(), before, findings)
}

/// Compares the clock of a `Date` header with this machine's. Returns the skew in seconds.
fn clock_skew(
    clock: &'static str,
    date: Option<&str>,
    before: SystemTime,
    findings: &mut Vec<DoctorFinding>,
) -> Option<i64> {
    let skew = skew(parse_date(date?)?, before, SystemTime::now());
    findings.push(if skew.abs() <= MAX_SKEW {
        DoctorFinding::ok(clock, "agrees with this machine's")
    } else {
        let side = if skew > 0 { "ahead of" } else { "behind" };
        let text = format!("is {} s {side} this machine's", skew.abs());
        DoctorFinding::warning(clock, text, "Set both clocks by the network (NTP). Tokens have times in seconds.")
    });
    Some(skew)
}

fn compare_clocks(issuer: i64, server: i64) -> DoctorFinding {
    let skew = issuer.saturating_sub(server);
    if skew.abs() <= MAX_SKEW {
        return DoctorFinding::ok("clocks", "those of issuer and server agree");
    }
    let side = if skew > 0 { "ahead of" } else { "behind" };
    let text = format!("the issuer's is {} s {side} the server's", skew.abs());
    DoctorFinding::problem(
        "clocks",
        text,
        "Set both by the network (NTP): servers refuse tokens from the past and the future.",
    )
}

/// Requests a token of the issuer.
fn token(flags: &DoctorFlags, key: &str, server: Option<SocketAddr>) -> Result<ConnectToken, String> {
    let servers = server.map_or_else(|| flags.server.clone(), |server| vec![server]);
    let servers = Some(servers).filter(|servers| !servers.is_empty());
    let request = FetchRequest { client_id: flags.client_id.into(), servers, ..FetchRequest::default() };
    fetch(&flags.issuer, key, &request).map_err(|error| error.to_string())
}

fn servers(token: &ConnectToken) -> Vec<SocketAddr> {
    token.facts().servers.iter().copied().collect()
}

/// Checks lifetime and timeout of a token.
fn check_times(token: &ConnectToken) -> Vec<DoctorFinding> {
    let facts = token.facts();
    let lifetime = facts.expires.0.saturating_sub(facts.created.0);
    let mut findings = Vec::new();
    if lifetime > MAX_LIFETIME {
        let text = format!("is valid for {lifetime} s, and servers refuse more than {MAX_LIFETIME} s by default");
        findings.push(DoctorFinding::warning(
            "token",
            text,
            "Shorten the issuer's lifetimes, or raise --max-token-lifetime.",
        ));
    }
    if facts.timeout_seconds < 0 {
        let text = "disables the timeout, which only servers with --development allow";
        findings.push(DoctorFinding::problem("token", text, "Request a timeout of 1 to 60 s."));
    } else if facts.timeout_seconds < MIN_TIMEOUT {
        let text = format!("ends a connection after {} s of silence", facts.timeout_seconds);
        let remedy = "Raise the issuer's --default-timeout to 5 s: radios stall for seconds.";
        findings.push(DoctorFinding::warning("token", text, remedy));
    }
    if findings.is_empty() {
        let text = format!("is valid for {lifetime} s, with a timeout of {} s", facts.timeout_seconds);
        findings.push(DoctorFinding::ok("token", text));
    }
    findings
}

/// Checks whether players of the Internet can send to an address.
fn check_address(server: SocketAddr) -> Option<DoctorFinding> {
    let is_local = match server.ip().to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unique_local(),
    };
    let text = format!("{server} is an address of this machine or of a private network");
    let remedy =
        "Right for players on that network. Others need the public address: --advertise, and the issuer's list.";
    is_local.then(|| DoctorFinding::warning("address", text, remedy))
}

/// Connects to one server, with large and with small payloads.
fn check_server(
    flags: &DoctorFlags,
    key: &str,
    server: SocketAddr,
    admin: Option<&AdminPort>,
    findings: &mut Vec<DoctorFinding>,
) {
    let before = admin.and_then(|admin| drops(admin).ok());
    let connect = |bytes| token(flags, key, Some(server)).and_then(|token| attempt(token, bytes));
    match connect(LARGEST_BYTES) {
        Err(error) => findings.push(DoctorFinding::problem("server", format!("{server}: {error}"), remedy_of_issuer())),
        Ok(HandshakeResult { connected_after: None, ended, .. }) => {
            let after = admin.and_then(|admin| drops(admin).ok());
            findings.push(explain(server, ended.as_deref(), before.zip(after)));
        }
        Ok(HandshakeResult { connected_after: Some(after), sent, echoes, .. }) => {
            let millis = after.as_secs_f64() * 1000.0;
            findings.push(DoctorFinding::ok("server", format!("{server} admitted the client after {millis:.0} ms")));
            findings.push(DoctorFinding::ok("keys", format!("{server} has the key and the protocol id of the issuer")));
            findings.push(check_sizes(server, (sent, echoes), || connect(SMALL_BYTES)));
        }
    }
}

/// Compares the echoes of large and small payloads.
fn check_sizes(
    server: SocketAddr,
    (sent, echoes): (u64, u64),
    small: impl FnOnce() -> Result<HandshakeResult, String>,
) -> DoctorFinding {
    let is_most = |sent: u64, echoes: u64| echoes > 0 && echoes * 10 >= sent * 7;
    if is_most(sent, echoes) {
        return DoctorFinding::ok("packet size", format!("payloads of {LARGEST_BYTES} bytes return from {server}"));
    }
    match small() {
        Ok(small) if is_most(small.sent, small.echoes) => DoctorFinding::problem(
            "packet size",
            format!("payloads of {SMALL_BYTES} bytes return from {server}, and those of {LARGEST_BYTES} bytes do not"),
            "The path carries no datagrams of 1,280 bytes: correct its MTU, or set `max_payload_bytes` to 548.",
        ),
        _ => DoctorFinding::warning(
            "packet size",
            format!("{server} returns no payloads, so the sizes are not checked"),
            "Run `slipgate-server --app echo` in its place to check the path.",
        ),
    }
}

/// Explains a handshake that came to nothing.
fn explain(server: SocketAddr, ended: Option<&str>, drops: Option<(Drops, Drops)>) -> DoctorFinding {
    let reason = ended.unwrap_or("there was no reply");
    let text = format!("{server} admitted no client: {reason}");
    let Some((before, after)) = drops else {
        let remedy =
            "Check the firewall for UDP, the advertised address, the key and the protocol id; --admin shows which.";
        return DoctorFinding::problem("server", text, remedy);
    };
    let grown = after.iter().filter(|(reason, count)| before.get(*reason).is_none_or(|earlier| *count > earlier));
    let explained: Vec<_> = grown.filter_map(|(reason, _)| Some((reason, remedy(reason)?))).collect();
    match explained.as_slice() {
        [] => {
            let text = format!("{text}; its admin port counted no dropped datagram");
            let remedy =
                "The datagrams do not reach the server: check the firewall for UDP, NAT and the advertised address.";
            DoctorFinding::problem("server", text, remedy)
        }
        [(reason, remedy), ..] => {
            DoctorFinding::problem("server", format!("{text}; it dropped datagrams: {reason}"), remedy)
        }
    }
}

/// The number of dropped datagrams by reason.
type Drops = std::collections::BTreeMap<String, u64>;

/// Reads how many datagrams the server has dropped.
fn drops(admin: &AdminPort) -> Result<Drops, String> {
    let response = admin.get("/metrics")?;
    match response.status {
        200 => Ok(parse_drops(&response.body)),
        401 => Err("the admin port requires its token: give --admin-token-file".to_owned()),
        status => Err(format!("/metrics returned HTTP {status}")),
    }
}

fn parse_drops(metrics: &str) -> Drops {
    let rows = metrics.lines().filter_map(|line| line.strip_prefix(PREFIX)?.strip_prefix(DROPPED));
    rows.filter_map(|row| row.split_once("\"} "))
        .filter_map(|(name, count)| Some((name.into(), count.parse().ok()?)))
        .collect()
}

/// Returns what to do about a reason, from the table of dropped datagrams; `None` where nothing is to be done.
fn remedy(reason: &str) -> Option<&'static str> {
    let row = DROPPED_DATAGRAMS.lines().find(|line| line.starts_with(&format!("| `{reason}` |")))?;
    let remedy = row.split(" | ").last()?.trim_end_matches(" |").trim();
    (!remedy.starts_with("Nothing")).then_some(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_datagrams_explain_a_failed_handshake() {
        let server: SocketAddr = "192.0.2.1:7".parse().unwrap();
        let drops = |text: &str| parse_drops(text);
        let row = |reason: &str, count: u32| format!("{PREFIX}{DROPPED}{reason}\"}} {count}\n");
        let before = drops(&row("token_not_authentic", 1));
        let after = drops(&format!("# X\n{}{}", row("token_not_authentic", 4), row("replayed", 2)));
        let finding = explain(server, None, Some((before.clone(), after)));
        assert!(finding.text.ends_with("it dropped datagrams: token_not_authentic"), "{finding:?}");
        assert!(finding.remedy.unwrap().starts_with("Give issuer and server the same private key."));
        let finding = explain(server, Some("timed out"), Some((before.clone(), before)));
        assert!(finding.text.contains("counted no dropped datagram"), "{finding:?}");
        assert!(explain(server, None, None).remedy.unwrap().contains("--admin shows which"));
    }

    #[test]
    fn each_reason_with_a_remedy_has_a_sentence() {
        for reason in ["request_protocol", "address_not_listed", "before_start", "token_lifetime_too_long"] {
            assert!(remedy(reason).is_some_and(|remedy| remedy.ends_with('.')), "{reason}");
        }
        assert_eq!((remedy("replayed"), remedy("no_such_reason")), (None, None));
    }

    #[test]
    fn private_addresses_are_a_warning() {
        for (address, is_local) in
            [("127.0.0.1:1", true), ("10.1.2.3:1", true), ("[fd00::1]:1", true), ("203.0.113.5:1", false)]
        {
            assert_eq!(check_address(address.parse().unwrap()).is_some(), is_local, "{address}");
        }
    }

    #[test]
    fn clocks_that_differ_by_seconds_are_a_problem() {
        assert!(compare_clocks(1, -1).remedy.is_none());
        let finding = compare_clocks(-30, 5);
        assert_eq!(finding.text, "the issuer's is 35 s behind the server's");
    }
}
