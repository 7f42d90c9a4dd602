//! The subjects of the benchmark: servers, each with a matching client.

use std::io;
use std::net::SocketAddrV4;
use std::thread;
use std::time::{self, Duration};

use slipgate_netcode::time::Instant;

use crate::row::ColumnRole;

/// The size of a payload in bytes.
pub const PAYLOAD_BYTES: usize = 100;
/// The protocol id of all tokens.
pub const PROTOCOL_ID: u64 = 0x5110_6a7e_0000_0004;
/// The key of all tokens. A benchmark has no secrets.
pub const PRIVATE_KEY: [u8; 32] = *b"thirty-two bytes, no secret here";

/// How the game handles a received payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workload {
    /// Sends the same bytes back at once.
    Echo,
    /// Records it; the reply follows with [`BenchServer::broadcast`].
    Listen,
    /// Drops it.
    Drop,
}

/// How a server's loop waits between two turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GameLoop {
    /// It wakes for arrivals, as in the documentation of the server.
    Event,
    /// It sleeps until the next tick.
    Tick,
}

/// The duration of the turns of several threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Wall-clock time.
    pub wall: Duration,
    /// The CPU time of all threads.
    pub cpu: Duration,
}

/// A server under test. It runs in a thread of its own, and time is an argument.
pub trait BenchServer {
    /// Returns the address for clients.
    fn address(&self) -> SocketAddrV4;

    /// Runs a turn of a game loop: receives all waiting datagrams and does what is due. Returns the number of received
    /// payloads.
    fn turn(&mut self, workload: Workload, now: Duration) -> u64;

    /// Runs a turn that sends `copies` payloads to every client and receives nothing.
    fn broadcast(&mut self, copies: u32, now: Duration);

    /// Returns the number of connected clients.
    fn connected(&self) -> usize;

    /// Switches the kernel filter. Returns whether the server has one.
    fn set_filter(&mut self, _on: bool) -> bool {
        false
    }

    /// Returns the duration of all turns so far, if the server measures it itself.
    fn times(&self) -> Times {
        Times::default()
    }

    /// Runs its loop in real time with the echo, from `base` in the benchmark's time on. Peers sleep between two turns.
    fn run(&mut self, _game_loop: GameLoop, base: Duration, time: Duration) {
        let start = time::Instant::now();
        while start.elapsed() < time {
            self.turn(Workload::Echo, base + start.elapsed());
            thread::sleep(Duration::from_millis(16));
        }
    }
}

/// The layer inside netcode's payloads: encodes messages into packets and decodes them.
pub trait PayloadLayer {
    /// Returns the packets for `copies` copies of a message.
    fn encode(&mut self, message: &[u8], copies: u32, now: Instant) -> Vec<Vec<u8>>;

    /// Returns the number of messages in a packet from the server.
    fn decode(&mut self, packet: &[u8], now: Instant) -> u64;
}

/// Messages without a layer: each packet is one message.
pub struct RawPayloads;

impl PayloadLayer for RawPayloads {
    fn encode(&mut self, message: &[u8], copies: u32, _now: Instant) -> Vec<Vec<u8>> {
        vec![message.to_vec(); copies as usize]
    }

    fn decode(&mut self, _packet: &[u8], _now: Instant) -> u64 {
        1
    }
}

/// The protocol of the clients.
#[derive(Clone, Copy)]
pub enum LoadProtocol {
    /// Datagrams without a protocol.
    Plain,
    /// netcode 1.02 with this payload layer.
    Netcode(fn() -> Box<dyn PayloadLayer>),
}

/// The maximum number of clients of a subject, and the reason.
#[derive(Clone, Copy, Debug)]
pub struct SubjectLimit {
    /// The maximum number of clients.
    pub clients: usize,
    /// The reason.
    pub why: &'static str,
}

/// A subject of the benchmark.
#[derive(Clone, Copy)]
pub struct Subject {
    /// The name of its column in the table.
    pub name: &'static str,
    /// Its role in comparisons.
    pub role: ColumnRole,
    /// The limit of its clients, if any.
    pub limit: Option<SubjectLimit>,
    /// The protocol of its clients.
    pub protocol: LoadProtocol,
    /// Starts a server with this number of slots, in the calling thread.
    pub start: fn(usize) -> io::Result<Box<dyn BenchServer>>,
}

impl Subject {
    /// Returns the reason why it cannot run with this number of clients.
    #[must_use]
    pub fn blank_reason(&self, clients: usize) -> Option<&'static str> {
        self.limit.filter(|limit| clients > limit.clients).map(|limit| limit.why)
    }

    /// Returns whether its clients use netcode.
    #[must_use]
    pub const fn is_netcode(&self) -> bool {
        matches!(self.protocol, LoadProtocol::Netcode(_))
    }
}
