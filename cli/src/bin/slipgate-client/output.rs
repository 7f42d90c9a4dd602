//! The program's output: lines of text, or one JSON object per line.

use std::time::Duration;

use serde::Serialize;
use slipgate_cli::output::print_line;
use slipgate_client::probe::ProbeReport;
use slipgate_client::token::PublicFacts;

pub(crate) struct Output {
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'a str,
    state: &'a str,
    slot: Option<u32>,
    sent: u64,
    correct: u64,
    wrong: u64,
    missing: u64,
    foreign: u64,
    dropped: u64,
    round_trip_ms: Option<f64>,
    round_trip_min_ms: Option<f64>,
    round_trip_max_ms: Option<f64>,
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
        let servers: Vec<_> = facts.servers.iter().map(ToString::to_string).collect();
        if self.json {
            print_line(&serde_json::json!({ "event": "connecting", "servers": servers }).to_string());
        } else {
            print_line(&format!("connecting to {}", servers.join(", ")));
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
            slot: report.client_index.map(|index| index.0),
            sent: report.sent,
            correct: report.right,
            wrong: report.wrong,
            missing: report.missing(),
            foreign: report.foreign,
            dropped: report.dropped,
            round_trip_ms: millis(report.round_trip.smoothed),
            round_trip_min_ms: millis(report.round_trip.min),
            round_trip_max_ms: millis(report.round_trip.max),
            ok,
        };
        if self.json {
            print_line(&serde_json::to_string(&line).unwrap_or_default());
        } else {
            print_line(&line.text());
        }
    }
}

impl Line<'_> {
    fn text(&self) -> String {
        let slot = self.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string());
        let round_trip = self.round_trip_ms.map_or_else(|| "-".to_owned(), |millis| format!("{millis:.2} ms"));
        format!(
            "{}: {}, slot {slot}, round trip {round_trip}, sent {}, echoes correct {}, wrong {}, missing {}, \
             dropped {}",
            self.event, self.state, self.sent, self.correct, self.wrong, self.missing, self.dropped
        )
    }
}
