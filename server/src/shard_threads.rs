//! Threads that run the shards of a server: each gives its shard its turns, and the game on it the events.
//!
//! ```text
//!   ShardThreads ── control ──▶ thread "shard-0": Server, Inbox, ShardApp ── status, once a tick ──▶ ShardThreads
//!        │     (accept, keys, stop)
//!        └────────────────────▶ thread "shard-1": …
//! ```
//!
//! When the game on one shard panics, that shard disconnects its clients, the others stop in order, and the
//! [`ShardsReport`] has the panic.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::server::ShardId;
use slipgate_os::clock::Clock;
use slipgate_os::pace::Pace;
use slipgate_udp::Waker;
use tracing::{debug, error, info_span};

use crate::journal::lock;
use crate::{Inbox, Server, ServerTotals};

/// The game on one shard. Closures with the signature of [`turn`](Self::turn) implement it.
///
/// # Examples
/// ```no_run
/// use slipgate_server::sharded::ShardApp;
/// use slipgate_server::{Event, Inbox, Server};
///
/// struct Echo;
///
/// impl ShardApp for Echo {
///     fn turn(&mut self, server: &mut Server, inbox: &mut Inbox) {
///         while let Some(event) = inbox.next(server) {
///             if let Event::Payload { client, bytes, .. } = event {
///                 let _ = server.send(client, bytes);
///             }
///         }
///     }
/// }
/// ```
pub trait ShardApp: Send {
    /// Takes the events from the inbox and replies. It is called when datagrams have arrived, and once a tick.
    fn turn(&mut self, server: &mut Server, inbox: &mut Inbox);

    /// Ends a tick: called after [`turn`](Self::turn) and before queued messages leave. The default does nothing.
    fn tick(&mut self, _server: &mut Server) {}

    /// Returns whether the game has nothing left to do. A shard that stops calls [`turn`](Self::turn) until then.
    fn is_done(&mut self) -> bool {
        true
    }

    /// Takes the last events, after the shard has disconnected its clients.
    fn end(&mut self, server: &mut Server, inbox: &mut Inbox) {
        self.turn(server, inbox);
    }
}

impl<F: FnMut(&mut Server, &mut Inbox) + Send> ShardApp for F {
    fn turn(&mut self, server: &mut Server, inbox: &mut Inbox) {
        self(server, inbox);
    }
}

/// The game on a shard has panicked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AppPanic {
    /// The shard; the first one if there were several.
    pub shard: ShardId,
    /// The message of the panic.
    pub message: String,
}

impl fmt::Display for AppPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the game on shard {} has panicked: {}", self.shard, self.message)
    }
}

impl std::error::Error for AppPanic {}

/// The result of all shards after their end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardsReport {
    /// The counters of each shard.
    pub shards: Vec<ServerTotals>,
    /// The panic of a game, which has stopped all shards.
    pub panicked: Option<AppPanic>,
}

/// A control message to a shard's thread.
enum Control {
    AcceptNewClients(bool),
    SetKeys(KeyRing),
    Stop,
}

/// The state that all threads share.
#[derive(Default)]
struct SharedState {
    /// A shard has ended: the others end too.
    has_ended: AtomicBool,
    panicked: Mutex<Option<AppPanic>>,
}

/// What a shard's thread reports once a tick.
#[derive(Clone, Copy, Default)]
struct ShardStatus {
    totals: ServerTotals,
    /// New clients got no slot in this tick.
    denies_new_clients: bool,
}

type SharedStatus = Arc<Mutex<ShardStatus>>;

/// The handle of one shard's thread.
struct WorkerHandle {
    control: Sender<Control>,
    waker: Waker,
    status: SharedStatus,
    thread: JoinHandle<()>,
}

/// The threads of a server's shards. Dropping it without [`stop`](Self::stop) stops the shards and waits for them, too.
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// use slipgate_server::sharded::ShardThreads;
/// use slipgate_server::{Clock, Event, Inbox, Server};
///
/// /// Returns each payload to its sender, on one thread for each shard, until `wait` returns.
/// fn run(shards: Vec<Server>, clock: Clock, wait: impl FnOnce()) -> std::io::Result<()> {
///     let threads = ShardThreads::start(shards, clock, Duration::from_millis(16), |_shard| {
///         |server: &mut Server, inbox: &mut Inbox| {
///             while let Some(event) = inbox.next(server) {
///                 if let Event::Payload { client, bytes, .. } = event {
///                     let _ = server.send(client, bytes);
///                 }
///             }
///         }
///     })?;
///     wait();
///     threads.stop();
///     Ok(())
/// }
/// ```
pub struct ShardThreads {
    workers: Vec<WorkerHandle>,
    state: Arc<SharedState>,
}

impl ShardThreads {
    /// Starts one thread for each shard, named `shard-0` and so on, with the game that `make_app` returns for it. Games
    /// get a turn when datagrams arrive, and once a `tick` of at least 1 ms.
    ///
    /// # Errors
    /// The error of the system call when the system has no thread left, or no handle for a waker.
    pub fn start<A: ShardApp + 'static>(
        shards: Vec<Server>,
        clock: Clock,
        tick: Duration,
        mut make_app: impl FnMut(ShardId) -> A,
    ) -> io::Result<Self> {
        let with_app = |server: Server| {
            let app = make_app(server.shard_id());
            (server, app)
        };
        Self::start_each(shards.into_iter().map(with_app).collect(), clock, tick)
    }

    /// Starts one thread for each shard and its game.
    pub(crate) fn start_each<A: ShardApp + 'static>(
        shards: Vec<(Server, A)>,
        clock: Clock,
        tick: Duration,
    ) -> io::Result<Self> {
        let mut threads = Self { workers: Vec::new(), state: Arc::default() };
        for (mut server, app) in shards {
            let (control, controls) = channel();
            let (waker, status, shard) = (server.waker()?, SharedStatus::default(), server.shard_id());
            let mut worker = ShardWorker {
                app,
                server,
                inbox: Inbox::default(),
                controls,
                clock,
                pace: Pace::new(clock, tick),
                denies_new_clients: false,
                status: Arc::clone(&status),
                state: Arc::clone(&threads.state),
            };
            // If this fails, dropping `threads` stops those that run.
            let thread = thread::Builder::new().name(format!("shard-{shard}")).spawn(move || worker.run(shard))?;
            threads.workers.push(WorkerHandle { control, waker, status, thread });
        }
        Ok(threads)
    }

    /// Sets whether new clients get a slot; see [`Server::accept_new_clients`].
    pub fn accept_new_clients(&self, accept: bool) {
        self.send_all(|| Control::AcceptNewClients(accept));
    }

    /// Replaces the private keys on all shards; see [`Server::set_keys`].
    pub fn set_keys(&self, keys: &KeyRing) {
        self.send_all(|| Control::SetKeys(keys.clone()));
    }

    fn send_all(&self, control: impl Fn() -> Control) {
        for worker in &self.workers {
            // This fails only for a shard that has ended, which `is_running` reports.
            let _ = worker.control.send(control());
            worker.waker.wake();
        }
    }

    /// Asks all shards to stop, without waiting for them.
    pub(crate) fn request_stop(&self) {
        self.send_all(|| Control::Stop);
    }

    /// Returns whether all threads have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.thread.is_finished())
    }

    /// Wakes a shard, because its game has something to do.
    pub(crate) fn wake(&self, shard: ShardId) {
        if let Some(worker) = self.workers.get(usize::from(shard.0)) {
            worker.waker.wake();
        }
    }

    /// Returns whether all shards are running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.state.has_ended.load(Ordering::Relaxed)
    }

    /// Returns the counters of each shard as of its last tick. A client that has connected since then is missing.
    #[must_use]
    pub fn totals(&self) -> Vec<ServerTotals> {
        self.workers.iter().map(|worker| lock(&worker.status).totals).collect()
    }

    /// Returns whether no client is left, and none gets a slot any more: each shard has done a tick without clients
    /// since it executed [`accept_new_clients(false)`](Self::accept_new_clients).
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.workers.iter().all(|worker| {
            let status = lock(&worker.status);
            status.denies_new_clients && status.totals.connected == 0
        })
    }

    /// Disconnects all clients, waits for the threads, and returns their counters. Each game gets one more turn with
    /// its last events.
    #[must_use]
    pub fn stop(mut self) -> ShardsReport {
        let statuses: Vec<_> = self.workers.iter().map(|worker| Arc::clone(&worker.status)).collect();
        self.join();
        let panicked = lock(&self.state.panicked).take();
        ShardsReport { shards: statuses.iter().map(|status| lock(status).totals).collect(), panicked }
    }

    fn join(&mut self) {
        self.request_stop();
        for worker in self.workers.drain(..) {
            // The thread catches panics itself.
            let _ = worker.thread.join();
        }
    }
}

impl Drop for ShardThreads {
    fn drop(&mut self) {
        self.join();
    }
}

/// The state of one thread.
struct ShardWorker<A> {
    server: Server,
    inbox: Inbox,
    app: A,
    controls: Receiver<Control>,
    clock: Clock,
    pace: Pace,
    denies_new_clients: bool,
    status: SharedStatus,
    state: Arc<SharedState>,
}

impl<A: ShardApp> ShardWorker<A> {
    fn run(&mut self, shard: ShardId) {
        // Each log line names its shard.
        let _span = info_span!("shard", id = shard.0).entered();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve())) {
            let message = panic_message(panic.as_ref());
            error!(message, "the game has panicked; all shards stop");
            lock(&self.state.panicked).get_or_insert(AppPanic { shard, message });
        }
        self.state.has_ended.store(true, Ordering::Relaxed);
        // A game that has panicked is not called again, but its clients are disconnected. If that panics too, dropping
        // the server frees its slots.
        let _ = catch_unwind(AssertUnwindSafe(|| self.disconnect_all()));
    }

    fn serve(&mut self) {
        while !self.should_stop() {
            self.turn();
            self.pace.rest(&mut self.server);
        }
        // Commands that were queued before the stop are executed first.
        self.turn();
        while !self.app.is_done() {
            self.turn();
        }
        self.server.begin_turn(self.clock.now());
        self.server.stop("");
        self.app.end(&mut self.server, &mut self.inbox);
    }

    fn disconnect_all(&mut self) {
        // Disconnects are logged as their events are taken.
        self.server.stop_and_wait("", self.clock, &mut self.inbox, |_| {});
        self.server.log_totals();
        self.publish_status();
    }

    /// Executes control messages. Returns whether the thread must stop.
    fn should_stop(&mut self) -> bool {
        while let Ok(control) = self.controls.try_recv() {
            match control {
                Control::AcceptNewClients(accept) => {
                    self.server.accept_new_clients(accept);
                    self.denies_new_clients = !accept;
                    debug!(accept, "the shard accepts or denies new clients from now on");
                }
                Control::SetKeys(keys) => {
                    self.server.set_keys(keys);
                    debug!("the shard has the new keys");
                }
                Control::Stop => return true,
            }
        }
        self.state.has_ended.load(Ordering::Relaxed)
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        self.app.turn(&mut self.server, &mut self.inbox);
        if !self.pace.is_tick(now.monotonic) {
            self.server.flush();
            return;
        }
        self.app.tick(&mut self.server);
        self.server.end_turn();
        self.publish_status();
    }

    fn publish_status(&self) {
        let (totals, denies_new_clients) = (self.server.totals(), self.denies_new_clients);
        *lock(&self.status) = ShardStatus { totals, denies_new_clients };
    }
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
