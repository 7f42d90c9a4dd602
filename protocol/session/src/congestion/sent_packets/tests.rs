use core::time::Duration;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// A round trip of 80 ms with a variation of 1 ms, and feedback each 5 ms.
const TIMING: Timing = Timing { smoothed: 80_000_000, variation: 1_000_000, feedback_interval: 5_000_000 };

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

/// Sends a packet of 100 bytes. Returns the packets that count as lost for it.
fn on_packet_sent(sent_packets: &mut SentPackets, millis: u64) -> Vec<u16> {
    let mut lost = Vec::new();
    sent_packets
        .on_packet_sent(SessionPacketKind::AckEliciting, 100, at(millis), |packet| lost.push(packet.sequence.0));
    lost
}

fn send(sent_packets: &mut SentPackets, count: u64, now: Instant) {
    (0..count).for_each(|_| drop(on_packet_sent(sent_packets, now.since_start().as_millis() as u64)));
}

fn send_ack_only(sent_packets: &mut SentPackets, now: Instant) {
    sent_packets.on_packet_sent(SessionPacketKind::AckOnly, 28, now, |packet| panic!("{packet:?} is displaced"));
}

/// The result of one acknowledgement.
#[derive(Clone, Copy, PartialEq, Debug)]
enum AckOutcome {
    NewlyAcked(NewlyAcked),
    AlreadyKnown,
    NeverSent,
    Skipped,
}

fn acknowledge(sent_packets: &mut SentPackets, sequence: Sequence, order: ArrivalOrder) -> AckOutcome {
    let mut outcome = AckOutcome::AlreadyKnown;
    let faults = sent_packets.on_acks(sequence, 1, order, |acked| outcome = AckOutcome::NewlyAcked(*acked));
    match faults {
        AckFaults { skipped: true, .. } => AckOutcome::Skipped,
        AckFaults { unsent: true, .. } => AckOutcome::NeverSent,
        _ => outcome,
    }
}

fn detect_lost(sent_packets: &mut SentPackets, millis: u64) -> Vec<u16> {
    let mut lost = Vec::new();
    sent_packets.detect_lost(TIMING.loss_delays(), at(millis), |packet| lost.push(packet.sequence.0));
    lost
}

fn in_flight_packets(packets: u16) -> SentPackets {
    let mut sent_packets = SentPackets::new(64);
    for sequence in 0..packets {
        assert!(on_packet_sent(&mut sent_packets, sequence.into()).is_empty());
    }
    sent_packets
}

#[test]
fn bytes_are_in_flight_until_acked_or_lost() {
    let mut sent_packets = in_flight_packets(5);
    assert_eq!(sent_packets.in_flight(), 500);
    let packet = SentPacket { sequence: Sequence(4), sent_at: at(4), bytes: 100 };
    assert_eq!(sent_packets.on_ack(Sequence(4)), Some(NewlyAcked { packet, late: false, newest: true }));
    assert!(!sent_packets.on_ack(Sequence(3)).unwrap().newest);
    assert_eq!(sent_packets.in_flight(), 300);
    assert_eq!(detect_lost(&mut sent_packets, 2000), [0, 1, 2]);
    assert_eq!(sent_packets.in_flight(), 0);
}

#[test]
fn packet_is_lost_after_a_gap_of_three_and_the_loss_delay() {
    let mut sent_packets = in_flight_packets(5);
    sent_packets.on_ack(Sequence(3));
    assert_eq!(sent_packets.loss_deadline(TIMING.loss_delays()), Some(at(90)));
    assert!(detect_lost(&mut sent_packets, 89).is_empty());
    assert_eq!(detect_lost(&mut sent_packets, 90), [0]);
    assert!(detect_lost(&mut sent_packets, 999).is_empty(), "only two newer than packet 1 are known");
    assert_eq!(sent_packets.loss_deadline(TIMING.loss_delays()), Some(at(1001)));
}

#[test]
fn packet_without_evidence_is_lost_after_one_second() {
    let mut sent_packets = in_flight_packets(2);
    assert!(detect_lost(&mut sent_packets, 999).is_empty());
    assert_eq!(detect_lost(&mut sent_packets, 1000), [0]);
    assert_eq!(detect_lost(&mut sent_packets, 1001), [1]);
    assert_eq!(sent_packets.loss_deadline(TIMING.loss_delays()), None);
}

#[test]
fn ack_of_lost_packet_is_late_and_reported_once() {
    let mut sent_packets = in_flight_packets(1);
    assert_eq!(detect_lost(&mut sent_packets, 1000), [0]);
    assert!(sent_packets.on_ack(Sequence(0)).unwrap().late);
    assert_eq!((sent_packets.on_ack(Sequence(0)), sent_packets.in_flight()), (None, 0));
}

#[test]
fn acks_of_unsent_packets_change_nothing() {
    let mut sent_packets = in_flight_packets(5);
    for sequence in [5, 6, 100, 32_768, 40_000, 65_535] {
        assert_eq!(sent_packets.on_ack(Sequence(sequence)), None, "{sequence}");
    }
    assert_eq!((sent_packets.in_flight(), detect_lost(&mut sent_packets, 500)), (500, vec![]));
}

#[test]
fn full_window_declares_its_oldest_packet_lost() {
    let mut sent_packets = in_flight_packets(64);
    assert_eq!(on_packet_sent(&mut sent_packets, 64), [0]);
    assert_eq!(sent_packets.on_ack(Sequence(0)), None);
    sent_packets.on_ack(Sequence(2));
    assert_eq!([65, 66, 67].map(|at| on_packet_sent(&mut sent_packets, at)), [vec![1], vec![], vec![3]]);
    assert_eq!(sent_packets.in_flight(), 6400);
}

#[test]
fn next_packet_is_newest_after_many_ack_only_packets() {
    let mut sent_packets = in_flight_packets(2);
    sent_packets.on_ack(Sequence(1));
    assert_eq!(detect_lost(&mut sent_packets, 1000), [0]);
    for _ in 2..100_000_u32 {
        send_ack_only(&mut sent_packets, at(1000));
    }
    assert_eq!((sent_packets.in_flight(), sent_packets.loss_deadline(TIMING.loss_delays())), (0, None));
    assert!(on_packet_sent(&mut sent_packets, 1050).is_empty());
    assert_eq!(sent_packets.in_flight(), 100);
    assert!(sent_packets.on_ack(Sequence(100_000_u32 as u16)).unwrap().newest);
}

#[test]
fn probe_timeout_doubles_with_each_probe() {
    let mut sent_packets = in_flight_packets(2);
    assert_eq!(SentPackets::new(16).pto_deadline(&TIMING), None);
    assert_eq!(sent_packets.pto_deadline(&TIMING), Some(at(1 + 109)));
    sent_packets.on_pto(at(110));
    assert_eq!(sent_packets.pto_deadline(&TIMING), Some(at(110 + 218)), "though there was nothing to send");
    sent_packets.on_ack(Sequence(0));
    assert_eq!(sent_packets.pto_deadline(&TIMING), Some(at(110 + 109)), "an acknowledgement ends the doubling");
    for _ in 0..100 {
        sent_packets.on_pto(at(120));
    }
    assert_eq!(sent_packets.pto_deadline(&TIMING), Some(at(120 + 2000)));
    sent_packets.on_ack(Sequence(1));
    assert_eq!(sent_packets.pto_deadline(&TIMING), None);
}

proptest! {
    /// Against a list of every packet, which is walked in full.
    #[test]
    fn each_packet_is_resolved_once_and_bytes_add_up(
        start in 0..70_000_u64,
        steps in prop::collection::vec((0..9_u8, 1..90_u16, any::<u64>()), 1..400),
    ) {
        let mut sent_packets = SentPackets::new(64);
        (0..start).for_each(|_| send_ack_only(&mut sent_packets, at(0)));
        let (mut awaited, mut lost) = (std::collections::BTreeMap::new(), std::collections::BTreeSet::new());
        let (mut next, mut now) = (start as u16, 0);
        for (what, amount, bits) in steps {
            let mut lost_now = Vec::new();
            match what {
                0..=3 => {
                    let lose = |lost: SentPacket| lost_now.push(lost.sequence.0);
                    sent_packets.on_packet_sent(SessionPacketKind::AckEliciting, amount.into(), at(now), lose);
                    awaited.insert(next, (u64::from(amount), now));
                    next = next.wrapping_add(1);
                }
                4 => {
                    let kind = SessionPacketKind::AckOnly;
                    sent_packets.on_packet_sent(kind, 28, at(now), |packet| lost_now.push(packet.sequence.0));
                    next = next.wrapping_add(1);
                }
                5..=6 => {
                    let (ack, mut news) = (next.wrapping_sub(amount), Vec::new());
                    let mut note = |acked: &NewlyAcked| news.push(acked.packet.sequence.0);
                    sent_packets.on_acks(Sequence(ack), bits, ArrivalOrder::Newest, &mut note);
                    prop_assert!(news.iter().all(|number| bits >> ack.wrapping_sub(*number) & 1 != 0));
                    for back in (0..64).filter(|back| bits >> back & 1 != 0) {
                        let number = ack.wrapping_sub(back);
                        let is_new = awaited.remove(&number).is_some();
                        let was_lost = lost.remove(&number);
                        let is_forgotten = amount + back > 64 || now >= 4000;
                        prop_assert!(news.contains(&number) == (is_new || was_lost) || (was_lost && is_forgotten));
                    }
                    prop_assert!(news.is_sorted_by_key(|number| ack.wrapping_sub(*number)), "newest first");
                }
                _ => {
                    now += u64::from(amount) * 3;
                    sent_packets.detect_lost(TIMING.loss_delays(), at(now), |packet| lost_now.push(packet.sequence.0));
                    let overdue = |(sequence, (_, then)): (&u16, &(u64, u64))| {
                        !lost_now.contains(sequence) && *then + 1000 <= now
                    };
                    prop_assert!(!awaited.iter().any(overdue));
                }
            }
            for sequence in lost_now {
                prop_assert!(awaited.remove(&sequence).is_some(), "{} was not awaited", sequence);
                lost.insert(sequence);
            }
            prop_assert_eq!(sent_packets.in_flight(), awaited.values().map(|(bytes, _)| bytes).sum::<u64>());
        }
    }

    /// Each word of acknowledgements has the effect of its bits one by one, whatever they name.
    #[test]
    fn word_of_acks_is_the_same_as_its_bits(
        sent in 0..70_000_u64,
        words in prop::collection::vec((-80..70_000_i32, any::<u64>(), any::<u64>(), any::<bool>(), 0..40_u64), 1..40),
    ) {
        let mut ends = [SentPackets::new(64), SentPackets::new(64)];
        ends.iter_mut().for_each(|end| send(end, sent, at(0)));
        for (back, bits, others, is_newest, more) in words {
            let bits = if back % 3 == 0 { bits } else { bits & others };
            let order = if is_newest { ArrivalOrder::Newest } else { ArrivalOrder::Overtaken };
            let ack = Sequence(ends[0].next_sequence().0.wrapping_sub(back as u16));
            let [mut together, mut singly] = [Vec::new(), Vec::new()];
            let faults = ends[0].on_acks(ack, bits, order, |acked| together.push(*acked));
            let mut sum = AckFaults::default();
            for back in (0..64).filter(|back| bits >> back & 1 != 0) {
                let found = ends[1].on_acks(ack - back, 1, order, |acked| singly.push(*acked));
                sum = AckFaults { unsent: sum.unsent | found.unsent, skipped: sum.skipped | found.skipped };
            }
            prop_assert_eq!((faults, &together), (sum, &singly));
            for end in &mut ends {
                send(end, more, at(0));
                if more % 4 == 1 {
                    end.skip(at(0));
                }
            }
            let [one, other] = &ends;
            prop_assert_eq!((one.in_flight, one.oldest), (other.in_flight, other.oldest));
            prop_assert_eq!(one.acked_end, other.acked_end);
            prop_assert_eq!(
                (one.oldest_reportable, one.peer_received_end, one.largest_acked),
                (other.oldest_reportable, other.peer_received_end, other.largest_acked)
            );
        }
    }
}

#[test]
fn no_memory_is_taken_before_the_first_packet() {
    let mut sent_packets = SentPackets::new(1024);
    assert_eq!(sent_packets.packets.capacity(), 0);
    send(&mut sent_packets, 2000, at(0));
    assert_eq!((sent_packets.packets.capacity(), sent_packets.in_flight()), (1024, 102_400));
}

#[test]
fn acks_of_unsent_packets_are_detected_across_the_wrap() {
    for (total, names_unsent, nothing) in [
        (0, &[0, 1, 32_767, 32_768, 65_535][..], &[][..]),
        (1, &[1, 2, 32_768, 65_535], &[]),
        (100, &[100, 65_535, 40_000], &[0, 83]),
        (50_000, &[50_000, 65_535, 60_000, 33_599], &[33_600, 49_983]),
        (70_000, &[4464, 4465, 37_000, 53_599], &[4447, 65_535, 60_000, 53_600]),
    ] {
        let mut sent = SentPackets::new(16);
        for turn in 1..=total {
            send(&mut sent, 1, at(0));
            // The peer acknowledges its newest packet now and then.
            if turn % 10_000 == 0 {
                acknowledge(&mut sent, Sequence((turn - 16) as u16), ArrivalOrder::Newest);
            }
        }
        for sequence in names_unsent {
            let outcome = acknowledge(&mut sent, Sequence(*sequence), ArrivalOrder::Newest);
            assert_eq!(outcome, AckOutcome::NeverSent, "{sequence} of {total}");
        }
        for sequence in nothing {
            let outcome = acknowledge(&mut sent, Sequence(*sequence), ArrivalOrder::Newest);
            assert_eq!(outcome, AckOutcome::AlreadyKnown, "{sequence} of {total}");
        }
    }
}

#[test]
fn overtaken_ack_may_name_any_old_packet() {
    let mut sent = SentPackets::new(16);
    send(&mut sent, 40_000, at(0));
    acknowledge(&mut sent, Sequence(39_999), ArrivalOrder::Newest);
    assert_eq!(acknowledge(&mut sent, Sequence(7), ArrivalOrder::Overtaken), AckOutcome::AlreadyKnown);
    assert_eq!(acknowledge(&mut sent, Sequence(7), ArrivalOrder::Newest), AckOutcome::NeverSent);
    assert_eq!(
        acknowledge(&mut sent, Sequence(40_000), ArrivalOrder::Overtaken),
        AckOutcome::NeverSent,
        "it never was"
    );
}

#[test]
fn starved_peer_may_repeat_its_last_ack_for_ever() {
    let mut sent = SentPackets::new(16);
    send(&mut sent, 100, at(0));
    for _ in 0..3 * SEQUENCE_SPACE {
        acknowledge(&mut sent, Sequence(90), ArrivalOrder::Newest);
        let outcome = acknowledge(&mut sent, Sequence(90), ArrivalOrder::Newest);
        assert_eq!(outcome, AckOutcome::AlreadyKnown, "{} sent", sent.next);
        send(&mut sent, 1, at(1));
    }
}

#[test]
fn packet_is_newly_acked_once() {
    let mut sent = SentPackets::new(16);
    send(&mut sent, 2, at(5));
    let news = NewlyAcked {
        packet: SentPacket { sequence: Sequence(1), sent_at: at(5), bytes: 100 },
        late: false,
        newest: true,
    };
    assert_eq!(acknowledge(&mut sent, Sequence(1), ArrivalOrder::Newest), AckOutcome::NewlyAcked(news));
    assert_eq!(acknowledge(&mut sent, Sequence(1), ArrivalOrder::Newest), AckOutcome::AlreadyKnown);
}

#[test]
fn steady_stream_remembers_packets_in_flight_only() {
    let mut sent = SentPackets::new(1024);
    for number in 0..100_000_u64 {
        let now = at(number * 16);
        if number % 3 == 0 {
            send_ack_only(&mut sent, now);
        } else {
            send(&mut sent, 1, now);
        }
        acknowledge(&mut sent, Sequence(number.wrapping_sub(6) as u16), ArrivalOrder::Newest);
        assert!(sent.packets.len() <= 7, "{} after {number}", sent.packets.len());
    }
    assert!(sent.packets.capacity() <= 16, "{}", sent.packets.capacity());
}

#[test]
fn lost_packet_can_be_acked_for_four_seconds() {
    for (millis, late) in [(1500, true), (3999, true), (4000, false)] {
        let mut sent = SentPackets::new(1024);
        send(&mut sent, 2, at(0));
        acknowledge(&mut sent, Sequence(1), ArrivalOrder::Newest);
        assert_eq!(detect_lost(&mut sent, 1000), [0]);
        // Packets sent in between make no difference while the window has room.
        for _ in 0..500 {
            send_ack_only(&mut sent, at(millis));
        }
        let outcome = acknowledge(&mut sent, Sequence(0), ArrivalOrder::Newest);
        assert_eq!(
            matches!(outcome, AckOutcome::NewlyAcked(NewlyAcked { late: true, .. })),
            late,
            "after {millis} ms: {outcome:?}"
        );
    }
}

/// A peer that names its newest packets only in datagrams which it seems to have sent earlier.
#[test]
fn lie_is_found_after_a_number_space_of_overtaken_acks() {
    for order in [ArrivalOrder::Newest, ArrivalOrder::Overtaken] {
        let mut sent = SentPackets::new(16);
        for _ in 0..100_000 {
            send(&mut sent, 1, at(0));
            let newest = sent.next_sequence() - 1;
            acknowledge(&mut sent, newest, ArrivalOrder::Overtaken);
        }
        sent.skip(at(1));
        send(&mut sent, 1, at(1));
        let skipped = sent.next_sequence() - 2;
        assert_eq!(acknowledge(&mut sent, skipped, order), AckOutcome::Skipped, "{order:?}");
    }
}

/// A peer that received nothing for a whole number space may mean an old packet with the same number.
#[test]
fn old_number_is_no_lie_after_a_number_space_of_silence() {
    for (unheard, expected) in [(49_000, AckOutcome::Skipped), (65_537, AckOutcome::AlreadyKnown)] {
        let mut sent = SentPackets::new(16);
        send(&mut sent, 40_000, at(0));
        acknowledge(&mut sent, Sequence(39_999), ArrivalOrder::Newest);
        send(&mut sent, unheard, at(2));
        sent.skip(at(2));
        // The window is full of packets, which make room for no number that is skipped.
        detect_lost(&mut sent, 1002);
        sent.skip(at(2));
        let skipped = sent.next_sequence() - 1;
        assert_eq!(acknowledge(&mut sent, skipped, ArrivalOrder::Newest), expected, "{unheard}");
    }
}
