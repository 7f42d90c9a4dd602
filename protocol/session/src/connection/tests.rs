//! Two connections and their datagrams, which the test delivers: hellos, close messages, deadlines, and malicious
//! peers.

use alloc::sync::Arc;
use core::time::Duration;
use std::format;
use std::vec;
use std::vec::Vec;

use super::packets::PacketConnection;
use super::*;
use crate::channel::close_code::CloseCode;
use crate::channel::control::{self, Bye, ControlMessage, Hello};
use crate::channel::{ChannelConfig, ChannelId, Kind, Layout, LayoutHash, SendOptions};
use crate::congestion::{Algorithm, BytesPerSecond};
use crate::reject::Reject;
use crate::reliability::Sink;
use crate::wire::reliable::{Acks, ReliableHeader, Sequence};
use crate::wire::session_frame::{AckNonces, ArrivalEcho, SessionFrame, TIMESTAMP_REACH, Timestamp};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;

mod acks_of_unsent;
mod before_hello;
mod changing_paths;
mod close_texts;
mod closed_loops;
mod lone_packets;
mod loop_timing;
mod many_messages;
mod many_packets;
mod packet_work;
mod receipts_at_close;
mod redirect_parts;
mod small_packets;
mod unacknowledging_peers;
mod unpolled_events;
mod unread_packets;

const CHAT: ChannelId = ChannelId(0);
const STATE: ChannelId = ChannelId(1);

#[derive(Default)]
struct Datagrams {
    buf: Vec<u8>,
    sent: Vec<Vec<u8>>,
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
        self.sent.push(self.buf[..bytes].to_vec());
    }
}

fn layout() -> Arc<Layout> {
    let kinds = [Kind::ReliableOrdered, Kind::Unreliable, Kind::Transfers];
    Arc::new(Layout::try_from(kinds.map(ChannelConfig::from).to_vec()).unwrap())
}

fn other_layout() -> Arc<Layout> {
    Arc::new(Layout::try_from(vec![ChannelConfig::from(Kind::Sequenced)]).unwrap())
}

fn connection(config: &ConnectionConfig, layout: Arc<Layout>) -> Connection {
    Connection::new(config, layout, Role::Client, None).unwrap()
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
        let ends = [one, other].map(|layout| connection(&ConnectionConfig::default(), layout));
        Self { now: Instant::from_start(Duration::from_secs(5)), ends, received: [Vec::new(), Vec::new()] }
    }

    fn send(&mut self, from: usize, channel: ChannelId, message: &[u8]) {
        self.ends[from].send(channel, message, SendOptions::default(), self.now).unwrap();
    }

    fn deliver(&mut self, to: usize, datagram: &[u8]) -> Result<(), Reject> {
        let (end, mut scratch) = (&mut self.ends[to], Vec::new());
        let Some(mut incoming) = end.handle(datagram, Duration::ZERO, self.now)? else { return Ok(()) };
        while let Some(message) = end.next_message(datagram, &mut incoming, &mut scratch, self.now) {
            self.received[to].push(message.span.bytes(datagram, &scratch).to_vec());
        }
        Ok(())
    }

    fn turn(&mut self, from: usize) -> Vec<Vec<u8>> {
        let mut sink = Datagrams::default();
        self.ends[from].tick(self.now);
        self.ends[from].transmit(self.now, &mut sink);
        sink.sent
    }

    /// Ticks both ends, and delivers what they send at once.
    fn exchange(&mut self) -> usize {
        let sent = [self.turn(0), self.turn(1)];
        for (from, datagrams) in sent.iter().enumerate() {
            for datagram in datagrams {
                let _ = self.deliver(1 - from, datagram);
            }
        }
        sent.iter().map(Vec::len).sum()
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
    }

    /// Exchanges datagrams for `millis` milliseconds. Returns their number.
    fn run(&mut self, millis: u64) -> usize {
        (0..millis / 5)
            .map(|_| {
                self.pass(5);
                self.exchange()
            })
            .sum()
    }

    fn connected() -> Self {
        let mut pair = Self::new();
        pair.run(200);
        pair
    }

    /// Returns how many deadlines an end has within a second in which nothing arrives.
    fn deadlines(&mut self, end: usize) -> usize {
        let until = self.now.after(Duration::from_secs(1));
        let mut deadlines = 0;
        while let Some(deadline) = self.ends[end].next_deadline(self.now).filter(|deadline| *deadline < until) {
            self.now = deadline.max(self.now.after(Duration::from_millis(1)));
            self.turn(end);
            deadlines += 1;
        }
        self.now = until;
        deadlines
    }
}

/// Returns a datagram with this number and these bytes behind its session frame.
fn datagram(sequence: u16, behind_frame: &[u8]) -> Vec<u8> {
    let mut buf = [0; 1200];
    let mut writer = Writer::new(&mut buf);
    ReliableHeader { sequence: Sequence(sequence), acks: Acks { ack: Sequence(65_535), bits: 0 } }.emit(&mut writer);
    SessionFrame { sent: Timestamp(7), nonces: AckNonces::default(), arrived: None, extended_acks: &[] }
        .emit(&mut writer);
    writer.bytes(behind_frame);
    let bytes = writer.written().unwrap();
    buf[..bytes].to_vec()
}

fn hello(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut hello = Hello { version: 1, oldest_version: 1, layout: layout().hash(), payload_bytes: 1200, abilities: 0 };
    change(&mut hello);
    let mut buf = [0; 64];
    let bytes = control::write(&ControlMessage::Hello(hello), &mut buf);
    buf[..bytes].to_vec()
}

/// Returns the reason of a close by the server, at the client.
fn kicked(code: CloseCode, text: &str) -> CloseReason {
    CloseReason { by: ClosedBy::Remote, kind: CloseKind::Kicked, code: Some(code), text: text.into() }
}

fn has_layout_mismatch(end: &Connection) -> bool {
    matches!(end.close_reason().map(|reason| reason.kind), Some(CloseKind::LayoutMismatch { .. }))
}

// Hellos ------------------------------------------------------------------------------------------------------------

#[test]
fn a_connection_without_messages_sends_hellos_only() {
    let mut pair = Pair::new();
    assert!(pair.ends[0].next_deadline(pair.now).is_some_and(|deadline| deadline <= pair.now));
    assert!((2..10).contains(&pair.run(1000)));
    assert_eq!(pair.run(5000), 0);
    assert_eq!(pair.ends.each_ref().map(|end| end.next_deadline(pair.now)), [None, None]);
}

#[test]
fn every_packet_carries_the_hello_until_it_is_acked() {
    let mut pair = Pair::new();
    pair.send(0, STATE, b"one");
    let first = pair.turn(0).remove(0);
    pair.pass(20);
    pair.send(0, STATE, b"two");
    let second = pair.turn(0).remove(0);
    pair.deliver(1, &second).unwrap();
    pair.deliver(1, &first).unwrap();
    assert_eq!(pair.received[1], [b"two".to_vec(), b"one".to_vec()]);
}

#[test]
fn both_ends_use_the_smaller_payload_limit() {
    let small = ConnectionConfig { max_payload_bytes: 508, ..ConnectionConfig::default() };
    let mut pair = Pair::new();
    pair.ends[0] = connection(&small, layout());
    pair.run(200);
    for (from, message) in [(0, vec![1; 5000]), (1, vec![2; 5000])] {
        pair.send(from, CHAT, &message);
        let sent = pair.turn(from);
        assert!(sent.iter().all(|datagram| datagram.len() <= 508) && sent[0].len() > 400, "{from}");
        for datagram in sent {
            pair.deliver(1 - from, &datagram).unwrap();
        }
    }
    pair.run(1000);
    assert_eq!(pair.received, [vec![vec![2; 5000]], vec![vec![1; 5000]]]);
    for end in &pair.ends {
        let suggested = end.budget(pair.now).suggestion.payload_bytes;
        assert!((1..=508).contains(&suggested), "{suggested}");
    }
}

#[test]
fn slices_larger_than_a_payload_are_refused() {
    let mut transfers = ChannelConfig::from(Kind::Transfers);
    transfers.transfers.slice_bytes = 1000;
    let layout = Arc::new(Layout::try_from(vec![transfers]).unwrap());
    let small = ConnectionConfig { max_payload_bytes: 1024, ..ConnectionConfig::default() };
    assert_eq!(
        Connection::new(&small, Arc::clone(&layout), Role::Client, None).err(),
        Some(ConnectionConfigError::SliceBytes)
    );
    let mut wide = ConnectionConfig::default();
    wide.endpoint.received_window = 4096;
    assert_eq!(
        Connection::new(&wide, Arc::clone(&layout), Role::Client, None).err(),
        Some(ConnectionConfigError::Window)
    );
    let enough = ConnectionConfig { max_payload_bytes: 1025, ..ConnectionConfig::default() };
    let mut end = connection(&enough, Arc::clone(&layout));
    let small_peer = hello(|hello| (hello.layout, hello.payload_bytes) = (layout.hash(), 508));
    end.handle(&datagram(0, &small_peer), Duration::ZERO, Instant::default()).unwrap();
    let transfer = crate::channel::transfer::Transfer::new(vec![7; 3000]).unwrap();
    end.channels.send_transfer(ChannelId(0), transfer, 0).unwrap();
    let mut other = connection(&ConnectionConfig::default(), layout);
    let (mut pair, mut events) = (Pair::new(), 0);
    std::mem::swap(&mut pair.ends[0], &mut end);
    std::mem::swap(&mut pair.ends[1], &mut other);
    for _ in 0..200 {
        pair.run(5);
        events += usize::from(pair.ends[1].channels.poll_event().is_some());
    }
    assert_eq!(events, 1, "the transfer arrived");
}

#[test]
fn a_server_refuses_uploads_unless_the_channel_admits_them() {
    use crate::channel::ChannelEvent;
    use crate::channel::transfer::{Transfer, TransferAdmission, TransferEvent, TransferReason};
    for (admission, uploads, downloads) in [
        (TransferAdmission::FromServer, false, true),
        (TransferAdmission::Automatic, true, true),
        (TransferAdmission::Never, false, false),
    ] {
        let mut transfers = ChannelConfig::from(Kind::Transfers);
        assert_eq!(transfers.transfers.admission, TransferAdmission::FromServer, "it is the default");
        transfers.transfers.admission = admission;
        let layout = Arc::new(Layout::try_from(vec![transfers]).unwrap());
        let mut pair = Pair::with(layout.clone(), layout.clone());
        pair.ends[1] =
            Connection::new(&ConnectionConfig::default(), layout, Role::Server, Some(&Memory::default())).unwrap();
        for end in &mut pair.ends {
            end.channels.send_transfer(ChannelId(0), Transfer::new(vec![7; 2000]).unwrap(), 0).unwrap();
        }
        let mut outcomes = [None; 2];
        for _ in 0..100 {
            pair.run(5);
            for (end, outcome) in pair.ends.iter_mut().zip(&mut outcomes) {
                match end.channels.poll_event() {
                    Some(ChannelEvent::Transfer { event: TransferEvent::Delivered { .. }, .. }) => {
                        *outcome = Some(true);
                    }
                    Some(ChannelEvent::Transfer {
                        event: TransferEvent::Refused { reason: TransferReason::Declined, .. },
                        ..
                    }) => {
                        *outcome = Some(false);
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(outcomes, [Some(uploads), Some(downloads)], "{admission:?}");
    }
}

#[test]
fn a_layout_without_channels_connects_and_closes() {
    let none = || Arc::new(Layout::try_from(Vec::new()).unwrap());
    let mut pair = Pair::with(none(), none());
    pair.run(1000);
    assert_eq!(pair.ends.each_ref().map(Connection::close_reason), [None, None]);
    assert_eq!(pair.run(5000), 0, "both hellos are acknowledged");
    let refused = pair.ends[0].send(CHAT, b"hi", SendOptions::default(), pair.now);
    assert_eq!(refused, Err(SendError::NoChannel { channel: CHAT, channels: 0 }));
    pair.ends[0].close(CloseCode(300), "good night");
    pair.run(200);
    let reason = kicked(CloseCode(300), "good night");
    assert_eq!(pair.ends[1].close_reason(), Some(&reason));
    // An empty layout does not match another one.
    let mut pair = Pair::with(none(), layout());
    pair.run(200);
    assert!(pair.ends.iter().all(has_layout_mismatch));
}

#[test]
fn both_ends_report_different_layouts() {
    let mut pair = Pair::with(layout(), other_layout());
    pair.run(100);
    let (one, other) = (layout().hash(), other_layout().hash());
    for (end, ours, theirs) in [(0, one, other), (1, other, one)] {
        let kind = pair.ends[end].close_reason().map(|reason| reason.kind);
        let Some(CloseKind::LayoutMismatch { local, remote, local_version, local_channels }) = kind else {
            panic!("{kind:?}")
        };
        assert!(local == ours && remote.is_none_or(|found| found == theirs));
        let layout = if end == 0 { layout() } else { other_layout() };
        assert_eq!((local_version, local_channels), (layout.version(), layout.channels().len()));
    }
    pair.run(200);
    assert!(pair.ends.iter().all(Connection::is_closed));
}

#[test]
fn foreign_and_close_messages_close_with_a_reason() {
    let message = [0x81, 0, 0, b'x'];
    let bye = |code: CloseCode| {
        let mut buf = [0; 64];
        let bytes = control::write(&ControlMessage::Bye(Bye { code, text: "so long" }), &mut buf);
        buf[..bytes].to_vec()
    };
    let other = LayoutHash(*b"another.");
    let local = layout().hash();
    let ours = |kind, code| CloseReason::from_session(ClosedBy::Local, kind, code);
    let theirs = |kind, code| CloseReason::from_session(ClosedBy::Remote, kind, code);
    let local_channels = layout().channels().len();
    let mismatch = |remote| CloseKind::LayoutMismatch { local, remote, local_version: 0, local_channels };
    let (version, accused) = (CloseKind::VersionMismatch, CloseKind::Accused);
    for (behind_frame, expected) in [
        (message.to_vec(), ours(CloseKind::NotASession, CloseCode::VIOLATION)),
        (hello(|hello| (hello.version, hello.oldest_version) = (3, 2)), ours(version, CloseCode::VERSION_MISMATCH)),
        (hello(|hello| hello.layout = other), ours(mismatch(Some(other)), CloseCode::LAYOUT_MISMATCH)),
        (
            [hello(|_| ()), hello(|hello| hello.layout = other)].concat(),
            ours(mismatch(Some(other)), CloseCode::LAYOUT_MISMATCH),
        ),
        (bye(CloseCode(300)), kicked(CloseCode(300), "so long")),
        (bye(CloseCode::VIOLATION), theirs(accused, CloseCode::VIOLATION)),
        (bye(CloseCode::VERSION_MISMATCH), theirs(version, CloseCode::VERSION_MISMATCH)),
        (bye(CloseCode::LAYOUT_MISMATCH), theirs(mismatch(None), CloseCode::LAYOUT_MISMATCH)),
    ] {
        let mut end = connection(&ConnectionConfig::default(), layout());
        let handled = end.handle(&datagram(0, &behind_frame), Duration::ZERO, Instant::default());
        assert!(!matches!(handled, Ok(Some(_))), "{expected:?}");
        assert_eq!(end.close_reason(), Some(&expected));
        // A second close message changes nothing.
        end.handle(&datagram(1, &bye(CloseCode(400))), Duration::ZERO, Instant::default()).unwrap();
        assert_eq!(end.close_reason(), Some(&expected));
    }
}

#[test]
fn a_layout_that_changes_midway_closes_the_connection() {
    let mut pair = Pair::connected();
    let changed = datagram(50, &hello(|hello| hello.layout = other_layout().hash()));
    pair.deliver(1, &changed).unwrap();
    assert!(has_layout_mismatch(&pair.ends[1]));
}

#[test]
fn dropped_datagrams_are_counted() {
    let mut end = connection(&ConnectionConfig::default(), layout());
    let now = Instant::default();
    end.handle(&datagram(0, &hello(|_| ())), Duration::ZERO, now).unwrap();
    assert_eq!(end.handle(&[0], Duration::ZERO, now).err(), Some(Reject::TooShort));
    assert_eq!(end.close_reason(), None, "a truncated datagram behind the hello does not close the connection");
    let mut unreadable = datagram(1, &[]);
    // A socket delay without an arrival.
    unreadable[8] = 0x04;
    assert_eq!(end.handle(&unreadable, Duration::ZERO, now).err(), Some(Reject::Refused));
    assert_eq!(end.close_reason().map(|reason| reason.kind), Some(CloseKind::NotASession));
    assert_eq!(end.handle(&[1; 40], Duration::ZERO, now).err(), Some(Reject::NotAPacket));
    let rejects = end.stats(now).endpoint.rejects;
    assert_eq!([Reject::TooShort, Reject::Refused, Reject::NotAPacket].map(|reject| rejects[reject]), [1; 3]);
}

#[test]
fn reflected_packets_cause_no_harm() {
    let mut pair = Pair::connected();
    let mut sent = 0;
    for number in 0..2000_u32 {
        pair.send(0, STATE, &number.to_le_bytes());
        for datagram in pair.turn(0) {
            let _ = pair.deliver(0, &datagram);
            sent += 1;
        }
        pair.pass(5);
    }
    assert!(sent <= 2010, "{sent} datagrams for 2000 messages");
    assert!(pair.received[0].len() <= 2000 && pair.ends[0].close_reason().is_none());
}

// Close messages ----------------------------------------------------------------------------------------------------

#[test]
fn an_unacked_close_is_sent_ten_times_in_a_second() {
    let mut pair = Pair::connected();
    pair.ends[0].close(CloseCode::KICKED, "enough");
    let closes: usize = (0..1100)
        .map(|_| {
            pair.pass(1);
            pair.turn(0).len()
        })
        .sum();
    assert_eq!((closes, pair.ends[0].is_closed()), (10, true));
    assert_eq!(pair.ends[0].next_deadline(pair.now), None);
}

#[test]
fn an_acked_close_ends_both_sides_at_once() {
    let mut pair = Pair::connected();
    pair.ends[0].close(CloseCode(256), "see you");
    pair.run(15);
    assert!(pair.ends.iter().all(Connection::is_closed));
    let left = CloseReason { by: ClosedBy::Local, kind: CloseKind::Left, ..kicked(CloseCode(256), "see you") };
    let closed = kicked(CloseCode(256), "see you");
    assert_eq!([pair.ends[0].close_reason(), pair.ends[1].close_reason()], [Some(&left), Some(&closed)]);
}

#[test]
fn a_closing_end_sends_no_separate_acknowledgements() {
    let mut pair = Pair::connected();
    pair.ends[0].close(CloseCode::KICKED, "");
    for _ in 0..3 {
        pair.send(1, STATE, b"state");
        for datagram in pair.turn(1) {
            pair.deliver(0, &datagram).unwrap();
        }
    }
    assert!(pair.deadlines(0) <= 12);
}

// Deadlines ---------------------------------------------------------------------------------------------------------

#[test]
fn a_silent_path_has_few_deadlines() {
    let mut pair = Pair::connected();
    pair.send(0, CHAT, b"hello");
    let deadlines = pair.deadlines(0);
    assert!((2..40).contains(&deadlines), "{deadlines}");
}

#[test]
fn a_silent_path_of_plain_packets_has_few_deadlines() {
    let mut packets = PacketConnection::new(&ConnectionConfig::default(), None).unwrap();
    let (mut now, mut deadlines) = (Instant::default(), 0);
    packets.send(b"hello", now, &mut Datagrams::default()).unwrap();
    while let deadline = packets.next_deadline()
        && deadline != Instant::NEVER
    {
        now = deadline.max(now.after(Duration::from_millis(1)));
        packets.tick(now);
        packets.transmit(now, &mut Datagrams::default());
        deadlines += 1;
    }
    assert!((1..10).contains(&deadlines), "{deadlines}");
}

#[test]
fn memory_is_freed_by_deadlines_alone() {
    let mut pair = Pair::connected();
    pair.send(0, CHAT, b"hello");
    pair.run(200);
    assert!(pair.ends[0].channels.memory_bytes() > 0);
    for _ in 0..3 {
        if let Some(deadline) = pair.ends[0].next_deadline(pair.now) {
            pair.now = deadline;
            pair.turn(0);
        }
    }
    assert_eq!((pair.ends[0].channels.memory_bytes(), pair.ends[0].next_deadline(pair.now)), (0, None));
}

#[test]
fn a_tick_after_sleep_has_its_whole_budget() {
    let limited = ChannelConfig { bytes_per_tick: Some(1000), ..ChannelConfig::from(Kind::Unreliable) };
    let layout = Arc::new(Layout::try_from(vec![limited]).unwrap());
    let mut pair = Pair::with(layout.clone(), layout);
    pair.run(200);
    for turn in 0..20 {
        pair.pass(16);
        pair.send(0, CHAT, &[turn; 600]);
        let mut sink = Datagrams::default();
        pair.ends[0].transmit(pair.now, &mut sink);
        assert_eq!(sink.sent.len(), 1, "turn {turn}");
        pair.ends[0].transmit(pair.now, &mut sink);
        pair.deliver(1, &sink.sent[0]).unwrap();
        for answer in pair.turn(1) {
            pair.deliver(0, &answer).unwrap();
        }
    }
    assert_eq!(pair.received[1].len(), 20);
}

// Numbers -----------------------------------------------------------------------------------------------------------

#[test]
fn an_end_that_only_received_for_long_can_send_again() {
    let mut pair = Pair::connected();
    pair.send(1, CHAT, b"before");
    pair.run(200);
    for _ in 0..34_000 {
        pair.pass(25);
        pair.send(0, STATE, b"state");
        pair.exchange();
    }
    assert!(pair.ends[1].stats(pair.now).endpoint.counters.acks_sent > 1 << 15);
    let acked = |pair: &Pair| pair.ends[1].stats(pair.now).endpoint.counters.acked;
    let before = acked(&pair);
    pair.send(1, CHAT, b"after");
    let lost = pair.turn(1);
    assert_eq!(lost.len(), 1, "this packet is lost");
    pair.run(2000);
    assert_eq!(pair.received[0], [b"before".to_vec(), b"after".to_vec()]);
    assert_eq!(acked(&pair), before + 1);
    assert!(pair.ends[1].channels.remaining(CHAT).messages == 256, "the queue is empty");
}

// Times -------------------------------------------------------------------------------------------------------------

#[test]
fn an_arrival_is_echoed_within_the_reach_of_timestamps() {
    let mut pair = Pair::connected();
    pair.send(0, STATE, b"state");
    let sent = pair.turn(0).remove(0);
    pair.deliver(1, &sent).unwrap();
    let arrived = pair.now;
    for (wait, is_echoed) in [(0, true), (TIMESTAMP_REACH.as_millis() as u64 - 1, true), (1, false), (9000, false)] {
        pair.pass(wait);
        pair.send(1, STATE, b"state");
        let answer = pair.turn(1).remove(0);
        let (_, payload) = ReliableHeader::parse(&answer).unwrap();
        let (frame, _) = SessionFrame::parse(payload).unwrap();
        assert_eq!(frame.arrived, is_echoed.then(|| ArrivalEcho::of(arrived, Duration::ZERO)), "{wait}");
    }
}

#[test]
fn the_echo_reports_the_socket_delay_of_a_batch() {
    let mut pair = Pair::connected();
    let mut sent = Vec::new();
    for _ in 0..3 {
        pair.send(0, STATE, b"state");
        sent.extend(pair.turn(0));
        pair.pass(5);
    }
    let mut echoed_delay = |datagrams: &[Vec<u8>]| {
        for datagram in datagrams {
            pair.ends[1].handle(datagram, Duration::from_millis(16), pair.now).unwrap();
        }
        pair.send(1, STATE, b"state");
        let answer = pair.turn(1).remove(0);
        let (_, payload) = ReliableHeader::parse(&answer).unwrap();
        let (frame, _) = SessionFrame::parse(payload).unwrap();
        pair.pass(16);
        frame.arrived.unwrap().late
    };
    // The unit is 250 us: 16 ms, less the 5 ms by which the third packet left later than the second.
    assert_eq!(echoed_delay(&sent[..1]), 64);
    assert_eq!(echoed_delay(&sent[1..]), 64 - 20);
}

#[test]
fn path_stats_display_what_is_measured() {
    let mut pair = Pair::new();
    let line = |pair: &Pair| format!("{}", pair.ends[0].stats(pair.now));
    assert_eq!(line(&pair), "0.0 % lost, may send 40.0 kB/s");
    pair.send(0, STATE, b"state");
    pair.run(1000);
    let measured = line(&pair);
    let shape = ["ms, jitter ", "ms, 0.0 % lost, queue ", " ms, may send ", " kB/s"];
    assert!(shape.into_iter().all(|part| measured.contains(part)), "{measured}");
}

#[test]
fn an_acknowledgement_held_for_long_is_no_rtt_sample() {
    let mut pair = Pair::connected();
    let round_trip = |pair: &Pair| pair.ends[0].stats(pair.now).congestion.round_trip.unwrap();
    let before = round_trip(&pair);
    pair.send(0, STATE, b"state");
    let sent = pair.turn(0).remove(0);
    pair.deliver(1, &sent).unwrap();
    // The path back is dead for 20 s.
    for _ in 0..4000 {
        pair.pass(5);
        pair.turn(1);
    }
    pair.send(1, STATE, b"state");
    let answer = pair.turn(1).remove(0);
    pair.deliver(0, &answer).unwrap();
    assert_eq!(round_trip(&pair), before);
}

#[test]
fn a_message_has_its_sending_and_arrival_times() {
    let mut pair = Pair::connected();
    pair.send(0, STATE, b"state");
    let (sent_at, datagram) = (pair.now, pair.turn(0).remove(0));
    pair.pass(30);
    let (end, now) = (&mut pair.ends[1], pair.now);
    let mut cursor = end.handle(&datagram, Duration::from_millis(5), now).unwrap().unwrap();
    let message = end.next_message(&datagram, &mut cursor, &mut Vec::new(), now).unwrap();
    let arrived = Instant::from_start(now.since_start() - Duration::from_millis(5));
    assert_eq!(message.times, PacketTimes { arrived, sent: Some(sent_at) });
}

#[test]
fn a_peer_cannot_claim_an_implausible_sending_time() {
    let mut pair = Pair::connected();
    pair.send(0, STATE, b"shot");
    // The peer writes an old timestamp: this path has a round trip of 0.
    let datagram = pair.turn(0).remove(0);
    pair.pass(2000);
    let (end, now) = (&mut pair.ends[1], pair.now);
    let mut cursor = end.handle(&datagram, Duration::ZERO, now).unwrap().unwrap();
    let times = end.next_message(&datagram, &mut cursor, &mut Vec::new(), now).unwrap().times;
    let sent = Instant::from_start(now.since_start() - Duration::from_millis(50));
    assert_eq!(times, PacketTimes { arrived: now, sent: Some(sent) });
}

#[test]
fn the_role_decides_on_kinds_and_uploads_without_shared_memory() {
    use crate::channel::ChannelEvent;
    use crate::channel::transfer::{Transfer, TransferEvent, TransferReason};
    for closing in [0, 1] {
        let mut pair = Pair::new();
        pair.ends[1] = Connection::new(&ConnectionConfig::default(), layout(), Role::Server, None).unwrap();
        pair.run(200);
        pair.ends[0].channels.send_transfer(ChannelId(2), Transfer::new(vec![7; 2000]).unwrap(), 0).unwrap();
        pair.run(200);
        let declined = TransferReason::Declined;
        match pair.ends[0].channels.poll_event() {
            Some(ChannelEvent::Transfer { event: TransferEvent::Refused { reason, .. }, .. }) if reason == declined => {
            }
            other => panic!("{other:?}"),
        }
        pair.ends[closing].close(CloseCode(300), "good night");
        pair.run(200);
        let kinds = pair.ends.each_ref().map(|end| end.close_reason().unwrap().kind);
        assert_eq!(kinds, [if closing == 0 { CloseKind::Left } else { CloseKind::Kicked }; 2]);
    }
}

#[test]
fn a_message_of_the_whole_budget_leaves_in_one_tick() {
    for rate in [1e4, 1e5, 1e6] {
        let mut config = ConnectionConfig::default();
        config.congestion.algorithm = Algorithm::Fixed(BytesPerSecond(rate));
        let mut pair = Pair::new();
        pair.ends = [(); 2].map(|()| connection(&config, layout()));
        pair.run(2000);
        pair.pass(16);
        pair.ends[0].tick(pair.now);
        let bytes = pair.ends[0].budget(pair.now).max_message_bytes();
        assert!(bytes > 400, "{rate}: {bytes}");
        pair.send(0, CHAT, &vec![1; bytes]);
        let mut sink = Datagrams::default();
        pair.ends[0].transmit(pair.now, &mut sink);
        sink.sent.iter().for_each(|datagram| pair.deliver(1, datagram).unwrap());
        assert_eq!(pair.received[1].len(), 1, "{rate}: {bytes} in {} datagrams", sink.sent.len());
    }
}
