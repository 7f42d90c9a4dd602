//! A server with several sessions: a malicious client with a valid token beside two honest ones. The target takes
//! messages as the inbox of the real server does.

#![no_main]

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::acknowledging::Acknowledging;
use slipgate_fuzz::invented::invented_datagram;
use slipgate_fuzz::{Input, PROTOCOL_ID, key};
use slipgate_netcode::Outbox;
use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::server::{ClientHandle, NetcodeServer, ServerConfig};
use slipgate_netcode::time::{Instant, Now, UnixMillis};
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};
use slipgate_session::channel::transfer::{TransferAdmission, TransferConfig};
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout, SendOptions, search_steps};
use slipgate_session::connection::{
    Connection, ConnectionConfig, Intake, Memory, Role, SessionMessage, Traffic, WorkLimits,
};
use slipgate_session::reliability::Sink;
use slipgate_session::server::{ClientDatagram, SessionEvent, SessionServer};
use slipgate_session::wire::reliable::{ReliableHeader, Sequence};

#[path = "../../tests/src/counting.rs"]
#[allow(dead_code, unreachable_pub)] // Shared with the tests, which use more of it.
mod counting;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const KINDS: [Kind; 5] =
    [Kind::ReliableOrdered, Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::Transfers];
const ORDERED: ChannelId = ChannelId(0);
const HONEST: usize = 2;
const TURN: Duration = Duration::from_millis(10);
/// Turns after the script in which the last messages of the honest clients return.
const LAST_TURNS: usize = 8;
/// Turns after which a message of an honest client has returned, whatever the malicious client sends in between.
const MAX_REPLY_TURNS: usize = 4;
/// The messages that a client takes on credit: those that are delivered in a row although it owes work.
const MAX_ON_CREDIT: u64 = 64;
/// The messages of a window. Its list of 16 bytes for each counts as memory.
const MESSAGES: u16 = 4096;
/// Replies that wait on each channel of the malicious client at most.
const MAX_REPLIES: u16 = 64;
/// Packets that a connection keeps state for, sent and received.
const WINDOW: u16 = 256;
/// The memory that all clients of the server share for messages, and the same for transfers.
const SHARED_BYTES: usize = 100_000;
/// What a client may make the server hold beside that memory.
const MAX_OWN_BYTES: usize = 256 << 10;
/// What the honest clients and the target itself hold at most.
const MAX_OTHER_BYTES: usize = 64 << 10;
/// A step of a search takes at most as many nanoseconds. The estimated work of a packet pays for its steps.
const STEP_WORK: u64 = 20;

fuzz_target!(|input: &[u8]| World::new().run(&mut Input::new(input)));

static LAYOUT: LazyLock<Arc<Layout>> = LazyLock::new(|| {
    let channel = |kind| ChannelConfig {
        queue_bytes: 8000,
        queue_messages: MESSAGES,
        max_message_bytes: 2000,
        transfers: TransferConfig {
            slice_bytes: 256,
            max_transfer_bytes: 5000,
            max_bytes_at_once: 10_000,
            admission: TransferAdmission::Automatic,
            ..TransferConfig::default()
        },
        ..ChannelConfig::from(kind)
    };
    Arc::new(Layout::try_from(KINDS.map(channel).to_vec()).expect("settings to run with"))
});

/// Returns the settings of every connection: the defaults, with short tables, because each run creates them.
fn settings() -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    (config.endpoint.sent_window, config.endpoint.received_window) = (WINDOW, WINDOW);
    (config.endpoint.reassemblies, config.endpoint.rtt_history) = (16, 16);
    config
}

/// Nothing leaves the process, so nothing may be written here.
struct NoNetwork;

impl Outbox for NoNetwork {
    fn remaining(&self) -> usize {
        64
    }

    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]> {
        unreachable!("all clients are in the same process");
    }

    fn commit(&mut self, _to: Address, _bytes: usize) {
        unreachable!("all clients are in the same process");
    }
}

/// The packets of one turn of a client.
#[derive(Default)]
struct Packets {
    buf: Vec<u8>,
    packets: Vec<Vec<u8>>,
}

impl Sink for Packets {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.buf.resize(MAX_PAYLOAD_BYTES, 0);
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.packets.push(self.buf[..bytes].to_vec());
    }
}

/// An honest client, which sends a numbered message in each turn, and expects each back once and soon, in order.
struct Honest {
    client: ClientHandle,
    connection: Connection,
    /// The turn of each message.
    sent: Vec<usize>,
    echoed: u32,
}

impl Honest {
    fn receive(&mut self, payload: &[u8], now: Instant) {
        let mut scratch = Vec::new();
        let Ok(Some(mut cursor)) = self.connection.handle(payload, Duration::ZERO, now) else { return };
        while let Some(message) = self.connection.next_message(payload, &mut cursor, &mut scratch, now) {
            assert_eq!(message.span.bytes(payload, &scratch), self.echoed.to_le_bytes());
            self.echoed += 1;
        }
    }

    /// Fails if a message has waited too long for its reply.
    fn check_replies(&self, turn: usize) {
        if let Some(sent) = self.sent.get(self.echoed as usize) {
            assert!(turn - sent < MAX_REPLY_TURNS, "message {} of turn {sent} in turn {turn}", self.echoed);
        }
    }
}

/// A datagram with messages that wait until the application takes them, or until its sender has budget again.
struct Parked {
    client: ClientHandle,
    payload: Vec<u8>,
    received: ClientDatagram,
}

struct World {
    server: SessionServer,
    now: Duration,
    turns: usize,
    /// The bytes held at the start.
    bytes: i64,
    parked: VecDeque<Parked>,
    malicious: ClientHandle,
    acknowledging: Acknowledging,
    intake: Intake,
    sequence: u16,
    /// The messages of the malicious client.
    flood_messages: u64,
    honest: [Honest; HONEST],
}

impl World {
    fn new() -> Self {
        let advertised = "127.0.0.1:40000".parse().expect("an address");
        let mut config = ServerConfig::new(PROTOCOL_ID, 1 + HONEST as u32, &[advertised]);
        // Clients in the same process use no tokens.
        (config.pending_clients, config.history_tokens) = (1, 1);
        let now = now(Duration::ZERO);
        let netcode =
            NetcodeServer::new(config, key().into(), &Seed::from([1; 32]), now).expect("settings to run with");
        let traffic = Traffic::Channels(Arc::clone(&LAYOUT), settings());
        let memory = Memory::new(SHARED_BYTES, SHARED_BYTES);
        let mut server = SessionServer::new(netcode, traffic, memory).expect("settings to run with");
        let mut join = |id: u64| server.connect_loopback(id.into(), [0; 256], now).expect("a slot");
        let malicious = join(1);
        let honest = [2, 3].map(|id| {
            let connection =
                Connection::new(&settings(), Arc::clone(&LAYOUT), Role::Client, None).expect("settings to run with");
            Honest { client: join(id), connection, sent: Vec::new(), echoed: 0 }
        });
        Self {
            server,
            now: Duration::ZERO,
            turns: 0,
            bytes: counting::bytes(),
            parked: VecDeque::new(),
            malicious,
            acknowledging: Acknowledging::default(),
            intake: Intake::Open,
            sequence: 0,
            flood_messages: 0,
            honest,
        }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        while let Some(operation) = input.operation() {
            match operation & 7 {
                0..=1 => {
                    self.advance_sequence(operation >> 3, input);
                    let payload = invented_datagram(operation >> 4, self.sequence, LAYOUT.hash(), input);
                    self.present(self.malicious, &payload);
                }
                2..=5 => {
                    self.advance_sequence(operation >> 3, input);
                    let payload = self.frames(operation, input);
                    // The same packet again and again, with new numbers, as a flood.
                    for _ in 0..=(operation >> 5) * 8 {
                        self.sequence = self.sequence.wrapping_add(1);
                        let header = self.header(&payload);
                        self.present(self.malicious, &header);
                    }
                }
                6 => self.turn(),
                _ if operation >> 3 == 31 => self.change_intake(),
                _ if operation >> 3 == 30 => self.acknowledging.alter(input),
                _ => self.now += Duration::from_millis(u64::from(input.u8())),
            }
        }
        for _ in 0..LAST_TURNS {
            self.turn();
        }
        for honest in &self.honest {
            assert!(self.server.is_connected(honest.client), "an honest client was disconnected");
            assert!(honest.echoed as usize + MAX_REPLY_TURNS >= LAST_TURNS, "{} replies", honest.echoed);
        }
    }

    fn advance_sequence(&mut self, how: u8, input: &mut Input<'_>) {
        self.sequence = self.sequence.wrapping_add(if how & 1 == 0 { 1 } else { u16::from(input.u8()) << 5 });
    }

    /// Returns message frames that fill a packet: one frame of the input, repeated.
    fn frames(&self, operation: u8, input: &mut Input<'_>) -> Vec<u8> {
        let channel = input.u8() % 6;
        let flags = if operation & 8 == 0 { 0 } else { 0x40 };
        let mut frame = vec![(channel + 1) | flags];
        frame.extend((0..1 + input.u8() % 12).map(|_| input.u8()));
        let count = 1 + usize::from(input.u8()) * 4;
        let mut frames = frame.repeat(count);
        frames.truncate(1100);
        frames
    }

    /// Returns the frames behind a header with the present sequence number.
    fn header(&self, frames: &[u8]) -> Vec<u8> {
        let mut buf = [0; 1400];
        let mut writer = Writer::new(&mut buf);
        let (acks, frame) = self.acknowledging.next(Sequence(self.sequence), now(self.now).monotonic);
        ReliableHeader { sequence: Sequence(self.sequence), acks }.emit(&mut writer);
        frame.emit(&mut writer);
        writer.bytes(frames);
        let written = writer.written().expect("the buffer is large enough");
        buf[..written].to_vec()
    }

    /// Stops or starts to take messages of the malicious client, as a game does with a full queue.
    fn change_intake(&mut self) {
        self.intake = if self.intake == Intake::Open { Intake::Refused } else { Intake::Open };
        self.server.set_intake(self.malicious, self.intake);
    }

    /// Gives a payload to the server, and takes its messages. Its searches take no more work than it is charged.
    fn present(&mut self, client: ClientHandle, payload: &[u8]) {
        let (now, mut scratch) = (now(self.now), Vec::new());
        if !self.server.is_connected(client) {
            return;
        }
        let before = self.effort();
        let received = self.server.handle_loopback(client, payload, &mut scratch, now);
        if let Some(received) = received {
            self.take_messages(Parked { client, payload: payload.to_vec(), received });
        }
        self.check_steps(before);
    }

    /// Takes the messages of a datagram, or sets it aside. Messages of honest clients are sent back.
    fn take_messages(&mut self, mut datagram: Parked) {
        let (now, mut scratch) = (now(self.now), Vec::new());
        for in_a_row in 0.. {
            self.take_events();
            if !self.server.may_deliver(&datagram.received, in_a_row, now) {
                assert!(self.parked.iter().all(|parked| parked.client != datagram.client), "its packets are refused");
                return self.parked.push_back(datagram);
            }
            let Parked { client, payload, received } = &mut datagram;
            let Some(message) = self.server.next_message(payload, received, &mut scratch, now) else { break };
            let client = *client;
            let SessionMessage::Channel { channel, span, .. } = message else { unreachable!("only channels") };
            let bytes = span.bytes(payload, &scratch);
            assert!(bytes.len() <= 2000);
            if client == self.malicious {
                assert!(self.intake == Intake::Open, "a message is taken that the application does not take");
                self.flood_messages += 1;
                // A client that acknowledges gets replies, too.
                if self.acknowledging.is_active() {
                    self.reply(client, channel, bytes, now.monotonic);
                }
            } else {
                let connection = self.server.connection_mut(client).expect("an honest client is connected");
                connection.send(channel, bytes, SendOptions::default(), now.monotonic).expect("space in the queue");
            }
        }
        self.take_events();
    }

    /// Sends a message back to the malicious client, unless many wait for it: what a game sends is not in the shared
    /// memory.
    fn reply(&mut self, client: ClientHandle, channel: ChannelId, bytes: &[u8], now: Instant) {
        let Ok(connection) = self.server.connection_mut(client) else { return };
        if connection.channels.remaining(channel).messages > MESSAGES - MAX_REPLIES {
            // There may be no space for a large one.
            let _ = connection.send(channel, bytes, SendOptions::default(), now);
        }
    }

    /// Goes on with each datagram that was set aside and may go on.
    fn take_parked(&mut self) {
        for _ in 0..self.parked.len() {
            let Some(datagram) = self.parked.pop_front() else { return };
            if self.server.may_deliver(&datagram.received, 0, now(self.now)) {
                let before = self.effort();
                self.take_messages(datagram);
                self.check_steps(before);
            } else {
                self.parked.push_back(datagram);
            }
        }
    }

    /// Returns the steps of all searches, and the estimated work of all packets.
    fn effort(&self) -> (usize, u64) {
        (search_steps(), self.server.stats().work_done)
    }

    /// Fails if the searches since then took more work than their packet was charged.
    fn check_steps(&self, (steps_before, work_before): (usize, u64)) {
        let (steps, work) = self.effort();
        let (steps, work) = ((steps - steps_before) as u64, work - work_before);
        assert!(steps * STEP_WORK <= work, "{steps} steps for {work} ns");
    }

    fn turn(&mut self) {
        (self.now, self.turns) = (self.now + TURN, self.turns + 1);
        let now = now(self.now);
        self.take_parked();
        for index in 0..HONEST {
            let honest = &mut self.honest[index];
            honest.connection.tick(now.monotonic);
            let number = (honest.sent.len() as u32).to_le_bytes();
            honest
                .connection
                .send(ORDERED, &number, SendOptions::default(), now.monotonic)
                .expect("space in the queue");
            honest.sent.push(self.turns);
            let (client, mut packets) = (honest.client, Packets::default());
            honest.connection.transmit(now.monotonic, &mut packets);
            for packet in packets.packets {
                self.present(client, &packet);
            }
        }
        self.server.tick(now);
        self.server.transmit(now, &mut NoNetwork);
        self.receive_replies(now);
        self.honest.iter().for_each(|honest| honest.check_replies(self.turns));
        self.check_work();
        self.take_events();
        self.check_memory();
    }

    /// Delivers what the server sent. The malicious client only notes which packets arrived.
    fn receive_replies(&mut self, now: Now) {
        let mut buf = [0; MAX_PAYLOAD_BYTES];
        for honest in &mut self.honest {
            while let Some(bytes) = self.server.netcode.loopback_receive(honest.client, &mut buf) {
                honest.receive(&buf[..bytes], now.monotonic);
            }
        }
        while let Some(bytes) = self.server.netcode.loopback_receive(self.malicious, &mut buf) {
            self.acknowledging.on_received(&buf[..bytes], now.monotonic);
        }
    }

    /// Fails if the server did more work for the malicious client than its budget allows.
    fn check_work(&self) {
        let limits = WorkLimits::default();
        let allowed = limits.burst + self.now.mul_f64(limits.per_second.as_secs_f64());
        let messages = self.flood_messages.saturating_sub(MAX_ON_CREDIT);
        assert!(limits.per_message.mul_f64(messages as f64) <= allowed, "{messages} messages in {:?}", self.now);
    }

    /// Fails if the server holds more memory than it shares, and than each client may hold beside it.
    fn check_memory(&self) {
        let bytes = counting::bytes() - self.bytes;
        let max = 2 * SHARED_BYTES + MAX_OWN_BYTES + MAX_OTHER_BYTES;
        assert!(bytes <= max as i64, "{bytes} bytes");
    }

    /// Takes the events. Only the malicious client may be disconnected.
    fn take_events(&mut self) {
        while let Some(event) = self.server.poll_event() {
            if let SessionEvent::Disconnected { client, reason, .. } = event {
                assert_eq!(client, self.malicious, "{reason:?}");
            }
        }
    }
}

/// Returns both clocks.
fn now(since_start: Duration) -> Now {
    let unix = UnixMillis(1_700_000_000_000 + since_start.as_millis() as u64);
    Now { monotonic: Instant::from_start(since_start), unix }
}
