//! A client with channels, and a hostile server that holds the keys of its token.

#![no_main]

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::invented::invented_datagram;
use slipgate_fuzz::raw_server::{FromClient, RawServer};
use slipgate_fuzz::{Input, PROTOCOL_ID};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, NetcodeClient};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::{Instant, UnixSeconds};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::PacketKind;
use slipgate_netcode::wire::token::{PublicLayout, Servers};
use slipgate_netcode::wire::{
    CONNECT_TOKEN_BYTES, MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES, PRIVATE_TOKEN_BYTES, REQUEST_BYTES,
};
use slipgate_session::channel::transfer::{Transfer, TransferConfig};
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions};
use slipgate_session::client::{ClientSessionEvent, SessionClient};
use slipgate_session::connection::{CloseReason, ConnectionConfig, SessionMessage, Traffic};
use slipgate_session::wire::reliable::{Acks, ReliableHeader, Sequence};
use slipgate_session::wire::session_frame::{AckNonces, SessionFrame, Timestamp};

const KINDS: [Kind; 5] =
    [Kind::ReliableOrdered, Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::Transfers];
const TRANSFERS: ChannelId = ChannelId(4);
const MAX_MESSAGE_BYTES: u32 = 2000;
/// What a connection of this layout may hold.
const MAX_BYTES: usize = 512 << 10;
/// Packets that a connection keeps state for, sent and received.
const WINDOW: u16 = 256;
const TURN: Duration = Duration::from_millis(16);
/// The interval between two packets of a client that connects.
const PACE: Duration = Duration::from_millis(100);
const TIMEOUT_SECONDS: i32 = 5;
const LIFETIME: Duration = Duration::from_secs(30);
/// A silent server is given up by then: its token expires, or its connection times out after an end that waited.
const MAX_SILENCE: Duration = Duration::from_secs(45);
/// Messages of a turn: 4 ms of work, what a turn's time adds, and a packet beyond it, at 1.25 us each. A client that
/// did not read for longer takes more: 100 ms of work for each second, or 80 messages for each millisecond.
const MAX_MESSAGES_PER_TURN: usize = 5000;
const MAX_MESSAGES_PER_UNREAD_MILLISECOND: usize = 80;
const MAX_PACKETS_PER_TURN: usize = 256;
const MAX_OPERATIONS: usize = 200;

fuzz_target!(|input: &[u8]| World::new().run(&mut Input::new(input)));

static LAYOUT: LazyLock<Arc<Layout>> = LazyLock::new(|| {
    let channel = |kind| ChannelConfig {
        queue_bytes: 8000,
        queue_messages: 64,
        max_message_bytes: MAX_MESSAGE_BYTES,
        transfers: TransferConfig {
            slice_bytes: 256,
            max_transfer_bytes: 5000,
            max_bytes_at_once: 10_000,
            ..TransferConfig::default()
        },
        ..ChannelConfig::from(kind)
    };
    Arc::new(Layout::try_from(KINDS.map(channel).to_vec()).expect("settings to run with"))
});

/// Returns the addresses of the hostile server that tokens list.
fn homes() -> &'static [Address; 2] {
    static HOMES: LazyLock<[Address; 2]> = LazyLock::new(|| {
        ["10.0.9.1:40000", "[2001:db8::9]:40000"].map(|text| {
            let address: std::net::SocketAddr = text.parse().expect("an address");
            address.into()
        })
    });
    &HOMES
}

/// Returns the token with this number, which has keys of its own.
fn token(number: u8) -> ConnectToken {
    let mut bytes = [0; CONNECT_TOKEN_BYTES];
    let servers = homes().map(Address::socket_addr);
    let created = UnixSeconds(1_700_000_000);
    let public = PublicLayout {
        protocol_id: PROTOCOL_ID,
        created,
        expires: UnixSeconds(created.0 + LIFETIME.as_secs()),
        nonce: &[number; 24],
        sealed: &[number; PRIVATE_TOKEN_BYTES],
        timeout_seconds: TIMEOUT_SECONDS,
        // One server, or two.
        servers: Servers::new(&servers[..1 + usize::from(number & 1)]).expect("one or two"),
        client_to_server: &[number; 32],
        server_to_client: &[0xff - number; 32],
    };
    public.emit(&mut bytes);
    ConnectToken::from_bytes(&bytes).expect("what we write, we can read")
}

#[derive(Default)]
struct Sent {
    buf: Option<Box<[u8; MAX_DATAGRAM_BYTES]>>,
    datagrams: Vec<(Address, Vec<u8>)>,
}

impl Outbox for Sent {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        Some(self.buf.get_or_insert_with(|| Box::new([0; MAX_DATAGRAM_BYTES])))
    }

    fn commit(&mut self, to: Address, bytes: usize) {
        self.datagrams.extend(self.buf.as_ref().map(|buf| (to, buf[..bytes].to_vec())));
    }
}

/// A client's use of one token.
struct Attempt {
    server: RawServer,
    started: Duration,
    /// The slots that the client reported, at most one.
    slots: usize,
    ends: usize,
    /// The sequence numbers that the client used.
    numbers: BTreeSet<u64>,
    /// Bytes to and from the client before it had a slot.
    arrived: usize,
    sent: usize,
    /// The packet number of the session that the server used last.
    sequence: u16,
}

struct World {
    client: SessionClient,
    attempt: Attempt,
    tokens: u8,
    now: Duration,
    last_turn: Duration,
    messages_of_turn: usize,
    last_sent: Vec<Vec<u8>>,
}

impl World {
    fn new() -> Self {
        let mut client = SessionClient::new(NetcodeClient::new(TimeoutPolicy::Clamped), &Seed::from([9; 32]));
        let mut config = ConnectionConfig::default();
        // Short tables, because each run creates them.
        (config.endpoint.sent_window, config.endpoint.received_window) = (WINDOW, WINDOW);
        (config.endpoint.reassemblies, config.endpoint.rtt_history) = (16, 16);
        let traffic = Traffic::Channels(Arc::clone(&LAYOUT), config);
        client.set_traffic(traffic).expect("settings to run with");
        let now = Duration::ZERO;
        let mut world = Self {
            client,
            attempt: Attempt::new(&token(0), now),
            tokens: 0,
            now,
            last_turn: now,
            messages_of_turn: 0,
            last_sent: Vec::new(),
        };
        world.connect();
        world
    }

    fn clock(&self) -> Instant {
        Instant::from_start(self.now)
    }

    /// Connects with a new token, unless the client is connecting or connected.
    fn connect(&mut self) {
        self.take_events();
        let token = token(self.tokens);
        if self.client.connect(token.clone(), self.clock(), |_| true).is_ok() {
            self.attempt = Attempt::new(&token, self.now);
            self.tokens = self.tokens.wrapping_add(1);
            let again = self.client.connect(token, self.clock(), |_| true);
            assert!(again.is_err(), "a client connects once at a time");
        }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        for _ in 0..MAX_OPERATIONS {
            let Some(operation) = input.operation() else { break };
            self.perform(operation, input);
        }
        self.fall_silent();
        self.connect_to_an_honest_server();
    }

    fn perform(&mut self, operation: u8, input: &mut Input<'_>) {
        match operation & 15 {
            0..=2 | 4..=6 | 9 | 10 => {
                let datagram = self.datagram(operation, input);
                self.deliver(datagram);
            }
            3 => self.answer(),
            7 | 8 => self.flood(operation, input),
            11 => self.from_elsewhere(input),
            12 => self.send(input),
            13 => {
                self.check_work();
                self.now += Duration::from_millis(u64::from(input.u8()) << (operation >> 6));
            }
            14 => match operation >> 4 {
                0 => self.client.disconnect(),
                1 => self.connect(),
                _ => self.attempt.server.next_sequence = input.u64(),
            },
            _ => self.turn(),
        }
        if operation & 0x80 != 0 {
            self.turn();
        }
    }

    /// Returns a datagram of the server, an invented one, or one that the client sent with a byte changed.
    fn datagram(&mut self, operation: u8, input: &mut Input<'_>) -> Vec<u8> {
        let server = &mut self.attempt.server;
        match operation & 15 {
            0 => server.keep_alive(input.u8().into(), input.u8().into()),
            1 => server.challenge(input.u8()),
            2 if input.u8() & 1 == 0 => server.denial(),
            2 => server.disconnect(),
            4..=6 => {
                self.advance_sequence(operation >> 4, input);
                let payload = invented_datagram(operation >> 5, self.attempt.sequence, LAYOUT.hash(), input);
                self.attempt.server.payload(&payload[..payload.len().clamp(1, MAX_PAYLOAD_BYTES)])
            }
            9 => self.seal_any(input),
            _ => {
                let mut datagram = self.last_sent.first().cloned().unwrap_or_default();
                let at = usize::from(input.u8()) * datagram.len() / 256;
                datagram.get_mut(at).into_iter().for_each(|byte| *byte ^= operation >> 4);
                datagram
            }
        }
    }

    fn advance_sequence(&mut self, how: u8, input: &mut Input<'_>) {
        let step = if how & 1 == 0 { 1 } else { u16::from(input.u8()) << 5 };
        self.attempt.sequence = self.attempt.sequence.wrapping_add(step);
    }

    /// Sends a challenge or a slot, as an honest server does.
    fn answer(&mut self) {
        let datagram = match self.client.state() {
            ClientState::SendingRequest => self.attempt.server.challenge(7),
            _ => self.attempt.server.keep_alive(0, 4),
        };
        self.deliver(datagram);
    }

    /// Presents one frame of the input, repeated to fill packets, under new numbers.
    fn flood(&mut self, operation: u8, input: &mut Input<'_>) {
        let channel = input.u8() % 6;
        let flags = if operation & 0x10 == 0 { 0 } else { 0x40 };
        let mut frame = vec![(channel + 1) | flags];
        frame.extend((0..1 + input.u8() % 12).map(|_| input.u8()));
        let mut frames = frame.repeat(1 + usize::from(input.u8()) * 4);
        frames.truncate(1100);
        for _ in 0..=(operation >> 5) * 8 {
            self.attempt.sequence = self.attempt.sequence.wrapping_add(1);
            let sequence = self.attempt.sequence;
            let mut buf = [0; 1200];
            let mut writer = Writer::new(&mut buf);
            ReliableHeader { sequence: Sequence(sequence), acks: Acks::NONE }.emit(&mut writer);
            SessionFrame { sent: Timestamp(sequence), nonces: AckNonces::default(), arrived: None, extended_acks: &[] }
                .emit(&mut writer);
            writer.bytes(&frames);
            let written = writer.written().expect("the buffer is large enough");
            let datagram = self.attempt.server.payload(&buf[..written]);
            self.deliver(datagram);
        }
    }

    /// Returns a packet of any kind, size and number, with the right keys.
    fn seal_any(&mut self, input: &mut Input<'_>) -> Vec<u8> {
        const ANY: [PacketKind; 6] = [
            PacketKind::Denied,
            PacketKind::Challenge,
            PacketKind::Response,
            PacketKind::KeepAlive,
            PacketKind::Payload,
            PacketKind::Disconnect,
        ];
        let (kind, size, lane) = (ANY[usize::from(input.u8()) % ANY.len()], usize::from(input.u8()) * 6, input.u8());
        let content = vec![lane; size];
        match lane & 3 {
            0 => self.attempt.server.seal_at(input.u64(), kind, &content),
            1 => self.attempt.server.seal_at(u64::MAX - u64::from(input.u8()), kind, &content),
            _ => self.attempt.server.seal(kind, &content),
        }
    }

    fn from_elsewhere(&mut self, input: &mut Input<'_>) {
        let from: Address = input.address().into();
        let mut datagram = self.attempt.server.challenge(1);
        if !homes().contains(&from) {
            let dropped = self.client.handle(from, &mut datagram, &mut Vec::new(), self.clock());
            assert!(dropped.is_err(), "a packet from an address that the token does not list");
        }
    }

    /// Sends what a game sends.
    fn send(&mut self, input: &mut Input<'_>) {
        let (what, bytes) = (input.u8(), usize::from(input.u8()) * 8);
        let now = self.clock();
        let Ok(connection) = self.client.connection_mut() else { return };
        if what % 6 == 5 {
            if let Some(transfer) = Transfer::new(vec![what; bytes.max(1)]) {
                let _ = connection.channels.send_transfer(TRANSFERS, transfer, 0);
            }
        } else {
            let _ = connection.send(ChannelId(what % 4), &vec![what; bytes], SendOptions::default(), now);
        }
    }

    fn deliver(&mut self, mut datagram: Vec<u8>) {
        let (now, mut scratch) = (self.clock(), Vec::new());
        if self.client.state() != ClientState::Connected {
            self.attempt.arrived += datagram.len();
        }
        let from = self.client.netcode.server().unwrap_or(homes()[0]);
        let received = self.client.handle(from, &mut datagram, &mut scratch, now);
        if let Ok(Some(mut received)) = received {
            while let Some(message) = self.client.next_message(&datagram, &mut received, &mut scratch, now) {
                let SessionMessage::Channel { span, .. } = message else { unreachable!("only channels") };
                assert!(span.bytes(&datagram, &scratch).len() <= MAX_MESSAGE_BYTES as usize);
                self.messages_of_turn += 1;
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            match event {
                ClientSessionEvent::Connected { client_index, max_clients } => {
                    assert!(client_index.0 < max_clients, "slot {client_index} of {max_clients}");
                    self.attempt.slots += 1;
                }
                ClientSessionEvent::Ended { reason } | ClientSessionEvent::Redirected { reason, .. } => {
                    assert_no_control_characters(&reason);
                    self.attempt.ends += 1;
                }
                _ => {}
            }
        }
        assert!(self.attempt.slots <= 1 && self.attempt.ends <= 1, "an attempt connects and ends once");
    }

    /// Checks how many messages arrived at one moment: later ones have a new budget.
    fn check_work(&mut self) {
        let messages = std::mem::take(&mut self.messages_of_turn);
        let unread = (self.now - self.last_turn).as_millis() as usize * MAX_MESSAGES_PER_UNREAD_MILLISECOND;
        assert!(messages <= MAX_MESSAGES_PER_TURN + unread, "{messages} messages in a turn");
    }

    fn turn(&mut self) {
        self.check_work();
        self.now += TURN;
        self.last_turn = self.now;
        let (now, mut outbox) = (self.clock(), Sent::default());
        let connects = self.attempt.slots == 0;
        self.client.tick(now);
        self.client.transmit(now, &mut outbox);
        self.take_events();
        self.check_sent(&outbox.datagrams, connects);
        self.last_sent = outbox.datagrams.into_iter().map(|(_, datagram)| datagram).collect();
        if let Some(connection) = self.client.connection() {
            let held = connection.channels.memory_bytes();
            assert!(held <= MAX_BYTES, "{held} bytes");
        }
    }

    /// Checks what the client sent in a turn.
    fn check_sent(&mut self, sent: &[(Address, Vec<u8>)], connects: bool) {
        assert!(sent.len() <= MAX_PACKETS_PER_TURN, "{} packets in a turn", sent.len());
        for (to, datagram) in sent {
            assert!(homes().contains(to), "a datagram for another address");
            match self.attempt.server.read(datagram) {
                Some(FromClient::Request) => {}
                Some(FromClient::Sealed(_, number, _)) => {
                    assert!(self.attempt.numbers.insert(number), "the client used a number twice");
                }
                // The disconnects of the attempt before leave with the first request of the next one.
                None => assert!(self.tokens > 1, "a packet under unknown keys"),
            }
            self.attempt.sent += datagram.len();
        }
        if connects {
            let paced = 1 + ((self.now - self.attempt.started).as_millis() / PACE.as_millis()) as usize;
            let disconnects = 10 * 2 * 32;
            let own = (paced + homes().len()) * REQUEST_BYTES + disconnects;
            let Attempt { sent, arrived, .. } = self.attempt;
            assert!(sent <= own + arrived, "{sent} bytes for {arrived}, and {own} of its own pace");
        }
    }

    /// Asserts that a client ends when its server falls silent.
    fn fall_silent(&mut self) {
        self.turn();
        // A long step would count as a sleep of the program.
        let steps = MAX_SILENCE.as_millis() / 500;
        for _ in 0..steps {
            self.now += Duration::from_millis(500) - TURN;
            self.turn();
        }
        assert!(!self.client.state().is_active(), "{:?} after the silence", self.client.state());
        assert_eq!(self.attempt.ends, 1, "each attempt ends with an event");
    }

    /// Asserts that the same client connects to a server that replies.
    fn connect_to_an_honest_server(&mut self) {
        self.connect();
        for _ in 0..4 {
            self.turn();
            self.answer();
        }
        assert_eq!(self.client.state(), ClientState::Connected);
    }
}

impl Attempt {
    fn new(token: &ConnectToken, started: Duration) -> Self {
        Self {
            server: RawServer::new(token),
            started,
            slots: 0,
            ends: 0,
            numbers: BTreeSet::new(),
            arrived: 0,
            sent: 0,
            sequence: 0,
        }
    }
}

/// Asserts that what a game shows controls neither a terminal nor a log.
fn assert_no_control_characters(reason: &CloseReason) {
    let changes_direction = |character| {
        matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(character, '\u{2066}'..='\u{2069}')
    };
    let is_control = |character: char| character.is_control() || changes_direction(character);
    for text in [reason.text.clone(), reason.to_string()] {
        assert!(text.len() <= 256 && !text.chars().any(is_control), "{text:?}");
    }
}
