//! A server at work: its own thread on its own core, which does what it is asked and tells what that cost.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::contestant::{Contestant, Game, Server};
use crate::cpu;

/// Turns without a payload after which a server is taken to have done all that it will do.
const IDLE_TURNS: u32 = 2;
/// Turns for one burst at most.
const MOST_TURNS: u32 = 10_000;

/// What an allocator has counted for the calling thread.
#[derive(Clone, Copy)]
pub struct Probe {
    /// How often memory was asked for.
    pub allocations: fn() -> u64,
    /// Bytes that are held.
    pub bytes: fn() -> i64,
}

/// The server's thread has ended, by a panic of what is measured there.
#[derive(Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server's thread has panicked")
    }
}

impl std::error::Error for Ended {}

impl From<Ended> for io::Error {
    fn from(ended: Ended) -> Self {
        Self::other(ended)
    }
}

/// What a piece of work cost the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    /// CPU time of its thread, the kernel's share included.
    pub cpu: Duration,
    /// Payloads that came in.
    pub payloads: u64,
    /// How often it asked for memory, where that is counted.
    pub allocations: u64,
    /// How many bytes it holds more than before, where that is counted.
    pub bytes: i64,
}

impl Spent {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.payloads += other.payloads;
        self.allocations += other.allocations;
        self.bytes += other.bytes;
    }

    /// Nanoseconds of CPU time for each of `pieces`.
    #[must_use]
    pub fn nanoseconds_each(&self, pieces: u64) -> f64 {
        self.cpu.as_nanos() as f64 / pieces.max(1) as f64
    }
}

type Order = Box<dyn FnOnce(&mut dyn Server) + Send>;

/// A server in its thread.
pub struct Stage {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddrV4,
    probe: Option<Probe>,
    /// Bytes that the server holds by all that it has done.
    bytes: Cell<i64>,
    clock_cost: Duration,
}

impl Stage {
    /// Starts a server with room for so many clients.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(contestant: &Contestant, clients: usize, cores: cpu::Cores, probe: Option<Probe>) -> io::Result<Self> {
        Self::start_by(contestant.name, contestant.start, clients, cores, probe)
    }

    /// Starts a server that somebody makes, in its thread.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_by(
        name: &str,
        start: impl FnOnce(usize) -> io::Result<Box<dyn Server>> + Send + 'static,
        clients: usize,
        cores: cpu::Cores,
        probe: Option<Probe>,
    ) -> io::Result<Self> {
        let (orders, inbox) = channel::<Order>();
        let (ready, started) = channel();
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            let pinned = cpu::pin(cores.server);
            let held = || probe.map_or(0, |probe| (probe.bytes)());
            let before = held();
            match pinned.and_then(|()| start(clients)) {
                Ok(server) => {
                    let bytes = held() - before;
                    drop(ready.send(Ok((server.address(), bytes, cpu::clock_cost()))));
                    play(server, &inbox);
                }
                Err(error) => drop(ready.send(Err(error))),
            }
        })?;
        let (address, bytes, clock_cost) = started.recv().map_err(|_| Ended)??;
        let bytes = Cell::new(bytes);
        Ok(Self { orders: Some(orders), thread: Some(thread), address, probe, bytes, clock_cost })
    }

    /// Where its clients find it.
    #[must_use]
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Begins some work; what it answers arrives when it is done.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Server) -> T + Send + 'static,
    ) -> Result<Receiver<T>, Ended> {
        let (answer, answers) = channel();
        let order: Order = Box::new(move |server| drop(answer.send(work(server))));
        self.orders.as_ref().and_then(|orders| orders.send(order).ok()).ok_or(Ended)?;
        Ok(answers)
    }

    /// Does some work, and waits for its answer.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut dyn Server) -> T + Send + 'static) -> Result<T, Ended> {
        self.begin(work)?.recv().map_err(|_| Ended)
    }

    /// Does some work under the clock. It answers how many payloads came in.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn measure(&self, work: impl FnOnce(&mut dyn Server) -> u64 + Send + 'static) -> Result<Spent, Ended> {
        let (probe, clock_cost) = (self.probe, self.clock_cost);
        let spent = self.ask(move |server| {
            let counted = || probe.map_or((0, 0), |probe| ((probe.allocations)(), (probe.bytes)()));
            let (before, start) = (counted(), cpu::thread_time());
            let payloads = work(server);
            let cpu = cpu::thread_time().saturating_sub(start).saturating_sub(clock_cost);
            let after = counted();
            Spent { cpu, payloads, allocations: after.0 - before.0, bytes: after.1 - before.1 }
        })?;
        self.bytes.set(self.bytes.get() + spent.bytes);
        Ok(spent)
    }

    /// Gives turns until so many payloads have come in, or no more do.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn turns(&self, game: Game, payloads: u64, now: Duration) -> Result<Spent, Ended> {
        self.measure(move |server| turns(server, game, payloads, now))
    }

    /// One turn.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn turn(&self, game: Game, now: Duration) -> Result<Spent, Ended> {
        self.measure(move |server| server.turn(game, now))
    }

    /// How many clients are connected.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn connected(&self) -> Result<usize, Ended> {
        self.ask(|server| server.connected())
    }

    /// Bytes that the server holds by its start and by what it did under the clock; `None` where nobody counts them.
    #[must_use]
    pub fn bytes(&self) -> Option<i64> {
        self.probe.map(|_| self.bytes.get())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn play(mut server: Box<dyn Server>, orders: &Receiver<Order>) {
    while let Ok(order) = orders.recv() {
        order(server.as_mut());
    }
}

fn turns(server: &mut dyn Server, game: Game, payloads: u64, now: Duration) -> u64 {
    let (mut done, mut idle) = (0, 0);
    for _ in 0..MOST_TURNS {
        let taken = server.turn(game, now);
        done += taken;
        idle = if taken == 0 { idle + 1 } else { 0 };
        if done >= payloads || idle >= IDLE_TURNS {
            break;
        }
    }
    done
}
