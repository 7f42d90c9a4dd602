//! The clocks of issuer and server, by the `Date` of their responses.

use std::time::SystemTime;

use super::finding::DoctorFinding;
use super::http_date::{parse_date, skew};

/// The difference of two clocks from which tokens are refused at the edges of their lifetime, in seconds.
const MAX_SKEW: i64 = 2;

/// Compares the clock of a `Date` header with this machine's. Returns the skew in seconds.
pub(super) fn clock_skew(
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

/// Compares the skews of the two clocks against this machine's.
pub(super) fn compare_clocks(issuer: i64, server: i64) -> DoctorFinding {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_seconds_are_a_problem() {
        assert!(compare_clocks(1, -1).remedy.is_none());
        let finding = compare_clocks(-30, 5);
        assert_eq!(finding.text, "the issuer's is 35 s behind the server's");
    }
}
