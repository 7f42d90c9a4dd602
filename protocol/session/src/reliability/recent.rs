//! A sum over the recent past.

use core::time::Duration;

use slipgate_netcode::time::Instant;

const BUCKETS: u64 = 10;

/// What was added in the last ten buckets of time. Nothing happens when nothing is added: old buckets are passed over
/// when somebody asks.
pub(super) struct Recent {
    width: Duration,
    amounts: [i64; BUCKETS as usize],
    /// The bucket in which something was added last, and the first one of all, counted from the clock's start.
    newest: u64,
    first: Option<u64>,
}

impl Recent {
    /// A sum over ten times `width`.
    pub(super) const fn new(width: Duration) -> Self {
        Self { width, amounts: [0; BUCKETS as usize], newest: 0, first: None }
    }

    pub(super) fn add(&mut self, amount: i64, now: Instant) {
        let bucket = self.bucket(now).max(self.newest);
        for stale in (self.newest + 1..=bucket).rev().take(BUCKETS as usize) {
            if let Some(place) = self.amounts.get_mut((stale % BUCKETS) as usize) {
                *place = 0;
            }
        }
        self.newest = bucket;
        self.first.get_or_insert(bucket);
        if let Some(place) = self.amounts.get_mut((bucket % BUCKETS) as usize) {
            *place = place.saturating_add(amount);
        }
    }

    pub(super) fn sum(&self, now: Instant) -> i64 {
        let end = self.bucket(now).max(self.newest);
        let alive = (end.saturating_sub(BUCKETS - 1)..=self.newest).rev().take(BUCKETS as usize);
        alive.filter_map(|bucket| self.amounts.get((bucket % BUCKETS) as usize)).sum()
    }

    /// The sum for each second of the time that it covers: nine buckets and a part of the tenth, less in the beginning,
    /// but never less than one.
    pub(super) fn per_second(&self, now: Instant) -> f64 {
        let Some(first) = self.first else { return 0.0 };
        let oldest = first.max((self.bucket(now).max(self.newest) + 1).saturating_sub(BUCKETS));
        let began = self.width.as_secs_f64() * oldest as f64;
        let covered = (now.since_start().as_secs_f64() - began).max(self.width.as_secs_f64());
        self.sum(now) as f64 / covered
    }

    fn bucket(&self, now: Instant) -> u64 {
        nanos(now.since_start()) / nanos(self.width).max(1)
    }
}

/// In 64 bits, as moments are: a division in 128 would be the dearest step of counting a packet.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn a_sum_forgets_what_is_older_than_its_ten_buckets() {
        let mut recent = Recent::new(Duration::from_millis(100));
        for (add_at, amount) in [(5_000, 1), (5_099, 2), (5_500, 4), (5_950, 8)] {
            recent.add(amount, at(add_at));
        }
        for (asked, expected) in
            [(5_950, 15), (5_999, 15), (6_000, 12), (6_499, 12), (6_500, 8), (6_899, 8), (6_900, 0), (90_000, 0)]
        {
            assert_eq!(recent.sum(at(asked)), expected, "at {asked} ms");
        }
        recent.add(16, at(90_000));
        assert_eq!(recent.sum(at(90_001)), 16);
    }

    #[test]
    fn a_rate_is_right_from_the_first_bucket_on() {
        let mut recent = Recent::new(Duration::from_millis(100));
        assert!(recent.per_second(at(0)).abs() < 1e-9);
        for millis in 0..3_000 {
            recent.add(1, at(millis));
            let rate = recent.per_second(at(millis));
            assert!(millis < 100 || (rate - 1000.0).abs() < 11.0, "{rate} at {millis} ms");
        }
    }
}
