//! Frames that no honest peer sends: a violation, or nothing at all, and never much memory.

use std::vec;
use std::vec::Vec;

use super::frame::{Begin, Frame};
use super::*;
use crate::reliability::MemoryBudget;

fn frame(frame: &Frame<'_>) -> Vec<u8> {
    let mut room = [0; 1300];
    let bytes = frame.write(&mut room).unwrap();
    room[..bytes].to_vec()
}

fn begin(id: u16, length: u32, slice_bytes: u16) -> Vec<u8> {
    let digest = ContentDigest([7; 32]);
    frame(&Frame::Begin(Begin { id: BlockId(id), slice_bytes, length, label: 0, digest }))
}

fn slice(id: u16, index: u32, bytes: usize) -> Vec<u8> {
    frame(&Frame::Slice { id: BlockId(id), index, bytes: &vec![1; bytes] })
}

#[test]
fn frames_of_wrong_shapes_are_violations() {
    let mut right = default_blocks();
    right.on_frame(&begin(0, 10_000, 1024)).unwrap();
    let cases = [
        (vec![], Violation::Malformed),
        (vec![0, 0, 0], Violation::Malformed),
        (vec![7, 0, 0, 0], Violation::Malformed),
        (begin(1, 10, 1024)[..48].to_vec(), Violation::Malformed),
        ([begin(1, 10, 1024), vec![0]].concat(), Violation::Malformed),
        (vec![5, 0, 0, 0], Violation::Malformed),
        (vec![2, 0, 0, 1, 0, 0, 0], Violation::Malformed),
        (begin(1, MAX_BLOCK_BYTES + 1, 1024), Violation::BlockTooLong),
        (begin(1, u32::MAX, 1024), Violation::BlockTooLong),
        (begin(1, 10_000, MIN_SLICE_BYTES - 1), Violation::SliceBytes),
        (begin(1, 10_000, 0), Violation::SliceBytes),
        (begin(1, 10_000, MAX_SLICE_BYTES + 1), Violation::SliceBytes),
        (begin(0, 10_001, 1024), Violation::BeginDiffers),
        (slice(1, 0, 1024), Violation::NotAccepted),
        (slice(0, 10, 1024), Violation::SliceIndex),
        (slice(0, u32::MAX, 1024), Violation::SliceIndex),
        (slice(0, 0, 1023), Violation::SliceLength),
        (slice(0, 0, 1025), Violation::SliceLength),
        (slice(0, 9, 1024), Violation::SliceLength),
        (frame(&Frame::Done { id: BlockId(0) }), Violation::NeverBegun),
        (frame(&Frame::Refuse { id: BlockId(3), reason: Reason::Busy }), Violation::NeverBegun),
        (vec![4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], Violation::NeverBegun),
        (vec![4, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], Violation::Malformed),
        (vec![4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2], Violation::Malformed),
    ];
    for (bytes, violation) in cases {
        assert_eq!(right.on_frame(&bytes), Err(violation), "{bytes:02x?}");
    }
    assert_eq!(right.receiving().collect::<Vec<_>>(), [(BlockId(0), Progress { bytes: 0, of: 10_000 })]);
}

#[test]
fn copies_and_late_frames_change_nothing() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    left.begin(block(1, 3000), 0).unwrap();
    let (mut room, mut frames) = ([0; 1200], Vec::new());
    while let Some((bytes, part)) = left.write(&mut room) {
        frames.push(room[..bytes].to_vec());
        right.on_frame(&room[..bytes]).unwrap();
        left.on_acked(part);
        carry(&mut right, &mut left);
        // At once, while the block is under way.
        if frames.len() < 4 {
            assert_eq!(right.on_frame(&room[..bytes]), Ok(Reception::Ignored));
        }
    }
    assert_eq!(events(&mut right).len(), 1);
    for bytes in frames.iter().rev() {
        assert_eq!(right.on_frame(bytes), Ok(Reception::Ignored));
    }
    talk(&mut left, &mut right);
    assert!(events(&mut right).is_empty());
    for bytes in &frames {
        assert_eq!(right.on_frame(bytes), Ok(Reception::Ignored));
    }
    for bytes in [frame(&Frame::Done { id: BlockId(0) }), vec![4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]] {
        left.on_frame(&bytes).unwrap();
    }
    assert_eq!(events(&mut left).len(), 1);
}

#[test]
fn an_answer_about_more_than_the_block_has_is_a_violation() {
    let mut left = default_blocks();
    left.begin(block(2, 3000), 0).unwrap();
    let mut room = [0; 1200];
    assert_eq!(left.on_frame(&[5, 0, 0]), Err(Violation::NeverBegun), "nothing was said yet");
    left.write(&mut room).unwrap();
    assert_eq!(left.on_frame(&[4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]), Err(Violation::Range));
    assert_eq!(left.on_frame(&[4, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Err(Violation::Range));
    left.on_frame(&[4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 1]).unwrap();
    let sent: Vec<Part> = core::iter::from_fn(|| left.write(&mut room)).map(|(_, part)| part).collect();
    assert_eq!(sent, [0, 2].map(|first| Part::Slices { block: BlockId(0), first, count: 1 }));
}

#[test]
fn announcements_without_slices_cost_next_to_nothing() {
    let budget = MemoryBudget::new(1 << 30);
    let config = Config { max_at_once: 64, max_bytes_at_once: u64::MAX, ..Config::default() };
    let mut right = Blocks::new(config, Some(budget.clone())).unwrap();
    for id in 0..200 {
        right.on_frame(&begin(id, MAX_BLOCK_BYTES, MIN_SLICE_BYTES)).unwrap();
    }
    assert_eq!(right.receiving().count(), 64);
    let taken = (1 << 30) - budget.left();
    assert!(taken <= 64 * 4096, "{taken}");
}

#[test]
fn slices_far_apart_take_a_chunk_each_and_no_more() {
    let budget = MemoryBudget::new(1 << 30);
    let mut right = Blocks::new(Config::default(), Some(budget.clone())).unwrap();
    right.on_frame(&begin(0, MAX_BLOCK_BYTES, 1024)).unwrap();
    for index in (0..64).map(|region| region * 1024) {
        right.on_frame(&slice(0, index, 1024)).unwrap();
    }
    let taken = (1 << 30) - budget.left();
    assert!(taken <= 64 * (16 * 1024 + 2048), "{taken}");
}

#[test]
fn a_budget_that_is_used_up_ends_the_block_and_what_arrived_is_the_applications() {
    let budget = MemoryBudget::new(50_000);
    let mut right = Blocks::new(Config::default(), Some(budget.clone())).unwrap();
    let mut left = default_blocks();
    left.begin(block(3, 100_000), 0).unwrap();
    talk(&mut left, &mut right);
    let broken = events(&mut right);
    let [Event::Broken { by: Side::Us, reason: Reason::NoMemory, partial: Some(partial), .. }] = &broken[..] else {
        panic!("{broken:?}")
    };
    assert!(partial.progress().bytes >= 32 * 1024);
    assert_eq!(budget.left(), 50_000);
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [Event::Refused { reason: Reason::NoMemory, .. }]));
}

#[test]
fn a_peer_that_begins_and_withdraws_for_ever_leaves_nothing_behind() {
    let mut right = default_blocks();
    for id in 0..100_000u32 {
        let id = id as u16;
        right.on_frame(&begin(id, 5000, 1024)).unwrap();
        if id.is_multiple_of(3) {
            right.on_frame(&slice(id, 2, 1024)).unwrap();
        }
        right.on_frame(&frame(&Frame::Withdraw { id: BlockId(id), reason: Reason::Other(200) })).unwrap();
        assert_eq!(events(&mut right).len(), 1);
        assert_eq!(right.receiving().count(), 0);
    }
    assert!(!right.wants_room());
}

#[test]
fn a_peer_that_never_acknowledges_a_refusal_is_owed_a_bounded_number_of_them() {
    let mut right = blocks(Config { max_block_bytes: 100, ..Config::default() });
    for id in 0..5000 {
        right.on_frame(&begin(id, 5000, 1024)).unwrap();
    }
    let mut room = [0; 64];
    let owed = core::iter::from_fn(|| right.write(&mut room)).count();
    assert_eq!(owed, usize::from(seen::WINDOW));
}
