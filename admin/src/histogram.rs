//! A histogram with fixed bounds, which can be copied and added.

use std::ops::AddAssign;

/// The number of bounded buckets of each histogram; one more counts all larger values.
pub(crate) const BUCKETS: usize = 12;

/// The upper bounds of the buckets, in ascending order.
pub(crate) type BucketBounds = [f64; BUCKETS];

/// The turn time, in seconds: a tick at 60 Hz takes at most 0.0167.
pub(crate) const TURN_SECONDS: BucketBounds =
    [0.000_05, 0.0001, 0.000_25, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.0167, 0.0333, 0.1, 1.0];
/// The round-trip time, in seconds.
pub(crate) const ROUND_TRIP_SECONDS: BucketBounds =
    [0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0];
/// The messages that wait or are not acknowledged, of one client.
pub(crate) const QUEUED_MESSAGES: BucketBounds =
    [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0];
/// The share of its congestion controller's rate that a client's traffic uses.
pub(crate) const BUDGET_USE_RATIOS: BucketBounds = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0];
/// The share of lost packets.
pub(crate) const LOSS_RATIOS: BucketBounds = [0.0, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0];

/// Counts of values, by bucket.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Histogram {
    bounds: &'static BucketBounds,
    counts: [u64; BUCKETS],
    larger: u64,
    sum: f64,
}

impl Histogram {
    pub(crate) const fn new(bounds: &'static BucketBounds) -> Self {
        Self { bounds, counts: [0; BUCKETS], larger: 0, sum: 0.0 }
    }

    /// Counts a value.
    pub(crate) fn add(&mut self, value: f64) {
        self.sum += value;
        let bucket = self.bounds.iter().position(|bound| value <= *bound);
        let count = bucket.and_then(|bucket| self.counts.get_mut(bucket)).unwrap_or(&mut self.larger);
        *count += 1;
    }

    /// Returns the sum of all values.
    pub(crate) const fn sum(&self) -> f64 {
        self.sum
    }

    /// Returns the number of all values.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum::<u64>() + self.larger
    }

    /// Returns the values that were added after an earlier state of the same histogram.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut new = *self;
        new.counts.iter_mut().zip(earlier.counts).for_each(|(count, less)| *count = count.saturating_sub(less));
        new.larger = self.larger.saturating_sub(earlier.larger);
        new.sum = (self.sum - earlier.sum).max(0.0);
        new
    }

    /// Returns the mean, `None` without values.
    pub(crate) fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum / count as f64)
    }

    /// Returns the bound of the bucket in which this share of the values ends: the last finite one for larger values,
    /// and `None` without values.
    pub(crate) fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (self.count() as f64 * share).ceil() as u64;
        let mut below = 0;
        let reached = self.bounds.iter().zip(self.counts).find_map(|(bound, count)| {
            below += count;
            (below >= wanted).then_some(*bound)
        });
        reached.or(self.bounds.last().copied()).filter(|_| wanted > 0)
    }

    /// Returns each bound with the count of its bucket alone; the last bound is infinite.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let last = (f64::INFINITY, self.larger);
        self.bounds.iter().copied().zip(self.counts).chain([last]).collect()
    }
}

impl AddAssign<&Self> for Histogram {
    fn add_assign(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(count, more)| *count += more);
        self.larger += other.larger;
        self.sum += other.sum;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_their_bound() {
        let mut histogram = Histogram::new(&LOSS_RATIOS);
        [0.0, 0.001, 0.002, 2.0].into_iter().for_each(|value| histogram.add(value));
        let mut sum = histogram;
        sum += &histogram;
        let buckets = sum.buckets();
        assert_eq!(buckets[..4], [(0.0, 2), (0.001, 2), (0.0025, 2), (0.005, 0)]);
        assert_eq!((buckets[BUCKETS], sum.count(), sum.sum()), ((f64::INFINITY, 2), 8, 4.006));
    }

    #[test]
    fn mean_and_quantile_are_those_of_the_new_values() {
        let mut histogram = Histogram::new(&LOSS_RATIOS);
        assert_eq!((histogram.mean(), histogram.quantile(0.99)), (None, None));
        histogram.add(1.0);
        let earlier = histogram;
        (0..99).for_each(|_| histogram.add(0.001));
        histogram.add(0.2);
        let new = histogram.since(&earlier);
        assert_eq!((new.count(), new.quantile(0.99), new.quantile(1.0)), (100, Some(0.001), Some(0.2)));
        assert!((new.mean().unwrap() - 0.002_99).abs() < 1e-9, "{new:?}");
        histogram.add(7.0);
        assert_eq!(histogram.quantile(1.0), Some(1.0), "the last finite bound");
    }

    #[test]
    fn bounds_ascend() {
        for bounds in [TURN_SECONDS, ROUND_TRIP_SECONDS, QUEUED_MESSAGES, LOSS_RATIOS, BUDGET_USE_RATIOS] {
            assert!(bounds.is_sorted(), "{bounds:?}");
        }
    }
}
