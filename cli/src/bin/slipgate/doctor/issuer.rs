//! The checks of the issuer: whether it responds, whether it is ready, and why it mints no token.

use std::time::SystemTime;

use serde::Deserialize;
use slipgate_client::fetch::{CertificateAuthorities, FetchError};
use slipgate_os::authorities::remedy_of_issuer_certificate;
use zeroize::Zeroizing;

use super::clocks::clock_skew;
use super::finding::DoctorFinding;
use crate::http_port::{HttpPort, HttpResponse};

/// How the issuer is called.
pub(super) struct IssuerAccess {
    pub(super) url: String,
    pub(super) key: Zeroizing<String>,
    pub(super) authorities: Option<CertificateAuthorities>,
}

/// An issuer that responds.
pub(super) struct CheckedIssuer {
    pub(super) port: HttpPort,
    /// The skew of its clock against this machine's, in seconds.
    pub(super) skew: Option<i64>,
}

/// Requests health and readiness of the issuer. Returns `None` if it does not respond.
pub(super) fn check_issuer(access: &IssuerAccess, findings: &mut Vec<DoctorFinding>) -> Option<CheckedIssuer> {
    let mut problem = |text: String, remedy: &str| findings.push(DoctorFinding::problem("issuer", text, remedy));
    let Some(port) = HttpPort::of_issuer(&access.url, &access.key, access.authorities.as_ref()) else {
        problem(format!("{:?} is no address of an issuer", access.url), "Give --issuer as http://HOST:PORT.");
        return None;
    };
    let before = SystemTime::now();
    let health = match port.get("/healthz") {
        Ok(health) => health,
        Err(error) => {
            problem(format!("{} cannot be reached: {error}", port.url()), remedy_of_transport(&error));
            return None;
        }
    };
    if health.status != 200 {
        let text = format!("{} returned HTTP {} for /healthz", port.url(), health.status);
        problem(text, remedy_of_status(health.status));
        return None;
    }
    findings.push(match port.get("/readyz") {
        Ok(ready) => readiness(port.url(), &ready),
        Err(error) => DoctorFinding::problem("issuer", format!("/readyz: {error}"), remedy_of_transport(&error)),
    });
    let skew = clock_skew("issuer's clock", health.date.as_deref(), before, findings);
    Some(CheckedIssuer { port, skew })
}

#[derive(Deserialize)]
struct IssuerReadiness {
    status: String,
}

fn readiness(url: &str, response: &HttpResponse) -> DoctorFinding {
    let parsed = serde_json::from_str::<IssuerReadiness>(&response.body);
    let remedy = match parsed.as_ref().map(|ready| ready.status.as_str()) {
        Ok("ready") => return DoctorFinding::ok("issuer", format!("{url} serves and is ready")),
        Ok("store_unavailable") => {
            "Start the store of the registry, or correct --registry: until then no token for a group is minted."
        }
        Ok("stopping") => {
            "Ask another issuer: this one got a signal to stop, and serves until --shutdown-delay is over."
        }
        Ok("store_recovering") => REMEDY_OF_RECOVERY,
        Ok("player_keys_unavailable") => {
            "Correct `keys` of the table [players], or its network: until then players' own tokens are refused."
        }
        _ => "Check that the URL is that of a token issuer, without a path.",
    };
    let status = parsed.map_or_else(|_| format!("HTTP {}", response.status), |ready| ready.status);
    DoctorFinding::problem("issuer", format!("{url} is not ready: {status}"), remedy)
}

/// What to do in the pause after the store has started or lost its data.
const REMEDY_OF_RECOVERY: &str =
    "Wait for 3 s: the store of the registry has started or lost its data. Its log may say why.";

/// Returns what to do about an issuer that cannot be reached.
fn remedy_of_transport(error: &str) -> &'static str {
    if let Some(remedy) = remedy_of_issuer_certificate(error) {
        return remedy;
    }
    if error.to_lowercase().contains("refused") {
        return "The machine responds, and no program listens on this port: start the issuer, or correct the port of \
                --issuer and --bind of the issuer.";
    }
    "Correct the host of --issuer, or the firewall: no issuer responds there."
}

const fn remedy_of_status(status: u16) -> &'static str {
    match status {
        421 => "Give --issuer with a name for which the issuer is configured (--host of the issuer).",
        502..=504 => "A proxy responds, and its issuer does not: start the issuer, or correct the proxy.",
        _ => "Check that the URL is that of a token issuer, without a path.",
    }
}

/// Returns what to do if no token is minted.
pub(super) fn remedy_of_token(error: &FetchError) -> &'static str {
    let code = match error {
        FetchError::Transport { error, .. } => return remedy_of_transport(&error.to_string()),
        FetchError::Refused { status, code: None, .. } => return remedy_of_status(*status),
        FetchError::Refused { code: Some(code), .. } => code.as_str(),
        _ => return "Check that the URL is that of a token issuer of this version, without a path.",
    };
    match code {
        "unauthorized" => {
            "The issuer does not know this API key: compare its digest with the configuration. A named key is its id, \
             a dot and the secret."
        }
        "forbidden" => "Use an API key that may mint for this group and protocol id, or widen its scopes.",
        "missing_field" | "server_not_allowed" => {
            "Servers that register have no address in the issuer's list: give --group. Otherwise correct --server, or \
             `servers` of the issuer."
        }
        "unknown_protocol_id" => "Give --protocol-id with a game of the issuer.",
        "no_free_slots" => {
            "No server of this group takes players: start one with --issuer and this --group, or look at the states in \
             GET /v1/servers."
        }
        "store_unavailable" => "Start the store of the registry, or correct --registry of the issuer.",
        "store_recovering" => REMEDY_OF_RECOVERY,
        "too_many_tokens" | "too_many_requests" => "Try again in a minute, or give another --client-id.",
        "wrong_host" => remedy_of_status(421),
        _ => "The issuer's log has a line for this refusal, with its request id; specs/http-api.md explains the codes.",
    }
}

#[cfg(test)]
mod tests {
    use slipgate_token_issuer::http::ErrorCode;

    use super::*;

    fn refused(code: &str) -> FetchError {
        FetchError::Refused { status: 400, code: Some(code.to_owned()), message: None }
    }

    #[test]
    fn codes_with_a_remedy_of_their_own_exist() {
        let of_all = remedy_of_token(&refused("no such code"));
        let known: Vec<_> =
            ErrorCode::ALL.iter().filter(|code| remedy_of_token(&refused(code.name())) != of_all).collect();
        assert_eq!(known.len(), 11, "{known:?}");
    }

    #[test]
    fn issuer_that_is_not_ready_has_its_reason() {
        let response = |status, body: &str| HttpResponse { status, date: None, body: body.to_owned() };
        assert!(readiness("x", &response(200, r#"{"status":"ready"}"#)).remedy.is_none());
        let finding = readiness("x", &response(503, r#"{"status":"store_unavailable"}"#));
        assert!(finding.text.ends_with("store_unavailable") && finding.remedy.unwrap().contains("--registry"));
        let finding = readiness("x", &response(503, r#"{"status":"store_recovering"}"#));
        assert!(finding.remedy.unwrap().starts_with("Wait for 3 s"));
        assert!(readiness("x", &response(404, "")).text.ends_with("HTTP 404"));
    }
}
