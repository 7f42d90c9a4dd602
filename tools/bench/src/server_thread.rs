//! The thread of a server on its own core. It runs work items and measures their cost.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cpu;
use crate::subject::{BenchServer, Subject, Workload};

/// The number of turns without a payload after which a server counts as finished.
const IDLE_TURNS: u32 = 2;
/// The maximum number of turns for one burst.
const MAX_TURNS: u32 = 10_000;

/// The allocation counters of the calling thread.
#[derive(Clone, Copy)]
pub struct AllocationProbe {
    /// Returns the number of allocations.
    pub allocations: fn() -> u64,
    /// Returns the allocated bytes.
    pub bytes: fn() -> i64,
}

/// The server's thread has ended, by a panic of what is measured there.
#[derive(Debug)]
pub struct ThreadEnded;

impl fmt::Display for ThreadEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server's thread has panicked")
    }
}

impl std::error::Error for ThreadEnded {}

impl From<ThreadEnded> for io::Error {
    fn from(ended: ThreadEnded) -> Self {
        Self::other(ended)
    }
}

/// The cost of a work item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// The CPU time of the thread, including the kernel's share.
    pub cpu: Duration,
    /// The number of received payloads.
    pub payloads: u64,
    /// The number of allocations, if they are counted.
    pub allocations: u64,
    /// The change of allocated bytes, if they are counted.
    pub bytes: i64,
}

impl Cost {
    /// Adds another cost.
    pub fn add(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.payloads += other.payloads;
        self.allocations += other.allocations;
        self.bytes += other.bytes;
    }

    /// Returns the CPU time in nanoseconds for each of `pieces`.
    #[must_use]
    pub fn nanoseconds_each(&self, pieces: u64) -> f64 {
        self.cpu.as_nanos() as f64 / pieces.max(1) as f64
    }
}

type WorkItem = Box<dyn FnOnce(&mut dyn BenchServer) + Send>;

/// A server in its own thread.
pub struct ServerThread {
    orders: Option<Sender<WorkItem>>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddrV4,
    probe: Option<AllocationProbe>,
    /// The bytes that the server has allocated so far.
    bytes: Cell<i64>,
    clock_cost: Duration,
}

impl ServerThread {
    /// Starts the server of a subject with this number of slots.
    ///
    /// # Errors
    /// The error of the start, or of the system.
    pub fn start(
        subject: &Subject,
        clients: usize,
        cores: cpu::Cores,
        probe: Option<AllocationProbe>,
    ) -> io::Result<Self> {
        Self::start_by(subject.name, subject.start, clients, cores, probe)
    }

    /// Starts a server that `start` creates in the new thread.
    ///
    /// # Errors
    /// The error of the start, or of the system.
    pub fn start_by(
        name: &str,
        start: impl FnOnce(usize) -> io::Result<Box<dyn BenchServer>> + Send + 'static,
        clients: usize,
        cores: cpu::Cores,
        probe: Option<AllocationProbe>,
    ) -> io::Result<Self> {
        let (orders, inbox) = channel::<WorkItem>();
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
        let (address, bytes, clock_cost) = started.recv().map_err(|_| ThreadEnded)??;
        let bytes = Cell::new(bytes);
        Ok(Self { orders: Some(orders), thread: Some(thread), address, probe, bytes, clock_cost })
    }

    /// Returns the address for clients.
    #[must_use]
    pub const fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Starts a work item. Its result arrives at the receiver.
    ///
    /// # Errors
    /// [`ThreadEnded`] if the thread of the server has panicked.
    pub fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn BenchServer) -> T + Send + 'static,
    ) -> Result<Receiver<T>, ThreadEnded> {
        let (reply, replies) = channel();
        let order: WorkItem = Box::new(move |server| drop(reply.send(work(server))));
        self.orders.as_ref().and_then(|orders| orders.send(order).ok()).ok_or(ThreadEnded)?;
        Ok(replies)
    }

    /// Runs a work item and waits for its result.
    ///
    /// # Errors
    /// [`ThreadEnded`] if the thread of the server has panicked.
    pub fn ask<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn BenchServer) -> T + Send + 'static,
    ) -> Result<T, ThreadEnded> {
        self.begin(work)?.recv().map_err(|_| ThreadEnded)
    }

    /// Measures a work item, which returns the number of received payloads.
    ///
    /// # Errors
    /// [`ThreadEnded`] if the thread of the server has panicked.
    pub fn measure(
        &self,
        work: impl FnOnce(&mut dyn BenchServer) -> u64 + Send + 'static,
    ) -> Result<Cost, ThreadEnded> {
        let (probe, clock_cost) = (self.probe, self.clock_cost);
        let cost = self.ask(move |server| {
            let counted = || probe.map_or((0, 0), |probe| ((probe.allocations)(), (probe.bytes)()));
            let (before, start) = (counted(), cpu::thread_time());
            let payloads = work(server);
            let cpu = cpu::thread_time().saturating_sub(start).saturating_sub(clock_cost);
            let after = counted();
            Cost { cpu, payloads, allocations: after.0 - before.0, bytes: after.1 - before.1 }
        })?;
        self.bytes.set(self.bytes.get() + cost.bytes);
        Ok(cost)
    }

    /// Runs turns until this number of payloads has arrived or no more arrive.
    ///
    /// # Errors
    /// [`ThreadEnded`] if the thread of the server has panicked.
    pub fn turns(&self, workload: Workload, payloads: u64, now: Duration) -> Result<Cost, ThreadEnded> {
        self.measure(move |server| turns(server, workload, payloads, now))
    }

    /// Runs one turn.
    ///
    /// # Errors
    /// [`ThreadEnded`] if the thread of the server has panicked.
    pub fn turn(&self, workload: Workload, now: Duration) -> Result<Cost, ThreadEnded> {
        self.measure(move |server| server.turn(workload, now))
    }

    /// Returns the number of connected clients.
    ///
    /// # Errors
    /// [`ThreadEnded`] if the thread of the server has panicked.
    pub fn connected(&self) -> Result<usize, ThreadEnded> {
        self.ask(|server| server.connected())
    }

    /// Returns the bytes allocated by the start and by measured work items; `None` if they are not counted.
    #[must_use]
    pub fn bytes(&self) -> Option<i64> {
        self.probe.map(|_| self.bytes.get())
    }
}

impl Drop for ServerThread {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn play(mut server: Box<dyn BenchServer>, orders: &Receiver<WorkItem>) {
    while let Ok(order) = orders.recv() {
        order(server.as_mut());
    }
}

fn turns(server: &mut dyn BenchServer, workload: Workload, payloads: u64, now: Duration) -> u64 {
    let (mut done, mut idle) = (0, 0);
    for _ in 0..MAX_TURNS {
        let taken = server.turn(workload, now);
        done += taken;
        idle = if taken == 0 { idle + 1 } else { 0 };
        if done >= payloads || idle >= IDLE_TURNS {
            break;
        }
    }
    done
}
