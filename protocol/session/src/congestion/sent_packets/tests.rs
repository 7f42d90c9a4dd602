use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const TIMING: Timing = Timing {
    smoothed: Duration::from_millis(80),
    variation: Duration::from_millis(1),
    feedback_interval: Duration::from_millis(5),
};

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

fn on_packet_sent(sent_packets: &mut SentPackets, sequence: u16, millis: u64) -> Vec<u16> {
    let mut lost = Vec::new();
    sent_packets.on_packet_sent(Sequence(sequence), 100, at(millis), |sequence, _| lost.push(sequence.0));
    lost
}

fn detect_lost(sent_packets: &mut SentPackets, millis: u64) -> Vec<u16> {
    let mut lost = Vec::new();
    sent_packets.detect_lost(&TIMING, at(millis), |sequence, _| lost.push(sequence.0));
    lost
}

fn in_flight_packets(packets: u16) -> SentPackets {
    let mut sent_packets = SentPackets::new(64);
    for sequence in 0..packets {
        assert_eq!(on_packet_sent(&mut sent_packets, sequence, u64::from(sequence)), []);
    }
    sent_packets
}

#[test]
fn bytes_are_in_flight_until_acked_or_lost() {
    let mut sent_packets = in_flight_packets(5);
    assert_eq!(sent_packets.in_flight(), 500);
    let packet = SentPacket { sent_at: at(4), bytes: 100 };
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
    assert_eq!(sent_packets.loss_deadline(&TIMING), Some(at(90)));
    assert_eq!(detect_lost(&mut sent_packets, 89), []);
    assert_eq!(detect_lost(&mut sent_packets, 90), [0]);
    assert_eq!(detect_lost(&mut sent_packets, 999), [], "only two newer than packet 1 are known");
    assert_eq!(sent_packets.loss_deadline(&TIMING), Some(at(1001)));
}

#[test]
fn packet_without_evidence_is_lost_after_one_second() {
    let mut sent_packets = in_flight_packets(2);
    assert_eq!(detect_lost(&mut sent_packets, 999), []);
    assert_eq!(detect_lost(&mut sent_packets, 1000), [0]);
    assert_eq!(detect_lost(&mut sent_packets, 1001), [1]);
    assert_eq!(sent_packets.loss_deadline(&TIMING), None);
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
    assert_eq!((sent_packets.in_flight(), detect_lost(&mut sent_packets, 500)), (500, std::vec![]));
}

#[test]
fn full_window_declares_its_oldest_packet_lost() {
    let mut sent_packets = in_flight_packets(64);
    assert_eq!(on_packet_sent(&mut sent_packets, 64, 64), [0]);
    assert_eq!(sent_packets.on_ack(Sequence(0)), None);
    assert_eq!(on_packet_sent(&mut sent_packets, 67, 65), [1, 2, 3]);
    assert_eq!(sent_packets.in_flight(), 6200);
}

#[test]
fn skipped_numbers_are_never_in_flight() {
    let mut sent_packets = SentPackets::new(4);
    on_packet_sent(&mut sent_packets, 65_530, 0);
    assert_eq!(on_packet_sent(&mut sent_packets, 65_533, 1), []);
    assert_eq!((sent_packets.on_ack(Sequence(65_531)), sent_packets.on_ack(Sequence(65_532))), (None, None));
    assert_eq!(on_packet_sent(&mut sent_packets, 3, 2), [65_530, 65_533]);
    assert!(sent_packets.on_ack(Sequence(3)).is_some());
    assert_eq!((sent_packets.in_flight(), sent_packets.on_ack(Sequence(65_533))), (0, None));
}

#[test]
fn next_packet_is_newest_after_many_skipped_numbers() {
    let mut sent_packets = in_flight_packets(2);
    sent_packets.on_ack(Sequence(1));
    let mut lost = Vec::new();
    for number in 2..100_000_u32 {
        sent_packets.skip(Sequence(number as u16), |sequence, _| lost.push(sequence.0));
    }
    assert_eq!((lost, sent_packets.in_flight(), sent_packets.loss_deadline(&TIMING)), (std::vec![0], 0, None));
    assert_eq!(on_packet_sent(&mut sent_packets, 100_000_u32 as u16, 50), []);
    sent_packets.skip(Sequence(100_000_u32 as u16), |_, _| unreachable!("it has packet"));
    assert_eq!(sent_packets.in_flight(), 100);
    assert!(sent_packets.on_ack(Sequence(100_000_u32 as u16)).unwrap().newest);
}

#[test]
fn probe_timeout_doubles_with_each_probe() {
    let mut sent_packets = in_flight_packets(2);
    assert_eq!(SentPackets::new(4).pto_deadline(&TIMING), None);
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
        first in any::<u16>(),
        steps in prop::collection::vec((0..8_u8, 1..90_u16), 1..400),
    ) {
        let mut sent_packets = SentPackets::new(64);
        let (mut awaited, mut lost) = (std::collections::BTreeMap::new(), std::collections::BTreeSet::new());
        let (mut next, mut now) = (first, 0);
        for (what, amount) in steps {
            let mut lost_now = Vec::new();
            match what {
                0..=3 => {
                    next = next.wrapping_add(amount / 40);
                    let sequence = Sequence(next);
                    sent_packets.on_packet_sent(sequence, amount.into(), at(now), |lost, _| lost_now.push(lost.0));
                    awaited.insert(next, (u64::from(amount), now));
                    next = next.wrapping_add(1);
                }
                4 if amount > 45 => {
                    next = next.wrapping_add(amount / 40);
                    sent_packets.skip(Sequence(next), |sequence, _| lost_now.push(sequence.0));
                    next = next.wrapping_add(1);
                }
                4..=5 => {
                    let sequence = next.wrapping_sub(amount);
                    let landed = sent_packets.on_ack(Sequence(sequence));
                    let was = awaited.remove(&sequence);
                    if let Some((bytes, then)) = was {
                        let packet = SentPacket { sent_at: at(then), bytes: bytes as u32 };
                        prop_assert_eq!(landed.map(|landed| (landed.packet, landed.late)), Some((packet, false)));
                    } else {
                        let forgotten = amount > 64;
                        prop_assert_eq!(landed.is_some(), lost.remove(&sequence) && !forgotten);
                    }
                }
                _ => {
                    now += u64::from(amount) * 3;
                    sent_packets.detect_lost(&TIMING, at(now), |sequence, _| lost_now.push(sequence.0));
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
}

#[test]
fn ring_grows_with_packets_in_flight_and_keeps_them() {
    let mut sent_packets = SentPackets::new(1024);
    assert_eq!(sent_packets.slots.len(), INITIAL_SLOTS, "a quiet connection takes little");
    for sequence in 0..1024 {
        assert_eq!(on_packet_sent(&mut sent_packets, sequence, u64::from(sequence) / 4), []);
    }
    assert_eq!((sent_packets.slots.len(), sent_packets.in_flight()), (1024, 102_400));
    for sequence in 0..1024 {
        let packet = SentPacket { sent_at: at(u64::from(sequence) / 4), bytes: 100 };
        assert_eq!(sent_packets.on_ack(Sequence(sequence)), Some(NewlyAcked { packet, late: false, newest: true }));
    }
    assert_eq!(sent_packets.in_flight(), 0);
}
