//! A snapshot of the demo, as text or JSON. `show` prints it, `live` draws it.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use slipgate_netcode::discard::Discard;

use super::clients::ClientReport;
use super::game::GameSettings;
use super::server::ServerReport;
use super::server_game::ServerSideReport;

/// Discard reasons that occur in a healthy game, with their explanation.
const EXPECTED_DISCARDS: [(Discard, &str); 2] = [
    (Discard::AddressConnected, "a repeated handshake packet that arrived after the client was connected"),
    (Discard::ConnectionEnded, "a last packet of a client that had disconnected"),
];

/// The state of all clients and of the server.
pub(super) struct DemoSnapshot {
    pub(super) clients: Vec<PlayerEntry>,
    pub(super) server: ServerReport,
    map_bytes: u32,
}

/// A client, as reported by itself and by the server.
#[cfg_attr(test, derive(Clone))]
pub(super) struct PlayerEntry {
    pub(super) client: ClientReport,
    pub(super) at_server: ServerSideReport,
}

impl PlayerEntry {
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.at_server.path.and_then(|path| path.congestion.round_trip)
    }

    /// Returns the jitter of the same round trip. That of `endpoint.rtt` includes the turns of the client.
    pub(super) fn jitter(&self) -> Option<Duration> {
        self.at_server.path.and_then(|path| path.congestion.round_trip_variation)
    }

    /// Returns the share of the server's packets that were lost, in percent.
    pub(super) fn loss(&self) -> Option<f64> {
        self.at_server.path.map(|path| path.endpoint.loss * 100.0)
    }

    /// Returns the suggested rate to this client: packets per second x payload bytes of each.
    pub(super) fn budget(&self) -> String {
        let suggestion = self.at_server.budget.map(|budget| budget.suggestion);
        suggestion.map_or_else(dash, |suggestion| {
            format!("{:.0}/s x{}", suggestion.packets_per_second, suggestion.payload_bytes)
        })
    }

    /// Returns the wrong messages of all sessions.
    pub(super) const fn wrong(&self) -> u64 {
        self.client.player.wrong() + self.client.past.wrong + self.at_server.wrong()
    }
}

impl DemoSnapshot {
    pub(super) fn new(clients: Vec<ClientReport>, server: ServerReport, settings: &GameSettings) -> Self {
        let entry = |client: ClientReport| {
            let report = server.clients.iter().find(|report| report.client_id == client.client_id);
            let mut at_server = report.cloned().unwrap_or_default();
            // The server's report may be older than the client's, so its count of sent updates may lag behind.
            at_server.states_sent = at_server.states_sent.max(client.player.states.received);
            PlayerEntry { client, at_server }
        };
        let clients = clients.into_iter().map(entry).collect();
        Self { clients, server, map_bytes: settings.map.bytes().len() as u32 }
    }

    pub(super) fn sum(&self, of: impl Fn(&PlayerEntry) -> u64) -> u64 {
        self.clients.iter().map(of).sum()
    }

    pub(super) fn count(&self, is: impl Fn(&PlayerEntry) -> bool) -> usize {
        self.clients.iter().filter(|entry| is(entry)).count()
    }

    /// Returns the wrong messages of all clients, and those that former connections sent to the server.
    pub(super) fn wrong(&self) -> u64 {
        self.sum(PlayerEntry::wrong) + self.server.past_wrong
    }

    /// Returns the number of connected clients.
    pub(super) fn connected(&self) -> usize {
        self.count(|entry| entry.client.player.state.is_connected())
    }

    /// Returns the bytes of the map that each client receives.
    pub(super) const fn map_bytes(&self) -> u32 {
        self.map_bytes
    }

    /// Returns the longest round trip of a connected client.
    pub(super) fn slowest(&self) -> Option<Duration> {
        self.of_connected(PlayerEntry::round_trip).max()
    }

    pub(super) fn largest_jitter(&self) -> Option<Duration> {
        self.of_connected(PlayerEntry::jitter).max()
    }

    pub(super) fn largest_loss(&self) -> Option<f64> {
        self.of_connected(PlayerEntry::loss).reduce(f64::max)
    }

    fn of_connected<T>(&self, value: impl Fn(&PlayerEntry) -> Option<T>) -> impl Iterator<Item = T> {
        let connected = self.clients.iter().filter(|entry| entry.client.player.state.is_connected());
        connected.filter_map(value)
    }

    pub(super) fn lines_sent(&self) -> u64 {
        self.sum(|entry| entry.client.player.chat.sent + entry.client.past.lines)
    }

    pub(super) fn lines_returned(&self) -> u64 {
        self.sum(|entry| entry.client.lines_returned())
    }

    pub(super) fn states_sent(&self) -> u64 {
        self.sum(|entry| entry.at_server.states_sent + entry.client.past.states)
    }

    pub(super) fn states_received(&self) -> u64 {
        self.sum(|entry| entry.client.states_received())
    }

    fn drops(&self) -> String {
        let mut drops = String::new();
        for (reason, count) in self.server.discards.iter() {
            let separator = if drops.is_empty() { "" } else { ", " };
            let _ = write!(drops, "{separator}{reason} {count}");
        }
        if drops.is_empty() { "none".to_owned() } else { drops }
    }

    /// Returns an explanation for each discard reason that occurred and is expected in a healthy game.
    pub(super) fn legend(&self) -> impl Iterator<Item = String> {
        EXPECTED_DISCARDS
            .iter()
            .filter(|(reason, _)| self.server.discards[*reason] > 0)
            .map(|(reason, what)| format!("{:10}{reason}: {what}", ""))
    }

    /// Returns the snapshot as one line of text.
    pub(super) fn line(&self) -> String {
        format!(
            "{} of {} connected, slowest round trip {}, chat {} of {}, updates {} of {}, maps {}, wrong {}, \
             dropped: {}",
            self.connected(),
            self.clients.len(),
            millis(self.slowest()),
            self.lines_returned(),
            self.lines_sent(),
            self.states_received(),
            self.states_sent(),
            self.count(|entry| entry.client.player.map.complete > 0),
            self.wrong(),
            self.drops()
        )
    }

    /// Returns the snapshot as JSON.
    pub(super) fn json(&self, event: &str) -> Value {
        let clients: Vec<Value> = self.clients.iter().map(|entry| self.json_of(entry)).collect();
        let drops: Map<String, Value> =
            self.server.discards.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect();
        let (server, stats) = (&self.server, &self.server.stats);
        json!({ "event": event, "clients": clients, "server": { "slots": server.slots, "connected": server.connected,
            "payloads_received": stats.payloads_received, "payloads_sent": stats.payloads_sent, "dropped": drops } })
    }

    fn json_of(&self, entry: &PlayerEntry) -> Value {
        let millis = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
        let (client, player, at_server) = (&entry.client, &entry.client.player, &entry.at_server);
        let budget = at_server.budget.map(|budget| {
            let suggestion = budget.suggestion;
            json!({ "packets_per_second": suggestion.packets_per_second, "payload_bytes": suggestion.payload_bytes })
        });
        json!({ "client_id": client.client_id.to_string(), "state": player.state.name(), "slot": player.slot,
            "round_trip_ms": millis(entry.round_trip()), "jitter_ms": millis(entry.jitter()),
            "loss_percent": entry.loss(), "budget": budget,
            "chat": { "sent": player.chat.sent, "returned": player.chat.returned,
                "from_others": player.chat.from_others },
            "states": { "sent": at_server.states_sent, "received": player.states.received,
                "from_client": at_server.states.received },
            "map": { "bytes": player.map.bytes, "of": self.map_bytes, "complete": player.map.complete },
            "wrong": entry.wrong(), "dropped": player.dropped, "error": client.error })
    }
}

pub(super) fn millis(time: Option<Duration>) -> String {
    time.map_or_else(dash, |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
}

fn dash() -> String {
    "-".to_owned()
}
