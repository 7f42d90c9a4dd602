//! The metrics of the service, in the text format of OpenMetrics, which Prometheus reads.
//!
//! Labels are codes of responses, ids of configured keys and states. No label names a player or an address.

use core::sync::atomic::AtomicU64;
use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry as MetricRegistry, Unit};

use super::error::ErrorCode;
use super::games::Games;
use super::refused_head::RefusedHead;
use crate::callers::Caller;
use crate::registry::{RegistryState, ServerStatus};

/// The media type of the text.
pub(super) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The upper bounds of the latency of tokens, in seconds.
const LATENCIES: [f64; 10] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0];

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    /// `minted`, `ok`, the code of the error, or the reason of a refused head.
    outcome: &'static str,
    /// The id of the API key, empty without a valid one.
    key: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct KeyLabels {
    /// The game, in decimal digits.
    protocol_id: String,
    fingerprint: String,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// The counters of the service, and the gauges that a scrape sets.
pub(super) struct Metrics {
    registry: MetricRegistry,
    requests: Family<RequestLabels, Counter>,
    mint_time: Histogram,
    servers: Family<StateLabel, Gauge<i64>>,
    slots: Family<StateLabel, Gauge<i64>>,
    store_available: Gauge<u64, AtomicU64>,
    player_keys: Gauge<u64, AtomicU64>,
    sealing_keys: Family<KeyLabels, Gauge<u64, AtomicU64>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = MetricRegistry::with_prefix("slipgate");
        let metrics = Self {
            requests: Family::default(),
            mint_time: Histogram::new(LATENCIES),
            servers: Family::default(),
            slots: Family::default(),
            store_available: Gauge::default(),
            player_keys: Gauge::default(),
            sealing_keys: Family::default(),
            registry: MetricRegistry::default(),
        };
        registry.register("issuer_requests", "Requests by outcome and API key", metrics.requests.clone());
        let help = "Time from the head of a request to its token";
        registry.register_with_unit("issuer_mint", help, Unit::Seconds, metrics.mint_time.clone());
        registry.register("issuer_servers", "Registered game servers by state", metrics.servers.clone());
        registry.register("issuer_slots", "Slots of living servers by state", metrics.slots.clone());
        let help = "1 while the store of the registry responds";
        registry.register("issuer_store_available", help, metrics.store_available.clone());
        let help = "Usable keys for players' JSON Web Tokens";
        registry.register("issuer_player_keys", help, metrics.player_keys.clone());
        let help = "1 for the private key that seals the tokens of each game, by its fingerprint";
        registry.register("issuer_sealing_key", help, metrics.sealing_keys.clone());
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Counts a response, and the time of a token.
    pub(super) fn on_response(
        &self,
        status: StatusCode,
        refused: Option<ErrorCode>,
        caller: Option<&Caller>,
        time: Duration,
    ) {
        let counter = |outcome| {
            let key = caller.map(Caller::id).unwrap_or_default().to_owned();
            self.requests.get_or_create_owned(&RequestLabels { outcome, key })
        };
        match (refused, caller) {
            (Some(code), _) => _ = counter(code.name()).inc(),
            (None, Some(caller)) if status == StatusCode::CREATED => {
                caller.minted(|| counter("minted")).inc();
                self.mint_time.observe(time.as_secs_f64());
            }
            (None, _) => _ = counter("ok").inc(),
        }
    }

    /// Counts a connection without a complete request.
    pub(super) fn on_refused_head(&self, reason: RefusedHead) {
        self.requests.get_or_create_owned(&RequestLabels { outcome: reason.name(), key: String::new() }).inc();
    }

    /// Returns the text of all metrics, with the servers of this moment. `None` while the store does not respond.
    pub(super) fn encode(&self, servers: Option<&[ServerStatus]>, player_keys: usize, games: &Games) -> String {
        self.player_keys.set(player_keys as u64);
        self.set_sealing_keys(games);
        self.store_available.set(servers.is_some().into());
        match servers {
            Some(servers) => self.set_servers(servers),
            // Zeros would look like a fleet without servers, and the last values like a store that responds.
            None => self.forget_servers(),
        }
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn set_sealing_keys(&self, games: &Games) {
        // A key that a reload has replaced seals no longer.
        self.sealing_keys.clear();
        for issuer in games.iter() {
            let Some(fingerprint) = issuer.sealing_key() else { continue };
            let labels =
                KeyLabels { protocol_id: issuer.protocol_id().to_string(), fingerprint: fingerprint.to_string() };
            self.sealing_keys.get_or_create_owned(&labels).set(1);
        }
    }

    fn forget_servers(&self) {
        self.servers.clear();
        self.slots.clear();
    }

    fn set_servers(&self, servers: &[ServerStatus]) {
        for state in [RegistryState::Ready, RegistryState::Full, RegistryState::Draining, RegistryState::Dead] {
            let count = servers.iter().filter(|server| server.state() == state).count();
            let gauge = self.servers.get_or_create_owned(&StateLabel { state: state.name() });
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let living = servers.iter().filter(|server| server.state() != RegistryState::Dead);
        let (mut free, mut reserved, mut taken) = (0, 0, 0);
        for server in living {
            free += i64::from(server.registration.free_slots);
            reserved += i64::from(server.reserved_slots);
            taken += i64::from(server.registration.slots.saturating_sub(server.registration.free_slots));
        }
        for (state, count) in [("free", free), ("reserved", reserved), ("taken", taken)] {
            self.slots.get_or_create_owned(&StateLabel { state }).set(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use slipgate_netcode::crypto::key::Key;

    use super::*;
    use crate::{Issuer, Limits};

    #[test]
    fn servers_and_slots_are_absent_while_the_store_is_out() {
        let issuer = Issuer::new(7, Key::from([5; 32]).into(), &["192.0.2.1:1".parse().unwrap()], Limits::default());
        let (metrics, games) = (Metrics::default(), Games::from(issuer.unwrap()));
        let series = |servers| {
            let text = metrics.encode(servers, 0, &games);
            let is_of_servers = |line: &&str| {
                line.starts_with("slipgate_issuer_servers{") || line.starts_with("slipgate_issuer_slots{")
            };
            let available = text.lines().find_map(|line| line.strip_prefix("slipgate_issuer_store_available "));
            (text.lines().filter(is_of_servers).count(), available.map(str::to_owned))
        };
        assert_eq!(series(Some(&[])), (7, Some("1".to_owned())));
        assert_eq!(series(None), (0, Some("0".to_owned())));
        assert_eq!(series(Some(&[])), (7, Some("1".to_owned())));
    }
}
