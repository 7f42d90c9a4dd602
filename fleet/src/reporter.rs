//! The game's side: copies the connected clients for the drivers, and allocates the server with the first one.

use std::collections::VecDeque;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use slipgate_netcode::ids::ClientId;
use slipgate_server::counters::{ServerTotals, TakeNewClients};
use slipgate_server::sharded::ShardedServer;
use slipgate_server::{ClientHandle, Instant, Now, Server};

use crate::life_cycle::{LifeCycle, LifeState};
use crate::population::{ShardPopulation, keep_newest};
use crate::redirect_queue::{RedirectQueue, ShardRedirects};

/// The shortest time between two copies of the connected clients.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Reports the clients of a server, or of one shard. [`Fleet::reporter`](crate::Fleet::reporter) returns it.
pub struct FleetReporter {
    life: LifeCycle,
    shard: Arc<ShardPopulation>,
    next_report: Option<Instant>,
    /// The connects and disconnects of the last copy of one server, and the clients of it.
    last_changes: Option<u64>,
    clients: Vec<(ClientHandle, ClientId)>,
    /// The clients that got a slot since the last copy, oldest first.
    admitted: VecDeque<(ClientHandle, ClientId)>,
    queue: Arc<RedirectQueue>,
    redirects: ShardRedirects,
}

impl FleetReporter {
    pub(crate) fn new(life: LifeCycle, shard: Arc<ShardPopulation>, queue: Arc<RedirectQueue>) -> Self {
        let (clients, admitted, redirects) = (Vec::new(), VecDeque::new(), ShardRedirects::default());
        Self { life, shard, next_report: None, last_changes: None, clients, admitted, queue, redirects }
    }

    /// Ends a turn that began at `began`: every 250 ms, after a client connected or left, it copies the connected
    /// clients, and those that connected and left in between for the registration. The first client turns the state to
    /// [`LifeState::Allocated`]. While the server drains, it redirects clients to other servers, if the registration
    /// says so. It never waits for a driver.
    pub fn on_turn(&mut self, server: &mut Server, began: Now) {
        self.shard.on_turn();
        self.admit(server);
        if self.life.is_draining() {
            self.redirects.on_turn(server, &self.queue, began.monotonic);
        }
        if !self.is_due(began.monotonic) {
            return;
        }
        let totals = server.totals();
        if self.last_changes != Some(changes(&totals)) {
            self.clients.clear();
            for client in server.clients().collect::<Vec<_>>() {
                self.clients.extend(server.client(client).map(|found| (client, found.client_id())));
            }
        }
        self.report(&totals, began.monotonic);
    }

    /// Does the same for the game loop of a sharded server. Call [`ShardedServer::flush`] afterwards: it sends the
    /// tokens of redirects at once.
    pub fn on_sharded_turn(&mut self, server: &mut ShardedServer, began: Now) {
        self.shard.on_turn();
        self.admit(server);
        if self.life.is_draining() {
            self.redirects.on_turn(server, &self.queue, began.monotonic);
        }
        if !self.is_due(began.monotonic) {
            return;
        }
        let mut totals = ServerTotals::sum(&server.totals());
        // The shards report their counters once a tick, and the game may know of a client earlier or later.
        totals.connected = totals.connected.max(server.connected_count());
        self.clients.clear();
        self.clients.extend(server.clients().map(|found| (found.client, found.client_id)));
        self.report(&totals, began.monotonic);
    }

    /// Remembers clients that got a slot: one that leaves before the next copy is reported, too.
    fn admit(&mut self, server: &mut impl TakeNewClients) {
        self.admitted.extend(server.take_new_clients());
        keep_newest(&mut self.admitted, self.shard.max_admitted());
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next_report.is_none_or(|next| now >= next)
    }

    /// Copies the clients, unless a driver is reading them: then the next turn tries again.
    fn report(&mut self, totals: &ServerTotals, now: Instant) {
        let mut shard = match self.shard.clients.try_lock() {
            Ok(shard) => shard,
            // Poisoning is harmless: the critical sections only copy.
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        shard.connected = totals.connected;
        shard.is_history_unavailable = totals.is_history_unavailable;
        shard.clients.clone_from(&self.clients);
        shard.admitted.append(&mut self.admitted);
        keep_newest(&mut shard.admitted, self.shard.max_admitted());
        drop(shard);
        self.last_changes = Some(changes(totals));
        self.next_report = Some(now.after(REPORT_INTERVAL));
        if totals.connected > 0 && self.life.state() == LifeState::Ready {
            self.life.advance(LifeState::Allocated);
        }
    }
}

/// Returns a number that grows with each client that connects or leaves.
const fn changes(totals: &ServerTotals) -> u64 {
    totals.stats.connects.wrapping_add(totals.stats.disconnects)
}
