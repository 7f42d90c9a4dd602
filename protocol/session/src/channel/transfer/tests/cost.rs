//! Frames without effect cost a few steps each, for any size of a transfer and any number of refusals.

use std::vec;
use std::vec::Vec;

use super::frame::{TransferBegin, TransferFrame};
use super::*;

/// The steps of a search in a set of slices. An `Accept` takes one search for itself and one for each range.
const SEARCH: usize = 4;
/// The steps of a search among the last 1,024 ids, with its end.
const WINDOW_SEARCH: usize = 18;

fn frame(frame: &TransferFrame<'_>) -> Vec<u8> {
    let mut buf = [0; 1300];
    let bytes = frame.write(&mut buf).unwrap();
    buf[..bytes].to_vec()
}

fn begin(id: u16, length: u32, slice_bytes: u16, digest: ContentDigest) -> Vec<u8> {
    frame(&TransferFrame::Begin(TransferBegin { id: TransferId(id), slice_bytes, length, label: 0, digest }))
}

/// Returns an `Accept` with these encoded ranges.
fn accept(first: u32, end: u32, ranges: &[u8]) -> Vec<u8> {
    [&[4, 0, 0][..], &first.to_le_bytes(), &end.to_le_bytes(), ranges].concat()
}

/// Returns an end that sends a transfer of 64 MiB in 524,288 slices.
fn sending_much() -> Transfers {
    let mut left = transfers(TransferConfig { slice_bytes: MIN_SLICE_BYTES, ..TransferConfig::default() });
    // The digest is not checked, which would take longer than all the rest.
    let bytes = vec![1; MAX_TRANSFER_BYTES as usize].into();
    left.begin(Transfer { bytes, length: MAX_TRANSFER_BYTES, digest: ContentDigest([7; 32]) }, 0).unwrap();
    left.write(&mut [0; 64]).unwrap();
    left
}

/// Returns an end that has refused 1,024 transfers, from the id `first` on.
fn refusing_much(first: u16) -> Transfers {
    let mut right = transfers(TransferConfig { admission: TransferAdmission::Never, ..TransferConfig::default() });
    for step in 0..WINDOW {
        let id = first.wrapping_add(step);
        assert_eq!(right.on_frame(&begin(id, 5000, 1024, ContentDigest([7; 32]))), Ok(Reception::New));
    }
    right
}

#[test]
fn repeated_replies_cost_few_steps_for_any_transfer_size() {
    let mut left = sending_much();
    let all = MAX_TRANSFER_BYTES / u32::from(MIN_SLICE_BYTES);
    // Half of the transfer with every other slice, then all but the last slice, then all.
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
    assert!(all_of_it > 8000, "new slices take a step each: {all_of_it}");
}

#[test]
fn piecemeal_replies_cost_only_what_is_new_in_them() {
    let mut left = sending_much();
    let all = MAX_TRANSFER_BYTES / u32::from(MIN_SLICE_BYTES);
    for end in (all - 1000..all).step_by(10) {
        left.on_frame(&accept(0, end, &[])).unwrap();
        let taken = steps::of(|| assert_eq!(left.on_frame(&accept(0, end + 10, &[])), Ok(Reception::New)));
        assert!(taken <= 3 * SEARCH, "{taken} steps for ten slices up to {end}");
    }
}

#[test]
fn lost_accept_of_scattered_slices_costs_few_steps() {
    let (length, slices) = (MAX_TRANSFER_BYTES, MAX_TRANSFER_BYTES / u32::from(MIN_SLICE_BYTES));
    let mut right = transfers(TransferConfig { max_bytes_at_once: length.into(), ..taking_config() });
    let mut buf = [0; 1200];
    right.on_frame(&begin(0, length, MIN_SLICE_BYTES, ContentDigest([7; 32]))).unwrap();
    let (_, sent) = right.write(&mut buf).unwrap();
    assert_eq!(sent, SentTransferFrame::Accept { transfer: TransferId(0), first: 0, end: slices });
    // One slice of each 64 chunks has arrived, and then one chunk of each 64.
    for index in (5..slices).step_by(1024).chain((0..slices).step_by(1024).flat_map(|first| first..first + 16)) {
        let bytes = &[1; MIN_SLICE_BYTES as usize];
        right.on_frame(&frame(&TransferFrame::Slice { id: TransferId(0), index, bytes })).unwrap();
        if index == slices - 1019 || index == slices - 1009 {
            right.on_lost(sent);
            let mut frames = 0;
            let taken = steps::of(|| {
                while right.write(&mut buf).is_some() {
                    frames += 1;
                }
            });
            assert!(frames >= 1 && taken <= 4 * slices as usize / 1024, "{taken} steps for {frames} frames");
        }
    }
}

#[test]
fn thousand_unacked_refusals_cost_few_steps_each() {
    for first in [0, 70, 65_000] {
        let mut right = refusing_much(first);
        let (mut buf, mut parts) = ([0; 64], Vec::new());
        let writing = steps::of(|| {
            while let Some((_, sent)) = right.write(&mut buf) {
                parts.push(sent);
            }
        });
        assert_eq!(parts.len(), usize::from(WINDOW));
        let oldest_first = (0..WINDOW).map(|step| SentTransferFrame::Close(TransferId(first.wrapping_add(step))));
        assert!(parts.iter().copied().eq(oldest_first));
        let started = steps::of(|| {
            for sent in &parts {
                let SentTransferFrame::Close(TransferId(id)) = *sent else { panic!("{sent:?}") };
                let again = begin(id, 5000, 1024, ContentDigest([7; 32]));
                assert_eq!(right.on_frame(&again), Ok(Reception::Ignored));
            }
        });
        let lost = steps::of(|| parts.iter().for_each(|sent| right.on_lost(*sent)));
        let again = steps::of(|| while right.write(&mut buf).is_some() {});
        let acked = steps::of(|| parts.iter().for_each(|sent| right.on_acked(*sent)));
        for taken in [writing, started, lost, again, acked] {
            assert!(taken <= (parts.len() + 1) * WINDOW_SEARCH, "{taken} steps");
        }
        parts.iter().for_each(|sent| right.on_lost(*sent));
        assert!(!right.has_frames(), "acked close frames are not written again");
    }
}

#[test]
fn withdrawals_and_leaping_ids_cost_few_steps_each() {
    let withdraw = |id: u16| frame(&TransferFrame::Withdraw { id: TransferId(id), reason: TransferReason::Cancelled });
    let mut right = refusing_much(0);
    let repeated = steps::of(|| {
        (0..190).for_each(|at| assert_eq!(right.on_frame(&withdraw(at / 19)), Ok(Reception::Ignored)));
    });
    assert!(repeated <= 190 * 2 * WINDOW_SEARCH, "{repeated} steps");
    let mut buf = [0; 64];
    let state = core::iter::from_fn(|| right.write(&mut buf)).count();
    assert_eq!(state, usize::from(WINDOW) - 10, "withdrawn transfers need no close frame");
    let mut right = refusing_much(0);
    let leaping = steps::of(|| {
        for at in 1..=190u16 {
            assert_eq!(right.on_frame(&withdraw(at.wrapping_mul(1500).wrapping_add(7))), Ok(Reception::New));
        }
    });
    assert!(leaping <= 190 * 3 * WINDOW_SEARCH, "{leaping} steps");
    assert!(!right.has_frames(), "all refused ids have left the window");
}

#[test]
fn frames_with_an_expired_id_affect_no_other_transfer() {
    let mut right = refusing_much(WINDOW);
    let mut buf = [0; 64];
    while right.write(&mut buf).is_some() {}
    // Each id uses the bit of an id that was refused.
    for id in 0..WINDOW {
        let withdraw = frame(&TransferFrame::Withdraw { id: TransferId(id), reason: TransferReason::Cancelled });
        assert_eq!(right.on_frame(&withdraw), Ok(Reception::Ignored));
        right.on_lost(SentTransferFrame::Close(TransferId(id)));
        right.on_acked(SentTransferFrame::Close(TransferId(id)));
    }
    assert!(!right.has_frames());
    (WINDOW..2 * WINDOW).for_each(|id| right.on_lost(SentTransferFrame::Close(TransferId(id))));
    assert_eq!(core::iter::from_fn(|| right.write(&mut buf)).count(), usize::from(WINDOW));
}

/// The settings of an end that accepts four transfers at once, in slices of 1,024 bytes.
fn taking_config() -> TransferConfig {
    TransferConfig { admission: TransferAdmission::Automatic, ..TransferConfig::default() }
}

fn taking() -> Transfers {
    transfers(taking_config())
}

/// Passes slices of a content to the receiver.
fn slices(right: &mut Transfers, id: u16, content: &[u8], which: impl Iterator<Item = usize>) {
    for index in which {
        let bytes = &content[index * 1024..(index + 1) * 1024];
        let slice = TransferFrame::Slice { id: TransferId(id), index: index as u32, bytes };
        right.on_frame(&frame(&slice)).unwrap();
    }
}

/// Polls turn by turn. Returns in which turn each transfer was complete.
fn turns(right: &mut Transfers, transfers: usize) -> Vec<(u16, usize)> {
    let mut came = Vec::new();
    for turn in 1..100 {
        while let Some(event) = right.poll_event() {
            let TransferEvent::Received { id, .. } = event else { panic!("{event:?}") };
            came.push((id.0, turn));
        }
        assert_eq!(right.has_unhashed(), came.len() < transfers);
        if came.len() == transfers {
            return came;
        }
    }
    panic!("some are never hashed: {came:?}");
}

#[test]
fn transfers_share_a_megabyte_of_hashing_per_turn() {
    let mut right = taking();
    let contents: Vec<_> = [4 << 20, 4 << 20, 32 << 10, 2 << 20].map(|length| content(length, length as usize)).into();
    for (id, content) in (0..).zip(&contents) {
        right.on_frame(&begin(id, content.len() as u32, 1024, ContentDigest::of(content))).unwrap();
        // Nothing can be hashed before the gap at the start is closed.
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
fn hashing_on_arrival_counts_against_the_turn() {
    let mut right = taking();
    let content = content(5, 4 << 20);
    right.on_frame(&begin(0, 4 << 20, 1024, ContentDigest::of(&content))).unwrap();
    slices(&mut right, 0, &content, 1..3996);
    // Each of these 101 slices could complete a chunk. 64 chunks are a megabyte.
    slices(&mut right, 0, &content, (0..1).chain(3996..4096));
    assert_eq!(turns(&mut right, 1), [(0, 4)]);
}
