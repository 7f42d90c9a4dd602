//! Counters and latencies of the load.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use slipgate_cli::Failure;
use slipgate_netcode::time::Instant;

use super::payload::read_payload;

/// The status of a load that was not perfect.
const NOT_PERFECT: u8 = 5;
/// The range and the precision of the latencies: 1 us to 60 s, three digits.
const MAX_LATENCY_MICROS: u64 = 60_000_000;
const DIGITS: u8 = 3;
/// The maximum number of different reasons in a report.
const MAX_REASONS: usize = 20;

/// Latencies in microseconds. Larger ones count as 60 s.
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, MAX_LATENCY_MICROS, DIGITS).expect("the bounds are valid constants"))
    }
}

impl Latencies {
    fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    fn summary(&self) -> LatencySummary {
        let millis = |micros: u64| micros as f64 / 1000.0;
        LatencySummary {
            count: self.0.len(),
            mean_ms: self.0.mean() / 1000.0,
            p50_ms: millis(self.0.value_at_quantile(0.5)),
            p90_ms: millis(self.0.value_at_quantile(0.9)),
            p99_ms: millis(self.0.value_at_quantile(0.99)),
            p999_ms: millis(self.0.value_at_quantile(0.999)),
            max_ms: millis(self.0.max()),
        }
    }
}

/// Percentiles of latencies, in milliseconds.
#[derive(Serialize, Debug)]
struct LatencySummary {
    count: u64,
    mean_ms: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    max_ms: f64,
}

impl LatencySummary {
    fn line(&self, name: &str) -> String {
        let Self { p50_ms, p90_ms, p99_ms, p999_ms, max_ms, .. } = self;
        format!("{name}  p50 {p50_ms:.2} ms, p90 {p90_ms:.2}, p99 {p99_ms:.2}, p99.9 {p999_ms:.2}, max {max_ms:.2}")
    }
}

/// What all threads count for the progress, and the reasons of ends.
#[derive(Default)]
pub(super) struct SharedReport {
    connected: AtomicU32,
    ended: AtomicU32,
    received: AtomicU64,
    reasons: Mutex<BTreeMap<String, u32>>,
}

impl SharedReport {
    /// Counts a client that has ended, or never got a token.
    pub(super) fn on_ended(&self, reason: &str) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        let mut reasons = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = reasons.contains_key(reason) || reasons.len() < MAX_REASONS;
        *reasons.entry(if is_known { reason } else { "other reasons" }.to_owned()).or_default() += 1;
    }

    /// Returns the number of clients that have ended.
    pub(super) fn ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns one line for the progress bar.
    pub(super) fn progress(&self, clients: u32, passed: Duration) -> String {
        let (connected, ended) = (self.connected.load(Ordering::Relaxed), self.ended());
        let rate = self.received.load(Ordering::Relaxed) as f64 / passed.as_secs_f64().max(0.1);
        format!("{} of {clients} clients connected, {ended} ended, {rate:.0} echoes/s", connected.saturating_sub(ended))
    }
}

/// The counters of one thread.
pub(super) struct PartReport {
    shared: std::sync::Arc<SharedReport>,
    connected: u32,
    pub(super) sent: u64,
    pub(super) not_sent: u64,
    received: u64,
    wrong: u64,
    echo: Latencies,
    connect: Latencies,
}

impl PartReport {
    pub(super) fn new(shared: std::sync::Arc<SharedReport>) -> Self {
        let (echo, connect) = (Latencies::default(), Latencies::default());
        Self { shared, connected: 0, sent: 0, not_sent: 0, received: 0, wrong: 0, echo, connect }
    }

    pub(super) fn on_connected(&mut self, time: Duration) {
        self.connected += 1;
        self.connect.record(time);
        self.shared.connected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn on_ended(&self, reason: &str) {
        self.shared.on_ended(reason);
    }

    /// Counts an echo that arrived at `now`.
    pub(super) fn on_echo(&mut self, mark: u64, bytes: &[u8], now: Instant) {
        match read_payload(bytes, mark) {
            Some((_, sent_nanos)) => {
                self.received += 1;
                self.shared.received.fetch_add(1, Ordering::Relaxed);
                self.echo.record(now.since_start().saturating_sub(Duration::from_nanos(sent_nanos)));
            }
            None => self.wrong += 1,
        }
    }
}

/// The result of a load.
#[derive(Serialize)]
pub(super) struct LoadReport {
    clients: u32,
    connected: u32,
    /// Clients that ended before the load did, by reason.
    ended: BTreeMap<String, u32>,
    seconds: f64,
    sent: u64,
    not_sent: u64,
    received: u64,
    wrong: u64,
    /// The share of payloads without an echo.
    loss: f64,
    echo: Option<LatencySummary>,
    connect: Option<LatencySummary>,
    #[serde(skip)]
    latencies: (Latencies, Latencies),
}

impl LoadReport {
    pub(super) fn new(clients: u32, time: Duration) -> Self {
        Self {
            clients,
            connected: 0,
            ended: BTreeMap::new(),
            seconds: time.as_secs_f64(),
            sent: 0,
            not_sent: 0,
            received: 0,
            wrong: 0,
            loss: 0.0,
            echo: None,
            connect: None,
            latencies: (Latencies::default(), Latencies::default()),
        }
    }

    /// Adds the counters of one thread.
    pub(super) fn add(&mut self, part: &PartReport) {
        self.connected += part.connected;
        self.sent += part.sent;
        self.not_sent += part.not_sent;
        self.received += part.received;
        self.wrong += part.wrong;
        let (echo, connect) = &mut self.latencies;
        // Both have the same bounds.
        let _ = echo.0.add(&part.echo.0);
        let _ = connect.0.add(&part.connect.0);
    }

    /// Computes what follows from all parts.
    pub(super) fn finish(&mut self, shared: &SharedReport) {
        self.ended.clone_from(&shared.reasons.lock().unwrap_or_else(PoisonError::into_inner));
        if self.sent > 0 {
            self.loss = self.sent.saturating_sub(self.received) as f64 / self.sent as f64;
        }
        self.echo = Some(self.latencies.0.summary());
        self.connect = Some(self.latencies.1.summary());
    }

    /// Returns the report for people.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { clients, connected, sent, not_sent, received, wrong, seconds, .. } = self;
        let loss = self.loss * 100.0;
        let mut lines = vec![
            format!("clients    {connected} of {clients} connected"),
            format!("payloads   {sent} sent, {received} echoes ({loss:.2} % lost), {wrong} wrong, {not_sent} not sent"),
            format!("rate       {:.0} echoes a second, over {seconds:.1} s", *received as f64 / seconds.max(0.001)),
        ];
        lines.extend(self.echo.as_ref().map(|echo| echo.line("echo     ")));
        lines.extend(self.connect.as_ref().map(|connect| connect.line("connect  ")));
        lines.extend(self.ended.iter().map(|(reason, count)| format!("ended      {count}: {reason}")));
        lines
    }

    /// Returns a failure unless all clients were connected until the end, and no echo was wrong.
    pub(super) fn outcome(&self) -> Result<(), Failure> {
        let is_perfect =
            self.connected == self.clients && self.ended.is_empty() && self.wrong == 0 && self.received > 0;
        if is_perfect {
            return Ok(());
        }
        let ended: u32 = self.ended.values().sum();
        let Self { clients, connected, wrong, .. } = self;
        let text =
            format!("{connected} of {clients} clients connected, {ended} ended early, {wrong} echoes were wrong");
        Err(Failure::with_status(text, NOT_PERFECT))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn percentiles_are_those_of_all_threads_together() {
        let shared = Arc::new(SharedReport::default());
        let mut report = LoadReport::new(2, Duration::from_secs(1));
        for millis in [10, 30] {
            let mut part = PartReport::new(Arc::clone(&shared));
            part.on_connected(Duration::from_millis(millis));
            part.sent = 2;
            part.received = 1;
            part.echo.record(Duration::from_millis(millis));
            report.add(&part);
        }
        report.finish(&shared);
        let echo = report.echo.as_ref().unwrap();
        assert_eq!((echo.count, report.loss, report.connected), (2, 0.5, 2));
        assert!((9.9..10.1).contains(&echo.p50_ms) && (29.9..30.1).contains(&echo.max_ms), "{echo:?}");
        assert!(report.outcome().is_ok());
        shared.on_ended("the server is full");
        report.finish(&shared);
        assert!(report.outcome().is_err());
        assert!(report.lines().last().unwrap().ends_with("1: the server is full"));
    }

    #[test]
    fn reasons_are_few_however_many_there_are() {
        let shared = SharedReport::default();
        (0..100).for_each(|number| shared.on_ended(&format!("reason {number}")));
        assert_eq!((shared.ended(), shared.reasons.lock().unwrap().len()), (100, MAX_REASONS + 1));
    }
}
