//! The shards of our server, each on a thread and a core of its own, as one server that takes part: a turn is one of all of
//! them at a time, until nothing is left to do.

use std::io;
use std::net::SocketAddrV4;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipgate_server::Sockets;

use crate::contestant::{Game, Server};
use crate::cpu;
use crate::ours::{Ours, loopback, shards};

/// The shards of one server.
pub(crate) struct Team {
    /// On the thread of the stage.
    first: Ours,
    others: Vec<Mate>,
}

/// What a thread tells after a turn.
#[derive(Clone, Copy, Default)]
struct Told {
    payloads: u64,
    connected: usize,
    cpu: Duration,
}

/// Another shard's thread.
struct Mate {
    orders: Option<Sender<(Game, Duration)>>,
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
        let others = shards.zip(cores).map(|(shard, core)| Mate::start(shard, core)).collect::<io::Result<_>>()?;
        Ok(Box::new(Self { first, others }))
    }
}

impl Mate {
    fn start(mut shard: Ours, core: usize) -> io::Result<Self> {
        let (orders, inbox) = channel();
        let (tell, told) = channel();
        let thread = thread::Builder::new().name("shards".into()).spawn(move || {
            if cpu::pin(core).is_err() {
                return;
            }
            while let Ok((game, now)) = inbox.recv() {
                let payloads = work(&mut shard, game, now);
                let told = Told { payloads, connected: shard.connected(), cpu: cpu::thread_time() };
                if tell.send(told).is_err() {
                    return;
                }
            }
        })?;
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
        for mate in &self.others {
            // One that has ended tells nothing below.
            let _ = mate.orders.as_ref().map(|orders| orders.send((game, now)));
        }
        let mut payloads = work(&mut self.first, game, now);
        for mate in &mut self.others {
            mate.last = mate.told.recv().unwrap_or_default();
            payloads += mate.last.payloads;
        }
        payloads
    }

    fn say(&mut self, _copies: u32, _now: Duration) {}

    fn connected(&self) -> usize {
        self.first.connected() + self.others.iter().map(|mate| mate.last.connected).sum::<usize>()
    }

    fn cpu(&self) -> Duration {
        cpu::thread_time() + self.others.iter().map(|mate| mate.last.cpu).sum::<Duration>()
    }
}
