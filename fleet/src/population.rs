//! The clients of a server at one moment, which the game's threads write and the drivers read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_server::{ClientHandle, Clock};

/// The longest time without a turn of a healthy server. The slowest tick is 100 ms.
const MAX_TURN_GAP: Duration = Duration::from_secs(3);

/// The admitted clients that wait to be reported at most, for each slot and for a server with few slots.
const ADMITTED_PER_SLOT: usize = 4;
const MIN_ADMITTED: usize = 128;

/// The clients of one shard, or of all shards together.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerClients {
    pub(crate) connected: u32,
    /// Whether no client gets a slot now, because the history cannot record its token. Shards have one history.
    pub(crate) is_history_unavailable: bool,
    /// The connected clients; empty where the server's thread does not know them.
    pub(crate) clients: Vec<(ClientHandle, ClientId)>,
    /// The clients that got a slot and that no driver has taken, oldest first; also those that have left since.
    pub(crate) admitted: VecDeque<(ClientHandle, ClientId)>,
}

impl ServerClients {
    /// Returns the distinct client ids in their order.
    pub(crate) fn ids(&self) -> BTreeSet<ClientId> {
        self.clients.iter().map(|(_, id)| *id).collect()
    }
}

/// The part of one shard.
pub(crate) struct ShardPopulation {
    /// The game's thread only tries this lock. A driver holds it for one copy.
    pub(crate) clients: Mutex<ServerClients>,
    /// The time of the last turn, in milliseconds of the population's clock; 0 before the first.
    last_turn: AtomicU64,
    clock: Clock,
    max_admitted: usize,
}

impl ShardPopulation {
    /// Records that a turn has ended.
    pub(crate) fn on_turn(&self) {
        self.last_turn.store(millis(self.clock).max(1), Ordering::Relaxed);
    }

    pub(crate) const fn max_admitted(&self) -> usize {
        self.max_admitted
    }
}

/// The clients of a server, and whether its turns advance.
pub(crate) struct Population {
    clock: Clock,
    slots: u32,
    shards: Mutex<Vec<Arc<ShardPopulation>>>,
}

impl Population {
    pub(crate) fn new(slots: u32) -> Self {
        Self { clock: Clock::start(), slots, shards: Mutex::default() }
    }

    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the number of admitted clients that wait to be reported at most. The oldest are given up: the time of
    /// their reservations is over if the registration has failed for so long.
    pub(crate) fn max_admitted(&self) -> usize {
        (ADMITTED_PER_SLOT * self.slots as usize).max(MIN_ADMITTED)
    }

    pub(crate) fn add_shard(&self) -> Arc<ShardPopulation> {
        let (clients, last_turn) = (Mutex::default(), AtomicU64::new(0));
        let max_admitted = self.max_admitted();
        let shard = Arc::new(ShardPopulation { clients, last_turn, clock: self.clock, max_admitted });
        lock(&self.shards).push(Arc::clone(&shard));
        shard
    }

    /// Returns the clients of all shards.
    pub(crate) fn read(&self) -> ServerClients {
        let mut all = ServerClients::default();
        for shard in lock(&self.shards).iter() {
            let shard = lock(&shard.clients);
            all.connected += shard.connected;
            all.is_history_unavailable |= shard.is_history_unavailable;
            all.clients.extend_from_slice(&shard.clients);
        }
        all
    }

    /// Takes the clients of all shards that got a slot since the last call.
    pub(crate) fn take_admitted(&self) -> VecDeque<(ClientHandle, ClientId)> {
        let shards = lock(&self.shards);
        shards.iter().flat_map(|shard| std::mem::take(&mut lock(&shard.clients).admitted)).collect()
    }

    /// Records that no client is connected any more.
    pub(crate) fn clear(&self) {
        for shard in lock(&self.shards).iter() {
            *lock(&shard.clients) = ServerClients::default();
        }
    }

    /// Returns whether no shard has gone without a turn for 3 s. A server that starts is healthy.
    pub(crate) fn is_healthy(&self) -> bool {
        let now = millis(self.clock);
        let is_recent = |shard: &Arc<ShardPopulation>| match shard.last_turn.load(Ordering::Relaxed) {
            0 => true,
            last => Duration::from_millis(now.saturating_sub(last)) <= MAX_TURN_GAP,
        };
        lock(&self.shards).iter().all(is_recent)
    }
}

fn millis(clock: Clock) -> u64 {
    u64::try_from(clock.monotonic().since_start().as_millis()).unwrap_or(u64::MAX)
}

/// Removes the oldest entries of a queue that has more than `max`.
pub(crate) fn keep_newest<T>(queue: &mut VecDeque<T>, max: usize) {
    queue.drain(..queue.len().saturating_sub(max));
}

/// Locks a mutex. Poisoning is harmless: the critical sections only copy.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
