//! What frames cost that bring nothing: a few steps each, however large a block is and however many are refused.

use std::vec;
use std::vec::Vec;

use super::frame::{Begin, Frame};
use super::*;

/// Steps of a search in a set of slices, of which an `Accept` takes one for itself and one for each range.
const SEARCH: usize = 4;
/// Steps of a search among the last 1,024 numbers, with what tells that it is over.
const WINDOW_SEARCH: usize = 18;

fn frame(frame: &Frame<'_>) -> Vec<u8> {
    let mut room = [0; 1300];
    let bytes = frame.write(&mut room).unwrap();
    room[..bytes].to_vec()
}

fn begin(id: u16, length: u32, slice_bytes: u16, digest: ContentDigest) -> Vec<u8> {
    frame(&Frame::Begin(Begin { id: BlockId(id), slice_bytes, length, label: 0, digest }))
}

/// An `Accept` with these ranges, as they stand on the wire.
fn accept(first: u32, end: u32, ranges: &[u8]) -> Vec<u8> {
    [&[4, 0, 0][..], &first.to_le_bytes(), &end.to_le_bytes(), ranges].concat()
}

/// An end that sends a block of 64 MiB, in 524,288 slices.
fn sending_much() -> Blocks {
    let mut left = blocks(Config { slice_bytes: MIN_SLICE_BYTES, ..Config::default() });
    // Nobody looks at its digest, which takes longer than all the rest.
    let bytes = vec![1; MAX_BLOCK_BYTES as usize].into();
    left.begin(Block { bytes, length: MAX_BLOCK_BYTES, digest: ContentDigest([7; 32]) }, 0).unwrap();
    left.write(&mut [0; 64]).unwrap();
    left
}

/// An end that has refused the blocks of 1,024 numbers, from `first` on.
fn refusing_much(first: u16) -> Blocks {
    let mut right = blocks(Config { admission: Admission::Never, ..Config::default() });
    for step in 0..seen::WINDOW {
        let id = first.wrapping_add(step);
        assert_eq!(right.on_frame(&begin(id, 5000, 1024, ContentDigest([7; 32]))), Ok(Reception::New));
    }
    right
}

#[test]
fn answers_that_are_repeated_are_told_and_cost_a_few_steps_however_large_the_block() {
    let mut left = sending_much();
    let all = MAX_BLOCK_BYTES / u32::from(MIN_SLICE_BYTES);
    // Half of it, of which every other slice is there, then all but the last one, then the whole.
    let ranges = [vec![0, 1], [1, 1].repeat(199)].concat();
    for bytes in [accept(0, 400, &ranges), accept(0, all - 1, &[]), accept(7, all, &[]), accept(0, all, &[1, 3])] {
        assert_eq!(left.on_frame(&bytes), Ok(Reception::New));
        let taken = steps::of(|| {
            (0..90).for_each(|_| assert_eq!(left.on_frame(&bytes), Ok(Reception::Ignored)));
        });
        let ranges = (bytes.len() - 11) / 2;
        assert!(taken <= 90 * SEARCH * (1 + ranges), "{taken} steps for {ranges} ranges");
    }
    let all_of_it = steps::of(|| _ = sending_much().on_frame(&accept(0, all, &[])));
    assert!(all_of_it > 8000, "what is new is walked through once: {all_of_it}");
}

#[test]
fn answers_bit_by_bit_cost_what_is_new_in_them() {
    let mut left = sending_much();
    let all = MAX_BLOCK_BYTES / u32::from(MIN_SLICE_BYTES);
    for end in (all - 1000..all).step_by(10) {
        left.on_frame(&accept(0, end, &[])).unwrap();
        let taken = steps::of(|| assert_eq!(left.on_frame(&accept(0, end + 10, &[])), Ok(Reception::New)));
        assert!(taken <= 3 * SEARCH, "{taken} steps for ten slices up to {end}");
    }
}

#[test]
fn a_thousand_refusals_that_nobody_acknowledges_cost_a_few_steps_each() {
    for first in [0, 70, 65_000] {
        let mut right = refusing_much(first);
        let (mut room, mut parts) = ([0; 64], Vec::new());
        let writing = steps::of(|| {
            while let Some((_, part)) = right.write(&mut room) {
                parts.push(part);
            }
        });
        assert_eq!(parts.len(), usize::from(seen::WINDOW));
        let oldest_first = (0..seen::WINDOW).map(|step| Part::Farewell(BlockId(first.wrapping_add(step))));
        assert!(parts.iter().copied().eq(oldest_first));
        let begun = steps::of(|| {
            for part in &parts {
                let Part::Farewell(BlockId(id)) = *part else { panic!("{part:?}") };
                let again = begin(id, 5000, 1024, ContentDigest([7; 32]));
                assert_eq!(right.on_frame(&again), Ok(Reception::Ignored));
            }
        });
        let lost = steps::of(|| parts.iter().for_each(|part| right.on_lost(*part)));
        let again = steps::of(|| while right.write(&mut room).is_some() {});
        let acked = steps::of(|| parts.iter().for_each(|part| right.on_acked(*part)));
        for taken in [writing, begun, lost, again, acked] {
            assert!(taken <= (parts.len() + 1) * WINDOW_SEARCH, "{taken} steps");
        }
        parts.iter().for_each(|part| right.on_lost(*part));
        assert!(!right.wants_room(), "who has heard them is told no more");
    }
}

#[test]
fn withdrawals_and_numbers_that_leap_ahead_cost_a_few_steps_each() {
    let withdraw = |id: u16| frame(&Frame::Withdraw { id: BlockId(id), reason: Reason::Cancelled });
    let mut right = refusing_much(0);
    let repeated = steps::of(|| {
        (0..190).for_each(|at| assert_eq!(right.on_frame(&withdraw(at / 19)), Ok(Reception::Ignored)));
    });
    assert!(repeated <= 190 * 2 * WINDOW_SEARCH, "{repeated} steps");
    let mut room = [0; 64];
    let owed = core::iter::from_fn(|| right.write(&mut room)).count();
    assert_eq!(owed, usize::from(seen::WINDOW) - 10, "who withdrew is told no more");
    let mut right = refusing_much(0);
    let leaping = steps::of(|| {
        for at in 1..=190u16 {
            assert_eq!(right.on_frame(&withdraw(at.wrapping_mul(1500).wrapping_add(7))), Ok(Reception::New));
        }
    });
    assert!(leaping <= 190 * 3 * WINDOW_SEARCH, "{leaping} steps");
    assert!(!right.wants_room(), "all the refused ones are too old to be remembered");
}

#[test]
fn what_is_said_of_a_number_too_old_to_be_remembered_touches_no_other() {
    let mut right = refusing_much(seen::WINDOW);
    let mut room = [0; 64];
    while right.write(&mut room).is_some() {}
    // Each has the place of a number that was refused.
    for id in 0..seen::WINDOW {
        let withdraw = frame(&Frame::Withdraw { id: BlockId(id), reason: Reason::Cancelled });
        assert_eq!(right.on_frame(&withdraw), Ok(Reception::Ignored));
        right.on_lost(Part::Farewell(BlockId(id)));
        right.on_acked(Part::Farewell(BlockId(id)));
    }
    assert!(!right.wants_room());
    (seen::WINDOW..2 * seen::WINDOW).for_each(|id| right.on_lost(Part::Farewell(BlockId(id))));
    assert_eq!(core::iter::from_fn(|| right.write(&mut room)).count(), usize::from(seen::WINDOW));
}

/// An end that takes four blocks of slices of 1,024 bytes at once.
fn taking() -> Blocks {
    blocks(Config { admission: Admission::Automatic, ..Config::default() })
}

/// Slices of a content.
fn slices(right: &mut Blocks, id: u16, content: &[u8], which: impl Iterator<Item = usize>) {
    for index in which {
        let bytes = &content[index * 1024..(index + 1) * 1024];
        let slice = Frame::Slice { id: BlockId(id), index: index as u32, bytes };
        right.on_frame(&frame(&slice)).unwrap();
    }
}

/// Polls turn by turn; answers in which turn each block came.
fn turns(right: &mut Blocks, blocks: usize) -> Vec<(u16, usize)> {
    let mut came = Vec::new();
    for turn in 1..100 {
        while let Some(event) = right.poll_event() {
            let Event::Received { id, .. } = event else { panic!("{event:?}") };
            came.push((id.0, turn));
        }
        assert_eq!(right.has_work(), came.len() < blocks);
        if came.len() == blocks {
            return came;
        }
    }
    panic!("some are never hashed: {came:?}");
}

#[test]
fn all_blocks_together_are_hashed_a_megabyte_a_turn_and_each_has_its_turn() {
    let mut right = taking();
    let contents: Vec<_> = [4 << 20, 4 << 20, 32 << 10, 2 << 20].map(|length| content(length, length as usize)).into();
    for (id, content) in (0..).zip(&contents) {
        right.on_frame(&begin(id, content.len() as u32, 1024, ContentDigest::of(content))).unwrap();
        // With a gap at the start, nothing can be hashed before it is closed.
        slices(&mut right, id, content, 1..content.len() / 1024);
    }
    for (id, content) in (0..).zip(&contents) {
        slices(&mut right, id, content, 0..1);
    }
    let mut came = turns(&mut right, 4);
    assert_eq!(came.last().unwrap().1, 11, "ten megabytes and some");
    came.sort_unstable();
    assert!(came[2].1 <= 3, "a small one does not wait for the large ones: {came:?}");
}

#[test]
fn what_is_hashed_as_slices_arrive_counts_as_well() {
    let mut right = taking();
    let content = content(5, 4 << 20);
    right.on_frame(&begin(0, 4 << 20, 1024, ContentDigest::of(&content))).unwrap();
    slices(&mut right, 0, &content, 1..3996);
    // Each of these 101 slices could be followed by a chunk: 64 of them are a megabyte.
    slices(&mut right, 0, &content, (0..1).chain(3996..4096));
    assert_eq!(turns(&mut right, 1), [(0, 4)]);
}
