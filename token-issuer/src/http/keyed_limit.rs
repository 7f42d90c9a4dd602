//! Limits of requests in a minute by client id or by address. All of them may come at once; they refill evenly.
//!
//! The crate `governor` has the algorithm (GCRA). Its own tables of keys grow without bound between two sweeps, so the
//! table here has a limit.

use core::hash::Hash;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::{Quota, RateLimiter};

/// The maximum number of keys in a table, about 4 MiB. A full table forgets the half with the fewest recent requests,
/// which admits more, never less.
const MAX_KEYS: usize = 65_536;

/// The requests of the last minute by key.
pub(super) struct KeyedLimit<K: Hash + Eq + Copy, C: Clock = DefaultClock> {
    limiter: RateLimiter<K, BoundedTable<K>, C, NoOpMiddleware<C::Instant>>,
    table: BoundedTable<K>,
    /// The time in which a request refills.
    interval: Nanos,
}

impl<K: Hash + Eq + Copy> KeyedLimit<K> {
    /// Creates a limit for each key of this number in a minute.
    pub(super) fn per_minute(count: NonZeroU32) -> Self {
        Self::with_clock(count, MAX_KEYS, DefaultClock::default())
    }
}

impl<K: Hash + Eq + Copy, C: Clock> KeyedLimit<K, C> {
    pub(super) fn with_clock(count: NonZeroU32, max_keys: usize, clock: C) -> Self {
        let (quota, table) = (Quota::per_minute(count), BoundedTable { max_keys, times: Arc::default() });
        let interval = quota.replenish_interval().into();
        Self { limiter: RateLimiter::new(quota, table.clone(), clock), table, interval }
    }

    /// Counts a request, or returns how long to wait for the next one.
    pub(super) fn count(&self, key: K) -> Result<(), Duration> {
        let limiter = &self.limiter;
        limiter.check_key(&key).map_err(|refused| refused.wait_time_from(limiter.clock().now()))
    }

    /// Takes back a request that was counted.
    pub(super) fn give_back(&self, key: K) {
        if let Some(time) = self.table.times().get_mut(&key) {
            *time = time.saturating_sub(self.interval);
        }
    }
}

/// The time of each key at which its allowance is full again. A clone is a handle to the same table.
#[derive(Clone)]
struct BoundedTable<K> {
    max_keys: usize,
    times: Arc<Mutex<HashMap<K, Nanos>>>,
}

impl<K> BoundedTable<K> {
    fn times(&self) -> MutexGuard<'_, HashMap<K, Nanos>> {
        // Poisoning is harmless: a count that is off by one.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Copy> StateStore for BoundedTable<K> {
    type Key = K;

    fn measure_and_replace<T, F, E>(&self, key: &K, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut times = self.times();
        let old = times.get(key).copied();
        let (outcome, new) = measure(old)?;
        if old.is_none() && times.len() >= self.max_keys {
            forget_half(&mut times);
        }
        times.insert(*key, new);
        Ok(outcome)
    }
}

/// Removes the half of the keys that have a full allowance soonest.
fn forget_half<K: Hash + Eq + Copy>(times: &mut HashMap<K, Nanos>) {
    let mut sorted: Vec<(Nanos, K)> = times.iter().map(|(key, time)| (*time, *key)).collect();
    let half = sorted.len() / 2;
    sorted.select_nth_unstable_by_key(half, |(time, _)| *time);
    sorted.iter().take(half.max(1)).for_each(|(_, key)| _ = times.remove(key));
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    fn limit(per_minute: u32, max_keys: usize) -> (KeyedLimit<u64, FakeRelativeClock>, FakeRelativeClock) {
        let clock = FakeRelativeClock::default();
        (KeyedLimit::with_clock(NonZeroU32::new(per_minute).unwrap(), max_keys, clock.clone()), clock)
    }

    #[test]
    fn allowance_is_used_at_once_and_refills_evenly() {
        let (limit, clock) = limit(6, 100);
        for _ in 0..6 {
            assert_eq!(limit.count(1), Ok(()));
        }
        assert_eq!(limit.count(1), Err(Duration::from_secs(10)));
        clock.advance(Duration::from_secs(4));
        assert_eq!(limit.count(1), Err(Duration::from_secs(6)), "a refused request costs nothing");
        assert_eq!(limit.count(2), Ok(()), "another client id");
        clock.advance(Duration::from_secs(6));
        assert_eq!(limit.count(1), Ok(()));
        assert_eq!(limit.count(1), Err(Duration::from_secs(10)));
        clock.advance(Duration::from_secs(120));
        for _ in 0..6 {
            assert_eq!(limit.count(1), Ok(()), "full again");
        }
        assert!(limit.count(1).is_err());
    }

    #[test]
    fn request_that_is_given_back_was_not_counted() {
        let (limit, clock) = limit(6, 100);
        limit.give_back(1);
        for _ in 0..100 {
            limit.count(1).unwrap();
            limit.give_back(1);
        }
        for _ in 0..6 {
            assert_eq!(limit.count(1), Ok(()));
        }
        assert_eq!(limit.count(1), Err(Duration::from_secs(10)), "and no other one was given back");
        clock.advance(Duration::from_secs(4));
        limit.give_back(1);
        assert_eq!(limit.count(1), Ok(()));
        assert_eq!(limit.count(1), Err(Duration::from_secs(6)));
    }

    #[test]
    fn full_table_forgets_idle_keys_and_keeps_busy_ones() {
        let (limit, _) = limit(2, 100);
        for _ in 0..2 {
            limit.count(7).unwrap();
        }
        for id in 1_000..100_000 {
            limit.count(id).unwrap();
            assert!(limit.limiter.clock().now() < Nanos::from(1_000_000_000));
        }
        assert!(limit.count(7).is_err(), "the busiest id stays");
        assert!(limit.table.times().len() <= 100);
    }

    #[test]
    fn highest_limit_is_finite() {
        let (limit, _) = limit(u32::MAX, 100);
        for _ in 0..1_000 {
            limit.count(1).unwrap();
        }
    }
}
