//! A simulated world: servers and clients on a network in virtual time, and invariants that always hold.
//!
//! A seed determines everything, so that a failure can be repeated. Each datagram passes the `Wiretap`, which knows the
//! keys of every token and panics when an invariant is broken: no datagram over the MTU, no reply to a stranger larger
//! than what the stranger sent, no nonce used twice under one key. Delivery checks that nothing arrives twice.

mod wiretap;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{self, ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::{Key, Seed};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::server::{
    self, ClientHandle, DisconnectReason, NetcodeEvent, NetcodeServer, ServerConfig, TokenStorage,
};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::MAX_DATAGRAM_BYTES;
use slipgate_netcode::wire::packet::Challenge;
use slipgate_netcode::wire::token::Servers;
use slipgate_sim::{Bounds, Conditions, Path};

use self::wiretap::Wiretap;
use crate::raw_client::RawClient;

/// The protocol id of the simulated world.
pub const PROTOCOL_ID: u64 = 0x51_19_67_a7_e0_00_00_01;
/// The time at which the simulated world begins.
pub const START_TIME: UnixMillis = UnixMillis(1_800_000_000_000);
/// One turn of every program in the world: about 60 per second.
pub const TURN: Duration = Duration::from_millis(16);

/// More than any test has in flight: a flood must not be dropped here.
const NETWORK_BOUNDS: Bounds = Bounds { datagrams: 1 << 20, bytes: 1 << 30 };

/// The index of a server of the world.
pub type ServerId = usize;
/// The index of a client of the world.
pub type ClientId = usize;

/// A server, and what its application received.
pub struct SimServer {
    /// The server under test.
    pub core: NetcodeServer,
    /// The address of the server.
    pub address: Address,
    /// Events with their times.
    pub events: Vec<(Instant, NetcodeEvent)>,
    /// Payloads that arrived, each with the client id of its sender.
    pub received: Vec<(u64, Vec<u8>)>,
    /// Whether the server echoes each payload to its sender.
    pub echoes: bool,
    /// Whether the server runs.
    pub running: bool,
    starts: u64,
}

/// A client, and what its application received.
pub struct SimClient {
    /// The client under test.
    pub core: NetcodeClient,
    /// The address of the client.
    pub address: Address,
    /// Events with their times.
    pub events: Vec<(Instant, client::NetcodeClientEvent)>,
    /// Payloads that arrived.
    pub received: Vec<Vec<u8>>,
    /// Every state of the client, in order, without repetitions.
    pub states: Vec<ClientState>,
}

/// The servers, the clients and the network between them.
pub struct NetcodeWorld {
    seed: u64,
    rng: StdRng,
    now: Duration,
    /// The error of the servers' wall clock, in milliseconds.
    pub clock_error_ms: i64,
    /// The key that issuer and servers share.
    pub private_key: Key,
    /// The servers, in the order of creation.
    pub servers: Vec<SimServer>,
    /// The clients, in the order of creation.
    pub clients: Vec<SimClient>,
    /// Replies to injected datagrams, by the address of the stranger.
    pub strangers: BTreeMap<Address, Vec<Vec<u8>>>,
    /// The path of all datagrams, each with its source and its destination.
    network: Path<(Address, Address)>,
    tap: Wiretap,
    delivered: BTreeSet<(bool, usize, Vec<u8>)>,
    next_payload: u64,
}

/// Collects the datagrams of one turn.
#[derive(Default)]
pub struct VecOutbox {
    buf: Option<Box<[u8; MAX_DATAGRAM_BYTES]>>,
    /// The destinations and the datagrams.
    pub datagrams: VecDeque<(Address, Vec<u8>)>,
    /// The maximum number of datagrams, if there is one.
    pub limit: Option<usize>,
}

impl VecOutbox {
    /// Creates an outbox with a limit on the number of datagrams.
    #[must_use]
    pub fn with_limit(datagrams: usize) -> Self {
        Self { limit: Some(datagrams), ..Self::default() }
    }
}

impl Outbox for VecOutbox {
    fn remaining(&self) -> usize {
        self.limit.map_or(usize::MAX, |limit| limit.saturating_sub(self.datagrams.len()))
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        if self.limit.is_some_and(|limit| self.datagrams.len() >= limit) {
            return None;
        }
        Some(self.buf.get_or_insert_with(|| Box::new([0; MAX_DATAGRAM_BYTES])))
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        let buf = self.buf.as_ref().expect("a buffer was handed out");
        self.datagrams.push_back((to, buf[..bytes].to_vec()));
    }
}

/// Parses an address.
///
/// # Panics
/// If the text is not an address.
#[must_use]
pub fn address(text: &str) -> Address {
    let address: SocketAddr = text.parse().unwrap_or_else(|_| panic!("{text} is not an address"));
    address.into()
}

/// The content of a token of the world; all other fields have usual values.
#[derive(Clone)]
pub struct TokenSpec {
    /// The client id.
    pub client_id: u64,
    /// The servers.
    pub servers: Vec<Address>,
    /// The lifetime, in seconds.
    pub lifetime: u32,
    /// The timeout of the connection, in seconds.
    pub timeout: i32,
    /// The user data of the application.
    pub user_data: [u8; 256],
}

impl NetcodeWorld {
    /// Creates an empty world. It runs the same way for the same seed. The seed is printed, so that the output of a
    /// failed test names it.
    #[must_use]
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        println!("world with seed {seed}");
        let mut rng = StdRng::seed_from_u64(seed);
        let private_key = Key::random(&mut rng);
        Self {
            seed,
            now: Duration::ZERO,
            clock_error_ms: 0,
            network: Path::bounded(conditions, rng.random(), NETWORK_BOUNDS),
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

    /// Creates a world with a perfect network.
    #[must_use]
    pub fn perfect(seed: u64) -> Self {
        Self::new(seed, Conditions::perfect())
    }

    /// Returns both clocks, as the servers read them.
    #[must_use]
    pub fn now(&self) -> Now {
        let unix = START_TIME.0 as i64 + self.now.as_millis() as i64 + self.clock_error_ms;
        Now { monotonic: self.monotonic(), unix: UnixMillis(unix as u64) }
    }

    /// Returns the monotonic clock.
    #[must_use]
    pub fn monotonic(&self) -> Instant {
        Instant::from_start(self.now)
    }

    /// Returns the random generator of the seed.
    pub fn rng(&mut self) -> &mut StdRng {
        &mut self.rng
    }

    /// Changes the conditions of the network from now on.
    pub fn set_conditions(&mut self, conditions: Conditions) {
        let now = self.monotonic();
        self.network.set_conditions(conditions, now);
    }

    /// Adds a server with default settings and no token cutoff, at its own address.
    pub fn add_server(&mut self, slots: u32) -> ServerId {
        self.add_server_with(slots, |config| config.token_cutoff = server::TokenCutoff::None)
    }

    /// Adds a server with settings of the test, at its own address.
    pub fn add_server_with(&mut self, slots: u32, change: impl FnOnce(&mut ServerConfig)) -> ServerId {
        let address = address(&format!("10.0.0.{}:40000", self.servers.len() + 1));
        let mut config = ServerConfig::new(PROTOCOL_ID, slots, &[address.socket_addr()]);
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

    fn start_server(
        &mut self,
        config: ServerConfig,
        start: u64,
        address: Address,
        storage: Option<TokenStorage>,
    ) -> NetcodeServer {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&start.to_le_bytes());
        seed[16..18].copy_from_slice(&address.socket_addr().port().to_le_bytes());
        seed[18..20].copy_from_slice(&(self.servers.len() as u16).to_le_bytes());
        let (seed, keys, now) = (Seed::from(seed), self.private_key.clone().into(), self.now());
        let server = match storage {
            None => NetcodeServer::new(config, keys, &seed, now),
            Some(storage) => NetcodeServer::with_storage(config, keys, &seed, now, storage),
        };
        server.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Stops a server without any packet, as a crash does.
    pub fn crash(&mut self, server: ServerId) {
        self.servers[server].running = false;
    }

    /// Restarts a server with other settings: a new seed, and an empty history or the one in `storage`.
    pub fn restart(&mut self, server: ServerId, storage: Option<TokenStorage>, change: impl FnOnce(&mut ServerConfig)) {
        let mut config = self.servers[server].core.config().clone();
        change(&mut config);
        self.servers[server].starts += 1;
        let (start, address) = (self.servers[server].starts, self.servers[server].address);
        let start = start * 1000 + server as u64;
        self.servers[server].core = self.start_server(config, start, address, storage);
        self.servers[server].running = true;
        self.tap.forget_server(address);
    }

    /// Adds a client at its own address.
    pub fn add_client(&mut self) -> ClientId {
        let number = self.clients.len();
        self.add_client_at(address(&format!("10.1.{}.{}:{}", number / 250, number % 250 + 1, 5000 + number)))
    }

    /// Adds a client at a given address.
    pub fn add_client_at(&mut self, address: Address) -> ClientId {
        self.clients.push(SimClient {
            core: NetcodeClient::new(TimeoutPolicy::Clamped),
            address,
            events: Vec::new(),
            received: Vec::new(),
            states: vec![ClientState::Disconnected],
        });
        self.clients.len() - 1
    }

    /// Returns the content of a usual token for these servers.
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

    /// Mints a token now. The wiretap learns its keys.
    ///
    /// # Panics
    /// If the specification is invalid.
    pub fn mint(&mut self, spec: &TokenSpec) -> ConnectToken {
        let addresses: Vec<SocketAddr> = spec.servers.iter().map(|address| address.socket_addr()).collect();
        let claims = Claims {
            protocol_id: PROTOCOL_ID,
            client_id: spec.client_id.into(),
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

    /// Starts a connection attempt of a client.
    ///
    /// # Panics
    /// If the client refuses the token.
    pub fn connect(&mut self, client: ClientId, token: ConnectToken) {
        let now = self.monotonic();
        self.clients[client].core.connect(token, now, |_| true).unwrap_or_else(|error| panic!("{error}"));
        self.note_state(client);
    }

    /// Connects a new client with a token of its own. Returns the client and its handle on the server.
    ///
    /// # Panics
    /// If it does not get a slot within 5 s.
    pub fn connected_client(&mut self, client_id: u64, server: ServerId) -> (ClientId, ClientHandle) {
        let client = self.add_client();
        let token = self.token(client_id, &[server]);
        self.connect(client, token);
        self.run_until(Duration::from_secs(5), |world| world.state(client) == ClientState::Connected);
        let handle = self.servers[server].core.find(client_id).expect("a slot");
        (client, handle)
    }

    /// Returns the state of a client.
    #[must_use]
    pub fn state(&self, client: ClientId) -> ClientState {
        self.clients[client].core.state()
    }

    /// Returns a new, unique payload of at least 8 bytes.
    pub fn payload(&mut self, bytes: usize) -> Vec<u8> {
        self.next_payload += 1;
        let mut payload = vec![0xa5; bytes.max(8)];
        payload[..8].copy_from_slice(&self.next_payload.to_le_bytes());
        payload
    }

    /// Sends a payload of a client now.
    pub fn client_sends(&mut self, client: ClientId, payload: &[u8]) -> Result<(), slipgate_netcode::PayloadError> {
        let (now, mut outbox) = (self.monotonic(), VecOutbox::default());
        let sent = self.clients[client].core.send(payload, now, &mut outbox);
        self.send_all(self.clients[client].address, outbox);
        sent
    }

    /// Sends a payload of a server now.
    pub fn server_sends(
        &mut self,
        server: ServerId,
        client: ClientHandle,
        payload: &[u8],
    ) -> Result<(), slipgate_netcode::PayloadError> {
        let (now, mut outbox) = (self.now(), VecOutbox::default());
        let sent = self.servers[server].core.send(client, payload, now, &mut outbox);
        self.send_all(self.servers[server].address, outbox);
        sent
    }

    /// Sends a datagram with a spoofed source address, as an attacker can.
    pub fn inject(&mut self, from: Address, to: Address, datagram: &[u8]) {
        self.tap.note_injected(from, to, datagram.len());
        self.network.push_tagged((from, to), datagram, Instant::from_start(self.now));
    }

    /// Delivers a datagram with the source address `from` to a server at once. Returns the payload in it.
    ///
    /// # Errors
    /// Returns the reason if the server dropped it.
    pub fn present(&mut self, server: ServerId, from: Address, datagram: &[u8]) -> Result<Option<Vec<u8>>, Discard> {
        self.tap.note_injected(from, self.servers[server].address, datagram.len());
        let (now, mut datagram) = (self.now(), datagram.to_vec());
        let handled = self.servers[server].core.handle(from, &mut datagram, now);
        let payload = handled.map(|payload| payload.map(|(_, payload)| payload.bytes.to_vec()));
        self.drain_server(server);
        payload
    }

    /// Returns the datagrams that servers send to an address without a client within two turns.
    pub fn replies_to(&mut self, stranger: Address) -> Vec<Vec<u8>> {
        self.turn();
        self.turn();
        self.strangers.remove(&stranger).unwrap_or_default()
    }

    /// Sends the request of a raw client and returns the challenge.
    ///
    /// # Panics
    /// If the server does not reply with a challenge.
    pub fn request_challenge(&mut self, server: ServerId, raw_client: &RawClient, from: Address) -> Challenge {
        self.present(server, from, &raw_client.request()).unwrap_or_else(|discard| panic!("{discard}"));
        let replies = self.replies_to(from);
        replies.iter().find_map(|reply| raw_client.challenge(reply)).expect("a challenge")
    }

    /// Runs the handshake of a raw client and returns its handle.
    ///
    /// # Panics
    /// If the server does not admit it.
    pub fn admit_raw(&mut self, server: ServerId, raw_client: &mut RawClient, from: Address) -> ClientHandle {
        let challenge = self.request_challenge(server, raw_client, from);
        self.present(server, from, &raw_client.response(&challenge)).unwrap_or_else(|discard| panic!("{discard}"));
        let core = &self.servers[server].core;
        core.clients().find(|client| core.client(*client).and_then(|info| info.address) == Some(from)).expect("a slot")
    }

    /// Returns the number of datagrams that a server dropped for a reason.
    #[must_use]
    pub fn discard_count(&self, server: ServerId, reason: Discard) -> u64 {
        self.servers[server].core.discards()[reason]
    }

    /// Returns every datagram sent so far, in order: source, destination, bytes.
    #[must_use]
    pub fn sent(&self) -> &[(Address, Address, Vec<u8>)] {
        self.tap.sent()
    }

    /// Runs one turn: delivers due datagrams, then runs the turn of every program.
    pub fn turn(&mut self) {
        self.now += TURN;
        while let Some(arrival) = self.network.pop_due(Instant::from_start(self.now)) {
            let ((from, to), datagram) = (arrival.tag, arrival.bytes.to_vec());
            self.deliver(from, to, datagram);
        }
        for server in 0..self.servers.len() {
            self.server_turn(server);
        }
        for client in 0..self.clients.len() {
            self.client_turn(client);
        }
    }

    /// Runs turns until `done` holds, for at most `limit`.
    ///
    /// # Panics
    /// If it does not hold in time.
    pub fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) {
        let end = self.now + limit;
        while !done(self) {
            assert!(self.now < end, "seed {}: the condition does not hold within {limit:?}", self.seed);
            self.turn();
        }
    }

    /// Runs turns for `duration`.
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
        sim.received.push((client_id.0, bytes.clone()));
        let echoes = sim.echoes;
        assert!(self.delivered.insert((true, server, bytes.clone())), "seed {}: delivered twice", self.seed);
        if echoes {
            // An echo may fail when its client has just disconnected.
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
        let (now, mut outbox) = (self.now(), VecOutbox::default());
        self.servers[server].core.tick(now);
        self.drain_server(server);
        self.servers[server].core.transmit(now, &mut outbox);
        self.send_all(self.servers[server].address, outbox);
        self.drain_server(server);
    }

    fn client_turn(&mut self, client: ClientId) {
        let (now, mut outbox) = (self.monotonic(), VecOutbox::default());
        self.clients[client].core.tick(now);
        self.drain_client(client);
        self.clients[client].core.transmit(now, &mut outbox);
        self.send_all(self.clients[client].address, outbox);
    }

    fn send_all(&mut self, from: Address, outbox: VecOutbox) {
        for (to, datagram) in outbox.datagrams {
            let stranger = self.servers.iter().find(|server| server.address == from).map(|server| {
                let at = |handle| server.core.client(handle).and_then(|info| info.address);
                !server.core.clients().any(|handle| at(handle) == Some(to))
            });
            self.tap.note_sent(from, to, &datagram, stranger);
            self.network.push_tagged((from, to), &datagram, Instant::from_start(self.now));
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
    /// Returns the client id and the reason of each disconnect, in order.
    #[must_use]
    pub fn disconnects(&self) -> Vec<(u64, DisconnectReason)> {
        let end = |(_, event): &(Instant, NetcodeEvent)| match event {
            NetcodeEvent::Disconnected { client_id, reason, .. } => Some((client_id.0, *reason)),
            NetcodeEvent::Connected { .. } => None,
        };
        self.events.iter().filter_map(end).collect()
    }

    /// Returns the number of connections made.
    #[must_use]
    pub fn connects(&self) -> usize {
        self.events.iter().filter(|(_, event)| matches!(event, NetcodeEvent::Connected { .. })).count()
    }
}
