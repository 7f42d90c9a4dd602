//! The events of the demo in sentences, found by comparing each snapshot with the one before.

use std::time::Instant;

use slipgate_client::CloseKind;

use super::super::snapshot::{DemoSnapshot, PlayerEntry};
use super::super::stage::Restarted;

/// What was reported so far.
pub(super) struct EventLog {
    start: Instant,
    has_started: bool,
    are_all_connected: bool,
    have_all_maps: bool,
    players: Vec<Reported>,
}

/// What was reported about a player.
#[derive(Clone, Copy, Default)]
struct Reported {
    /// Ended sessions.
    ends: u32,
    /// Whether its return must be reported.
    is_away: bool,
}

impl EventLog {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, has_started: false, are_all_connected: false, have_all_maps: false, players: Vec::new() }
    }

    /// Returns what has happened since the last call.
    pub(super) fn update(&mut self, snapshot: &DemoSnapshot, restarted: Option<Restarted>) -> Vec<String> {
        let mut events = Vec::new();
        let players = snapshot.clients.len();
        if !self.has_started {
            self.has_started = true;
            events.push(format!("{players} players fetch connect tokens by HTTP and join by encrypted UDP."));
        }
        self.players.resize(players, Reported::default());
        for (entry, reported) in snapshot.clients.iter().zip(&mut self.players) {
            events.extend(reported.update(entry));
        }
        if let Some(Restarted { number, outage, all_back }) = restarted {
            events.push(format!(
                "Restart {number}: {:.2} s without a server, all {players} players back after {:.2} s.",
                outage.as_secs_f64(),
                all_back.as_secs_f64()
            ));
        }
        events.extend(self.first_connected(snapshot));
        let have_all_maps = snapshot.clients.iter().all(|entry| entry.client.player.map.complete > 0);
        if have_all_maps && !self.have_all_maps {
            let kib = snapshot.map_bytes() / 1024;
            events.push(format!("All {players} maps of {kib} KiB have arrived, and every byte is right."));
        }
        self.have_all_maps = have_all_maps;
        events
    }

    /// Returns the sentence that all players are connected for the first time.
    fn first_connected(&mut self, snapshot: &DemoSnapshot) -> Option<String> {
        if self.are_all_connected || snapshot.connected() < snapshot.clients.len() {
            return None;
        }
        self.are_all_connected = true;
        let last = snapshot.clients.iter().filter_map(|entry| entry.client.player.connected_at).max()?;
        let seconds = last.saturating_duration_since(self.start).as_secs_f64();
        Some(format!("All {} players are connected after {seconds:.2} s.", snapshot.clients.len()))
    }
}

impl Reported {
    fn update(&mut self, entry: &PlayerEntry) -> Vec<String> {
        let (client, id) = (&entry.client, entry.client.client_id);
        let mut events = Vec::new();
        if client.past.count > self.ends {
            self.ends = client.past.count;
            let end = client.past.last_end.as_ref();
            // A restart is reported once, not for each player.
            if let Some(end) = end.filter(|end| end.kind != CloseKind::ServerStopped) {
                self.is_away = true;
                events.push(match end.kind {
                    CloseKind::Kicked => format!("Player {id} is kicked and reads: \"{end}\""),
                    _ => format!("Player {id} is out: \"{end}\""),
                });
            }
        }
        if self.is_away && client.player.state.is_connected() {
            self.is_away = false;
            events.push(format!("Player {id} is back with a new token."));
        }
        events
    }
}
