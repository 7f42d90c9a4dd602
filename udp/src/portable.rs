//! The portable datapath: one system call for each datagram.

use std::io;

use mio::net::UdpSocket;

use super::address_family::AddressFamily;
use super::batch::{ReceiveBatch, SendBatch};
#[cfg(not(target_os = "linux"))]
use super::batching::Batching;
use super::stats::{SocketErrorKind, SocketStats};

/// The number of errors after which a turn stops reading a socket. The next turn tries again.
pub(super) const MAX_RECEIVE_ERRORS_PER_TURN: u32 = 64;

/// The datapath of systems without batched calls.
#[cfg(not(target_os = "linux"))]
#[derive(Default)]
pub(super) struct PortableDatapath(());

#[cfg(not(target_os = "linux"))]
impl PortableDatapath {
    pub(super) const fn batching(&self) -> Batching {
        Batching::Off
    }

    pub(super) const fn limit(&mut self, _: Batching) {}

    pub(super) fn receive(
        &self,
        socket: &UdpSocket,
        batch: &mut ReceiveBatch,
        max: usize,
        stats: &mut SocketStats,
    ) -> bool {
        receive(socket, batch, max, stats)
    }

    pub(super) fn send(&self, socket: &UdpSocket, family: AddressFamily, batch: &SendBatch, stats: &mut SocketStats) {
        send(socket, family, batch, stats, || false);
    }
}

/// Fills the batch until it holds `max`. Returns whether the socket is empty; a read of nothing but errors counts as
/// empty, so that the thread does not spin.
///
/// Windows drops a datagram that is longer than the buffer and reports it as an error. Such datagrams count towards
/// `max`, as they do on systems that cut them.
pub(super) fn receive(socket: &UdpSocket, batch: &mut ReceiveBatch, max: usize, stats: &mut SocketStats) -> bool {
    let (mut errors, mut too_long, had) = (0, 0, batch.len());
    while batch.len() + too_long < max {
        let Some(buffer) = batch.next_buf() else { return false };
        stats.receive_calls += 1;
        match socket.recv_from(buffer) {
            Ok((bytes, from)) => {
                batch.commit(from.into(), bytes);
                stats.count_received(bytes);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) if is_too_large(&error) => {
                stats.count_error(SocketErrorKind::TooLarge);
                too_long += 1;
            }
            Err(error) => {
                // An error of an earlier send.
                stats.count_error(SocketErrorKind::of(&error));
                errors += 1;
                if errors >= MAX_RECEIVE_ERRORS_PER_TURN {
                    return batch.len() == had;
                }
            }
        }
    }
    false
}

/// Sends the batch's datagrams of one address family. A datagram that is too large for its path is sent again if
/// `allow_fragmentation` returns that fragmentation was forbidden until now.
pub(super) fn send(
    socket: &UdpSocket,
    family: AddressFamily,
    batch: &SendBatch,
    stats: &mut SocketStats,
    allow_fragmentation: impl Fn() -> bool,
) {
    for (to, datagram) in batch.iter().filter(|(to, _)| AddressFamily::of(to) == family) {
        stats.send_calls += 1;
        let mut sent = socket.send_to(datagram, to);
        if sent.as_ref().is_err_and(is_too_large) && allow_fragmentation() {
            sent = socket.send_to(datagram, to);
        }
        stats.count_send_result(sent, datagram.len());
    }
}

/// Returns whether a datagram was refused for its size.
pub(super) fn is_too_large(error: &io::Error) -> bool {
    SocketErrorKind::of(error) == SocketErrorKind::TooLarge
}
