//! The Linux datapath: up to 64 datagrams in one system call, and several to one receiver as one message that the
//! kernel segments.
//!
//! The kernel reports missing features at run time. The datapath then falls back to fewer datagrams in a call.
//!
//! DECISION: received datagrams are not coalesced (`UDP_GRO`). Coalescing reduces the cost of each datagram in a row of
//! four to a quarter (the benchmark's rows `joined`). But players send one datagram a tick, which does not become
//! cheaper, and network jitter separates rows. Each of 64 buffers would need 64 KiB, 4 MiB for each socket. The kernel
//! filter checks the length of datagrams, and could not do so for coalesced ones.

use std::io;
use std::os::fd::AsFd;

use mio::net::UdpSocket;

use super::address_family::AddressFamily;
use super::batch::{BATCH_SIZE, ReceiveBatch, SendBatch};
use super::batching::Batching;
use super::gso::{GsoRun, SendPlan};
use super::portable;
use super::refusal::{is_unsupported, may_be_unsupported};
use super::sending::{SendCaps, SendSyscalls, send_runs};
use super::stats::{SocketErrorKind, SocketStats};
use super::syscalls::{self, OutgoingMessage};

/// The number of datagrams that the first call of a turn requests; later calls request a full batch. Preparing a call
/// costs time for each buffer, which a turn with few datagrams should not spend on 64.
const FIRST_REQUEST: usize = 8;

/// The state of the datapath.
#[derive(Default)]
pub(super) struct BatchedDatapath {
    caps: SendCaps,
    /// Whether a batched receive has worked before. A later refusal then does not mean that the call is missing.
    has_received: bool,
    plan: SendPlan,
}

impl BatchedDatapath {
    pub(super) const fn batching(&self) -> Batching {
        self.caps.batching
    }

    pub(super) fn limit(&mut self, max: Batching) {
        self.caps.batching = self.caps.batching.min(max);
        self.has_received &= max > Batching::Off;
    }

    /// Returns whether receives are batched. A refusal of batched sends does not affect them.
    fn receives_many(&self) -> bool {
        self.caps.batching > Batching::Off || self.has_received
    }

    /// Fills the batch until it holds `max`. Returns whether the socket is empty; a read of nothing but errors counts
    /// as empty, so that the thread does not spin.
    pub(super) fn receive(
        &mut self,
        socket: &UdpSocket,
        batch: &mut ReceiveBatch,
        max: usize,
        stats: &mut SocketStats,
    ) -> bool {
        let (mut errors, mut request, had) = (0, FIRST_REQUEST, batch.len());
        while self.receives_many() && errors < portable::MAX_RECEIVE_ERRORS_PER_TURN {
            if batch.len() >= max {
                return false;
            }
            match receive_many(socket, batch, max.min(batch.len() + request), stats) {
                Ok(was_full) => {
                    self.has_received = true;
                    if !was_full {
                        return true;
                    }
                    request = BATCH_SIZE;
                }
                Err(error) if may_be_unsupported(&error) => {
                    self.on_suspect_error(&error);
                    return portable::receive(socket, batch, max, stats);
                }
                Err(error) => {
                    stats.count_error(SocketErrorKind::of(&error));
                    errors += 1;
                }
            }
        }
        if self.receives_many() { batch.len() == had } else { portable::receive(socket, batch, max, stats) }
    }

    /// Stops batched receives if the call is missing. A call that worked before still exists unless the error says
    /// otherwise: then one read alone uses the portable call.
    fn on_suspect_error(&mut self, error: &io::Error) {
        if is_unsupported(error) || !self.has_received {
            self.limit(Batching::Off);
        }
    }

    /// Sends the batch's datagrams of one address family.
    pub(super) fn send(
        &mut self,
        socket: &UdpSocket,
        family: AddressFamily,
        batch: &SendBatch,
        stats: &mut SocketStats,
    ) {
        if self.caps.batching == Batching::Off {
            return portable::send(socket, family, batch, stats, || syscalls::allow_fragmentation(socket.as_fd()));
        }
        self.plan.make(batch.leaving(), family, self.caps.batching);
        let Self { caps, plan, .. } = self;
        send_runs(&mut SocketSyscalls { socket, batch, plan }, plan.runs(), caps, stats);
    }
}

/// Receives by one call until the batch holds `max`. Returns whether all requested datagrams were received; if not, the
/// socket is empty.
fn receive_many(socket: &UdpSocket, batch: &mut ReceiveBatch, max: usize, stats: &mut SocketStats) -> io::Result<bool> {
    let (buffers, arrived) = batch.free_buffers(max);
    let requested = buffers.len();
    stats.receive_calls += 1;
    let result = syscalls::receive(socket.as_fd(), buffers, |from, bytes| {
        arrived.push((from.into(), bytes));
        stats.count_received(bytes);
    });
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        result => Ok(result? >= requested),
    }
}

/// The system calls for one batch on one socket.
struct SocketSyscalls<'a> {
    socket: &'a UdpSocket,
    batch: &'a SendBatch,
    plan: &'a SendPlan,
}

impl SocketSyscalls<'_> {
    fn datagrams(&self, run: &GsoRun) -> impl Iterator<Item = &[u8]> {
        self.plan.indices(run).map(|index| self.batch.datagram(index))
    }
}

impl SendSyscalls for SocketSyscalls<'_> {
    fn send_many(&mut self, runs: &[GsoRun]) -> io::Result<usize> {
        let messages = runs.iter().map(|run| OutgoingMessage { to: run.to, pieces: run.count, segment: run.segment() });
        let pieces = runs.iter().flat_map(|run| self.datagrams(run));
        syscalls::send(self.socket.as_fd(), messages, pieces)
    }

    fn send_one(&mut self, run: &GsoRun) -> io::Result<usize> {
        self.socket.send_to(self.datagrams(run).next().unwrap_or_default(), run.to)
    }

    fn allow_fragmentation(&mut self) -> bool {
        syscalls::allow_fragmentation(self.socket.as_fd())
    }
}
