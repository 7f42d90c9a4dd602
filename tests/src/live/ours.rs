//! Our server and our client on real sockets, each with a game that records its events.

use std::net::{IpAddr, SocketAddr};

use slipgate_client::{Client, ClientState, CloseKind};
use slipgate_server::counters::Discards;
use slipgate_server::keys::Key;
use slipgate_server::{Clock, Event, Server, ServerConfig, Sockets};

use super::ends::{GameClient, GameServer, IPV4, MintedToken, PRIVATE_KEY, PROTOCOL_ID, ServerLog, Turn};

/// Our server.
pub struct OurServer {
    /// The server under test.
    pub server: Server,
    inbox: slipgate_server::Inbox,
    clock: Clock,
    address: SocketAddr,
    log: ServerLog,
}

/// Our client.
pub struct OurClient {
    /// The client under test.
    pub client: Client,
    inbox: slipgate_client::Inbox,
    clock: Clock,
    received: Vec<Vec<u8>>,
    end: Option<CloseKind>,
}

impl OurServer {
    /// Starts a server with other settings than the defaults.
    ///
    /// # Panics
    /// If it cannot start.
    #[must_use]
    pub fn start_with(ip: IpAddr, slots: u32, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let sockets = Sockets::bind(&[SocketAddr::new(ip, 0)]).expect("the system has a free port");
        let address = sockets.local_addresses()[0];
        let mut config = ServerConfig::new(PROTOCOL_ID, slots, &[address]);
        change(&mut config);
        let clock = Clock::start();
        let keys = Key::from(PRIVATE_KEY).into();
        let server = Server::new(sockets, config, keys, clock.now()).expect("valid settings");
        Self { server, inbox: slipgate_server::Inbox::default(), clock, address, log: ServerLog::default() }
    }
}

impl OurServer {
    /// Starts the shards of one server with other settings than the defaults, all in the thread of the test.
    ///
    /// # Panics
    /// If they cannot start.
    #[must_use]
    pub fn shards(count: u16, slots: u32, change: impl FnOnce(&mut ServerConfig)) -> Vec<Self> {
        let sockets = Sockets::bind_shards(&[SocketAddr::new(IPV4, 0)], count).expect("the system has a free port");
        let address = sockets[0].local_addresses()[0];
        let mut config = ServerConfig::new(PROTOCOL_ID, slots, &[address]);
        // A test uses tokens of one player until the system's hash of a port selects the shard that it needs.
        config.tokens_per_client_id = 256;
        change(&mut config);
        let clock = Clock::start();
        let keys = Key::from(PRIVATE_KEY).into();
        let shards = Server::shards(sockets, config, keys, clock.now(), None).expect("valid settings");
        let around = |server| Self {
            server,
            inbox: slipgate_server::Inbox::default(),
            clock,
            address,
            log: ServerLog::default(),
        };
        shards.into_iter().map(around).collect()
    }
}

impl Turn for OurServer {
    fn turn(&mut self) {
        self.server.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.server) {
            match event {
                Event::Connected { client, client_id } => {
                    let info = self.server.client(client).expect("a newly connected client is known");
                    self.log.connected.push((client_id.0, info.user_data()));
                }
                Event::Payload { bytes, .. } => self.log.payloads.push(bytes.to_vec()),
                Event::Disconnected { client_id, reason, .. } => self.log.ended.push((client_id.0, Some(reason.kind))),
                _ => {}
            }
        }
        self.server.end_turn();
    }

    fn describe(&self) -> String {
        let log = &self.log;
        let (connected, ended, payloads) = (log.connected.len(), &log.ended, log.payloads.len());
        let discards = self.server.discards();
        format!("our server: {connected} connected, {ended:?} disconnected, {payloads} payloads, {discards:?}")
    }
}

impl GameServer for OurServer {
    fn start(ip: IpAddr, slots: u32) -> Self {
        Self::start_with(ip, slots, |_| {})
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log(&self) -> &ServerLog {
        &self.log
    }

    fn connected(&self) -> usize {
        self.server.connected_count() as usize
    }

    fn discards(&self) -> Option<&Discards> {
        Some(self.server.discards())
    }

    fn send(&mut self, client_id: u64, payload: &[u8]) {
        let client = self.server.find(client_id).expect("the client is connected");
        self.server.send(client, payload).expect("a connected client accepts a payload");
    }

    fn kick(&mut self, client_id: u64) {
        let client = self.server.find(client_id).expect("the client is connected");
        self.server.client(client).expect("the client is connected").disconnect().expect("the client is connected");
    }
}

impl Turn for OurClient {
    fn turn(&mut self) {
        use slipgate_client::Event;
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { .. } => {}
                Event::Payload { bytes, .. } => self.received.push(bytes.to_vec()),
                Event::Ended { reason } => self.end = Some(reason.kind),
                _ => {}
            }
        }
        self.client.end_turn();
    }

    fn describe(&self) -> String {
        let (state, payloads) = (self.client.state().name(), self.received.len());
        format!("our client: {state}, {payloads} payloads, {:?}", self.client.discards())
    }
}

impl GameClient for OurClient {
    fn connect(minted: &MintedToken) -> Self {
        let clock = Clock::start();
        let mut client = Client::new().expect("the system has a free port");
        client.connect(minted.token.clone(), clock.now()).expect("the token is new");
        Self { client, inbox: slipgate_client::Inbox::default(), clock, received: Vec::new(), end: None }
    }

    fn state(&self) -> ClientState {
        self.client.state()
    }

    fn end(&self) -> Option<CloseKind> {
        self.end
    }

    fn slot_info(&self) -> Option<(u32, u32)> {
        let server = self.client.server()?;
        server.client_index.map(|index| index.0).zip(server.max_clients)
    }

    fn received(&self) -> &[Vec<u8>] {
        &self.received
    }

    fn send(&mut self, payload: &[u8]) {
        self.client.send(payload).expect("the client is connected");
    }

    fn leave(&mut self) {
        self.client.disconnect();
    }
}
