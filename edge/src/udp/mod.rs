//! UDP sockets, one for IPv4 and one for IPv6, and batches of datagrams.
//!
//! No error of a socket ends anything: a game goes on when a router says that one host is unreachable. Errors are
//! counted by kind, and the datagrams they concern are lost, as datagrams may be.

mod batch;
mod nap;
mod stats;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use mio::net::UdpSocket;
use mio::{Events, Interest, Poll, Token};
use slipgate_protocol::address::Address;
use socket2::{Domain, Protocol, Socket, Type};

use crate::listen::ListenError;

pub use self::batch::{BATCH, ReceiveBatch, Received, SendBatch};
pub use self::nap::Nap;
pub use self::stats::{SocketStats, Trouble};

/// Bytes of socket buffer asked for in each direction, as the reference does; the system may give less.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The least socket buffer that is asked for.
pub const MIN_SOCKET_BUFFER_BYTES: usize = 256 << 10;

/// Errors in a row after which a turn stops reading a socket: the next turn tries again.
const RECEIVE_ERRORS_PER_TURN: u32 = 64;

/// One socket for each family that is in use.
pub struct Sockets {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    poll: Poll,
    events: Events,
    /// Nothing waits in the sockets, as far as we know: then polling tells of the next arrival.
    drained: bool,
    stats: SocketStats,
}

impl Sockets {
    /// Binds at most one IPv4 and one IPv6 address; port 0 lets the system choose. IPv6 sockets do not take IPv4.
    ///
    /// # Errors
    /// An address is in use, not of this machine, or not permitted; two addresses of one family, or none.
    pub fn bind(addresses: &[SocketAddr]) -> io::Result<Self> {
        let mut sockets = Self {
            v4: None,
            v6: None,
            poll: Poll::new()?,
            events: Events::with_capacity(8),
            drained: true,
            stats: SocketStats::default(),
        };
        for address in addresses {
            let home = if address.is_ipv4() { &mut sockets.v4 } else { &mut sockets.v6 };
            if home.is_some() {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "at most one IPv4 and one IPv6 address"));
            }
            let mut socket = open(*address).map_err(|error| ListenError::new(*address, error))?;
            let token = Token(usize::from(address.is_ipv6()));
            sockets.poll.registry().register(&mut socket, token, Interest::READABLE)?;
            *home = Some(socket);
        }
        if addresses.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "an address to bind is needed"));
        }
        Ok(sockets)
    }

    /// The addresses that are bound, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        [&self.v4, &self.v6].into_iter().flatten().filter_map(|socket| socket.local_addr().ok()).collect()
    }

    /// What the sockets have counted.
    #[must_use]
    pub const fn stats(&self) -> &SocketStats {
        &self.stats
    }

    /// Whether a datagram to this address has a socket to leave by.
    #[must_use]
    pub fn reaches(&self, address: Address) -> bool {
        if address.socket_addr().is_ipv4() { self.v4.is_some() } else { self.v6.is_some() }
    }

    /// Fills the batch with datagrams that wait; it is empty when none do.
    ///
    /// Both families take turns in being first, so that a flood on one does not starve the other.
    pub fn receive(&mut self, batch: &mut ReceiveBatch) {
        batch.clear();
        self.stats.turns = self.stats.turns.wrapping_add(1);
        let v4_first = self.stats.turns.is_multiple_of(2);
        let order = if v4_first { [&self.v4, &self.v6] } else { [&self.v6, &self.v4] };
        let both = self.v4.is_some() && self.v6.is_some();
        self.drained = true;
        for (place, socket) in order.into_iter().flatten().enumerate() {
            let room = if both && place == 0 { BATCH / 2 } else { BATCH };
            self.drained &= receive_from(socket, batch, room, &mut self.stats);
        }
    }

    /// Sends the batch and empties it. What the system does not take is lost, and counted.
    pub fn send(&mut self, batch: &mut SendBatch) {
        for (to, datagram) in batch.iter() {
            let socket = if to.is_ipv4() { &self.v4 } else { &self.v6 };
            match socket {
                Some(socket) => self.stats.note_sent(socket.send_to(datagram, to), datagram.len()),
                None => self.stats.note_trouble(Trouble::NoSocket),
            }
        }
        batch.clear();
    }

    /// Sleeps until a datagram has arrived or the time is over. It does not sleep while datagrams wait.
    ///
    /// # Errors
    /// When the system cannot wait. A signal ends the wait early and is no error.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.drained { timeout } else { Duration::ZERO };
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        self.drained &= self.events.is_empty();
        Ok(())
    }
}

/// Fills the batch up to `room` and answers whether the socket has nothing more.
fn receive_from(socket: &UdpSocket, batch: &mut ReceiveBatch, room: usize, stats: &mut SocketStats) -> bool {
    let mut errors = 0;
    while batch.len() < room {
        let Some(buffer) = batch.room() else { return false };
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
                    return false;
                }
            }
        }
    }
    false
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    ask_for_buffers(&socket);
    socket.bind(&address.into())?;
    Ok(UdpSocket::from_std(socket.into()))
}

/// Asks for large buffers, then for halves of them, until the system agrees: it works with small ones, too.
fn ask_for_buffers(socket: &Socket) {
    let sizes = || std::iter::successors(Some(SOCKET_BUFFER_BYTES), |size| Some(size / 2));
    let worth_asking = |size: &usize| *size >= MIN_SOCKET_BUFFER_BYTES;
    let _ = sizes().take_while(worth_asking).any(|size| socket.set_recv_buffer_size(size).is_ok());
    let _ = sizes().take_while(worth_asking).any(|size| socket.set_send_buffer_size(size).is_ok());
}

#[cfg(test)]
mod tests;
