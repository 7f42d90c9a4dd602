//! Test clients, and tokens that the tests mint.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::{Client, Clock, CloseKind, ConnectToken, Event, Inbox};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::wall_clock;

use super::program::{MAX_WAIT, PRIVATE_KEY, PROTOCOL_ID};

/// The claims of a token.
pub(crate) struct TestToken {
    pub(crate) client_id: u64,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) internal: Option<Vec<SocketAddr>>,
    pub(crate) protocol_id: u64,
    pub(crate) lifetime_seconds: u32,
    /// Long by default, because a test machine may stall.
    pub(crate) timeout_seconds: i32,
    pub(crate) key: &'static str,
}

impl TestToken {
    pub(crate) fn new(client_id: u64, server: SocketAddr) -> Self {
        Self {
            client_id,
            servers: vec![server],
            internal: None,
            protocol_id: PROTOCOL_ID,
            lifetime_seconds: 45,
            timeout_seconds: 20,
            key: PRIVATE_KEY,
        }
    }

    /// Sets a timeout of 4 s, for clients that the server is expected to refuse.
    pub(crate) fn with_short_timeout(self) -> Self {
        Self { timeout_seconds: 4, ..self }
    }

    pub(crate) fn mint(&self) -> ConnectToken {
        self.mint_at(wall_clock())
    }

    /// Mints the token by an issuer's clock that shows `now`.
    pub(crate) fn mint_at(&self, now: UnixMillis) -> ConnectToken {
        let internal = self.internal.as_ref().map(|internal| Servers::new(internal).unwrap());
        let claims = Claims {
            protocol_id: self.protocol_id,
            client_id: self.client_id.into(),
            servers: &Servers::new(&self.servers).unwrap(),
            internal_servers: internal.as_ref(),
            lifetime_seconds: self.lifetime_seconds,
            timeout_seconds: self.timeout_seconds,
            user_data: &[7; 256],
        };
        let mut entropy = StdRng::from_seed(slipgate_os::entropy::bytes().unwrap());
        issue(&claims, &self.key.parse::<Key>().unwrap(), now, &mut entropy).unwrap()
    }
}

/// A client that runs in the test's thread.
pub(crate) struct TestClient {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    pub(crate) received: Vec<Vec<u8>>,
    pub(crate) ended: Option<CloseKind>,
}

impl TestClient {
    /// Starts to connect.
    pub(crate) fn new(token: ConnectToken) -> Self {
        let clock = Clock::start();
        let mut client = Client::new().unwrap();
        client.connect(token, clock.now()).unwrap();
        Self { client, inbox: Inbox::default(), clock, received: Vec::new(), ended: None }
    }

    /// Connects and waits until connected.
    pub(crate) fn join(client_id: u64, server: SocketAddr) -> Self {
        Self::join_with(TestToken::new(client_id, server).mint())
    }

    pub(crate) fn join_with(token: ConnectToken) -> Self {
        let mut client = Self::new(token);
        client.until("connected", |client| {
            assert_eq!(client.ended, None);
            client.is_connected()
        });
        client
    }

    /// Returns the reason for which the server refuses the token.
    pub(crate) fn fail(token: ConnectToken) -> CloseKind {
        let mut client = Self::new(token);
        client.until("refused", |client| {
            assert!(!client.is_connected(), "the server accepted the client");
            client.ended.is_some()
        });
        client.ended.unwrap()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.state().is_connected()
    }

    pub(crate) fn leave(&mut self) {
        self.client.disconnect();
        self.turn();
    }

    /// Runs one turn of up to 10 ms.
    pub(crate) fn turn(&mut self) {
        self.client.wait(Duration::from_millis(10)).unwrap();
        self.poll();
    }

    /// Runs one turn without waiting.
    pub(crate) fn poll(&mut self) {
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { .. } => {}
                Event::Payload { bytes, .. } => self.received.push(bytes.to_vec()),
                Event::Ended { reason } => self.ended = Some(reason.kind),
                _ => {}
            }
        }
        self.client.end_turn();
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.client.begin_turn(self.clock.now());
        self.client.send(bytes).unwrap();
        self.client.end_turn();
    }

    pub(crate) fn has_received(&self, bytes: &[u8]) -> bool {
        self.received.iter().any(|received| received == bytes)
    }

    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        until(what, &mut [self], |clients| done(&*clients[0]));
    }

    /// Repeats a payload until its echo arrives, because datagrams may be lost.
    pub(crate) fn echo(&mut self, bytes: &[u8]) {
        let start = Instant::now();
        while !self.has_received(bytes) {
            assert!(start.elapsed() < MAX_WAIT, "no echo");
            self.send(bytes);
            let sent = Instant::now();
            while !self.has_received(bytes) && sent.elapsed() < Duration::from_millis(500) {
                self.turn();
                assert_eq!(self.ended, None, "the session has ended");
            }
        }
    }
}

/// Runs clients until the condition holds.
pub(crate) fn until(what: &str, clients: &mut [&mut TestClient], mut done: impl FnMut(&mut [&mut TestClient]) -> bool) {
    let start = Instant::now();
    while !done(clients) {
        let states: Vec<_> = clients.iter().map(|client| client.client.state()).collect();
        assert!(start.elapsed() < MAX_WAIT, "not {what}: {states:?}");
        clients.iter_mut().for_each(|client| client.turn());
    }
}
