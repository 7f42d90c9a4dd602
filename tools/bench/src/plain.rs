//! Echoes without any protocol: what the kernel costs by itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg};

use crate::contestant::{Contestant, Game, Server, Speech};
use crate::port;
use crate::row::Role;

/// Datagrams in a batch.
pub(crate) const BATCH: usize = 64;
const BUFFER_BYTES: usize = 2048;

/// One `recvfrom` and one `sendto` for each datagram.
pub const PLAIN: Contestant = Contestant {
    name: "plain echo",
    role: Role::Plain,
    limit: None,
    speech: Speech::Plain,
    start: |_| Ok(Box::new(Plain { socket: bind()?, heard: Vec::new() })),
};

/// One `recvmmsg` and one `sendmmsg` for up to 64 datagrams.
pub const BATCHED: Contestant = Contestant {
    name: "batched echo",
    role: Role::Batched,
    limit: None,
    speech: Speech::Plain,
    start: |_| {
        Ok(Box::new(Batched {
            socket: bind()?,
            buffers: vec![[0; BUFFER_BYTES]; BATCH],
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            arrived: Vec::with_capacity(BATCH),
            heard: Vec::new(),
        }))
    },
};

fn bind() -> io::Result<UdpSocket> {
    port::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
}

/// Where a socket is bound.
pub(crate) fn address_of(socket: &UdpSocket) -> SocketAddrV4 {
    match socket.local_addr() {
        Ok(SocketAddr::V4(address)) => address,
        _ => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
    }
}

struct Plain {
    socket: UdpSocket,
    /// Who is answered by the next `say`.
    heard: Vec<(SocketAddr, usize)>,
}

impl Server for Plain {
    fn address(&self) -> SocketAddrV4 {
        address_of(&self.socket)
    }

    fn turn(&mut self, game: Game, _now: Duration) -> u64 {
        let mut buffer = [0; BUFFER_BYTES];
        let mut payloads = 0;
        while let Ok((bytes, from)) = self.socket.recv_from(&mut buffer) {
            payloads += 1;
            match game {
                Game::Echo => drop(self.socket.send_to(buffer.get(..bytes).unwrap_or_default(), from)),
                Game::Listen => self.heard.push((from, bytes)),
                Game::Drop => {}
            }
        }
        payloads
    }

    fn say(&mut self, _copies: u32, _now: Duration) {
        let buffer = [7; BUFFER_BYTES];
        for (to, bytes) in self.heard.drain(..) {
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
    heard: Vec<(Option<SockaddrIn>, usize)>,
}

impl Batched {
    /// Fills the buffers with what waits.
    fn receive(&mut self) {
        self.arrived.clear();
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let socket = self.socket.as_raw_fd();
        let received = recvmmsg(socket, &mut self.incoming, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        self.arrived.extend(received.into_iter().flatten().map(|message| (message.address, message.bytes)));
    }
}

/// Sends the front of each buffer, together.
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

impl Server for Batched {
    fn address(&self) -> SocketAddrV4 {
        address_of(&self.socket)
    }

    fn turn(&mut self, game: Game, _now: Duration) -> u64 {
        let mut payloads = 0;
        loop {
            self.receive();
            payloads += self.arrived.len() as u64;
            match game {
                _ if self.arrived.is_empty() => {}
                Game::Echo => send(&self.socket, &mut self.outgoing, &self.buffers, &self.arrived),
                Game::Listen => self.heard.extend_from_slice(&self.arrived),
                Game::Drop => {}
            }
            if self.arrived.len() < BATCH {
                return payloads;
            }
        }
    }

    fn say(&mut self, _copies: u32, _now: Duration) {
        for letters in self.heard.chunks(BATCH) {
            send(&self.socket, &mut self.outgoing, &self.buffers, letters);
        }
        self.heard.clear();
    }

    fn connected(&self) -> usize {
        0
    }
}
