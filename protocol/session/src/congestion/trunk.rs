//! The uplink of a server of several shards: each tick a shard brings what its clients lack, and takes its part.
//!
//! ```text
//!   shard 0: Uplink ──┐ once a tick,  ┌── by the weights of the clients that lack something
//!   shard 1: Uplink ──┼──▶ Trunk ─────┼── what one shard does not need, others have
//!   shard 2: Uplink ──┘ under a lock  └── what left without asking is missing to all
//! ```
//!
//! How a shard's part is divided over its clients is `uplink`'s business. So every client has at least the part that its
//! weight gives it among all that ask; what others leave of theirs goes to clients of the same shard first.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use super::BytesPerSecond;
use super::uplink::{Need, Part, Uplink};
use slipgate_netcode::time::Instant;

/// The uplink of a whole server, which its shards share. Without a rate it has no limit.
///
/// A shard's tick costs a few steps for each shard; nothing is asked for packets. What a shard needed is put by for its next
/// tick, so that another that comes before it with a burst does not have it.
pub struct Trunk {
    /// Shards in the place of clients.
    shards: Uplink,
    expected: Box<[Expected]>,
    burst: Duration,
    limited: Arc<AtomicBool>,
    /// Bytes that left without asking, in all.
    charged: f64,
}

/// What a shard will need in its next tick: the most that it needed at once lately.
#[derive(Clone, Copy, Default)]
struct Expected {
    bytes: u64,
    weights: u32,
    at: Instant,
}

impl Expected {
    /// Needs that do not come again are forgotten as a burst ends: ticks without any may lie between those of a game.
    fn note(&mut self, need: &Need, most: u64, burst: Duration, now: Instant) {
        // One that does not come for what was put by for it must not have more at once than the uplink bears.
        let bytes = need.bytes.min(most);
        if bytes >= self.bytes || now.since(self.at) >= burst {
            *self = Self { bytes, weights: need.weights, at: now };
        }
    }
}

impl Trunk {
    /// An uplink without a limit, for so many shards, each of which gets at most what the whole gains in `burst` at once.
    #[must_use]
    pub fn new(shards: usize, burst: Duration) -> Self {
        Self {
            shards: Uplink::new(BytesPerSecond(0.0), burst, shards),
            expected: vec![Expected::default(); shards].into_boxed_slice(),
            burst,
            limited: Arc::default(),
            charged: 0.0,
        }
    }

    /// The rate from now on, for all shards; `None`: there is no limit.
    pub fn set_rate(&mut self, rate: Option<BytesPerSecond>) {
        self.shards.set_rate(rate.unwrap_or_default());
        self.limited.store(rate.is_some(), Ordering::Relaxed);
    }

    /// Whether there is a limit, to be read without the lock.
    pub(crate) fn limited(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.limited)
    }

    /// A shard takes what it is due of what it needs, and settles what it owes.
    pub(crate) fn take(&mut self, shard: usize, need: &Need, now: Instant) -> Part {
        self.charged += need.charged;
        self.shards.settle(need.settled);
        let most = self.shards.most();
        let Some(expected) = self.expected.get_mut(shard) else { return Part::default() };
        expected.note(need, most, self.burst, now);
        self.shards.bring(shard, expected.weights, expected.bytes);
        self.shards.share(now);
        let bytes = self.shards.allowance(shard).min(need.bytes);
        self.shards.spend(shard, bytes);
        self.shards.offer(shard, expected.bytes);
        let others = self.shards.weights_beside(shard);
        Part { bytes, rate: self.shards.rate(), others, charged: self.charged }
    }

    /// A shard is no more.
    pub(crate) fn leave(&mut self, shard: usize) {
        self.shards.offer(shard, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;
    use crate::congestion::Weight;

    const TICK: Duration = Duration::from_millis(10);

    /// A server whose uplink gains 10,000 bytes each tick, and its shards.
    struct Shards {
        trunk: Trunk,
        uplinks: Vec<Uplink>,
        tick: u32,
    }

    impl Shards {
        fn new(shards: usize, clients: usize) -> Self {
            Self::with_burst(TICK, shards, clients)
        }

        fn with_burst(burst: Duration, shards: usize, clients: usize) -> Self {
            let mut trunk = Trunk::new(shards, burst);
            trunk.set_rate(Some(BytesPerSecond(1e6)));
            let uplinks = (0..shards).map(|_| Uplink::new(BytesPerSecond(0.0), burst, clients)).collect();
            Self { trunk, uplinks, tick: 0 }
        }

        /// A tick of every shard, one after the other: who wants how much, and what each client may send, which it does.
        fn tick(&mut self, wanted: &[&[u64]]) -> Vec<Vec<u64>> {
            self.tick += 1;
            let now = Instant::from_start(TICK * self.tick);
            (0..wanted.len()).map(|shard| self.turn(shard, wanted[shard], now)).collect()
        }

        fn turn(&mut self, shard: usize, wanted: &[u64], now: Instant) -> Vec<u64> {
            let uplink = &mut self.uplinks[shard];
            wanted.iter().enumerate().for_each(|(client, bytes)| uplink.offer(client, *bytes));
            let part = self.trunk.take(shard, &uplink.need(), now);
            uplink.share_part(&part, now);
            let allowances: Vec<u64> = (0..wanted.len()).map(|client| uplink.allowance(client)).collect();
            allowances.iter().enumerate().for_each(|(client, bytes)| uplink.spend(client, *bytes));
            allowances
        }

        /// What clients sent in so many ticks.
        fn sent_in(&mut self, ticks: u32, wanted: &[&[u64]]) -> Vec<Vec<u64>> {
            let mut sent: Vec<Vec<u64>> = wanted.iter().map(|shard| std::vec![0; shard.len()]).collect();
            for _ in 0..ticks {
                for (sent, got) in sent.iter_mut().flatten().zip(self.tick(wanted).iter().flatten()) {
                    *sent += got;
                }
            }
            sent
        }
    }

    #[test]
    fn clients_have_equal_parts_however_many_are_on_their_shard() {
        let mut shards = Shards::new(2, 3);
        let everything: &[&[u64]] = &[&[1_000_000], &[1_000_000; 3]];
        shards.sent_in(5, everything);
        let sent = shards.sent_in(100, everything);
        for bytes in sent.iter().flatten() {
            assert!((249_000..=251_000).contains(bytes), "{sent:?}");
        }
        shards.uplinks[0].set_weight(0, Weight(3));
        shards.sent_in(5, everything);
        let sent = shards.sent_in(100, everything);
        assert!((498_000..=502_000).contains(&sent[0][0]), "{sent:?}");
        assert!(sent[1].iter().all(|bytes| (165_000..=168_000).contains(bytes)), "{sent:?}");
    }

    #[test]
    fn what_a_shard_does_not_need_another_has() {
        let mut shards = Shards::new(3, 2);
        shards.sent_in(5, &[&[500, 500], &[1_000_000, 0], &[0, 0]]);
        let sent = shards.sent_in(100, &[&[500, 500], &[1_000_000, 0], &[0, 0]]);
        assert_eq!(sent[0], [50_000, 50_000]);
        assert!((899_000..=901_000).contains(&sent[1][0]), "{sent:?}");
    }

    #[test]
    fn one_clients_burst_delays_nobody_on_whatever_shard() {
        for burst_first in [true, false] {
            let mut shards = Shards::new(2, 5);
            shards.sent_in(3, &[&[800, 800, 800, 800, 0], &[800; 5]]);
            let (bursting, quiet): (&[u64], &[u64]) = (&[800, 800, 800, 800, 1_000_000], &[800; 5]);
            for tick in 0..400 {
                let wanted = if burst_first { [bursting, quiet] } else { [quiet, bursting] };
                let allowed = shards.tick(&wanted).concat();
                let steady: Vec<_> = allowed.iter().filter(|bytes| **bytes == 800).collect();
                assert!(steady.len() == 9, "tick {tick}: {allowed:?}");
                let burst: u64 = allowed.iter().sum::<u64>() - 9 * 800;
                assert!((2700..=2900).contains(&burst) || tick < 5, "tick {tick}: the burst has the rest: {allowed:?}");
            }
        }
    }

    #[test]
    fn ticks_in_which_a_game_sends_nothing_do_not_cost_it_its_part() {
        let mut shards = Shards::with_burst(5 * TICK, 2, 4);
        for tick in 0..400 {
            let game: &[u64] = if tick % 3 == 0 { &[1500; 4] } else { &[0; 4] };
            let allowed = shards.tick(&[&[1_000_000], game]);
            assert!(tick < 5 || allowed[1] == game, "tick {tick}: {allowed:?}");
        }
    }

    #[test]
    fn what_left_without_asking_is_missing_to_all_for_as_long_as_a_burst_lasts() {
        let mut shards = Shards::new(2, 1);
        let everything: &[&[u64]] = &[&[1_000_000], &[1_000_000]];
        shards.sent_in(5, everything);
        shards.uplinks[0].charge(8000);
        let sent = shards.tick(everything).concat().iter().sum::<u64>();
        assert!((1999..=2001).contains(&sent), "{sent} of 10,000 bytes are left");
        shards.uplinks[1].charge(1_000_000);
        let sent = shards.sent_in(4, everything).concat().iter().sum::<u64>();
        assert!((20_000..=40_000).contains(&sent), "what left long ago is forgotten: {sent}");
    }

    #[test]
    fn a_shard_that_stays_away_gets_a_burst_at_most_when_it_comes_and_one_that_is_gone_leaves_its_part() {
        let mut shards = Shards::new(2, 1);
        shards.sent_in(5, &[&[1_000_000], &[1_000_000]]);
        let alone = shards.sent_in(100, &[&[1_000_000]])[0][0];
        assert!((985_000..=1_000_000).contains(&alone), "{alone}");
        let now = Instant::from_start(TICK * shards.tick);
        assert!(shards.turn(1, &[1_000_000], now)[0] <= 10_000);
        shards.trunk.leave(1);
        shards.sent_in(1, &[&[1_000_000]]);
        let alone = shards.sent_in(10, &[&[1_000_000]])[0][0];
        assert!((99_999..=100_001).contains(&alone), "{alone}");
    }

    #[test]
    fn what_a_client_may_expect_is_its_part_among_the_clients_of_all_shards() {
        let mut shards = Shards::new(2, 3);
        shards.sent_in(5, &[&[1_000_000], &[1_000_000; 3]]);
        assert_eq!(shards.uplinks[1].prospect(0), 2500);
        assert_eq!(shards.uplinks[0].prospect(0), 2500);
        assert_eq!(shards.uplinks[0].prospect(1), 2000, "it would be one more");
        shards.uplinks[0].charge(5000);
        shards.tick(&[&[1_000_000], &[1_000_000; 3]]);
        assert_eq!(shards.uplinks[1].prospect(0), 1250, "less what leaves without asking");
    }

    proptest! {
        #[test]
        fn no_more_leaves_than_the_uplink_gains_whatever_shards_ask_for(
            turns in prop::collection::vec((0..4_usize, 0..3_u32, prop::collection::vec(0..20_000_u64, 3)), 1..200),
        ) {
            let mut shards = Shards::new(4, 3);
            let (mut sent, mut now) = (0, Duration::ZERO);
            for (shard, passed, wanted) in turns {
                now += TICK * passed / 2;
                sent += shards.turn(shard, &wanted, Instant::from_start(now)).iter().sum::<u64>();
                prop_assert!(sent as f64 <= 10_001.0 + 1e6 * now.as_secs_f64(), "{sent} bytes in {now:?}");
            }
        }
    }
}
