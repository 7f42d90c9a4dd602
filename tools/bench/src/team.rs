//! The shards of our server, each on a thread and a core of its own, as one server that takes part: a turn is one of all of
//! them at a time, until nothing is left to do.
//!
//! They begin when all are awake, and the clock on the wall runs until the last has done: how long the system takes to wake
//! a thread is no part of it.

use std::io;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use slipgate_server::Sockets;

use crate::contestant::{Game, Server, Times};
use crate::cpu;
use crate::ours::{Ours, loopback, shards};

/// The shards of one server.
pub(crate) struct Team {
    /// On the thread of the stage.
    first: Ours,
    others: Vec<Mate>,
    start: Arc<StartLine>,
    turns: usize,
    /// Time by the wall clock in which all turns so far were made.
    wall: Duration,
    /// CPU time of all shards.
    cpu: Duration,
}

/// Where shards wait for each other.
#[derive(Default)]
struct StartLine {
    /// How often somebody has come here.
    ready: AtomicUsize,
    /// How many turns may have begun.
    turns: AtomicUsize,
}

impl StartLine {
    fn come(&self, turn: usize) {
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

/// What a thread tells after a turn.
#[derive(Clone, Copy, Default)]
struct Told {
    payloads: u64,
    connected: usize,
    cpu: Duration,
    /// When it had done.
    end: Option<Instant>,
}

/// Another shard's thread.
struct Mate {
    orders: Option<Sender<(usize, Game, Duration)>>,
    told: Receiver<Told>,
    last: Told,
    thread: Option<JoinHandle<()>>,
}

impl Team {
    /// So many shards, of which the first is the caller's, on these cores in turn.
    pub(crate) fn start(slots: usize, count: u16, cores: &[usize]) -> io::Result<Box<dyn Server>> {
        let mut shards = shards(slots, Sockets::bind_shards(&[loopback()], count)?)?.into_iter();
        let first = shards.next().ok_or_else(|| io::Error::other("no shard"))?;
        let cores = cores.iter().copied().cycle().skip(1);
        let start = Arc::<StartLine>::default();
        let mate = |(shard, core)| Mate::start(shard, core, Arc::clone(&start));
        let others = shards.zip(cores).map(mate).collect::<io::Result<_>>()?;
        Ok(Box::new(Self { first, others, start, turns: 0, wall: Duration::ZERO, cpu: Duration::ZERO }))
    }
}

impl Mate {
    fn start(mut shard: Ours, core: usize, start: Arc<StartLine>) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (tell, told) = channel();
        let (ready, pinned) = channel();
        let thread = thread::Builder::new().name("shards".into()).spawn(move || {
            let _ = ready.send(cpu::pin(core));
            while let Ok((turn, game, now)) = inbox.recv() {
                start.come(turn);
                let begun = cpu::thread_time();
                let payloads = work(&mut shard, game, now);
                let (end, cpu) = (Some(Instant::now()), cpu::thread_time().saturating_sub(begun));
                if tell.send(Told { payloads, connected: shard.connected(), cpu, end }).is_err() {
                    return;
                }
            }
        })?;
        pinned.recv().map_err(io::Error::other)??;
        Ok(Self { orders: Some(orders), told, last: Told::default(), thread: Some(thread) })
    }
}

impl Drop for Mate {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Turns until nothing comes in.
fn work(shard: &mut Ours, game: Game, now: Duration) -> u64 {
    let mut payloads = 0;
    loop {
        match shard.turn(game, now) {
            0 => return payloads,
            more => payloads += more,
        }
    }
}

impl Server for Team {
    fn address(&self) -> SocketAddrV4 {
        self.first.address()
    }

    fn turn(&mut self, game: Game, now: Duration) -> u64 {
        self.turns += 1;
        for mate in &self.others {
            // Threads end with the team.
            let _ = mate.orders.as_ref().map(|orders| orders.send((self.turns, game, now)));
        }
        let start = self.start.begin(self.turns, self.others.len());
        let begun = cpu::thread_time();
        let mut payloads = work(&mut self.first, game, now);
        let mut end = Instant::now();
        self.cpu += cpu::thread_time().saturating_sub(begun);
        for mate in &mut self.others {
            mate.last = mate.told.recv().unwrap_or_default();
            payloads += mate.last.payloads;
            self.cpu += mate.last.cpu;
            end = end.max(mate.last.end.unwrap_or(end));
        }
        self.wall += end.saturating_duration_since(start);
        payloads
    }

    fn say(&mut self, _copies: u32, _now: Duration) {}

    fn connected(&self) -> usize {
        self.first.connected() + self.others.iter().map(|mate| mate.last.connected).sum::<usize>()
    }

    fn times(&self) -> Times {
        Times { wall: self.wall, cpu: self.cpu }
    }
}
