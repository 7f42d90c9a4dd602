//! The outcome of the demo's run, and its summary.

use serde_json::{Value, json};
use slipgate_cli::Failure;

use super::server::ServerReport;
use super::snapshot::{DemoSnapshot, PlayerEntry, millis};

/// How the playing time ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Everything had time to arrive.
    Complete,
    /// A person or a signal did not wait for the last messages.
    CutShort,
}

impl PlayerEntry {
    fn is_perfect(&self, ending: Ending) -> bool {
        let client = &self.client;
        let must_be_complete = ending == Ending::Complete && client.must_be_complete();
        let is_complete = !must_be_complete || client.player.is_perfect();
        client.error.is_none() && is_complete && self.wrong() == 0 && client.past.lost == 0
    }
}

impl DemoSnapshot {
    /// Returns success only if every client was served, every chat line and map arrived complete and correct, no state
    /// update was older than an earlier one, and the server noticed every disconnect. A run that was cut short need
    /// not be complete, nor a session that has only started after a kick or a restart.
    pub(super) fn outcome(&self, end: &ServerReport, ending: Ending) -> Result<(), Failure> {
        let clean = end.connected == 0 && end.stats.connects == end.stats.disconnects;
        let is_perfect =
            self.wrong() == 0 && end.past_wrong == 0 && self.clients.iter().all(|entry| entry.is_perfect(ending));
        if clean && is_perfect { Ok(()) } else { Err(self.failure(clean)) }
    }

    fn served(&self) -> usize {
        self.count(|entry| entry.client.player.slot.is_some() || entry.client.past.count > 0)
    }

    fn complete_maps(&self) -> usize {
        self.count(|entry| entry.client.player.map.complete == 1)
    }

    pub(super) fn summary(&self, ok: bool, ending: Ending) -> String {
        let outcome = match (ok, ending) {
            (true, Ending::Complete) if self.count(|entry| !entry.client.must_be_complete()) > 0 => {
                "SUCCESS: every client was served, every reliable message arrived, except to players that were on \
                 their way back"
            }
            (true, Ending::Complete) => "SUCCESS: every client was served, every reliable message arrived",
            (true, Ending::CutShort) => "ENDED EARLY, nothing was wrong",
            (false, _) => "FAILURE",
        };
        let clients = self.clients.len();
        let stale = self.sum(|entry| entry.client.player.states.wrong + entry.at_server.states.wrong);
        format!(
            "{outcome}: {} of {clients} clients served, {} of {} chat lines once and in order, {} of {} state updates, \
             {} out of order, {} of {clients} maps complete, slowest round trip at the end {}",
            self.served(),
            self.lines_returned(),
            self.lines_sent(),
            self.states_received(),
            self.states_sent(),
            if stale == 0 { "none".to_owned() } else { stale.to_string() },
            self.complete_maps(),
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
        if let Some((client, error)) =
            self.clients.iter().find_map(|entry| Some((&entry.client, entry.client.error.as_deref()?)))
        {
            return Failure::run_time(format!("client {}: {error}", client.client_id));
        }
        let clients = self.clients.len();
        let missing = self.lines_sent() - self.lines_returned();
        let maps = clients - self.complete_maps();
        let stateless = self.count(|entry| entry.client.player.states.received == 0);
        let wrong = self.wrong();
        let lost: u64 = self.sum(|entry| entry.client.past.lost.into());
        let reason = self.clients.iter().find_map(|entry| entry.client.past.last_loss.as_ref());
        let reason = reason.map_or_else(String::new, |reason| format!(" ({:?}: {reason})", reason.kind));
        let disconnects = if clean { "" } else { "; the server did not notice every disconnect" };
        Failure::run_time(format!(
            "{} of {clients} clients were served; missing: {missing} chat lines, {maps} maps, all state updates of \
             {stateless} clients; wrong: {wrong}; lost connections: {lost}{reason}{disconnects}",
            self.served()
        ))
    }
}
