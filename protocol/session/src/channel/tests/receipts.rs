//! What is told of messages that ask for a receipt: once, and nothing that is not so.

use super::*;

impl End {
    fn send_asking(&mut self, channel: ChannelId, message: &[u8], tag: u64) {
        let options = SendOptions { receipt: Some(tag), ..SendOptions::default() };
        self.channels.send(channel, message, options, self.now).unwrap();
    }

    /// The fates that were told since.
    fn told(&mut self) -> Vec<(u64, Fate)> {
        let event = |event| match event {
            ChannelEvent::Receipt { tag, fate, .. } => (tag, fate),
            other @ ChannelEvent::Block { .. } => panic!("{other:?}"),
        };
        core::iter::from_fn(|| self.channels.poll_event()).map(event).collect()
    }
}

#[test]
fn a_message_that_asks_is_told_of_when_it_has_arrived_and_no_other_is() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        for turn in 0..3 {
            for (tag, bytes) in (10 * turn..).zip([0, 40, 1000, 5000]) {
                one.send_asking(C, &message(turn as usize, bytes), tag);
                one.send(C, b"does not ask");
            }
            let packets = one.packets(1180);
            assert!(packets.len() > 4 && one.told().is_empty());
            for (sequence, frames) in packets {
                other.take(&frames).unwrap();
                one.channels.on_acked(sequence);
                one.channels.on_acked(sequence);
            }
            assert_eq!(one.told(), [0, 1, 2, 3].map(|tag| (10 * turn + tag, Fate::Arrived)), "{kind:?}");
        }
        assert_eq!(other.received().len(), 24);
    }
}

#[test]
fn what_is_lost_is_told_at_once_where_nothing_is_sent_again_and_its_late_arrival_is_not() {
    for kind in MESSAGE_KINDS {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        one.send_asking(C, b"first", 1);
        let (first, frames) = one.packet(100).unwrap();
        one.channels.on_lost(first);
        if kind.is_reliable() {
            assert!(one.told().is_empty(), "it leaves anew");
            let (again, frames) = one.packet(100).unwrap();
            other.take(&frames).unwrap();
            one.channels.on_lost(again);
        } else {
            assert_eq!(one.told(), [(1, Fate::Lost)]);
            other.take(&frames).unwrap();
        }
        one.channels.on_acked(first);
        let arrived: &[_] = if kind.is_reliable() { &[(1, Fate::Arrived)] } else { &[] };
        assert_eq!(one.told(), arrived, "{kind:?}");
    }
}

#[test]
fn a_message_in_slices_is_lost_with_one_of_them_and_has_arrived_with_the_last() {
    for kind in [Kind::Unreliable, Kind::Sequenced] {
        let [mut one, _] = End::pair(&[of(kind)]);
        for (tag, lost) in [(1, None), (2, Some(0)), (3, Some(2)), (4, Some(4))] {
            one.send_asking(C, &message(0, 5000), tag);
            let mut packets = Vec::new();
            for number in 0..5 {
                packets.push(one.packet(1190).unwrap().0);
                if lost == Some(number) {
                    // The rest of it may not have left yet.
                    one.channels.on_lost(packets[number]);
                    assert_eq!(one.told(), [(tag, Fate::Lost)], "{kind:?}");
                }
            }
            for (number, sequence) in packets.into_iter().enumerate().rev() {
                assert!(one.told().is_empty());
                if lost != Some(number) {
                    one.channels.on_acked(sequence);
                }
            }
            let arrived: &[_] = if lost.is_none() { &[(tag, Fate::Arrived)] } else { &[] };
            assert_eq!(one.told(), arrived, "{kind:?}");
        }
    }
}

#[test]
fn what_is_too_late_or_replaced_is_told_whether_it_waits_or_is_under_way() {
    for kind in MESSAGE_KINDS {
        let late = ChannelConfig { deadline: Some(Duration::from_millis(100)), ..of(kind) };
        let [mut one, mut other] = End::pair(&[late]);
        let keyed = |one: &mut End, tag| {
            let options = SendOptions { key: Some(7), receipt: Some(tag), ..SendOptions::default() };
            one.channels.send(C, &[tag as u8], options, one.now).unwrap();
        };
        keyed(&mut one, 1);
        keyed(&mut one, 2);
        assert_eq!(one.told(), [(1, Fate::Superseded)]);
        let (second, frames) = one.packet(100).unwrap();
        keyed(&mut one, 3);
        let replaced: &[_] = if kind.is_reliable() { &[(2, Fate::Superseded)] } else { &[] };
        assert_eq!(one.told(), replaced, "{kind:?}: what is sent once has gone");
        one.pass(100);
        assert_eq!(one.told(), [(3, Fate::Expired)]);
        other.take(&frames).unwrap();
        one.channels.on_acked(second);
        let arrived: &[_] = if kind.is_reliable() { &[] } else { &[(2, Fate::Arrived)] };
        assert_eq!(one.told(), arrived, "{kind:?}");

        one.send_asking(C, b"is lost, and too late then", 4);
        let (lost, _) = one.packets(100).pop().unwrap();
        one.pass(100);
        one.channels.on_lost(lost);
        one.packets(100);
        let fate = if kind.is_reliable() { Fate::Expired } else { Fate::Lost };
        assert_eq!(one.told(), [(4, fate)], "{kind:?}");
    }
}

#[test]
fn on_an_ordered_channel_a_message_has_arrived_when_all_before_it_have() {
    for kind in [Kind::ReliableUnordered, Kind::ReliableOrdered] {
        let [mut one, mut other] = End::pair(&[of(kind)]);
        let packets: Vec<_> = (1..4)
            .map(|tag| {
                one.send_asking(C, &[tag as u8], tag);
                one.packet(100).unwrap()
            })
            .collect();
        let mut told = Vec::new();
        for (sequence, frames) in packets.into_iter().rev() {
            other.take(&frames).unwrap();
            one.channels.on_acked(sequence);
            let fates = one.told();
            assert_eq!(fates.len(), other.received().len(), "{kind:?}: as many as the peer's application has");
            told.extend(fates.into_iter().map(|(tag, _)| tag));
        }
        assert_eq!(told, if kind == Kind::ReliableOrdered { [1, 2, 3] } else { [3, 2, 1] });
    }
}

#[test]
fn a_probe_is_no_verdict_and_passes_over_what_would_not_leave_anew() {
    let [mut one, mut other] = End::pair(&[of(Kind::Unreliable), of(Kind::ReliableOrdered)]);
    one.send_asking(C, b"once", 1);
    let (alone, _) = one.packet(100).unwrap();
    one.send_asking(C, b"once", 2);
    one.send_asking(ChannelId(1), b"until it is there", 3);
    let (both, _) = one.packet(100).unwrap();
    one.channels.on_probe();
    let (_, frames) = one.packet(100).unwrap();
    assert!(frames.ends_with(b"until it is there") && frames.len() < 20, "and nothing else");
    assert!(one.told().is_empty() && one.packet(100).is_none());
    one.channels.on_lost(both);
    one.channels.on_lost(alone);
    assert_eq!(one.told(), [(2, Fate::Lost), (1, Fate::Lost)]);
    assert!(one.packet(100).is_none(), "its message is under way in the probe");
    other.take(&frames).unwrap();
    one.channels.on_acked(both);
    assert_eq!(one.told(), [(3, Fate::Arrived)]);
}

#[test]
fn a_packet_whose_fate_is_never_told_is_lost_after_2048_others_though_it_was_probed_for() {
    let [mut one, _] = End::pair(&[of(Kind::Unreliable), of(Kind::ReliableUnordered)]);
    one.send_asking(C, b"forgotten", 1);
    one.send(ChannelId(1), b"probed for");
    one.packet(100).unwrap();
    one.channels.on_probe();
    for number in 0..MAX_PACKETS {
        assert!(one.told().is_empty(), "{number}");
        one.send(C, b"filler");
        one.packet(100).unwrap();
    }
    assert_eq!(one.told(), [(1, Fate::Lost)]);
}

#[test]
fn who_takes_no_receipts_may_ask_for_so_many_and_others_are_not_concerned() {
    let patient = ChannelConfig { queue_messages: MAX_QUEUE_MESSAGES, queue_bytes: 1 << 20, ..of(Kind::Unreliable) };
    let [mut one, _] = End::pair(&[patient.clone(), patient]);
    let send = |one: &mut End, channel, receipt| {
        one.channels.send(ChannelId(channel), b"x", SendOptions { receipt, ..SendOptions::default() }, one.now)
    };
    for tag in 0..u64::from(MAX_RECEIPTS) {
        assert_eq!(u64::from(one.channels.free(C).receipts), u64::from(MAX_RECEIPTS) - tag);
        assert_eq!(send(&mut one, (tag % 2) as u8, Some(tag)), Ok(()));
        if tag % 100 == 0 {
            one.packets(1180).into_iter().for_each(|(sequence, _)| one.channels.on_acked(sequence));
        }
    }
    assert_eq!(send(&mut one, 0, Some(0)), Err(SendError::Backlogged));
    let free = one.channels.free(C);
    assert!(free.receipts == 0 && free.messages > 0 && free.bytes > 0, "{free:?}");
    assert_eq!(one.channels.stats(C).unwrap().backlogged, 1);
    assert_eq!(send(&mut one, 0, None), Ok(()));
    assert!(one.channels.poll_event().is_some());
    assert_eq!((send(&mut one, 0, Some(0)), send(&mut one, 0, Some(0))), (Ok(()), Err(SendError::Backlogged)));
    one.packets(1180).into_iter().for_each(|(sequence, _)| one.channels.on_lost(sequence));
    assert_eq!(one.told().len(), usize::from(MAX_RECEIPTS), "none was forgotten");
}

#[test]
fn receipts_are_looked_at_again_although_nothing_arrives() {
    let [mut one, _] = End::pair(&[of(Kind::Unreliable)]);
    one.send_asking(C, b"too late", 1);
    one.pass(300);
    assert_eq!(one.channels.next_deadline(one.now), Some(one.now));
    assert_eq!(one.told(), [(1, Fate::Expired)]);
    assert_ne!(one.channels.next_deadline(one.now), Some(one.now));
}
