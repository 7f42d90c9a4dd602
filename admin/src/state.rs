//! The state that the game's threads write and the admin thread reads, and what follows from it for health.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use slipgate_netcode::crypto::key::KeyFingerprint;
use slipgate_netcode::time::UnixMillis;
use slipgate_os::clock::wall_clock;
use slipgate_server::config::TokenCutoff;
use slipgate_server::counters::ServerTotals;
use slipgate_server::{Clock, ServerConfig};

use tokio::sync::Semaphore;

use crate::command::{AdminCommand, CommandError, MAX_QUEUED, Reply, Work, execute_on_all};
use crate::histogram::{BUDGET_USE_RATIOS, Histogram, LOSS_RATIOS, QUEUED_MESSAGES, ROUND_TRIP_SECONDS, TURN_SECONDS};
use crate::redirect_totals::RedirectTotals;
use crate::refusals::Refusals;
use crate::token::AdminToken;

/// The longest time without a turn of a healthy server. The slowest tick is 100 ms.
const MAX_TURN_GAP: Duration = Duration::from_secs(3);

/// The maximum number of streams of values for the page with charts.
const MAX_STREAMS: usize = 8;

/// The counters of one shard at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminSnapshot {
    pub(crate) totals: ServerTotals,
    /// Clients that use a slot until their close message is acknowledged.
    pub(crate) closing: u32,
    pub(crate) turn_time: Histogram,
    pub(crate) round_trip: Histogram,
    pub(crate) loss: Histogram,
    pub(crate) queued: Histogram,
    pub(crate) budget_use: Histogram,
}

impl AdminSnapshot {
    pub(crate) fn new() -> Self {
        Self {
            totals: ServerTotals::default(),
            closing: 0,
            turn_time: Histogram::new(&TURN_SECONDS),
            round_trip: Histogram::new(&ROUND_TRIP_SECONDS),
            loss: Histogram::new(&LOSS_RATIOS),
            queued: Histogram::new(&QUEUED_MESSAGES),
            budget_use: Histogram::new(&BUDGET_USE_RATIOS),
        }
    }

    /// Returns the sum of all shards, and an empty one without shards.
    fn sum(shards: &[Self]) -> Self {
        let mut sum = Self::new();
        sum.totals = ServerTotals::sum(shards.iter().map(|shard| &shard.totals));
        for shard in shards {
            sum.closing += shard.closing;
            sum.turn_time += &shard.turn_time;
            sum.round_trip += &shard.round_trip;
            sum.loss += &shard.loss;
            sum.queued += &shard.queued;
            sum.budget_use += &shard.budget_use;
        }
        sum
    }
}

/// The part of the state that one publisher writes, and its queue of commands.
pub(crate) struct ShardState {
    /// The game's thread only tries this lock. The admin thread holds it for one copy.
    pub(crate) snapshot: Mutex<AdminSnapshot>,
    /// The time of the last turn by the admin's clock, in milliseconds; 0 before the first.
    last_turn: AtomicU64,
    /// Whether the whole server drains.
    is_draining: Arc<AtomicBool>,
    commands: SyncSender<AdminCommand>,
}

impl ShardState {
    /// Records that a turn has ended.
    pub(crate) fn on_turn(&self, at: Duration) {
        self.last_turn.store(millis(at).max(1), Ordering::Relaxed);
    }

    /// Returns whether the server admits no new clients from the next turn on.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }
}

/// Why a server is not ready for new clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotReady {
    Starting,
    Stalled,
    Draining,
    TokenCutoff,
    HistoryUnavailable,
    Full,
}

impl NotReady {
    pub(crate) const ALL: [Self; 6] =
        [Self::Starting, Self::Stalled, Self::Draining, Self::TokenCutoff, Self::HistoryUnavailable, Self::Full];

    /// Returns the word of the reason in responses.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Stalled => "stalled",
            Self::Draining => "draining",
            Self::TokenCutoff => "token_cutoff",
            Self::HistoryUnavailable => "history_unavailable",
            Self::Full => "full",
        }
    }
}

/// The settings of the server that health depends on.
#[derive(Clone, Copy)]
struct AdmissionSettings {
    slots: u32,
    /// Tokens from before this moment are refused.
    cutoff: Option<UnixMillis>,
}

/// The state of the whole server.
pub(crate) struct AdminState {
    clock: Clock,
    shards: Mutex<Vec<Arc<ShardState>>>,
    limits: Mutex<Option<AdmissionSettings>>,
    is_draining: Arc<AtomicBool>,
    /// Whether the server is not ready because it drains soon.
    is_drain_announced: AtomicBool,
    /// The places of streams of values, so that some connections are left for all else.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) refusals: Refusals,
    /// What requests must show; `None` if each is allowed.
    pub(crate) token: Option<AdminToken>,
    pub(crate) redirects: OnceLock<Box<dyn Fn() -> RedirectTotals + Send + Sync>>,
    /// Whether an issuer takes the heartbeats; not set for a server that does not register.
    pub(crate) is_registered: OnceLock<Box<dyn Fn() -> bool + Send + Sync>>,
    /// The fingerprints of the private keys.
    pub(crate) keys: Mutex<Vec<KeyFingerprint>>,
}

impl AdminState {
    pub(crate) fn new(token: Option<AdminToken>) -> Self {
        Self {
            clock: Clock::start(),
            token,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            refusals: Refusals::default(),
            shards: Mutex::default(),
            limits: Mutex::default(),
            is_draining: Arc::default(),
            is_drain_announced: AtomicBool::new(false),
            redirects: OnceLock::new(),
            is_registered: OnceLock::new(),
            keys: Mutex::default(),
        }
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Adds a shard of a server with these settings. Returns its state and the commands of operators.
    pub(crate) fn add_shard(&self, config: &ServerConfig) -> (Arc<ShardState>, Receiver<AdminCommand>) {
        let (commands, queued) = sync_channel(MAX_QUEUED);
        let (snapshot, last_turn) = (Mutex::new(AdminSnapshot::new()), AtomicU64::new(0));
        let is_draining = Arc::clone(&self.is_draining);
        let shard = Arc::new(ShardState { snapshot, last_turn, is_draining, commands });
        let cutoff = match config.token_cutoff {
            TokenCutoff::At(time) => Some(time),
            TokenCutoff::AtStart | TokenCutoff::None => None,
        };
        *lock(&self.limits) = Some(AdmissionSettings { slots: config.slots, cutoff });
        lock(&self.shards).push(Arc::clone(&shard));
        (shard, queued)
    }

    pub(crate) fn announce_drain(&self) {
        self.is_drain_announced.store(true, Ordering::Relaxed);
    }

    /// Starts a drain. Returns whether it had started before.
    pub(crate) fn set_draining(&self) -> bool {
        self.is_draining.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    /// Executes a command on all shards.
    pub(crate) async fn execute(&self, work: Work) -> Result<Vec<Reply>, CommandError> {
        let commands = lock(&self.shards).iter().map(|shard| shard.commands.clone()).collect();
        execute_on_all(commands, work).await
    }

    /// Returns the sum over all shards.
    pub(crate) fn snapshot(&self) -> AdminSnapshot {
        let shards: Vec<_> = lock(&self.shards).iter().map(|shard| *lock(&shard.snapshot)).collect();
        AdminSnapshot::sum(&shards)
    }

    /// Returns the number of slots, 0 before the server has started.
    pub(crate) fn slots(&self) -> u32 {
        lock(&self.limits).map_or(0, |limits| limits.slots)
    }

    /// Returns the time since the start of the admin service.
    pub(crate) fn uptime(&self) -> Duration {
        self.clock.monotonic().since_start()
    }

    /// Returns the longest time since the last turn of a shard, `None` before each shard has had one.
    fn turn_gap(&self, uptime: Duration) -> Option<Duration> {
        let now = millis(uptime);
        let shards = lock(&self.shards);
        let gap = |shard: &Arc<ShardState>| match shard.last_turn.load(Ordering::Relaxed) {
            0 => None,
            last => Some(Duration::from_millis(now.saturating_sub(last))),
        };
        let gaps = shards.iter().map(gap).collect::<Option<Vec<_>>>()?;
        gaps.into_iter().max()
    }

    /// Returns whether turns have stopped. A server that has not had its first turn is starting.
    pub(crate) fn is_stalled(&self, uptime: Duration) -> bool {
        self.turn_gap(uptime).is_some_and(|gap| gap > MAX_TURN_GAP)
    }

    /// Returns why the server is not ready for new clients, `None` if it is.
    pub(crate) fn not_ready(&self, uptime: Duration) -> Option<NotReady> {
        match (self.turn_gap(uptime), *lock(&self.limits)) {
            (None, _) | (_, None) => Some(NotReady::Starting),
            _ if self.is_stalled(uptime) => Some(NotReady::Stalled),
            _ if self.is_draining() || self.is_drain_announced.load(Ordering::Relaxed) => Some(NotReady::Draining),
            (_, Some(AdmissionSettings { cutoff: Some(cutoff), .. })) if cutoff > wall_clock() => {
                Some(NotReady::TokenCutoff)
            }
            (_, Some(AdmissionSettings { slots, .. })) => {
                let totals = self.snapshot().totals;
                let unavailable = totals.is_history_unavailable.then_some(NotReady::HistoryUnavailable);
                unavailable.or((totals.connected >= slots).then_some(NotReady::Full))
            }
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Locks a mutex. Poisoning is harmless: the critical sections only copy.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(cutoff: TokenCutoff) -> (AdminState, Arc<ShardState>) {
        let state = AdminState::new(None);
        let mut config = ServerConfig::new(1, 2, &[]);
        config.token_cutoff = cutoff;
        let (shard, _) = state.add_shard(&config);
        (state, shard)
    }

    #[test]
    fn server_is_ready_from_its_first_turn_until_it_drains() {
        assert_eq!(AdminState::new(None).not_ready(Duration::ZERO), Some(NotReady::Starting));
        let (state, shard) = state(TokenCutoff::AtStart);
        assert_eq!((state.not_ready(state.uptime()), state.turn_gap(state.uptime())), (Some(NotReady::Starting), None));
        shard.on_turn(state.uptime());
        assert_eq!(state.not_ready(state.uptime()), None);
        state.announce_drain();
        assert_eq!((state.not_ready(state.uptime()), state.is_draining()), (Some(NotReady::Draining), false));
        assert!(!state.set_draining() && state.is_draining() && state.set_draining());
        assert_eq!(state.not_ready(state.uptime()), Some(NotReady::Draining));
    }

    #[test]
    fn full_server_is_not_ready() {
        let (state, shard) = state(TokenCutoff::AtStart);
        shard.on_turn(state.uptime());
        for (connected, expected) in [(1, None), (2, Some(NotReady::Full))] {
            lock(&shard.snapshot).totals.connected = connected;
            assert_eq!(state.not_ready(state.uptime()), expected);
        }
    }

    #[test]
    fn server_whose_history_takes_no_records_is_not_ready() {
        let (state, shard) = state(TokenCutoff::AtStart);
        shard.on_turn(state.uptime());
        for (is_unavailable, expected) in [(true, Some(NotReady::HistoryUnavailable)), (false, None)] {
            lock(&shard.snapshot).totals.is_history_unavailable = is_unavailable;
            assert_eq!(state.not_ready(state.uptime()), expected);
        }
    }

    #[test]
    fn server_that_refuses_all_present_tokens_is_not_ready() {
        for (cutoff, expected) in [(u64::MAX, Some(NotReady::TokenCutoff)), (1, None)] {
            let (state, shard) = state(TokenCutoff::At(UnixMillis(cutoff)));
            shard.on_turn(state.uptime());
            assert_eq!(state.not_ready(state.uptime()), expected);
        }
    }

    #[test]
    fn server_without_a_turn_for_three_seconds_is_stalled() {
        let (state, first) = state(TokenCutoff::AtStart);
        let (second, _) = state.add_shard(&ServerConfig::new(1, 2, &[]));
        let at = Duration::from_millis;
        assert!(!state.is_stalled(at(60_000)), "it starts");
        first.on_turn(at(1000));
        second.on_turn(at(3000));
        assert_eq!((state.is_stalled(at(4000)), state.not_ready(at(4000))), (false, None));
        assert_eq!((state.is_stalled(at(4001)), state.not_ready(at(4001))), (true, Some(NotReady::Stalled)));
        first.on_turn(at(4001));
        assert!(!state.is_stalled(at(4001)));
    }
}
