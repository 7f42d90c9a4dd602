//! What the server says in the log: the lives of clients, each mistake of an operator once, and junk in summaries.
//!
//! Nothing that a stranger sends makes a line of its own: whoever could cause lines could fill a disk.

use std::fmt::Display;
use std::time::Duration;

use slipgate_netcode::discard::{Discard, Discards};
use slipgate_netcode::server::Server;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::token::Servers;
use slipgate_session::server::{self as core, Event};
use slipgate_session::session::End;
use slipgate_udp::{Batching, SocketStats, Sockets, Trouble};
use tracing::{info, warn};

/// How often dropped datagrams are summed up, if there were any.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(60);

/// What is told once in the life of a server, and only counted from then on: nearly always an operator's mistake.
///
/// The last ones a stranger can cause, too, so they say "may".
const ONCE: [(Discard, &str); 5] = [
    (
        Discard::BeforeStart,
        "a valid connect token from before this server's start, or before its history began, was refused, because it \
         might have been used then; further ones are only counted (before_start). A history file makes this needless \
         at later starts, and so does telling the server that this is its first start (`Config::fence`, `--first-start`)",
    ),
    (
        Discard::HistoryFull,
        "the token history is full of unexpired tokens, so new clients are refused; further ones are only counted \
         (history_full). Shorter token lifetimes or a larger history help",
    ),
    (
        Discard::TokenNotAuthentic,
        "a connect token does not open with any of this server's private keys; further ones are only counted \
         (token_not_authentic). The token issuer may have another key",
    ),
    (
        Discard::RequestProtocol,
        "a connection request for another protocol id was dropped; further ones are only counted (request_protocol, or \
         dropped_by_system when the kernel filter drops them first). The token issuer may have another protocol id",
    ),
    (
        Discard::TokenTooLong,
        "a connect token was refused because it expires further off than the maximum token lifetime; further ones are \
         only counted (token_lifetime_too_long). The token issuer may allow longer ones, or a clock may be wrong",
    ),
];

const LESS_BATCHING: &str = "the kernel, a sandbox or the network card has refused what a system call was to carry: it \
                             carries less from now on, which costs CPU time";

pub(crate) struct Reporter {
    said: Counted,
    next_summary: Instant,
    told: [bool; ONCE.len()],
    told_of_misdirected: bool,
    told_of_journal: bool,
    /// What a system call was to carry at the start, or carried when that was last told.
    batching: Batching,
    /// Clients of whose beginning was told, and not of their end.
    connected: u32,
}

/// What a summary is about.
#[derive(Clone, Copy, Default)]
struct Counted {
    discards: Discards,
    sockets: SocketStats,
    /// The most of what the system dropped that was overflow, if it tells.
    overflow: Option<u64>,
    turns_cut_short: u64,
    denials: u64,
    journal_failures: u64,
}

impl Counted {
    fn of(server: &Server, sockets: &Sockets, turns_cut_short: u64) -> Self {
        let stats = server.stats();
        let (denials, journal_failures) = (stats.denials_sent, stats.journal_failures);
        let (discards, overflow) = (*server.discards(), sockets.overflow_at_most());
        Self { discards, sockets: sockets.stats(), overflow, turns_cut_short, denials, journal_failures }
    }

    /// The reasons for drops that came since an earlier count: `empty: 3, replayed: 1`.
    fn reasons_since(&self, earlier: &Self) -> String {
        let fresh = |(reason, count)| (reason, count - earlier.discards.count(reason));
        list(self.discards.iter().map(fresh))
    }

    fn troubles(&self) -> [u64; Trouble::ALL.len()] {
        Trouble::ALL.map(|kind| self.sockets.trouble(kind))
    }

    /// What the system dropped since an earlier count.
    fn dropped_by_system_since(&self, earlier: &Self) -> u64 {
        let all = |counted: &Self| counted.sockets.dropped_by_system.unwrap_or(0);
        all(self).saturating_sub(all(earlier))
    }

    /// The most of it that was overflow.
    fn overflow_since(&self, earlier: &Self) -> Option<u64> {
        Some(self.overflow?.saturating_sub(earlier.overflow.unwrap_or(0)).min(self.dropped_by_system_since(earlier)))
    }

    /// The troubles of sockets that came since an earlier count.
    fn troubles_since(&self, earlier: &Self) -> String {
        let fresh = |kind: Trouble| (kind.name(), self.sockets.trouble(kind) - earlier.sockets.trouble(kind));
        list(Trouble::ALL.into_iter().map(fresh))
    }
}

fn list<N: Display>(counts: impl Iterator<Item = (N, u64)>) -> String {
    let named: Vec<String> =
        counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name}: {count}")).collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

impl Reporter {
    pub(crate) fn new(batching: Batching, now: Instant) -> Self {
        Self {
            said: Counted::default(),
            next_summary: now.after(SUMMARY_INTERVAL),
            told: [false; ONCE.len()],
            told_of_misdirected: false,
            told_of_journal: false,
            batching,
            connected: 0,
        }
    }

    /// Tells of a client's life.
    pub(crate) fn note(&mut self, event: &Event, server: &core::Server) {
        match event {
            Event::Packet { .. } | Event::Channel { .. } | Event::Partial { .. } => {}
            Event::Connected { client, client_id } => {
                let address = server.netcode().client(*client).and_then(|info| info.address);
                let address = address.map_or_else(|| "loopback".to_owned(), |address| address.to_string());
                self.connected += 1;
                info!(client_id, slot = client.slot(), address, connected = self.connected, "client connected");
            }
            Event::Disconnected { client, client_id, reason } => {
                self.connected = self.connected.saturating_sub(1);
                let (slot, connected) = (client.slot(), self.connected);
                // What exactly was wrong with a peer, and what was said.
                let end = server.end(*client);
                let (code, detail) = (end.and_then(End::code).map(|code| code.0), end.map(ToString::to_string));
                let text = end.map(End::text).filter(|text| !text.is_empty());
                info!(client_id, slot, reason = reason.name(), code, text, detail, connected, "client disconnected");
            }
        }
    }

    /// Tells of an operator's mistakes once each, and sums up what was dropped.
    pub(crate) fn report(&mut self, server: &Server, sockets: &Sockets, turns_cut_short: u64, now: Instant) {
        for ((reason, sentence), told) in ONCE.iter().zip(&mut self.told) {
            if first(told, server.discards().count(*reason) > 0) {
                warn!("{sentence}");
            }
        }
        if let Some(listed) = server.misdirected()
            && first(&mut self.told_of_misdirected, true)
        {
            tell_of_misdirected(server, listed);
        }
        let failures = server.stats().journal_failures;
        if first(&mut self.told_of_journal, failures > self.said.journal_failures) {
            warn!("the history file cannot be written, so new clients are refused until it can be; is the disk full?");
        }
        if self.carries_less(sockets.batching()) {
            let batching = sockets.batching().name();
            warn!(batching, "{LESS_BATCHING}");
        }
        if now >= self.next_summary {
            self.next_summary = now.after(SUMMARY_INTERVAL);
            self.summarise(Counted::of(server, sockets, turns_cut_short));
        }
    }

    /// Whether a system call carries less than it did: what a system has turns out when it is asked for it.
    fn carries_less(&mut self, batching: Batching) -> bool {
        batching < std::mem::replace(&mut self.batching, batching)
    }

    fn summarise(&mut self, counted: Counted) {
        let said = std::mem::replace(&mut self.said, counted);
        // A disk that is full still, or again, is told of once a minute.
        self.told_of_journal = false;
        let dropped = counted.discards.total() - said.discards.total();
        let denied = counted.denials - said.denials;
        let dropped_by_system = counted.dropped_by_system_since(&said);
        let turns_cut_short = counted.turns_cut_short - said.turns_cut_short;
        let is_quiet = [dropped, denied, dropped_by_system, turns_cut_short] == [0; 4];
        if is_quiet && counted.troubles() == said.troubles() {
            return;
        }
        info!(
            dropped,
            reasons = counted.reasons_since(&said),
            denied,
            dropped_by_system,
            overflow_at_most = counted.overflow_since(&said),
            turns_cut_short,
            socket_troubles = counted.troubles_since(&said),
            "dropped datagrams of the last minute"
        );
    }

    /// Tells what was counted since the start.
    pub(crate) fn totals(&self, server: &Server, sockets: &Sockets, turns_cut_short: u64) {
        let counted = Counted::of(server, sockets, turns_cut_short);
        let (nothing, stats) = (Counted::default(), server.stats());
        info!(
            connects = stats.connects,
            payloads_received = stats.payloads_received,
            payloads_sent = stats.payloads_sent,
            denied = counted.denials,
            dropped = counted.discards.total(),
            reasons = counted.reasons_since(&nothing),
            dropped_by_system = counted.dropped_by_system_since(&nothing),
            overflow_at_most = counted.overflow_since(&nothing),
            turns_cut_short,
            socket_troubles = counted.troubles_since(&nothing),
            "totals since the start"
        );
    }
}

fn tell_of_misdirected(server: &Server, listed: &Servers) {
    let join = |addresses: Vec<String>| addresses.join(", ");
    warn!(
        advertised = join(server.config().advertised.iter().map(ToString::to_string).collect()),
        token_lists = join(listed.as_slice().iter().map(ToString::to_string).collect()),
        "a valid connect token was refused because it lists none of the addresses that this server advertises; further \
         ones are only counted (address_not_listed). Advertise the address that stands in the tokens"
    );
}

/// Whether `happened` is true for the first time.
fn first(told: &mut bool, happened: bool) -> bool {
    let is_first = happened && !*told;
    *told |= happened;
    is_first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_what_is_new_since_the_last_one() {
        let mut earlier = Counted::default();
        earlier.discards.add(Discard::Empty);
        let mut later = earlier;
        later.discards.add(Discard::Replayed);
        later.discards.add(Discard::Replayed);
        assert_eq!(later.reasons_since(&earlier), "replayed: 2");
        assert_eq!(later.reasons_since(&Counted::default()), "empty: 1, replayed: 2");
        assert_eq!((later.reasons_since(&later), later.troubles_since(&earlier)), ("none".into(), "none".into()));
    }

    #[test]
    fn what_a_system_call_carries_is_told_when_it_becomes_less_and_once() {
        let mut reporter = Reporter::new(Batching::Segments, Instant::default());
        let steps = [Batching::Segments, Batching::Messages, Batching::Messages, Batching::Off];
        assert_eq!(steps.map(|now| reporter.carries_less(now)), [false, true, false, true]);
        let mut refused_at_once = Reporter::new(Batching::Segments, Instant::default());
        assert!(refused_at_once.carries_less(Batching::Off), "before the first turn has ended");
    }

    #[test]
    fn overflow_since_the_last_summary_is_no_more_than_what_was_dropped_since_then() {
        let counted = |dropped, overflow| {
            let mut counted = Counted { overflow, ..Counted::default() };
            counted.sockets.dropped_by_system = dropped;
            counted
        };
        for (earlier, later, most) in [
            ((Some(0), Some(0)), (Some(10), Some(4)), Some(4)),
            ((Some(10), Some(4)), (Some(12), Some(9)), Some(2)),
            ((Some(10), Some(4)), (Some(30), Some(4)), Some(0)),
            ((None, None), (None, None), None),
        ] {
            assert_eq!(counted(later.0, later.1).overflow_since(&counted(earlier.0, earlier.1)), most, "{later:?}");
        }
    }
}
