//! When the memory of incomplete packets is given back, which packet gives up, and the bounds of sizes.

use super::*;
use crate::wire::reliable::Acks;
use alloc::vec;

const BYTES: usize = 100;

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

/// Returns reassembly with memory for this many fragments of 100 bytes, and its budget.
fn with_memory_for(fragments: usize) -> (Reassembly, MemoryBudget) {
    let config = EndpointConfig {
        fragment_bytes: BYTES,
        max_packet_bytes: 3 * BYTES,
        reassembly_bytes: fragments * BYTES,
        reassemblies: 16,
        ..EndpointConfig::default()
    };
    let budget = MemoryBudget::new(1 << 20);
    (Reassembly::new(&config, Some(budget.clone())), budget)
}

fn take(
    reassembly: &mut Reassembly,
    sequence: u16,
    id: u8,
    count: u16,
    now: Instant,
) -> Result<FragmentOutcome, Reject> {
    let sequence = Sequence(sequence);
    let header = (id == 0).then_some(ReliableHeader { sequence, acks: Acks::NONE });
    let fragment = Fragment { sequence, id, count, header, data: &[id + 1; BYTES] };
    reassembly.begin(&fragment, now)?;
    reassembly.take(&fragment, now)
}

/// Returns the numbers of incomplete packets.
fn incomplete(reassembly: &Reassembly) -> Vec<u16> {
    let mut numbers: Vec<_> = reassembly.slots.iter().flatten().map(|partial| partial.sequence.0).collect();
    numbers.sort_unstable();
    numbers
}

#[test]
fn memory_of_an_expired_packet_serves_the_next_one() {
    let (mut reassembly, _) = with_memory_for(2);
    for sequence in 0..10 {
        let start = at(2000 * u64::from(sequence));
        for id in 1..3 {
            assert_eq!(take(&mut reassembly, sequence, id, 3, start), Ok(FragmentOutcome::Waiting), "{sequence} {id}");
        }
        let full = reassembly.bytes();
        // The first tick is exactly in time, the others are late.
        reassembly.tick(at(2000 * u64::from(sequence) + 1000 + 50 * u64::from(sequence)));
        assert_eq!(incomplete(&reassembly), [0; 0], "{sequence}");
        assert_eq!((reassembly.given_up(), reassembly.bytes()), (u64::from(sequence) + 1, full), "{sequence}");
    }
}

#[test]
fn each_packet_expires_at_its_own_time() {
    let (mut reassembly, budget) = with_memory_for(8);
    take(&mut reassembly, 1, 1, 3, at(0)).unwrap();
    take(&mut reassembly, 2, 1, 3, at(400)).unwrap();
    take(&mut reassembly, 1, 2, 3, at(900)).unwrap();
    for (now, left, given_up, wake) in [
        (999, &[1, 2][..], 0, at(1000)),
        (1000, &[2], 1, at(1400)),
        (1399, &[2], 1, at(1400)),
        // The memory stays for ten seconds after the last fragment, not after the expiry.
        (1400, &[], 2, at(10_900)),
        (10_899, &[], 2, at(10_900)),
    ] {
        reassembly.tick(at(now));
        assert_eq!((incomplete(&reassembly).as_slice(), reassembly.given_up()), (left, given_up), "{now}");
        assert_eq!(reassembly.wake(), wake, "{now}");
        assert_eq!(budget.left() + reassembly.bytes(), 1 << 20, "{now}");
        assert!(reassembly.bytes() >= 3 * BYTES, "{now}");
    }
    reassembly.tick(at(10_900));
    assert_eq!((reassembly.bytes(), budget.left(), reassembly.wake()), (0, 1 << 20, Instant::NEVER));
    assert_eq!((reassembly.slots.capacity(), reassembly.assembled.capacity()), (0, 0));
}

#[test]
fn the_oldest_number_gives_up_for_a_new_fragment() {
    for start in [100, 65_533] {
        let number = |offset: u16| (Sequence(start) + offset).0;
        let (mut reassembly, _) = with_memory_for(4);
        // The order of arrival is not that of the numbers.
        for offset in [2, 1, 3] {
            take(&mut reassembly, number(offset), 1, 3, at(0)).unwrap();
        }
        take(&mut reassembly, number(1), 2, 3, at(0)).unwrap();
        let mut expected = vec![number(1), number(2), number(3)];
        for (offset, gives_up) in [(4, Some(1)), (4, None), (5, Some(2)), (3, Some(4)), (5, None)] {
            let id = if offset == 3 || incomplete(&reassembly).contains(&number(offset)) { 2 } else { 1 };
            let before = reassembly.given_up();
            let outcome = take(&mut reassembly, number(offset), id, 3, at(1));
            if !expected.contains(&number(offset)) {
                expected.push(number(offset));
            }
            let given_up = gives_up.map(number);
            expected.retain(|kept| Some(*kept) != given_up);
            expected.sort_unstable();
            assert_eq!(outcome, Ok(FragmentOutcome::Waiting), "{start} + {offset}");
            assert_eq!(incomplete(&reassembly), expected, "{start} + {offset}");
            assert_eq!(reassembly.given_up() - before, u64::from(gives_up.is_some()), "{start} + {offset}");
        }
    }
}

#[test]
fn a_packet_never_gives_up_for_its_own_fragment() {
    let (mut reassembly, _) = with_memory_for(3);
    for id in 1..4 {
        assert_eq!(take(&mut reassembly, 7, id, 5, at(0)), Ok(FragmentOutcome::Waiting));
    }
    assert_eq!(take(&mut reassembly, 7, 4, 5, at(0)), Err(Reject::NoMemory));
    assert_eq!((incomplete(&reassembly), reassembly.given_up()), (vec![7], 0));
}

#[test]
fn each_fragment_counts_once() {
    let (mut reassembly, _) = with_memory_for(256);
    for id in 0..=254 {
        assert_eq!(take(&mut reassembly, 1, id, 256, at(0)), Ok(FragmentOutcome::Waiting), "{id}");
    }
    for id in 0..=254 {
        assert_eq!(take(&mut reassembly, 1, id, 256, at(0)), Err(Reject::FragmentRepeated), "{id}");
    }
}

#[test]
fn the_largest_packet_is_assembled_and_a_larger_one_not() {
    let (mut reassembly, _) = with_memory_for(8);
    for id in [2, 0] {
        assert_eq!(take(&mut reassembly, 1, id, 3, at(0)), Ok(FragmentOutcome::Waiting));
    }
    let header = ReliableHeader { sequence: Sequence(1), acks: Acks::NONE };
    assert_eq!(take(&mut reassembly, 1, 1, 3, at(0)), Ok(FragmentOutcome::Complete { header, bytes: 3 * BYTES }));
    assert_eq!(reassembly.assembled(), [[1; BYTES], [2; BYTES], [3; BYTES]].concat());
    for id in 0..3 {
        assert_eq!(take(&mut reassembly, 2, id, 4, at(0)), Ok(FragmentOutcome::Waiting));
    }
    let header = ReliableHeader { sequence: Sequence(2), acks: Acks::NONE };
    assert_eq!(take(&mut reassembly, 2, 3, 4, at(0)), Ok(FragmentOutcome::Complete { header, bytes: 4 * BYTES }));
    assert_eq!(reassembly.assembled(), [0; 0]);
    // Its buffers are free again: a third packet fits beside nothing else.
    for id in 1..8 {
        assert_eq!(take(&mut reassembly, 3, id, 9, at(0)), Ok(FragmentOutcome::Waiting), "{id}");
    }
    assert_eq!(reassembly.given_up(), 0);
}

#[test]
fn packets_are_discarded_when_they_fall_out_of_the_window() {
    let (mut reassembly, _) = with_memory_for(8);
    reassembly.advance(Sequence(9));
    take(&mut reassembly, 8, 1, 3, at(0)).unwrap();
    take(&mut reassembly, 9, 1, 3, at(0)).unwrap();
    for (newest, left) in [(12, &[8, 9][..]), (23, &[8, 9]), (24, &[9]), (25, &[])] {
        reassembly.advance(Sequence(newest));
        assert_eq!(incomplete(&reassembly), left, "{newest}");
    }
}

#[test]
fn fixed_memory_is_charged_to_the_budget() {
    let (mut reassembly, budget) = with_memory_for(8);
    take(&mut reassembly, 1, 1, 3, at(0)).unwrap();
    let fixed = 16 * size_of::<Option<PartialPacket>>() + 3 * BYTES;
    assert!((fixed..fixed + 8 * BYTES).contains(&reassembly.bytes()), "{} bytes", reassembly.bytes());
    assert_eq!(budget.left() + reassembly.bytes(), 1 << 20);
}
