//! What takes part: servers, each with what its clients say.

use std::io;
use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::row::Role;

/// Bytes of a payload.
pub const PAYLOAD_BYTES: usize = 100;
/// The game of all tokens.
pub const PROTOCOL_ID: u64 = 0x5110_6a7e_0000_0004;
/// The key of all tokens: a benchmark has no secrets.
pub const PRIVATE_KEY: [u8; 32] = *b"thirty-two bytes, no secret here";

/// What the game does with a payload that arrives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Game {
    /// Answers it at once with the same bytes.
    Echo,
    /// Takes note of it; its answer comes with [`Server::say`].
    Listen,
    /// Forgets it.
    Drop,
}

/// What the turns of several threads have taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// By the clock on the wall.
    pub wall: Duration,
    /// CPU time of all of them.
    pub cpu: Duration,
}

/// A server under test. It lives in a thread of its own, and its time is an argument.
pub trait Server {
    /// Where clients find it.
    fn address(&self) -> SocketAddrV4;

    /// A turn of a game loop: takes in all that waits, and does what is due. Answers how many payloads came in.
    fn turn(&mut self, game: Game, now: Duration) -> u64;

    /// A turn in which `copies` payloads go to every client, and nothing is taken in.
    fn say(&mut self, copies: u32, now: Duration);

    /// How many clients are connected.
    fn connected(&self) -> usize;

    /// Lets the kernel drop junk before the server sees it, or not. Answers whether the server has such a filter.
    fn set_filter(&mut self, _on: bool) -> bool {
        false
    }

    /// What its turns have taken so far, where it counts that itself.
    fn times(&self) -> Times {
        Times::default()
    }

    /// What its loop does between two turns of a game with 60 ticks a second.
    fn rest(&mut self) {
        thread::sleep(Duration::from_millis(16));
    }
}

/// What a client says to its server: messages become the packets that netcode seals.
pub trait Voice {
    /// The packets of a message that is said `copies` times in one go.
    fn say(&mut self, message: &[u8], copies: u32, now: Instant) -> Vec<Vec<u8>>;

    /// How many messages a packet of the server brings.
    fn hear(&mut self, packet: &[u8], now: Instant) -> u64;
}

/// Packets that are messages.
pub struct Bare;

impl Voice for Bare {
    fn say(&mut self, message: &[u8], copies: u32, _now: Instant) -> Vec<Vec<u8>> {
        vec![message.to_vec(); copies as usize]
    }

    fn hear(&mut self, _packet: &[u8], _now: Instant) -> u64 {
        1
    }
}

/// How the clients of a server speak.
#[derive(Clone, Copy)]
pub enum Speech {
    /// Datagrams without any protocol.
    Plain,
    /// netcode 1.02, with this inside its payloads.
    Netcode(fn() -> Box<dyn Voice>),
}

/// The most clients of a server, and why there are no more.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The most clients.
    pub clients: usize,
    /// Why.
    pub why: &'static str,
}

/// Something that takes part.
#[derive(Clone, Copy)]
pub struct Contestant {
    /// Its column in the table.
    pub name: &'static str,
    /// What is compared with it.
    pub role: Role,
    /// Where its clients end.
    pub limit: Option<Limit>,
    /// How its clients speak.
    pub speech: Speech,
    /// Starts a server with room for so many clients, in the thread that calls.
    pub start: fn(usize) -> io::Result<Box<dyn Server>>,
}

impl Contestant {
    /// Why it cannot take part with so many clients.
    #[must_use]
    pub fn excuse(&self, clients: usize) -> Option<&'static str> {
        self.limit.filter(|limit| clients > limit.clients).map(|limit| limit.why)
    }

    /// Whether its clients speak netcode.
    #[must_use]
    pub const fn is_netcode(&self) -> bool {
        matches!(self.speech, Speech::Netcode(_))
    }
}
