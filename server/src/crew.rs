//! Threads that run the shards of a server: each gives its shard its turns, and the game on it the events.
//!
//! ```text
//!   Crew ── orders ──▶ thread "shard-0": Server, Inbox, game ── counts, once a tick ──▶ Crew
//!     │      (admit, keys, stop)
//!     └──────────────▶ thread "shard-1": …
//! ```
//!
//! When the game panics on one shard, that shard says goodbye to its clients, the others stop in order, and the crew tells
//! of the panic.

use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipgate_netcode::crypto::key::KeyRing;
use slipgate_os::clock::Clock;
use slipgate_udp::Waker;
use tracing::{error, info_span};

use crate::{Inbox, Pace, Server, ShardId, Totals};

/// What plays on a shard. Closures of the same shape are games.
pub trait Game: Send {
    /// Takes what has happened from the inbox, and answers it. Called when something arrived, and once a tick.
    fn turn(&mut self, server: &mut Server, inbox: &mut Inbox);

    /// A tick ends: after its [`turn`](Self::turn), before what waits leaves. Does nothing unless it is written.
    fn tick(&mut self, _server: &mut Server) {}

    /// Whether all is done that was asked of it: a shard that is told to stop gives it turns until then.
    fn is_done(&mut self) -> bool {
        true
    }

    /// The shard ends, and what is in the inbox is the last.
    fn end(&mut self, server: &mut Server, inbox: &mut Inbox) {
        self.turn(server, inbox);
    }
}

impl<F: FnMut(&mut Server, &mut Inbox) + Send> Game for F {
    fn turn(&mut self, server: &mut Server, inbox: &mut Inbox) {
        self(server, inbox);
    }
}

/// The game on a shard has panicked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Panicked {
    /// On which shard: the first one, if there were several.
    pub shard: ShardId,
    /// What it said.
    pub message: String,
}

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the game on shard {} has panicked: {}", self.shard, self.message)
    }
}

impl std::error::Error for Panicked {}

/// What a crew left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ended {
    /// What each shard has counted.
    pub shards: Vec<Totals>,
    /// Whether a game has panicked, which has stopped all shards.
    pub panicked: Option<Panicked>,
}

enum Order {
    Admit(bool),
    Keys(KeyRing),
    Stop,
}

/// What all threads look at.
#[derive(Default)]
struct Common {
    /// A shard has ended: the others end as well.
    over: AtomicBool,
    panicked: Mutex<Option<Panicked>>,
}

/// What one shard tells, once a tick.
type Counts = Arc<Mutex<Totals>>;

struct Worker {
    orders: Sender<Order>,
    waker: Waker,
    counts: Counts,
    thread: JoinHandle<()>,
}

/// The threads of a server's shards. Dropped without [`stop`](Self::stop), it stops them too, and waits for them.
pub struct Crew {
    workers: Vec<Worker>,
    common: Arc<Common>,
}

impl Crew {
    /// Starts a thread for each shard, named `shard-0` and so on, with the game that `games` makes for it. Games get their
    /// turn when something arrives, and each `tick`, from 1 ms on.
    ///
    /// # Errors
    /// When the system has no thread left, or no handle to wake one.
    pub fn start<G: Game + 'static>(
        shards: Vec<Server>,
        clock: Clock,
        tick: Duration,
        mut games: impl FnMut(ShardId) -> G,
    ) -> io::Result<Self> {
        let with_game = |server: Server| {
            let game = games(server.shard_id());
            (server, game)
        };
        Self::start_each(shards.into_iter().map(with_game).collect(), clock, tick)
    }

    /// As [`start`](Self::start), with the games that are there.
    pub(crate) fn start_each<G: Game + 'static>(
        shards: Vec<(Server, G)>,
        clock: Clock,
        tick: Duration,
    ) -> io::Result<Self> {
        let mut crew = Self { workers: Vec::new(), common: Arc::default() };
        for (mut server, game) in shards {
            let (orders, inbox) = channel();
            let (waker, counts, shard) = (server.waker()?, Counts::default(), server.shard_id());
            let mut worker = Shift {
                game,
                server,
                inbox: Inbox::default(),
                orders: inbox,
                clock,
                pace: Pace::new(clock, tick),
                counts: Arc::clone(&counts),
                common: Arc::clone(&crew.common),
            };
            // If this fails, those that run are stopped as the crew is dropped.
            let thread = thread::Builder::new().name(format!("shard-{shard}")).spawn(move || worker.run(shard))?;
            crew.workers.push(Worker { orders, waker, counts, thread });
        }
        Ok(crew)
    }

    /// Whether new clients are admitted; see [`Server::set_admitting`].
    pub fn set_admitting(&self, admitting: bool) {
        self.order(|| Order::Admit(admitting));
    }

    /// Replaces the private keys on all shards; see [`Server::set_keys`].
    pub fn set_keys(&self, keys: &KeyRing) {
        self.order(|| Order::Keys(keys.clone()));
    }

    fn order(&self, order: impl Fn() -> Order) {
        for worker in &self.workers {
            // One that has ended is told of by `is_running`.
            let _ = worker.orders.send(order());
            worker.waker.wake();
        }
    }

    /// Has all shards end, without waiting for them.
    pub(crate) fn tell_to_stop(&self) {
        self.order(|| Order::Stop);
    }

    /// Whether all threads have ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.workers.iter().all(|worker| worker.thread.is_finished())
    }

    /// Wakes a shard: there is something for its game.
    pub(crate) fn wake(&self, shard: ShardId) {
        if let Some(worker) = self.workers.get(usize::from(shard.0)) {
            worker.waker.wake();
        }
    }

    /// Whether all shards run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.common.over.load(Ordering::Relaxed)
    }

    /// What each shard has counted, as of its last tick.
    #[must_use]
    pub fn totals(&self) -> Vec<Totals> {
        self.workers.iter().map(|worker| *worker.counts.lock().unwrap_or_else(PoisonError::into_inner)).collect()
    }

    /// Disconnects everyone, waits for the threads, and answers what they have counted. Each game gets one more turn, in
    /// which it hears of the ends.
    #[must_use]
    pub fn stop(mut self) -> Ended {
        let counts: Vec<_> = self.workers.iter().map(|worker| Arc::clone(&worker.counts)).collect();
        self.end();
        let panicked = self.common.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        let of = |counts: Counts| *counts.lock().unwrap_or_else(PoisonError::into_inner);
        Ended { shards: counts.into_iter().map(of).collect(), panicked }
    }

    fn end(&mut self) {
        self.order(|| Order::Stop);
        for worker in self.workers.drain(..) {
            // Panics are caught there.
            let _ = worker.thread.join();
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.end();
    }
}

/// What one thread works with.
struct Shift<G> {
    server: Server,
    inbox: Inbox,
    game: G,
    orders: Receiver<Order>,
    clock: Clock,
    pace: Pace,
    counts: Counts,
    common: Arc<Common>,
}

impl<G: Game> Shift<G> {
    fn run(&mut self, shard: ShardId) {
        // Lines of the log say whose they are.
        let _span = info_span!("shard", id = shard.0).entered();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve())) {
            let message = message(panic.as_ref());
            error!(message, "the game has panicked; all shards stop");
            let mut panicked = self.common.panicked.lock().unwrap_or_else(PoisonError::into_inner);
            panicked.get_or_insert(Panicked { shard, message });
        }
        self.common.over.store(true, Ordering::Relaxed);
        // The game is not asked again if it has panicked, and its clients are told all the same. Should that panic as well,
        // the server is dropped, and all it had is free.
        let _ = catch_unwind(AssertUnwindSafe(|| self.say_goodbye()));
    }

    fn serve(&mut self) {
        while !self.is_told_to_stop() {
            self.turn();
            self.pace.rest(&mut self.server);
        }
        // What was asked of the shard before it was told to stop comes first.
        self.turn();
        while !self.game.is_done() {
            self.turn();
        }
        self.server.begin_turn(self.clock.now());
        self.server.stop();
        self.game.end(&mut self.server, &mut self.inbox);
    }

    fn say_goodbye(&mut self) {
        self.server.begin_turn(self.clock.now());
        self.server.stop();
        self.server.end_turn();
        // What ended just now is told in the log as it is taken.
        while self.inbox.next(&mut self.server).is_some() {}
        self.server.log_totals();
        self.tell_counts();
    }

    /// Does what it is told; answers whether that is to stop.
    fn is_told_to_stop(&mut self) -> bool {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Admit(admitting) => self.server.set_admitting(admitting),
                Order::Keys(keys) => self.server.set_keys(keys),
                Order::Stop => return true,
            }
        }
        self.common.over.load(Ordering::Relaxed)
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        self.game.turn(&mut self.server, &mut self.inbox);
        if !self.pace.is_tick(now.monotonic) {
            self.server.flush();
            return;
        }
        self.game.tick(&mut self.server);
        self.server.end_turn();
        self.tell_counts();
    }

    fn tell_counts(&self) {
        let totals = Totals::of(&self.server);
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = totals;
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}
