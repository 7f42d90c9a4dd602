//! Players with tokens that the tests mint themselves.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_client::{Client, Clock, ConnectToken, EndReason, Event, Inbox};
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_os::clock::wall_clock;

use super::program::{PATIENCE, PRIVATE_KEY, PROTOCOL_ID};

/// What a token of these tests says.
pub(crate) struct Ticket {
    pub(crate) client_id: u64,
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) internal: Option<Vec<SocketAddr>>,
    pub(crate) protocol_id: u64,
    pub(crate) lifetime_seconds: u32,
    /// Long by default: a test machine may stand still for a while.
    pub(crate) timeout_seconds: i32,
    pub(crate) key: &'static str,
}

impl Ticket {
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

    /// A client that is refused gives up after 2 s.
    pub(crate) fn impatient(self) -> Self {
        Self { timeout_seconds: 2, ..self }
    }

    pub(crate) fn mint(&self) -> ConnectToken {
        let internal = self.internal.as_ref().map(|internal| Servers::new(internal).unwrap());
        let claims = Claims {
            protocol_id: self.protocol_id,
            client_id: self.client_id,
            servers: &Servers::new(&self.servers).unwrap(),
            internal_servers: internal.as_ref(),
            lifetime_seconds: self.lifetime_seconds,
            timeout_seconds: self.timeout_seconds,
            user_data: &[7; 256],
        };
        let mut entropy = StdRng::from_seed(slipgate_os::entropy::bytes().unwrap());
        issue(&claims, &Key::from_hex(self.key).unwrap(), wall_clock(), &mut entropy).unwrap()
    }
}

/// A client that is pumped by its test.
pub(crate) struct Player {
    client: Client,
    inbox: Inbox,
    clock: Clock,
    pub(crate) heard: Vec<Vec<u8>>,
    pub(crate) ended: Option<EndReason>,
}

impl Player {
    /// Begins to connect.
    pub(crate) fn new(token: ConnectToken) -> Self {
        let clock = Clock::start();
        let mut client = Client::new().unwrap();
        client.connect(token, clock.now()).unwrap();
        Self { client, inbox: Inbox::default(), clock, heard: Vec::new(), ended: None }
    }

    /// Connects.
    pub(crate) fn join(client_id: u64, server: SocketAddr) -> Self {
        Self::join_with(Ticket::new(client_id, server).mint())
    }

    pub(crate) fn join_with(token: ConnectToken) -> Self {
        let mut player = Self::new(token);
        player.until("connected", |player| {
            assert_eq!(player.ended, None);
            player.is_connected()
        });
        player
    }

    /// How the attempt ends that is refused.
    pub(crate) fn fail(token: ConnectToken) -> EndReason {
        let mut player = Self::new(token);
        player.until("refused", |player| {
            assert!(!player.is_connected(), "it was let in");
            player.ended.is_some()
        });
        player.ended.unwrap()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.state().is_connected()
    }

    pub(crate) fn leave(&mut self) {
        self.client.disconnect();
        self.turn();
    }

    /// One turn, of up to 10 ms.
    pub(crate) fn turn(&mut self) {
        self.client.wait(Duration::from_millis(10)).unwrap();
        self.client.begin_turn(self.clock.now());
        while let Some(event) = self.inbox.next(&mut self.client) {
            match event {
                Event::Connected { .. } => {}
                Event::Payload { bytes, .. } => self.heard.push(bytes.to_vec()),
                Event::Ended { reason } => self.ended = Some(reason),
                _ => {}
            }
        }
        self.client.end_turn();
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.client.begin_turn(self.clock.now());
        self.client.send(bytes).unwrap();
        self.client.end_turn();
    }

    pub(crate) fn has_heard(&self, bytes: &[u8]) -> bool {
        self.heard.iter().any(|heard| heard == bytes)
    }

    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        until(what, &mut [self], |players| done(&*players[0]));
    }

    /// Says something until it comes back: datagrams may be lost.
    pub(crate) fn echo(&mut self, bytes: &[u8]) {
        let begun = Instant::now();
        while !self.has_heard(bytes) {
            assert!(begun.elapsed() < PATIENCE, "no echo");
            self.say(bytes);
            let said = Instant::now();
            while !self.has_heard(bytes) && said.elapsed() < Duration::from_millis(500) {
                self.turn();
                assert_eq!(self.ended, None, "the session has ended");
            }
        }
    }
}

/// Pumps players until something is so.
pub(crate) fn until(what: &str, players: &mut [&mut Player], mut done: impl FnMut(&mut [&mut Player]) -> bool) {
    let begun = Instant::now();
    while !done(players) {
        let states: Vec<_> = players.iter().map(|player| player.client.state()).collect();
        assert!(begun.elapsed() < PATIENCE, "not {what}: {states:?}");
        players.iter_mut().for_each(|player| player.turn());
    }
}
