//! One transfer or a few, on a path without impairments.

use std::vec::Vec;

use super::*;
use crate::send_error::SendError;

#[test]
fn transfer_arrives_once_and_its_sender_gets_delivered() {
    for length in [0, 1, 1023, 1024, 1025, 16 * 1024, 100_000, 3 << 20] {
        let (mut left, mut right) = (default_transfers(), default_transfers());
        let id = left.begin(transfer(1, length), 77).unwrap();
        let mut contents = Vec::new();
        for _ in 0..8 {
            talk(&mut left, &mut right);
            for event in events(&mut right) {
                let TransferEvent::Received { id: came, label: 77, content } = event else { panic!("{event:?}") };
                assert_eq!((came, content.len()), (id, length));
                contents.push(content.into_vec());
            }
        }
        assert_eq!(contents, [content(1, length)]);
        assert!(matches!(events(&mut left)[..], [TransferEvent::Delivered { id: done }] if done == id));
        assert_eq!((left.sending().count(), right.receiving().count()), (0, 0));
        assert!(!left.has_frames() && !right.has_frames());
    }
}

#[test]
fn both_ends_report_progress() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    let id = left.begin(transfer(2, 10_000), 0).unwrap();
    let mut buf = [0; 1200];
    assert_eq!(left.sending().collect::<Vec<_>>(), [(id, TransferProgress { bytes: 0, of: 10_000 })]);
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    for slices in 1..=10 {
        let (bytes, sent) = left.write(&mut buf).unwrap();
        right.on_frame(&buf[..bytes]).unwrap();
        let there = TransferProgress { bytes: (slices * 1024).min(10_000), of: 10_000 };
        assert_eq!(right.receiving().collect::<Vec<_>>(), [(id, there)]);
        left.on_acked(sent);
        assert_eq!(left.sending().collect::<Vec<_>>(), [(id, there)]);
    }
    assert!(left.write(&mut buf).is_none());
}

#[test]
fn transfers_in_progress_take_turns() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    for seed in 0..4 {
        left.begin(transfer(seed, 200_000), seed.into()).unwrap();
    }
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut buf = [0; 1200];
    for sent in 1..=40 {
        let (bytes, frame) = left.write(&mut buf).unwrap();
        right.on_frame(&buf[..bytes]).unwrap();
        left.on_acked(frame);
        let there: Vec<u32> = right.receiving().map(|(_, progress)| progress.bytes / 1024).collect();
        assert!(there.iter().all(|slices| slices.abs_diff(sent / 4) <= 1), "{there:?}");
    }
}

#[test]
fn transfers_beyond_max_at_once_wait_up_to_max_waiting() {
    let config = TransferConfig { max_at_once: 2, max_waiting: 3, ..TransferConfig::default() };
    let (mut left, mut right) = (transfers(config.clone()), transfers(config));
    let small = transfer(3, 3000);
    for label in 0..5 {
        left.begin(small.clone(), label).unwrap();
    }
    assert_eq!(left.begin(small, 5), Err(SendError::Backlogged));
    let mut labels = Vec::new();
    for _ in 0..10 {
        talk(&mut left, &mut right);
        assert!(right.receiving().count() <= 2);
        labels.extend(events(&mut right).into_iter().map(|event| {
            let TransferEvent::Received { label, .. } = event else { panic!("{event:?}") };
            label
        }));
        events(&mut left);
    }
    assert_eq!(labels, [0, 1, 2, 3, 4]);
}

#[test]
fn asked_application_accepts_or_refuses() {
    let config = TransferConfig { admission: TransferAdmission::Ask, ..TransferConfig::default() };
    let (mut left, mut right) = (default_transfers(), transfers(config));
    let (wanted, unwanted) = (left.begin(transfer(4, 3000), 4).unwrap(), left.begin(transfer(5, 3000), 5).unwrap());
    talk(&mut left, &mut right);
    let offers: Vec<TransferOffer> = events(&mut right)
        .into_iter()
        .map(|event| if let TransferEvent::Offered(offer) = event { offer } else { panic!("{event:?}") })
        .collect();
    assert_eq!(offers.iter().map(|offer| (offer.label, offer.length)).collect::<Vec<_>>(), [(4, 3000), (5, 3000)]);
    assert!(events(&mut right).is_empty(), "reported once");
    assert!(right.accept(wanted) && !right.accept(wanted) && !right.accept(TransferId(9)));
    assert!(right.refuse(unwanted).is_none());
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [TransferEvent::Received { label: 4, .. }]));
    talk(&mut left, &mut right);
    let refused = events(&mut left);
    assert!(
        matches!(
            refused[..],
            [TransferEvent::Delivered { .. }, TransferEvent::Refused { id, reason: TransferReason::Declined }]
                if id == unwanted
        ),
        "{refused:?}"
    );
}

#[test]
fn sender_cancels_and_the_receiver_gets_a_partial() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    let id = left.begin(transfer(6, 50_000), 6).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut buf = [0; 1200];
    for _ in 0..5 {
        let (bytes, _) = left.write(&mut buf).unwrap();
        right.on_frame(&buf[..bytes]).unwrap();
    }
    assert!(left.cancel(id) && !left.cancel(TransferId(9)));
    talk(&mut left, &mut right);
    let broken = events(&mut right);
    let [
        TransferEvent::Broken {
            by: TransferSide::Peer, reason: TransferReason::Cancelled, partial: Some(partial), ..
        },
    ] = &broken[..]
    else {
        panic!("{broken:?}")
    };
    assert_eq!(partial.progress(), TransferProgress { bytes: 5 * 1024, of: 50_000 });
    assert!(events(&mut left).is_empty() && left.sending().count() == 0);
}

#[test]
fn receiver_cancels_and_the_sender_is_refused() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    let id = left.begin(transfer(7, 50_000), 7).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut buf = [0; 1200];
    let (bytes, _) = left.write(&mut buf).unwrap();
    right.on_frame(&buf[..bytes]).unwrap();
    assert_eq!(right.refuse(id).unwrap().progress().bytes, 1024);
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [TransferEvent::Refused { reason: TransferReason::Cancelled, .. }]));
    assert!(events(&mut right).is_empty());
}

#[test]
fn transfer_cancelled_before_its_begin_leaves_no_trace() {
    let (mut left, mut right) = (default_transfers(), default_transfers());
    let ids: Vec<TransferId> = (0..6).map(|seed| left.begin(transfer(seed, 10), 0).unwrap()).collect();
    ids.into_iter().for_each(|id| assert!(left.cancel(id)));
    assert_eq!(carry(&mut left, &mut right), 0);
}

#[test]
fn transfers_beyond_the_receivers_limits_are_refused_or_wait() {
    let config = TransferConfig { max_transfer_bytes: 10_000, max_bytes_at_once: 12_000, ..TransferConfig::default() };
    let (mut left, mut right) = (default_transfers(), transfers(config));
    let large = left.begin(transfer(8, 10_001), 0).unwrap();
    for seed in 0..3 {
        left.begin(transfer(seed, 6000), 1).unwrap();
    }
    talk(&mut left, &mut right);
    assert!(matches!(
        events(&mut left)[..],
        [TransferEvent::Refused { id, reason: TransferReason::TooLarge }] if id == large
    ));
    let mut arrived = 0;
    for _ in 0..4 {
        arrived += events(&mut right).len();
        talk(&mut left, &mut right);
    }
    assert_eq!(arrived, 3);
}

#[test]
fn transfer_cancelled_by_both_ends_frees_its_slot() {
    let mut left = transfers(TransferConfig { max_at_once: 1, ..TransferConfig::default() });
    let mut right =
        transfers(TransferConfig { max_at_once: 1, admission: TransferAdmission::Never, ..TransferConfig::default() });
    let first = left.begin(transfer(1, 3000), 1).unwrap();
    left.begin(transfer(2, 3000), 2).unwrap();
    let mut buf = [0; 1200];
    let (bytes, sent) = left.write(&mut buf).unwrap();
    right.on_frame(&buf[..bytes]).unwrap();
    left.on_acked(sent);
    // The reply arrives before the withdrawal was sent.
    assert!(left.cancel(first));
    assert_eq!(carry(&mut right, &mut left), 1);
    assert!(
        matches!(left.write(&mut buf), Some((_, SentTransferFrame::Begin(id))) if id != first),
        "the next one begins"
    );
}
