//! The uplink of a server with several shards: each tick a shard requests what its clients lack, and gets its grant.
//!
//! ```text
//!   shard 0: Uplink ──┐ once a tick,        ┌── by the weights of the clients that lack bytes
//!   shard 1: Uplink ──┼──▶ SharedUplink ────┼── bytes that one shard does not need go to the others
//!   shard 2: Uplink ──┘ under a lock        └── all shards pay for unscheduled bytes
//! ```
//!
//! `uplink` divides a shard's grant over its clients. Each client has at least the part that its weight gives it
//! among all clients with data; unused parts go to clients of the same shard first.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use super::uplink::{Uplink, UplinkGrant, UplinkRequest};
use crate::congestion::BytesPerSecond;
use slipgate_netcode::server::ShardId;
use slipgate_netcode::slab::Slab;
use slipgate_netcode::time::Instant;

/// The uplink of a whole server, which its shards share. It has no limit without a rate.
///
/// A shard's tick costs a few steps per shard, and nothing per packet. Bytes that a shard recently needed are
/// reserved for its next tick, so that the burst of an earlier shard does not take them.
pub struct SharedUplink {
    /// Each shard is one client of this uplink.
    shards: Uplink<ShardId>,
    expected: Slab<ShardId, ExpectedDemand>,
    burst: Duration,
    limited: Arc<AtomicBool>,
    /// The total of unscheduled bytes.
    unscheduled: f64,
}

/// The expected request of a shard: the largest recent one.
#[derive(Clone, Copy, Default)]
struct ExpectedDemand {
    bytes: u64,
    weights: u32,
    at: Instant,
}

impl ExpectedDemand {
    /// Drops an old maximum after a burst: a game may have ticks without data in between.
    fn update(&mut self, request: &UplinkRequest, max_burst: u64, burst: Duration, now: Instant) {
        // A shard that stays away must not get more at once than one burst when it returns.
        let bytes = request.bytes.min(max_burst);
        if bytes >= self.bytes || now.since(self.at) >= burst {
            *self = Self { bytes, weights: request.weights, at: now };
        }
    }
}

impl SharedUplink {
    /// Creates an uplink without a limit for `shards` shards. Each gets at most the gain of `burst` at once.
    #[must_use]
    #[cfg(any(feature = "std", test))]
    pub(crate) fn new(shards: usize, burst: Duration) -> Self {
        Self {
            shards: Uplink::new(BytesPerSecond(0.0), burst, shards),
            expected: (0..shards).map(|_| ExpectedDemand::default()).collect(),
            burst,
            limited: Arc::default(),
            unscheduled: 0.0,
        }
    }

    /// Sets the rate of all shards; `None` removes the limit.
    pub(crate) fn set_rate(&mut self, rate: Option<BytesPerSecond>) {
        self.shards.set_rate(rate.unwrap_or_default());
        self.limited.store(rate.is_some(), Ordering::Relaxed);
    }

    /// Returns the flag that says whether there is a limit, to be read without the lock.
    #[cfg(feature = "std")]
    pub(crate) fn limited(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.limited)
    }

    /// Processes the request of a shard: returns its grant, and settles its credit.
    pub(crate) fn exchange(&mut self, shard: ShardId, request: &UplinkRequest, now: Instant) -> UplinkGrant {
        self.unscheduled += request.unscheduled;
        self.shards.return_credit(request.returned);
        let max_burst = self.shards.max_burst();
        let expected = &mut self.expected[shard];
        expected.update(request, max_burst, self.burst, now);
        // Request the expected bytes, not only those of this tick, so that they stay reserved.
        self.shards.set_demand(shard, expected.weights, expected.bytes);
        self.shards.share(now);
        let bytes = self.shards.allowance(shard).min(request.bytes);
        self.shards.spend(shard, bytes);
        // Spending lowered the demand; restore it for the shards that come before the next tick.
        self.shards.offer(shard, expected.bytes);
        let other_weights = self.shards.other_weights(shard);
        UplinkGrant { bytes, rate: self.shards.rate(), other_weights, unscheduled: self.unscheduled }
    }

    /// Removes a shard, so that its part goes to the others.
    pub(crate) fn remove_shard(&mut self, shard: ShardId) {
        self.shards.offer(shard, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::super::Weight;
    use super::*;
    use slipgate_netcode::ids::SlotIndex;

    const TICK: Duration = Duration::from_millis(10);

    /// A server with an uplink of 10,000 bytes per tick, and its shards.
    struct Shards {
        shared: SharedUplink,
        uplinks: Vec<Uplink<SlotIndex>>,
        tick: u32,
    }

    impl Shards {
        fn new(shards: usize, clients: usize) -> Self {
            Self::with_burst(TICK, shards, clients)
        }

        fn with_burst(burst: Duration, shards: usize, clients: usize) -> Self {
            let mut shared = SharedUplink::new(shards, burst);
            shared.set_rate(Some(BytesPerSecond(1e6)));
            let uplinks = (0..shards).map(|_| Uplink::new(BytesPerSecond(0.0), burst, clients)).collect();
            Self { shared, uplinks, tick: 0 }
        }

        /// Runs a tick of every shard in turn. Returns what each client may send, which it does.
        fn tick(&mut self, wanted: &[&[u64]]) -> Vec<Vec<u64>> {
            self.tick += 1;
            let now = Instant::from_start(TICK * self.tick);
            (0..wanted.len()).map(|shard| self.turn(shard, wanted[shard], now)).collect()
        }

        fn turn(&mut self, shard: usize, wanted: &[u64], now: Instant) -> Vec<u64> {
            let uplink = &mut self.uplinks[shard];
            let slots = || (0..).map(SlotIndex);
            slots().zip(wanted).for_each(|(client, bytes)| uplink.offer(client, *bytes));
            let grant = self.shared.exchange(ShardId(shard as u16), &uplink.take_request(), now);
            uplink.apply_grant(&grant, now);
            let allowances: Vec<u64> = slots().zip(wanted).map(|(client, _)| uplink.allowance(client)).collect();
            slots().zip(&allowances).for_each(|(client, bytes)| uplink.spend(client, *bytes));
            allowances
        }

        /// Returns what the clients sent in `ticks` ticks.
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
    fn clients_of_unequal_shards_have_equal_parts() {
        let mut shards = Shards::new(2, 3);
        let everything: &[&[u64]] = &[&[1_000_000], &[1_000_000; 3]];
        shards.sent_in(5, everything);
        let sent = shards.sent_in(100, everything);
        for bytes in sent.iter().flatten() {
            assert!((249_000..=251_000).contains(bytes), "{sent:?}");
        }
        shards.uplinks[0].set_weight(SlotIndex(0), Weight(3));
        shards.sent_in(5, everything);
        let sent = shards.sent_in(100, everything);
        assert!((498_000..=502_000).contains(&sent[0][0]), "{sent:?}");
        assert!(sent[1].iter().all(|bytes| (165_000..=168_000).contains(bytes)), "{sent:?}");
    }

    #[test]
    fn unused_bytes_go_to_other_shards() {
        let mut shards = Shards::new(3, 2);
        shards.sent_in(5, &[&[500, 500], &[1_000_000, 0], &[0, 0]]);
        let sent = shards.sent_in(100, &[&[500, 500], &[1_000_000, 0], &[0, 0]]);
        assert_eq!(sent[0], [50_000, 50_000]);
        assert!((899_000..=901_000).contains(&sent[1][0]), "{sent:?}");
    }

    #[test]
    fn burst_delays_no_client_of_any_shard() {
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
    fn idle_ticks_keep_the_reserved_part() {
        let mut shards = Shards::with_burst(5 * TICK, 2, 4);
        for tick in 0..400 {
            let game: &[u64] = if tick % 3 == 0 { &[1500; 4] } else { &[0; 4] };
            let allowed = shards.tick(&[&[1_000_000], game]);
            assert!(tick < 5 || allowed[1] == game, "tick {tick}: {allowed:?}");
        }
    }

    #[test]
    fn unscheduled_bytes_are_charged_for_one_burst() {
        let mut shards = Shards::new(2, 1);
        let everything: &[&[u64]] = &[&[1_000_000], &[1_000_000]];
        shards.sent_in(5, everything);
        shards.uplinks[0].spend_unscheduled(8000);
        let sent = shards.tick(everything).concat().iter().sum::<u64>();
        assert!((1999..=2001).contains(&sent), "{sent} of 10,000 bytes are left");
        shards.uplinks[1].spend_unscheduled(1_000_000);
        let sent = shards.sent_in(4, everything).concat().iter().sum::<u64>();
        assert!((20_000..=40_000).contains(&sent), "what left long ago is forgotten: {sent}");
    }

    #[test]
    fn absent_shard_gets_one_burst_and_removed_shard_none() {
        let mut shards = Shards::new(2, 1);
        shards.sent_in(5, &[&[1_000_000], &[1_000_000]]);
        let alone = shards.sent_in(100, &[&[1_000_000]])[0][0];
        assert!((985_000..=1_000_000).contains(&alone), "{alone}");
        let now = Instant::from_start(TICK * shards.tick);
        assert!(shards.turn(1, &[1_000_000], now)[0] <= 10_000);
        shards.shared.remove_shard(ShardId(1));
        shards.sent_in(1, &[&[1_000_000]]);
        let alone = shards.sent_in(10, &[&[1_000_000]])[0][0];
        assert!((99_999..=100_001).contains(&alone), "{alone}");
    }

    #[test]
    fn expected_bytes_count_clients_of_all_shards() {
        let mut shards = Shards::new(2, 3);
        shards.sent_in(5, &[&[1_000_000], &[1_000_000; 3]]);
        assert_eq!(shards.uplinks[1].expected_bytes(SlotIndex(0)), 2500);
        assert_eq!(shards.uplinks[0].expected_bytes(SlotIndex(0)), 2500);
        assert_eq!(shards.uplinks[0].expected_bytes(SlotIndex(1)), 2000, "it would be one more");
        shards.uplinks[0].spend_unscheduled(5000);
        shards.tick(&[&[1_000_000], &[1_000_000; 3]]);
        assert_eq!(shards.uplinks[1].expected_bytes(SlotIndex(0)), 1250, "less what leaves without asking");
    }

    proptest! {
        #[test]
        fn shards_never_send_more_than_the_uplink_gains(
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
