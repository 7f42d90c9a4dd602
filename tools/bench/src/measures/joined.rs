//! Receives coalesced datagrams (`UDP_GRO`), compared with separate datagrams, which Slipgate's server receives.
//!
//! The kernel coalesces consecutive datagrams of one sender. One kind of clients sends a datagram each, as in a game's
//! tick. The other kind sends four each as one message (`UDP_SEGMENT`), which arrive coalesced or are segmented on
//! delivery.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, setsockopt, sockopt};

use crate::driver_socket::{self, MAX_GSO_BYTES};
use crate::load::LoadGenerator;
use crate::measures::{microseconds, row};
use crate::plain::{BATCH, address_of};
use crate::row::{BenchRow, Cell, ColumnRole};
use crate::runner::Setup;
use crate::server_thread::{Cost, ServerThread};
use crate::subject::{BenchServer, LoadProtocol, PAYLOAD_BYTES, Workload};

/// The number of clients.
const CLIENTS: usize = 256;
/// The number of datagrams in a full round.
const DATAGRAMS: usize = 16_384;
/// The number of datagrams in a message.
const DATAGRAMS_PER_MESSAGE: usize = 4;
/// The buffer size for one datagram, in bytes.
const DATAGRAM_BYTES: usize = 2048;

/// How a socket receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// Each datagram separately.
    Separate,
    /// Coalesced datagrams (UDP_GRO), each group with the size of its datagrams.
    Coalesced,
}

/// The datagrams that a client sends in a tick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sending {
    One,
    Row,
}

impl Sending {
    const fn datagrams(self) -> usize {
        match self {
            Self::One => 1,
            Self::Row => DATAGRAMS_PER_MESSAGE,
        }
    }
}

/// A server that receives with `recvmmsg` of 64 and drops everything.
struct Receiver {
    socket: UdpSocket,
    outbox: Vec<Vec<u8>>,
    headers: MultiHeaders<SockaddrIn>,
    reading: Reading,
}

fn headers(reading: Reading) -> MultiHeaders<SockaddrIn> {
    MultiHeaders::preallocate(BATCH, (reading == Reading::Coalesced).then(|| nix::cmsg_space!(i32)))
}

impl Receiver {
    fn bind(reading: Reading) -> io::Result<Self> {
        let socket = driver_socket::open(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let bytes = match reading {
            Reading::Separate => DATAGRAM_BYTES,
            Reading::Coalesced => {
                setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
                MAX_GSO_BYTES
            }
        };
        Ok(Self { socket, outbox: vec![vec![0; bytes]; BATCH], headers: headers(reading), reading })
    }

    /// Receives a batch. Returns the number of messages and of datagrams.
    fn receive(&mut self) -> (usize, u64) {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> = self.outbox.iter_mut().map(|room| [IoSliceMut::new(room)]).collect();
        let socket = self.socket.as_raw_fd();
        let received = recvmmsg(socket, &mut self.headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None);
        let (mut messages, mut datagrams, mut is_cut) = (0, 0, false);
        for message in received.into_iter().flatten() {
            let results = message.cmsgs().ok().and_then(|mut results| results.next());
            let each = match results {
                Some(ControlMessageOwned::UdpGroSegments(each)) => usize::try_from(each).unwrap_or(0),
                _ => message.bytes,
            };
            is_cut |= self.reading == Reading::Coalesced && message.bytes > PAYLOAD_BYTES && results.is_none();
            messages += 1;
            datagrams += message.bytes.div_ceil(each.max(1)) as u64;
        }
        if is_cut {
            // A message without a segment size leaves no space for one in its header.
            self.headers = headers(self.reading);
        }
        (messages, datagrams)
    }
}

impl BenchServer for Receiver {
    fn address(&self) -> SocketAddrV4 {
        address_of(&self.socket)
    }

    fn turn(&mut self, _game: Workload, _now: Duration) -> u64 {
        let mut all = 0;
        loop {
            let (messages, datagrams) = self.receive();
            all += datagrams;
            if messages < BATCH {
                return all;
            }
        }
    }

    fn broadcast(&mut self, _copies: u32, _now: Duration) {}

    fn connected(&self) -> usize {
        0
    }
}

/// A server and its clients.
struct Pair {
    server_thread: ServerThread,
    load: LoadGenerator,
    sending: Sending,
}

impl Pair {
    fn open(setup: &Setup, sending: Sending, reading: Reading) -> io::Result<Self> {
        let start = move |_| Ok(Box::new(Receiver::bind(reading)?) as Box<dyn BenchServer>);
        let server_thread = ServerThread::start_by("joined", start, CLIENTS, setup.cores, setup.probe)?;
        let load = LoadGenerator::new(&server_thread, LoadProtocol::Plain, CLIENTS, &setup.sockets);
        Ok(Self { server_thread, load, sending })
    }

    /// Returns the cost in microseconds for each of this number of datagrams.
    fn play(&mut self, datagrams: usize, burst: usize) -> io::Result<f64> {
        let (mut cost, mut sent) = (Cost::default(), 0);
        let group = (burst / self.sending.datagrams()).clamp(1, CLIENTS);
        while sent < datagrams as u64 {
            let before = sent;
            for index in 0..group {
                match self.sending {
                    Sending::One => sent += self.load.send_messages(index..index + 1, &[7; PAYLOAD_BYTES], 1)?,
                    Sending::Row => {
                        self.load.send_gso(index, &[7; PAYLOAD_BYTES], DATAGRAMS_PER_MESSAGE)?;
                        sent += DATAGRAMS_PER_MESSAGE as u64;
                    }
                }
            }
            cost.add(self.server_thread.turns(Workload::Drop, sent - before, self.load.now())?);
        }
        if cost.payloads != sent {
            return Err(io::Error::other(format!("{} of {sent} datagrams arrived", cost.payloads)));
        }
        Ok(microseconds(cost.nanoseconds_each(sent)))
    }
}

/// Returns four rows: both kinds of clients, received separately and coalesced.
///
/// # Errors
/// The error of the system if a socket cannot be opened; `Other` if datagrams are lost.
pub fn measure(setup: &Setup) -> io::Result<Vec<BenchRow>> {
    let mut rows = Vec::with_capacity(4);
    for (sending, clients) in [(Sending::One, "1 datagram of each"), (Sending::Row, "rows of 4 of each")] {
        let mut pairs =
            [Pair::open(setup, sending, Reading::Separate)?, Pair::open(setup, sending, Reading::Coalesced)?];
        let mut figures = [Vec::new(), Vec::new()];
        for round in 0..=setup.rounds {
            for (pair, figures) in pairs.iter_mut().zip(&mut figures) {
                let figure = pair.play(setup.effort.of(DATAGRAMS), setup.burst)?;
                // The first round is a warm-up.
                figures.extend((round > 0).then_some(figure));
            }
        }
        for (figures, reading) in figures.into_iter().zip(["received singly", "received joined (UDP_GRO)"]) {
            rows.push(row(format!("{CLIENTS} clients, {clients}, {reading}"), "us/datagram", cells(setup, &figures)));
        }
    }
    Ok(rows)
}

/// Returns the cells of a row, with the figures in the column of plain sockets with batches.
fn cells(setup: &Setup, figures: &[f64]) -> Vec<Cell> {
    let cell = |role| match role {
        ColumnRole::Batched => Cell::Rounds(figures.to_vec()),
        _ => Cell::Blank(String::new()),
    };
    setup.subjects.iter().map(|subject| cell(subject.role)).collect()
}
