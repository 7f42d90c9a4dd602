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

fn depart(flight: &mut Flight, sequence: u16, millis: u64) -> Vec<u16> {
    let mut lost = Vec::new();
    flight.depart(Sequence(sequence), 100, at(millis), |sequence, _| lost.push(sequence.0));
    lost
}

fn detect(flight: &mut Flight, millis: u64) -> Vec<u16> {
    let mut lost = Vec::new();
    flight.detect(&TIMING, at(millis), |sequence, _| lost.push(sequence.0));
    lost
}

fn under_way(packets: u16) -> Flight {
    let mut flight = Flight::new(64);
    for sequence in 0..packets {
        assert_eq!(depart(&mut flight, sequence, u64::from(sequence)), []);
    }
    flight
}

#[test]
fn bytes_are_in_flight_until_they_are_acknowledged_or_lost() {
    let mut flight = under_way(5);
    assert_eq!(flight.in_flight(), 500);
    let departed = Departed { sent_at: at(4), bytes: 100 };
    assert_eq!(flight.acked(Sequence(4)), Some(Landed { departed, late: false, newest: true }));
    assert!(!flight.acked(Sequence(3)).unwrap().newest);
    assert_eq!(flight.in_flight(), 300);
    assert_eq!(detect(&mut flight, 2000), [0, 1, 2]);
    assert_eq!(flight.in_flight(), 0);
}

#[test]
fn a_packet_is_lost_when_one_three_later_was_acknowledged_and_its_time_is_up() {
    let mut flight = under_way(5);
    flight.acked(Sequence(3));
    assert_eq!(flight.loss_deadline(&TIMING), Some(at(90)));
    assert_eq!(detect(&mut flight, 89), []);
    assert_eq!(detect(&mut flight, 90), [0]);
    assert_eq!(detect(&mut flight, 999), [], "only two newer than packet 1 are known");
    assert_eq!(flight.loss_deadline(&TIMING), Some(at(1001)));
}

#[test]
fn a_second_is_the_limit_without_evidence() {
    let mut flight = under_way(2);
    assert_eq!(detect(&mut flight, 999), []);
    assert_eq!(detect(&mut flight, 1000), [0]);
    assert_eq!(detect(&mut flight, 1001), [1]);
    assert_eq!(flight.loss_deadline(&TIMING), None);
}

#[test]
fn an_acknowledgement_after_the_verdict_is_late_and_told_once() {
    let mut flight = under_way(1);
    assert_eq!(detect(&mut flight, 1000), [0]);
    assert!(flight.acked(Sequence(0)).unwrap().late);
    assert_eq!((flight.acked(Sequence(0)), flight.in_flight()), (None, 0));
}

#[test]
fn nothing_is_learned_from_packets_that_never_departed() {
    let mut flight = under_way(5);
    for sequence in [5, 6, 100, 32_768, 40_000, 65_535] {
        assert_eq!(flight.acked(Sequence(sequence)), None, "{sequence}");
    }
    assert_eq!((flight.in_flight(), detect(&mut flight, 500)), (500, std::vec![]));
}

#[test]
fn a_full_window_gives_up_its_oldest_packet() {
    let mut flight = under_way(64);
    assert_eq!(depart(&mut flight, 64, 64), [0]);
    assert_eq!(flight.acked(Sequence(0)), None);
    assert_eq!(depart(&mut flight, 67, 65), [1, 2, 3]);
    assert_eq!(flight.in_flight(), 6200);
}

#[test]
fn numbers_that_were_left_out_are_never_awaited() {
    let mut flight = Flight::new(4);
    depart(&mut flight, 65_530, 0);
    assert_eq!(depart(&mut flight, 65_533, 1), []);
    assert_eq!((flight.acked(Sequence(65_531)), flight.acked(Sequence(65_532))), (None, None));
    assert_eq!(depart(&mut flight, 3, 2), [65_530, 65_533]);
    assert!(flight.acked(Sequence(3)).is_some());
    assert_eq!((flight.in_flight(), flight.acked(Sequence(65_533))), (0, None));
}

#[test]
fn after_ever_so_many_packets_that_nobody_acknowledges_the_next_one_is_the_newest() {
    let mut flight = under_way(2);
    flight.acked(Sequence(1));
    let mut lost = Vec::new();
    for number in 2..100_000_u32 {
        flight.skip(Sequence(number as u16), |sequence, _| lost.push(sequence.0));
    }
    assert_eq!((lost, flight.in_flight(), flight.loss_deadline(&TIMING)), (std::vec![0], 0, None));
    assert_eq!(depart(&mut flight, 100_000_u32 as u16, 50), []);
    flight.skip(Sequence(100_000_u32 as u16), |_, _| unreachable!("it has departed"));
    assert_eq!(flight.in_flight(), 100);
    assert!(flight.acked(Sequence(100_000_u32 as u16)).unwrap().newest);
}

#[test]
fn a_probe_is_due_when_the_path_is_silent_and_each_doubles_the_wait() {
    let mut flight = under_way(2);
    assert_eq!(Flight::new(4).probe_deadline(&TIMING), None);
    assert_eq!(flight.probe_deadline(&TIMING), Some(at(1 + 109)));
    flight.probed(at(110));
    assert_eq!(flight.probe_deadline(&TIMING), Some(at(110 + 218)), "though there was nothing to send");
    flight.acked(Sequence(0));
    assert_eq!(flight.probe_deadline(&TIMING), Some(at(110 + 109)), "an acknowledgement ends the doubling");
    for _ in 0..100 {
        flight.probed(at(120));
    }
    assert_eq!(flight.probe_deadline(&TIMING), Some(at(120 + 2000)));
    flight.acked(Sequence(1));
    assert_eq!(flight.probe_deadline(&TIMING), None);
}

proptest! {
    /// Against a list of every packet, which is walked in full.
    #[test]
    fn each_packet_has_one_fate_and_the_bytes_add_up(
        first in any::<u16>(),
        steps in prop::collection::vec((0..8_u8, 1..90_u16), 1..400),
    ) {
        let mut flight = Flight::new(64);
        let (mut awaited, mut lost) = (std::collections::BTreeMap::new(), std::collections::BTreeSet::new());
        let (mut next, mut now) = (first, 0);
        for (what, amount) in steps {
            let mut verdicts = Vec::new();
            match what {
                0..=3 => {
                    next = next.wrapping_add(amount / 40);
                    flight.depart(Sequence(next), amount.into(), at(now), |sequence, _| verdicts.push(sequence.0));
                    awaited.insert(next, (u64::from(amount), now));
                    next = next.wrapping_add(1);
                }
                4 if amount > 45 => {
                    next = next.wrapping_add(amount / 40);
                    flight.skip(Sequence(next), |sequence, _| verdicts.push(sequence.0));
                    next = next.wrapping_add(1);
                }
                4..=5 => {
                    let sequence = next.wrapping_sub(amount);
                    let landed = flight.acked(Sequence(sequence));
                    let was = awaited.remove(&sequence);
                    if let Some((bytes, then)) = was {
                        let departed = Departed { sent_at: at(then), bytes: bytes as u32 };
                        prop_assert_eq!(landed.map(|landed| (landed.departed, landed.late)), Some((departed, false)));
                    } else {
                        let forgotten = amount > 64;
                        prop_assert_eq!(landed.is_some(), lost.remove(&sequence) && !forgotten);
                    }
                }
                _ => {
                    now += u64::from(amount) * 3;
                    flight.detect(&TIMING, at(now), |sequence, _| verdicts.push(sequence.0));
                    let overdue = |(sequence, (_, then)): (&u16, &(u64, u64))| {
                        !verdicts.contains(sequence) && *then + 1000 <= now
                    };
                    prop_assert!(!awaited.iter().any(overdue));
                }
            }
            for sequence in verdicts {
                prop_assert!(awaited.remove(&sequence).is_some(), "{} was not awaited", sequence);
                lost.insert(sequence);
            }
            prop_assert_eq!(flight.in_flight(), awaited.values().map(|(bytes, _)| bytes).sum::<u64>());
        }
    }
}

#[test]
fn a_ring_grows_with_what_is_under_way_and_forgets_nothing_of_it() {
    let mut flight = Flight::new(1024);
    assert_eq!(flight.places.len(), FIRST_PLACES, "a quiet connection takes little");
    for sequence in 0..1024 {
        assert_eq!(depart(&mut flight, sequence, u64::from(sequence) / 4), []);
    }
    assert_eq!((flight.places.len(), flight.in_flight()), (1024, 102_400));
    for sequence in 0..1024 {
        let departed = Departed { sent_at: at(u64::from(sequence) / 4), bytes: 100 };
        assert_eq!(flight.acked(Sequence(sequence)), Some(Landed { departed, late: false, newest: true }));
    }
    assert_eq!(flight.in_flight(), 0);
}
