//! The checks, in the order in which one may explain the next.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use serde::Deserialize;
use slipgate_cli::issuer_authorities::fetch_token;
use slipgate_client::fetch::{FetchError, FetchRequest};
use slipgate_client::{CloseKind, CloseReason, ConnectToken};

use super::clocks::{clock_skew, compare_clocks};
use super::finding::DoctorFinding;
use super::flags::DoctorFlags;
use super::handshake::{HandshakeResult, SizeEchoes, attempt};
use super::issuer::{IssuerAccess, check_issuer, remedy_of_token};
use super::keys::check_keys;
use super::server_metrics::{Drops, drops, has_client, metrics};
use crate::http_port::HttpPort;

/// The largest payload, and a small one for comparison.
const LARGEST_BYTES: usize = 1200;
const SMALL_BYTES: usize = 64;
/// The longest lifetime that servers accept by default, in seconds.
const MAX_LIFETIME: u64 = 45;
/// The shortest timeout that a stall of a radio does not exceed often, in seconds.
const MIN_TIMEOUT: i32 = 3;
/// The table that explains each reason to drop a datagram.
const DROPPED_DATAGRAMS: &str = include_str!("dropped-datagrams.md");

/// Returns the findings of all checks.
pub(super) fn examine(flags: &DoctorFlags, access: &IssuerAccess, admin: Option<&HttpPort>) -> Vec<DoctorFinding> {
    let mut findings = Vec::new();
    let issuer = check_issuer(access, &mut findings);
    let server_skew = admin.and_then(|admin| check_admin(admin, &mut findings));
    let Some(issuer) = issuer else { return findings };
    if let (Some(issuer), Some(server)) = (issuer.skew, server_skew) {
        findings.push(compare_clocks(issuer, server));
    }
    let token = match token(flags, access, None) {
        Ok(token) => token,
        Err(error) => {
            findings.push(DoctorFinding::problem("token", error.to_string(), remedy_of_token(&error)));
            return findings;
        }
    };
    findings.extend(check_times(&token));
    let protocol_id = token.facts().protocol_id;
    findings.extend(admin.and_then(|admin| check_keys(&issuer.port, admin, protocol_id)));
    let checked = check_servers(flags, access, &token, admin, &mut findings);
    findings.extend(admin.and_then(|admin| check_owner(admin, &checked)));
    findings
}

/// A server that was checked.
struct CheckedServer {
    name: String,
    /// Whether the admin port belongs to this server, `None` if that is unknown.
    has_admin: Option<bool>,
}

/// Checks the server that the issuer has chosen for the token of a group, or each server of the token.
fn check_servers(
    flags: &DoctorFlags,
    access: &IssuerAccess,
    token: &ConnectToken,
    admin: Option<&HttpPort>,
    findings: &mut Vec<DoctorFinding>,
) -> Vec<CheckedServer> {
    let servers: Vec<SocketAddr> = token.facts().servers.iter().copied().collect();
    let is_group = flags.group.group.is_some();
    if is_group {
        findings.extend(servers.iter().filter_map(|server| check_address(*server)));
        // One server with one or more addresses. Another token may lead to another server.
        let name = servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        return vec![check_server(flags, name, Ok(token.clone()), admin, findings)];
    }
    let check = |server: SocketAddr| {
        findings.extend(check_address(server));
        let token = self::token(flags, access, Some(server)).map_err(|error| error.to_string());
        check_server(flags, server.to_string(), token, admin, findings)
    };
    servers.into_iter().map(check).collect()
}

/// Returns a warning if the admin port belongs to none of these servers.
fn check_owner(admin: &HttpPort, checked: &[CheckedServer]) -> Option<DoctorFinding> {
    let is_of_another = !checked.is_empty() && checked.iter().all(|server| server.has_admin == Some(false));
    let names: Vec<_> = checked.iter().map(|server| server.name.as_str()).collect();
    let text = format!(
        "{} belongs to another server than {}: its readiness, clock, keys and drops are those of the other server",
        admin.url(),
        names.join(", ")
    );
    let remedy = "Give --admin of the server that was checked. With --group the issuer chooses a server for each \
                  run.";
    is_of_another.then(|| DoctorFinding::warning("admin port", text, remedy))
}

#[derive(Deserialize)]
struct DoctorReadiness {
    reason: Option<String>,
}

/// Requests readiness and metrics of the server. Returns the skew of its clock against this machine's.
fn check_admin(admin: &HttpPort, findings: &mut Vec<DoctorFinding>) -> Option<i64> {
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
    if let Err(error) = metrics(admin) {
        findings.push(DoctorFinding::problem(
            "admin port",
            error,
            "Correct the address or the token of the admin port.",
        ));
    }
    clock_skew("server's clock", response.date.as_deref(), before, findings)
}

/// Requests a token of the issuer: for this server, or for what the flags say.
fn token(flags: &DoctorFlags, access: &IssuerAccess, server: Option<SocketAddr>) -> Result<ConnectToken, FetchError> {
    let servers = server.map_or_else(|| flags.server.clone(), |server| vec![server]);
    let request = flags.group.request(servers, flags.protocol_id);
    let request = FetchRequest { client_id: flags.client_id.into(), ..request };
    fetch_token(&access.url, &access.key, &request, access.authorities.as_ref())
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
    name: String,
    token: Result<ConnectToken, String>,
    admin: Option<&HttpPort>,
    findings: &mut Vec<DoctorFinding>,
) -> CheckedServer {
    let drops = || Some(drops(&metrics(admin?).ok()?));
    let before = drops();
    let mut has_admin = None;
    let on_connected = || has_admin = admin.and_then(|admin| has_client(admin, flags.client_id));
    match token.and_then(|token| attempt(token, &[LARGEST_BYTES, SMALL_BYTES], on_connected)) {
        Err(error) => {
            let remedy = "This machine cannot send to the server: look at its network and at the issuer's log.";
            findings.push(DoctorFinding::problem("server", format!("{name}: {error}"), remedy));
        }
        Ok(HandshakeResult { connected_after: None, ended, .. }) => {
            findings.push(explain(&name, ended.as_ref(), before.zip(drops())));
        }
        Ok(HandshakeResult { connected_after: Some(after), echoes, .. }) => {
            let millis = after.as_secs_f64() * 1000.0;
            findings.push(DoctorFinding::ok("server", format!("{name} admitted the client after {millis:.0} ms")));
            findings.push(DoctorFinding::ok("keys", format!("{name} has the key and the protocol id of the issuer")));
            findings.push(check_sizes(&name, &echoes));
        }
    }
    CheckedServer { name, has_admin }
}

/// Compares the echoes of large and small payloads.
fn check_sizes(server: &str, echoes: &[SizeEchoes]) -> DoctorFinding {
    match echoes {
        [large, ..] if large.is_most() => {
            DoctorFinding::ok("packet size", format!("payloads of {LARGEST_BYTES} bytes return from {server}"))
        }
        [_, small] if small.is_most() => DoctorFinding::problem(
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
fn explain(server: &str, ended: Option<&CloseReason>, drops: Option<(Drops, Drops)>) -> DoctorFinding {
    let reason = ended.map_or_else(|| "there was no reply".to_owned(), ToString::to_string);
    let text = format!("{server} admitted no client: {}", reason.trim_end_matches('.'));
    // These replies are encrypted with a key of the token: the server is reachable and has opened it.
    let remedy = match ended.map(|reason| reason.kind) {
        Some(CloseKind::Denied) => Some(
            "The server responds and has the key. It admits no one: its slots are taken, or it drains; /readyz of its \
             admin port says which.",
        ),
        Some(CloseKind::ResponseTimedOut) => Some(
            "The server responds and has the key, but gave no slot: it was stopped at that moment, or cannot write its \
             history file; its log has a line.",
        ),
        _ => None,
    };
    if let Some(remedy) = remedy {
        return DoctorFinding::problem("server", text, remedy);
    }
    let Some((before, after)) = drops else {
        let remedy =
            "Check the firewall for UDP, the advertised address, the key and the protocol id; --admin shows which.";
        return DoctorFinding::problem("server", text, remedy);
    };
    let grown = after.iter().filter(|(reason, count)| before.get(*reason).is_none_or(|earlier| *count > earlier));
    let explained: Vec<_> = grown.filter_map(|(reason, _)| Some((reason, remedy_of_drop(reason)?))).collect();
    match explained.as_slice() {
        [] => {
            let text = format!("{text}. The admin port counted no dropped datagram");
            let remedy = "The datagrams do not reach the server: check the firewall for UDP, NAT and the advertised \
                          address, and that --admin is the port of this server.";
            DoctorFinding::problem("server", text, remedy)
        }
        [(reason, remedy), ..] => {
            let text = format!("{text}. The admin port counted dropped datagrams: {reason}");
            DoctorFinding::problem("server", text, remedy)
        }
    }
}

/// Returns what to do about a reason, from the table of dropped datagrams; `None` where nothing is to be done.
fn remedy_of_drop(reason: &str) -> Option<&'static str> {
    let row = DROPPED_DATAGRAMS.lines().find(|line| line.starts_with(&format!("| `{reason}` |")))?;
    let remedy = row.split(" | ").last()?.trim_end_matches(" |").trim();
    (!remedy.starts_with("Nothing")).then_some(remedy)
}

#[cfg(test)]
mod tests {
    use slipgate_client::ClosedBy;

    use super::super::server_metrics::{DROPPED, PREFIX};
    use super::*;

    #[test]
    fn dropped_datagrams_explain_a_failed_handshake() {
        let (server, timed_out) = ("192.0.2.1:7", ended(CloseKind::RequestTimedOut));
        let row = |reason: &str, count: u32| format!("{PREFIX}{DROPPED}{reason}\"}} {count}\n");
        let before = drops(&row("token_not_authentic", 1));
        let after = drops(&format!("# X\n{}{}", row("token_not_authentic", 4), row("replayed", 2)));
        let finding = explain(server, None, Some((before.clone(), after)));
        assert!(
            finding.text.ends_with("no reply. The admin port counted dropped datagrams: token_not_authentic"),
            "{finding:?}"
        );
        assert!(finding.remedy.unwrap().starts_with("Give issuer and server the same private key."));
        let finding = explain(server, Some(&timed_out), Some((before.clone(), before)));
        assert!(finding.text.ends_with("again. The admin port counted no dropped datagram"), "{finding:?}");
        assert!(explain(server, None, None).remedy.unwrap().contains("--admin shows which"));
    }

    fn ended(kind: CloseKind) -> CloseReason {
        CloseReason { by: ClosedBy::Netcode, kind, code: None, text: String::new() }
    }

    #[test]
    fn refusal_of_a_server_says_that_it_responds() {
        for kind in [CloseKind::Denied, CloseKind::ResponseTimedOut] {
            let finding = explain("192.0.2.1:7", Some(&ended(kind)), Some((Drops::new(), Drops::new())));
            let remedy = finding.remedy.unwrap();
            assert!(remedy.starts_with("The server responds and has the key"), "{remedy}");
            assert!(!finding.text.contains("dropped"), "{}", finding.text);
        }
    }

    #[test]
    fn each_reason_with_a_remedy_has_a_sentence() {
        for reason in ["request_protocol", "address_not_listed", "before_start", "token_lifetime_too_long"] {
            assert!(remedy_of_drop(reason).is_some_and(|remedy| remedy.ends_with('.')), "{reason}");
        }
        assert_eq!((remedy_of_drop("replayed"), remedy_of_drop("no_such_reason")), (None, None));
    }

    #[test]
    fn private_addresses_are_a_warning() {
        for (address, is_local) in
            [("127.0.0.1:1", true), ("10.1.2.3:1", true), ("[fd00::1]:1", true), ("203.0.113.5:1", false)]
        {
            assert_eq!(check_address(address.parse().unwrap()).is_some(), is_local, "{address}");
        }
    }
}
