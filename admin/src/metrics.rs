//! The metrics, in the text format of OpenMetrics, which Prometheus reads.
//!
//! A label has one of a few fixed values: a reason, a state or a kind. No label names a client.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use slipgate_netcode::crypto::key::KeyFingerprint;
use slipgate_server::counters::{Discard, ServerTotals};
use slipgate_server::sockets::SocketErrorKind;

use crate::histogram::Histogram;
use crate::redirect_totals::RedirectTotals;
use crate::state::{AdminSnapshot, AdminState, NotReady, lock};

/// The media type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The prefix of each name.
const PREFIX: &str = "slipgate";

/// Everything that one scrape reads.
#[derive(Debug)]
struct Scrape {
    snapshot: AdminSnapshot,
    slots: u32,
    uptime: f64,
    refusals: u64,
    not_ready: Option<NotReady>,
    redirects: RedirectTotals,
    /// `None` for a server that does not register.
    is_registered: Option<bool>,
    keys: Vec<KeyFingerprint>,
}

/// The values of a metric. `By` variants have one value for each value of a label.
enum Value {
    Counter(u64),
    CounterBy(&'static str, Vec<(&'static str, u64)>),
    Gauge(f64),
    /// No value where there is none.
    OptionalGauge(Option<f64>),
    GaugeBy(&'static str, Vec<(&'static str, f64)>),
    /// 1 for each value of a label.
    Info(&'static str, Vec<String>),
    Histogram(Histogram),
}

/// A metric: its name without prefix, unit and `_total`, its help text, and its value.
struct Metric {
    name: &'static str,
    unit: Option<Unit>,
    help: &'static str,
    value: fn(&Scrape) -> Value,
}

const fn metric(name: &'static str, help: &'static str, value: fn(&Scrape) -> Value) -> Metric {
    Metric { name, unit: None, help, value }
}

const fn measured(name: &'static str, unit: Unit, help: &'static str, value: fn(&Scrape) -> Value) -> Metric {
    Metric { name, unit: Some(unit), help, value }
}

/// The state of the server.
const SERVER: &[Metric] = &[
    measured("uptime", Unit::Seconds, "Time since the start of the admin service.", |scrape| {
        Value::Gauge(scrape.uptime)
    }),
    metric("not_ready", "1 for the reason why the server takes no new clients, 0 for each other reason.", |scrape| {
        let value = |reason: NotReady| (reason.name(), f64::from(u8::from(scrape.not_ready == Some(reason))));
        Value::GaugeBy("reason", NotReady::ALL.map(value).to_vec())
    }),
    metric("slots", "Maximum number of clients.", |scrape| Value::Gauge(scrape.slots.into())),
    metric("clients", "Clients with a slot, by state.", |scrape| {
        let (used, closing) = (scrape.snapshot.totals.connected, scrape.snapshot.closing);
        Value::GaugeBy("state", vec![("connected", used.saturating_sub(closing).into()), ("closing", closing.into())])
    }),
    metric("pending_clients", "Clients with a valid token that have not answered their challenge.", |scrape| {
        Value::Gauge(scrape.snapshot.totals.pending_clients as f64)
    }),
    metric("used_tokens", "Used, unexpired tokens in the history.", |scrape| {
        Value::Gauge(scrape.snapshot.totals.used_tokens as f64)
    }),
    measured("memory_left", Unit::Bytes, "Bytes that all clients together may still take, by use.", |scrape| {
        let ServerTotals { message_memory_left, transfer_memory_left, .. } = scrape.snapshot.totals;
        Value::GaugeBy(
            "use",
            vec![("messages", message_memory_left as f64), ("transfers", transfer_memory_left as f64)],
        )
    }),
    metric("queued_messages", "Messages that wait or are not acknowledged, of each client, every 2 s.", |scrape| {
        Value::Histogram(scrape.snapshot.queued)
    }),
    measured(
        "budget_use",
        Unit::Ratios,
        "Traffic of each client as a share of its allowed rate, every 2 s.",
        |scrape| Value::Histogram(scrape.snapshot.budget_use),
    ),
    measured("turn_time", Unit::Seconds, "Time of one turn, without the wait after it.", |scrape| {
        Value::Histogram(scrape.snapshot.turn_time)
    }),
    metric("turns_cut_short", "Turns that ended before all waiting datagrams were read.", |scrape| {
        Value::Counter(scrape.snapshot.totals.turns_cut_short)
    }),
    metric("stalls", "Times without a turn for more than a second; each shard counts its own.", |scrape| {
        Value::Counter(scrape.snapshot.totals.stalls)
    }),
    metric("registered", "1 while the issuer takes the heartbeats, 0 otherwise.", |scrape| {
        Value::OptionalGauge(scrape.is_registered.map(|is_registered| u8::from(is_registered).into()))
    }),
    metric("redirects", "Clients of a drain with redirects, by outcome.", |scrape| {
        let RedirectTotals { sent, refused, without_channels, left, .. } = scrape.redirects;
        let counts = [("sent", sent), ("refused", refused), ("without_channels", without_channels), ("left", left)];
        Value::CounterBy("outcome", counts.to_vec())
    }),
    metric("redirects_waiting", "Clients of a drain that wait for a token for another server.", |scrape| {
        Value::Gauge(scrape.redirects.waiting as f64)
    }),
    metric("accepted_key", "1 for each private key that opens tokens, by its fingerprint.", |scrape| {
        Value::Info("fingerprint", scrape.keys.iter().map(ToString::to_string).collect())
    }),
    metric("admin_refusals", "Admin requests without the token, or from web pages.", |scrape| {
        Value::Counter(scrape.refusals)
    }),
    metric("max_events_per_turn", "Largest number of events that the game took in one turn.", |scrape| {
        Value::Gauge(scrape.snapshot.totals.max_events_per_turn.into())
    }),
];

/// The handshakes and the payloads.
const PROTOCOL: &[Metric] = &[
    metric("connects", "Clients that got a slot.", |scrape| Value::Counter(scrape.snapshot.totals.stats.connects)),
    metric("disconnects", "Connections that ended, by reason.", |scrape| {
        Value::CounterBy("reason", scrape.snapshot.totals.disconnect_reasons.iter().collect())
    }),
    metric("challenges_sent", "Challenges sent to pending clients.", |scrape| {
        Value::Counter(scrape.snapshot.totals.stats.challenges_sent)
    }),
    metric("denials_sent", "Denials sent to clients with valid tokens.", |scrape| {
        Value::Counter(scrape.snapshot.totals.stats.denials_sent)
    }),
    metric("history_failures", "Failed writes of the history file.", |scrape| {
        Value::Counter(scrape.snapshot.totals.stats.journal_failures)
    }),
    metric("payloads_received", "Payloads and packets received from connected clients.", |scrape| {
        Value::Counter(scrape.snapshot.totals.stats.payloads_received)
    }),
    metric("payloads_sent", "Payloads and packets encrypted for connected clients.", |scrape| {
        Value::Counter(scrape.snapshot.totals.stats.payloads_sent)
    }),
    metric("dropped_datagrams", "Received datagrams that the server dropped, by reason.", |scrape| {
        let discards = &scrape.snapshot.totals.discards;
        let counts = Discard::ALL.iter().map(|reason| (reason.name(), discards[*reason]));
        Value::CounterBy("reason", counts.collect())
    }),
    metric("packets_over_budget", "Packets refused because their client exceeded its work budget.", |scrape| {
        Value::Counter(scrape.snapshot.totals.packets_over_budget)
    }),
    metric(
        "packets_not_taken",
        "Packets refused because their client filled its share of a shard's queue.",
        |scrape| Value::Counter(scrape.snapshot.totals.packets_not_taken),
    ),
    measured("round_trip", Unit::Seconds, "Smoothed round-trip time of each path, every 2 s.", |scrape| {
        Value::Histogram(scrape.snapshot.round_trip)
    }),
    measured("loss", Unit::Ratios, "Share of lost packets of each path, every 2 s.", |scrape| {
        Value::Histogram(scrape.snapshot.loss)
    }),
];

/// The sockets.
const SOCKETS: &[Metric] = &[
    metric("datagrams_received", "Datagrams received.", |scrape| {
        Value::Counter(scrape.snapshot.totals.sockets.datagrams_received)
    }),
    metric("datagrams_sent", "Datagrams that the system accepted.", |scrape| {
        Value::Counter(scrape.snapshot.totals.sockets.datagrams_sent)
    }),
    measured("received", Unit::Bytes, "Bytes of datagrams received, without headers.", |scrape| {
        Value::Counter(scrape.snapshot.totals.sockets.bytes_received)
    }),
    measured("sent", Unit::Bytes, "Bytes of datagrams sent, without headers.", |scrape| {
        Value::Counter(scrape.snapshot.totals.sockets.bytes_sent)
    }),
    metric("receive_calls", "Receiving system calls.", |scrape| {
        Value::Counter(scrape.snapshot.totals.sockets.receive_calls)
    }),
    metric("send_calls", "Sending system calls.", |scrape| Value::Counter(scrape.snapshot.totals.sockets.send_calls)),
    metric("dropped_by_system", "Datagrams dropped by the kernel filter or a full buffer; 0 if unknown.", |scrape| {
        Value::Counter(scrape.snapshot.totals.sockets.dropped_by_system.unwrap_or(0))
    }),
    metric("socket_errors", "Errors of sends and receives, by kind.", |scrape| {
        let sockets = scrape.snapshot.totals.sockets;
        let errors = SocketErrorKind::ALL.map(|kind| (kind.name(), sockets.errors(kind)));
        Value::CounterBy("kind", errors.to_vec())
    }),
];

impl Value {
    const fn metric_type(&self) -> MetricType {
        match self {
            Self::Counter(_) | Self::CounterBy(..) => MetricType::Counter,
            Self::Gauge(_) | Self::OptionalGauge(_) | Self::GaugeBy(..) | Self::Info(..) => MetricType::Gauge,
            Self::Histogram(_) => MetricType::Histogram,
        }
    }

    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Counter(count) => ConstCounter::new(*count).encode(encoder),
            Self::CounterBy(label, counts) => counts.iter().try_for_each(|(name, count)| {
                ConstCounter::new(*count).encode(encoder.encode_family(&[(*label, *name)])?)
            }),
            Self::Gauge(value) => ConstGauge::new(*value).encode(encoder),
            Self::OptionalGauge(value) => value.map_or(Ok(()), |value| ConstGauge::new(value).encode(encoder)),
            Self::GaugeBy(label, values) => values.iter().try_for_each(|(name, value)| {
                ConstGauge::new(*value).encode(encoder.encode_family(&[(*label, *name)])?)
            }),
            Self::Info(label, values) => values.iter().try_for_each(|value| {
                ConstGauge::new(1_u64).encode(encoder.encode_family(&[(*label, value.as_str())])?)
            }),
            Self::Histogram(histogram) => {
                let (sum, count) = (histogram.sum(), histogram.count());
                encoder.encode_histogram::<NoLabelSet>(sum, count, &histogram.buckets(), None)
            }
        }
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in [SERVER, PROTOCOL, SOCKETS].into_iter().flatten() {
            let value = (metric.value)(self);
            let (unit, kind) = (metric.unit.as_ref(), value.metric_type());
            value.encode(encoder.encode_descriptor(metric.name, metric.help, unit, kind)?)?;
        }
        Ok(())
    }
}

/// Returns the metrics as text.
pub(crate) fn text(state: &AdminState) -> Result<String, fmt::Error> {
    let scrape = Scrape {
        snapshot: state.snapshot(),
        slots: state.slots(),
        uptime: state.uptime().as_secs_f64(),
        refusals: state.refusals.total(),
        not_ready: state.not_ready(state.uptime()),
        redirects: state.redirects.get().map(|read| read()).unwrap_or_default(),
        is_registered: state.is_registered.get().map(|read| read()),
        keys: lock(&state.keys).clone(),
    };
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    fn families(text: &str) -> BTreeSet<String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn each_metric_is_in_the_table_of_the_operations_page() {
        let text = text(&AdminState::new(None)).unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
        let page = fs::read_to_string(path).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `slipgate_"));
        let documented: BTreeSet<String> =
            rows.map(|row| format!("slipgate_{}", row.split('`').next().unwrap())).collect();
        assert_eq!(documented, families(&text));
        assert!(documented.len() > 20, "{documented:?}");
    }

    #[test]
    fn each_metric_has_a_help_text_and_each_name_its_unit() {
        let text = text(&AdminState::new(None)).unwrap();
        for family in families(&text) {
            let help = text.lines().find_map(|line| line.strip_prefix(&format!("# HELP {family} ")));
            assert!(help.is_some_and(|help| help.ends_with('.')), "{family}");
        }
        for unit in text.lines().filter_map(|line| line.strip_prefix("# UNIT ")) {
            let (name, unit) = unit.split_once(' ').unwrap();
            assert!(name.ends_with(unit), "{name} {unit}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn histograms_are_cumulative_and_end_at_infinity() {
        let state = AdminState::new(None);
        let (shard, _) = state.add_shard(&slipgate_server::ServerConfig::new(1, 2, &[]));
        [0.000_01, 0.003, 5.0].into_iter().for_each(|seconds| lock(&shard.snapshot).turn_time.add(seconds));
        let text = text(&state).unwrap();
        for line in ["_bucket{le=\"0.00005\"} 1", "_bucket{le=\"0.004\"} 2", "_bucket{le=\"+Inf\"} 3", "_count 3"] {
            assert!(text.contains(&format!("slipgate_turn_time_seconds{line}\n")), "{line}: {text}");
        }
        assert!(text.contains("slipgate_dropped_datagrams_total{reason=\"replayed\"} 0\n"), "{text}");
        assert!(text.contains("slipgate_received_bytes_total 0\n"), "{text}");
    }

    #[test]
    fn registration_has_a_value_if_there_is_one() {
        let state = AdminState::new(None);
        assert!(!text(&state).unwrap().contains("\nslipgate_registered "));
        assert!(state.is_registered.set(Box::new(|| true)).is_ok());
        assert!(text(&state).unwrap().contains("\nslipgate_registered 1.0\n"));
    }

    #[test]
    fn redirects_are_those_of_their_source() {
        let state = AdminState::new(None);
        assert!(text(&state).unwrap().contains("slipgate_redirects_total{outcome=\"sent\"} 0\n"));
        let totals = RedirectTotals { sent: 1, refused: 2, without_channels: 3, left: 4, waiting: 5 };
        assert!(state.redirects.set(Box::new(move || totals)).is_ok());
        let text = text(&state).unwrap();
        for (outcome, count) in [("sent", 1), ("refused", 2), ("without_channels", 3), ("left", 4)] {
            let line = format!("slipgate_redirects_total{{outcome=\"{outcome}\"}} {count}\n");
            assert!(text.contains(&line), "{line}: {text}");
        }
        assert!(text.contains("slipgate_redirects_waiting 5.0\n"), "{text}");
    }
}
