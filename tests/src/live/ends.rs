//! What a server and a client of a live test have in common, and the waits for them.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::{ClientState, CloseKind, ConnectToken};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::UserData;
use slipgate_netcode::wire::token::Servers;
use slipgate_os::{clock, entropy};
use slipgate_server::counters::Discards;

/// The protocol id of the game.
pub const PROTOCOL_ID: u64 = 0xfedc_ba98_7654_3210;
/// The key that issuers and servers share.
pub const PRIVATE_KEY: [u8; 32] = *b"thirty-two bytes, for tests only";
/// The time limit of each wait. Every wait ends much earlier unless the machine is busy.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The IPv4 address of all live tests.
pub const IPV4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// The IPv6 address of all live tests.
pub const IPV6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// The pause between two turns.
const PAUSE: Duration = Duration::from_millis(1);

/// A program that runs in turns.
pub trait Turn {
    /// Receives queued datagrams, handles due timers, and sends pending data.
    fn turn(&mut self);

    /// Describes its state, for the message of a failed test.
    fn describe(&self) -> String;
}

/// A server, ours or of a peer library.
pub trait GameServer: Turn + Sized {
    /// Starts a server on a port that the system chooses.
    fn start(ip: IpAddr, slots: u32) -> Self;

    /// Returns its address.
    fn address(&self) -> SocketAddr;

    /// Returns the events so far.
    fn log(&self) -> &ServerLog;

    /// Returns the number of connected clients.
    fn connected(&self) -> usize;

    /// Returns the counts of dropped datagrams, if it reports them.
    fn discards(&self) -> Option<&Discards> {
        None
    }

    /// Sends a payload to a connected client.
    fn send(&mut self, client_id: u64, payload: &[u8]);

    /// Disconnects a connected client.
    fn kick(&mut self, client_id: u64);
}

/// A client, ours or of a peer library.
pub trait GameClient: Turn + Sized {
    /// Starts a client, on a port that the system chooses, that connects to the servers of a token.
    fn connect(minted: &MintedToken) -> Self;

    /// Returns its state, in the terms of the standard.
    fn state(&self) -> ClientState;

    /// Returns why its connection ended, if it reports more than the state.
    fn end(&self) -> Option<CloseKind> {
        None
    }

    /// Returns its slot and the number of slots, while it is connected and if it reports them.
    fn slot_info(&self) -> Option<(u32, u32)>;

    /// Returns the payloads that arrived.
    fn received(&self) -> &[Vec<u8>];

    /// Sends a payload; the client must be connected.
    fn send(&mut self, payload: &[u8]);

    /// Disconnects.
    fn leave(&mut self);
}

/// The events that the game of a server received.
#[derive(Default, Debug)]
pub struct ServerLog {
    /// The clients that connected, with the user data of their tokens.
    pub connected: Vec<(u64, UserData)>,
    /// The clients that disconnected, with the reason if the server reports it.
    pub ended: Vec<(u64, Option<CloseKind>)>,
    /// The payloads that arrived.
    pub payloads: Vec<Vec<u8>>,
}

/// The request of a player for a token.
#[derive(Clone, Debug)]
pub struct TokenOrder {
    /// The id of the player.
    pub client_id: u64,
    /// The servers, in the order of the attempts.
    pub servers: Vec<SocketAddr>,
    /// The lifetime of the token, in seconds.
    pub lifetime_seconds: u32,
    /// The timeout of the connection, in seconds.
    pub timeout_seconds: i32,
}

/// The token of a player, and what it says.
#[derive(Clone, Debug)]
pub struct MintedToken {
    /// The id of the player.
    pub client_id: u64,
    /// The user data that the server will receive.
    pub user_data: UserData,
    /// The token.
    pub token: ConnectToken,
}

impl TokenOrder {
    /// Creates an order for a player and some servers, with a timeout longer than any live test, and with the maximum
    /// lifetime of a token by default.
    #[must_use]
    pub fn new(client_id: u64, servers: &[SocketAddr]) -> Self {
        let timeout_seconds = DEADLINE.as_secs() as i32;
        Self { client_id, servers: servers.to_vec(), lifetime_seconds: 45, timeout_seconds }
    }

    /// Returns 256 bytes that are unique for this player.
    #[must_use]
    pub fn user_data(&self) -> UserData {
        std::array::from_fn(|index| self.client_id.to_le_bytes()[index % 8].wrapping_add(index as u8))
    }

    /// Mints a token of our issuer now.
    #[must_use]
    pub fn mint(&self) -> MintedToken {
        self.mint_at(clock::wall_clock())
    }

    /// Mints a token of our issuer that appears to be `ago` old.
    #[must_use]
    pub fn mint_ago(&self, ago: Duration) -> MintedToken {
        self.mint_at(UnixMillis(clock::wall_clock().0 - ago.as_millis() as u64))
    }

    fn mint_at(&self, now: UnixMillis) -> MintedToken {
        let claims = Claims {
            protocol_id: PROTOCOL_ID,
            client_id: self.client_id.into(),
            servers: &Servers::new(&self.servers).expect("1 to 32 servers"),
            internal_servers: None,
            lifetime_seconds: self.lifetime_seconds,
            timeout_seconds: self.timeout_seconds,
            user_data: &self.user_data(),
        };
        let mut random = StdRng::from_seed(entropy::bytes().expect("the system has entropy"));
        let token = issue(&claims, &Key::from(PRIVATE_KEY), now, &mut random).expect("valid claims");
        self.minted(token)
    }

    /// Returns this order with a token that another issuer minted for it.
    #[must_use]
    pub fn minted(&self, token: ConnectToken) -> MintedToken {
        MintedToken { client_id: self.client_id, user_data: self.user_data(), token }
    }
}

/// Runs turns until `happened` holds.
///
/// # Panics
/// If it does not hold within [`DEADLINE`].
pub fn until<E: Turn>(ends: &mut E, what: &str, mut happened: impl FnMut(&mut E) -> bool) {
    let start = Instant::now();
    while !happened(ends) {
        assert!(start.elapsed() < DEADLINE, "{what}: not within {DEADLINE:?}; {}", ends.describe());
        ends.turn();
        thread::sleep(PAUSE);
    }
}

/// Runs turns for some time.
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

/// Returns the loopback addresses of this machine. Containers often have no IPv6: its tests are skipped there with a
/// note.
#[must_use]
pub fn families() -> Vec<IpAddr> {
    let exists = |ip: &IpAddr| {
        let exists = std::net::UdpSocket::bind((*ip, 0)).is_ok();
        if !exists {
            let _ = writeln!(std::io::stderr(), "SKIPPED: this machine has no {ip}");
        }
        exists
    };
    [IPV4, IPV6].into_iter().filter(exists).collect()
}
