//! What the server says in the log: the lives of clients, each mistake of an operator once, and junk in summaries.
//!
//! Nothing that a stranger sends makes a line of its own: whoever could cause lines could fill a disk.

use std::time::Duration;

use slipgate_protocol::discard::{Discard, Discards};
use slipgate_protocol::netcode::server::{Event, Server};
use slipgate_protocol::time::Instant;
use tracing::{info, warn};

/// How often dropped datagrams are summed up, if there were any.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(60);

pub(crate) struct Reporter {
    said: Discards,
    next_summary: Instant,
    told: Told,
}

/// What is said once in the life of a server.
#[derive(Default)]
struct Told {
    misdirected: bool,
    fenced: bool,
    history_full: bool,
    journal: bool,
}

impl Reporter {
    pub(crate) fn new(now: Instant) -> Self {
        Self { said: Discards::default(), next_summary: now.after(SUMMARY_INTERVAL), told: Told::default() }
    }

    /// Tells of a client's life.
    pub(crate) fn note(&self, event: &Event, server: &Server) {
        match event {
            Event::Connected { client, client_id } => {
                let address = server.client(*client).and_then(|info| info.address);
                let address = address.map_or_else(|| "loopback".to_owned(), |address| address.to_string());
                info!(client_id, slot = client.slot(), %address, connected = server.connected(), "client connected");
            }
            Event::Disconnected { client, client_id, reason } => {
                let (slot, connected) = (client.slot(), server.connected());
                info!(client_id, slot, reason = reason.name(), connected, "client disconnected");
            }
        }
    }

    /// Tells of an operator's mistakes once each, and sums up what was dropped.
    pub(crate) fn report(&mut self, server: &Server, now: Instant) {
        self.report_misdirected(server);
        let count = |reason| server.discards().count(reason);
        if first(&mut self.told.fenced, count(Discard::BeforeStart) > 0) {
            warn!(
                "a connect token from before this server's start was refused, because it might have been used then; \
                 further ones are only counted (before_start). A history file makes this needless, and so does telling \
                 the server that this is its first start"
            );
        }
        if first(&mut self.told.history_full, count(Discard::HistoryFull) > 0) {
            warn!(
                tokens = server.remembered_tokens(),
                "the token history is full of unexpired tokens, so new clients are refused; shorter token lifetimes or \
                 a larger history help"
            );
        }
        if first(&mut self.told.journal, server.stats().journal_failures > 0) {
            warn!("the history file cannot be written, so new clients are refused until it can be; is the disk full?");
        }
        if now >= self.next_summary {
            self.next_summary = now.after(SUMMARY_INTERVAL);
            self.summarise(server.discards());
        }
    }

    fn report_misdirected(&mut self, server: &Server) {
        let Some(listed) = server.misdirected() else { return };
        if first(&mut self.told.misdirected, true) {
            warn!(
                advertised = ?server.config().advertised,
                token_lists = ?listed,
                "a valid connect token was refused because it lists none of the addresses that this server advertises; \
                 further ones are only counted (address_not_listed). Advertise the address that stands in the tokens"
            );
        }
    }

    fn summarise(&mut self, discards: &Discards) {
        let fresh = discards.total() - self.said.total();
        if fresh == 0 {
            return;
        }
        let reasons: Vec<String> = discards
            .iter()
            .map(|(reason, count)| (reason, count - self.said.count(reason)))
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{reason}: {count}"))
            .collect();
        self.said = *discards;
        info!(datagrams = fresh, reasons = reasons.join(", "), "dropped datagrams of the last minute");
    }
}

/// Whether `happened` is true for the first time.
fn first(told: &mut bool, happened: bool) -> bool {
    let is_first = happened && !*told;
    *told |= happened;
    is_first
}
