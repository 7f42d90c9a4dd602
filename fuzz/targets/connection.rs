//! Connections: one that hears inventions, and two on a path on which anything happens.

#![no_main]

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_fuzz::receipts::{Numbered, Receipts};
use slipgate_session::channel::block::{self, Block};
use slipgate_session::channel::control::{self, Bye, ByeCode, Hello};
use slipgate_session::channel::{
    Arrival, ChannelConfig, ChannelEvent, ChannelId, Kind, Layout, LayoutHash, PIECE_BYTES, SendOptions, Violation,
};
use slipgate_session::congestion::{Algorithm, BytesPerSecond};
use slipgate_session::reliability::{self, Sink};
use slipgate_session::session::{Config, Connection, End as Reason, MIN_PAYLOAD};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::wire::reliable::{Acks, Header, Sequence};
use slipgate_session::wire::session::{Arrived, Frame, Stamp};

const KINDS: [Kind; 4] = [Kind::ReliableOrdered, Kind::Unreliable, Kind::ReliableUnordered, Kind::Blocks];
/// The first of them carry messages.
const MESSAGES: usize = 3;
const ORDERED: ChannelId = ChannelId(0);
const BLOCKS: ChannelId = ChannelId(3);
const MAX_MESSAGE_BYTES: u32 = 2000;
/// What the queues of both directions hold, in pieces.
const MAX_MEMORY_BYTES: usize = 150_000;
/// Packets of which an end remembers what became of them, of its own and of the peer's.
const WINDOW: u16 = 128;
/// Datagrams of one turn: what the bucket of the rate below holds, and acknowledgements of a whole window.
const MOST_DATAGRAMS: usize = 250;
/// Turns in which an honest world comes to rest, and those that a spoiled one is left to itself.
const MOST_TURNS: usize = 600;
const SPOILED_TURNS: usize = 10;
/// How far time goes on in a turn at least, and at most, when nothing is due before. Who heard of packets only after
/// minutes waits for minutes until it calls one lost.
const SHORT_TURN: Duration = Duration::from_millis(10);
const LONG_TURN: Duration = Duration::from_secs(60);
/// Who is heard for as long and acknowledges nothing is given up (`specs/session-1.md`, §5.6), and not before.
const DEAD_FOR: Duration = Duration::from_secs(30);

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    match input.u8() & 1 {
        0 => invented(&mut input),
        _ => World::new().run(&mut input),
    }
});

/// The layout of every end, which is hashed once.
static LAYOUT: LazyLock<Arc<Layout>> = LazyLock::new(|| {
    let channel = |kind| ChannelConfig {
        queue_bytes: 4000,
        queue_messages: 20,
        max_message_bytes: MAX_MESSAGE_BYTES,
        blocks: block::Config {
            slice_bytes: 256,
            max_block_bytes: 5000,
            max_bytes_at_once: 10_000,
            ..block::Config::default()
        },
        ..ChannelConfig::new(kind)
    };
    Arc::new(Layout::new(KINDS.map(channel).into()).expect("settings to run with"))
});

/// A path of datagrams; the newest is the last.
#[derive(Default)]
struct Datagrams {
    room: Vec<u8>,
    under_way: VecDeque<Vec<u8>>,
}

impl Sink for Datagrams {
    fn rooms(&self) -> usize {
        usize::MAX
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        self.room.resize(1200, 0);
        Some(&mut self.room)
    }

    fn commit(&mut self, bytes: usize) {
        self.under_way.push_back(self.room[..bytes].to_vec());
    }
}

struct End {
    connection: Connection,
    path: Datagrams,
    now: Instant,
    /// The sizes of messages on each channel, by their numbers; and the numbers of those that were heard.
    said: [Vec<usize>; MESSAGES],
    heard: [BTreeSet<u32>; MESSAGES],
    receipts: Receipts,
    left: bool,
}

impl End {
    fn new() -> Self {
        let mut config = Config { max_payload_bytes: MIN_PAYLOAD, ..Config::default() };
        config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(1e5));
        config.endpoint = reliability::Config {
            sent_window: WINDOW,
            received_window: WINDOW,
            reassemblies: 16,
            rtt_history: 16,
            ..config.endpoint
        };
        let connection = Connection::new(&config, Arc::clone(&LAYOUT), None).expect("settings to run with");
        Self {
            connection,
            path: Datagrams::default(),
            now: Instant::default(),
            said: Default::default(),
            heard: Default::default(),
            receipts: Receipts::default(),
            left: false,
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.connection.tick(self.now);
        self.poll_events();
    }

    /// Takes what is told: of a receipt one fate, if it was asked for.
    fn poll_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            if let ChannelEvent::Receipt { channel, tag, fate } = event {
                self.receipts.tell(channel, tag, fate);
            }
        }
        self.receipts.check_free(self.connection.channels().free(ORDERED).receipts);
    }

    fn transmit(&mut self) {
        let before = self.path.under_way.len();
        self.connection.transmit(self.now, &mut self.path);
        let sent = self.path.under_way.range(before..);
        assert!(sent.len() <= MOST_DATAGRAMS && sent.into_iter().all(|datagram| datagram.len() <= MIN_PAYLOAD));
        let due = self.connection.next_deadline(self.now);
        assert!(self.connection.is_over() <= due.is_none(), "who is over has nothing to do");
        assert!(self.connection.channels().memory_bytes() <= MAX_MEMORY_BYTES);
    }

    /// Takes a datagram; on an honest path everything is heard once, and what was said in order in order.
    fn take(&mut self, datagram: &[u8], honest: bool) {
        let mut scratch = Vec::new();
        let Ok(Some(mut incoming)) = self.connection.handle(datagram, self.now) else { return };
        while let Some(arrival) = self.connection.next(datagram, &mut incoming, &mut scratch, self.now) {
            let Arrival::Message { channel, place } = arrival else { continue };
            let bytes = place.bytes(&datagram[incoming.start()..], &scratch);
            assert!(bytes.len() <= MAX_MESSAGE_BYTES as usize);
            if honest {
                let heard = &mut self.heard[usize::from(channel.0)];
                let number = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
                assert!(channel != ORDERED || number == heard.len() as u32, "{number} is not the next");
                assert!(heard.insert(number), "{channel:?}: {number} came twice");
            }
        }
        self.poll_events();
    }

    fn say(&mut self, channel: ChannelId, bytes: usize) {
        if channel == BLOCKS {
            let block = Block::new(vec![7; bytes]).expect("at most 64 MiB");
            let _ = self.connection.channels_mut().send_block(BLOCKS, block, 0);
            return;
        }
        let said = &mut self.said[usize::from(channel.0)];
        let number = Numbered { channel: channel.0, number: said.len() as u32 };
        let mut message = vec![0; bytes.max(4)];
        message[..4].copy_from_slice(&number.number.to_le_bytes());
        // Three of four ask.
        let receipt = (bytes / 8 % 4 != 3).then(|| number.tag());
        let options = SendOptions { receipt, ..SendOptions::default() };
        if self.connection.send(channel, &message, options, self.now).is_ok() {
            said.push(message.len());
            if receipt.is_some() {
                self.receipts.ask(number);
            }
        }
    }

    /// What is said here to have arrived, the other end has heard. It may have given up what is sent once and in slices.
    fn check_arrivals(&mut self, other: &Self) {
        for Numbered { channel, number } in self.receipts.take_arrived() {
            let place = usize::from(channel);
            let is_sure = KINDS[place].is_reliable() || self.said[place][number as usize] <= PIECE_BYTES;
            assert!(!is_sure || other.heard[place].contains(&number), "{channel}: {number} has not arrived");
        }
    }

    /// Whether nothing is left to do, and of every message is known what became of it.
    fn rests(&self) -> bool {
        self.connection.is_over() || self.is_idle() && self.receipts.all_told()
    }

    /// Whether all that must arrive has arrived, and that is known here.
    fn is_idle(&self) -> bool {
        let channels = self.connection.channels();
        let empty = |channel: ChannelId| {
            let config = LAYOUT.channel(channel).expect("one of the layout's");
            let free = channels.free(channel);
            (free.bytes, free.messages) == (config.queue_bytes, config.queue_messages)
        };
        let quiet = self.path.under_way.is_empty() && (0..3).map(ChannelId).all(empty);
        let blocks = channels.blocks(BLOCKS);
        let whole = blocks.is_none_or(|blocks| blocks.sending().count() + blocks.receiving().count() == 0);
        self.connection.is_over() || quiet && whole && !channels.wants_to_send()
    }

    fn leave(&mut self, code: u16) {
        self.left = true;
        self.connection.leave(ByeCode(code), "so long");
    }
}

/// One end that hears what was made up: whatever it is, the end neither panics nor grows nor talks without limit.
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
                let datagram = made_up(operation >> 4, sequence, input);
                end.take(&datagram, false);
            }
            5 => end.pass(Duration::from_millis(u64::from(input.u8()) << (operation >> 5))),
            6 => end.say(ChannelId(operation >> 4 & 3), usize::from(input.u8()) * 8),
            _ if operation >> 3 == 31 => end.leave(300),
            _ => {
                end.pass(Duration::from_millis(1));
                end.transmit();
                end.path.under_way.clear();
            }
        }
    }
    // Left alone it comes to rest, or to its end.
    end.leave(0);
    for _ in 0..40 {
        end.pass(Duration::from_millis(50));
        end.transmit();
    }
    assert!(end.connection.is_over());
}

/// A datagram with a header and a frame, and what the input says behind them.
fn made_up(how: u8, sequence: u16, input: &mut Input<'_>) -> Vec<u8> {
    let mut room = [0; 1400];
    let mut writer = Writer::new(&mut room);
    let acks = Acks { ack: Sequence(u16::from(input.u8())), bits: u32::from_le_bytes(input.array()) };
    Header { sequence: Sequence(sequence), acks }.emit(&mut writer);
    let behind: Vec<u8> = (0..input.u8() % 29).map(|_| input.u8()).collect();
    let arrived = (how & 1 != 0).then(|| Arrived { at: Stamp(u16::from_le_bytes(input.array())), late: input.u8() });
    Frame { sent: Stamp(u16::from_le_bytes(input.array())), arrived, acks_behind: &behind }.emit(&mut writer);
    if how & 2 != 0 {
        let layout = if how & 8 == 0 { LAYOUT.hash() } else { LayoutHash(input.array()) };
        let payload_bytes = u16::from_le_bytes(input.array());
        let hello = Hello { version: 1, oldest_version: 1, layout, payload_bytes, abilities: 0 };
        let mut bytes = [0; 64];
        let written = control::write_hello(&hello, &mut bytes);
        writer.bytes(&bytes[..written]);
    }
    if how & 12 == 12 {
        let mut bytes = [0; 64];
        let written = control::write_bye(&Bye { code: ByeCode(u16::from(input.u8())), text: "bye" }, &mut bytes);
        writer.bytes(&bytes[..written]);
    }
    for _ in 0..input.u8() & 63 {
        writer.u8(input.u8());
    }
    let written = writer.written().expect("there is room");
    room[..written].to_vec()
}

/// Two ends, and what became of their datagrams.
struct World {
    ends: [End; 2],
    /// No datagram was spoiled.
    honest: bool,
}

impl World {
    fn new() -> Self {
        Self { ends: [End::new(), End::new()], honest: true }
    }

    fn run(&mut self, input: &mut Input<'_>) {
        while let Some(operation) = input.operation() {
            let (from, value) = (usize::from(operation & 1), input.u8());
            match operation >> 1 & 15 {
                0..=3 => self.ends[from].say(ChannelId(operation >> 1 & 3), usize::from(value) * 8),
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
        let Some(place) = which.checked_rem(self.ends[from].path.under_way.len()) else { return };
        let datagram = self.ends[from].path.under_way[place].clone();
        if !stays {
            self.ends[from].path.under_way.remove(place);
        }
        self.ends[1 - from].take(&datagram, self.honest);
        self.check_arrivals();
    }

    fn lose(&mut self, from: usize, which: usize) {
        let path = &mut self.ends[from].path.under_way;
        if let Some(place) = which.checked_rem(path.len()) {
            path.remove(place);
        }
    }

    fn spoil(&mut self, from: usize, which: u8, input: &mut Input<'_>) {
        let path = &mut self.ends[from].path.under_way;
        if let Some(datagram) = usize::from(which).checked_rem(path.len()).and_then(|place| path.get_mut(place)) {
            let place = usize::from(input.u8()) % datagram.len();
            datagram[place] ^= input.u8() | 1;
            self.honest = false;
        }
    }

    /// In the end all arrives at once: what was said is heard, and both come to rest.
    fn end(&mut self) {
        for _ in 0..if self.honest { MOST_TURNS } else { SPOILED_TURNS } {
            self.turn();
            if self.ends.iter().all(End::rests) {
                break;
            }
        }
        if self.honest && self.ends.iter().all(|end| !end.left) && !self.was_dead_one_way() {
            for (one, other) in [(0, 1), (1, 0)] {
                assert!(self.ends[one].connection.end().is_none(), "{:?}", self.ends[one].connection.end());
                for (channel, said) in self.ends[other].said.iter().enumerate() {
                    let heard = self.ends[one].heard[channel].len();
                    assert!(heard == said.len() || !KINDS[channel].is_reliable(), "channel {channel}: {heard} heard");
                }
                assert!(self.ends[one].receipts.all_told(), "of some message nothing was told");
                assert!(self.ends[one].rests(), "something is left to do");
            }
        }
        for end in self.ends.iter_mut().filter(|end| end.connection.end().is_some()) {
            // One that has heard of its end just now begins with its farewell.
            end.transmit();
            end.pass(Duration::from_secs(2));
            end.transmit();
            assert!(end.connection.is_over());
        }
    }

    /// Whether an end gave up the other, of which it heard, but which heard nothing of it.
    fn was_dead_one_way(&self) -> bool {
        let silence = [Reason::NotASession, Reason::Violation(Violation::AcknowledgesNothing)];
        let gave_up = self.ends.iter().any(|end| end.connection.end().is_some_and(|end| silence.contains(end)));
        assert!(!gave_up || self.ends[0].now.reached(Instant::default(), DEAD_FOR), "so soon");
        gave_up
    }

    /// Time goes on to what is due first, and all that leaves arrives.
    fn turn(&mut self) {
        let due = |end: &End| end.connection.next_deadline(end.now).map(|due| due.since(end.now));
        // Nobody is idle whose message may come anew. Of one that is sent once no more is to be done than to call it lost.
        let due = if self.ends.iter().all(End::is_idle) { None } else { self.ends.iter().filter_map(due).min() };
        self.pass(due.unwrap_or(LONG_TURN).clamp(SHORT_TURN, LONG_TURN));
        for from in 0..2 {
            self.ends[from].transmit();
            while !self.ends[from].path.under_way.is_empty() {
                self.deliver(from, 0, false);
            }
        }
    }
}
