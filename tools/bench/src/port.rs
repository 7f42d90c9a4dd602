//! The driver's sockets: each sends from any loopback address, and tells to which one an answer went.
//!
//! Clients have an address of their own in this way (127.0.0.0/8 is all this machine's), and a socket of their own as far
//! as the system allows: delivering to thousands of sockets is a part of what a server's sending costs here.

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

/// Bytes of socket buffer that every socket of the benchmark asks for, servers' and driver's.
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Bytes of socket buffer that the kernel charges for a request, the longest datagram here, generously.
const CHARGED_BYTES: usize = 2560;

/// A UDP socket that does not block, with large buffers: what servers are given that bring none of their own.
///
/// # Errors
/// When the system has none.
pub fn open(address: SocketAddrV4) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    // What the system gives is enough for shorter bursts: `room` tells.
    let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
    let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
    socket.bind(&SocketAddr::from(address).into())?;
    Ok(socket.into())
}

/// How many datagrams wait in a socket's buffer before one is lost, at least.
///
/// # Errors
/// When the system does not tell.
pub fn room() -> io::Result<usize> {
    let socket = open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    Ok((Socket::from(socket).recv_buffer_size()? / CHARGED_BYTES).max(1))
}

/// What the driver's sockets do with a row: datagrams to one receiver that a server gave the kernel as one message
/// (`UDP_SEGMENT`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rows {
    /// The kernel cuts it for them as it delivers. On the loopback interface that is on the bill of the server, which
    /// sends; on a network, the server's card cuts, or its kernel just before.
    Cut,
    /// They take it whole (`UDP_GRO`).
    Whole,
}

/// All sockets of the driver; whoever has a turn uses them.
pub struct Ports {
    ports: RefCell<Vec<Port>>,
    rows: Rows,
}

/// Bytes of the longest row.
pub const ROW_BYTES: usize = 1 << 16;

/// Files that a process has open beside these sockets.
const OTHER_FILES: u64 = 256;

impl Ports {
    /// One port; more come with clients.
    ///
    /// # Errors
    /// When the system has none.
    pub fn open(rows: Rows) -> io::Result<Self> {
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            // Where it stays low, clients share sockets.
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
        Ok(Self { ports: RefCell::new(vec![Port::open(rows)?]), rows })
    }

    /// Makes a port for each of so many clients, as far as the system allows.
    pub fn provide(&self, clients: usize) {
        let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(files, _)| files);
        let most = files.saturating_sub(OTHER_FILES).max(1) as usize;
        let mut ports = self.ports.borrow_mut();
        while ports.len() < clients.min(most) {
            match Port::open(self.rows) {
                Ok(port) => ports.push(port),
                Err(_) => break,
            }
        }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ports.borrow().len()
    }

    /// Does something with the port of a client.
    pub fn with<T>(&self, client: usize, work: impl FnOnce(&mut Port) -> T) -> Option<T> {
        let mut ports = self.ports.borrow_mut();
        let count = ports.len().max(1);
        ports.get_mut(client % count).map(work)
    }
}

/// A socket of the driver.
pub struct Port {
    socket: UdpSocket,
    control: Vec<u8>,
}

/// What was taken from a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Bytes at the front of the buffer.
    pub bytes: usize,
    /// Bytes of each datagram among them; the last one may be shorter.
    pub each: usize,
    /// Who sent them.
    pub from: SocketAddrV4,
    /// The address to which they were sent.
    pub to: Ipv4Addr,
}

impl Port {
    /// A port on all loopback addresses.
    ///
    /// # Errors
    /// When the system has none, or does not give rows whole.
    pub fn open(rows: Rows) -> io::Result<Self> {
        let socket = open(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0))?;
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        if rows == Rows::Whole {
            setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        }
        Ok(Self { socket, control: nix::cmsg_space!(in_pktinfo, i32) })
    }

    /// Sends a datagram in the name of a loopback address.
    ///
    /// # Errors
    /// What the system says.
    pub fn send(&self, from: Ipv4Addr, to: SocketAddrV4, datagram: &[u8]) -> io::Result<()> {
        self.send_with(from, to, datagram, &[])
    }

    /// Sends datagrams of so many bytes each, which lie one behind the other, as one message that the kernel cuts.
    ///
    /// # Errors
    /// What the system says.
    pub fn send_row(&self, from: Ipv4Addr, to: SocketAddrV4, row: &[u8], each: u16) -> io::Result<()> {
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

    /// Takes a datagram that waits, or a row.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Option<Taken> {
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
        Some(Taken { bytes: message.bytes, each, from: SocketAddrV4::new(from.ip(), from.port()), to: to? })
    }
}
