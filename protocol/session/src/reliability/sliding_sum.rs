//! A sum over the last ten buckets of time.

use core::time::Duration;

use slipgate_netcode::time::Instant;

const BUCKETS: u64 = 10;

/// The amounts of the last ten buckets of time. Nothing runs when nothing is added: reading skips expired buckets.
pub(super) struct SlidingSum {
    /// The length of a bucket, in nanoseconds.
    width: u64,
    amounts: [i64; BUCKETS as usize],
    /// The end of the newest bucket with an amount, in nanoseconds since the start of the clock; 0 if there is none.
    newest_end: u64,
    /// The index of that bucket.
    newest_index: u8,
    /// The first bucket with an amount, counted from the start of the clock.
    first: Option<u64>,
}

impl SlidingSum {
    /// Creates a sum over ten times `width`.
    pub(super) const fn new(width: Duration) -> Self {
        let width = width.as_nanos() as u64;
        Self { width, amounts: [0; BUCKETS as usize], newest_end: 0, newest_index: 0, first: None }
    }

    #[inline]
    pub(super) fn add(&mut self, amount: i64, now: Instant) {
        // Most amounts fall into the newest bucket, which a comparison finds without a division.
        if nanos(now) >= self.newest_end {
            self.advance_to(self.bucket(now));
        }
        if let Some(slot) = self.amounts.get_mut(usize::from(self.newest_index)) {
            *slot = slot.saturating_add(amount);
        }
    }

    /// Clears the buckets that time passed over, at most once around the ring.
    fn advance_to(&mut self, bucket: u64) {
        for stale in (self.newest() + 1..=bucket).rev().take(BUCKETS as usize) {
            if let Some(slot) = self.amounts.get_mut((stale % BUCKETS) as usize) {
                *slot = 0;
            }
        }
        self.first.get_or_insert(bucket);
        self.newest_end = (bucket + 1).saturating_mul(self.width);
        self.newest_index = (bucket % BUCKETS) as u8;
    }

    pub(super) fn sum(&self, now: Instant) -> i64 {
        // Never before the newest bucket: clocks of two callers may differ.
        let end = self.bucket(now).max(self.newest());
        let alive = (end.saturating_sub(BUCKETS - 1)..=self.newest()).rev().take(BUCKETS as usize);
        alive.filter_map(|bucket| self.amounts.get((bucket % BUCKETS) as usize)).sum()
    }

    /// Returns the sum per second of the time covered: nine buckets and a part of the tenth, less at the start, but
    /// at least one.
    pub(super) fn per_second(&self, now: Instant) -> f64 {
        let Some(first) = self.first else { return 0.0 };
        // Right after the start fewer than ten buckets are covered.
        let oldest = first.max((self.bucket(now).max(self.newest()) + 1).saturating_sub(BUCKETS));
        let width = Duration::from_nanos(self.width).as_secs_f64();
        let covered = (now.since_start().as_secs_f64() - width * oldest as f64).max(width);
        self.sum(now) as f64 / covered
    }

    fn bucket(&self, now: Instant) -> u64 {
        nanos(now) / self.width.max(1)
    }

    /// Returns the newest bucket with an amount, or 0.
    fn newest(&self) -> u64 {
        (self.newest_end / self.width.max(1)).saturating_sub(1)
    }
}

/// Uses 64 bits, as instants do: a 128-bit division would be the most expensive step of counting a packet.
fn nanos(now: Instant) -> u64 {
    now.since_start().as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn sum_drops_amounts_older_than_ten_buckets() {
        let mut recent = SlidingSum::new(Duration::from_millis(100));
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
    fn rate_is_right_from_the_first_bucket_on() {
        let mut recent = SlidingSum::new(Duration::from_millis(100));
        assert!(recent.per_second(at(0)).abs() < 1e-9);
        for millis in 0..3_000 {
            recent.add(1, at(millis));
            let rate = recent.per_second(at(millis));
            assert!(millis < 100 || (rate - 1000.0).abs() < 11.0, "{rate} at {millis} ms");
        }
    }
}
