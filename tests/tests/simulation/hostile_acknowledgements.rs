//! An authentic peer cannot harm an acknowledged-packet endpoint; its invalid packets are counted.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_session::reject::Reject;
use slipgate_session::reliability::{Endpoint, EndpointConfig, MemoryBudget, PacketEvent};
use slipgate_session::wire::reliable::{Acks, Fragment, ReliableHeader, Sequence};
use slipgate_tests::acknowledged::Datagrams;

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_secs(100) + Duration::from_millis(millis))
}

fn emit(emit: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 15];
    let mut writer = Writer::new(&mut bytes);
    emit(&mut writer);
    let written = writer.written().unwrap();
    bytes.truncate(written);
    bytes
}

fn packet(sequence: u16, ack: u16, bits: u32, payload: &[u8]) -> Vec<u8> {
    let header = ReliableHeader { sequence: Sequence(sequence), acks: Acks { ack: Sequence(ack), bits } };
    emit(|writer| {
        header.emit(writer);
        writer.bytes(payload);
    })
}

/// Returns a fragment of `bytes` bytes. The first one of a packet carries a header without acknowledgements.
fn fragment(sequence: u16, id: u8, count: u16, bytes: usize) -> Vec<u8> {
    let sequence = Sequence(sequence);
    let header = (id == 0).then_some(ReliableHeader { sequence, acks: Acks::NONE });
    emit(|writer| Fragment { sequence, id, count, header, data: &vec![id; bytes] }.emit(writer))
}

fn small() -> EndpointConfig {
    EndpointConfig {
        max_packet_bytes: 1600,
        fragment_above: 100,
        fragment_bytes: 100,
        max_fragments: 16,
        reassemblies: 64,
        reassembly_bytes: 3200,
        ..EndpointConfig::default()
    }
}

/// Asserts that an endpoint still works: a packet to it arrives and is acknowledged.
fn assert_serves(endpoint: &mut Endpoint, sequence: u16) {
    let datagram = packet(sequence, u16::MAX, 0, b"still there");
    let taken = endpoint.handle(&datagram, at(0)).unwrap().unwrap();
    assert_eq!((taken.sequence, taken.payload), (Sequence(sequence), &b"still there"[..]));
    assert_eq!(endpoint.next_header().acks.arrived().next(), Some(Sequence(sequence)));
}

// Datagrams ---------------------------------------------------------------------------------------------------------

#[test]
fn invalid_datagram_is_counted_by_reason_without_effect() {
    let with = |mut datagram: Vec<u8>, index: usize, value: u8| {
        datagram[index] = value;
        datagram
    };
    let table: Vec<(Vec<u8>, Reject)> = vec![
        (vec![], Reject::TooShort),
        (vec![0x20], Reject::TooShort),
        (vec![0x20, 0, 0], Reject::AckCut),
        (vec![0x00, 0, 0, 0], Reject::AckCut),
        (vec![0x3e, 0, 0, 0, 0xff, 0xff, 0xff], Reject::AckBitsCut),
        (packet(0, 0, 0, &[0; 1601]), Reject::TooLarge),
        (vec![0; 1615], Reject::TooLarge),
        (vec![1; 1615], Reject::TooLarge),
        (vec![0xff; 1000], Reject::FragmentPrefix),
        (vec![1, 0, 0, 0], Reject::FragmentTooShort),
        (fragment(0, 0, 17, 100), Reject::FragmentCount),
        (fragment(0, 0, 256, 100), Reject::FragmentCount),
        (fragment(0, 5, 2, 100), Reject::FragmentId),
        (with(fragment(0, 1, 2, 100), 3, 255), Reject::FragmentId),
        (fragment(0, 1, 2, 101), Reject::FragmentTooLong),
        (fragment(0, 1, 3, 99), Reject::FragmentCut),
        (fragment(0, 1, 3, 0), Reject::FragmentCut),
        (with(fragment(0, 0, 3, 100), 6, 1), Reject::EmbeddedSequence),
        (with(fragment(0, 0, 3, 100), 5, 0xff), Reject::EmbeddedHeader),
        (vec![1, 0, 0, 0, 2], Reject::EmbeddedHeader),
        (packet(33_000, 0, 0, b"half way round"), Reject::Stale),
        (fragment(33_000, 1, 2, 100), Reject::FragmentStale),
    ];
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    for (datagram, reject) in &table {
        let before = endpoint.stats(at(0)).rejects[*reject];
        assert_eq!(endpoint.handle(datagram, at(0)), Err(*reject), "{}", hex::encode(datagram));
        assert_eq!(endpoint.stats(at(0)).rejects[*reject], before + 1);
        assert_eq!(endpoint.next_header().acks, Acks::NONE, "{reject}");
    }
    let stats = endpoint.stats(at(0));
    assert_eq!(stats.rejects.total(), table.len() as u64);
    assert_eq!((endpoint.reassembly_bytes(), stats.rtt, stats.counters.acked), (0, None, 0));
    assert_serves(&mut endpoint, 0);
}

#[test]
fn noise_leaves_the_endpoint_unchanged() {
    let mut chance = StdRng::seed_from_u64(0x2015e);
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    let mut datagrams = Datagrams::default();
    for turn in 0..200_000_u64 {
        let mut datagram = vec![0; chance.random_range(0..150)];
        chance.fill(&mut datagram[..]);
        if let Some(prefix) = datagram.first_mut().filter(|_| chance.random()) {
            *prefix = [0x00, 0x01, 0x20, 0x3e][chance.random_range(0..4)];
        }
        let _ = endpoint.handle(&datagram, at(turn));
        if turn % 16 == 0 {
            endpoint.send(b"x", at(turn), &mut datagrams).unwrap();
            endpoint.tick(at(turn));
            endpoint.transmit(at(turn), &mut datagrams);
            while endpoint.poll_event().is_some() {}
            datagrams.sent.clear();
        }
        assert!(endpoint.reassembly_bytes() <= 3200 + 1600 + 64 * 200, "{}", endpoint.reassembly_bytes());
    }
    let counters = endpoint.stats(at(200_000)).counters;
    assert!(counters.acks_sent <= counters.received, "it sends no more than it receives: {counters:?}");
}

// Acknowledgements --------------------------------------------------------------------------------------------------

#[test]
fn acks_of_unsent_packets_are_counted_without_effect() {
    for (ack, bits) in [(0, 1), (65_535, 1), (65_535, u32::MAX), (1, 2), (40_000, u32::MAX), (32_768, u32::MAX)] {
        let mut endpoint = Endpoint::new(small(), None).unwrap();
        let datagram = packet(0, ack, bits, b"believe me");
        assert!(endpoint.handle(&datagram, at(0)).unwrap().is_some());
        let stats = endpoint.stats(at(0));
        assert_eq!((stats.counters.acks_of_unsent, stats.counters.acked, stats.rtt), (1, 0, None), "{ack} {bits:x}");
        assert_eq!(endpoint.poll_event(), None);
        // Packets that use those numbers later are not acknowledged yet.
        endpoint.send(b"first", at(0), &mut Datagrams::default()).unwrap();
        endpoint.tick(at(1000));
        assert_eq!(endpoint.poll_event(), Some(PacketEvent::Lost { sequence: Sequence(0) }), "{ack} {bits:x}");
    }
}

#[test]
fn header_with_unsent_acks_still_acks_sent_packets() {
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    endpoint.send(b"one", at(0), &mut Datagrams::default()).unwrap();
    assert!(endpoint.handle(&packet(0, 10, u32::MAX, b"all of them"), at(30)).is_ok());
    let rtt = Duration::from_millis(30);
    assert_eq!(endpoint.poll_event(), Some(PacketEvent::Acked { sequence: Sequence(0), rtt }));
    assert_eq!(endpoint.poll_event(), None);
    assert_eq!(endpoint.stats(at(30)).counters.acks_of_unsent, 1);
}

#[test]
fn peer_without_acks_takes_no_memory_and_loses_all_packets() {
    let config = EndpointConfig { sent_window: 64, ..small() };
    let mut endpoint = Endpoint::new(config, None).unwrap();
    let mut datagrams = Datagrams::default();
    let mut lost = 0;
    for turn in 0..100_000 {
        endpoint.send(b"hello?", at(turn * 20), &mut datagrams).unwrap();
        endpoint.tick(at(turn * 20));
        datagrams.sent.clear();
        lost += std::iter::from_fn(|| endpoint.poll_event()).count();
    }
    // The 50 packets of the last second are still awaited.
    assert_eq!(lost, 100_000 - 50);
    assert!((endpoint.stats(at(2_000_000)).loss - 1.0).abs() < 1e-9);
}

#[test]
fn unpolled_events_take_no_memory() {
    let mut endpoint = Endpoint::new(EndpointConfig { sent_window: 64, ..small() }, None).unwrap();
    for turn in 0..10_000 {
        endpoint.send(b"who cares", at(turn * 20), &mut Datagrams::default()).unwrap();
        endpoint.tick(at(turn * 20));
    }
    let dropped = endpoint.stats(at(200_000)).counters.dropped_events;
    let reported = std::iter::from_fn(|| endpoint.poll_event()).count() as u64;
    assert_eq!((reported, reported + dropped), (64, 10_000 - 50), "the 50 packets of the last second are awaited");
}

#[test]
fn sparse_arrivals_trigger_at_most_one_ack_packet_each() {
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    let mut datagrams = Datagrams::default();
    for number in 0..2000_u16 {
        assert!(endpoint.handle(&packet(number.wrapping_mul(33), 0, 0, b"jump"), at(0)).is_ok());
        if number % 64 == 0 {
            endpoint.transmit(at(0), &mut datagrams);
        }
    }
    assert!(datagrams.sent.len() <= 2000, "{} packets for 2,000", datagrams.sent.len());
}

// Fragments ---------------------------------------------------------------------------------------------------------

#[test]
fn claimed_fragment_count_allocates_only_received_bytes() {
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    assert_eq!(endpoint.handle(&fragment(0, 3, 16, 100), at(0)), Ok(None));
    let with_one = endpoint.reassembly_bytes();
    for sequence in 1..32 {
        assert_eq!(endpoint.handle(&fragment(sequence, 3, 16, 100), at(0)), Ok(None));
    }
    assert_eq!(endpoint.reassembly_bytes() - with_one, 31 * 100);
}

#[test]
fn incomplete_packets_evict_each_other_not_complete_ones() {
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    let mut bound = 0;
    for sequence in 0..5000_u16 {
        // Fifteen of sixteen fragments: the memory suffices for two such packets.
        for id in 1..16 {
            assert_eq!(endpoint.handle(&fragment(sequence, id, 16, 100), at(0)), Ok(None));
        }
        bound = bound.max(endpoint.reassembly_bytes());
    }
    assert!(bound <= 3200 + 1600 + 64 * 200, "{bound}");
    assert!(endpoint.stats(at(0)).counters.reassemblies_given_up >= 4990);
    let missing = fragment(4999, 0, 16, 100);
    let whole = endpoint.handle(&missing, at(0)).unwrap().unwrap();
    assert_eq!(whole.payload.len(), 1600);
    assert_serves(&mut endpoint, 5000);
}

#[test]
fn incomplete_packets_expire_and_release_memory() {
    let budget = MemoryBudget::new(100_000);
    let mut endpoint = Endpoint::new(small(), Some(budget.clone())).unwrap();
    assert_eq!(endpoint.handle(&fragment(7, 0, 2, 100), at(0)), Ok(None));
    assert_eq!(endpoint.next_deadline(), Some(at(1000)));
    endpoint.tick(at(999));
    assert_eq!(endpoint.stats(at(999)).counters.reassemblies_given_up, 0);
    endpoint.tick(at(1000));
    assert_eq!(endpoint.stats(at(1000)).counters.reassemblies_given_up, 1);
    // Its late fragment starts a new reassembly, which never completes.
    assert_eq!(endpoint.handle(&fragment(7, 1, 2, 100), at(1001)), Ok(None));
    endpoint.tick(at(2001));
    assert!(budget.left() < 100_000 && budget.left() + endpoint.reassembly_bytes() == 100_000);
    assert_eq!(endpoint.next_deadline(), Some(at(11_001)));
    endpoint.tick(at(11_001));
    assert_eq!((budget.left(), endpoint.reassembly_bytes(), endpoint.next_deadline()), (100_000, 0, None));
}

#[test]
fn conflicting_repeated_and_late_fragments_are_counted() {
    let mut endpoint = Endpoint::new(small(), None).unwrap();
    for (datagram, outcome) in [
        (fragment(3, 1, 3, 100), Ok(None)),
        (fragment(3, 1, 3, 100), Err(Reject::FragmentRepeated)),
        (fragment(3, 2, 4, 100), Err(Reject::FragmentDisagrees)),
        (fragment(3, 0, 2, 100), Err(Reject::FragmentDisagrees)),
        (fragment(3, 0, 1, 100), Err(Reject::FragmentDisagrees)),
        (fragment(3, 2, 3, 7), Ok(None)),
    ] {
        assert_eq!(endpoint.handle(&datagram, at(0)), outcome);
    }
    let datagram = fragment(3, 0, 3, 100);
    let packet = endpoint.handle(&datagram, at(0)).unwrap().unwrap();
    assert_eq!(packet.payload, [vec![0; 100], vec![1; 100], vec![2; 7]].concat());
    for id in 0..3 {
        let late = fragment(3, id, 3, if id == 2 { 7 } else { 100 });
        assert_eq!(endpoint.handle(&late, at(0)), Err(Reject::FragmentLate));
    }
    assert_eq!(endpoint.stats(at(0)).rejects.total(), 7);
}

#[test]
fn one_client_cannot_use_the_memory_of_others() {
    // Memory for four endpoints at their limit; the first five are hostile.
    let one = 3200 + 1600 + 64 * 200;
    let budget = MemoryBudget::new(4 * one);
    let mut endpoints: Vec<Endpoint> = (0..6).map(|_| Endpoint::new(small(), Some(budget.clone())).unwrap()).collect();
    let (honest, hostile) = endpoints.split_last_mut().unwrap();
    for endpoint in hostile.iter_mut() {
        for sequence in 0..100 {
            for id in 1..16 {
                let _ = endpoint.handle(&fragment(sequence, id, 16, 100), at(0));
            }
        }
        assert!(endpoint.reassembly_bytes() <= one);
    }
    let refused: u64 = hostile.iter().map(|endpoint| endpoint.stats(at(0)).rejects[Reject::NoMemory]).sum();
    assert!(hostile.iter().map(|endpoint| endpoint.reassembly_bytes()).sum::<usize>() <= 4 * one);
    // The honest endpoint continues without fragments throughout, and with them as soon as the hostile ones have
    // expired.
    assert_serves(honest, 0);
    for endpoint in hostile.iter_mut() {
        endpoint.tick(at(1000));
        endpoint.tick(at(20_000));
    }
    assert_eq!(budget.left(), 4 * one, "refused {refused}");
    assert_eq!(honest.handle(&fragment(1, 0, 2, 100), at(20_000)), Ok(None));
    assert!(honest.handle(&fragment(1, 1, 2, 1), at(20_000)).unwrap().is_some());
}

#[test]
fn fragment_over_the_memory_budget_is_refused() {
    let mut endpoint = Endpoint::new(small(), Some(MemoryBudget::new(100))).unwrap();
    for id in 0..16 {
        assert_eq!(endpoint.handle(&fragment(0, id, 16, 100), at(0)), Err(Reject::NoMemory));
    }
    assert_eq!(endpoint.reassembly_bytes(), 0);
    assert_serves(&mut endpoint, 0);
}
