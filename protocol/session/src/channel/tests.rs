//! Two ends in a test. The test passes the packets on, and decides which ones are lost, late or duplicated.

use alloc::sync::Arc;
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::send_error::SendError;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

mod receipts;
mod shared_memory;

const C: ChannelId = ChannelId(0);

/// One end of a connection, with its next sequence number and its received messages.
struct End {
    channels: Channels,
    sequence: Sequence,
    received: Vec<(u8, Vec<u8>)>,
    now: Instant,
}

impl End {
    fn new(configs: &[ChannelConfig]) -> Self {
        let layout = Arc::new(Layout::try_from(configs.to_vec()).unwrap());
        let channels = Channels::new(layout, None);
        Self { channels, sequence: Sequence(65_530), received: Vec::new(), now: Instant::default() }
    }

    fn pair(configs: &[ChannelConfig]) -> [Self; 2] {
        [Self::new(configs), Self::new(configs)]
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Duration::from_millis(millis));
        self.channels.begin_tick(self.now);
    }

    fn send(&mut self, channel: ChannelId, message: &[u8]) {
        self.channels.send(channel, message, SendOptions::default(), self.now).unwrap();
    }

    fn send_keyed(&mut self, message: &[u8], key: u64) {
        self.channels.send(C, message, SendOptions { key: Some(key), ..SendOptions::default() }, self.now).unwrap();
    }

    /// Returns the next packet with at most `room` bytes of frames, if there is one.
    fn packet(&mut self, room: usize) -> Option<(Sequence, Vec<u8>)> {
        let sequence = self.sequence;
        self.sequence = sequence + 1;
        let mut frames = vec![0xee; room];
        let bytes = self.channels.write(sequence, self.now, &mut frames);
        frames.truncate(bytes);
        (bytes > 0).then_some((sequence, frames))
    }

    fn packets(&mut self, room: usize) -> Vec<(Sequence, Vec<u8>)> {
        core::iter::from_fn(|| self.packet(room)).collect()
    }

    fn take(&mut self, frames: &[u8]) -> Result<(), ChannelViolation> {
        let (mut at, mut scratch) = (FrameCursor::default(), Vec::new());
        while let Some(arrival) = self.channels.next(frames, &mut at, &mut scratch, self.now)? {
            let ReceivedMessage { channel, span } = arrival;
            self.received.push((channel.0, span.bytes(frames, &scratch).to_vec()));
        }
        Ok(())
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        self.received.drain(..).map(|(_, message)| message).collect()
    }
}

fn message(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + number) as u8).collect()
}

fn of(kind: Kind) -> ChannelConfig {
    ChannelConfig::from(kind)
}

const MESSAGE_KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];

#[test]
fn packet_without_content_moves_no_later_number_back() {
    let mut end = End::new(&[of(Kind::ReliableOrdered)]);
    // It found no content, so it did not leave, and its number is given to the next one.
    assert!(end.packet(100).is_none());
    let first = end.sequence - 1;
    end.channels.skip(first - 1);
    end.sequence = first;
    end.send(C, b"hello");
    let (sequence, _) = end.packet(100).unwrap();
    end.channels.skip(sequence + 1);
    end.channels.on_acked(sequence);
    assert!(!end.channels.wants_to_send());
}

#[test]
fn messages_of_every_kind_and_size_arrive() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        for bytes in [0, 1, 127, 128, 129, 499, 500, 1000, 1193, 1200, 5000, 16_384] {
            one.send(C, &message(bytes, bytes));
            for room in [500, 1190] {
                for (sequence, frames) in one.packets(room) {
                    other.take(&frames).unwrap();
                    one.channels.on_acked(sequence);
                }
            }
            assert_eq!(other.received(), [message(bytes, bytes)], "{kind:?} {bytes}");
        }
        assert_eq!(one.channels.remaining(C), Remaining { bytes: 65_536, messages: 256, receipts: 4096 });
        assert!(!one.channels.wants_to_send());
    }
}

#[test]
fn ids_wrap_without_loss_or_duplicates() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        for end in [&mut one, &mut other] {
            end.channels.begin_ids_at((1 << 21) - 100);
        }
        for turn in 0..40 {
            for number in 0..5 {
                one.send(C, &[turn, number]);
            }
            one.send(C, &message(turn.into(), 1000));
            let packets = one.packets(300);
            // Every third turn is lost at first, and then duplicated.
            if turn % 3 == 0 && kind.is_reliable() {
                packets.iter().for_each(|(sequence, _)| one.channels.on_lost(*sequence));
                for (sequence, frames) in one.packets(300) {
                    other.take(&frames).unwrap();
                    one.channels.on_acked(sequence);
                }
            }
            for (sequence, frames) in packets {
                other.take(&frames).unwrap();
                one.channels.on_acked(sequence);
            }
            let expected: Vec<_> =
                (0..5).map(|number| vec![turn, number]).chain([message(turn.into(), 1000)]).collect();
            assert_eq!(other.received(), expected, "{kind:?} in turn {turn}");
        }
    }
}

#[test]
fn small_messages_share_a_packet() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        for turn in 0..3_u8 {
            (0..240_u8).for_each(|number| one.send(C, &[turn, number]));
            let packets = one.packets(1200);
            assert_eq!(packets.len(), 1, "{kind:?}: 240 messages of two bytes, with three bytes for each");
            other.take(&packets[0].1).unwrap();
            one.channels.on_acked(packets[0].0);
            assert_eq!(other.received().len(), 240);
        }
    }
}

#[test]
fn lost_message_is_sent_again_in_another_packet() {
    for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        one.send(C, b"first");
        let (lost, _) = one.packet(1000).unwrap();
        assert_eq!(one.packet(1000), None, "nothing is sent again before it is lost");
        one.send(C, b"second");
        let (_, frames) = one.packet(1000).unwrap();
        other.take(&frames).unwrap();
        one.channels.on_lost(lost);
        let (_, frames) = one.packet(1000).unwrap();
        other.take(&frames).unwrap();
        other.take(&frames).unwrap();
        let mut received = other.received();
        if kind == Kind::ReliableUnordered {
            received.reverse();
        }
        assert_eq!(received, [b"first".to_vec(), b"second".to_vec()], "{kind:?}");
    }
}

#[test]
fn slices_are_acked_and_retransmitted_one_by_one() {
    let [mut one, mut other] = End::pair(&[of(Kind::ReliableOrdered)]);
    one.send(C, &message(1, 10_000));
    let packets = one.packets(1000);
    assert_eq!(packets.len(), 12);
    for (at, (sequence, frames)) in packets.iter().enumerate() {
        if at == 3 || at == 7 {
            one.channels.on_lost(*sequence);
        } else {
            other.take(frames).unwrap();
            one.channels.on_acked(*sequence);
        }
    }
    let again = one.packets(1000);
    assert_eq!(again.len(), 2, "only the lost pieces are sent again");
    for (_, frames) in again {
        other.take(&frames).unwrap();
    }
    assert_eq!(other.received(), [message(1, 10_000)]);
}

#[test]
fn newer_message_replaces_a_waiting_or_sent_one_with_its_key() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        one.send_keyed(b"waits", 7);
        one.send_keyed(b"other key", 8);
        one.send_keyed(b"replaces it, in its index", 7);
        let (lost, _) = one.packet(1000).unwrap();
        one.send_keyed(b"replaces the one in flight", 7);
        one.channels.on_lost(lost);
        for (_, frames) in one.packets(1000) {
            other.take(&frames).unwrap();
        }
        let expected: &[&[u8]] = if kind.is_reliable() {
            &[b"other key", b"replaces the one in flight"]
        } else {
            &[b"replaces the one in flight"]
        };
        assert_eq!(other.received(), expected, "{kind:?}");
        assert_eq!(one.channels.stats(C).unwrap().superseded, if kind.is_reliable() { 2 } else { 1 });
    }
}

#[test]
fn newer_message_takes_the_room_of_the_one_it_replaces() {
    for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
        let small = ChannelConfig { queue_bytes: 1000, queue_messages: 4, max_message_bytes: 600, ..of(kind) };
        let [mut one, mut other] = End::pair(&[small]);
        let (mut tag, mut statuses) = (0, Vec::new());
        let mut send = |one: &mut End, key, message: &[u8]| {
            let options = SendOptions { key, receipt: Some(tag), ..SendOptions::default() };
            tag += 1;
            one.channels.send(C, message, options, one.now)
        };
        for key in 0..4 {
            assert_eq!(send(&mut one, Some(key), &[key as u8; 250]), Ok(()));
        }
        let (lost, _) = one.packet(1150).unwrap();
        assert_eq!(one.channels.remaining(C).messages, 0);
        assert_eq!(send(&mut one, None, b"no room"), Err(SendError::Backlogged));
        assert_eq!(send(&mut one, Some(9), b"another key"), Err(SendError::Backlogged));
        assert_eq!(send(&mut one, Some(2), &[7; 251]), Err(SendError::Backlogged), "it has not the bytes");
        assert_eq!(send(&mut one, Some(2), &[7; 250]), Ok(()));
        assert_eq!(send(&mut one, Some(2), &[8; 200]), Ok(()), "it replaces the waiting one");
        assert_eq!(send(&mut one, None, b"no room"), Err(SendError::Backlogged));
        assert_eq!(one.channels.remaining(C), Remaining { bytes: 50, messages: 0, receipts: 4096 - 6 });
        // The receiver's window is full: only the withdrawal of the third message fits.
        let (_, withdrawal) = one.packet(1150).unwrap();
        assert!(withdrawal.len() < 10 && one.packet(1150).is_none(), "{kind:?}: {} bytes", withdrawal.len());
        assert!(!one.channels.wants_to_send());
        one.channels.on_lost(lost);
        for _ in 0..5 {
            for (sequence, frames) in one.packets(1150) {
                other.take(&frames).unwrap();
                one.channels.on_acked(sequence);
            }
        }
        let expected: Vec<Vec<u8>> =
            [(0, 250), (1, 250), (3, 250), (8, 200)].map(|(byte, bytes)| vec![byte; bytes]).into();
        assert_eq!(other.received(), expected, "{kind:?}");
        while let Some(ChannelEvent::Receipt { tag, status, .. }) = one.channels.poll_event() {
            statuses.push((tag, status));
        }
        statuses.sort_by_key(|(tag, _)| *tag);
        let (arrived, superseded) = (DeliveryStatus::Arrived, DeliveryStatus::Superseded);
        let reported = [(0, arrived), (1, arrived), (2, superseded), (3, arrived), (7, superseded), (8, arrived)];
        assert_eq!(statuses, reported, "{kind:?}");
        assert_eq!(one.channels.remaining(C), Remaining { bytes: 1000, messages: 4, receipts: 4096 });
        assert_eq!(one.channels.stats(C).unwrap().superseded, 2);
    }
}

#[test]
fn full_queue_stays_bounded_while_all_is_replaced() {
    for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
        let small = ChannelConfig { queue_bytes: 4000, queue_messages: 8, max_message_bytes: 600, ..of(kind) };
        let [mut one, mut other] = End::pair(&[small]);
        let (mut under_way, mut count, mut most) = (Vec::new(), 0, 0);
        for round in 0..500_usize {
            one.pass(20);
            for key in 0..8 {
                let mut content = message(round, 450);
                content[0] = key as u8;
                let options = SendOptions { key: Some(key), ..SendOptions::default() };
                let _ = one.channels.send(C, &content, options, one.now);
            }
            most = most.max(one.channels.memory_bytes());
            under_way.push(one.packets(1150));
            // A round trip of three turns, with every fifth packet lost.
            let arrives = if under_way.len() > 3 { under_way.remove(0) } else { Vec::new() };
            for (sequence, frames) in arrives {
                count += 1;
                if count % 5 == 0 {
                    one.channels.on_lost(sequence);
                } else {
                    other.take(&frames).unwrap();
                    one.channels.on_acked(sequence);
                }
            }
        }
        let received = other.received();
        assert!(received.len() > 500, "{kind:?}: {}", received.len());
        for key in 0..8 {
            assert!(received.iter().filter(|content| content[0] == key).count() > 50, "{kind:?}: key {key}");
        }
        assert!(one.channels.stats(C).unwrap().superseded > 2000, "{kind:?}");
        assert!(most < 16_000, "{kind:?}: {most} bytes for a queue of 4,000");
    }
}

#[test]
fn key_with_too_many_large_messages_still_delivers_some() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        let mut under_way = Vec::new();
        for tick in 0..100 {
            one.pass(20);
            one.send_keyed(&message(tick, 9000), 7);
            for (sequence, frames) in [one.packet(1000), one.packet(1000)].into_iter().flatten() {
                other.take(&frames).unwrap();
                under_way.push(sequence);
            }
            for arrived in under_way.drain(..under_way.len().saturating_sub(6)) {
                one.channels.on_acked(arrived);
            }
        }
        let received = other.received();
        assert!(received.len() >= 15, "{kind:?}: {} of 100 messages of 10 packets, 2 packets for each", received.len());
        assert!(received.iter().all(|received| *received == message(usize::from(received[0]), 9000)), "{kind:?}");
        assert!(received.is_sorted_by(|older, newer| older[0] < newer[0]), "{kind:?}");
    }
}

#[test]
fn expired_message_is_not_sent_and_blocks_no_other() {
    for kind in MESSAGE_KINDS {
        let late = ChannelConfig { deadline: Some(Duration::from_millis(100)), ..of(kind) };
        let [mut one, mut other] = End::pair(&[late]);
        one.send(C, b"is lost, and then expired");
        let (lost, _) = one.packet(1000).unwrap();
        one.send(C, b"is never sent");
        one.pass(100);
        one.channels.on_lost(lost);
        one.send(C, b"in time");
        for (sequence, frames) in one.packets(1000) {
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
        }
        assert_eq!(other.received(), [b"in time"], "{kind:?}");
        assert_eq!(one.channels.stats(C).unwrap().expired, 1 + u64::from(kind.is_reliable()));
        assert_eq!(one.channels.remaining(C).messages, 256);
    }
}

#[test]
fn transfer_arrives_in_the_room_that_messages_leave() {
    let [mut one, mut other] = End::pair(&[of(Kind::Sequenced), of(Kind::Transfers)]);
    let content = message(5, 100_000);
    let id = one.channels.send_transfer(ChannelId(1), transfer::Transfer::new(content.clone()).unwrap(), 77).unwrap();
    let mut events = Vec::new();
    for tick in 0..300 {
        for end in [&mut one, &mut other] {
            end.pass(20);
            while let Some(ChannelEvent::Transfer { channel, event }) = end.channels.poll_event() {
                assert_eq!(channel, ChannelId(1));
                events.push(event);
            }
        }
        one.send(C, &message(tick, 500));
        let (sequence, frames) = one.packet(1180).unwrap();
        if tick % 7 == 3 {
            one.channels.on_lost(sequence);
        } else {
            other.take(&frames).unwrap();
            assert_eq!(other.received(), [message(tick, 500)], "the game's message went first");
            one.channels.on_acked(sequence);
        }
        for (sequence, frames) in other.packets(1180) {
            one.take(&frames).unwrap();
            other.channels.on_acked(sequence);
        }
    }
    let [
        transfer::TransferEvent::Received { id: received, label: 77, content: whole },
        transfer::TransferEvent::Delivered { id: delivered },
    ] = &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!((received, delivered), (&id, &id));
    assert_eq!(whole.chunks().flatten().copied().collect::<Vec<u8>>(), content);
}

#[test]
fn repeated_frames_of_transfers_are_counted() {
    let [mut one, mut other] = [(); 2].map(|()| End::new(&[of(Kind::Transfers)]));
    one.channels.send_transfer(C, transfer::Transfer::new(message(7, 10_000)).unwrap(), 0).unwrap();
    let packets = one.packets(1000);
    (0..3).for_each(|_| other.take(&packets[0].1).unwrap());
    assert_eq!(other.channels.stats(C).map(|stats| stats.dropped), Some(2));
}

#[test]
fn frames_in_flight_may_outlive_the_end_of_transfers() {
    let [mut one, _] = End::pair(&[of(Kind::Transfers)]);
    one.channels.send_transfer(C, transfer::Transfer::new(message(7, 10_000)).unwrap(), 0).unwrap();
    let packets = one.packets(1000);
    assert_eq!(one.channels.take_partials().count(), 0);
    for (number, (sequence, _)) in packets.into_iter().enumerate() {
        if number % 2 == 0 { one.channels.on_acked(sequence) } else { one.channels.on_lost(sequence) }
    }
    one.channels.on_pto();
    assert!(!one.channels.wants_to_send(), "nothing is sent again");
}

#[test]
fn transfer_delays_no_message_by_default() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(Kind::Transfers), of(kind)]);
        one.channels.send_transfer(C, transfer::Transfer::new(message(5, 100_000)).unwrap(), 0).unwrap();
        for tick in 0..20 {
            one.pass(20);
            other.pass(20);
            one.send(ChannelId(1), &message(tick, 500));
            let (sequence, frames) = one.packet(600).unwrap();
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
            assert_eq!(other.received(), [message(tick, 500)], "{kind:?}");
            for (sequence, frames) in other.packets(600) {
                one.take(&frames).unwrap();
                other.channels.on_acked(sequence);
            }
        }
        assert!(one.channels.stats(C).unwrap().frame_bytes > 0);
    }
}

#[test]
fn wrong_kind_and_missing_channel_are_refused() {
    let [mut one, _] = End::pair(&[of(Kind::Unreliable), of(Kind::Transfers)]);
    let transfer = || transfer::Transfer::new([1; 10].as_slice()).unwrap();
    let now = one.now;
    let options = SendOptions::default();
    let missing = SendError::NoChannel { channel: ChannelId(2), channels: 2 };
    assert_eq!(one.channels.send(ChannelId(1), b"no transfer", options, now), Err(SendError::WrongKind));
    assert_eq!(one.channels.send(ChannelId(2), b"nowhere", options, now), Err(missing));
    assert_eq!(
        one.channels.send(C, &[0; 16_385], options, now),
        Err(SendError::TooLarge { channel: Some(C), bytes: 16_385, limit: 16_384 })
    );
    assert_eq!(one.channels.send_transfer(C, transfer(), 0), Err(SendError::WrongKind));
    assert_eq!(one.channels.send_transfer(ChannelId(2), transfer(), 0), Err(missing));
    assert_eq!(
        (one.channels.remaining(ChannelId(1)), one.channels.remaining(ChannelId(2))),
        (Remaining::default(), Remaining::default())
    );
}

#[test]
fn full_queue_refuses_and_remaining_shows_it_before() {
    for kind in MESSAGE_KINDS {
        let small = ChannelConfig { queue_bytes: 3000, queue_messages: 5, max_message_bytes: 2000, ..of(kind) };
        let [mut one, mut other] = End::pair(&[small]);
        let send =
            |one: &mut End, bytes: usize| one.channels.send(C, &message(0, bytes), SendOptions::default(), one.now);
        assert_eq!(send(&mut one, 2000), Ok(()));
        assert_eq!(one.channels.remaining(C), Remaining { bytes: 1000, messages: 4, receipts: 4096 });
        assert_eq!(send(&mut one, 1001), Err(SendError::Backlogged));
        assert_eq!(send(&mut one, 1000), Ok(()));
        for _ in 0..3 {
            assert_eq!(send(&mut one, 0), Ok(()));
        }
        assert_eq!(send(&mut one, 0), Err(SendError::Backlogged));
        let packets = one.packets(1180);
        let free = if kind.is_reliable() { 0 } else { 3000 };
        assert_eq!(one.channels.remaining(C).bytes, free, "{kind:?}: what is under way counts if it may come back");
        for (sequence, frames) in packets {
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
        }
        assert_eq!(other.received().len(), 5);
        assert_eq!(one.channels.remaining(C), Remaining { bytes: 3000, messages: 5, receipts: 4096 });
        assert_eq!(one.channels.stats(C).unwrap().backlogged, 2);
    }
}

#[test]
fn late_ack_stops_retransmission_and_pto_repeats_oldest() {
    let [mut one, mut other] = End::pair(&[of(Kind::ReliableOrdered)]);
    one.send(C, b"first");
    let (first, _) = one.packet(100).unwrap();
    one.send(C, b"second");
    let (second, _) = one.packet(100).unwrap();
    one.channels.on_lost(first);
    one.channels.on_acked(first);
    assert_eq!(one.packet(100), None, "it has arrived after all");
    one.channels.on_pto();
    let (again, frames) = one.packet(100).unwrap();
    assert_eq!(other.take(&frames), Ok(()));
    assert_eq!(one.packet(100), None, "one probe, one repetition");
    one.channels.on_lost(second);
    assert_eq!(one.packet(100), None, "the probe carries its message");
    one.channels.on_lost(again);
    assert!(one.packet(100).is_some());
}

#[test]
fn unacked_packet_counts_as_lost_after_2048_others() {
    let [mut one, _] = End::pair(&[of(Kind::ReliableUnordered), of(Kind::Unreliable)]);
    one.send(C, b"forgotten");
    one.packet(100).unwrap();
    for number in 0..MAX_PACKETS {
        one.send(ChannelId(1), b"filler");
        let (_, frames) = one.packet(100).unwrap();
        let again = frames.windows(9).any(|window| window == b"forgotten");
        assert_eq!(again, number == MAX_PACKETS - 1, "{number}");
    }
}

#[test]
fn higher_classes_go_first_and_no_class_starves() {
    let flood = ChannelConfig { priority: 9, bytes_per_tick: None, deadline: None, ..of(Kind::Sequenced) };
    let patient = ChannelConfig { deadline: None, ..of(Kind::Unreliable) };
    let [mut one, mut other] = End::pair(&[flood, of(Kind::ReliableOrdered), patient]);
    let mut arrivals = Vec::new();
    for tick in 0..200 {
        one.pass(20);
        while one.channels.remaining(C).messages > 200 && one.channels.remaining(C).bytes > 2000 {
            one.send(C, &message(tick, 1170));
        }
        for channel in [1, 2] {
            if one.channels.remaining(ChannelId(channel)).bytes > 1000 {
                one.send(ChannelId(channel), &message(tick, 1000));
            }
        }
        // One packet in each tick, which the first class alone could always fill.
        let (sequence, frames) = one.packet(1180).unwrap();
        other.take(&frames).unwrap();
        one.channels.on_acked(sequence);
        arrivals.extend(other.received.drain(..).map(|(channel, _)| (tick, channel)));
    }
    for channel in [1, 2] {
        let ticks: Vec<usize> =
            arrivals.iter().filter(|arrival| arrival.1 == channel).map(|arrival| arrival.0).collect();
        assert!((12..=18).contains(&ticks.len()), "{ticks:?}: two in every half second of four");
        assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] <= 28), "{ticks:?}");
    }
    assert!(
        arrivals.iter().filter(|arrival| arrival.1 == 0).count() > 150,
        "the other classes cost the first one little"
    );
}

#[test]
fn no_class_starves_while_its_messages_expire_or_are_replaced() {
    for (kind, key) in MESSAGE_KINDS.into_iter().flat_map(|kind| [(kind, None), (kind, Some(7))]) {
        let flood = ChannelConfig { priority: 9, ..of(Kind::ReliableOrdered) };
        let [mut one, mut other] = End::pair(&[flood, of(kind)]);
        let mut ticks = Vec::new();
        for tick in 0..1000 {
            one.pass(20);
            while one.channels.remaining(C).messages > 200 && one.channels.remaining(C).bytes > 2000 {
                one.send(C, &message(tick, 1170));
            }
            let options = SendOptions { key, ..SendOptions::default() };
            let _ = one.channels.send(ChannelId(1), &message(tick, 1000), options, one.now);
            let (sequence, frames) = one.packet(1180).unwrap();
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
            ticks.extend(other.received.drain(..).filter(|(channel, _)| *channel == 1).map(|_| tick));
        }
        assert!(ticks.len() >= 30, "{kind:?}, key {key:?}: {} in 20 s", ticks.len());
        assert!(ticks.windows(2).all(|pair| pair[1] - pair[0] <= 28), "{kind:?}, key {key:?}: {ticks:?}");
    }
}

/// Returns the age in ticks of states of 1,000 bytes when they leave. One can leave in every third tick.
fn ages_of_states(config: ChannelConfig) -> Vec<usize> {
    let [mut one, mut other] = End::pair(&[config]);
    let mut ages = Vec::new();
    for tick in 0..600_usize {
        one.pass(16);
        one.send(C, &[&(tick as u32).to_le_bytes()[..], &[0; 996]].concat());
        if tick % 3 == 0
            && let Some((_, frames)) = one.packet(1180)
        {
            other.take(&frames).unwrap();
        }
        for state in other.received() {
            ages.push(tick - u32::from_le_bytes(state[..4].try_into().unwrap()) as usize);
        }
    }
    ages.sort_unstable();
    ages
}

#[test]
fn newest_only_sends_the_newest_state_first_on_a_thin_path() {
    for kind in [Kind::Sequenced, Kind::Unreliable] {
        let ages = ages_of_states(of(kind).newest_only());
        assert!(ages.len() >= 200 && ages[ages.len() - 1] == 0, "{kind:?}: {ages:?}");
        let ages = ages_of_states(of(kind));
        assert!(ages[ages.len() / 2] >= 10, "{kind:?} keeps older states: {ages:?}");
    }
}

#[test]
fn newest_only_keeps_a_tick_in_order_and_drops_older_ticks() {
    let small = ChannelConfig { queue_bytes: 5000, queue_messages: 6, max_message_bytes: 1000, ..of(Kind::Sequenced) };
    let small = ChannelConfig { newest_only: true, ..small };
    let [mut one, mut other] = End::pair(&[small]);
    let mut tag = 0;
    let mut send = |one: &mut End, key| {
        let options = SendOptions { key, receipt: Some(tag), ..SendOptions::default() };
        tag += 1;
        one.channels.send(C, &[tag as u8; 800], options, one.now).unwrap();
    };
    one.pass(16);
    [None, Some(1), None, None, Some(2)].into_iter().for_each(|key| send(&mut one, key));
    let (_, frames) = one.packet(900).unwrap();
    other.take(&frames).unwrap();
    assert_eq!(other.received(), [[1; 800]]);
    // Two arrive in the next tick; the third and fourth are outdated, and those with keys are not.
    one.pass(16);
    (0..2).for_each(|_| send(&mut one, None));
    assert_eq!(one.channels.remaining(C).bytes, 5000 - 4 * 800);
    one.pass(16);
    for (_, frames) in one.packets(900) {
        other.take(&frames).unwrap();
    }
    assert_eq!(other.received(), [[2; 800], [6; 800], [5; 800], [7; 800]]);
    assert_eq!(one.channels.stats(C).unwrap().superseded, 2);
    let mut reported = Vec::new();
    while let Some(ChannelEvent::Receipt { tag, status, .. }) = one.channels.poll_event() {
        reported.push((tag, status));
    }
    reported.sort_by_key(|(tag, _)| *tag);
    assert_eq!(reported, [(2, DeliveryStatus::Superseded), (3, DeliveryStatus::Superseded)]);
    assert_eq!(one.channels.remaining(C).bytes, 5000);
}

#[test]
fn message_deferred_once_is_sliced_in_the_next_packet() {
    let first = ChannelConfig { priority: 1, ..of(Kind::Unreliable) };
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[first.clone(), of(kind)]);
        one.send(ChannelId(1), &message(9, 1000));
        for tick in 0..3 {
            one.send(C, &message(tick, 600));
            let (_, frames) = one.packet(1180).unwrap();
            other.take(&frames).unwrap();
        }
        assert!(other.received.contains(&(1, message(9, 1000))), "{kind:?}");
    }
}

#[test]
fn violation_is_found_after_messages_before_it_are_delivered() {
    let [_, mut other] = End::pair(&[of(Kind::Unreliable), of(Kind::ReliableOrdered)]);
    let frames = [0x01, 2, b'o', b'k', 0x02, 0xff, 0x7f, 1, b'x'];
    assert_eq!(other.take(&frames), Err(ChannelViolation::Overrun(ChannelId(1))));
    assert_eq!(other.received(), [b"ok"]);
}

#[test]
fn old_data_delays_new_data_only_briefly_by_default() {
    for (kind, left) in [(Kind::Unreliable, 1), (Kind::Sequenced, 1), (Kind::ReliableOrdered, 2)] {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        one.send(C, b"old");
        one.pass(300);
        one.send(C, b"new");
        let (_, frames) = one.packet(100).unwrap();
        let arrived = other.take(&frames);
        assert_eq!(other.received.len(), left, "{kind:?} {arrived:?}");
    }
}

#[test]
fn used_up_bytes_per_tick_set_a_deadline() {
    let [mut left, _] = End::pair(&[ChannelConfig { bytes_per_tick: Some(100), ..of(Kind::ReliableOrdered) }]);
    for number in 0..3 {
        left.send(C, &message(number, 90));
        // The second message exceeds the bytes per tick.
        assert_eq!(left.packet(1000).is_some(), number < 2);
    }
    assert!(!left.channels.wants_to_send());
    assert_eq!(left.channels.next_deadline(left.now, Duration::ZERO), left.now);
    left.pass(10);
    assert!(left.packet(1000).is_some());
}

#[test]
fn unhashed_transfer_sets_a_deadline() {
    let [mut left, mut right] = End::pair(&[of(Kind::Transfers)]);
    let transfer = transfer::Transfer::new(vec![7; 3 << 20]).unwrap();
    left.channels.send_transfer(C, transfer, 0).unwrap();
    let (mut held_back, mut sent) = (None, 0);
    loop {
        let there = left.packet(1100);
        if let Some((sequence, frames)) = &there {
            left.channels.on_acked(*sequence);
            sent += 1;
            // The first packet with slices, which follows the announcement, arrives last.
            if sent == 2 {
                held_back = Some(frames.clone());
            } else {
                right.take(frames).unwrap();
            }
        }
        let back = right.packet(1100);
        if let Some((sequence, frames)) = &back {
            right.channels.on_acked(*sequence);
            left.take(frames).unwrap();
        }
        if there.is_none() && back.is_none() {
            break;
        }
    }
    assert_eq!(right.channels.next_deadline(right.now, Duration::ZERO), Instant::NEVER, "the first slices are missing");
    right.take(&held_back.unwrap()).unwrap();
    let mut turns = 0;
    while right.channels.next_deadline(right.now, Duration::ZERO) == right.now {
        let _ = right.channels.poll_event().map(|event| {
            assert!(matches!(event, ChannelEvent::Transfer { event: transfer::TransferEvent::Received { .. }, .. }));
            turns += 100;
        });
        turns += 1;
    }
    assert!((103..120).contains(&turns), "{turns}: it came, after several turns");
}

#[test]
fn shared_message_is_queued_by_reference_and_counts_in_full() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind).queue(20_000, 256)]);
        let bytes: Arc<[u8]> = message(7, 9000).into();
        let shared = SharedMessage::from(Arc::clone(&bytes));
        let send = |one: &mut End| one.channels.send_shared(C, &shared, SendOptions::default(), one.now);
        assert_eq!([send(&mut one), send(&mut one)], [Ok(()); 2]);
        assert_eq!(send(&mut one), Err(SendError::Backlogged), "{kind:?}");
        assert_eq!((one.channels.remaining(C).bytes, one.channels.memory_bytes()), (2000, 0), "{kind:?}");
        assert_eq!(Arc::strong_count(&bytes), 4, "one for each queued reference");
        let packets = one.packets(1190);
        for (sequence, frames) in packets {
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
        }
        assert_eq!(other.received(), [bytes.to_vec(), bytes.to_vec()], "{kind:?}");
        assert_eq!(Arc::strong_count(&bytes), 2, "{kind:?}");
    }
}
