//! Acknowledged packets: who hears what of whose packets, on paths of every kind.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::time::Instant;
use slipgate_session::reliability::{
    Acceptance, AckPolicy, Config, DEFAULT_ACK_AFTER, DEFAULT_ACK_AFTER_PACKETS, Endpoint, Event, LossDeadline,
    ReferenceSmoothing, Statistics, seed,
};
use slipgate_session::wire::reliable::Sequence;
use slipgate_tests::acknowledged::Datagrams;
use slipgate_tests::path::{End, Pair};
use slipgate_tests::world::Conditions;

const MILLI: Duration = Duration::from_millis(1);
const FRAME: Duration = Duration::from_micros(16_667);

fn latency(millis: u64) -> Conditions {
    Conditions { latency: Duration::from_millis(millis), ..Conditions::perfect() }
}

fn lossy(millis: u64, percent: f64) -> Conditions {
    Conditions { loss_percent: percent, ..latency(millis) }
}

fn numbers(events: &[Event], of: fn(&Event) -> Option<Sequence>) -> Vec<u16> {
    events.iter().filter_map(of).map(|sequence| sequence.0).collect()
}

fn acked(event: &Event) -> Option<Sequence> {
    if let Event::Acked { sequence, .. } = event { Some(*sequence) } else { None }
}

fn lost(event: &Event) -> Option<Sequence> {
    if let Event::Lost { sequence } = event { Some(*sequence) } else { None }
}

// Acknowledgements never starve -------------------------------------------------------------------------------------

#[test]
fn a_one_sided_stream_of_5000_packets_a_second_has_every_arrival_acknowledged() {
    let mut pair = Pair::new(1, latency(20), &Config::default());
    let step = Duration::from_micros(200);
    for number in 0..50_000_u32 {
        pair.send(End::A, &number.to_le_bytes()).unwrap();
        pair.turn(step);
    }
    pair.run_for(Duration::from_secs(2), step);
    assert_eq!(pair.side(End::B).received.len(), 50_000);
    assert_eq!((pair.side(End::A).acked(), pair.side(End::A).lost()), (50_000, 0));
    let counters = pair.stats(End::B).counters;
    assert_eq!(counters.acks_sent, 50_000 / u64::from(DEFAULT_ACK_AFTER_PACKETS));
    assert_eq!(counters.sent, counters.acks_sent, "and nothing else");
}

#[test]
fn a_stream_that_arrives_in_bursts_once_a_frame_has_every_arrival_acknowledged() {
    let mut pair = Pair::new(2, latency(20), &Config::default());
    for _ in 0..600 {
        // 83 packets a frame are 5,000 a second; one header speaks of 32.
        for number in 0..83_u32 {
            pair.send(End::A, &number.to_le_bytes()).unwrap();
        }
        pair.turn(FRAME);
    }
    pair.run_for(Duration::from_secs(2), FRAME);
    assert_eq!(pair.side(End::B).received.len(), 600 * 83);
    assert_eq!((pair.side(End::A).acked(), pair.side(End::A).lost()), (600 * 83, 0));
}

#[test]
fn forty_packets_one_way_and_one_answer_leave_none_unacknowledged() {
    for answered in [true, false] {
        let mut pair = Pair::new(3, latency(5), &Config::default());
        for number in 0..40_u8 {
            pair.send(End::A, &[number]).unwrap();
        }
        // Before B's turn ends its application answers, with a header that speaks of 32 of them.
        pair.turn(10 * MILLI);
        if answered {
            pair.send(End::B, b"thank you").unwrap();
        }
        pair.run_for(Duration::from_secs(2), MILLI);
        assert_eq!((pair.side(End::A).acked(), pair.side(End::A).lost()), (40, 0), "answered: {answered}");
    }
}

#[test]
fn most_arrivals_of_a_lossy_stream_are_acknowledged_although_acknowledgements_get_lost_too() {
    let mut pair = Pair::new(4, lossy(20, 10.0), &Config::default());
    for number in 0..20_000_u32 {
        pair.send(End::A, &number.to_le_bytes()).unwrap();
        pair.turn(Duration::from_micros(200));
    }
    pair.run_for(Duration::from_secs(2), MILLI);
    let (arrived, acked) = (pair.side(End::B).received.len(), pair.side(End::A).acked());
    // Each arrival is in two headers: both are lost in 1 of 100 cases.
    assert!(acked <= arrived && acked * 1000 >= arrived * 985, "{acked} of {arrived} arrivals acknowledged");
    assert_eq!(acked + pair.side(End::A).lost(), 20_000, "every packet has its verdict");
}

#[test]
fn a_single_packet_is_acknowledged_after_25_ms_and_that_is_all_that_is_said() {
    let mut pair = Pair::new(5, latency(0), &Config::default());
    pair.send(End::A, b"hello").unwrap();
    pair.run_for(DEFAULT_ACK_AFTER, MILLI);
    assert_eq!(pair.side(End::A).acked(), 0);
    pair.run_for(3 * MILLI, MILLI);
    assert_eq!(pair.side(End::A).acked(), 1);
    pair.run_for(Duration::from_secs(60), MILLI);
    // Acknowledgements are not acknowledged, or the two would talk for ever.
    assert_eq!((pair.side(End::A).datagrams, pair.side(End::B).datagrams), (1, 1));
    assert_eq!((pair.side(End::B).events.len(), pair.stats(End::B).counters.lost), (0, 0));
}

#[test]
fn acknowledgements_go_out_when_the_settings_say_so() {
    let policies = [
        (Some(AckPolicy { after_packets: 4, after: Duration::from_secs(1) }), 4),
        (Some(AckPolicy { after_packets: 32, after: Duration::from_secs(1) }), 32),
        (Some(AckPolicy { after_packets: 32, after: 5 * MILLI }), 6),
        (None, 1000),
    ];
    for (acks, packets) in policies {
        let mut pair = Pair::new(6, latency(0), &Config { acks, ..Config::default() });
        let mut sent = 0;
        while pair.side(End::B).datagrams == 0 && sent < 1000 {
            pair.send(End::A, b"x").unwrap();
            pair.turn(MILLI);
            sent += 1;
        }
        assert_eq!(sent, packets, "{acks:?}");
    }
}

#[test]
fn two_that_talk_steadily_send_no_packets_for_acknowledgements_alone() {
    let mut pair = Pair::new(7, latency(30), &Config::default());
    for _ in 0..1000 {
        for end in End::BOTH {
            pair.send(end, b"state").unwrap();
        }
        pair.turn(FRAME);
    }
    for end in End::BOTH {
        assert_eq!(pair.stats(end).counters.acks_sent, 0, "{end:?}");
    }
}

// Verdicts ----------------------------------------------------------------------------------------------------------

#[test]
fn a_packet_that_nobody_acknowledges_is_lost_after_one_second() {
    let mut pair = Pair::new(8, lossy(10, 100.0), &Config::default());
    let first = pair.send(End::A, b"one").unwrap();
    pair.run_for(300 * MILLI, MILLI);
    let second = pair.send(End::A, b"two").unwrap();
    pair.run_for(seed::LOST_AFTER - 301 * MILLI, MILLI);
    assert!(pair.side(End::A).events.is_empty());
    pair.turn(MILLI);
    assert_eq!(pair.side(End::A).events, [Event::Lost { sequence: first }]);
    pair.run_for(299 * MILLI, MILLI);
    assert_eq!(pair.side(End::A).events.len(), 1);
    pair.turn(MILLI);
    assert_eq!(pair.side(End::A).events[1..], [Event::Lost { sequence: second }]);
    assert!((pair.stats(End::A).loss - 1.0).abs() < 1e-9);
}

#[test]
fn every_packet_gets_one_verdict_and_only_what_arrived_is_said_to_have_arrived() {
    for percent in [0.0, 5.0, 30.0] {
        let mut pair = Pair::new(9, lossy(50, percent), &Config::default());
        for number in 0..3000_u32 {
            for end in End::BOTH {
                pair.send(end, &number.to_le_bytes()).unwrap();
            }
            pair.turn(FRAME);
        }
        pair.run_for(Duration::from_secs(2), FRAME);
        for end in End::BOTH {
            let arrived: BTreeSet<u16> =
                pair.side(end.other()).received.iter().map(|(sequence, _)| sequence.0).collect();
            let acked = numbers(&pair.side(end).events, acked);
            let lost = numbers(&pair.side(end).events, lost);
            assert!(acked.iter().all(|sequence| arrived.contains(sequence)), "{percent} %");
            let all: BTreeSet<u16> = acked.iter().chain(&lost).copied().collect();
            assert_eq!((all.len(), acked.len() + lost.len()), (3000, 3000), "{percent} %");
            // An acknowledgement is in 32 headers, half a second's worth.
            assert_eq!(acked.len(), arrived.len(), "{percent} %");
        }
    }
}

#[test]
fn a_late_acknowledgement_takes_the_verdict_back_and_counts_nothing_as_lost() {
    let mut pair = Pair::new(10, latency(1100), &Config::default());
    let sequence = pair.send(End::A, b"slow").unwrap();
    pair.run_for(Duration::from_secs(3), MILLI);
    let events = pair.side(End::A).events.clone();
    assert_eq!(events[0], Event::Lost { sequence });
    assert!(matches!(events[1..], [Event::Acked { sequence: acked, .. }] if acked == sequence));
    let stats = pair.stats(End::A);
    assert_eq!((stats.counters.lost, stats.counters.late_acks, stats.counters.acked), (1, 1, 1));
    assert!(stats.loss.abs() < 1e-9 && stats.rtt.is_none(), "as the article has it, what is lost is no sample");
}

#[test]
fn on_a_path_slower_than_a_second_the_deadline_follows_the_round_trip_time_if_it_is_asked_to() {
    for (loss, expected) in [(LossDeadline::Fixed, true), (LossDeadline::AtLeastRtt, false)] {
        let mut pair = Pair::new(11, latency(700), &Config { loss, ..Config::default() });
        for _ in 0..600 {
            pair.send(End::A, b"state").unwrap();
            pair.turn(FRAME);
        }
        let before = pair.side(End::A).lost();
        assert!(before > 0, "nothing is known in the first seconds");
        for _ in 0..600 {
            pair.send(End::A, b"state").unwrap();
            pair.turn(FRAME);
        }
        let called_lost = pair.side(End::A).lost() > before;
        assert_eq!(called_lost, expected, "{loss:?}");
        assert!(pair.side(End::A).acked() > 1000, "{loss:?}");
    }
}

#[test]
fn a_window_too_small_for_the_stream_gives_its_oldest_packets_up_and_says_so() {
    let config = Config { sent_window: 16, ..Config::default() };
    let mut pair = Pair::new(12, latency(100), &config);
    for _ in 0..100 {
        pair.send(End::A, b"fast").unwrap();
        pair.turn(MILLI);
    }
    pair.run_for(Duration::from_secs(3), MILLI);
    let stats = pair.stats(End::A);
    assert_eq!(stats.counters.displaced, 84);
    assert_eq!((pair.side(End::A).lost(), pair.side(End::A).acked()), (84, 16));
}

// Wrap-around -------------------------------------------------------------------------------------------------------

#[test]
fn three_times_around_all_sequence_numbers_nothing_is_lost_or_delivered_twice() {
    let mut pair = Pair::new(13, latency(2), &Config::default());
    let packets = 3 * 65_536 + 1000_u32;
    for number in 0..packets {
        pair.send(End::A, &number.to_le_bytes()).unwrap();
        if number % 3 == 0 {
            pair.send(End::B, &number.to_le_bytes()).unwrap();
        }
        if number % 50_000 == 25_000 {
            // Nobody acknowledges a packet of 2,000 bytes before its two fragments are there.
            pair.send(End::A, &[7; 2000]).unwrap();
        }
        pair.turn(MILLI);
    }
    pair.run_for(Duration::from_secs(2), MILLI);
    let large = 4;
    assert_eq!((pair.side(End::A).acked(), pair.side(End::A).lost()), (packets as usize + large, 0));
    let received = &pair.side(End::B).received;
    let small: Vec<u32> =
        received.iter().filter_map(|(_, bytes)| bytes.as_slice().try_into().ok().map(u32::from_le_bytes)).collect();
    assert!(small.into_iter().eq(0..packets), "in order, once each");
    assert_eq!(received.len(), packets as usize + large);
}

// Fragments ---------------------------------------------------------------------------------------------------------

#[test]
fn large_packets_arrive_whole_on_a_path_that_loses_duplicates_and_reorders() {
    let conditions = Conditions {
        latency: 20 * MILLI,
        jitter: 30 * MILLI,
        loss_percent: 1.0,
        duplication_percent: 5.0,
        reordering_percent: 2.0,
    };
    let mut pair = Pair::new(14, conditions, &Config::default());
    let payload = |number: u32| -> Vec<u8> {
        let bytes = 1 + (number as usize * 7919) % (16 * 1024);
        (0..bytes).map(|place| (place as u32 ^ number) as u8).collect()
    };
    for number in 0..500 {
        pair.send(End::A, &payload(number)).unwrap();
        pair.turn(FRAME);
    }
    pair.run_for(Duration::from_secs(2), FRAME);
    let received = std::mem::take(&mut pair.side(End::B).received);
    assert!(received.len() > 400, "{} of 500", received.len());
    for (sequence, bytes) in received {
        assert_eq!(bytes, payload(sequence.0.into()), "{sequence}");
    }
    assert_eq!(pair.side(End::A).acked() + pair.side(End::A).lost(), 500);
}

// Statistics --------------------------------------------------------------------------------------------------------

#[test]
fn the_round_trip_time_is_smoothed_by_ten_per_cent() {
    let mut pair = Pair::new(15, latency(100), &Config::default());
    let talk = |pair: &mut Pair, turns: u32| {
        for _ in 0..turns {
            pair.send(End::A, b"ping").unwrap();
            pair.send(End::B, b"pong").unwrap();
            pair.turn(10 * MILLI);
        }
        pair.stats(End::A).rtt.unwrap()
    };
    let settled = talk(&mut pair, 100);
    assert_eq!((settled.smoothed, settled.latest, settled.min), (200 * MILLI, 200 * MILLI, 200 * MILLI));
    pair.set_conditions(latency(150));
    // On their way when it changes, acknowledgements make 250 ms of it; after 300 ms the first packet of the new path is back.
    let (mut expected, mut moved) = (200.0, settled);
    for _ in 0..49 {
        let acked = pair.stats(End::A).counters.acked;
        moved = talk(&mut pair, 1);
        if pair.stats(End::A).counters.acked > acked {
            expected += (moved.latest.as_secs_f64() * 1000.0 - expected) * seed::RTT_SMOOTHING;
        }
    }
    assert!(expected > 250.0, "{expected}");
    let millis = moved.smoothed.as_secs_f64() * 1000.0;
    assert!((millis - expected).abs() < 0.01, "{millis} where {expected} was expected");
    assert_eq!((moved.min, moved.max), (200 * MILLI, 300 * MILLI));
    assert_eq!(moved.jitter.max_over_min, 100 * MILLI);
    assert_eq!(moved.queueing_delay(), moved.smoothed - 200 * MILLI);
}

#[test]
fn loss_and_bandwidth_are_those_of_the_path_however_often_one_ticks() {
    for (turns_per_packet, statistics) in
        [(1, Statistics::Seed), (10, Statistics::Seed), (1, Statistics::Reference(ReferenceSmoothing::default()))]
    {
        let mut pair = Pair::new(19, lossy(40, 10.0), &Config { statistics, sent_window: 256, ..Config::default() });
        for _ in 0..1200 {
            for end in End::BOTH {
                pair.send(end, &[0; 100]).unwrap();
            }
            for _ in 0..turns_per_packet {
                pair.turn(FRAME / turns_per_packet);
            }
        }
        let stats = pair.stats(End::A);
        assert!((0.05..0.15).contains(&stats.loss), "{statistics:?}: loss {}", stats.loss);
        // 60 packets a second of 28 bytes, and 100 with a header or without.
        for (name, bandwidth, share) in
            [("sent", stats.sent, 1.0), ("received", stats.received, 0.9), ("acked", stats.acked, 0.9)]
        {
            let expected = 60.0 * 8.0 * 132.0 * share;
            assert!((bandwidth.0 / expected - 1.0).abs() < 0.12, "{statistics:?}: {name} {bandwidth:?}, {expected}");
        }
    }
}

#[test]
fn reset_forgets_everything_so_that_no_players_numbers_leak_into_the_next_ones_slot() {
    for statistics in [Statistics::Seed, Statistics::Reference(ReferenceSmoothing::default())] {
        let config = Config { statistics, sent_window: 256, received_window: 256, ..Config::default() };
        let mut pair = Pair::new(17, lossy(40, 20.0), &config);
        for _ in 0..1000 {
            pair.send(End::A, &[1; 2500]).unwrap();
            pair.send(End::B, b"x").unwrap();
            pair.turn(FRAME);
        }
        let used = pair.stats(End::A);
        assert!(
            used.rtt.is_some() && used.loss > 0.0 && used.sent.0 > 0.0 && used.acked.0 > 0.0 && used.received.0 > 0.0
        );
        let fresh = Pair::new(18, latency(0), &config);
        for end in End::BOTH {
            pair.side(end).endpoint.reset();
            pair.side(end).endpoint.tick(fresh.now());
            assert_eq!(pair.stats(end), fresh.stats(end), "{statistics:?}");
            assert_eq!(pair.side(end).endpoint.poll_event(), None);
            assert_eq!(pair.side(end).endpoint.next_sequence(), Sequence(0));
            assert_eq!(pair.side(end).endpoint.acks(), slipgate_session::wire::reliable::Acks::NONE);
            assert_eq!(pair.side(end).endpoint.reassembly_bytes(), 0);
            assert_eq!(pair.side(end).endpoint.next_deadline(), None);
        }
    }
}

// Worlds ------------------------------------------------------------------------------------------------------------

#[test]
fn in_a_thousand_worlds_verdicts_are_true_and_nothing_is_delivered_twice() {
    for seed in 0..1000 {
        live_through(seed);
    }
}

fn live_through(seed: u64) {
    let mut chance = StdRng::seed_from_u64(seed ^ 0xac4);
    let config = Config {
        sent_window: 1 << chance.random_range(6..11),
        received_window: 1 << chance.random_range(6..11),
        reassembly_bytes: chance.random_range(16..64) * 1024,
        ..Config::default()
    };
    let mut pair = Pair::new(seed, Conditions::random(&mut chance), &config);
    let mut sent = [0_u32; 2];
    for _ in 0..chance.random_range(50..200) {
        for end in End::BOTH {
            for _ in 0..chance.random_range(0..4) {
                let large = chance.random_range(0..20) == 0;
                let bytes = chance.random_range(4..if large { 16_000 } else { 300 });
                let mut payload = vec![seed as u8; bytes];
                payload[..4].copy_from_slice(&sent[end as usize].to_le_bytes());
                pair.send(end, &payload).unwrap();
                sent[end as usize] += 1;
            }
            let held = pair.side(end).endpoint.reassembly_bytes();
            assert!(held <= config.reassembly_bytes + 32 * 1024, "seed {seed}: {held} bytes");
        }
        pair.turn(Duration::from_millis(chance.random_range(1..40)));
    }
    pair.run_for(Duration::from_secs(3), 20 * MILLI);
    for end in End::BOTH {
        let arrived: Vec<u32> = pair
            .side(end.other())
            .received
            .iter()
            .map(|(_, bytes)| u32::from_le_bytes(bytes[..4].try_into().unwrap()))
            .collect();
        let distinct: BTreeSet<u32> = arrived.iter().copied().collect();
        assert_eq!(distinct.len(), arrived.len(), "seed {seed}: delivered twice");
        let (acked, lost) = (numbers(&pair.side(end).events, acked), numbers(&pair.side(end).events, lost));
        // Packets for acknowledgements alone use numbers too, so numbers are no counts here; but nothing wraps.
        let received: BTreeSet<u16> = pair.side(end.other()).received.iter().map(|(sequence, _)| sequence.0).collect();
        assert!(acked.iter().all(|sequence| received.contains(sequence)), "seed {seed}: acknowledged, not received");
        let judged: BTreeSet<u16> = acked.iter().chain(&lost).copied().collect();
        assert_eq!(judged.len() as u32, sent[end as usize], "seed {seed}: every packet has a verdict");
        let late = pair.stats(end).counters.late_acks as usize;
        assert_eq!(acked.len() + lost.len() - late, judged.len(), "seed {seed}: one verdict, or a late second one");
    }
}

#[test]
fn a_packet_that_needs_no_answer_gets_none_and_what_stands_behind_a_header_is_heard() {
    let config = Config { acks: Some(AckPolicy::default()), ..Config::default() };
    let (mut alice, mut bob) = (Endpoint::new(config.clone()).unwrap(), Endpoint::new(config).unwrap());
    let (mut wire, now) = (Datagrams::default(), Instant::default());
    let fill = |room: &mut [u8]| {
        room[0] = 7;
        1
    };
    alice.send_unanswered_with(now, &mut wire, fill).unwrap();
    bob.handle_if(&wire.sent[0], now, |_| Acceptance::TakeUnanswered).unwrap();
    let later = Instant::from_start(Duration::from_secs(3));
    assert!(!bob.owes_acks(later), "nobody waits to hear of it");
    alice.tick(later);
    assert_eq!(alice.poll_event(), None, "it is never called lost");

    for _ in 0..100 {
        alice.send(b"data", later, &mut wire).unwrap();
    }
    for datagram in &wire.sent[1..] {
        bob.handle(datagram, later).unwrap();
    }
    let mut bits = [0; 28];
    let bytes = bob.acks_behind(&mut bits);
    let ack = bob.acks().ack;
    let mut back = Datagrams::default();
    bob.send_unanswered_with(later, &mut back, fill).unwrap();
    bob.told_behind(bytes);
    assert!(!bob.owes_acks(Instant::from_start(Duration::from_secs(9))), "one packet told of all");
    alice.handle(&back.sent[0], later).unwrap();
    alice.handle_acks_behind(ack, &bits[..bytes], later);
    let acked = std::iter::from_fn(|| alice.poll_event()).filter(|event| matches!(event, Event::Acked { .. })).count();
    assert_eq!(acked, 100);
    alice.handle_acks_behind(Sequence(5000), &[0xff; 28], later);
    assert_eq!(alice.stats(later).counters.acks_of_unsent, 1, "nonsense is counted");
}
