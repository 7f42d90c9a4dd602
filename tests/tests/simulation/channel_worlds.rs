//! Checks that every kind of channel keeps its promise on every path.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use slipgate_session::channel::{ChannelConfig, ChannelId, Kind, Layout};
use slipgate_sim::{Conditions, Loss, Order, Reordering, Share};
use slipgate_tests::channel_world::{ChannelWorld, TICK};
use slipgate_tests::scale;
use slipgate_tests::world::End;

const KINDS: [Kind; 4] = [Kind::Unreliable, Kind::Sequenced, Kind::ReliableUnordered, Kind::ReliableOrdered];
/// The smallest queue of the layout; its other bounds follow from it.
const QUEUE_BYTES: u32 = 64 * 1024;

fn layout() -> Arc<Layout> {
    // Without a deadline an unreliable message is queued until it is sent.
    let channel = |kind| ChannelConfig { queue_bytes: QUEUE_BYTES, deadline: None, ..ChannelConfig::from(kind) };
    Arc::new(Layout::try_from(KINDS.map(channel).to_vec()).unwrap())
}

fn percent(percent: u32) -> Share {
    Share::from_fraction(f64::from(percent) / 100.0).unwrap()
}

fn path(loss: u32, latency: u64, reordering: u32, duplication: u32) -> Conditions {
    Conditions {
        latency: Duration::from_millis(latency),
        jitter: Duration::from_millis(latency / 4),
        order: Order::Free,
        loss: Loss::Random(percent(loss)),
        duplication: percent(duplication),
        reordering: Reordering { share: percent(reordering), longest: Duration::from_millis(200) },
        ..Conditions::perfect()
    }
}

/// Sends `count` messages of every kind in both directions, and waits for all that were promised.
fn talk(seed: u64, conditions: Conditions, payload_bytes: usize, count: u32, size: impl Fn(u32) -> usize) {
    let mut pair = ChannelWorld::new(seed, &layout(), conditions, None);
    pair.set_payload_bytes(payload_bytes);
    let context = format!("seed {seed}, {payload_bytes} bytes, {conditions:?}");
    let mut left = [[count; KINDS.len()]; 2];
    let done = pair.run_until(Duration::from_secs(100 * 3600), TICK, |pair| {
        for end in End::BOTH {
            for (id, left) in (0..).zip(&mut left[end as usize]) {
                while *left > 0 && pair.send(end, ChannelId(id), size(*left)) {
                    *left -= 1;
                }
            }
        }
        let met = End::BOTH.map(|end| pair.side(end).expectation.is_met());
        left == [[0; KINDS.len()]; 2] && met == [true; 2] && pair.is_idle()
    });
    assert!(done, "not all messages arrived: {context}");
    for end in End::BOTH {
        let side = pair.side(end);
        // The queues of four channels, and their incomplete messages, in chunks of 128 bytes.
        let bound = 2 * KINDS.len() * 2 * QUEUE_BYTES as usize;
        assert!(side.peak_bytes < bound, "{} bytes of memory: {context}", side.peak_bytes);
        let once = ChannelId(0);
        let arrived = f64::from(side.expectation.arrived(once));
        assert!(!is_harmless(&conditions) || arrived == f64::from(count), "{arrived} of {count}: {context}");
    }
}

fn is_harmless(conditions: &Conditions) -> bool {
    conditions.loss == Loss::Random(Share::NONE) && conditions.reordering.share == Share::NONE
}

#[test]
fn every_channel_kind_keeps_its_promise_on_impaired_paths() {
    // A debug build carries fewer messages to limit the time.
    let counts = if cfg!(debug_assertions) { [30, 15, 4] } else { [1000, 1000, 1000] };
    let mut worlds = 0;
    for loss in [0, 1, 5, 10, 20] {
        for latency in [0, 50, 150] {
            for reordering in [0, 2, 30] {
                for duplication in [0, 5] {
                    for (count, bytes) in counts.into_iter().zip([64, 1024, 16 * 1024]) {
                        talk(worlds, path(loss, latency, reordering, duplication), 1200, count, |_| bytes);
                        worlds += 1;
                    }
                }
            }
        }
    }
    assert_eq!(worlds, 270);
}

#[test]
fn random_worlds_keep_every_channel_promise() {
    let seeds = scale::pick(20, if cfg!(debug_assertions) { 50 } else { 1000 });
    for seed in 0..seeds {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut up_to = |max| chance.random_range(0..=max);
        let conditions = path(up_to(30), u64::from(up_to(200)), up_to(40), up_to(20));
        let payload_bytes = 508 + up_to(1200 - 508) as usize;
        let salt = up_to(1 << 20);
        talk(seed, conditions, payload_bytes, 40, |left| {
            let random = left.wrapping_mul(2_654_435_761).wrapping_add(salt);
            4 + (random >> 7) as usize % [20, 150, 1300, 16_380][random as usize % 4]
        });
    }
}

#[test]
fn hundred_thousand_small_messages_arrive() {
    let mut pair = ChannelWorld::new(5, &layout(), path(5, 20, 10, 2), None);
    let count = 100_000;
    let mut left = [count; KINDS.len()];
    let done = pair.run_until(Duration::from_secs(3600), TICK, |pair| {
        for (id, left) in (0..).zip(&mut left) {
            while *left > 0 && pair.send(End::A, ChannelId(id), 4 + *left as usize % 3) {
                *left -= 1;
            }
        }
        left == [0; KINDS.len()] && pair.side(End::B).expectation.is_met()
    });
    assert!(done, "not all messages arrived");
    // A sequenced channel keeps only the newest of several packets of one tick that overtake each other.
    for (id, min_share) in (0..).zip([0.93, 0.4, 1.0, 1.0]) {
        let arrived = pair.side(End::B).expectation.arrived(ChannelId(id));
        assert!(f64::from(arrived) >= min_share * f64::from(count), "{arrived} of channel {id}");
    }
}
