//! Two connections whose datagrams are handed over by the test: greetings, farewells, deadlines, and peers that lie.

use alloc::sync::Arc;
use core::time::Duration;
use std::format;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::channel::control::{self, Bye, ByeCode, Hello};
use crate::channel::{Arrival, ChannelConfig, ChannelId, Kind, Layout, LayoutHash, SendOptions};
use crate::reject::Reject;
use crate::reliability::Sink;
use crate::wire::reliable::{Acks, Header, Sequence};
use crate::wire::session::{Arrived, Frame, STAMP_REACH, Stamp};
use slipgate_netcode::wire::cursor::Writer;

mod acks_of_unsent;
mod changing_paths;
mod lone_packets;
mod many_messages;
mod many_packets;
mod never_answered;
mod news_unasked;
mod receipts_at_an_end;
mod small_packets;
mod time_of_a_loop;

const CHAT: ChannelId = ChannelId(0);
const STATE: ChannelId = ChannelId(1);

#[derive(Default)]
struct Datagrams {
    room: Vec<u8>,
    sent: Vec<Vec<u8>>,
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
        self.sent.push(self.room[..bytes].to_vec());
    }
}

fn layout() -> Arc<Layout> {
    let kinds = [Kind::ReliableOrdered, Kind::Unreliable, Kind::Blocks];
    Arc::new(Layout::new(kinds.map(ChannelConfig::new).to_vec()).unwrap())
}

fn other_layout() -> Arc<Layout> {
    Arc::new(Layout::new(vec![ChannelConfig::new(Kind::Sequenced)]).unwrap())
}

fn connection(config: &Config, layout: Arc<Layout>) -> Connection {
    Connection::new(config, layout, None).unwrap()
}

struct Pair {
    now: Instant,
    ends: [Connection; 2],
    received: [Vec<Vec<u8>>; 2],
}

impl Pair {
    fn new() -> Self {
        Self::with(layout(), layout())
    }

    fn with(one: Arc<Layout>, other: Arc<Layout>) -> Self {
        let ends = [one, other].map(|layout| connection(&Config::default(), layout));
        Self { now: Instant::from_start(Duration::from_secs(5)), ends, received: [Vec::new(), Vec::new()] }
    }

    fn say(&mut self, from: usize, channel: ChannelId, message: &[u8]) {
        self.ends[from].send(channel, message, SendOptions::default(), self.now).unwrap();
    }

    fn give(&mut self, to: usize, datagram: &[u8]) -> Result<(), Reject> {
        let (end, mut scratch) = (&mut self.ends[to], Vec::new());
        let Some(mut incoming) = end.handle(datagram, self.now)? else { return Ok(()) };
        while let Some(Arrival::Message { place, .. }) = end.next(datagram, &mut incoming, &mut scratch, self.now) {
            let frames = &datagram[incoming.start()..];
            self.received[to].push(place.bytes(frames, &scratch).to_vec());
        }
        Ok(())
    }

    fn turn(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut sink = Datagrams::default();
        self.ends[from].tick(self.now);
        self.ends[from].transmit(self.now, &mut sink);
        sink.sent
    }

    /// Both take a turn, and what they send arrives at once.
    fn exchange(&mut self) -> usize {
        let sent = [self.turn(0), self.turn(1)];
        for (from, datagrams) in sent.iter().enumerate() {
            for datagram in datagrams {
                let _ = self.give(1 - from, datagram);
            }
        }
        sent.iter().map(Vec::len).sum()
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
    }

    /// Exchanges for so long; answers how many datagrams that took.
    fn run(&mut self, millis: u64) -> usize {
        (0..millis / 5)
            .map(|_| {
                self.pass(5);
                self.exchange()
            })
            .sum()
    }

    fn greeted() -> Self {
        let mut pair = Self::new();
        pair.run(200);
        pair
    }

    /// How often an end wants to be woken within a second in which it hears nothing.
    fn wakes(&mut self, end: usize) -> usize {
        let until = self.now.after(Duration::from_secs(1));
        let mut wakes = 0;
        while let Some(deadline) = self.ends[end].next_deadline(self.now).filter(|deadline| *deadline < until) {
            self.now = deadline.max(self.now.after(Duration::from_millis(1)));
            self.turn(end);
            wakes += 1;
        }
        self.now = until;
        wakes
    }
}

/// A datagram with these numbers, and what stands behind its frame.
fn datagram(sequence: u16, behind_frame: &[u8]) -> Vec<u8> {
    let mut room = [0; 1200];
    let mut writer = Writer::new(&mut room);
    Header { sequence: Sequence(sequence), acks: Acks { ack: Sequence(65_535), bits: 0 } }.emit(&mut writer);
    Frame { sent: Stamp(7), arrived: None, acks_behind: &[] }.emit(&mut writer);
    writer.bytes(behind_frame);
    let bytes = writer.written().unwrap();
    room[..bytes].to_vec()
}

fn hello(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut hello = Hello { version: 1, oldest_version: 1, layout: layout().hash(), payload_bytes: 1200, abilities: 0 };
    change(&mut hello);
    let mut room = [0; 64];
    let bytes = control::write_hello(&hello, &mut room);
    room[..bytes].to_vec()
}

// Greetings ---------------------------------------------------------------------------------------------------------

#[test]
fn who_has_nothing_to_say_greets_and_then_is_silent() {
    let mut pair = Pair::new();
    assert!(pair.ends[0].next_deadline(pair.now).is_some_and(|deadline| deadline <= pair.now));
    assert!((2..10).contains(&pair.run(1000)));
    assert_eq!(pair.run(5000), 0);
    assert_eq!(pair.ends.each_ref().map(|end| end.next_deadline(pair.now)), [None, None]);
}

#[test]
fn the_greeting_is_in_every_packet_until_it_was_heard() {
    let mut pair = Pair::new();
    pair.say(0, STATE, b"one");
    let first = pair.turn(0).remove(0);
    pair.pass(20);
    pair.say(0, STATE, b"two");
    let second = pair.turn(0).remove(0);
    pair.give(1, &second).unwrap();
    pair.give(1, &first).unwrap();
    assert_eq!(pair.received[1], [b"two".to_vec(), b"one".to_vec()]);
}

#[test]
fn the_smaller_payload_of_the_two_is_what_both_send() {
    let small = Config { max_payload_bytes: 508, ..Config::default() };
    let mut pair = Pair::new();
    pair.ends[0] = connection(&small, layout());
    pair.run(200);
    for (from, message) in [(0, vec![1; 5000]), (1, vec![2; 5000])] {
        pair.say(from, CHAT, &message);
        let sent = pair.turn(from);
        assert!(sent.iter().all(|datagram| datagram.len() <= 508) && sent[0].len() > 400, "{from}");
        for datagram in sent {
            pair.give(1 - from, &datagram).unwrap();
        }
    }
    pair.run(1000);
    assert_eq!(pair.received, [vec![vec![2; 5000]], vec![vec![1; 5000]]]);
}

#[test]
fn slices_for_which_no_payload_has_room_are_no_settings_to_run_with() {
    let mut blocks = ChannelConfig::new(Kind::Blocks);
    blocks.blocks.slice_bytes = 1000;
    let layout = Arc::new(Layout::new(vec![blocks]).unwrap());
    let small = Config { max_payload_bytes: 1024, ..Config::default() };
    assert_eq!(Connection::new(&small, Arc::clone(&layout), None).err(), Some(ConfigError::SliceBytes));
    let mut wide = Config::default();
    wide.endpoint.received_window = 4096;
    assert_eq!(Connection::new(&wide, Arc::clone(&layout), None).err(), Some(ConfigError::Window));
    let enough = Config { max_payload_bytes: 1025, ..Config::default() };
    let mut end = connection(&enough, Arc::clone(&layout));
    let modest = hello(|hello| (hello.layout, hello.payload_bytes) = (layout.hash(), 508));
    end.handle(&datagram(0, &modest), Instant::default()).unwrap();
    let block = crate::channel::block::Block::new(vec![7; 3000]).unwrap();
    end.channels_mut().send_block(ChannelId(0), block, 0).unwrap();
    let mut other = connection(&Config::default(), layout);
    let (mut pair, mut events) = (Pair::new(), 0);
    std::mem::swap(&mut pair.ends[0], &mut end);
    std::mem::swap(&mut pair.ends[1], &mut other);
    for _ in 0..200 {
        pair.run(5);
        events += usize::from(pair.ends[1].poll_event().is_some());
    }
    assert_eq!(events, 1, "it has arrived");
}

#[test]
fn a_servers_end_takes_no_blocks_of_its_client_unless_the_channel_says_so() {
    use crate::channel::ChannelEvent;
    use crate::channel::block::{Admission, Block, Event, Reason};
    for (admission, uploads, downloads) in
        [(Admission::FromServer, false, true), (Admission::Automatic, true, true), (Admission::Never, false, false)]
    {
        let mut blocks = ChannelConfig::new(Kind::Blocks);
        assert_eq!(blocks.blocks.admission, Admission::FromServer, "it is the default");
        blocks.blocks.admission = admission;
        let layout = Arc::new(Layout::new(vec![blocks]).unwrap());
        let mut pair = Pair::with(layout.clone(), layout.clone());
        pair.ends[1] = Connection::new(&Config::default(), layout, Some(&Memory::default())).unwrap();
        for end in &mut pair.ends {
            end.channels_mut().send_block(ChannelId(0), Block::new(vec![7; 2000]).unwrap(), 0).unwrap();
        }
        let mut fates = [None; 2];
        for _ in 0..100 {
            pair.run(5);
            for (end, fate) in pair.ends.iter_mut().zip(&mut fates) {
                match end.poll_event() {
                    Some(ChannelEvent::Block { event: Event::Delivered { .. }, .. }) => *fate = Some(true),
                    Some(ChannelEvent::Block { event: Event::Refused { reason: Reason::Declined, .. }, .. }) => {
                        *fate = Some(false);
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(fates, [Some(uploads), Some(downloads)], "{admission:?}");
    }
}

#[test]
fn a_layout_without_channels_greets_and_says_why_it_ends() {
    let none = || Arc::new(Layout::new(Vec::new()).unwrap());
    let mut pair = Pair::with(none(), none());
    pair.run(1000);
    assert_eq!(pair.ends.each_ref().map(Connection::end), [None, None]);
    assert_eq!(pair.run(5000), 0, "both have been heard");
    let refused = pair.ends[0].send(CHAT, b"hi", SendOptions::default(), pair.now);
    assert_eq!(refused, Err(crate::channel::SendError::NoChannel));
    pair.ends[0].leave(ByeCode(300), "good night");
    pair.run(200);
    assert_eq!(pair.ends[1].end(), Some(&End::Farewell { code: ByeCode(300), text: "good night".into() }));
    // It is not as good as any.
    let mut pair = Pair::with(none(), layout());
    pair.run(200);
    assert!(pair.ends.iter().all(|end| matches!(end.end(), Some(End::LayoutMismatch { .. }))));
}

#[test]
fn different_layouts_are_a_clear_reason_at_both_ends() {
    let mut pair = Pair::with(layout(), other_layout());
    pair.run(100);
    let (one, other) = (layout().hash(), other_layout().hash());
    for (end, ours, theirs) in [(0, one, other), (1, other, one)] {
        let Some(End::LayoutMismatch { ours: found, theirs: of_peer }) = pair.ends[end].end() else {
            panic!("{:?}", pair.ends[end].end())
        };
        assert!(*found == ours && of_peer.is_none_or(|found| found == theirs));
    }
    pair.run(200);
    assert!(pair.ends.iter().all(Connection::is_over));
}

#[test]
fn what_no_peer_of_ours_sends_ends_the_connection_with_a_reason() {
    let message = [0x81, 0, 0, b'x'];
    let bye = |code: ByeCode| {
        let mut room = [0; 64];
        let bytes = control::write_bye(&Bye { code, text: "so long" }, &mut room);
        room[..bytes].to_vec()
    };
    let other = LayoutHash(*b"another.");
    let mismatch = End::LayoutMismatch { ours: layout().hash(), theirs: Some(other) };
    let farewell = End::Farewell { code: ByeCode(300), text: "so long".into() };
    for (behind_frame, expected) in [
        (message.to_vec(), End::NotASession),
        (hello(|hello| (hello.version, hello.oldest_version) = (3, 2)), End::VersionMismatch),
        (hello(|hello| hello.layout = other), mismatch.clone()),
        ([hello(|_| ()), hello(|hello| hello.layout = other)].concat(), mismatch),
        (bye(ByeCode(300)), farewell),
        (bye(ByeCode::VIOLATION), End::Accused),
        (bye(ByeCode::VERSION_MISMATCH), End::VersionMismatch),
        (bye(ByeCode::LAYOUT_MISMATCH), End::LayoutMismatch { ours: layout().hash(), theirs: None }),
    ] {
        let mut end = connection(&Config::default(), layout());
        assert!(end.handle(&datagram(0, &behind_frame), Instant::default()).unwrap().is_none());
        assert_eq!(end.end(), Some(&expected));
        // A word more changes nothing.
        end.handle(&datagram(1, &bye(ByeCode(400))), Instant::default()).unwrap();
        assert_eq!(end.end(), Some(&expected));
    }
}

#[test]
fn a_layout_that_changes_midway_ends_the_connection() {
    let mut pair = Pair::greeted();
    let changed = datagram(50, &hello(|hello| hello.layout = other_layout().hash()));
    pair.give(1, &changed).unwrap();
    assert!(matches!(pair.ends[1].end(), Some(End::LayoutMismatch { .. })));
}

#[test]
fn what_is_dropped_is_counted() {
    let mut end = connection(&Config::default(), layout());
    let now = Instant::default();
    assert_eq!(end.handle(&[0], now).err(), Some(Reject::TooShort));
    assert_eq!(end.end(), None, "a torn datagram says nothing about its sender");
    let mut unknown = datagram(0, &[]);
    unknown[8] = 0x80;
    assert_eq!(end.handle(&unknown, now).err(), Some(Reject::Refused));
    assert_eq!(end.end(), Some(&End::NotASession));
    assert_eq!(end.handle(&[1; 40], now).err(), Some(Reject::NotAPacket));
    let rejects = end.stats(now).endpoint.rejects;
    assert_eq!([Reject::TooShort, Reject::Refused, Reject::NotAPacket].map(|reject| rejects.count(reject)), [1; 3]);
}

#[test]
fn a_peer_that_sends_our_own_packets_back_harms_nobody() {
    let mut pair = Pair::greeted();
    let mut sent = 0;
    for number in 0..2000_u32 {
        pair.say(0, STATE, &number.to_le_bytes());
        for datagram in pair.turn(0) {
            let _ = pair.give(0, &datagram);
            sent += 1;
        }
        pair.pass(5);
    }
    assert!(sent <= 2010, "{sent} datagrams for 2000 messages");
    assert!(pair.received[0].len() <= 2000 && pair.ends[0].end().is_none());
}

// Farewells ---------------------------------------------------------------------------------------------------------

#[test]
fn a_farewell_is_repeated_ten_times_in_a_second_until_nobody_has_heard_it() {
    let mut pair = Pair::greeted();
    pair.ends[0].leave(ByeCode::KICKED, "enough");
    let farewells: usize = (0..1100)
        .map(|_| {
            pair.pass(1);
            pair.turn(0).len()
        })
        .sum();
    assert_eq!((farewells, pair.ends[0].is_over()), (10, true));
    assert_eq!(pair.ends[0].next_deadline(pair.now), None);
}

#[test]
fn a_farewell_that_is_heard_ends_both_at_once() {
    let mut pair = Pair::greeted();
    pair.ends[0].leave(ByeCode(256), "see you");
    pair.run(15);
    assert!(pair.ends.iter().all(Connection::is_over));
    let left = End::Left { code: ByeCode(256), text: "see you".into() };
    let heard = End::Farewell { code: ByeCode(256), text: "see you".into() };
    assert_eq!([pair.ends[0].end(), pair.ends[1].end()], [Some(&left), Some(&heard)]);
}

#[test]
fn who_leaves_owes_nobody_acknowledgements_of_their_own() {
    let mut pair = Pair::greeted();
    pair.ends[0].leave(ByeCode::KICKED, "");
    for _ in 0..3 {
        pair.say(1, STATE, b"state");
        for datagram in pair.turn(1) {
            pair.give(0, &datagram).unwrap();
        }
    }
    assert!(pair.wakes(0) <= 12);
}

// Deadlines ---------------------------------------------------------------------------------------------------------

#[test]
fn a_silent_path_wakes_nobody_in_a_hurry() {
    let mut pair = Pair::greeted();
    pair.say(0, CHAT, b"is anybody there");
    let wakes = pair.wakes(0);
    assert!((2..40).contains(&wakes), "{wakes}");
}

#[test]
fn a_silent_peer_of_acknowledged_packets_wakes_nobody_in_a_hurry() {
    let mut packets = Packets::new(&Config::default(), None).unwrap();
    let (mut now, mut wakes) = (Instant::default(), 0);
    packets.send(b"is anybody there", now, &mut Datagrams::default()).unwrap();
    while let Some(deadline) = packets.next_deadline() {
        now = deadline.max(now.after(Duration::from_millis(1)));
        packets.tick(now);
        packets.transmit(now, &mut Datagrams::default());
        wakes += 1;
    }
    assert!((1..10).contains(&wakes), "{wakes}");
}

#[test]
fn memory_is_given_back_though_nothing_happens() {
    let mut pair = Pair::greeted();
    pair.say(0, CHAT, b"hello");
    pair.run(200);
    assert!(pair.ends[0].channels().memory_bytes() > 0);
    for _ in 0..3 {
        if let Some(deadline) = pair.ends[0].next_deadline(pair.now) {
            pair.now = deadline;
            pair.turn(0);
        }
    }
    assert_eq!((pair.ends[0].channels().memory_bytes(), pair.ends[0].next_deadline(pair.now)), (0, None));
}

#[test]
fn a_tick_has_its_whole_budget_though_the_connection_slept_until_something_was_sent() {
    let limited = ChannelConfig { bytes_per_tick: Some(1000), ..ChannelConfig::new(Kind::Unreliable) };
    let layout = Arc::new(Layout::new(vec![limited]).unwrap());
    let mut pair = Pair::with(layout.clone(), layout);
    pair.run(200);
    for turn in 0..20 {
        pair.pass(16);
        pair.say(0, CHAT, &[turn; 600]);
        let mut sink = Datagrams::default();
        pair.ends[0].transmit(pair.now, &mut sink);
        assert_eq!(sink.sent.len(), 1, "turn {turn}");
        pair.ends[0].transmit(pair.now, &mut sink);
        pair.give(1, &sink.sent[0]).unwrap();
        for answer in pair.turn(1) {
            pair.give(0, &answer).unwrap();
        }
    }
    assert_eq!(pair.received[1].len(), 20);
}

// Numbers -----------------------------------------------------------------------------------------------------------

#[test]
fn who_has_listened_for_ever_so_long_is_heard_when_it_speaks() {
    let mut pair = Pair::greeted();
    pair.say(1, CHAT, b"before");
    pair.run(200);
    for _ in 0..34_000 {
        pair.pass(25);
        pair.say(0, STATE, b"state");
        pair.exchange();
    }
    assert!(pair.ends[1].stats(pair.now).endpoint.counters.acks_sent > 1 << 15);
    let acked = |pair: &Pair| pair.ends[1].stats(pair.now).endpoint.counters.acked;
    let before = acked(&pair);
    pair.say(1, CHAT, b"after");
    let lost = pair.turn(1);
    assert_eq!(lost.len(), 1, "and this packet gets lost");
    pair.run(2000);
    assert_eq!(pair.received[0], [b"before".to_vec(), b"after".to_vec()]);
    assert_eq!(acked(&pair), before + 1);
    assert!(pair.ends[1].channels().free(CHAT).messages == 256, "nothing waits any more");
}

// Times -------------------------------------------------------------------------------------------------------------

#[test]
fn an_arrival_is_told_only_while_stamps_can_tell_it() {
    let mut pair = Pair::greeted();
    pair.say(0, STATE, b"state");
    let sent = pair.turn(0).remove(0);
    pair.give(1, &sent).unwrap();
    let arrived = pair.now;
    for (wait, told) in [(0, true), (STAMP_REACH.as_millis() as u64 - 1, true), (1, false), (9000, false)] {
        pair.pass(wait);
        pair.say(1, STATE, b"state");
        let answer = pair.turn(1).remove(0);
        let (_, payload) = Header::parse(&answer).unwrap();
        let (frame, _) = Frame::parse(payload).unwrap();
        assert_eq!(frame.arrived, told.then(|| Arrived::of(arrived, Duration::ZERO)), "{wait}");
    }
}

#[test]
fn a_datagram_that_lay_unread_is_told_as_late_and_the_last_of_a_batch_as_the_least_late() {
    let mut pair = Pair::greeted();
    let mut sent = Vec::new();
    for _ in 0..3 {
        pair.say(0, STATE, b"state");
        sent.extend(pair.turn(0));
        pair.pass(5);
    }
    let mut late = |datagrams: &[Vec<u8>]| {
        for datagram in datagrams {
            pair.ends[1].handle_late(datagram, Duration::from_millis(16), pair.now).unwrap();
        }
        pair.say(1, STATE, b"state");
        let answer = pair.turn(1).remove(0);
        let (_, payload) = Header::parse(&answer).unwrap();
        let (frame, _) = Frame::parse(payload).unwrap();
        pair.pass(16);
        frame.arrived.unwrap().late
    };
    // In quarters of a millisecond: 16 ms, less the 5 by which the third left later than the second.
    assert_eq!(late(&sent[..1]), 64);
    assert_eq!(late(&sent[1..]), 64 - 20);
}

#[test]
fn a_path_is_told_in_a_line_as_far_as_it_is_known() {
    let mut pair = Pair::new();
    let line = |pair: &Pair| format!("{}", pair.ends[0].stats(pair.now));
    assert_eq!(line(&pair), "0.0 % lost, may send 40.0 kB/s");
    pair.say(0, STATE, b"state");
    pair.run(1000);
    let told = line(&pair);
    let shape = ["ms, jitter ", "ms, 0.0 % lost, queue ", " ms, may send ", " kB/s"];
    assert!(shape.into_iter().all(|part| told.contains(part)), "{told}");
}

#[test]
fn an_acknowledgement_that_waited_for_long_is_no_sample_of_the_path() {
    let mut pair = Pair::greeted();
    let round_trip = |pair: &Pair| pair.ends[0].stats(pair.now).congestion.round_trip.unwrap();
    let before = round_trip(&pair);
    pair.say(0, STATE, b"state");
    let sent = pair.turn(0).remove(0);
    pair.give(1, &sent).unwrap();
    // The path back is dead for twenty seconds.
    for _ in 0..4000 {
        pair.pass(5);
        pair.turn(1);
    }
    pair.say(1, STATE, b"state");
    let answer = pair.turn(1).remove(0);
    pair.give(0, &answer).unwrap();
    assert_eq!(round_trip(&pair), before);
}
