//! Receiving what the kernel has joined (`UDP_GRO`), beside receiving datagram by datagram, as our server does.
//!
//! The kernel joins what one sender sent in a row. So there are clients that send a datagram each, as in a game's tick,
//! and clients that send four each as one message (`UDP_SEGMENT`), which arrive joined or are cut by whoever delivers
//! them.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, setsockopt, sockopt};

use crate::arena::Rig;
use crate::contestant::{Game, PAYLOAD_BYTES, Server, Speech};
use crate::crowd::Crowd;
use crate::measures::{microseconds, row};
use crate::plain::{BATCH, address_of};
use crate::port::{self, ROW_BYTES};
use crate::row::{Cell, Role, Row};
use crate::stage::{Spent, Stage};

/// Clients that send.
const CLIENTS: usize = 256;
/// Datagrams of a full round.
const DATAGRAMS: usize = 16_384;
/// Datagrams of a row.
const IN_A_ROW: usize = 4;
/// Room for one datagram.
const DATAGRAM_BYTES: usize = 2048;

/// How a socket has what arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// Each datagram for itself.
    Singly,
    /// Rows as they were sent, each with the size of its datagrams.
    Joined,
}

/// What a client sends in a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sending {
    One,
    Row,
}

impl Sending {
    const fn datagrams(self) -> usize {
        match self {
            Self::One => 1,
            Self::Row => IN_A_ROW,
        }
    }
}

/// A server that receives by `recvmmsg` of 64, and forgets.
struct Receiver {
    socket: UdpSocket,
    rooms: Vec<Vec<u8>>,
    headers: MultiHeaders<SockaddrIn>,
    reading: Reading,
}

fn headers(reading: Reading) -> MultiHeaders<SockaddrIn> {
    MultiHeaders::preallocate(BATCH, (reading == Reading::Joined).then(|| nix::cmsg_space!(i32)))
}

impl Receiver {
    fn bind(reading: Reading) -> io::Result<Self> {
        let socket = port::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let bytes = match reading {
            Reading::Singly => DATAGRAM_BYTES,
            Reading::Joined => {
                setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
                ROW_BYTES
            }
        };
        Ok(Self { socket, rooms: vec![vec![0; bytes]; BATCH], headers: headers(reading), reading })
    }

    /// Takes a batch; answers how many messages came, and how many datagrams they were.
    fn receive(&mut self) -> (usize, u64) {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = self.rooms.iter_mut().map(|room| [IoSliceMut::new(room)]).collect();
        let socket = self.socket.as_raw_fd();
        let received = recvmmsg(socket, &mut self.headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        let (mut messages, mut datagrams, mut is_cut) = (0, 0, false);
        for message in received.into_iter().flatten() {
            let told = message.cmsgs().ok().and_then(|mut told| told.next());
            let each = match told {
                Some(ControlMessageOwned::UdpGroSegments(each)) => usize::try_from(each).unwrap_or(0),
                _ => message.bytes,
            };
            is_cut |= self.reading == Reading::Joined && message.bytes > PAYLOAD_BYTES && told.is_none();
            messages += 1;
            datagrams += message.bytes.div_ceil(each.max(1)) as u64;
        }
        if is_cut {
            // After a message without a size its header has no room for one any more.
            self.headers = headers(self.reading);
        }
        (messages, datagrams)
    }
}

impl Server for Receiver {
    fn address(&self) -> SocketAddrV4 {
        address_of(&self.socket)
    }

    fn turn(&mut self, _game: Game, _now: Duration) -> u64 {
        let mut all = 0;
        loop {
            let (messages, datagrams) = self.receive();
            all += datagrams;
            if messages < BATCH {
                return all;
            }
        }
    }

    fn say(&mut self, _copies: u32, _now: Duration) {}

    fn connected(&self) -> usize {
        0
    }
}

/// Clients and a server that receives what they send.
struct Pair {
    stage: Stage,
    crowd: Crowd,
    sending: Sending,
}

impl Pair {
    fn open(rig: &Rig, sending: Sending, reading: Reading) -> io::Result<Self> {
        let start = move |_| Ok(Box::new(Receiver::bind(reading)?) as Box<dyn Server>);
        let stage = Stage::start_by("joined", start, CLIENTS, rig.cores, rig.probe)?;
        let crowd = Crowd::new(&stage, Speech::Plain, CLIENTS, &rig.ports);
        Ok(Self { stage, crowd, sending })
    }

    /// Microseconds for each of so many datagrams.
    fn play(&mut self, datagrams: usize, burst: usize) -> io::Result<f64> {
        let (mut spent, mut sent) = (Spent::default(), 0);
        let group = (burst / self.sending.datagrams()).clamp(1, CLIENTS);
        while sent < datagrams as u64 {
            let before = sent;
            for place in 0..group {
                match self.sending {
                    Sending::One => sent += self.crowd.speak(place..place + 1, &[7; PAYLOAD_BYTES], 1)?,
                    Sending::Row => {
                        self.crowd.row(place, &[7; PAYLOAD_BYTES], IN_A_ROW)?;
                        sent += IN_A_ROW as u64;
                    }
                }
            }
            spent.add(self.stage.turns(Game::Drop, sent - before, self.crowd.now())?);
        }
        if spent.payloads != sent {
            return Err(io::Error::other(format!("of {sent} datagrams {} arrived", spent.payloads)));
        }
        Ok(microseconds(spent.nanoseconds_each(sent)))
    }
}

/// Four rows: of either kind of clients, received singly and joined.
///
/// # Errors
/// When the sockets cannot be had, or datagrams get lost.
pub fn measure(rig: &Rig) -> io::Result<Vec<Row>> {
    let mut rows = Vec::with_capacity(4);
    for (sending, clients) in [(Sending::One, "1 datagram of each"), (Sending::Row, "rows of 4 of each")] {
        let mut pairs = [Pair::open(rig, sending, Reading::Singly)?, Pair::open(rig, sending, Reading::Joined)?];
        let mut figures = [Vec::new(), Vec::new()];
        for round in 0..=rig.rounds {
            for (pair, figures) in pairs.iter_mut().zip(&mut figures) {
                let figure = pair.play(rig.effort.of(DATAGRAMS), rig.burst)?;
                // The first round is to warm up.
                figures.extend((round > 0).then_some(figure));
            }
        }
        for (figures, reading) in figures.into_iter().zip(["received singly", "received joined (UDP_GRO)"]) {
            rows.push(row(format!("{CLIENTS} clients, {clients}, {reading}"), "us/datagram", cells(rig, &figures)));
        }
    }
    Ok(rows)
}

/// Plain sockets with batches are what this is about.
fn cells(rig: &Rig, figures: &[f64]) -> Vec<Cell> {
    let cell = |role| match role {
        Role::Batched => Cell::Rounds(figures.to_vec()),
        _ => Cell::Blank(String::new()),
    };
    rig.contestants.iter().map(|contestant| cell(contestant.role)).collect()
}
