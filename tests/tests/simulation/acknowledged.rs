//! Acknowledged packets on paths of every kind: acknowledgements, losses, and duplicates.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_session::reliability::{
    AckPolicy, DEFAULT_ACK_AFTER, DEFAULT_ACK_AFTER_PACKETS, EndpointConfig, PacketEvent, constants,
};
use slipgate_session::wire::reliable::Sequence;
use slipgate_sim::{Conditions, Order, Share};
use slipgate_tests::conditions;
use slipgate_tests::endpoint_world::EndpointWorld;
use slipgate_tests::world::End;

const MILLI: Duration = Duration::from_millis(1);
const FRAME: Duration = Duration::from_micros(16_667);

fn latency(millis: u64) -> Conditions {
    Conditions { latency: Duration::from_millis(millis), ..Conditions::perfect() }
}

fn lossy(millis: u64, percent: f64) -> Conditions {
    Conditions { loss: conditions::loss(percent), ..latency(millis) }
}

fn numbers(events: &[PacketEvent], of: fn(&PacketEvent) -> Option<Sequence>) -> Vec<u16> {
    events.iter().filter_map(of).map(|sequence| sequence.0).collect()
}

fn acked(event: &PacketEvent) -> Option<Sequence> {
    if let PacketEvent::Acked { sequence, .. } = event { Some(*sequence) } else { None }
}

fn lost(event: &PacketEvent) -> Option<Sequence> {
    if let PacketEvent::Lost { sequence } = event { Some(*sequence) } else { None }
}

// Acknowledgements are never starved ----------------------------------------------------------------------------------

#[test]
fn one_way_stream_of_5000_packets_per_second_is_fully_acked() {
    let mut pair = EndpointWorld::new(1, latency(20), &EndpointConfig::default());
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
    assert_eq!(counters.sent, counters.acks_sent, "no other packets");
}

#[test]
fn bursty_stream_is_fully_acked() {
    let mut pair = EndpointWorld::new(2, latency(20), &EndpointConfig::default());
    for _ in 0..600 {
        // 83 packets per frame are 5,000 per second; one header acknowledges 32.
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
fn one_reply_acks_forty_packets() {
    for answered in [true, false] {
        let mut pair = EndpointWorld::new(3, latency(5), &EndpointConfig::default());
        for number in 0..40_u8 {
            pair.send(End::A, &[number]).unwrap();
        }
        // The application of B replies before its turn ends, with a header that acknowledges 32 of them.
        pair.turn(10 * MILLI);
        if answered {
            pair.send(End::B, b"thank you").unwrap();
        }
        pair.run_for(Duration::from_secs(2), MILLI);
        assert_eq!((pair.side(End::A).acked(), pair.side(End::A).lost()), (40, 0), "replied: {answered}");
    }
}

#[test]
fn lossy_stream_acks_most_arrivals_despite_lost_acks() {
    let mut pair = EndpointWorld::new(4, lossy(20, 10.0), &EndpointConfig::default());
    for number in 0..20_000_u32 {
        pair.send(End::A, &number.to_le_bytes()).unwrap();
        pair.turn(Duration::from_micros(200));
    }
    pair.run_for(Duration::from_secs(2), MILLI);
    let (arrived, acked) = (pair.side(End::B).received.len(), pair.side(End::A).acked());
    // Each arrival is in two headers: both are lost in 1 of 100 cases.
    assert!(acked <= arrived && acked * 1000 >= arrived * 985, "{acked} of {arrived} arrivals acknowledged");
    assert_eq!(acked + pair.side(End::A).lost(), 20_000, "every packet was reported");
}

#[test]
fn single_packet_is_acked_once_after_25_ms() {
    let mut pair = EndpointWorld::new(5, latency(0), &EndpointConfig::default());
    pair.send(End::A, b"hello").unwrap();
    pair.run_for(DEFAULT_ACK_AFTER, MILLI);
    assert_eq!(pair.side(End::A).acked(), 0);
    pair.run_for(3 * MILLI, MILLI);
    assert_eq!(pair.side(End::A).acked(), 1);
    pair.run_for(Duration::from_secs(60), MILLI);
    // Acknowledgements are not acknowledged, or the two ends would exchange them for ever.
    assert_eq!((pair.sent(End::A).count, pair.sent(End::B).count), (1, 1));
    assert_eq!((pair.side(End::B).events.len(), pair.stats(End::B).counters.lost), (0, 0));
}

#[test]
fn acks_are_sent_at_the_configured_delay() {
    let policies = [
        (Some(AckPolicy { after_packets: 4, after: Duration::from_secs(1) }), 4),
        (Some(AckPolicy { after_packets: 32, after: Duration::from_secs(1) }), 32),
        (Some(AckPolicy { after_packets: 32, after: 5 * MILLI }), 6),
        (None, 1000),
    ];
    for (acks, packets) in policies {
        let mut pair = EndpointWorld::new(6, latency(0), &EndpointConfig { acks, ..EndpointConfig::default() });
        let mut sent = 0;
        while pair.sent(End::B).count == 0 && sent < 1000 {
            pair.send(End::A, b"x").unwrap();
            pair.turn(MILLI);
            sent += 1;
        }
        assert_eq!(sent, packets, "{acks:?}");
    }
}

#[test]
fn steady_two_way_traffic_sends_no_ack_only_packets() {
    let mut pair = EndpointWorld::new(7, latency(30), &EndpointConfig::default());
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

// Acknowledgements and losses ----------------------------------------------------------------------------------------

#[test]
fn unacknowledged_packet_is_lost_after_one_second() {
    let mut pair = EndpointWorld::new(8, lossy(10, 100.0), &EndpointConfig::default());
    let first = pair.send(End::A, b"one").unwrap();
    pair.run_for(300 * MILLI, MILLI);
    let second = pair.send(End::A, b"two").unwrap();
    pair.run_for(constants::LOST_AFTER - 301 * MILLI, MILLI);
    assert!(pair.side(End::A).events.is_empty());
    pair.turn(MILLI);
    assert_eq!(pair.side(End::A).events, [PacketEvent::Lost { sequence: first }]);
    pair.run_for(299 * MILLI, MILLI);
    assert_eq!(pair.side(End::A).events.len(), 1);
    pair.turn(MILLI);
    assert_eq!(pair.side(End::A).events[1..], [PacketEvent::Lost { sequence: second }]);
    assert!((pair.stats(End::A).loss - 1.0).abs() < 1e-9);
}

#[test]
fn every_packet_is_reported_once_and_acked_only_on_arrival() {
    for percent in [0.0, 5.0, 30.0] {
        let mut pair = EndpointWorld::new(9, lossy(50, percent), &EndpointConfig::default());
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
            // Each acknowledgement is repeated in 32 headers, for half a second.
            assert_eq!(acked.len(), arrived.len(), "{percent} %");
        }
    }
}

#[test]
fn late_ack_reverts_the_loss() {
    let mut pair = EndpointWorld::new(10, latency(1100), &EndpointConfig::default());
    let sequence = pair.send(End::A, b"slow").unwrap();
    pair.run_for(Duration::from_secs(3), MILLI);
    let events = pair.side(End::A).events.clone();
    assert_eq!(events[0], PacketEvent::Lost { sequence });
    assert!(matches!(events[1..], [PacketEvent::Acked { sequence: acked, .. }] if acked == sequence));
    let stats = pair.stats(End::A);
    assert_eq!((stats.counters.lost, stats.counters.late_acks, stats.counters.acked), (1, 1, 1));
    assert!(stats.loss.abs() < 1e-9 && stats.rtt.is_none(), "a lost packet is no RTT sample, as in the article");
}

#[test]
fn small_window_reports_its_oldest_packets_as_lost() {
    let config = EndpointConfig { sent_window: 16, ..EndpointConfig::default() };
    let mut pair = EndpointWorld::new(12, latency(100), &config);
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
fn three_sequence_wraps_lose_and_duplicate_nothing() {
    let mut pair = EndpointWorld::new(13, latency(2), &EndpointConfig::default());
    let packets = 3 * 65_536 + 1000_u32;
    for number in 0..packets {
        pair.send(End::A, &number.to_le_bytes()).unwrap();
        if number % 3 == 0 {
            pair.send(End::B, &number.to_le_bytes()).unwrap();
        }
        if number % 50_000 == 25_000 {
            // A packet of 2,000 bytes is not acknowledged before both of its fragments arrived.
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
    assert!(small.into_iter().eq(0..packets), "in order and once");
    assert_eq!(received.len(), packets as usize + large);
}

// Fragments ---------------------------------------------------------------------------------------------------------

#[test]
fn large_packets_arrive_whole_on_an_impaired_path() {
    let conditions = Conditions {
        latency: 20 * MILLI,
        jitter: 30 * MILLI,
        loss: conditions::loss(1.0),
        duplication: Share::percent(5.0),
        reordering: conditions::reordering(2.0),
        order: Order::Free,
        ..Conditions::perfect()
    };
    let mut pair = EndpointWorld::new(14, conditions, &EndpointConfig::default());
    let payload = |number: u32| -> Vec<u8> {
        let bytes = 1 + (number as usize * 7919) % (16 * 1024);
        (0..bytes).map(|index| (index as u32 ^ number) as u8).collect()
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
fn rtt_is_smoothed_by_ten_percent() {
    let mut pair = EndpointWorld::new(15, latency(100), &EndpointConfig::default());
    let talk = |pair: &mut EndpointWorld, turns: u32| {
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
    // Acknowledgements in flight during the change yield samples of 250 ms; the first packet of the new path returns
    // after 300 ms.
    let (mut expected, mut moved) = (200.0, settled);
    for _ in 0..49 {
        let acked = pair.stats(End::A).counters.acked;
        moved = talk(&mut pair, 1);
        if pair.stats(End::A).counters.acked > acked {
            expected += (moved.latest.as_secs_f64() * 1000.0 - expected) * constants::RTT_SMOOTHING;
        }
    }
    assert!(expected > 250.0, "{expected}");
    let millis = moved.smoothed.as_secs_f64() * 1000.0;
    assert!((millis - expected).abs() < 0.01, "{millis} instead of {expected}");
    assert_eq!((moved.min, moved.max), (200 * MILLI, 300 * MILLI));
    assert_eq!(moved.jitter.max_over_min, 100 * MILLI);
}

#[test]
fn loss_and_bandwidth_do_not_depend_on_tick_rate() {
    for turns_per_packet in [1, 10] {
        let mut pair =
            EndpointWorld::new(19, lossy(40, 10.0), &EndpointConfig { sent_window: 256, ..EndpointConfig::default() });
        for _ in 0..1200 {
            for end in End::BOTH {
                pair.send(end, &[0; 100]).unwrap();
            }
            for _ in 0..turns_per_packet {
                pair.turn(FRAME / turns_per_packet);
            }
        }
        let stats = pair.stats(End::A);
        assert!((0.05..0.15).contains(&stats.loss), "{turns_per_packet} turns: loss {}", stats.loss);
        // 60 packets of 28 bytes per second, and 100 bytes with or without the header.
        for (name, bandwidth, share) in
            [("sent", stats.sent, 1.0), ("received", stats.received, 0.9), ("acked", stats.acked, 0.9)]
        {
            let expected = 60.0 * 8.0 * 132.0 * share;
            assert!(
                (bandwidth.0 / expected - 1.0).abs() < 0.12,
                "{turns_per_packet} turns: {name} {bandwidth:?}, {expected}"
            );
        }
    }
}

// Worlds ------------------------------------------------------------------------------------------------------------

#[test]
fn random_worlds_report_true_acks_and_no_duplicates() {
    for seed in 0..1000 {
        run_world(seed);
    }
}

fn run_world(seed: u64) {
    let mut chance = StdRng::seed_from_u64(seed ^ 0xac4);
    let config = EndpointConfig {
        sent_window: 1 << chance.random_range(6..11),
        received_window: 1 << chance.random_range(6..11),
        reassembly_bytes: chance.random_range(16..64) * 1024,
        ..EndpointConfig::default()
    };
    let mut pair = EndpointWorld::new(seed, conditions::random(&mut chance), &config);
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
        // Ack-only packets use sequence numbers too, so that numbers are not counts here; but nothing wraps.
        let received: BTreeSet<u16> = pair.side(end.other()).received.iter().map(|(sequence, _)| sequence.0).collect();
        assert!(acked.iter().all(|sequence| received.contains(sequence)), "seed {seed}: acknowledged but not received");
        let judged: BTreeSet<u16> = acked.iter().chain(&lost).copied().collect();
        assert_eq!(judged.len() as u32, sent[end as usize], "seed {seed}: every packet was reported");
        let late = pair.stats(end).counters.late_acks as usize;
        assert_eq!(acked.len() + lost.len() - late, judged.len(), "seed {seed}: one report, or a late second one");
    }
}
