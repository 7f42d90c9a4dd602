//! Connections that end before their blocks do, and what the next one makes of it.

use std::vec::Vec;

use super::*;
use crate::reliability::MemoryBudget;

/// Lets the receiver have some slices of the block, and ends the connection.
fn broken_off(block: &Block, slices: impl Iterator<Item = u32>) -> PartialBlock {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    left.begin(block.clone(), 0).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let wanted: Vec<u32> = slices.collect();
    let mut room = [0; 1200];
    while let Some((bytes, part)) = left.write(&mut room) {
        if matches!(part, Part::Slices { first, .. } if wanted.contains(&first)) {
            right.on_frame(&room[..bytes]).unwrap();
        }
    }
    let partials: Vec<PartialBlock> = right.into_partials().collect();
    assert_eq!(partials.len(), 1);
    partials.into_iter().next().unwrap()
}

/// Plays the next connection to its end in rooms of so many bytes; answers the numbers of the slices that were sent.
fn resumed(block: &Block, partial: PartialBlock, room_bytes: usize) -> Vec<u32> {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    right.keep(partial).unwrap();
    left.begin(block.clone(), 0).unwrap();
    let (mut room, mut sent, mut whole) = ([0; 1200], Vec::new(), None);
    while whole.is_none() {
        while let Some((bytes, part)) = left.write(&mut room) {
            right.on_frame(&room[..bytes]).unwrap();
            left.on_acked(part);
            sent.extend(if let Part::Slices { first, count, .. } = part {
                first..first + u32::from(count)
            } else {
                0..0
            });
        }
        while let Some((bytes, part)) = right.write(&mut room[..room_bytes]) {
            left.on_frame(&room[..bytes]).unwrap();
            right.on_acked(part);
        }
        whole = right.poll_event();
    }
    let Some(Event::Received { content, .. }) = whole else { panic!("{whole:?}") };
    assert!(content.into_vec() == block.bytes());
    sent.sort_unstable();
    sent
}

#[test]
fn only_what_is_missing_is_sent_in_the_next_connection() {
    let block = block(1, 300 * 1024 - 5);
    for room_bytes in [MIN_ROOM_BYTES, 100, 1200] {
        let cases: [&dyn Fn(u32) -> bool; 6] = [
            &|slice| slice < 100,
            &|slice| slice % 2 == 0,
            &|slice| slice % 17 > 3,
            &|slice| slice == 299,
            &|slice| slice > 130 && slice != 200,
            &|slice| slice < 20 || slice == 64 || slice > 290,
        ];
        for has in cases {
            let partial = broken_off(&block, (0..300).filter(|slice| has(*slice)));
            assert_eq!(partial.digest(), block.digest());
            assert_eq!(resumed(&block, partial, room_bytes), (0..300).filter(|slice| !has(*slice)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_block_that_was_all_there_needs_no_slice() {
    let block = block(2, 50_000);
    let partial = broken_off(&block, 0..49);
    assert_eq!(partial.progress(), Progress { bytes: 50_000, of: 50_000 });
    assert_eq!(resumed(&block, partial, 1200), []);
}

#[test]
fn an_answer_that_is_lost_is_given_again_in_whatever_room_there_is() {
    let block = block(3, 200 * 1024);
    let partial = broken_off(&block, (0..200).filter(|slice| slice % 3 == 0));
    let (mut left, mut right) = (default_blocks(), default_blocks());
    right.keep(partial).unwrap();
    left.begin(block, 0).unwrap();
    carry(&mut left, &mut right);
    let mut room = [0; 1200];
    let mut lost = Vec::new();
    while let Some((_, part)) = right.write(&mut room[..80]) {
        lost.push(part);
    }
    assert!(lost.len() > 1);
    lost.into_iter().for_each(|part| right.on_lost(part));
    assert!(!left.wants_room());
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [Event::Received { .. }]));
}

#[test]
fn a_part_of_another_content_or_in_other_slices_is_kept_and_not_used() {
    let (old, new) = (block(4, 30_000), block(5, 30_000));
    let partial = broken_off(&old, 0..10);
    assert_eq!(resumed(&new, partial, 1200).len(), 30);

    let partial = broken_off(&old, 0..10);
    let (mut left, mut right) = (blocks(Config { slice_bytes: 1000, ..Config::default() }), default_blocks());
    right.keep(partial).unwrap();
    left.begin(old, 0).unwrap();
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [Event::Received { .. }]));
    assert_eq!(right.into_partials().count(), 1, "still there");
}

#[test]
fn a_part_takes_memory_from_a_budget_only_in_a_connection() {
    let block = block(6, 100_000);
    let partial = broken_off(&block, 0..50);
    let small = MemoryBudget::new(40_000);
    let mut right = Blocks::new(Config::default(), Some(small.clone())).unwrap();
    right.keep(partial).unwrap();
    let mut left = default_blocks();
    left.begin(block.clone(), 0).unwrap();
    talk(&mut left, &mut right);
    let broken = events(&mut right);
    assert!(matches!(broken[..], [Event::Broken { by: Side::Us, reason: Reason::NoMemory, .. }]), "{broken:?}");
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [Event::Refused { reason: Reason::NoMemory, .. }]));
    assert_eq!(small.left(), 40_000);
    let partial = right.into_partials().next().expect("it was not lost");

    let large = MemoryBudget::new(400_000);
    let mut right = Blocks::new(Config::default(), Some(large.clone())).unwrap();
    right.keep(partial).unwrap();
    left.begin(block, 0).unwrap();
    carry(&mut left, &mut right);
    assert!(large.left() < 400_000 - 50 * 1024);
    let partial = right.into_partials().next().unwrap();
    assert_eq!(large.left(), 400_000);
    assert_eq!(partial.progress().bytes, 50 * 1024);
}

#[test]
fn what_was_kept_and_is_not_the_content_after_all_fails_by_its_digest() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    left.begin(block(7, 40_000), 7).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut room = [0; 1200];
    let mut flipped = false;
    while let Some((bytes, part)) = left.write(&mut room) {
        if matches!(part, Part::Slices { first: 17, .. }) {
            room[bytes - 1] ^= 1;
            flipped = true;
        }
        right.on_frame(&room[..bytes]).unwrap();
        left.on_acked(part);
    }
    assert!(flipped);
    let broken = events(&mut right);
    assert!(
        matches!(broken[..], [Event::Broken { by: Side::Us, reason: Reason::WrongDigest, partial: None, .. }]),
        "{broken:?}"
    );
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [Event::Refused { reason: Reason::WrongDigest, .. }]));
}

#[test]
fn no_more_parts_are_kept_than_blocks_are_under_way_at_once() {
    let block = block(8, 3000);
    let mut right = blocks(Config { max_at_once: 1, ..Config::default() });
    assert!(right.keep(broken_off(&block, 0..1)).is_ok());
    assert!(right.keep(broken_off(&block, 0..1)).is_err());
}
