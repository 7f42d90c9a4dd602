//! Frames that no conforming peer sends are violations or ignored, and never take much memory.

use std::vec;
use std::vec::Vec;

use super::frame::{TransferBegin, TransferFrame};
use super::*;
use crate::reliability::MemoryBudget;

fn frame(frame: &TransferFrame<'_>) -> Vec<u8> {
    let mut buf = [0; 1300];
    let bytes = frame.write(&mut buf).unwrap();
    buf[..bytes].to_vec()
}

fn begin(id: u16, length: u32, slice_bytes: u16) -> Vec<u8> {
    let digest = ContentDigest([7; 32]);
    frame(&TransferFrame::Begin(TransferBegin { id: TransferId(id), slice_bytes, length, label: 0, digest }))
}

fn slice(id: u16, index: u32, bytes: usize) -> Vec<u8> {
    frame(&TransferFrame::Slice { id: TransferId(id), index, bytes: &vec![1; bytes] })
}

#[test]
fn frames_of_wrong_shapes_are_violations() {
    let mut right = default_transfers();
    right.on_frame(&begin(0, 10_000, 1024)).unwrap();
    let cases = [
        (vec![], TransferViolation::Malformed),
        (vec![0, 0, 0], TransferViolation::Malformed),
        (vec![7, 0, 0, 0], TransferViolation::Malformed),
        (begin(1, 10, 1024)[..48].to_vec(), TransferViolation::Malformed),
        ([begin(1, 10, 1024), vec![0]].concat(), TransferViolation::Malformed),
        (vec![5, 0, 0, 0], TransferViolation::Malformed),
        (vec![2, 0, 0, 1, 0, 0, 0], TransferViolation::Malformed),
        (begin(1, MAX_TRANSFER_BYTES + 1, 1024), TransferViolation::TransferTooLong),
        (begin(1, u32::MAX, 1024), TransferViolation::TransferTooLong),
        (begin(1, 10_000, MIN_SLICE_BYTES - 1), TransferViolation::SliceBytes),
        (begin(1, 10_000, 0), TransferViolation::SliceBytes),
        (begin(1, 10_000, MAX_SLICE_BYTES + 1), TransferViolation::SliceBytes),
        (begin(0, 10_001, 1024), TransferViolation::BeginDiffers),
        (slice(1, 0, 1024), TransferViolation::NotAccepted),
        (slice(0, 10, 1024), TransferViolation::SliceIndex),
        (slice(0, u32::MAX, 1024), TransferViolation::SliceIndex),
        (slice(0, 0, 1023), TransferViolation::SliceLength),
        (slice(0, 0, 1025), TransferViolation::SliceLength),
        (slice(0, 9, 1024), TransferViolation::SliceLength),
        (frame(&TransferFrame::Done { id: TransferId(0) }), TransferViolation::NeverStarted),
        (
            frame(&TransferFrame::Refuse { id: TransferId(3), reason: TransferReason::Busy }),
            TransferViolation::NeverStarted,
        ),
        (vec![4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], TransferViolation::NeverStarted),
        (vec![4, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], TransferViolation::Malformed),
        (vec![4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 2], TransferViolation::Malformed),
    ];
    for (bytes, violation) in cases {
        assert_eq!(right.on_frame(&bytes), Err(violation), "{bytes:02x?}");
    }
    assert_eq!(right.receiving().collect::<Vec<_>>(), [(TransferId(0), TransferProgress { bytes: 0, of: 10_000 })]);
}

#[test]
fn duplicate_and_late_frames_change_nothing() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    left.begin(transfer(1, 3000), 0).unwrap();
    let (mut buf, mut frames) = ([0; 1200], Vec::new());
    while let Some((bytes, sent)) = left.write(&mut buf) {
        frames.push(buf[..bytes].to_vec());
        right.on_frame(&buf[..bytes]).unwrap();
        left.on_acked(sent);
        carry(&mut right, &mut left);
        // The frame is repeated while the transfer is in progress.
        if frames.len() < 4 {
            assert_eq!(right.on_frame(&buf[..bytes]), Ok(Reception::Ignored));
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
    for bytes in [frame(&TransferFrame::Done { id: TransferId(0) }), vec![4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]] {
        left.on_frame(&bytes).unwrap();
    }
    assert_eq!(events(&mut left).len(), 1);
}

#[test]
fn reply_beyond_the_transfers_end_is_a_violation() {
    let mut left = default_transfers();
    left.begin(transfer(2, 3000), 0).unwrap();
    let mut buf = [0; 1200];
    assert_eq!(left.on_frame(&[5, 0, 0]), Err(TransferViolation::NeverStarted), "nothing was said yet");
    left.write(&mut buf).unwrap();
    assert_eq!(left.on_frame(&[4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0]), Err(TransferViolation::Range));
    assert_eq!(left.on_frame(&[4, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]), Err(TransferViolation::Range));
    left.on_frame(&[4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 1]).unwrap();
    let sent: Vec<SentTransferFrame> = core::iter::from_fn(|| left.write(&mut buf)).map(|(_, sent)| sent).collect();
    assert_eq!(sent, [0, 2].map(|first| SentTransferFrame::Slices { transfer: TransferId(0), first, count: 1 }));
}

#[test]
fn announcements_without_slices_take_little_memory() {
    let budget = MemoryBudget::new(1 << 30);
    let config = TransferConfig { max_at_once: 64, max_bytes_at_once: u64::MAX, ..TransferConfig::default() };
    let mut right = Transfers::new(config, Some(budget.clone())).unwrap();
    for id in 0..200 {
        right.on_frame(&begin(id, MAX_TRANSFER_BYTES, MIN_SLICE_BYTES)).unwrap();
    }
    assert_eq!(right.receiving().count(), 64);
    let taken = (1 << 30) - budget.left();
    // The table of regions, and the entries of the list.
    assert!(taken <= 64 * (4096 + 1024), "{taken}");
}

#[test]
fn slices_far_apart_take_one_chunk_each() {
    let budget = MemoryBudget::new(1 << 30);
    let mut right = Transfers::new(TransferConfig::default(), Some(budget.clone())).unwrap();
    right.on_frame(&begin(0, MAX_TRANSFER_BYTES, 1024)).unwrap();
    for index in (0..64).map(|region| region * 1024) {
        right.on_frame(&slice(0, index, 1024)).unwrap();
    }
    let taken = (1 << 30) - budget.left();
    assert!(taken <= 64 * (16 * 1024 + 2048), "{taken}");
}

#[test]
fn unfinished_transfer_leaves_as_much_memory_as_it_holds() {
    let budget = MemoryBudget::new(1 << 20);
    let config = TransferConfig { max_at_once: 4, max_bytes_at_once: u64::MAX, ..TransferConfig::default() };
    let mut right = Transfers::new(config, Some(budget.clone())).unwrap();
    let mut least = 1 << 20;
    // The first one stops. The second one takes half of what is left, and ends.
    for (id, slices) in [(0, 300), (1, 4096)] {
        right.on_frame(&begin(id, 4 << 20, 1024)).unwrap();
        for index in 0..slices {
            right.on_frame(&slice(id, index, 1024)).unwrap();
            least = least.min(budget.left());
        }
    }
    let ended = events(&mut right);
    assert!(matches!(ended[..], [TransferEvent::Broken { reason: TransferReason::NoMemory, .. }]), "{ended:?}");
    assert!((330 << 10..370 << 10).contains(&least), "{least} bytes of {} left", 724 << 10);
}

#[test]
fn exhausted_budget_ends_a_transfer_and_returns_the_partial() {
    let budget = MemoryBudget::new(100_000);
    let mut right = Transfers::new(TransferConfig::default(), Some(budget.clone())).unwrap();
    let mut left = default_transfers();
    left.begin(transfer(3, 100_000), 0).unwrap();
    talk(&mut left, &mut right);
    let broken = events(&mut right);
    let [
        TransferEvent::Broken {
            by: TransferSide::Us, reason: TransferReason::NoMemory, partial: Some(partial), ..
        },
    ] = &broken[..]
    else {
        panic!("{broken:?}")
    };
    assert!(partial.progress().bytes >= 32 * 1024);
    assert_eq!(budget.left(), 100_000);
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [TransferEvent::Refused { reason: TransferReason::NoMemory, .. }]));
}

#[test]
fn endless_begins_and_withdrawals_leave_no_state() {
    let mut right = default_transfers();
    for id in 0..100_000u32 {
        let id = id as u16;
        right.on_frame(&begin(id, 5000, 1024)).unwrap();
        if id.is_multiple_of(3) {
            right.on_frame(&slice(id, 2, 1024)).unwrap();
        }
        right
            .on_frame(&frame(&TransferFrame::Withdraw { id: TransferId(id), reason: TransferReason::Other(200) }))
            .unwrap();
        assert_eq!(events(&mut right).len(), 1);
        assert_eq!(right.receiving().count(), 0);
    }
    assert!(!right.has_frames());
}

#[test]
fn unacked_refusals_are_bounded() {
    let config = TransferConfig {
        max_transfer_bytes: 100,
        max_at_once: 1,
        admission: TransferAdmission::Ask,
        ..TransferConfig::default()
    };
    let mut right = transfers(config);
    let is_large = |id: u16| id % 5 < 2;
    right.on_frame(&begin(0, 1, 1024)).unwrap();
    for id in 1..5000 {
        right.on_frame(&begin(id, if is_large(id) { 5000 } else { 50 }, 1024)).unwrap();
    }
    let (mut buf, mut ids) = ([0; 64], 5000 - WINDOW..5000);
    while let Some((bytes, _)) = right.write(&mut buf) {
        let id = TransferId(ids.next().expect("at most as many as the window has"));
        let reason = if is_large(id.0) { TransferReason::TooLarge } else { TransferReason::Busy };
        assert_eq!(buf[..bytes], frame(&TransferFrame::Refuse { id, reason }), "{id}");
    }
    assert_eq!(ids.len(), 0);
}
