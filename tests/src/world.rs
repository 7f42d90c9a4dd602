//! A simulated world: servers and clients on a network of virtual time, and laws that always hold.
//!
//! Everything follows from a seed, so a failure can be run again. Each datagram passes the `Wiretap`, which knows the
//! keys of every token and panics when a law is broken: no datagram over the MTU, no reply to a stranger larger than
//! what the stranger sent, no nonce twice under one key. Delivery checks that nothing arrives twice.

mod conditions;
mod wiretap;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{self, Client, ClientState};
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{self, ClientHandle, Config, DisconnectReason, Event, Server, Storage};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_netcode::wire::packet::Challenge;
use slipgate_netcode::wire::token::Servers;

pub use self::conditions::Conditions;
use self::conditions::Network;
use self::wiretap::Wiretap;
use crate::holder::Holder;

/// The game of the simulated world.
pub const PROTOCOL_ID: u64 = 0x51_19_67_a7_e0_00_00_01;
/// When the simulated world begins.
pub const BEGINNING: UnixMillis = UnixMillis(1_800_000_000_000);
/// A turn of every program in the world: 60 a second, roughly.
pub const TURN: Duration = Duration::from_millis(16);

/// A server of the world, by its place.
pub type ServerId = usize;
/// A client of the world, by its place.
pub type ClientId = usize;

/// A server and what its application saw.
pub struct SimServer {
    /// The server under test.
    pub core: Server,
    /// Where it listens.
    pub address: Address,
    /// What happened, with the time.
    pub events: Vec<(Instant, Event)>,
    /// Payloads that arrived: from whom, and the bytes.
    pub received: Vec<(u64, Vec<u8>)>,
    /// Whether each payload goes back to its sender.
    pub echoes: bool,
    /// Whether it has its turns.
    pub running: bool,
    starts: u64,
}

/// A client and what its application saw.
pub struct SimClient {
    /// The client under test.
    pub core: Client,
    /// Where it sends from.
    pub address: Address,
    /// What happened, with the time.
    pub events: Vec<(Instant, client::Event)>,
    /// Payloads that arrived.
    pub received: Vec<Vec<u8>>,
    /// Every state it was in, in order, without repetitions.
    pub states: Vec<ClientState>,
}

/// The world.
pub struct World {
    seed: u64,
    rng: StdRng,
    now: Duration,
    /// How far the servers' wall clock is off, in milliseconds.
    pub clock_error_ms: i64,
    /// The key that issuer and servers share.
    pub private_key: Key,
    /// Servers, in the order in which they were added.
    pub servers: Vec<SimServer>,
    /// Clients, in the order in which they were added.
    pub clients: Vec<SimClient>,
    /// What strangers received: replies to injected datagrams.
    pub strangers: BTreeMap<Address, Vec<Vec<u8>>>,
    network: Network,
    tap: Wiretap,
    delivered: BTreeSet<(bool, usize, Vec<u8>)>,
    next_payload: u64,
}

/// Collects what leaves in one turn.
#[derive(Default)]
pub struct Collected {
    room: Option<Box<[u8; MAX_DATAGRAM_BYTES]>>,
    /// Where to, and what.
    pub datagrams: VecDeque<(Address, Vec<u8>)>,
    /// The most datagrams that fit, if there is a limit.
    pub limit: Option<usize>,
}

impl Collected {
    /// An outbox with room for so many datagrams.
    #[must_use]
    pub fn with_room_for(datagrams: usize) -> Self {
        Self { limit: Some(datagrams), ..Self::default() }
    }
}

impl Outbox for Collected {
    fn rooms(&self) -> usize {
        self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.datagrams.len()))
    }

    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        if self.limit.is_some_and(|limit| self.datagrams.len() >= limit) {
            return None;
        }
        Some(self.room.get_or_insert_with(|| Box::new([0; MAX_DATAGRAM_BYTES])))
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        let room = self.room.as_ref().expect("a room was given");
        self.datagrams.push_back((to, room[..bytes].to_vec()));
    }
}

/// An address from its text.
///
/// # Panics
/// When the text is none.
#[must_use]
pub fn address(text: &str) -> Address {
    let address: SocketAddr = text.parse().unwrap_or_else(|_| panic!("{text} is not an address"));
    address.into()
}

/// What a token of the world says; the rest is usual.
#[derive(Clone)]
pub struct TokenSpec {
    /// Who.
    pub client_id: u64,
    /// Where to.
    pub servers: Vec<Address>,
    /// How long, in seconds.
    pub lifetime: u32,
    /// Silence that ends the connection, in seconds.
    pub timeout: i32,
    /// The application's own data.
    pub user_data: [u8; 256],
}

impl World {
    /// An empty world that runs the same way for the same seed. The seed is printed, so that a failed test names it.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        println!("world with seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let private_key = Key::random(&mut rng);
        Self {
            seed,
            now: Duration::ZERO,
            clock_error_ms: 0,
            network: Network::new(StdRng::seed_from_u64(rng.random()), conditions),
            rng,
            private_key,
            servers: Vec::new(),
            clients: Vec::new(),
            strangers: BTreeMap::new(),
            tap: Wiretap::new(PROTOCOL_ID),
            delivered: BTreeSet::new(),
            next_payload: 0,
        }
    }

    /// A world on a perfect network.
    #[must_use]
    pub fn perfect(seed: u64) -> Self {
        Self::new(seed, Conditions::perfect())
    }

    /// Both clocks, as the servers read them.
    #[must_use]
    pub fn now(&self) -> Now {
        let unix = BEGINNING.0 as i64 + self.now.as_millis() as i64 + self.clock_error_ms;
        Now { monotonic: self.monotonic(), unix: UnixMillis(unix as u64) }
    }

    /// The monotonic clock.
    #[must_use]
    pub fn monotonic(&self) -> Instant {
        Instant::from_start(self.now)
    }

    /// The seed's own random numbers.
    pub fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    /// What the network does from now on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        self.network.conditions = conditions;
    }

    /// A server with the default settings and the fence open, at an address of its own.
    pub fn add_server(&mut self, slots: u32) -> ServerId {
        self.add_server_with(slots, |config| config.fence = server::Fence::Open)
    }

    /// A server with settings of the test's, at an address of its own.
    pub fn add_server_with(&mut self, slots: u32, change: impl FnOnce(&mut Config)) -> ServerId {
        let address = address(&format!("10.0.0.{}:40000", self.servers.len() + 1));
        let mut config = Config::new(PROTOCOL_ID, slots, vec![address]);
        change(&mut config);
        let core = self.start_server(config, 1, address, None);
        self.servers.push(SimServer {
            core,
            address,
            events: Vec::new(),
            received: Vec::new(),
            echoes: true,
            starts: 1,
            running: true,
        });
        self.servers.len() - 1
    }

    fn start_server(&mut self, config: Config, start: u64, address: Address, storage: Option<Storage>) -> Server {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&start.to_le_bytes());
        seed[16..18].copy_from_slice(&address.socket_addr().port().to_le_bytes());
        seed[18..20].copy_from_slice(&(self.servers.len() as u16).to_le_bytes());
        let (seed, keys, now) = (Seed::from_bytes(seed), self.private_key.clone().into(), self.now());
        let server = match storage {
            None => Server::new(config, keys, &seed, now),
            Some(storage) => Server::with_storage(config, keys, &seed, now, storage),
        };
        server.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Stops a server without a word, as a crash does.
    pub fn crash(&mut self, server: ServerId) {
        self.servers[server].running = false;
    }

    /// Starts a server anew with other settings: a new seed, an empty memory (or what `storage` brings back).
    pub fn restart(&mut self, server: ServerId, storage: Option<Storage>, change: impl FnOnce(&mut Config)) {
        let mut config = self.servers[server].core.config().clone();
        change(&mut config);
        self.servers[server].starts += 1;
        let (start, address) = (self.servers[server].starts, self.servers[server].address);
        let start = start * 1000 + server as u64;
        self.servers[server].core = self.start_server(config, start, address, storage);
        self.servers[server].running = true;
        self.tap.forget_acquaintances(address);
    }

    /// A client at an address of its own.
    pub fn add_client(&mut self) -> ClientId {
        let number = self.clients.len();
        self.add_client_at(address(&format!("10.1.{}.{}:{}", number / 250, number % 250 + 1, 5000 + number)))
    }

    /// A client at a given address.
    pub fn add_client_at(&mut self, address: Address) -> ClientId {
        self.clients.push(SimClient {
            core: Client::new(TimeoutPolicy::Clamped),
            address,
            events: Vec::new(),
            received: Vec::new(),
            states: vec![ClientState::Disconnected],
        });
        self.clients.len() - 1
    }

    /// What a usual token for these servers says.
    #[must_use]
    pub fn spec(&self, client_id: u64, servers: &[ServerId]) -> TokenSpec {
        TokenSpec {
            client_id,
            servers: servers.iter().map(|server| self.servers[*server].address).collect(),
            lifetime: 30,
            timeout: 5,
            user_data: [client_id as u8; 256],
        }
    }

    /// Mints a usual token for these servers.
    pub fn token(&mut self, client_id: u64, servers: &[ServerId]) -> ConnectToken {
        let spec = self.spec(client_id, servers);
        self.mint(&spec)
    }

    /// Mints a token now. Its keys are known to the wiretap.
    ///
    /// # Panics
    /// When the specification is none.
    pub fn mint(&mut self, spec: &TokenSpec) -> ConnectToken {
        let addresses: Vec<SocketAddr> = spec.servers.iter().map(|address| address.socket_addr()).collect();
        let claims = Claims {
            protocol_id: PROTOCOL_ID,
            client_id: spec.client_id,
            servers: &Servers::new(&addresses).expect("1 to 32 servers"),
            internal_servers: None,
            lifetime_seconds: spec.lifetime,
            timeout_seconds: spec.timeout,
            user_data: &spec.user_data,
        };
        let now = self.now().unix;
        let token = issue(&claims, &self.private_key, now, &mut self.rng).expect("a valid specification");
        self.tap.learn(&token);
        token
    }

    /// Lets a client begin to connect.
    ///
    /// # Panics
    /// When the client refuses.
    pub fn connect(&mut self, client: ClientId, token: ConnectToken) {
        let now = self.monotonic();
        self.clients[client].core.connect(token, now).unwrap_or_else(|error| panic!("{error}"));
        self.note_state(client);
    }

    /// A client that has connected with a token of its own; its handle on the server.
    ///
    /// # Panics
    /// When it does not get a slot within 5 s.
    pub fn connected_client(&mut self, client_id: u64, server: ServerId) -> (ClientId, ClientHandle) {
        let client = self.add_client();
        let token = self.token(client_id, &[server]);
        self.connect(client, token);
        self.run_until(Duration::from_secs(5), |world| world.state(client) == ClientState::Connected);
        let handle = self.servers[server].core.find(client_id).expect("a slot");
        (client, handle)
    }

    /// A client's state.
    #[must_use]
    pub fn state(&self, client: ClientId) -> ClientState {
        self.clients[client].core.state()
    }

    /// A new payload of at least 8 bytes that no other payload equals.
    pub fn payload(&mut self, bytes: usize) -> Vec<u8> {
        self.next_payload += 1;
        let mut payload = vec![0xa5; bytes.max(8)];
        payload[..8].copy_from_slice(&self.next_payload.to_le_bytes());
        payload
    }

    /// A client sends a payload now.
    pub fn client_sends(&mut self, client: ClientId, payload: &[u8]) -> Result<(), slipgate_netcode::PayloadError> {
        let (now, mut outbox) = (self.monotonic(), Collected::default());
        let sent = self.clients[client].core.send(payload, now, &mut outbox);
        self.send_all(self.clients[client].address, outbox);
        sent
    }

    /// A server sends a payload now.
    pub fn server_sends(
        &mut self,
        server: ServerId,
        client: ClientHandle,
        payload: &[u8],
    ) -> Result<(), slipgate_netcode::PayloadError> {
        let (now, mut outbox) = (self.now(), Collected::default());
        let sent = self.servers[server].core.send(client, payload, now, &mut outbox);
        self.send_all(self.servers[server].address, outbox);
        sent
    }

    /// Puts a datagram on the wire in the name of `from`, as an attacker can.
    pub fn inject(&mut self, from: Address, to: Address, datagram: &[u8]) {
        self.tap.note_injected(from, to, datagram.len());
        self.network.send(self.now, from, to, datagram.to_vec());
    }

    /// Hands a server a datagram in the name of `from`, at once, and answers what the server made of it.
    ///
    /// # Errors
    /// Why the server dropped it.
    pub fn present(&mut self, server: ServerId, from: Address, datagram: &[u8]) -> Result<Option<Vec<u8>>, Discard> {
        self.tap.note_injected(from, self.servers[server].address, datagram.len());
        let (now, mut datagram) = (self.now(), datagram.to_vec());
        let handled = self.servers[server].core.handle(from, &mut datagram, now);
        let payload = handled.map(|payload| payload.map(|(_, payload)| payload.bytes.to_vec()));
        self.drain_server(server);
        payload
    }

    /// What servers send to an address where no client of the world is, two turns later.
    pub fn replies_to(&mut self, stranger: Address) -> Vec<Vec<u8>> {
        self.turn();
        self.turn();
        self.strangers.remove(&stranger).unwrap_or_default()
    }

    /// A holder of a token asks and is challenged.
    ///
    /// # Panics
    /// When the server does not challenge.
    pub fn challenged(&mut self, server: ServerId, holder: &Holder, from: Address) -> Challenge {
        self.present(server, from, &holder.request()).unwrap_or_else(|discard| panic!("{discard}"));
        let replies = self.replies_to(from);
        replies.iter().find_map(|reply| holder.challenge(reply)).expect("a challenge")
    }

    /// A holder of a token asks, is challenged, answers, and has a slot; the handle of its connection.
    ///
    /// # Panics
    /// When the server does not admit it.
    pub fn admitted(&mut self, server: ServerId, holder: &mut Holder, from: Address) -> ClientHandle {
        let challenge = self.challenged(server, holder, from);
        self.present(server, from, &holder.response(&challenge)).unwrap_or_else(|discard| panic!("{discard}"));
        let core = &self.servers[server].core;
        core.clients().find(|client| core.client(*client).and_then(|info| info.address) == Some(from)).expect("a slot")
    }

    /// How many datagrams a server has dropped for a reason.
    #[must_use]
    pub fn discarded(&self, server: ServerId, reason: Discard) -> u64 {
        self.servers[server].core.discards().count(reason)
    }

    /// Every datagram that was sent so far, in order: from, to, bytes.
    #[must_use]
    pub fn sent(&self) -> &[(Address, Address, Vec<u8>)] {
        self.tap.sent()
    }

    /// One turn of everything: delivers what is due, then lets every program take its turn.
    pub fn turn(&mut self) {
        self.now += TURN;
        while let Some((from, to, datagram)) = self.network.due(self.now) {
            self.deliver(from, to, datagram);
        }
        for server in 0..self.servers.len() {
            self.server_turn(server);
        }
        for client in 0..self.clients.len() {
            self.client_turn(client);
        }
    }

    /// Turns until `done`, for at most `limit`.
    ///
    /// # Panics
    /// When it does not come about in time.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "seed {}: it did not come about within {limit:?}", self.seed);
            self.turn();
        }
    }

    /// Turns for as long as told.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now + duration;
        while self.now < end {
            self.turn();
        }
    }

    fn deliver(&mut self, from: Address, to: Address, mut datagram: Vec<u8>) {
        if let Some(server) = self.servers.iter().position(|server| server.address == to) {
            if self.servers[server].running {
                self.deliver_to_server(server, from, &mut datagram);
            }
        } else if let Some(client) = self.clients.iter().position(|client| client.address == to) {
            self.deliver_to_client(client, from, &mut datagram);
        } else {
            self.strangers.entry(to).or_default().push(datagram);
        }
    }

    fn deliver_to_server(&mut self, server: ServerId, from: Address, datagram: &mut [u8]) {
        let now = self.now();
        let sim = &mut self.servers[server];
        let handled = sim.core.handle(from, datagram, now);
        let payload = match handled {
            Ok(Some((client, payload))) => Some((client, payload.bytes.to_vec())),
            _ => None,
        };
        self.drain_server(server);
        let Some((client, bytes)) = payload else { return };
        let sim = &mut self.servers[server];
        let client_id = sim.core.client(client).expect("a payload comes from a connected client").client_id;
        sim.received.push((client_id, bytes.clone()));
        let echoes = sim.echoes;
        assert!(self.delivered.insert((true, server, bytes.clone())), "seed {}: delivered twice", self.seed);
        if echoes {
            // An echo may fail when its client has just gone.
            let _ = self.server_sends(server, client, &bytes);
        }
    }

    fn deliver_to_client(&mut self, client: ClientId, from: Address, datagram: &mut [u8]) {
        let now = self.monotonic();
        let handled = self.clients[client].core.handle(from, datagram, now);
        if let Ok(Some(payload)) = handled {
            let bytes = payload.bytes.to_vec();
            self.clients[client].received.push(bytes.clone());
            assert!(self.delivered.insert((false, client, bytes)), "seed {}: delivered twice", self.seed);
        }
        self.drain_client(client);
    }

    fn server_turn(&mut self, server: ServerId) {
        if !self.servers[server].running {
            return;
        }
        let (now, mut outbox) = (self.now(), Collected::default());
        self.servers[server].core.tick(now);
        self.drain_server(server);
        self.servers[server].core.transmit(now, &mut outbox);
        self.send_all(self.servers[server].address, outbox);
        self.drain_server(server);
    }

    fn client_turn(&mut self, client: ClientId) {
        let (now, mut outbox) = (self.monotonic(), Collected::default());
        self.clients[client].core.tick(now);
        self.drain_client(client);
        self.clients[client].core.transmit(now, &mut outbox);
        self.send_all(self.clients[client].address, outbox);
    }

    fn send_all(&mut self, from: Address, outbox: Collected) {
        for (to, datagram) in outbox.datagrams {
            let stranger = self.servers.iter().find(|server| server.address == from).map(|server| {
                let at = |handle| server.core.client(handle).and_then(|info| info.address);
                !server.core.clients().any(|handle| at(handle) == Some(to))
            });
            self.tap.note_sent(from, to, &datagram, stranger);
            self.network.send(self.now, from, to, datagram);
        }
    }

    fn drain_server(&mut self, server: ServerId) {
        let now = self.monotonic();
        let sim = &mut self.servers[server];
        while let Some(event) = sim.core.poll_event() {
            sim.events.push((now, event));
        }
    }

    fn drain_client(&mut self, client: ClientId) {
        let now = self.monotonic();
        while let Some(event) = self.clients[client].core.poll_event() {
            self.clients[client].events.push((now, event));
        }
        self.note_state(client);
    }

    fn note_state(&mut self, client: ClientId) {
        let state = self.state(client);
        if self.clients[client].states.last() != Some(&state) {
            self.clients[client].states.push(state);
        }
    }
}

impl SimServer {
    /// Why connections ended, in order.
    #[must_use]
    pub fn ends(&self) -> Vec<(u64, DisconnectReason)> {
        let end = |(_, event): &(Instant, Event)| match event {
            Event::Disconnected { client_id, reason, .. } => Some((*client_id, *reason)),
            Event::Connected { .. } => None,
        };
        self.events.iter().filter_map(end).collect()
    }

    /// How many connections were made.
    #[must_use]
    pub fn connects(&self) -> usize {
        self.events.iter().filter(|(_, event)| matches!(event, Event::Connected { .. })).count()
    }
}
