//! The driver's sockets: each can send from any loopback address, and reports to which address a datagram was sent.
//!
//! Each client therefore has its own address (127.0.0.0/8 belongs to the local machine), and its own socket as far as
//! the system permits: delivery to thousands of sockets is a part of the server's sending cost here.

use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;

use nix::libc::{in_addr, in_pktinfo};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, sendmsg, setsockopt, sockopt,
};
use socket2::{Domain, Protocol, Socket, Type};

/// The requested buffer size of every socket of the benchmark, of servers and driver, in bytes.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// An upper estimate of the buffer space that the kernel charges for a connection request, the longest datagram here,
/// in bytes.
const CHARGED_BYTES: usize = 2560;

/// Opens a non-blocking UDP socket with large buffers, for servers that bring no socket of their own.
///
/// # Errors
/// The error of the system if no socket can be opened.
pub fn open(address: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // A smaller buffer limits the bursts: see `max_queued_datagrams`.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&SocketAddr::from(address).into())?;
    Ok(socket.into())
}

/// Returns how many datagrams a socket's buffer holds at least.
///
/// # Errors
/// The error of the system if it does not report it.
pub fn max_queued_datagrams() -> io::Result<usize> {
    let socket = open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    Ok((Socket::from(socket).recv_buffer_size()? / CHARGED_BYTES).max(1))
}

/// How the driver's sockets receive several datagrams that a server gave the kernel as one message (`UDP_SEGMENT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GsoDelivery {
    /// The kernel segments the message on delivery. The sending server pays for that on the loopback interface. The
    /// server's network card segments in a network, or its kernel just before.
    Segmented,
    /// They receive the message unsegmented (`UDP_GRO`).
    Coalesced,
}

/// All sockets of the driver.
pub struct DriverSockets {
    sockets: RefCell<Vec<DriverSocket>>,
    delivery: GsoDelivery,
    max: usize,
}

/// The size of the largest message, in bytes.
pub const MAX_GSO_BYTES: usize = 1 << 16;

/// The number of files that the process has open besides these sockets.
const OTHER_FILES: u64 = 256;

impl DriverSockets {
    /// Opens one socket; `provide` adds more.
    ///
    /// # Errors
    /// The error of the system if no socket can be opened.
    pub fn open(delivery: GsoDelivery) -> io::Result<Self> {
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            // Clients share sockets if the limit stays low.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        Ok(Self { sockets: RefCell::new(vec![DriverSocket::open(delivery)?]), delivery, max: usize::MAX })
    }

    /// Opens one socket for all clients, so that one read finds the next reply.
    ///
    /// # Errors
    /// The error of the system if no socket can be opened.
    pub fn open_one() -> io::Result<Self> {
        Ok(Self { max: 1, ..Self::open(GsoDelivery::Segmented)? })
    }

    /// Opens a socket for each client, as far as the system permits.
    pub fn provide(&self, clients: usize) {
        let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(files, _)| files);
        let most = files.saturating_sub(OTHER_FILES).max(1) as usize;
        let mut sockets = self.sockets.borrow_mut();
        while sockets.len() < clients.min(most).min(self.max) {
            match DriverSocket::open(self.delivery) {
                Ok(socket) => sockets.push(socket),
                Err(_) => break,
            }
        }
    }

    /// Returns the number of sockets.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sockets.borrow().len()
    }

    /// Calls `work` with the socket of a client.
    pub fn with<T>(&self, client: usize, work: impl FnOnce(&mut DriverSocket) -> T) -> Option<T> {
        let mut sockets = self.sockets.borrow_mut();
        let count = sockets.len().max(1);
        sockets.get_mut(client % count).map(work)
    }
}

/// A socket of the driver.
pub struct DriverSocket {
    socket: UdpSocket,
    control: Vec<u8>,
}

/// A received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedBatch {
    /// The number of bytes in the buffer.
    pub bytes: usize,
    /// The size of each datagram; the last one may be shorter.
    pub each: usize,
    /// The source.
    pub from: SocketAddrV4,
    /// The destination address.
    pub to: Ipv4Addr,
}

impl DriverSocket {
    /// Binds a socket to all loopback addresses.
    ///
    /// # Errors
    /// The error of the system if the socket cannot be opened or does not support `UDP_GRO`.
    pub fn open(delivery: GsoDelivery) -> io::Result<Self> {
        let socket = open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        if delivery == GsoDelivery::Coalesced {
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        }
        Ok(Self { socket, control: nix::cmsg_space!(in_pktinfo, i32) })
    }

    /// Sends a datagram from a loopback address.
    ///
    /// # Errors
    /// The error of the system.
    pub fn send(&self, from: Ipv4Addr, to: SocketAddrV4, datagram: &[u8]) -> io::Result<()> {
        self.send_with(from, to, datagram, &[])
    }

    /// Sends consecutive datagrams of `each` bytes as one message that the kernel segments.
    ///
    /// # Errors
    /// The error of the system.
    pub fn send_gso(&self, from: Ipv4Addr, to: SocketAddrV4, row: &[u8], each: u16) -> io::Result<()> {
        self.send_with(from, to, row, &[ControlMessage::UdpGsoSegments(&each)])
    }

    fn send_with(&self, from: Ipv4Addr, to: SocketAddrV4, bytes: &[u8], more: &[ControlMessage<'_>]) -> io::Result<()> {
        let from = in_addr { s_addr: u32::from_ne_bytes(from.octets()) };
        let info = in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: from, ipi_addr: from };
        let info = [ControlMessage::Ipv4PacketInfo(&info)];
        let (control, to) = ([&info, more].concat(), SockaddrIn::from(to));
        sendmsg(self.socket.as_raw_fd(), &[IoSlice::new(bytes)], &control, MsgFlags::empty(), Some(&to))?;
        Ok(())
    }

    /// Receives a waiting datagram or message.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<ReceivedBatch> {
        let mut slices = [IoSliceMut::new(buffer)];
        let control = Some(self.control.as_mut_slice());
        let message =
            recvmsg::<SockaddrIn>(self.socket.as_raw_fd(), &mut slices, control, MsgFlags::MSG_DONTWAIT).ok()?;
        let (mut to, mut each) = (None, message.bytes);
        for control in message.cmsgs().ok()? {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    to = Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()));
                }
                ControlMessageOwned::UdpGroSegments(bytes) => each = usize::try_from(bytes).ok()?,
                _ => {}
            }
        }
        let from = message.address?;
        Some(ReceivedBatch { bytes: message.bytes, each, from: SocketAddrV4::new(from.ip(), from.port()), to: to? })
    }
}
