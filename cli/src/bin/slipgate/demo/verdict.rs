//! How the demo went: whether everyone was served and everything came as it should, and what to say of it.

use serde_json::{Value, json};
use slipgate_cli::Failure;

use super::picture::{Entry, Picture, millis};
use super::server::ServerReport;

impl Entry {
    fn is_perfect(&self) -> bool {
        self.client.trouble.is_none() && self.client.player.is_perfect() && self.seat.is_perfect()
    }
}

impl Picture {
    /// All is well only if every client was served, every line and every map came back right and whole, no state was older
    /// than one before, and the server heard every goodbye.
    pub(super) fn verdict(&self, end: &ServerReport) -> Result<(), Failure> {
        let clean = end.connected == 0 && end.stats.connects == end.stats.disconnects;
        if clean && self.clients.iter().all(Entry::is_perfect) { Ok(()) } else { Err(self.failure(clean)) }
    }

    fn served(&self) -> usize {
        self.count(|entry| entry.client.player.slot.is_some())
    }

    fn whole_maps(&self) -> usize {
        self.count(|entry| entry.client.player.map.whole == 1)
    }

    pub(super) fn summary(&self, ok: bool) -> String {
        let verdict = if ok { "every client was served, all that must arrive did" } else { "not all went well" };
        let clients = self.clients.len();
        let stale = self.sum(|entry| entry.client.player.states.wrong + entry.seat.states.wrong);
        format!(
            "{verdict}: {} of {clients} clients served, {} of {} lines of chat once and in order, {} of {} states, {} \
             older than one before, {} of {clients} maps whole, slowest round trip {}",
            self.served(),
            self.lines_back(),
            self.lines_said(),
            self.states_received(),
            self.states_sent(),
            if stale == 0 { "none".to_owned() } else { stale.to_string() },
            self.whole_maps(),
            millis(self.slowest())
        )
    }

    pub(super) fn json_summary(&self, ok: bool) -> Value {
        let mut summary = self.json("summary");
        if let Some(fields) = summary.as_object_mut() {
            fields.extend([("ok".to_owned(), json!(ok)), ("served".to_owned(), json!(self.served()))]);
        }
        summary
    }

    fn failure(&self, clean: bool) -> Failure {
        if let Some((client, trouble)) =
            self.clients.iter().find_map(|entry| Some((&entry.client, entry.client.trouble.as_deref()?)))
        {
            return Failure::run_time(format!("client {}: {trouble}", client.client_id));
        }
        let clients = self.clients.len();
        let missing = self.lines_said() - self.lines_back();
        let maps = clients - self.whole_maps();
        let stateless = self.count(|entry| entry.client.player.states.received == 0);
        let wrong = self.sum(Entry::wrong);
        let goodbye = if clean { "" } else { ", and not every client's goodbye was heard" };
        Failure::run_time(format!(
            "{} of {clients} clients were served; missing: {missing} lines of chat, {maps} maps, all states of {stateless} \
             clients; wrong: {wrong}{goodbye}",
            self.served()
        ))
    }
}
