//! Sessions on real loopback sockets: a server and a client, ours or a peer's, polled in the test's own thread.
//!
//! ```text
//!   stories ──▶ until(what) ──▶ turn, turn, sleep 1 ms, … until it happened, or fail after DEADLINE
//!                                 │
//!                 GameServer, GameClient: ours (`ours`), a peer's (in the test of that peer)
//! ```
//!
//! `stories` tells what every pair must live through. A test names the pair, and [`stories!`](crate::stories) makes a
//! test of each story. Every socket is bound to a port of the system's choice.

mod ours;
pub mod stories;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::{ClientState, ConnectToken, EndReason};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::UserData;
use slipgate_netcode::wire::token::Servers;
use slipgate_os::{clock, entropy};
use slipgate_server::{Discards, DisconnectReason};

pub use self::ours::{OurClient, OurServer};

/// The game.
pub const PROTOCOL_ID: u64 = 0xfedc_ba98_7654_3210;
/// The key that issuers and servers share.
pub const PRIVATE_KEY: [u8; 32] = *b"thirty-two bytes, for tests only";
/// What must happen happens long before; a machine that is busy with other things gets this long.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// The IPv4 address of all live tests.
pub const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The IPv6 address of all live tests.
pub const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// How long nothing happens between two turns.
const PAUSE: Duration = Duration::from_millis(1);

/// Something that lives by being given turns.
pub trait Turn {
    /// Receives what waits, does what is due, sends what must leave.
    fn turn(&mut self);

    /// Where it stands, for the message of a failed test.
    fn describe(&self) -> String;
}

/// A server, ours or a peer's.
pub trait GameServer: Turn + Sized {
    /// A server on a port of the system's choice.
    fn start(ip: IpAddr, slots: u32) -> Self;

    /// Where clients find it.
    fn address(&self) -> SocketAddr;

    /// What happened so far.
    fn log(&self) -> &ServerLog;

    /// How many clients are connected.
    fn connected(&self) -> usize;

    /// What it dropped, if it tells.
    fn discards(&self) -> Option<&Discards> {
        None
    }

    /// Sends a payload to a connected client.
    fn send(&mut self, client_id: u64, payload: &[u8]);

    /// Disconnects a connected client.
    fn kick(&mut self, client_id: u64);
}

/// A client, ours or a peer's.
pub trait GameClient: Turn + Sized {
    /// A client on a port of the system's choice, on its way to the servers of a token.
    fn connect(ticket: &Ticket) -> Self;

    /// Where it stands, in the standard's words.
    fn state(&self) -> ClientState;

    /// Why its connection ended, if it tells more than the state does.
    fn end(&self) -> Option<EndReason> {
        None
    }

    /// Its slot and how many there are, while it is connected and if it tells.
    fn seat(&self) -> Option<(u32, u32)>;

    /// The payloads that arrived.
    fn received(&self) -> &[Vec<u8>];

    /// Sends a payload; the client is connected.
    fn send(&mut self, payload: &[u8]);

    /// Disconnects.
    fn leave(&mut self);
}

/// What the game of a server saw.
#[derive(Default, Debug)]
pub struct ServerLog {
    /// Who connected, with the user data of their tokens.
    pub connected: Vec<(u64, UserData)>,
    /// Whose connection ended, and why, if the server tells.
    pub ended: Vec<(u64, Option<DisconnectReason>)>,
    /// The payloads that arrived.
    pub payloads: Vec<Vec<u8>>,
}

/// What a player asks for.
#[derive(Clone, Debug)]
pub struct Order {
    /// Who the player is.
    pub client_id: u64,
    /// The servers, in the order in which they are tried.
    pub servers: Vec<SocketAddr>,
    /// How many seconds the token is accepted.
    pub lifetime_seconds: u32,
    /// Seconds of silence that end the connection.
    pub timeout_seconds: i32,
}

/// What a player gets.
#[derive(Clone, Debug)]
pub struct Ticket {
    /// Who the player is.
    pub client_id: u64,
    /// What the server will be told of it.
    pub user_data: UserData,
    /// The token.
    pub token: ConnectToken,
}

impl Order {
    /// For a player and some servers, with times that no live test outlasts.
    #[must_use]
    pub fn new(client_id: u64, servers: &[SocketAddr]) -> Self {
        let seconds = DEADLINE.as_secs();
        Self { client_id, servers: servers.to_vec(), lifetime_seconds: seconds as u32, timeout_seconds: seconds as i32 }
    }

    /// 256 bytes that tell this player from any other.
    #[must_use]
    pub fn user_data(&self) -> UserData {
        std::array::from_fn(|place| self.client_id.to_le_bytes()[place % 8].wrapping_add(place as u8))
    }

    /// A token of our issuer, minted now.
    #[must_use]
    pub fn mint(&self) -> Ticket {
        self.mint_at(clock::wall_clock())
    }

    /// A token of our issuer that was minted some time ago.
    #[must_use]
    pub fn mint_ago(&self, ago: Duration) -> Ticket {
        self.mint_at(UnixMillis(clock::wall_clock().0 - ago.as_millis() as u64))
    }

    fn mint_at(&self, now: UnixMillis) -> Ticket {
        let claims = Claims {
            protocol_id: PROTOCOL_ID,
            client_id: self.client_id,
            servers: &Servers::new(&self.servers).expect("1 to 32 servers"),
            internal_servers: None,
            lifetime_seconds: self.lifetime_seconds,
            timeout_seconds: self.timeout_seconds,
            user_data: &self.user_data(),
        };
        let mut random = StdRng::from_seed(entropy::bytes().expect("the system has entropy"));
        let token = issue(&claims, &Key::from_bytes(PRIVATE_KEY), now, &mut random).expect("the claims are sound");
        self.ticket(token)
    }

    /// The ticket around a token that somebody minted for this order.
    #[must_use]
    pub fn ticket(&self, token: ConnectToken) -> Ticket {
        Ticket { client_id: self.client_id, user_data: self.user_data(), token }
    }
}

/// Gives turns until something has happened.
///
/// # Panics
/// When it has not within [`DEADLINE`].
pub fn until<E: Turn>(ends: &mut E, what: &str, mut happened: impl FnMut(&mut E) -> bool) {
    let start = Instant::now();
    while !happened(ends) {
        assert!(start.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}; {}", ends.describe());
        ends.turn();
        thread::sleep(PAUSE);
    }
}

/// Gives turns for some time.
pub fn run_for(ends: &mut impl Turn, time: Duration) {
    let start = Instant::now();
    until(ends, "time passes", |_| start.elapsed() >= time);
}

impl<T: Turn> Turn for &mut T {
    fn turn(&mut self) {
        T::turn(self);
    }

    fn describe(&self) -> String {
        T::describe(self)
    }
}

impl<T: Turn> Turn for Vec<T> {
    fn turn(&mut self) {
        self.iter_mut().for_each(T::turn);
    }

    fn describe(&self) -> String {
        self.iter().map(T::describe).collect::<Vec<_>>().join("; ")
    }
}

impl<A: Turn, B: Turn> Turn for (A, B) {
    fn turn(&mut self) {
        self.0.turn();
        self.1.turn();
    }

    fn describe(&self) -> String {
        format!("{}; {}", self.0.describe(), self.1.describe())
    }
}

impl<A: Turn, B: Turn, C: Turn> Turn for (A, B, C) {
    fn turn(&mut self) {
        self.0.turn();
        self.1.turn();
        self.2.turn();
    }

    fn describe(&self) -> String {
        format!("{}; {}; {}", self.0.describe(), self.1.describe(), self.2.describe())
    }
}

/// The loopback addresses that this machine has. Containers often have no IPv6: its tests are passed over there, aloud.
#[must_use]
pub fn families() -> Vec<IpAddr> {
    let exists = |ip: &IpAddr| {
        let exists = std::net::UdpSocket::bind((*ip, 0)).is_ok();
        if !exists {
            println!("SKIPPED: this machine has no {ip}");
        }
        exists
    };
    [IPV4, IPV6].into_iter().filter(exists).collect()
}

/// Makes a test of each story, for a server, a client and an address.
#[macro_export]
macro_rules! stories {
    ($pair:ident: $server:ty, $client:ty, $ip:expr, [$($story:ident),+ $(,)?]) => {
        mod $pair {
            use super::*;

            $(
                #[test]
                fn $story() {
                    if !$crate::live::families().contains(&$ip) {
                        return;
                    }
                    $crate::live::stories::$story::<$server, $client>($ip);
                }
            )+
        }
    };
}
