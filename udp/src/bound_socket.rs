//! A bound socket of one address family: its options, buffers and drop counter.

use std::io;
use std::net::SocketAddr;

use mio::net::UdpSocket;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

/// The requested socket buffer size in each direction, in bytes, as in the reference implementation. The system may
/// grant less.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// The smallest buffer size that is requested, in bytes.
pub const MIN_SOCKET_BUFFER_BYTES: usize = 256 << 10;

/// The buffer sizes that the system granted, in bytes as it counts them.
///
/// Linux includes its own overhead: it reports twice the requested size, or twice `net.core.rmem_max` and
/// `net.core.wmem_max` if those are smaller. A datagram of 100 bytes takes 768 bytes there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketBuffers {
    /// The receive buffer, for datagrams that were not read yet.
    pub receive: usize,
    /// The send buffer, for datagrams that have not left the machine.
    pub send: usize,
}

/// Which sockets share a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PortSharing {
    /// The socket has its port alone.
    Alone,
    /// The first of several sockets of this program. It is bound exclusively, and shares its port only afterwards: two
    /// servers that were started by mistake must not take each other's clients.
    First,
    /// A further socket on the port of the first.
    Next,
}

/// A bound socket.
pub(super) struct BoundSocket {
    pub(super) socket: UdpSocket,
    dropped: DropCounter,
}

impl BoundSocket {
    pub(super) fn open(address: SocketAddr, sharing: PortSharing) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_nonblocking(true)?;
        request_buffers(&SockRef::from(&socket));
        if sharing == PortSharing::Next {
            allow_sharing(&socket)?;
        }
        socket.bind(&address.into())?;
        if sharing == PortSharing::First {
            allow_sharing(&socket)?;
        }
        if address.is_ipv4() {
            forbid_fragmentation(&socket);
        }
        ignore_closed_ports(&socket);
        Ok(Self { socket: UdpSocket::from_std(socket.into()), dropped: DropCounter::default() })
    }

    /// Returns access to the socket options.
    pub(super) fn options(&self) -> SockRef<'_> {
        SockRef::from(&self.socket)
    }

    pub(super) fn buffers(&self) -> io::Result<SocketBuffers> {
        let options = self.options();
        Ok(SocketBuffers { receive: options.recv_buffer_size()?, send: options.send_buffer_size()? })
    }

    /// Returns how many datagrams the system dropped since the socket was opened; `None` if it does not report them.
    pub(super) fn dropped(&self) -> Option<u64> {
        read_drops(&self.socket).map(|counter| self.dropped.updated(counter).total)
    }

    /// Updates the drop count. The system counts modulo 2^32, so more drops than that between two updates would be
    /// missed.
    pub(super) fn update_drops(&mut self) {
        if let Some(counter) = read_drops(&self.socket) {
            self.dropped = self.dropped.updated(counter);
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
#[cfg(test)]
impl BoundSocket {
    pub(super) const fn dropped_total(&self) -> u64 {
        self.dropped.total
    }
}

/// Lets other sockets of this user bind the same port. Linux requires the option on both the existing and the new
/// sockets, before or after they are bound.
#[cfg(target_os = "linux")]
fn allow_sharing(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_port(true)
}

#[cfg(not(target_os = "linux"))]
fn allow_sharing(_: &Socket) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Requests buffers of [`SOCKET_BUFFER_BYTES`] for a socket, as [`Sockets`](super::Sockets) do for their own. The
/// system may grant less.
pub fn request_large_buffers(socket: &UdpSocket) {
    request_buffers(&SockRef::from(socket));
}

/// Requests large buffers, then half of that, until the system accepts. Small buffers work, too.
fn request_buffers(socket: &SockRef<'_>) {
    let sizes = || std::iter::successors(Some(SOCKET_BUFFER_BYTES), |size| Some(size / 2));
    let is_large_enough = |size: &usize| *size >= MIN_SOCKET_BUFFER_BYTES;
    let _ = sizes().take_while(is_large_enough).any(|size| socket.set_recv_buffer_size(size).is_ok());
    let _ = sizes().take_while(is_large_enough).any(|size| socket.set_send_buffer_size(size).is_ok());
}

#[cfg(target_os = "linux")]
fn forbid_fragmentation(socket: &Socket) {
    super::syscalls::forbid_fragmentation(std::os::fd::AsFd::as_fd(socket));
}

#[cfg(not(target_os = "linux"))]
const fn forbid_fragmentation(_: &Socket) {}

/// Asks Windows not to report closed ports of peers by reads. Where it refuses, the errors are counted as others are.
#[cfg(windows)]
fn ignore_closed_ports(socket: &Socket) {
    let _ = super::syscalls_windows::ignore_closed_ports(std::os::windows::io::AsSocket::as_socket(socket));
}

#[cfg(not(windows))]
const fn ignore_closed_ports(_: &Socket) {}

/// Returns how many datagrams the system has dropped for a socket since it was opened, modulo 2^32; `None` where it
/// does not report them. The statistics of [`Sockets`](super::Sockets) have this count already.
#[cfg(target_os = "linux")]
#[must_use]
pub fn read_drops(socket: &UdpSocket) -> Option<u32> {
    super::syscalls::read_drops(std::os::fd::AsFd::as_fd(socket))
}

/// Returns `None`: this system does not report the datagrams that it drops.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub const fn read_drops(_: &UdpSocket) -> Option<u32> {
    None
}

/// A 64-bit count of a counter that wraps at 2^32.
#[derive(Clone, Copy, Default)]
struct DropCounter {
    counter: u32,
    total: u64,
}

impl DropCounter {
    /// Returns the count after the counter was read, if it advanced by less than 2^32.
    const fn updated(self, counter: u32) -> Self {
        Self { counter, total: self.total + counter.wrapping_sub(self.counter) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_count_continues_across_a_wrap() {
        let drops = [5, u32::MAX, 3, 3].into_iter().fold(DropCounter::default(), DropCounter::updated);
        assert_eq!(drops.total, (1 << 32) + 3);
    }
}
