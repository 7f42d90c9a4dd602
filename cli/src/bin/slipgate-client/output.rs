//! What the program says: lines for people, or one JSON object a line.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use slipgate_client::PublicFacts;
use slipgate_client::probe::ProbeReport;

pub(crate) struct Output {
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'a str,
    state: &'a str,
    slot: Option<u32>,
    sent: u64,
    right: u64,
    wrong: u64,
    missing: u64,
    foreign: u64,
    dropped: u64,
    round_trip_ms: Option<f64>,
    round_trip_least_ms: Option<f64>,
    round_trip_most_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ok: Option<bool>,
}

fn millis(time: Option<Duration>) -> Option<f64> {
    time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3)
}

impl Output {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn begin(&mut self, facts: &PublicFacts) {
        let servers: Vec<_> = facts.servers.as_slice().iter().map(ToString::to_string).collect();
        if self.json {
            say(&serde_json::json!({ "event": "connecting", "servers": servers }).to_string());
        } else {
            say(&format!("connecting to {}", servers.join(", ")));
        }
    }

    pub(crate) fn progress(&mut self, report: &ProbeReport) {
        self.line("progress", report, None);
    }

    pub(crate) fn end(&mut self, report: &ProbeReport, ok: bool) {
        self.line("summary", report, Some(ok));
    }

    fn line(&self, event: &str, report: &ProbeReport, ok: Option<bool>) {
        let line = Line {
            event,
            state: report.state.name(),
            slot: report.slot,
            sent: report.sent,
            right: report.right,
            wrong: report.wrong,
            missing: report.missing(),
            foreign: report.foreign,
            dropped: report.dropped,
            round_trip_ms: millis(report.round_trip.smoothed),
            round_trip_least_ms: millis(report.round_trip.least),
            round_trip_most_ms: millis(report.round_trip.most),
            ok,
        };
        if self.json {
            say(&serde_json::to_string(&line).unwrap_or_default());
        } else {
            say(&line.words());
        }
    }
}

impl Line<'_> {
    fn words(&self) -> String {
        let slot = self.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
        let round_trip = self.round_trip_ms.map_or_else(|| "-".to_owned(), |millis| format!("{millis:.2} ms"));
        format!(
            "{}: {}, slot {slot}, round trip {round_trip}, sent {}, echoes right {}, wrong {}, missing {}, dropped {}",
            self.event, self.state, self.sent, self.right, self.wrong, self.missing, self.dropped
        )
    }
}

/// A closed pipe is the reader's wish, and no reason to fail.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
