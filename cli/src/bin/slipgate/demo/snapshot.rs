//! A snapshot of the demo as text, table or JSON. `show` draws it.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use slipgate_netcode::discard::Discard;

use super::clients::ClientReport;
use super::game::GameSettings;
use super::server::ServerReport;
use super::server_game::ServerSideReport;

/// Discard reasons that occur in a healthy game, with their explanation.
pub(super) const EXPECTED_DISCARDS: [(Discard, &str); 2] = [
    (Discard::AddressConnected, "a repeated handshake packet that arrived after the client was connected"),
    (Discard::UnknownSender, "a last packet of a client that had disconnected"),
];

/// The state of all clients and of the server.
pub(super) struct Snapshot {
    pub(super) clients: Vec<Entry>,
    pub(super) server: ServerReport,
    map_bytes: u32,
}

/// A client, as reported by itself and by the server.
pub(super) struct Entry {
    pub(super) client: ClientReport,
    pub(super) at_server: ServerSideReport,
}

impl Entry {
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.at_server.path.and_then(|path| path.congestion.round_trip)
    }

    fn jitter(&self) -> Option<Duration> {
        self.at_server.path.and_then(|path| path.endpoint.rtt).map(|rtt| rtt.jitter.deviation)
    }

    /// Returns the share of the server's packets that were lost, in percent.
    fn loss(&self) -> Option<f64> {
        self.at_server.path.map(|path| path.endpoint.loss * 100.0)
    }

    /// Returns the suggested rate to this client: packets per second x payload bytes of each.
    fn budget(&self) -> String {
        let suggestion = self.at_server.budget.map(|budget| budget.suggestion);
        suggestion.map_or_else(dash, |suggestion| {
            format!("{:.0}/s x {}", suggestion.packets_per_second, suggestion.payload_bytes)
        })
    }

    pub(super) const fn wrong(&self) -> u64 {
        let player = &self.client.player;
        let at_client = player.chat.wrong + player.states.wrong + player.map.wrong;
        at_client + self.at_server.wrong_lines + self.at_server.states.wrong
    }
}

impl Snapshot {
    pub(super) fn new(clients: Vec<ClientReport>, server: ServerReport, settings: &GameSettings) -> Self {
        let entry = |client: ClientReport| {
            let report = server.clients.iter().find(|report| report.client_id == client.client_id);
            let mut at_server = report.cloned().unwrap_or_default();
            // The server's report may be older than the client's, so its count of sent updates may lag behind.
            at_server.states_sent = at_server.states_sent.max(client.player.states.received);
            Entry { client, at_server }
        };
        let clients = clients.into_iter().map(entry).collect();
        Self { clients, server, map_bytes: settings.map.bytes().len() as u32 }
    }

    pub(super) fn sum(&self, of: impl Fn(&Entry) -> u64) -> u64 {
        self.clients.iter().map(of).sum()
    }

    pub(super) fn count(&self, is: impl Fn(&Entry) -> bool) -> usize {
        self.clients.iter().filter(|entry| is(entry)).count()
    }

    pub(super) fn slowest(&self) -> Option<Duration> {
        self.clients.iter().filter_map(Entry::round_trip).max()
    }

    /// Returns the lines of the table, with at most `rows` clients.
    pub(super) fn table(&self, rows: usize) -> Vec<String> {
        let heading =
            ["client", "state", "slot", "round trip", "jitter", "loss", "budget", "map", "chat", "updates", "wrong"];
        let mut lines = vec![columns(heading.map(str::to_owned))];
        lines.extend(self.clients.iter().take(rows).map(|entry| self.row(entry)));
        if self.clients.len() > rows {
            lines.push(format!("{:>7}  … and {} more", "", self.clients.len() - rows));
        }
        lines.extend([self.total(), String::new(), self.server_line(), format!("dropped   {}", self.drops())]);
        lines.extend(self.legend());
        lines
    }

    fn row(&self, entry: &Entry) -> String {
        let (client, player, at_server) = (&entry.client, &entry.client.player, &entry.at_server);
        columns([
            client.client_id.to_string(),
            client.error.as_deref().unwrap_or_else(|| player.state.name()).chars().take(16).collect(),
            player.slot.map_or_else(dash, |slot| slot.to_string()),
            millis(entry.round_trip()),
            millis(entry.jitter()),
            entry.loss().map_or_else(dash, |loss| format!("{loss:.1} %")),
            entry.budget(),
            self.map(player.map.complete, player.map.bytes),
            format!("{}/{}", player.chat.returned, player.chat.sent),
            format!("{}/{}", player.states.received, at_server.states_sent),
            entry.wrong().to_string(),
        ])
    }

    /// Returns the row that sums up all clients.
    fn total(&self) -> String {
        let connected = self.count(|entry| entry.client.player.state.is_connected());
        let losses = self.clients.iter().filter_map(Entry::loss);
        let complete = self.count(|entry| entry.client.player.map.complete > 0);
        columns([
            "all".to_owned(),
            format!("{connected} connected"),
            String::new(),
            millis(self.slowest()),
            millis(self.clients.iter().filter_map(Entry::jitter).max()),
            losses.reduce(f64::max).map_or_else(dash, |loss| format!("{loss:.1} %")),
            String::new(),
            format!("{complete}/{}", self.clients.len()),
            format!("{}/{}", self.lines_returned(), self.lines_sent()),
            format!("{}/{}", self.states_received(), self.states_sent()),
            self.sum(Entry::wrong).to_string(),
        ])
    }

    pub(super) fn lines_sent(&self) -> u64 {
        self.sum(|entry| entry.client.player.chat.sent)
    }

    pub(super) fn lines_returned(&self) -> u64 {
        self.sum(|entry| entry.client.player.chat.returned)
    }

    pub(super) fn states_sent(&self) -> u64 {
        self.sum(|entry| entry.at_server.states_sent)
    }

    pub(super) fn states_received(&self) -> u64 {
        self.sum(|entry| entry.client.player.states.received)
    }

    fn map(&self, complete: u64, bytes: u32) -> String {
        match complete {
            0 => format!("{} %", u64::from(bytes) * 100 / u64::from(self.map_bytes.max(1))),
            _ => "complete".to_owned(),
        }
    }

    fn server_line(&self) -> String {
        let server = &self.server;
        format!(
            "server    {} of {} slots used, datagrams received {}, sent {}, challenges {}, denials {}",
            server.connected,
            server.slots,
            server.stats.payloads_received,
            server.stats.payloads_sent,
            server.stats.challenges_sent,
            server.stats.denials_sent
        )
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
            self.count(|entry| entry.client.player.state.is_connected()),
            self.clients.len(),
            millis(self.slowest()),
            self.lines_returned(),
            self.lines_sent(),
            self.states_received(),
            self.states_sent(),
            self.count(|entry| entry.client.player.map.complete > 0),
            self.sum(Entry::wrong),
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

    fn json_of(&self, entry: &Entry) -> Value {
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

fn columns(cells: [String; 11]) -> String {
    let [client, state, slot, round_trip, jitter, loss, budget, map, chat, states, wrong] = cells;
    format!(
        "{client:>7}  {state:<16} {slot:>4} {round_trip:>11} {jitter:>9} {loss:>7} {budget:>12} {map:>8} {chat:>10} \
         {states:>13} {wrong:>5}"
    )
}

pub(super) fn millis(time: Option<Duration>) -> String {
    time.map_or_else(dash, |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
}

fn dash() -> String {
    "-".to_owned()
}
