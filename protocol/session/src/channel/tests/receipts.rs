//! Delivery receipts are true, and reported once.

use super::*;

impl End {
    fn send_with_receipt(&mut self, channel: ChannelId, message: &[u8], tag: u64) {
        let options = SendOptions { receipt: Some(tag), ..SendOptions::default() };
        self.channels.send(channel, message, options, self.now).unwrap();
    }

    /// Returns the receipts that were reported since.
    fn reported(&mut self) -> Vec<(u64, DeliveryStatus)> {
        let event = |event| match event {
            ChannelEvent::Receipt { tag, status, .. } => (tag, status),
            other @ ChannelEvent::Transfer { .. } => panic!("{other:?}"),
        };
        core::iter::from_fn(|| self.channels.poll_event()).map(event).collect()
    }
}

#[test]
fn only_messages_with_a_receipt_report_arrival() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        for turn in 0..3 {
            for (tag, bytes) in (10 * turn..).zip([0, 40, 1000, 5000]) {
                one.send_with_receipt(C, &message(turn as usize, bytes), tag);
                one.send(C, b"does not ask");
            }
            let packets = one.packets(1180);
            assert!(packets.len() > 4 && one.reported().is_empty());
            for (sequence, frames) in packets {
                other.take(&frames).unwrap();
                one.channels.on_acked(sequence);
                one.channels.on_acked(sequence);
            }
            assert_eq!(one.reported(), [0, 1, 2, 3].map(|tag| (10 * turn + tag, DeliveryStatus::Arrived)), "{kind:?}");
        }
        assert_eq!(other.received().len(), 24);
    }
}

#[test]
fn loss_is_reported_at_once_and_a_late_arrival_once() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        one.send_with_receipt(C, b"first", 1);
        let (first, frames) = one.packet(100).unwrap();
        one.channels.on_lost(first);
        if kind.is_reliable() {
            assert!(one.reported().is_empty(), "it leaves again");
            let (again, frames) = one.packet(100).unwrap();
            other.take(&frames).unwrap();
            one.channels.on_lost(again);
        } else {
            assert_eq!(one.reported(), [(1, DeliveryStatus::Lost)]);
            other.take(&frames).unwrap();
        }
        one.channels.on_acked(first);
        let status = if kind.is_reliable() { DeliveryStatus::Arrived } else { DeliveryStatus::ArrivedLate };
        assert_eq!(one.reported(), [(1, status)], "{kind:?}");
        one.channels.on_acked(first);
        assert_eq!(one.reported(), [], "{kind:?}");
    }
}

#[test]
fn sliced_message_is_lost_with_any_and_arrives_with_last_slice() {
    for kind in [Kind::Unreliable, Kind::Sequenced] {
        let [mut one, _] = End::pair(&[of(kind)]);
        for (tag, lost) in [(1, None), (2, Some(0)), (3, Some(2)), (4, Some(4))] {
            one.send_with_receipt(C, &message(0, 5000), tag);
            let mut packets = Vec::new();
            for number in 0..5 {
                packets.push(one.packet(1190).unwrap().0);
                if lost == Some(number) {
                    // The rest of the message may not have been sent yet.
                    one.channels.on_lost(packets[number]);
                    assert_eq!(one.reported(), [(tag, DeliveryStatus::Lost)], "{kind:?}");
                }
            }
            for (number, sequence) in packets.into_iter().enumerate().rev() {
                assert!(one.reported().is_empty());
                if lost != Some(number) {
                    one.channels.on_acked(sequence);
                }
            }
            let arrived: &[_] = if lost.is_none() { &[(tag, DeliveryStatus::Arrived)] } else { &[] };
            assert_eq!(one.reported(), arrived, "{kind:?}");
        }
    }
}

#[test]
fn expired_and_superseded_are_reported_waiting_or_in_flight() {
    for kind in MESSAGE_KINDS {
        let late = ChannelConfig { deadline: Some(Duration::from_millis(100)), ..of(kind) };
        let [mut one, mut other] = End::pair(&[late]);
        let keyed = |one: &mut End, tag| {
            let options = SendOptions { key: Some(7), receipt: Some(tag), ..SendOptions::default() };
            one.channels.send(C, &[tag as u8], options, one.now).unwrap();
        };
        keyed(&mut one, 1);
        keyed(&mut one, 2);
        assert_eq!(one.reported(), [(1, DeliveryStatus::Superseded)]);
        let (second, frames) = one.packet(100).unwrap();
        keyed(&mut one, 3);
        let replaced: &[_] = if kind.is_reliable() { &[(2, DeliveryStatus::Superseded)] } else { &[] };
        assert_eq!(one.reported(), replaced, "{kind:?}: what is sent once has gone");
        one.pass(100);
        assert_eq!(one.reported(), [(3, DeliveryStatus::Expired)]);
        other.take(&frames).unwrap();
        one.channels.on_acked(second);
        let arrived: &[_] = if kind.is_reliable() { &[] } else { &[(2, DeliveryStatus::Arrived)] };
        assert_eq!(one.reported(), arrived, "{kind:?}");

        one.send_with_receipt(C, b"is lost, and then expired", 4);
        let (lost, _) = one.packets(100).pop().unwrap();
        one.pass(100);
        one.channels.on_lost(lost);
        one.packets(100);
        let status = if kind.is_reliable() { DeliveryStatus::Expired } else { DeliveryStatus::Lost };
        assert_eq!(one.reported(), [(4, status)], "{kind:?}");
    }
}

#[test]
fn ordered_message_arrives_when_all_before_it_have() {
    for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        let packets: Vec<_> = (1..4)
            .map(|tag| {
                one.send_with_receipt(C, &[tag as u8], tag);
                one.packet(100).unwrap()
            })
            .collect();
        let mut reported = Vec::new();
        for (sequence, frames) in packets.into_iter().rev() {
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
            let receipts = one.reported();
            assert_eq!(receipts.len(), other.received().len(), "{kind:?}: as many as the peer's application has");
            reported.extend(receipts.into_iter().map(|(tag, _)| tag));
        }
        assert_eq!(reported, if kind == Kind::ReliableOrdered { [1, 2, 3] } else { [3, 2, 1] });
    }
}

#[test]
fn pto_reports_nothing_and_skips_messages_sent_once() {
    let [mut one, mut other] = End::pair(&[of(Kind::Unreliable), of(Kind::ReliableOrdered)]);
    one.send_with_receipt(C, b"once", 1);
    let (alone, _) = one.packet(100).unwrap();
    one.send_with_receipt(C, b"once", 2);
    one.send_with_receipt(ChannelId(1), b"until it is there", 3);
    let (both, _) = one.packet(100).unwrap();
    one.channels.on_pto();
    let (_, frames) = one.packet(100).unwrap();
    assert!(frames.ends_with(b"until it is there") && frames.len() < 20, "and nothing else");
    assert!(one.reported().is_empty() && one.packet(100).is_none());
    one.channels.on_lost(both);
    one.channels.on_lost(alone);
    assert_eq!(one.reported(), [(2, DeliveryStatus::Lost), (1, DeliveryStatus::Lost)]);
    assert!(one.packet(100).is_none(), "the probe carries its message");
    other.take(&frames).unwrap();
    one.channels.on_acked(both);
    assert_eq!(one.reported(), [(3, DeliveryStatus::Arrived), (2, DeliveryStatus::ArrivedLate)]);
}

#[test]
fn probed_unacked_packet_is_lost_after_2048_others() {
    let [mut one, _] = End::pair(&[of(Kind::Unreliable), of(Kind::ReliableUnordered)]);
    one.send_with_receipt(C, b"forgotten", 1);
    one.send(ChannelId(1), b"probed for");
    one.packet(100).unwrap();
    one.channels.on_pto();
    for number in 0..MAX_PACKETS {
        assert!(one.reported().is_empty(), "{number}");
        one.send(C, b"filler");
        one.packet(100).unwrap();
    }
    assert_eq!(one.reported(), [(1, DeliveryStatus::Lost)]);
}

#[test]
fn unpolled_receipts_are_bounded_and_affect_no_other_message() {
    let patient = ChannelConfig { queue_messages: MAX_QUEUE_MESSAGES, queue_bytes: 1 << 20, ..of(Kind::Unreliable) };
    let [mut one, _] = End::pair(&[patient.clone(), patient]);
    let send = |one: &mut End, channel, receipt| {
        one.channels.send(ChannelId(channel), b"x", SendOptions { receipt, ..SendOptions::default() }, one.now)
    };
    for tag in 0..u64::from(MAX_RECEIPTS) {
        assert_eq!(u64::from(one.channels.remaining(C).receipts), u64::from(MAX_RECEIPTS) - tag);
        assert_eq!(send(&mut one, (tag % 2) as u8, Some(tag)), Ok(()));
        if tag % 100 == 0 {
            one.packets(1180).into_iter().for_each(|(sequence, _)| one.channels.on_acked(sequence));
        }
    }
    assert_eq!(send(&mut one, 0, Some(0)), Err(SendError::Backlogged));
    let free = one.channels.remaining(C);
    assert!(free.receipts == 0 && free.messages > 0 && free.bytes > 0, "{free:?}");
    assert_eq!(one.channels.stats(C).unwrap().backlogged, 1);
    assert_eq!(send(&mut one, 0, None), Ok(()));
    assert!(one.channels.poll_event().is_some());
    assert_eq!((send(&mut one, 0, Some(0)), send(&mut one, 0, Some(0))), (Ok(()), Err(SendError::Backlogged)));
    one.packets(1180).into_iter().for_each(|(sequence, _)| one.channels.on_lost(sequence));
    assert_eq!(one.reported().len(), usize::from(MAX_RECEIPTS), "none was forgotten");
}

#[test]
fn unpolled_receipt_sets_a_deadline() {
    let [mut one, _] = End::pair(&[of(Kind::Unreliable)]);
    one.send_with_receipt(C, b"too late", 1);
    one.pass(300);
    assert_eq!(one.channels.next_deadline(one.now, Duration::ZERO), one.now);
    assert_eq!(one.reported(), [(1, DeliveryStatus::Expired)]);
    assert_ne!(one.channels.next_deadline(one.now, Duration::ZERO), one.now);
}
