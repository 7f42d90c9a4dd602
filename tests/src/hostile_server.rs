//! A hostile server against our client, beside an honest server with a client of the same program.
//!
//! The hostile server holds the keys of the token, and a test chooses its datagrams. The world checks every turn: the
//! client sends to the token's servers alone, sends no more than its own pace and its replies, and works no more than
//! its budget allows; what it reports about an end has no control characters.

use std::sync::Arc;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::Instant;
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::REQUEST_BYTES;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_session::channel::{ChannelId, Layout};
use slipgate_session::client::{ClientSessionEvent, SessionClient};
use slipgate_session::connection::{CloseReason, ConnectionConfig, Memory, SessionMessage, Traffic};
use slipgate_sim::Conditions;

use crate::counting::{bytes, peak};
use crate::netcode_world::{NetcodeWorld, TokenSpec, VecOutbox, address};
use crate::raw_server::{FromClient, RawServer};
use crate::session_world::SessionWorld;

/// The channel of the honest client, which every layout of these tests has.
const HONEST_CHANNEL: ChannelId = ChannelId(0);
/// The interval between two packets of a client that connects.
const PACE: Duration = Duration::from_millis(100);
/// The estimated work of a turn: a burst of 4 ms, 100 ms per second, and one packet beyond it.
const MAX_TURN_WORK: Duration = Duration::from_micros(4000 + 1600 + 1000);
/// The estimated work of a packet, and of a message with its frame (`specs/session-1.md`, §5.11).
const PACKET_WORK: Duration = Duration::from_micros(2);
const MESSAGE_WORK: Duration = Duration::from_nanos(1250);
/// Packets of a connected client in one turn: its pace on a path without losses, and its last ten disconnects.
const MAX_PACKETS_PER_TURN: usize = 64;
/// The events of a turn.
const MAX_EVENTS_PER_TURN: usize = 4096;

/// What the client reported and used so far.
#[derive(Default)]
pub struct ClientReport {
    /// The slots that the client reported, each with the number of slots.
    pub slots: Vec<(u32, u32)>,
    /// Why the connection or the attempt ended.
    pub end: Option<CloseReason>,
    /// The token of the redirect that ended the connection instead.
    pub redirect: Option<ConnectToken>,
    /// The number of messages that reached the game.
    pub messages: usize,
    /// The payload of the last message.
    pub last_message: Vec<u8>,
    /// The largest number of bytes that the client held.
    pub peak_bytes: i64,
    /// The largest estimated work of a turn.
    pub turn_work: Duration,
    /// The largest measured duration of a turn.
    pub turn_time: Duration,
}

/// A hostile server, its client, and an honest server with a client.
pub struct HostileServerWorld {
    /// The client of the hostile server.
    pub client: SessionClient,
    /// The hostile server.
    pub server: RawServer,
    /// The addresses of the hostile server.
    pub homes: Vec<Address>,
    /// What the client sent in the last turn.
    pub sent: Vec<(Address, FromClient)>,
    /// The same as datagrams.
    pub sent_datagrams: Vec<Vec<u8>>,
    /// What the client reported and used so far.
    pub report: ClientReport,
    turn: Turn,
    honest: SessionWorld,
    honest_sent: u64,
    /// The bytes that the client holds.
    held: i64,
    started: Instant,
    /// Bytes to and from the client before it had a slot.
    handshake_bytes: (usize, usize),
}

impl HostileServerWorld {
    /// Creates a world in which a client begins to connect to the hostile server under `servers` addresses.
    ///
    /// # Panics
    /// If the settings are invalid.
    #[must_use]
    pub fn new(layout: &Arc<Layout>, servers: usize) -> Self {
        let mut honest = SessionWorld::new(2, layout, &ConnectionConfig::default(), Memory::default());
        honest.join(Conditions { latency: Duration::from_millis(20), ..Conditions::perfect() });
        let homes: Vec<_> = (1..=servers).map(|at| address(&format!("10.0.9.{at}:40000"))).collect();
        let spec = TokenSpec { client_id: 1, servers: homes.clone(), lifetime: 45, timeout: 5, user_data: [0; 256] };
        let token = NetcodeWorld::perfect(1).mint(&spec);
        let server = RawServer::new(&token);
        let before = bytes();
        let mut client = SessionClient::new(NetcodeClient::new(TimeoutPolicy::Clamped), &Seed::from([9; 32]));
        client.set_traffic(Traffic::Channels(Arc::clone(layout), ConnectionConfig::default())).expect("valid settings");
        let started = honest.now().monotonic;
        client.connect(token, started, |_| true).expect("an idle client accepts a token");
        let held = bytes() - before;
        Self {
            client,
            server,
            homes,
            sent: Vec::new(),
            sent_datagrams: Vec::new(),
            report: ClientReport::default(),
            turn: Turn::with_room(),
            honest,
            honest_sent: 0,
            held,
            started,
            handshake_bytes: (0, 0),
        }
    }

    /// Returns a world in which the client has slot 0 of 4.
    ///
    /// # Panics
    /// If the client does not connect within 10 turns.
    #[must_use]
    pub fn connected(layout: &Arc<Layout>) -> Self {
        let mut world = Self::new(layout, 1);
        for _ in 0..10 {
            let answer = match world.sent.last() {
                Some((_, FromClient::Request)) => vec![world.server.challenge(7)],
                Some((_, FromClient::Sealed(PacketKind::Response, ..))) => vec![world.server.keep_alive(0, 4)],
                _ => Vec::new(),
            };
            world.turn_from_home(answer);
            if world.client.state() == ClientState::Connected {
                return world;
            }
        }
        panic!("the client did not connect");
    }

    /// Returns the clock of the client.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.honest.now().monotonic
    }

    /// Runs a turn in which these datagrams arrive from the first address of the server.
    pub fn turn_from_home(&mut self, datagrams: Vec<Vec<u8>>) {
        let home = self.homes[0];
        self.turn(datagrams.into_iter().map(|datagram| (home, datagram)).collect());
    }

    /// Runs a turn in which these payloads arrive.
    pub fn turn_of_payloads(&mut self, payloads: Vec<Vec<u8>>) {
        let datagrams = payloads.iter().map(|payload| self.server.payload(payload)).collect();
        self.turn_from_home(datagrams);
    }

    /// Runs a turn in which these datagrams arrive at the client.
    ///
    /// # Panics
    /// If the client breaks a law.
    pub fn turn(&mut self, mut datagrams: Vec<(Address, Vec<u8>)>) {
        self.honest_turn();
        let (now, connects) = (self.now(), self.client.state() != ClientState::Connected);
        let arrived: usize = datagrams.iter().map(|(_, datagram)| datagram.len()).sum();
        let (before, begin) = (bytes(), std::time::Instant::now());
        // Nothing but the client allocates here, so the change of the held bytes is its own.
        let ((), high) = peak(|| self.turn.run(&mut self.client, &mut datagrams, now));
        self.report.turn_time = self.report.turn_time.max(begin.elapsed());
        self.report.peak_bytes = self.report.peak_bytes.max(self.held + high);
        self.held += bytes() - before;
        if connects {
            self.handshake_bytes.0 += arrived;
        }
        let sent = self.turn.sent();
        self.check_sent(&sent, connects);
        self.check_work();
        self.take_report();
        self.sent = sent.iter().filter_map(|(to, datagram)| Some((*to, self.server.read(datagram)?))).collect();
        assert_eq!(self.sent.len(), sent.len(), "each packet is a request or sealed under the keys of the token");
        self.sent_datagrams = sent.into_iter().map(|(_, datagram)| datagram).collect();
    }

    fn take_report(&mut self) {
        self.report.messages += self.turn.messages;
        self.report.slots.append(&mut self.turn.slots);
        if self.turn.messages > 0 {
            self.report.last_message = self.turn.last_message.clone();
        }
        if let Some(token) = self.turn.redirect.take() {
            assert!(self.report.redirect.is_none() && self.report.end.is_none(), "a connection ends once");
            self.report.redirect = Some(token);
        }
        if let Some(end) = self.turn.end.take() {
            assert_no_control_characters(&end);
            assert_eq!(self.report.end, None, "an attempt ends once");
            self.report.end = Some(end);
        }
    }

    /// The honest client and its server exchange a message in each turn.
    fn honest_turn(&mut self) {
        let number = self.honest_sent.to_le_bytes();
        self.honest.send_to_server(1, HONEST_CHANNEL, &number).expect("space in the queue");
        let handle = self.honest.handle(1).expect("the honest client stays connected");
        self.honest.send_to_client(handle, HONEST_CHANNEL, &number).expect("space in the queue");
        self.honest_sent += 1;
        self.honest.turn();
    }

    /// Asserts that the client wrote to the token's servers alone, and no more than its pace and its replies.
    fn check_sent(&mut self, sent: &[(Address, Vec<u8>)], connects: bool) {
        assert!(sent.iter().all(|(to, _)| self.homes.contains(to)), "a datagram for another address");
        assert!(sent.len() <= MAX_PACKETS_PER_TURN, "{} packets in a turn", sent.len());
        if !connects {
            return;
        }
        self.handshake_bytes.1 += sent.iter().map(|(_, datagram)| datagram.len()).sum::<usize>();
        let paced = 1 + (self.now().since(self.started).as_millis() / PACE.as_millis()) as usize;
        // A denial makes the client ask the token's next server at once.
        let own = (paced + self.homes.len()) * REQUEST_BYTES;
        let (arrived, sent) = self.handshake_bytes;
        assert!(sent <= own + arrived, "{sent} bytes for {arrived}, and {own} of its own pace");
    }

    fn check_work(&mut self) {
        let turn = &self.turn;
        let work = PACKET_WORK * turn.packets as u32 + MESSAGE_WORK * turn.messages as u32;
        self.report.turn_work = self.report.turn_work.max(work);
        assert!(work <= MAX_TURN_WORK, "{} packets and {} messages in a turn", turn.packets, turn.messages);
        assert!(turn.events <= MAX_EVENTS_PER_TURN, "{} events in a turn", turn.events);
    }

    /// Asserts that the honest client got every message, and that the attacked one connects to an honest server.
    ///
    /// # Panics
    /// If one of them did not.
    pub fn assert_others_unaffected(&mut self, what: &str) {
        for _ in 0..20 {
            self.honest.turn();
        }
        let up = self.honest.messages.len() as u64;
        let down = self.honest.player(1).messages.len() as u64;
        assert_eq!((up, down), (self.honest_sent, self.honest_sent), "{what}: messages of the honest client");
        self.assert_connects_again(what);
    }

    /// Asserts that the client object connects to an honest server with a new token.
    fn assert_connects_again(&mut self, what: &str) {
        self.client.disconnect();
        while self.client.poll_event().is_some() {}
        let token = self.honest.token_for(99, 45 + self.now().since_start().as_secs() as u32);
        self.client.connect(token, self.now(), |_| true).unwrap_or_else(|error| panic!("{what}: {error}"));
        let from = address("10.1.9.9:5000");
        for _ in 0..20 {
            let (now, home) = (self.now(), self.honest.server_address);
            let replies = std::mem::take(&mut self.honest.replies);
            let mut replies: Vec<_> = replies.into_iter().map(|(_, datagram)| (home, datagram)).collect();
            self.turn.run(&mut self.client, &mut replies, now);
            // The disconnects of the last connection come first.
            for (_, datagram) in self.turn.sent().into_iter().filter(|(to, _)| *to == home) {
                self.honest.present(from, datagram);
            }
            self.honest.turn();
        }
        assert_eq!(self.client.state(), ClientState::Connected, "{what}: the client connects again");
    }
}

/// What happened in one turn of the client. All lists have room, so that only the client allocates in a turn.
struct Turn {
    /// Packets that were not refused.
    packets: usize,
    messages: usize,
    last_message: Vec<u8>,
    events: usize,
    slots: Vec<(u32, u32)>,
    end: Option<CloseReason>,
    redirect: Option<ConnectToken>,
    sent_bytes: Vec<u8>,
    sent: Vec<(Address, usize)>,
}

impl Turn {
    fn with_room() -> Self {
        Self {
            packets: 0,
            messages: 0,
            last_message: Vec::with_capacity(64 << 10),
            events: 0,
            slots: Vec::with_capacity(16),
            end: None,
            redirect: None,
            sent_bytes: Vec::with_capacity(1 << 20),
            sent: Vec::with_capacity(1 << 10),
        }
    }

    fn run(&mut self, client: &mut SessionClient, datagrams: &mut [(Address, Vec<u8>)], now: Instant) {
        (self.packets, self.messages, self.events) = (0, 0, 0);
        self.sent_bytes.clear();
        self.sent.clear();
        let (mut scratch, mut outbox) = (Vec::new(), VecOutbox::default());
        for (from, datagram) in datagrams {
            let Ok(Some(mut received)) = client.handle(*from, datagram, &mut scratch, now) else { continue };
            self.packets += 1;
            while let Some(message) = client.next_message(datagram, &mut received, &mut scratch, now) {
                self.messages += 1;
                if let SessionMessage::Channel { span, .. } = message {
                    self.last_message.clear();
                    self.last_message.extend(span.bytes(datagram, &scratch));
                }
            }
        }
        self.take_events(client);
        client.tick(now);
        client.transmit(now, &mut outbox);
        self.take_events(client);
        for (to, datagram) in outbox.datagrams {
            self.sent_bytes.extend(&datagram);
            self.sent.push((to, datagram.len()));
        }
    }

    /// Returns the destinations and the datagrams that the client sent.
    fn sent(&self) -> Vec<(Address, Vec<u8>)> {
        let mut rest = &self.sent_bytes[..];
        let mut take = |bytes| rest.split_off(..bytes).expect("each datagram was copied").to_vec();
        self.sent.iter().map(|(to, bytes)| (*to, take(*bytes))).collect()
    }

    fn take_events(&mut self, client: &mut SessionClient) {
        while let Some(event) = client.poll_event() {
            self.events += 1;
            match event {
                ClientSessionEvent::Connected { client_index, max_clients } => {
                    self.slots.push((client_index.0, max_clients));
                }
                ClientSessionEvent::Ended { reason } => self.end = Some(reason),
                ClientSessionEvent::Redirected { token, .. } => self.redirect = Some(*token),
                _ => {}
            }
        }
    }
}

/// Asserts that neither the text of the server nor the sentence for the player controls a terminal, a log or the
/// direction of writing.
fn assert_no_control_characters(end: &CloseReason) {
    let is_control = |character: char| {
        character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
    };
    for text in [end.text.clone(), end.to_string(), format!("{end:?}"), end.kind.name().to_owned()] {
        assert!(!text.chars().any(is_control), "{text:?}");
        assert!(text.len() < 1024, "{} bytes of text", text.len());
    }
}
