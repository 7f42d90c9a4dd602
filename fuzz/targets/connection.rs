//! Connections: one that receives invented packets, and two on an arbitrary path.

#![no_main]

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_fuzz::invented::invented_datagram;
use slipgate_fuzz::receipts::{Numbered, Receipts};
use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::time::Instant;
use slipgate_session::channel::transfer::{self, Transfer};
use slipgate_session::channel::{
    ChannelConfig, ChannelEvent, ChannelId, ChannelViolation, Kind, Layout, PIECE_BYTES, SendOptions,
};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::connection::CloseCode;
use slipgate_session::connection::{
    ChannelMessage, CloseKind, CloseReason, Connection, ConnectionConfig, MIN_PAYLOAD, Role,
};
use slipgate_session::reliability::{self, Sink};

const KINDS: [Kind; 4] = [Kind::ReliableOrdered, Kind::Unreliable, Kind::ReliableUnordered, Kind::Transfers];
/// The first of them carry messages.
const MESSAGES: usize = 3;
const ORDERED: ChannelId = ChannelId(0);
const TRANSFERS: ChannelId = ChannelId(3);
const MAX_MESSAGE_BYTES: u32 = 2000;
/// The capacity of the queues of both directions, in chunks.
const MAX_MEMORY_BYTES: usize = 150_000;
/// Packets that an end keeps state for, sent and received.
const WINDOW: u16 = 128;
/// Datagrams of one turn: the token bucket of the rate below, and acknowledgements of a whole window.
const MAX_DATAGRAMS: usize = 250;
/// Turns after which an undisturbed world is idle, and turns that a disturbed one runs at the end.
const MAX_TURNS: usize = 600;
const SPOILED_TURNS: usize = 10;
/// The shortest and longest step of time in a turn without a deadline. An end with an RTT of minutes waits for minutes
/// before it declares a packet lost.
const SHORT_TURN: Duration = Duration::from_millis(10);
const LONG_TURN: Duration = Duration::from_secs(60);
/// The time after which a peer that sends but acknowledges nothing is closed (`specs/session-1.md`, §5.6).
const DEAD_FOR: Duration = Duration::from_secs(30);
/// Longer than unused memory is kept, and than incomplete messages wait for their slices.
const UNUSED_FOR: Duration = Duration::from_secs(11);

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    match input.u8() & 1 {
        0 => invented(&mut input),
        _ => World::new().run(&mut input),
    }
});

/// The layout of every end. It is hashed once.
static LAYOUT: LazyLock<Arc<Layout>> = LazyLock::new(|| {
    let channel = |kind| ChannelConfig {
        queue_bytes: 4000,
        queue_messages: 20,
        max_message_bytes: MAX_MESSAGE_BYTES,
        transfers: transfer::TransferConfig {
            slice_bytes: 256,
            max_transfer_bytes: 5000,
            max_bytes_at_once: 10_000,
            ..transfer::TransferConfig::default()
        },
        ..ChannelConfig::from(kind)
    };
    Arc::new(Layout::try_from(KINDS.map(channel).to_vec()).expect("settings to run with"))
});

/// A path of datagrams. The newest is the last.
#[derive(Default)]
struct Datagrams {
    buf: Vec<u8>,
    in_flight: VecDeque<Vec<u8>>,
}

impl Sink for Datagrams {
    fn remaining(&self) -> usize {
        usize::MAX
    }

    fn next_buf(&mut self) -> Option<&mut [u8]> {
        self.buf.resize(1200, 0);
        Some(&mut self.buf)
    }

    fn commit(&mut self, bytes: usize) {
        self.in_flight.push_back(self.buf[..bytes].to_vec());
    }
}

struct End {
    connection: Connection,
    path: Datagrams,
    now: Instant,
    /// The sizes of messages on each channel, by their numbers, and the numbers of the received ones.
    sent: [Vec<usize>; MESSAGES],
    received: [BTreeSet<u32>; MESSAGES],
    receipts: Receipts,
    left: bool,
}

impl End {
    fn new() -> Self {
        let mut config = ConnectionConfig { max_payload_bytes: MIN_PAYLOAD, ..ConnectionConfig::default() };
        config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e5));
        config.endpoint = reliability::EndpointConfig {
            sent_window: WINDOW,
            received_window: WINDOW,
            reassemblies: 16,
            rtt_history: 16,
            ..config.endpoint
        };
        let connection =
            Connection::new(&config, Arc::clone(&LAYOUT), Role::Client, None).expect("settings to run with");
        Self {
            connection,
            path: Datagrams::default(),
            now: Instant::default(),
            sent: Default::default(),
            received: Default::default(),
            receipts: Receipts::default(),
            left: false,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.connection.tick(self.now);
        self.poll_events();
    }

    /// Takes events. A receipt reports one delivery status, if it was requested.
    fn poll_events(&mut self) {
        while let Some(event) = self.connection.channels.poll_event() {
            if let ChannelEvent::Receipt { channel, tag, status } = event {
                self.receipts.report(channel, tag, status);
            }
        }
        self.receipts.check_free(self.connection.channels.remaining(ORDERED).receipts);
    }

    fn transmit(&mut self) {
        let before = self.path.in_flight.len();
        self.connection.transmit(self.now, &mut self.path);
        let sent = self.path.in_flight.range(before..);
        assert!(sent.len() <= MAX_DATAGRAMS && sent.into_iter().all(|datagram| datagram.len() <= MIN_PAYLOAD));
        let due = self.connection.next_deadline(self.now);
        assert!(self.connection.is_closed() <= due.is_none(), "a closed connection has no deadline");
        assert!(self.connection.channels.memory_bytes() <= MAX_MEMORY_BYTES);
    }

    /// Takes a datagram. Each message arrives once on an undisturbed path, and ordered channels keep the order.
    fn take(&mut self, datagram: &[u8], honest: bool) {
        let mut scratch = Vec::new();
        let Ok(Some(mut incoming)) = self.connection.handle(datagram, Duration::ZERO, self.now) else { return };
        while let Some(message) = self.connection.next_message(datagram, &mut incoming, &mut scratch, self.now) {
            let ChannelMessage { channel, span, times } = message;
            let bytes = span.bytes(datagram, &scratch);
            assert!(times.arrived <= self.now && times.sent.is_none_or(|sent| sent <= times.arrived));
            assert!(bytes.len() <= MAX_MESSAGE_BYTES as usize);
            if honest {
                let received = &mut self.received[usize::from(channel.0)];
                let number = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
                assert!(channel != ORDERED || number == received.len() as u32, "{number} is not the next");
                assert!(received.insert(number), "{channel:?}: {number} arrived twice");
            }
        }
        self.poll_events();
    }

    fn send(&mut self, channel: ChannelId, bytes: usize) {
        if channel == TRANSFERS {
            let transfer = Transfer::new(vec![7; bytes]).expect("at most 64 MiB");
            let _ = self.connection.channels.send_transfer(TRANSFERS, transfer, 0);
            return;
        }
        let sent = &mut self.sent[usize::from(channel.0)];
        let number = Numbered { channel: channel.0, number: sent.len() as u32 };
        let mut message = vec![0; bytes.max(4)];
        message[..4].copy_from_slice(&number.number.to_le_bytes());
        // Three of four messages request a receipt.
        let receipt = (bytes / 8 % 4 != 3).then(|| number.tag());
        let options = SendOptions { receipt, ..SendOptions::default() };
        if self.connection.send(channel, &message, options, self.now).is_ok() {
            sent.push(message.len());
            if receipt.is_some() {
                self.receipts.ask(number);
            }
        }
    }

    /// Checks that the other end received the messages that receipts report as delivered. It may have dropped sliced
    /// messages of channels without retransmission.
    fn check_arrivals(&mut self, other: &Self) {
        for Numbered { channel, number } in self.receipts.take_arrived() {
            let index = usize::from(channel);
            let is_sure = KINDS[index].is_reliable() || self.sent[index][number as usize] <= PIECE_BYTES;
            assert!(!is_sure || other.received[index].contains(&number), "{channel}: {number} has not arrived");
        }
    }

    /// Returns whether no work is left and the status of every message is known.
    fn is_done(&self) -> bool {
        self.connection.is_closed() || self.is_idle() && self.receipts.all_reported()
    }

    /// Returns whether all guaranteed messages arrived and are acknowledged.
    fn is_idle(&self) -> bool {
        let channels = &self.connection.channels;
        let empty = |channel: ChannelId| {
            let config = LAYOUT.channel(channel).expect("one of the layout's");
            let free = channels.remaining(channel);
            (free.bytes, free.messages) == (config.queue_bytes, config.queue_messages)
        };
        let quiet = self.path.in_flight.is_empty() && (0..3).map(ChannelId).all(empty);
        let transfers = channels.transfers(TRANSFERS);
        let whole = transfers.is_none_or(|transfers| transfers.sending().count() + transfers.receiving().count() == 0);
        self.connection.is_closed() || quiet && whole && !channels.wants_to_send()
    }

    fn leave(&mut self, code: u16) {
        self.left = true;
        self.connection.close(CloseCode(code), "so long");
    }
}

/// Feeds invented packets to one end: it neither panics, nor grows, nor sends without limit.
fn invented(input: &mut Input<'_>) {
    let (mut end, mut sequence) = (End::new(), 0_u16);
    while let Some(operation) = input.operation() {
        match operation & 7 {
            0 => {
                let datagram: Vec<u8> = (0..input.u8()).map_while(|_| input.operation()).collect();
                end.take(&datagram, false);
            }
            1..=4 => {
                sequence = sequence.wrapping_add(if operation & 8 == 0 { 1 } else { u16::from(input.u8()) << 4 });
                let datagram = invented_datagram(operation >> 4, sequence, LAYOUT.hash(), input);
                end.take(&datagram, false);
            }
            5 => end.pass(Duration::from_millis(u64::from(input.u8()) << (operation >> 5))),
            6 => end.send(ChannelId(operation >> 4 & 3), usize::from(input.u8()) * 8),
            _ if operation >> 3 == 31 => end.leave(300),
            _ => {
                end.pass(Duration::from_millis(1));
                end.transmit();
                end.path.in_flight.clear();
            }
        }
    }
    // Without input the end becomes idle or closes.
    end.leave(0);
    for _ in 0..40 {
        end.pass(Duration::from_millis(50));
        end.transmit();
    }
    assert!(end.connection.is_closed());
}

/// Two ends and the paths between them.
struct World {
    ends: [End; 2],
    /// No datagram was altered.
    honest: bool,
}

impl World {
    fn new() -> Self {
        // The ends skip numbers and check nonces: an honest one is never disconnected for its acknowledgements.
        let ends = [1, 2].map(|seed| {
            let end = End::new();
            End { connection: end.connection.with_ack_checks(&Seed::from([seed; 32])), ..end }
        });
        Self { ends, honest: true }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        while let Some(operation) = input.operation() {
            let (from, value) = (usize::from(operation & 1), input.u8());
            match operation >> 1 & 15 {
                0..=3 => self.ends[from].send(ChannelId(operation >> 1 & 3), usize::from(value) * 8),
                4..=8 => self.deliver(from, value.into(), operation >> 5 == 7),
                9 => self.lose(from, value.into()),
                10 => self.spoil(from, value, input),
                11 if value == 255 => self.ends[from].leave(300),
                11..=13 => self.pass(Duration::from_millis(u64::from(value) << (operation >> 5 & 3))),
                _ => self.ends[from].transmit(),
            }
        }
        self.end();
    }

    fn pass(&mut self, time: Duration) {
        for end in &mut self.ends {
            end.pass(time);
        }
        self.check_arrivals();
    }

    fn check_arrivals(&mut self) {
        if self.honest {
            let [one, other] = &mut self.ends;
            one.check_arrivals(other);
            other.check_arrivals(one);
        }
    }

    fn deliver(&mut self, from: usize, which: usize, stays: bool) {
        let Some(index) = which.checked_rem(self.ends[from].path.in_flight.len()) else { return };
        let datagram = self.ends[from].path.in_flight[index].clone();
        if !stays {
            self.ends[from].path.in_flight.remove(index);
        }
        self.ends[1 - from].take(&datagram, self.honest);
        self.check_arrivals();
    }

    fn lose(&mut self, from: usize, which: usize) {
        let path = &mut self.ends[from].path.in_flight;
        if let Some(index) = which.checked_rem(path.len()) {
            path.remove(index);
        }
    }

    fn spoil(&mut self, from: usize, which: u8, input: &mut Input<'_>) {
        let path = &mut self.ends[from].path.in_flight;
        if let Some(datagram) = usize::from(which).checked_rem(path.len()).and_then(|index| path.get_mut(index)) {
            let index = usize::from(input.u8()) % datagram.len();
            datagram[index] ^= input.u8() | 1;
            self.honest = false;
        }
    }

    /// Delivers everything without delay at the end: all messages arrive and both ends become idle.
    fn end(&mut self) {
        for _ in 0..if self.honest { MAX_TURNS } else { SPOILED_TURNS } {
            self.turn();
            if self.ends.iter().all(End::is_done) {
                break;
            }
        }
        if self.honest && self.ends.iter().all(|end| !end.left) && !self.was_dead_one_way() {
            for (one, other) in [(0, 1), (1, 0)] {
                assert!(
                    self.ends[one].connection.close_reason().is_none(),
                    "{:?}",
                    self.ends[one].connection.close_reason()
                );
                for (channel, sent) in self.ends[other].sent.iter().enumerate() {
                    let received = self.ends[one].received[channel].len();
                    let is_complete = received == sent.len() || !KINDS[channel].is_reliable();
                    assert!(is_complete, "channel {channel}: {received} received");
                }
                assert!(self.ends[one].receipts.all_reported(), "a receipt was not reported");
                assert!(self.ends[one].is_done(), "an end has work left");
            }
            self.free_memory();
        }
        for end in self.ends.iter_mut().filter(|end| end.connection.close_reason().is_some()) {
            // An end that has just received the close sends its own close frames.
            end.transmit();
            end.pass(Duration::from_secs(2));
            end.transmit();
            assert!(end.connection.is_closed());
        }
    }

    /// Checks that idle ends free the memory of all messages, also of those that expired before they were complete.
    fn free_memory(&mut self) {
        for _ in 0..3 {
            self.pass(UNUSED_FOR);
        }
        for end in &self.ends {
            assert_eq!(end.connection.channels.memory_bytes(), 0, "an idle end holds memory");
        }
    }

    /// Returns whether an end closed because the other end sent packets but received none.
    fn was_dead_one_way(&self) -> bool {
        let silence = [CloseKind::NotASession, CloseKind::Violation(ChannelViolation::AcknowledgesNothing)];
        let is_silent = |reason: &CloseReason| silence.contains(&reason.kind);
        let gave_up = self.ends.iter().any(|end| end.connection.close_reason().is_some_and(is_silent));
        assert!(!gave_up || self.ends[0].now.reached(Instant::default(), DEAD_FOR), "closed too soon");
        gave_up
    }

    /// Advances time to the next deadline and delivers every datagram.
    fn turn(&mut self) {
        let due = |end: &End| end.connection.next_deadline(end.now).map(|due| due.since(end.now));
        // An end that may retransmit is not idle. A message that is sent once can only be declared lost.
        let due = if self.ends.iter().all(End::is_idle) { None } else { self.ends.iter().filter_map(due).min() };
        self.pass(due.unwrap_or(LONG_TURN).clamp(SHORT_TURN, LONG_TURN));
        for from in 0..2 {
            self.ends[from].transmit();
            while !self.ends[from].path.in_flight.is_empty() {
                self.deliver(from, 0, false);
            }
        }
    }
}
