//! One system call for each datagram: what every system has.

use std::io;

use mio::net::UdpSocket;

use super::Family;
use super::batch::{ReceiveBatch, SendBatch};
use super::stats::{SocketStats, Trouble};

/// Errors of one read after which a turn stops reading a socket: the next turn tries again.
pub(super) const RECEIVE_ERRORS_PER_TURN: u32 = 64;

/// The datapath of systems without batches.
#[cfg(not(target_os = "linux"))]
#[derive(Default)]
pub(super) struct Datapath(());

#[cfg(not(target_os = "linux"))]
impl Datapath {
    pub(super) const fn batching(&self) -> super::Batching {
        super::Batching::Off
    }

    pub(super) const fn limit(&mut self, _: super::Batching) {}

    pub(super) fn receive(
        &self,
        socket: &UdpSocket,
        batch: &mut ReceiveBatch,
        most: usize,
        stats: &mut SocketStats,
    ) -> bool {
        receive(socket, batch, most, stats)
    }

    pub(super) fn send(&self, socket: &UdpSocket, family: Family, batch: &SendBatch, stats: &mut SocketStats) {
        send(socket, family, batch, stats, || false);
    }
}

/// Fills the batch until it holds `most`, and answers whether the socket has nothing more to give now: a read that brings
/// nothing but errors need not be followed by another at once.
pub(super) fn receive(socket: &UdpSocket, batch: &mut ReceiveBatch, most: usize, stats: &mut SocketStats) -> bool {
    let (mut errors, had) = (0, batch.len());
    while batch.len() < most {
        let Some(buffer) = batch.room() else { return false };
        stats.receive_calls += 1;
        match socket.recv_from(buffer) {
            Ok((bytes, from)) => {
                batch.commit(from.into(), bytes);
                stats.note_received(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) => {
                // Windows reports a datagram that was cut as an error; other systems report an earlier send's trouble.
                stats.note_trouble(Trouble::of(&error));
                errors += 1;
                if errors >= RECEIVE_ERRORS_PER_TURN {
                    return batch.len() == had;
                }
            }
        }
    }
    false
}

/// Sends the batch's datagrams of one family. One that is too large for its path is sent again if the kernel cuts it now,
/// and did not before: that is what `let_cut` answers.
pub(super) fn send(
    socket: &UdpSocket,
    family: Family,
    batch: &SendBatch,
    stats: &mut SocketStats,
    let_cut: impl Fn() -> bool,
) {
    for (to, datagram) in batch.iter().filter(|(to, _)| Family::of(to) == family) {
        stats.send_calls += 1;
        let mut sent = socket.send_to(datagram, to);
        if is_too_large(&sent) && let_cut() {
            sent = socket.send_to(datagram, to);
        }
        stats.note_sent(sent, datagram.len());
    }
}

/// Whether a datagram was refused for its size.
pub(super) fn is_too_large(sent: &io::Result<usize>) -> bool {
    sent.as_ref().is_err_and(|error| Trouble::of(error) == Trouble::TooLarge)
}
