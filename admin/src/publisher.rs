//! The game's side: counts turns, hands copies of the counters to the admin thread, and executes the commands of
//! operators. It never waits for that thread.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use slipgate_server::congestion::BytesPerSecond;
use slipgate_server::counters::ServerTotals;
use slipgate_server::sharded::ShardedServer;
use slipgate_server::{ClientHandle, Clock, Instant, Now, Server, ServerConfig};

use crate::command::AdminCommand;
use crate::state::{AdminSnapshot, ShardState};

/// The shortest time between two copies of the counters.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(250);
/// The shortest time between two measurements of one client's path.
const PATH_INTERVAL: Duration = Duration::from_secs(2);
/// The number of paths that are measured in one turn.
const PATHS_PER_TURN: usize = 64;

/// Publishes the counters of a server, or of one shard. [`Admin::publisher`](crate::Admin::publisher) returns it.
///
/// # Examples
/// ```no_run
/// # use slipgate_admin::AdminPublisher;
/// # use slipgate_server::{Clock, Server};
/// # fn turn(server: &mut Server, clock: Clock, publisher: &mut AdminPublisher) {
/// let now = clock.now();
/// server.begin_turn(now);
/// // The game.
/// server.end_turn();
/// publisher.on_turn(server, now);
/// # }
/// ```
pub struct AdminPublisher {
    shard: Arc<ShardState>,
    commands: Receiver<AdminCommand>,
    clock: Clock,
    admin_clock: Clock,
    current: Box<AdminSnapshot>,
    next_publish: Instant,
    next_paths: Instant,
    /// The clients of the present round of measurements, and the index of the next one.
    clients: Vec<ClientHandle>,
    next_client: usize,
    /// The traffic of the client in each slot at its last measurement.
    sent: Vec<Option<SentBytes>>,
    is_drained: bool,
}

/// The bytes that a client had been sent at one moment.
#[derive(Clone, Copy)]
struct SentBytes {
    client: ClientHandle,
    bytes: u64,
    at: Instant,
}

impl AdminPublisher {
    pub(crate) fn new(
        (shard, commands): (Arc<ShardState>, Receiver<AdminCommand>),
        config: &ServerConfig,
        clock: Clock,
        admin_clock: Clock,
    ) -> Self {
        Self {
            shard,
            commands,
            clock,
            admin_clock,
            current: Box::new(AdminSnapshot::new()),
            next_publish: clock.monotonic(),
            next_paths: clock.monotonic(),
            clients: Vec::with_capacity(config.slots as usize),
            next_client: 0,
            sent: vec![None; config.slots as usize],
            is_drained: false,
        }
    }

    /// Ends a turn that began at `began`: counts its time, measures the paths of up to 64 clients, publishes the
    /// counters every 250 ms, and executes at most one command of an operator. It never waits for the admin thread, and
    /// allocates only for a command.
    pub fn on_turn(&mut self, server: &mut Server, began: Now) {
        let now = self.count_turn(began.monotonic);
        // One in each turn: a list of clients takes time.
        if let Ok(command) = self.commands.try_recv() {
            command.execute(server);
        }
        if self.begins_drain() {
            server.accept_new_clients(false);
        }
        self.measure_paths(server, now);
        if now < self.next_publish {
            return;
        }
        self.current.totals = server.totals();
        let connected = u32::try_from(server.clients().count()).unwrap_or(u32::MAX);
        self.current.closing = self.current.totals.connected.saturating_sub(connected);
        self.publish(now);
    }

    /// Does the same for the game loop of a sharded server, but for the paths. The shards execute the commands. It
    /// takes the queue to a shard, so call it where the game calls [`ShardedServer::flush`].
    pub fn on_sharded_turn(&mut self, server: &mut ShardedServer, began: Now) {
        if let Ok(command) = self.commands.try_recv() {
            command.execute_on_shards(server);
        }
        if self.begins_drain() {
            server.accept_new_clients(false);
        }
        self.on_totals(began, || ServerTotals::sum(&server.totals()));
    }

    /// Returns whether a drain has started since the last turn.
    fn begins_drain(&mut self) -> bool {
        let was_drained = std::mem::replace(&mut self.is_drained, self.shard.is_draining());
        self.is_drained && !was_drained
    }

    /// Counts a turn, and publishes the counters if they are due.
    fn on_totals(&mut self, began: Now, totals: impl FnOnce() -> ServerTotals) {
        let now = self.count_turn(began.monotonic);
        if now >= self.next_publish {
            self.current.totals = totals();
            self.publish(now);
        }
    }

    /// Counts a turn and returns the time of its end.
    fn count_turn(&mut self, began: Instant) -> Instant {
        let now = self.clock.monotonic();
        self.current.turn_time.add(now.since(began).as_secs_f64());
        self.shard.on_turn(self.admin_clock.monotonic().since_start());
        now
    }

    /// Copies the counters, unless the admin thread is reading them: then the next turn tries again.
    fn publish(&mut self, now: Instant) {
        let mut snapshot = match self.shard.snapshot.try_lock() {
            Ok(snapshot) => snapshot,
            // Poisoning is harmless: the critical sections only copy.
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        *snapshot = *self.current;
        self.next_publish = now.after(PUBLISH_INTERVAL);
    }

    /// Adds the paths of some clients to the distributions. A round over all clients takes several turns.
    fn measure_paths(&mut self, server: &mut Server, now: Instant) {
        if self.next_client >= self.clients.len() {
            if now < self.next_paths {
                return;
            }
            self.next_paths = now.after(PATH_INTERVAL);
            self.next_client = 0;
            self.clients.clear();
            self.clients.extend(server.clients());
        }
        let end = self.clients.len().min(self.next_client + PATHS_PER_TURN);
        for client in self.clients.get(self.next_client..end).unwrap_or_default() {
            let Some(client) = server.client(*client) else { continue };
            let Some(path) = client.path() else { continue };
            if client.connection().is_some() {
                self.current.queued.add(client.queued().messages.into());
                let sent = SentBytes { client: client.handle(), bytes: client.activity().bytes_sent, at: now };
                let last = self.sent.get_mut(sent.client.slot().0 as usize).and_then(|last| last.replace(sent));
                let used = last.and_then(|last| budget_use(last, sent, path.congestion.rate));
                used.into_iter().for_each(|used| self.current.budget_use.add(used));
            }
            self.current.loss.add(path.endpoint.loss);
            if let Some(round_trip) = path.congestion.round_trip {
                self.current.round_trip.add(round_trip.as_secs_f64());
            }
        }
        self.next_client = end;
    }
}

/// Returns the share of the congestion controller's rate that a client's traffic used since its last measurement.
fn budget_use(last: SentBytes, now: SentBytes, rate: BytesPerSecond) -> Option<f64> {
    let seconds = now.at.since(last.at).as_secs_f64();
    let may_send = rate.0 * seconds;
    let sent = now.bytes.saturating_sub(last.bytes) as f64;
    (last.client == now.client && may_send > 0.0).then(|| sent / may_send)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::state::{AdminState, lock};

    fn publisher(state: &AdminState, clock: Clock) -> AdminPublisher {
        let config = ServerConfig::new(1, 4, &[]);
        AdminPublisher::new(state.add_shard(&config), &config, clock, state.clock())
    }

    fn totals(connected: u32) -> ServerTotals {
        ServerTotals { connected, ..ServerTotals::default() }
    }

    #[test]
    fn turn_does_not_wait_while_the_admin_thread_reads() {
        let (state, clock) = (AdminState::new(None), Clock::start());
        let mut publisher = publisher(&state, clock);
        let shard = Arc::clone(&publisher.shard);
        let reading = lock(&shard.snapshot);
        let (done, is_done) = mpsc::channel();
        let game = thread::spawn(move || {
            publisher.on_totals(clock.now(), || totals(3));
            done.send(()).unwrap();
            publisher
        });
        // The lock is held until the turn has ended.
        is_done.recv_timeout(Duration::from_secs(60)).expect("the turn waits for the admin thread");
        assert_eq!((reading.totals.connected, reading.turn_time.count()), (0, 0));
        drop(reading);
        let mut publisher = game.join().unwrap();
        publisher.on_totals(clock.now(), || totals(3));
        let published = state.snapshot();
        assert_eq!((published.totals.connected, published.turn_time.count()), (3, 2));
    }

    #[test]
    fn counters_are_published_four_times_a_second_at_most() {
        let (state, clock) = (AdminState::new(None), Clock::start());
        let mut publisher = publisher(&state, clock);
        let start = std::time::Instant::now();
        let mut calls = 0;
        while start.elapsed() < Duration::from_millis(100) {
            publisher.on_totals(clock.now(), || {
                calls += 1;
                totals(1)
            });
        }
        // A machine that stalls may see a second one.
        assert!((1..=1 + start.elapsed().as_millis() / 250).contains(&calls), "{calls}");
    }
}
