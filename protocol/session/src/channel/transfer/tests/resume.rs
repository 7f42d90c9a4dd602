//! Connections that end before their transfers, and the next connection, which resumes them.

use std::vec::Vec;

use super::*;
use crate::reliability::MemoryBudget;

/// Passes some slices of the transfer to the receiver, and ends the connection.
fn broken_off(transfer: &Transfer, slices: impl Iterator<Item = u32>) -> PartialTransfer {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    left.begin(transfer.clone(), 0).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let wanted: Vec<u32> = slices.collect();
    let mut buf = [0; 1200];
    while let Some((bytes, sent)) = left.write(&mut buf) {
        if matches!(sent, SentTransferFrame::Slices { first, .. } if wanted.contains(&first)) {
            right.on_frame(&buf[..bytes]).unwrap();
        }
    }
    let partials: Vec<PartialTransfer> = right.into_partials().collect();
    assert_eq!(partials.len(), 1);
    partials.into_iter().next().unwrap()
}

/// Runs the next connection to its end with buffers of this many bytes. Returns the numbers of the slices that were
/// sent.
fn resumed(transfer: &Transfer, partial: PartialTransfer, buf_bytes: usize) -> Vec<u32> {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    right.keep(partial).unwrap();
    left.begin(transfer.clone(), 0).unwrap();
    let (mut buf, mut sent, mut whole) = ([0; 1200], Vec::new(), None);
    while whole.is_none() {
        while let Some((bytes, frame)) = left.write(&mut buf) {
            right.on_frame(&buf[..bytes]).unwrap();
            left.on_acked(frame);
            sent.extend(if let SentTransferFrame::Slices { first, count, .. } = frame {
                first..first + u32::from(count)
            } else {
                0..0
            });
        }
        while let Some((bytes, sent)) = right.write(&mut buf[..buf_bytes]) {
            left.on_frame(&buf[..bytes]).unwrap();
            right.on_acked(sent);
        }
        whole = right.poll_event();
    }
    let Some(TransferEvent::Received { content, .. }) = whole else { panic!("{whole:?}") };
    assert!(content.into_vec() == transfer.bytes());
    sent.sort_unstable();
    sent
}

#[test]
fn only_missing_slices_are_sent_on_the_next_connection() {
    let transfer = transfer(1, 300 * 1024 - 5);
    for buf_bytes in [64, 100, 1200] {
        let cases: [&dyn Fn(u32) -> bool; 6] = [
            &|slice| slice < 100,
            &|slice| slice % 2 == 0,
            &|slice| slice % 17 > 3,
            &|slice| slice == 299,
            &|slice| slice > 130 && slice != 200,
            &|slice| slice < 20 || slice == 64 || slice > 290,
        ];
        for has in cases {
            let partial = broken_off(&transfer, (0..300).filter(|slice| has(*slice)));
            assert_eq!(partial.digest(), transfer.digest());
            assert_eq!(
                resumed(&transfer, partial, buf_bytes),
                (0..300).filter(|slice| !has(*slice)).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn complete_partial_needs_no_slice() {
    let transfer = transfer(2, 50_000);
    let partial = broken_off(&transfer, 0..49);
    assert_eq!(partial.progress(), TransferProgress { bytes: 50_000, of: 50_000 });
    assert!(resumed(&transfer, partial, 1200).is_empty());
}

#[test]
fn lost_accept_is_written_again_in_any_buffer() {
    let transfer = transfer(3, 200 * 1024);
    let partial = broken_off(&transfer, (0..200).filter(|slice| slice % 3 == 0));
    let (mut left, mut right) = (default_transfers(), default_transfers());
    right.keep(partial).unwrap();
    left.begin(transfer, 0).unwrap();
    carry(&mut left, &mut right);
    let mut buf = [0; 1200];
    let mut lost = Vec::new();
    while let Some((_, sent)) = right.write(&mut buf[..80]) {
        lost.push(sent);
    }
    assert!(lost.len() > 1);
    lost.into_iter().for_each(|sent| right.on_lost(sent));
    assert!(!left.has_frames());
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [TransferEvent::Received { .. }]));
}

#[test]
fn accepts_lost_in_many_places_are_repeated_few_times() {
    let transfer = transfer(3, 900 * 1024);
    let partial = broken_off(&transfer, (0..900).filter(|slice| slice % 3 == 0));
    let (mut left, mut right) = (default_transfers(), default_transfers());
    right.keep(partial).unwrap();
    left.begin(transfer, 0).unwrap();
    carry(&mut left, &mut right);
    let (mut buf, mut rounds) = ([0; 1200], Vec::new());
    while right.has_frames() {
        let mut written = Vec::new();
        while let Some((bytes, sent)) = right.write(&mut buf[..32]) {
            // One of seven is lost, at other places in each round.
            let is_lost = (written.len() + rounds.len()) % 7 == 3;
            if !is_lost {
                left.on_frame(&buf[..bytes]).unwrap();
            }
            written.push((is_lost, sent));
        }
        rounds.push(written.len());
        written.into_iter().filter(|(is_lost, _)| *is_lost).for_each(|(_, sent)| right.on_lost(sent));
        assert!(rounds.len() < 20, "{rounds:?}");
    }
    // Without a limit of spans it would be 7/6 of the first round.
    let (all, first) = (rounds.iter().sum::<usize>(), rounds[0]);
    assert!(first > 15 && all < 3 * first, "{rounds:?}");
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [TransferEvent::Received { .. }]));
}

#[test]
fn partial_of_other_content_or_slices_is_kept_unused() {
    let (old, new) = (transfer(4, 30_000), transfer(5, 30_000));
    let partial = broken_off(&old, 0..10);
    assert_eq!(resumed(&new, partial, 1200).len(), 30);

    let partial = broken_off(&old, 0..10);
    let (mut left, mut right) =
        (transfers(TransferConfig { slice_bytes: 1000, ..TransferConfig::default() }), default_transfers());
    right.keep(partial).unwrap();
    left.begin(old, 0).unwrap();
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [TransferEvent::Received { .. }]));
    assert_eq!(right.into_partials().count(), 1, "still there");
}

#[test]
fn partial_takes_budget_memory_only_on_a_connection() {
    let transfer = transfer(6, 100_000);
    let partial = broken_off(&transfer, 0..50);
    let small = MemoryBudget::new(40_000);
    let mut right = Transfers::new(TransferConfig::default(), Some(small.clone())).unwrap();
    right.keep(partial).unwrap();
    let mut left = default_transfers();
    left.begin(transfer.clone(), 0).unwrap();
    talk(&mut left, &mut right);
    let broken = events(&mut right);
    assert!(
        matches!(broken[..], [TransferEvent::Broken { by: TransferSide::Us, reason: TransferReason::NoMemory, .. }]),
        "{broken:?}"
    );
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [TransferEvent::Refused { reason: TransferReason::NoMemory, .. }]));
    assert_eq!(small.left(), 40_000);
    let partial = right.into_partials().next().expect("it was not lost");

    let large = MemoryBudget::new(400_000);
    let mut right = Transfers::new(TransferConfig::default(), Some(large.clone())).unwrap();
    right.keep(partial).unwrap();
    left.begin(transfer, 0).unwrap();
    carry(&mut left, &mut right);
    assert!(large.left() < 400_000 - 50 * 1024);
    let partial = right.into_partials().next().unwrap();
    assert_eq!(large.left(), 400_000);
    assert_eq!(partial.progress().bytes, 50 * 1024);
}

#[test]
fn corrupt_partial_fails_by_its_digest() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    left.begin(transfer(7, 40_000), 7).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut buf = [0; 1200];
    let mut flipped = false;
    while let Some((bytes, sent)) = left.write(&mut buf) {
        if matches!(sent, SentTransferFrame::Slices { first: 17, .. }) {
            buf[bytes - 1] ^= 1;
            flipped = true;
        }
        right.on_frame(&buf[..bytes]).unwrap();
        left.on_acked(sent);
    }
    assert!(flipped);
    let broken = events(&mut right);
    assert!(
        matches!(
            broken[..],
            [TransferEvent::Broken { by: TransferSide::Us, reason: TransferReason::WrongDigest, partial: None, .. }]
        ),
        "{broken:?}"
    );
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [TransferEvent::Refused { reason: TransferReason::WrongDigest, .. }]));
}

#[test]
fn at_most_max_at_once_partials_are_kept() {
    let transfer = transfer(8, 3000);
    let mut right = transfers(TransferConfig { max_at_once: 1, ..TransferConfig::default() });
    assert!(right.keep(broken_off(&transfer, 0..1)).is_ok());
    assert!(right.keep(broken_off(&transfer, 0..1)).is_err());
}
