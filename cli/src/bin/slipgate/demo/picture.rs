//! What there is to see of the demo at a moment, in words, columns or JSON. How it is drawn is left to `show`.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Map, Value, json};
use slipgate_netcode::discard::Discard;

use super::clients::ClientReport;
use super::game::Rules;
use super::seats::SeatReport;
use super::server::ServerReport;

/// Reasons to drop a datagram though nothing is wrong, and what it was then.
pub(super) const EXPECTED: [(Discard, &str); 2] = [
    (Discard::AddressConnected, "a request or response that was repeated and came late"),
    (Discard::UnknownSender, "a last packet of a client that had left"),
];

/// What there is to show.
pub(super) struct Picture {
    pub(super) clients: Vec<Entry>,
    pub(super) server: ServerReport,
    map_bytes: u32,
}

/// A client, as it sees itself and as the server sees it.
pub(super) struct Entry {
    pub(super) client: ClientReport,
    pub(super) seat: SeatReport,
}

impl Entry {
    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.seat.path.and_then(|path| path.congestion.round_trip)
    }

    fn jitter(&self) -> Option<Duration> {
        self.seat.path.and_then(|path| path.endpoint.rtt).map(|rtt| rtt.jitter.deviation)
    }

    /// The share of the server's packets that were lost, in percent.
    fn loss(&self) -> Option<f64> {
        self.seat.path.map(|path| path.endpoint.loss * 100.0)
    }

    /// What the server may send it: packets a second, and bytes in each.
    fn budget(&self) -> String {
        let suggestion = self.seat.budget.map(|budget| budget.suggestion);
        suggestion.map_or_else(dash, |suggestion| {
            format!("{:.0}/s x {}", suggestion.packets_per_second, suggestion.payload_bytes)
        })
    }

    pub(super) const fn wrong(&self) -> u64 {
        let player = &self.client.player;
        let heard = player.chat.wrong + player.states.wrong + player.map.wrong;
        heard + self.seat.wrong_lines + self.seat.states.wrong
    }
}

impl Picture {
    pub(super) fn new(clients: Vec<ClientReport>, server: ServerReport, rules: &Rules) -> Self {
        let entry = |client: ClientReport| {
            let seat = server.seats.iter().find(|seat| seat.client_id == client.client_id);
            let mut seat = seat.cloned().unwrap_or_default();
            // The server tells of itself less often than the clients do: what has come has left.
            seat.states_sent = seat.states_sent.max(client.player.states.received);
            Entry { client, seat }
        };
        let clients = clients.into_iter().map(entry).collect();
        Self { clients, server, map_bytes: rules.map.bytes().len() as u32 }
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

    /// The lines of the table, with at most so many clients.
    pub(super) fn table(&self, rows: usize) -> Vec<String> {
        let heading =
            ["client", "state", "slot", "round trip", "jitter", "loss", "budget", "map", "chat", "state", "wrong"];
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
        let (client, player, seat) = (&entry.client, &entry.client.player, &entry.seat);
        columns([
            client.client_id.to_string(),
            client.trouble.as_deref().unwrap_or_else(|| player.state.name()).chars().take(16).collect(),
            player.slot.map_or_else(dash, |slot| slot.to_string()),
            millis(entry.round_trip()),
            millis(entry.jitter()),
            entry.loss().map_or_else(dash, |loss| format!("{loss:.1} %")),
            entry.budget(),
            self.map(player.map.whole, player.map.bytes),
            format!("{}/{}", player.chat.back, player.chat.said),
            format!("{}/{}", player.states.received, seat.states_sent),
            entry.wrong().to_string(),
        ])
    }

    /// All clients in one line.
    fn total(&self) -> String {
        let connected = self.count(|entry| entry.client.player.state.is_connected());
        let losses = self.clients.iter().filter_map(Entry::loss);
        let whole = self.count(|entry| entry.client.player.map.whole > 0);
        columns([
            "all".to_owned(),
            format!("{connected} connected"),
            String::new(),
            millis(self.slowest()),
            millis(self.clients.iter().filter_map(Entry::jitter).max()),
            losses.reduce(f64::max).map_or_else(dash, |loss| format!("{loss:.1} %")),
            String::new(),
            format!("{whole}/{}", self.clients.len()),
            format!("{}/{}", self.lines_back(), self.lines_said()),
            format!("{}/{}", self.states_received(), self.states_sent()),
            self.sum(Entry::wrong).to_string(),
        ])
    }

    pub(super) fn lines_said(&self) -> u64 {
        self.sum(|entry| entry.client.player.chat.said)
    }

    pub(super) fn lines_back(&self) -> u64 {
        self.sum(|entry| entry.client.player.chat.back)
    }

    pub(super) fn states_sent(&self) -> u64 {
        self.sum(|entry| entry.seat.states_sent)
    }

    pub(super) fn states_received(&self) -> u64 {
        self.sum(|entry| entry.client.player.states.received)
    }

    fn map(&self, whole: u64, bytes: u32) -> String {
        match whole {
            0 => format!("{} %", u64::from(bytes) * 100 / u64::from(self.map_bytes.max(1))),
            _ => "whole".to_owned(),
        }
    }

    fn server_line(&self) -> String {
        let server = &self.server;
        format!(
            "server    {} of {} slots, datagrams in {}, out {}, challenges {}, denials {}",
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

    /// A line for each reason to drop that belongs to a healthy game on a bad line, if it occurred.
    pub(super) fn legend(&self) -> impl Iterator<Item = String> {
        EXPECTED
            .iter()
            .filter(|(reason, _)| self.server.discards.count(*reason) > 0)
            .map(|(reason, what)| format!("{:10}{reason}: {what}", ""))
    }

    /// The picture in one line.
    pub(super) fn line(&self) -> String {
        format!(
            "{} of {} connected, slowest round trip {}, chat {} of {}, state {} of {}, maps {}, wrong {}, dropped: {}",
            self.count(|entry| entry.client.player.state.is_connected()),
            self.clients.len(),
            millis(self.slowest()),
            self.lines_back(),
            self.lines_said(),
            self.states_received(),
            self.states_sent(),
            self.count(|entry| entry.client.player.map.whole > 0),
            self.sum(Entry::wrong),
            self.drops()
        )
    }

    /// The picture as JSON.
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
        let (client, player, seat) = (&entry.client, &entry.client.player, &entry.seat);
        let budget = seat.budget.map(|budget| {
            let suggestion = budget.suggestion;
            json!({ "packets_per_second": suggestion.packets_per_second, "payload_bytes": suggestion.payload_bytes })
        });
        json!({ "client_id": client.client_id.to_string(), "state": player.state.name(), "slot": player.slot,
            "round_trip_ms": millis(entry.round_trip()), "jitter_ms": millis(entry.jitter()),
            "loss_percent": entry.loss(), "budget": budget,
            "chat": { "said": player.chat.said, "back": player.chat.back, "of_others": player.chat.others },
            "states": { "sent": seat.states_sent, "received": player.states.received,
                "of_client": seat.states.received },
            "map": { "bytes": player.map.bytes, "of": self.map_bytes, "whole": player.map.whole },
            "wrong": entry.wrong(), "dropped": player.dropped, "trouble": client.trouble })
    }
}

fn columns(cells: [String; 11]) -> String {
    let [client, state, slot, round_trip, jitter, loss, budget, map, chat, states, wrong] = cells;
    format!(
        "{client:>7}  {state:<16} {slot:>4} {round_trip:>11} {jitter:>9} {loss:>7} {budget:>12} {map:>7} {chat:>10} \
         {states:>13} {wrong:>5}"
    )
}

pub(super) fn millis(time: Option<Duration>) -> String {
    time.map_or_else(dash, |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
}

fn dash() -> String {
    "-".to_owned()
}
