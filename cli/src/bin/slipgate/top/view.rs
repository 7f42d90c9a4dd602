//! What the view shows: readings of the server, and the order and position of the list.

use std::time::Instant;

use serde::Deserialize;

use super::metrics::TopMetrics;
use crate::http_port::HttpPort;

/// The number of values of a chart.
pub(super) const HISTORY: usize = 120;

/// One client of `/clients`.
#[derive(Clone, Deserialize)]
pub(super) struct TopClient {
    pub(super) id: String,
    pub(super) shard: u16,
    pub(super) slot: u32,
    pub(super) address: Option<String>,
    pub(super) connected_seconds: Option<f64>,
    pub(super) silent_seconds: Option<f64>,
    pub(super) round_trip_seconds: Option<f64>,
    pub(super) loss: Option<f64>,
    pub(super) bytes_sent: u64,
    pub(super) bytes_received: u64,
}

#[derive(Deserialize)]
struct TopClientList {
    clients: Vec<TopClient>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct TopReadiness {
    reason: Option<String>,
}

/// One reading of the admin port.
pub(super) struct TopReading {
    pub(super) at: Instant,
    pub(super) metrics: TopMetrics,
    /// Why the server is not ready, `None` if it is.
    pub(super) not_ready: Option<String>,
    /// The first 256 clients.
    pub(super) clients: Vec<TopClient>,
    pub(super) has_more: bool,
}

impl TopReading {
    /// Reads the admin port.
    ///
    /// # Errors
    /// The text of what failed.
    pub(super) fn read(port: &HttpPort) -> Result<Self, String> {
        let list: TopClientList = port.get_json("/clients")?;
        let metrics = port.get("/metrics").map(|response| TopMetrics::parse(&response.body))?;
        let readiness = port.get("/readyz")?;
        let readiness: TopReadiness = serde_json::from_str(&readiness.body).map_err(|error| error.to_string())?;
        let TopClientList { clients, next } = list;
        Ok(Self { at: Instant::now(), metrics, not_ready: readiness.reason, clients, has_more: next.is_some() })
    }
}

/// The order of the list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClientOrder {
    Slot,
    RoundTrip,
    Loss,
    Bytes,
}

impl ClientOrder {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::RoundTrip => "round trip",
            Self::Loss => "loss",
            Self::Bytes => "bytes",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Slot => Self::RoundTrip,
            Self::RoundTrip => Self::Loss,
            Self::Loss => Self::Bytes,
            Self::Bytes => Self::Slot,
        }
    }
}

/// The state of the view.
pub(super) struct TopView {
    pub(super) url: String,
    pub(super) reading: TopReading,
    /// The reading before, for rates.
    pub(super) earlier: Option<TopReading>,
    /// Why the last reading failed.
    pub(super) problem: Option<String>,
    pub(super) order: ClientOrder,
    pub(super) first_row: usize,
    pub(super) connected: Vec<u64>,
    pub(super) datagrams: Vec<u64>,
}

impl TopView {
    pub(super) fn new(url: &str, reading: TopReading) -> Self {
        let connected = vec![reading.metrics.sum("clients") as u64];
        Self {
            url: url.to_owned(),
            reading,
            earlier: None,
            problem: None,
            order: ClientOrder::Slot,
            first_row: 0,
            connected,
            datagrams: Vec::new(),
        }
    }

    /// Takes the next reading. A failed one leaves the values as they are.
    pub(super) fn update(&mut self, reading: Result<TopReading, String>) {
        match reading {
            Ok(mut reading) => {
                sort(&mut reading.clients, self.order);
                self.earlier = Some(std::mem::replace(&mut self.reading, reading));
                self.problem = None;
                push(&mut self.connected, self.reading.metrics.sum("clients") as u64);
                let rate = self.rate("datagrams_received_total").unwrap_or(0.0) as u64;
                push(&mut self.datagrams, rate);
            }
            Err(problem) => self.problem = Some(problem),
        }
    }

    /// Returns the growth of a counter per second, `None` before the second reading.
    pub(super) fn rate(&self, counter: &str) -> Option<f64> {
        self.growth(|metrics| metrics.sum(counter))
    }

    /// Returns the dropped datagrams in a second, without those that follow a clean leave; `None` with one reading.
    pub(super) fn rate_of_drops(&self) -> Option<f64> {
        self.growth(|metrics| metrics.drops().iter().map(|(_, count)| count).sum())
    }

    fn growth(&self, value: impl Fn(&TopMetrics) -> f64) -> Option<f64> {
        let earlier = self.earlier.as_ref()?;
        let seconds = self.reading.at.duration_since(earlier.at).as_secs_f64();
        let grown = value(&self.reading.metrics) - value(&earlier.metrics);
        (seconds > 0.0).then(|| grown.max(0.0) / seconds)
    }

    /// Returns the mean time of the turns since the last reading, in milliseconds.
    pub(super) fn turn_millis(&self) -> Option<f64> {
        let earlier = self.earlier.as_ref()?;
        let mean = self.reading.metrics.mean_since(&earlier.metrics, "turn_time_seconds");
        mean.map(|seconds| seconds * 1000.0)
    }

    pub(super) fn scroll(&mut self, rows: isize) {
        let last = self.reading.clients.len().saturating_sub(1);
        self.first_row = self.first_row.saturating_add_signed(rows).min(last);
    }

    pub(super) fn next_order(&mut self) {
        self.order = self.order.next();
        sort(&mut self.reading.clients, self.order);
    }
}

fn push(values: &mut Vec<u64>, value: u64) {
    values.push(value);
    values.drain(..values.len().saturating_sub(HISTORY));
}

/// Sorts clients: by slot, or the largest value first.
fn sort(clients: &mut [TopClient], order: ClientOrder) {
    let largest = |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
    clients.sort_by(|a, b| match order {
        ClientOrder::Slot => (a.shard, a.slot).cmp(&(b.shard, b.slot)),
        ClientOrder::RoundTrip => largest(a.round_trip_seconds, b.round_trip_seconds),
        ClientOrder::Loss => largest(a.loss, b.loss),
        ClientOrder::Bytes => (b.bytes_sent + b.bytes_received).cmp(&(a.bytes_sent + a.bytes_received)),
    });
}
