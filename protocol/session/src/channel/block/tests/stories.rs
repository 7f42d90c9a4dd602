//! One block or a few, without trouble on the path.

use std::vec::Vec;

use super::*;

#[test]
fn a_block_arrives_once_and_whole_and_its_sender_hears_of_it() {
    for length in [0, 1, 1023, 1024, 1025, 16 * 1024, 100_000, 3 << 20] {
        let (mut left, mut right) = (default_blocks(), default_blocks());
        let id = left.begin(block(1, length), 77).unwrap();
        let mut contents = Vec::new();
        for _ in 0..8 {
            talk(&mut left, &mut right);
            for event in events(&mut right) {
                let Event::Received { id: came, label: 77, content } = event else { panic!("{event:?}") };
                assert_eq!((came, content.len()), (id, length));
                contents.push(content.into_vec());
            }
        }
        assert_eq!(contents, [content(1, length)]);
        assert!(matches!(events(&mut left)[..], [Event::Delivered { id: done }] if done == id));
        assert_eq!((left.sending().count(), right.receiving().count()), (0, 0));
        assert!(!left.wants_room() && !right.wants_room());
    }
}

#[test]
fn both_ends_know_how_far_a_block_is() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    let id = left.begin(block(2, 10_000), 0).unwrap();
    let mut room = [0; 1200];
    assert_eq!(left.sending().collect::<Vec<_>>(), [(id, Progress { bytes: 0, of: 10_000 })]);
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    for slices in 1..=10 {
        let (bytes, part) = left.write(&mut room).unwrap();
        right.on_frame(&room[..bytes]).unwrap();
        let there = Progress { bytes: (slices * 1024).min(10_000), of: 10_000 };
        assert_eq!(right.receiving().collect::<Vec<_>>(), [(id, there)]);
        left.on_acked(part);
        assert_eq!(left.sending().collect::<Vec<_>>(), [(id, there)]);
    }
    assert!(left.write(&mut room).is_none());
}

#[test]
fn blocks_under_way_at_once_take_turns() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    for seed in 0..4 {
        left.begin(block(seed, 200_000), seed.into()).unwrap();
    }
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut room = [0; 1200];
    for sent in 1..=40 {
        let (bytes, part) = left.write(&mut room).unwrap();
        right.on_frame(&room[..bytes]).unwrap();
        left.on_acked(part);
        let there: Vec<u32> = right.receiving().map(|(_, progress)| progress.bytes / 1024).collect();
        assert!(there.iter().all(|slices| slices.abs_diff(sent / 4) <= 1), "{there:?}");
    }
}

#[test]
fn blocks_beyond_those_at_once_wait_and_then_there_is_no_place_to_wait() {
    let config = Config { max_at_once: 2, max_waiting: 3, ..Config::default() };
    let (mut left, mut right) = (blocks(config.clone()), blocks(config));
    let small = block(3, 3000);
    for label in 0..5 {
        left.begin(small.clone(), label).unwrap();
    }
    assert_eq!(left.begin(small, 5), Err(BeginError::Backlogged));
    let mut labels = Vec::new();
    for _ in 0..10 {
        talk(&mut left, &mut right);
        assert!(right.receiving().count() <= 2);
        labels.extend(events(&mut right).into_iter().map(|event| {
            let Event::Received { label, .. } = event else { panic!("{event:?}") };
            label
        }));
        events(&mut left);
    }
    assert_eq!(labels, [0, 1, 2, 3, 4]);
}

#[test]
fn an_application_that_is_asked_accepts_or_refuses() {
    let config = Config { admission: Admission::Ask, ..Config::default() };
    let (mut left, mut right) = (default_blocks(), blocks(config));
    let (wanted, unwanted) = (left.begin(block(4, 3000), 4).unwrap(), left.begin(block(5, 3000), 5).unwrap());
    talk(&mut left, &mut right);
    let offers: Vec<Offer> = events(&mut right)
        .into_iter()
        .map(|event| if let Event::Offered(offer) = event { offer } else { panic!("{event:?}") })
        .collect();
    assert_eq!(offers.iter().map(|offer| (offer.label, offer.length)).collect::<Vec<_>>(), [(4, 3000), (5, 3000)]);
    assert!(events(&mut right).is_empty(), "told once");
    assert!(right.accept(wanted) && !right.accept(wanted) && !right.accept(BlockId(9)));
    assert!(right.refuse(unwanted).is_none());
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut right)[..], [Event::Received { label: 4, .. }]));
    talk(&mut left, &mut right);
    let refused = events(&mut left);
    assert!(
        matches!(refused[..], [Event::Delivered { .. }, Event::Refused { id, reason: Reason::Declined }] if id == unwanted),
        "{refused:?}"
    );
}

#[test]
fn a_sender_that_gives_up_says_so_and_what_has_arrived_is_the_applications() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    let id = left.begin(block(6, 50_000), 6).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut room = [0; 1200];
    for _ in 0..5 {
        let (bytes, _) = left.write(&mut room).unwrap();
        right.on_frame(&room[..bytes]).unwrap();
    }
    assert!(left.cancel(id) && !left.cancel(BlockId(9)));
    talk(&mut left, &mut right);
    let broken = events(&mut right);
    let [Event::Broken { by: Side::Peer, reason: Reason::Cancelled, partial: Some(partial), .. }] = &broken[..] else {
        panic!("{broken:?}")
    };
    assert_eq!(partial.progress(), Progress { bytes: 5 * 1024, of: 50_000 });
    assert!(events(&mut left).is_empty() && left.sending().count() == 0);
}

#[test]
fn a_receiver_that_gives_up_says_so() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    let id = left.begin(block(7, 50_000), 7).unwrap();
    carry(&mut left, &mut right);
    carry(&mut right, &mut left);
    let mut room = [0; 1200];
    let (bytes, _) = left.write(&mut room).unwrap();
    right.on_frame(&room[..bytes]).unwrap();
    assert_eq!(right.refuse(id).unwrap().progress().bytes, 1024);
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [Event::Refused { reason: Reason::Cancelled, .. }]));
    assert!(events(&mut right).is_empty());
}

#[test]
fn a_block_given_up_before_the_peer_knows_of_it_leaves_no_trace() {
    let (mut left, mut right) = (default_blocks(), default_blocks());
    let ids: Vec<BlockId> = (0..6).map(|seed| left.begin(block(seed, 10), 0).unwrap()).collect();
    ids.into_iter().for_each(|id| assert!(left.cancel(id)));
    assert_eq!(carry(&mut left, &mut right), 0);
}

#[test]
fn blocks_beyond_the_receivers_limits_are_refused_or_wait() {
    let config = Config { max_block_bytes: 10_000, max_bytes_at_once: 12_000, ..Config::default() };
    let (mut left, mut right) = (default_blocks(), blocks(config));
    let large = left.begin(block(8, 10_001), 0).unwrap();
    for seed in 0..3 {
        left.begin(block(seed, 6000), 1).unwrap();
    }
    talk(&mut left, &mut right);
    assert!(matches!(events(&mut left)[..], [Event::Refused { id, reason: Reason::TooLarge }] if id == large));
    let mut arrived = 0;
    for _ in 0..4 {
        arrived += events(&mut right).len();
        talk(&mut left, &mut right);
    }
    assert_eq!(arrived, 3);
}

#[test]
fn a_block_given_up_by_both_ends_at_once_makes_place_for_the_next() {
    let mut left = blocks(Config { max_at_once: 1, ..Config::default() });
    let mut right = blocks(Config { max_at_once: 1, admission: Admission::Never, ..Config::default() });
    let first = left.begin(block(1, 3000), 1).unwrap();
    left.begin(block(2, 3000), 2).unwrap();
    let mut room = [0; 1200];
    let (bytes, part) = left.write(&mut room).unwrap();
    right.on_frame(&room[..bytes]).unwrap();
    left.on_acked(part);
    // The answer comes before the word of the withdrawal has left.
    assert!(left.cancel(first));
    assert_eq!(carry(&mut right, &mut left), 1);
    assert!(matches!(left.write(&mut room), Some((_, Part::Begin(id))) if id != first), "the next one begins");
}
