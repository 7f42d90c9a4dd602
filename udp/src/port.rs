//! One socket of one family: how it is opened, the buffers that it was given, and what the system dropped before us.

use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// Bytes of socket buffer asked for in each direction, as the reference does; the system may give less.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The least socket buffer that is asked for.
pub const MIN_SOCKET_BUFFER_BYTES: usize = 256 << 10;

/// The buffers that the system gave a socket, in bytes as it counts them.
///
/// Linux counts its own bookkeeping in: it tells twice what it was asked for, or twice `net.core.rmem_max` and
/// `net.core.wmem_max` if those are less. A datagram of 100 bytes takes 768 of them there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffers {
    /// For what arrived and was not read.
    pub receive: usize,
    /// For what was sent and has not left the machine.
    pub send: usize,
}

/// With whom a socket shares its port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sharing {
    /// With nobody.
    Alone,
    /// With those of the same program that come next. It is bound while the port has nobody else: two servers that were
    /// started by mistake must not take each other's players.
    First,
    /// With the first.
    Next,
}

/// A socket that is bound.
pub(super) struct Port {
    pub(super) socket: UdpSocket,
    drops: Drops,
}

impl Port {
    pub(super) fn open(address: SocketAddr, sharing: Sharing) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        ask_for_buffers(&socket);
        if sharing == Sharing::Next {
            share(&socket)?;
        }
        socket.bind(&address.into())?;
        if sharing == Sharing::First {
            share(&socket)?;
        }
        if address.is_ipv4() {
            keep_whole(&socket);
        }
        Ok(Self { socket: UdpSocket::from_std(socket.into()), drops: Drops::default() })
    }

    /// Its options.
    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }

    pub(super) fn buffers(&self) -> io::Result<Buffers> {
        let options = self.options();
        Ok(Buffers { receive: options.recv_buffer_size()?, send: options.send_buffer_size()? })
    }

    /// Datagrams that the system dropped since the socket was opened, if it tells.
    pub(super) fn dropped(&self) -> Option<u64> {
        drops(&self.socket).map(|told| self.drops.then(told).total)
    }

    /// Notes what the system tells, for it counts modulo 2^32: more than that between two notes would be missed.
    pub(super) fn note_dropped(&mut self) {
        if let Some(told) = drops(&self.socket) {
            self.drops = self.drops.then(told);
        }
    }
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
impl Port {
    pub(super) const fn noted(&self) -> u64 {
        self.drops.total
    }
}

/// Lets other sockets of this user have the same port. Linux asks for it of those that come, and of those that are there,
/// before or after they are bound.
#[cfg(target_os = "linux")]
fn share(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

#[cfg(not(target_os = "linux"))]
fn share(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Asks for large buffers, then for halves of them, until the system agrees: it works with small ones, too.
fn ask_for_buffers(socket: &Socket) {
    let sizes = || std::iter::successors(Some(SOCKET_BUFFER_BYTES), |size| Some(size / 2));
    let worth_asking = |size: &usize| *size >= MIN_SOCKET_BUFFER_BYTES;
    let _ = sizes().take_while(worth_asking).any(|size| socket.set_recv_buffer_size(size).is_ok());
    let _ = sizes().take_while(worth_asking).any(|size| socket.set_send_buffer_size(size).is_ok());
}

#[cfg(target_os = "linux")]
fn keep_whole(socket: &Socket) {
    super::system::keep_whole(std::os::fd::AsFd::as_fd(socket));
}

#[cfg(not(target_os = "linux"))]
const fn keep_whole(_: &Socket) {}

#[cfg(target_os = "linux")]
fn drops(socket: &UdpSocket) -> Option<u32> {
    super::system::drops(std::os::fd::AsFd::as_fd(socket))
}

#[cfg(not(target_os = "linux"))]
const fn drops(_: &UdpSocket) -> Option<u32> {
    None
}

/// A count that is told modulo 2^32.
#[derive(Clone, Copy, Default)]
struct Drops {
    told: u32,
    total: u64,
}

impl Drops {
    /// What it is when `told` is told, if it was asked for before 2^32 more had come.
    const fn then(self, told: u32) -> Self {
        Self { told, total: self.total + told.wrapping_sub(self.told) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_goes_on_when_the_system_begins_anew() {
        let drops = [5, u32::MAX, 3, 3].into_iter().fold(Drops::default(), Drops::then);
        assert_eq!(drops.total, (1 << 32) + 3);
    }
}
