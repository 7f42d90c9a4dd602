//! Linux: up to 64 datagrams by one system call, and several to one receiver as one message that the kernel cuts.
//!
//! What the kernel does not have or does not want it says at run time, and then less is asked of it.
//!
//! DECISION: datagrams that arrive are not joined (`UDP_GRO`). The kernel joins those of one sender that arrive
//! together, which makes each of a row of four cost a quarter (the benchmark's rows of `joined`); but players send one a
//! tick, which it makes neither cheaper nor dearer, a network's own delays pull rows apart, each of 64 rooms would have to
//! be of 64 KiB, 4 MiB for each socket, and the kernel filter would see joined datagrams, whose lengths say nothing.

use std::io;
use std::os::fd::AsFd;

use mio::net::UdpSocket;

use super::batch::{BATCH, ReceiveBatch, SendBatch};
use super::runs::{Plan, Run};
use super::sending::{Able, Carrier, send_runs};
use super::stats::{SocketStats, Trouble};
use super::system::{self, Message};
use super::{Batching, Family, portable};

/// Datagrams that a socket is asked for first, before it is asked for as many as there is room for. Preparing a call takes
/// time for each room, which a turn that finds a few datagrams should not spend on 64.
const FIRST_ASKED: usize = 8;

/// The datapath of Linux.
#[derive(Default)]
pub(super) struct Datapath {
    able: Able,
    /// A call for many has received some, or has said that nothing waits: it is there, whatever becomes of sending.
    has_received: bool,
    plan: Plan,
}

impl Datapath {
    pub(super) const fn batching(&self) -> Batching {
        self.able.batching
    }

    pub(super) fn limit(&mut self, most: Batching) {
        self.able.batching = self.able.batching.min(most);
        self.has_received &= most > Batching::Off;
    }

    /// Whether many are received by one call. A refusal to send many is none to receive them.
    fn receives_many(&self) -> bool {
        self.able.batching > Batching::Off || self.has_received
    }

    /// Fills the batch until it holds `most`, and answers whether the socket has nothing more to give now: a read that
    /// brings nothing but errors need not be followed by another at once.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        batch: &mut ReceiveBatch,
        most: usize,
        stats: &mut SocketStats,
    ) -> bool {
        let (mut errors, mut ask, had) = (0, FIRST_ASKED, batch.len());
        while self.receives_many() && errors < portable::RECEIVE_ERRORS_PER_TURN {
            let (rooms, arrived) = batch.rooms(most.min(batch.len() + ask));
            let asked = rooms.len();
            if asked == 0 {
                return false;
            }
            stats.receive_calls += 1;
            let result = system::receive(socket.as_fd(), rooms, |from, bytes| {
                arrived.push((from.into(), bytes));
                stats.note_received(bytes);
            });
            match result {
                Ok(count) => {
                    self.has_received = true;
                    if count < asked {
                        return true;
                    }
                    ask = BATCH;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.has_received = true;
                    return true;
                }
                Err(error) if may_be_missing(&error) => {
                    // What was there is there, if it is not unknown now: this read alone goes on as all systems can.
                    if is_unknown(&error) || !self.has_received {
                        self.limit(Batching::Off);
                    }
                    return portable::receive(socket, batch, most, stats);
                }
                Err(error) => {
                    stats.note_trouble(Trouble::of(&error));
                    errors += 1;
                }
            }
        }
        if self.receives_many() { batch.len() == had } else { portable::receive(socket, batch, most, stats) }
    }

    /// Sends the batch's datagrams of one family.
    pub(super) fn send(&mut self, socket: &UdpSocket, family: Family, batch: &SendBatch, stats: &mut SocketStats) {
        if self.able.batching == Batching::Off {
            return portable::send(socket, family, batch, stats, || system::let_cut(socket.as_fd()));
        }
        self.plan.make(batch.leaving(), family, self.able.batching);
        let Self { able, plan, .. } = self;
        send_runs(&mut Batch { socket, batch, plan }, plan.runs(), able, stats);
    }
}

/// Whether an error may mean that the system has no such call, or a sandbox that it may not be made (EPERM).
pub(super) fn may_be_missing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::EINVAL | libc::EPERM))
}

/// Whether an error means for certain that the system has no such call.
pub(super) fn is_unknown(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOSYS)
}

/// A batch on its way through a socket.
struct Batch<'a> {
    socket: &'a UdpSocket,
    batch: &'a SendBatch,
    plan: &'a Plan,
}

impl Batch<'_> {
    fn datagrams(&self, run: &Run) -> impl Iterator<Item = &[u8]> {
        self.plan.places(run).map(|place| self.batch.datagram(place))
    }
}

impl Carrier for Batch<'_> {
    fn send_many(&mut self, runs: &[Run]) -> io::Result<usize> {
        let messages = runs.iter().map(|run| Message { to: run.to, pieces: run.count, segment: run.segment() });
        let pieces = runs.iter().flat_map(|run| self.datagrams(run));
        system::send(self.socket.as_fd(), messages, pieces)
    }

    fn send_one(&mut self, run: &Run) -> io::Result<usize> {
        self.socket.send_to(self.datagrams(run).next().unwrap_or_default(), run.to)
    }

    fn let_cut(&mut self) -> bool {
        system::let_cut(self.socket.as_fd())
    }
}
