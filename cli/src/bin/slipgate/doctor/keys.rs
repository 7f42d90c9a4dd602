//! The check of the private keys: whether the server has the one with which the issuer seals, by their fingerprints.

use super::finding::DoctorFinding;
use super::server_metrics::{PREFIX, metrics};
use crate::http_port::HttpPort;

/// The names of the metrics, without their prefix.
const SEALING_KEY: &str = "_issuer_sealing_key{";
const ACCEPTED_KEY: &str = "_accepted_key{";

/// Compares the keys of the issuer and of the server. Returns `None` if the server shows none: it is older, or its
/// metrics cannot be read, which another finding says.
pub(super) fn check_keys(issuer: &HttpPort, admin: &HttpPort, protocol_id: u64) -> Option<DoctorFinding> {
    let accepted = accepted_keys(&metrics(admin).ok()?);
    if accepted.is_empty() {
        return None;
    }
    let unknown = |text: &str| {
        DoctorFinding::warning(
            "key ids",
            text,
            "Use an API key with the permission to observe: its metrics show the key.",
        )
    };
    let sealing = match issuer.get("/metrics") {
        Ok(response) if response.status == 200 => sealing_key(&response.body, protocol_id),
        Ok(response) => return Some(unknown(&format!("the issuer returned HTTP {} for /metrics", response.status))),
        Err(error) => return Some(unknown(&format!("the issuer's /metrics: {error}"))),
    };
    Some(compare(&sealing?, &accepted, admin.url()))
}

fn compare(sealing: &str, accepted: &[String], admin: &str) -> DoctorFinding {
    if accepted.iter().any(|key| key == sealing) {
        let text = format!("the issuer seals with {sealing}, which the server at {admin} has");
        return DoctorFinding::ok("key ids", text);
    }
    let text = format!("the issuer seals with {sealing}, and the server at {admin} has {}", accepted.join(", "));
    let remedy = "Give issuer and server the same key file, the server first: `slipgate keys list FILE` prints the \
                  fingerprints.";
    DoctorFinding::problem("key ids", text, remedy)
}

/// Returns the fingerprint of the key that seals for a game.
fn sealing_key(metrics: &str, protocol_id: u64) -> Option<String> {
    let rows = rows(metrics, SEALING_KEY);
    let of_game = |row: &&str| label(row, "protocol_id").is_some_and(|id| id == protocol_id.to_string());
    rows.filter(of_game).find_map(|row| label(row, "fingerprint")).map(str::to_owned)
}

fn accepted_keys(metrics: &str) -> Vec<String> {
    rows(metrics, ACCEPTED_KEY).filter_map(|row| label(row, "fingerprint")).map(str::to_owned).collect()
}

fn rows<'a>(metrics: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    metrics.lines().filter_map(move |line| line.strip_prefix(PREFIX)?.strip_prefix(name))
}

/// Returns the value of a label.
fn label<'a>(row: &'a str, name: &str) -> Option<&'a str> {
    let labels = row.split_once('}')?.0;
    labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_metrics_are_compared_for_the_game_of_the_token() {
        let row = |id, key| format!("{PREFIX}{SEALING_KEY}protocol_id=\"{id}\",fingerprint=\"{key}\"}} 1\n");
        let issuer = format!("# TYPE x gauge\n{}{}", row(7, "aa"), row(77, "bb"));
        assert_eq!(sealing_key(&issuer, 77).as_deref(), Some("bb"));
        assert_eq!(sealing_key(&issuer, 8), None);
        let server = format!("{PREFIX}{ACCEPTED_KEY}fingerprint=\"bb\"}} 1.0\n");
        assert!(compare("bb", &accepted_keys(&server), "x").remedy.is_none());
        let text = compare("aa", &accepted_keys(&server), "x").text;
        assert_eq!(text, "the issuer seals with aa, and the server at x has bb");
    }
}
