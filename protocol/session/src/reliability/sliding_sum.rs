//! Sums over the last ten buckets of time.

use core::time::Duration;

use slipgate_netcode::time::Instant;

const BUCKETS: u64 = 10;

/// The amounts of `N` kinds in the last ten buckets of time. Nothing runs when nothing is added: reading skips expired
/// buckets.
///
/// Adding changes the totals alone. A new bucket stores what the totals are at its start, so that a sum is a difference
/// of totals, and most packets touch nothing but the first fields.
pub(super) struct SlidingSums<const N: usize> {
    /// All amounts so far.
    totals: [i64; N],
    /// The end of the newest bucket with an amount, in nanoseconds since the start of the clock; 0 if there is none.
    newest_end: u64,
    /// The length of a bucket, in nanoseconds.
    width: u64,
    /// The first bucket with an amount, counted from the start of the clock.
    first: Option<u64>,
    /// The totals at the start of each of the last ten buckets.
    starts: [[i64; N]; BUCKETS as usize],
}

impl<const N: usize> SlidingSums<N> {
    /// Creates sums over ten times `width`.
    pub(super) const fn new(width: Duration) -> Self {
        let width = width.as_nanos() as u64;
        Self { totals: [0; N], newest_end: 0, width, first: None, starts: [[0; N]; BUCKETS as usize] }
    }

    /// Adds to each kind its amount.
    #[inline]
    pub(super) fn add(&mut self, amounts: [i64; N], now: Instant) {
        // Most amounts fall into the newest bucket, which a comparison finds without a division.
        if now.as_nanos() >= self.newest_end {
            self.advance_to(self.bucket(now));
        }
        for (total, amount) in self.totals.iter_mut().zip(amounts) {
            // Sums are differences of totals, which a wrap does not change.
            *total = total.wrapping_add(amount);
        }
    }

    /// Begins the buckets that time passed over, at most once around the ring.
    #[cold]
    fn advance_to(&mut self, bucket: u64) {
        for passed in (self.newest() + 1..=bucket).rev().take(BUCKETS as usize) {
            if let Some(start) = self.starts.get_mut((passed % BUCKETS) as usize) {
                *start = self.totals;
            }
        }
        self.first.get_or_insert(bucket);
        self.newest_end = (bucket + 1).saturating_mul(self.width);
    }

    pub(super) fn sums(&self, now: Instant) -> [i64; N] {
        // Never before the newest bucket: clocks of two callers may differ.
        let oldest = (self.bucket(now).max(self.newest()) + 1).saturating_sub(BUCKETS);
        if oldest > self.newest() {
            return [0; N];
        }
        // Nothing was added before the first bucket.
        let is_young = self.first.is_none_or(|first| oldest <= first);
        let start = self.starts.get((oldest % BUCKETS) as usize).filter(|_| !is_young).copied().unwrap_or([0; N]);
        core::array::from_fn(|kind| match (self.totals.get(kind), start.get(kind)) {
            (Some(total), Some(start)) => total.wrapping_sub(*start),
            _ => 0,
        })
    }

    /// Returns the sums per second of the time covered: nine buckets and a part of the tenth, less at the start, but
    /// at least one.
    pub(super) fn per_second(&self, now: Instant) -> [f64; N] {
        let Some(first) = self.first else { return [0.0; N] };
        // Right after the start fewer than ten buckets are covered.
        let oldest = first.max((self.bucket(now).max(self.newest()) + 1).saturating_sub(BUCKETS));
        let width = Duration::from_nanos(self.width).as_secs_f64();
        let covered = (now.since_start().as_secs_f64() - width * oldest as f64).max(width);
        self.sums(now).map(|sum| sum as f64 / covered)
    }

    fn bucket(&self, now: Instant) -> u64 {
        now.as_nanos() / self.width.max(1)
    }

    /// Returns the newest bucket with an amount, or 0.
    fn newest(&self) -> u64 {
        (self.newest_end / self.width.max(1)).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn sum_drops_amounts_older_than_ten_buckets() {
        let mut recent = SlidingSums::new(Duration::from_millis(100));
        for (add_at, amount) in [(5_000, 1), (5_099, 2), (5_500, 4), (5_950, 8)] {
            recent.add([amount], at(add_at));
        }
        for (asked, expected) in
            [(5_950, 15), (5_999, 15), (6_000, 12), (6_499, 12), (6_500, 8), (6_899, 8), (6_900, 0), (90_000, 0)]
        {
            assert_eq!(recent.sums(at(asked)), [expected], "at {asked} ms");
        }
        recent.add([16], at(90_000));
        assert_eq!(recent.sums(at(90_001)), [16]);
    }

    #[test]
    fn rate_is_right_from_the_first_bucket_on() {
        let mut recent = SlidingSums::new(Duration::from_millis(100));
        assert!(recent.per_second(at(0))[0].abs() < 1e-9);
        for millis in 0..3_000 {
            recent.add([1], at(millis));
            let [rate] = recent.per_second(at(millis));
            assert!(millis < 100 || (rate - 1000.0).abs() < 11.0, "{rate} at {millis} ms");
        }
    }
}
