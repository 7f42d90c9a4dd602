//! Echo servers without a protocol: the cost of the kernel alone.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};

use crate::driver_socket;
use crate::load::TICK;
use crate::row::ColumnRole;
use crate::subject::{BenchServer, GameLoop, LoadProtocol, Subject, Workload};

/// The number of datagrams in a batch.
pub(crate) const BATCH: usize = 64;
const BUFFER_BYTES: usize = 2048;

/// One `recvfrom` and one `sendto` for each datagram.
pub const PLAIN: Subject = Subject {
    name: "plain echo",
    role: ColumnRole::Plain,
    limit: None,
    protocol: LoadProtocol::Plain,
    start: |_| Ok(Box::new(Plain { socket: bind()?, received: Vec::new() })),
};

/// One `recvmmsg` and one `sendmmsg` for up to 64 datagrams.
pub const BATCHED: Subject = Subject {
    name: "batched echo",
    role: ColumnRole::Batched,
    limit: None,
    protocol: LoadProtocol::Plain,
    start: |_| {
        Ok(Box::new(Batched {
            socket: bind()?,
            buffers: vec![[0; BUFFER_BYTES]; BATCH],
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            arrived: Vec::with_capacity(BATCH),
            received: Vec::new(),
        }))
    },
};

fn bind() -> io::Result<UdpSocket> {
    driver_socket::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
}

/// Returns the address of a socket.
pub(crate) fn address_of(socket: &UdpSocket) -> SocketAddrV4 {
    match socket.local_addr() {
        Ok(SocketAddr::V4(address)) => address,
        _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
    }
}

struct Plain {
    socket: UdpSocket,
    /// The destinations of the next `broadcast`.
    received: Vec<(SocketAddr, usize)>,
}

impl BenchServer for Plain {
    fn address(&self) -> SocketAddrV4 {
        address_of(&self.socket)
    }

    fn turn(&mut self, workload: Workload, _now: Duration) -> u64 {
        let mut buffer = [0; BUFFER_BYTES];
        let mut payloads = 0;
        while let Ok((bytes, from)) = self.socket.recv_from(&mut buffer) {
            payloads += 1;
            match workload {
                Workload::Echo => drop(self.socket.send_to(buffer.get(..bytes).unwrap_or_default(), from)),
                Workload::Listen => self.received.push((from, bytes)),
                Workload::Drop => {}
            }
        }
        payloads
    }

    fn run(&mut self, _game_loop: GameLoop, _base: Duration, time: Duration) {
        // A blocking read for each datagram.
        let set = self.socket.set_nonblocking(false).and_then(|()| self.socket.set_read_timeout(Some(TICK)));
        let (start, mut buffer) = (Instant::now(), [0; BUFFER_BYTES]);
        while set.is_ok() && start.elapsed() < time {
            if let Ok((bytes, from)) = self.socket.recv_from(&mut buffer) {
                drop(self.socket.send_to(buffer.get(..bytes).unwrap_or_default(), from));
            }
        }
        let _ = self.socket.set_nonblocking(true);
    }

    fn broadcast(&mut self, _copies: u32, _now: Duration) {
        let buffer = [7; BUFFER_BYTES];
        for (to, bytes) in self.received.drain(..) {
            drop(self.socket.send_to(buffer.get(..bytes).unwrap_or_default(), to));
        }
    }

    fn connected(&self) -> usize {
        0
    }
}

struct Batched {
    socket: UdpSocket,
    buffers: Vec<[u8; BUFFER_BYTES]>,
    incoming: MultiHeaders<SockaddrIn>,
    outgoing: MultiHeaders<SockaddrIn>,
    arrived: Vec<(Option<SockaddrIn>, usize)>,
    received: Vec<(Option<SockaddrIn>, usize)>,
}

impl Batched {
    /// Receives waiting datagrams into the buffers.
    fn receive(&mut self) {
        self.arrived.clear();
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let socket = self.socket.as_raw_fd();
        let received = recvmmsg(socket, &mut self.incoming, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        self.arrived.extend(received.into_iter().flatten().map(|message| (message.address, message.bytes)));
    }
}

/// Sends the beginning of each buffer, together.
fn send(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<SockaddrIn>,
    buffers: &[[u8; BUFFER_BYTES]],
    letters: &[(Option<SockaddrIn>, usize)],
) {
    let contents: Vec<[IoSlice<'_>; 1]> = buffers
        .iter()
        .zip(letters)
        .map(|(buffer, (_, bytes))| [IoSlice::new(buffer.get(..*bytes).unwrap_or_default())])
        .collect();
    let addresses: Vec<Option<SockaddrIn>> = letters.iter().map(|(to, _)| *to).collect();
    drop(sendmmsg(socket.as_raw_fd(), headers, &contents, &addresses, [], MsgFlags::empty()));
}

impl BenchServer for Batched {
    fn address(&self) -> SocketAddrV4 {
        address_of(&self.socket)
    }

    fn turn(&mut self, workload: Workload, _now: Duration) -> u64 {
        let mut payloads = 0;
        loop {
            self.receive();
            payloads += self.arrived.len() as u64;
            match workload {
                _ if self.arrived.is_empty() => {}
                Workload::Echo => send(&self.socket, &mut self.outgoing, &self.buffers, &self.arrived),
                Workload::Listen => self.received.extend_from_slice(&self.arrived),
                Workload::Drop => {}
            }
            if self.arrived.len() < BATCH {
                return payloads;
            }
        }
    }

    fn broadcast(&mut self, _copies: u32, _now: Duration) {
        for letters in self.received.chunks(BATCH) {
            send(&self.socket, &mut self.outgoing, &self.buffers, letters);
        }
        self.received.clear();
    }

    fn connected(&self) -> usize {
        0
    }
}
