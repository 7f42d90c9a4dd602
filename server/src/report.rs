//! The server's log: connects, disconnects, refused clients, likely mistakes of an operator, and junk as a summary.
//!
//! No datagram of a stranger makes a line of its own above level DEBUG, and all lines have a limit for each second:
//! otherwise strangers, or one player, could fill a disk.

mod clients;
mod clock_steps;
mod counts;
mod handshakes;
mod issuer_clock;
mod limit;
mod stalls;
mod strangers;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use slipgate_netcode::discard::{Discard, Discards};
use slipgate_netcode::server::{ClientHandle, NetcodeServer};
use slipgate_netcode::time::{Instant, Now};
use slipgate_netcode::wire::token::Servers;
use slipgate_session::server::{SessionEvent, SessionServer};
use slipgate_udp::{Batching, SocketErrorKind, SocketStats, Sockets};
use tracing::{field, info, warn};

use self::clients::ClientLines;
use self::clock_steps::ClockSteps;
use self::counts::list;
use self::handshakes::HandshakeLines;
use self::limit::Repeated;
use self::stalls::StallLog;
use self::strangers::StrangerWarnings;
use crate::disconnect_counts::DisconnectCounts;

/// How often dropped datagrams are summarised, if there were any.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(60);

/// Warnings of drops that only tokens of the issuer can cause. They are given again after some minutes.
const WARNINGS: [(Discard, &str); 4] = [
    (
        Discard::BeforeStart,
        "a valid connect token from before this server's start, or before its history began, was refused, because it \
         might have been used then (before_start). A history file avoids this at later starts, and so does \
         `--first-start` (`ServerConfig::token_cutoff`) at the first one. If new tokens are refused, too, the clock of \
         the token issuer is behind",
    ),
    (
        Discard::HistoryFull,
        "the token history is full of unexpired tokens, so new clients are refused (history_full). Use shorter token \
         lifetimes or a larger history",
    ),
    (
        Discard::ClientIdTokens,
        "a client id has used its maximum of unexpired connect tokens, so another one was refused (client_id_tokens). \
         Its game may reconnect in a loop, or the client id is not unique",
    ),
    (
        Discard::ClockStepped,
        "a connect token was refused although it has not expired by the wall clock: that clock was stepped back, and a \
         token with its expiry may have been used before (clock_stepped). Set the wall clock of this machine",
    ),
];

const LESS_BATCHING: &str = "the kernel, a sandbox or the network card does not support the full batch size: each \
                             system call carries less from now on, which costs CPU time";

const UNLIMITED_TRANSFER: &str = "a transfer is sent and the uplink has no limit: all transfers together may fill the \
                                  server's line, and delay the messages of every player. Set the uplink's rate \
                                  (set_uplink)";

pub(crate) struct Reporter {
    last_summary: Snapshot,
    next_summary: Instant,
    warned: [Warned; WARNINGS.len()],
    warned_of_misdirected: Warned,
    warned_of_channels: Warned,
    warned_of_journal: bool,
    clocks: ClockSteps,
    warned_of_transfer: Repeated,
    strangers: StrangerWarnings,
    handshakes: HandshakeLines,
    clients: ClientLines,
    stalls: StallLog,
    /// The batch size at the start, or when a change was last logged.
    batching: Batching,
}

const CLIENT_HAS_CHANNELS: &str = "a client runs channels and this server runs none, so the client's packets arrive as \
    payloads without meaning: give both the same layout (`Server::with_traffic(Traffic::channels(layout))`)";

/// Whether a warning was given, and the count of its cause then.
#[derive(Default)]
struct Warned {
    repeated: Repeated,
    count: u64,
}

impl Warned {
    /// Returns whether the cause has occurred again and the warning may be given.
    fn take(&mut self, count: u64, now: Instant) -> bool {
        let has_occurred = count > std::mem::replace(&mut self.count, count);
        has_occurred && self.repeated.take(now)
    }
}

/// The counters of a server that its netcode and its sockets do not have.
#[derive(Clone, Copy, Default)]
pub(crate) struct TurnCounters {
    /// Turns that ended before all datagrams were read.
    pub(crate) turns_cut_short: u64,
    /// Packets of clients that caused more work than their budget allows.
    pub(crate) packets_over_budget: u64,
    /// Packets of clients of which the application took no more.
    pub(crate) packets_not_taken: u64,
}

/// The counters that a summary compares.
#[derive(Clone, Copy, Default)]
struct Snapshot {
    discards: Discards,
    sockets: SocketStats,
    /// An upper bound on how many datagrams the system dropped for lack of buffer; `None` if unknown.
    overflow: Option<u64>,
    turns: TurnCounters,
    denials: u64,
    journal_failures: u64,
}

impl Snapshot {
    fn of(server: &NetcodeServer, sockets: &Sockets, turns: TurnCounters) -> Self {
        let stats = server.stats();
        let (denials, journal_failures) = (stats.denials_sent, stats.journal_failures);
        let (discards, overflow) = (*server.discards(), sockets.overflow_at_most());
        Self { discards, sockets: sockets.stats(), overflow, turns, denials, journal_failures }
    }

    /// Returns the reasons for drops since an earlier snapshot, such as `empty: 3, replayed: 1`.
    fn reasons_since(&self, earlier: &Self) -> String {
        let fresh = |(reason, count)| (reason, count - earlier.discards[reason]);
        list(self.discards.iter().filter(|(reason, _)| *reason != Discard::ConnectionEnded).map(fresh))
    }

    /// Returns the number of dropped datagrams, without the late ones of connections that have just ended: each client
    /// that leaves sends nine of these.
    fn dropped(&self) -> u64 {
        self.discards.total() - self.after_end()
    }

    /// Returns the number of late datagrams of connections that had just ended.
    fn after_end(&self) -> u64 {
        self.discards[Discard::ConnectionEnded]
    }

    fn socket_errors(&self) -> [u64; SocketErrorKind::ALL.len()] {
        SocketErrorKind::ALL.map(|kind| self.sockets.errors(kind))
    }

    /// Returns how many datagrams the system dropped since an earlier snapshot.
    fn dropped_by_system_since(&self, earlier: &Self) -> u64 {
        let all = |snapshot: &Self| snapshot.sockets.dropped_by_system.unwrap_or(0);
        all(self).saturating_sub(all(earlier))
    }

    /// Returns an upper bound on how many of those were dropped for lack of buffer.
    fn overflow_since(&self, earlier: &Self) -> Option<u64> {
        Some(self.overflow?.saturating_sub(earlier.overflow.unwrap_or(0)).min(self.dropped_by_system_since(earlier)))
    }

    /// Returns the socket errors since an earlier snapshot by kind.
    fn errors_since(&self, earlier: &Self) -> String {
        let fresh = |kind: SocketErrorKind| (kind.name(), self.sockets.errors(kind) - earlier.sockets.errors(kind));
        list(SocketErrorKind::ALL.into_iter().map(fresh))
    }
}

impl Reporter {
    pub(crate) fn new(batching: Batching, now: Now) -> Self {
        Self {
            last_summary: Snapshot::default(),
            next_summary: now.monotonic.after(SUMMARY_INTERVAL),
            warned: Default::default(),
            warned_of_misdirected: Warned::default(),
            warned_of_channels: Warned::default(),
            warned_of_journal: false,
            clocks: ClockSteps::new(now),
            warned_of_transfer: Repeated::default(),
            strangers: StrangerWarnings::default(),
            handshakes: HandshakeLines::new(),
            clients: ClientLines::new(),
            stalls: StallLog::default(),
            batching,
        }
    }

    /// Records the begin of a turn, and logs a stall before it.
    pub(crate) fn on_turn(&mut self, now: Instant) {
        self.stalls.on_turn(now);
    }

    /// Returns how many times the server had no turn for more than a second.
    pub(crate) const fn stalls(&self) -> u64 {
        self.stalls.count()
    }

    /// Returns how many connections have ended for each reason.
    pub(crate) const fn disconnect_reasons(&self) -> DisconnectCounts {
        self.clients.disconnect_reasons()
    }

    /// Counts connected clients together with other shards from now on.
    pub(crate) fn count_with(&mut self, shards: &Arc<AtomicU32>) {
        self.clients.count_with(shards);
    }

    /// Logs a connect or a disconnect.
    pub(crate) fn on_event(&mut self, event: &SessionEvent, server: &mut SessionServer, now: Now) {
        if matches!(event, SessionEvent::Connected { .. }) {
            // The steps of its handshake come first.
            self.handshakes.report(&mut server.netcode, now);
        }
        self.clients.on_event(event, server, now.monotonic);
    }

    /// Returns whether the log has just seen enough requests for another protocol id for its warning.
    pub(crate) const fn has_other_protocol(&self) -> bool {
        self.strangers.has_other_protocol()
    }

    /// Records that the private keys were replaced.
    pub(crate) fn on_new_keys(&mut self) {
        self.strangers.on_new_keys();
    }

    /// Returns when a client connected.
    pub(crate) fn connected_since(&self, client: ClientHandle) -> Option<Instant> {
        self.clients.since(client)
    }

    /// Logs refused clients, likely mistakes of the operator, and a summary of dropped datagrams once a minute.
    pub(crate) fn report(&mut self, core: &mut SessionServer, sockets: &Sockets, turns: TurnCounters, now: Now) {
        let peers_with_channels = core.stats().peers_with_channels;
        let server = &mut core.netcode;
        self.handshakes.report(server, now);
        self.clocks.watch(now);
        let (server, now) = (&*server, now.monotonic);
        self.clients.sum_up(now);
        self.strangers.report(server.discards(), self.handshakes.last_opened(), now);
        self.warn_of_discards(server, now);
        if self.warned_of_channels.take(peers_with_channels, now) {
            warn!("{CLIENT_HAS_CHANNELS}");
        }
        let failures = server.stats().journal_failures;
        if failures > self.last_summary.journal_failures && is_first(&mut self.warned_of_journal) {
            warn!("the history file cannot be written, so new clients are refused; an earlier line has the cause");
        }
        if self.has_less_batching(sockets.batching()) {
            let batching = sockets.batching().name();
            warn!(batching, "{LESS_BATCHING}");
        }
        if now >= self.next_summary {
            self.next_summary = now.after(SUMMARY_INTERVAL);
            self.summarise(Snapshot::of(server, sockets, turns));
        }
    }

    /// Logs likely mistakes of the operator that a counter of dropped datagrams shows.
    fn warn_of_discards(&mut self, server: &NetcodeServer, now: Instant) {
        for ((reason, sentence), warned) in WARNINGS.iter().zip(&mut self.warned) {
            if warned.take(server.discards()[*reason], now) {
                let has_id = *reason == Discard::ClientIdTokens;
                let client_id = self.handshakes.last_with_max_tokens().filter(|_| has_id).map(field::display);
                warn!(client_id, "{sentence}");
            }
        }
        if let Some(listed) = server.misdirected()
            && self.warned_of_misdirected.take(server.discards()[Discard::AddressNotListed], now)
        {
            warn_of_misdirected(server, listed);
        }
    }

    /// Records that a transfer was sent while the uplink has no limit.
    pub(crate) fn on_unlimited_transfer(&mut self, now: Instant) {
        if self.warned_of_transfer.take(now) {
            warn!("{UNLIMITED_TRANSFER}");
        }
    }

    /// Returns whether one system call carries less than when this was last called. The system's limits are found when
    /// they are first reached, not at the start.
    fn has_less_batching(&mut self, batching: Batching) -> bool {
        batching < std::mem::replace(&mut self.batching, batching)
    }

    fn summarise(&mut self, snapshot: Snapshot) {
        let last = std::mem::replace(&mut self.last_summary, snapshot);
        // A disk that is still full is reported once a minute.
        self.warned_of_journal = false;
        let dropped = snapshot.dropped() - last.dropped();
        let after_end = snapshot.after_end() - last.after_end();
        let denied = snapshot.denials - last.denials;
        let dropped_by_system = snapshot.dropped_by_system_since(&last);
        let turns_cut_short = snapshot.turns.turns_cut_short - last.turns.turns_cut_short;
        let packets_over_budget = snapshot.turns.packets_over_budget - last.turns.packets_over_budget;
        let packets_not_taken = snapshot.turns.packets_not_taken - last.turns.packets_not_taken;
        let counts = [dropped, denied, dropped_by_system, turns_cut_short, packets_over_budget, packets_not_taken];
        let is_quiet = counts == [0; 6];
        if is_quiet && snapshot.socket_errors() == last.socket_errors() {
            return;
        }
        info!(
            dropped,
            reasons = snapshot.reasons_since(&last),
            after_end,
            denied,
            dropped_by_system,
            overflow_at_most = snapshot.overflow_since(&last),
            turns_cut_short,
            packets_over_budget,
            packets_not_taken,
            socket_errors = snapshot.errors_since(&last),
            "dropped datagrams of the last minute"
        );
    }

    /// Logs the sums of what has no line yet, and the counters since the start.
    pub(crate) fn log_totals(&mut self, server: &NetcodeServer, sockets: &Sockets, turns: TurnCounters) {
        self.clocks.flush();
        self.handshakes.flush();
        self.clients.flush();
        let snapshot = Snapshot::of(server, sockets, turns);
        let (nothing, stats) = (Snapshot::default(), server.stats());
        info!(
            connects = stats.connects,
            payloads_received = stats.payloads_received,
            payloads_sent = stats.payloads_sent,
            denied = snapshot.denials,
            dropped = snapshot.dropped(),
            reasons = snapshot.reasons_since(&nothing),
            after_end = snapshot.after_end(),
            dropped_by_system = snapshot.dropped_by_system_since(&nothing),
            overflow_at_most = snapshot.overflow_since(&nothing),
            turns_cut_short = turns.turns_cut_short,
            stalls = self.stalls(),
            packets_over_budget = turns.packets_over_budget,
            packets_not_taken = turns.packets_not_taken,
            socket_errors = snapshot.errors_since(&nothing),
            "totals since the start"
        );
    }
}

fn warn_of_misdirected(server: &NetcodeServer, listed: &Servers) {
    let join = |addresses: Vec<String>| addresses.join(", ");
    warn!(
        advertised = join(server.config().advertised.iter().map(ToString::to_string).collect()),
        token_lists = join(listed.iter().map(ToString::to_string).collect()),
        "a valid connect token was refused because it lists none of the addresses that this server advertises \
         (address_not_listed). Advertise the address that stands in the tokens"
    );
}

/// Records a warning, and returns whether it is the first one.
const fn is_first(warned: &mut bool) -> bool {
    !std::mem::replace(warned, true)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::test_log::count_lines;

    #[test]
    fn a_summary_has_the_counts_since_the_last_one() {
        let mut earlier = Snapshot::default();
        earlier.discards += Discard::Empty;
        let mut later = earlier;
        later.discards += Discard::Replayed;
        later.discards += Discard::Replayed;
        assert_eq!(later.reasons_since(&earlier), "replayed: 2");
        assert_eq!(later.reasons_since(&Snapshot::default()), "empty: 1, replayed: 2");
        assert_eq!((later.reasons_since(&later), later.errors_since(&earlier)), ("none".into(), "none".into()));
    }

    #[test]
    fn a_minute_with_refused_packets_of_clients_has_a_summary() {
        let mut reporter = Reporter::new(Batching::Segments, Now::default());
        for (packets_over_budget, packets_not_taken, field, lines) in [
            (7, 0, "packets_over_budget=7", 1),
            (7, 3, "packets_not_taken=3", 1),
            (12, 3, "packets_over_budget=5", 1),
            (12, 3, "packets_over_budget=0", 0),
        ] {
            let turns = TurnCounters { turns_cut_short: 0, packets_over_budget, packets_not_taken };
            let summarise = || reporter.summarise(Snapshot { turns, ..Snapshot::default() });
            assert_eq!(count_lines(Level::INFO, field, summarise).1, lines, "{field}");
        }
    }

    #[test]
    fn late_packets_of_ended_connections_are_no_drops() {
        let mut snapshot = Snapshot::default();
        (0..9).for_each(|_| snapshot.discards += Discard::ConnectionEnded);
        assert_eq!((snapshot.dropped(), snapshot.after_end()), (0, 9));
        assert_eq!(snapshot.reasons_since(&Snapshot::default()), "none");
        snapshot.discards += Discard::UnknownSender;
        assert_eq!((snapshot.dropped(), snapshot.after_end()), (1, 9));
    }

    #[test]
    fn a_smaller_batch_size_is_reported_once() {
        let mut reporter = Reporter::new(Batching::Segments, Now::default());
        let steps = [Batching::Segments, Batching::Messages, Batching::Messages, Batching::Off];
        assert_eq!(steps.map(|now| reporter.has_less_batching(now)), [false, true, false, true]);
        let mut refused_at_once = Reporter::new(Batching::Segments, Now::default());
        assert!(refused_at_once.has_less_batching(Batching::Off), "before the first turn has ended");
    }

    #[test]
    fn overflow_is_at_most_the_drops_since_the_last_summary() {
        let snapshot = |dropped, overflow| {
            let mut snapshot = Snapshot { overflow, ..Snapshot::default() };
            snapshot.sockets.dropped_by_system = dropped;
            snapshot
        };
        for (earlier, later, expected) in [
            ((Some(0), Some(0)), (Some(10), Some(4)), Some(4)),
            ((Some(10), Some(4)), (Some(12), Some(9)), Some(2)),
            ((Some(10), Some(4)), (Some(30), Some(4)), Some(0)),
            ((None, None), (None, None), None),
        ] {
            assert_eq!(
                snapshot(later.0, later.1).overflow_since(&snapshot(earlier.0, earlier.1)),
                expected,
                "{later:?}"
            );
        }
    }
}
