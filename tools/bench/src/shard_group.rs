//! The shards of a Slipgate server, each on its own thread and core, as one subject. A turn of the group is a turn of
//! all shards at a time, repeated until no datagram is left.
//!
//! The shards start together when all threads are awake, and the wall clock runs until the last one has finished, so
//! the time to wake a thread is not measured.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use slipgate_server::Sockets;

use crate::cpu;
use crate::slipgate::{SlipgateServer, loopback, shards};
use crate::subject::{BenchServer, Times, Workload};

/// The shards of one server.
pub(crate) struct ShardGroup {
    /// The first shard, on the calling thread.
    first: SlipgateServer,
    others: Vec<ShardThread>,
    start: Arc<StartBarrier>,
    turns: usize,
    /// The wall-clock time of all turns so far.
    wall: Duration,
    /// The CPU time of all shards.
    cpu: Duration,
}

/// A barrier at which the shards start a turn together.
#[derive(Default)]
struct StartBarrier {
    /// How often a shard has arrived.
    ready: AtomicUsize,
    /// How many turns may have started.
    turns: AtomicUsize,
}

impl StartBarrier {
    fn arrive(&self, turn: usize) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        until(|| self.turns.load(Ordering::Acquire) >= turn);
    }

    fn begin(&self, turn: usize, others: usize) -> Instant {
        until(|| self.ready.load(Ordering::Acquire) >= turn * others);
        self.turns.store(turn, Ordering::Release);
        Instant::now()
    }
}

fn until(happened: impl Fn() -> bool) {
    while !happened() {
        thread::yield_now();
    }
}

/// The result of a thread's turn.
#[derive(Clone, Copy, Default)]
struct TurnResult {
    payloads: u64,
    connected: usize,
    cpu: Duration,
    /// When the turn ended.
    end: Option<Instant>,
}

/// The thread of another shard.
struct ShardThread {
    orders: Option<Sender<(usize, Workload, Duration)>>,
    results: Receiver<TurnResult>,
    last: TurnResult,
    thread: Option<JoinHandle<()>>,
}

impl ShardGroup {
    /// Starts this number of shards on the given cores in turn. The first one runs on the calling thread.
    pub(crate) fn start(slots: usize, count: u16, cores: &[usize]) -> io::Result<Box<dyn BenchServer>> {
        let mut shards = shards(slots, Sockets::bind_shards(&[loopback()], count)?)?.into_iter();
        let first = shards.next().ok_or_else(|| io::Error::other("no shard"))?;
        let cores = cores.iter().copied().cycle().skip(1);
        let start = Arc::<StartBarrier>::default();
        let shard = |(shard, core)| ShardThread::start(shard, core, Arc::clone(&start));
        let others = shards.zip(cores).map(shard).collect::<io::Result<_>>()?;
        Ok(Box::new(Self { first, others, start, turns: 0, wall: Duration::ZERO, cpu: Duration::ZERO }))
    }
}

impl ShardThread {
    fn start(mut shard: SlipgateServer, core: usize, start: Arc<StartBarrier>) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (tell, results) = channel();
        let (ready, pinned) = channel();
        let thread = thread::Builder::new().name("shards".into()).spawn(move || {
            let _ = ready.send(cpu::pin(core));
            while let Ok((turn, workload, now)) = inbox.recv() {
                start.arrive(turn);
                let started_at = cpu::thread_time();
                let payloads = work(&mut shard, workload, now);
                let (end, cpu) = (Some(Instant::now()), cpu::thread_time().saturating_sub(started_at));
                if tell.send(TurnResult { payloads, connected: shard.connected(), cpu, end }).is_err() {
                    return;
                }
            }
        })?;
        pinned.recv().map_err(io::Error::other)??;
        Ok(Self { orders: Some(orders), results, last: TurnResult::default(), thread: Some(thread) })
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Runs turns until nothing arrives. Returns the number of received payloads.
fn work(shard: &mut SlipgateServer, workload: Workload, now: Duration) -> u64 {
    let mut payloads = 0;
    loop {
        match shard.turn(workload, now) {
            0 => return payloads,
            more => payloads += more,
        }
    }
}

impl BenchServer for ShardGroup {
    fn address(&self) -> SocketAddrV4 {
        self.first.address()
    }

    fn turn(&mut self, workload: Workload, now: Duration) -> u64 {
        self.turns += 1;
        for shard in &self.others {
            // The threads live as long as the group.
            let _ = shard.orders.as_ref().map(|orders| orders.send((self.turns, workload, now)));
        }
        let start = self.start.begin(self.turns, self.others.len());
        let started_at = cpu::thread_time();
        let mut payloads = work(&mut self.first, workload, now);
        let mut end = Instant::now();
        self.cpu += cpu::thread_time().saturating_sub(started_at);
        for shard in &mut self.others {
            shard.last = shard.results.recv().unwrap_or_default();
            payloads += shard.last.payloads;
            self.cpu += shard.last.cpu;
            end = end.max(shard.last.end.unwrap_or(end));
        }
        self.wall += end.saturating_duration_since(start);
        payloads
    }

    fn broadcast(&mut self, _copies: u32, _now: Duration) {}

    fn connected(&self) -> usize {
        self.first.connected() + self.others.iter().map(|shard| shard.last.connected).sum::<usize>()
    }

    fn times(&self) -> Times {
        Times { wall: self.wall, cpu: self.cpu }
    }
}
