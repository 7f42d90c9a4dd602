//! The round-trip time: its smoothed value, and its spread over the last samples (§2.5).

use alloc::vec::Vec;
use core::time::Duration;

use super::stats::{Jitter, RttStats};

/// Two values nearer to each other than this, in milliseconds, count as equal (§2.5).
const SAME: f64 = 0.00001;

/// The estimate of the round-trip time. A sample costs a few additions.
pub(super) struct Rtt {
    smoothing: f64,
    /// Milliseconds.
    smoothed: f64,
    /// Nanoseconds.
    latest: u64,
    history: RttHistory,
}

impl Rtt {
    pub(super) fn new(smoothing: f64, samples: u16) -> Self {
        Self { smoothing, smoothed: 0.0, latest: 0, history: RttHistory::new(samples) }
    }

    /// Adds a sample in nanoseconds.
    #[inline]
    pub(super) fn sample(&mut self, rtt: u64) {
        // Signed, because x86 converts only signed integers in one instruction.
        let millis = rtt as i64 as f64 / 1e6;
        let off = millis - self.smoothed;
        // An average of zero means that there is none (§2.5).
        let is_start = self.smoothed <= 0.0 || off.abs() < SAME;
        self.smoothed = if is_start { millis } else { self.smoothed + off * self.smoothing };
        self.latest = rtt;
        self.history.add(rtt);
    }

    /// Returns the statistics. It scans the history, which takes some hundred nanoseconds.
    pub(super) fn stats(&self) -> Option<RttStats> {
        let (min, max) = self.history.extremes()?;
        let mean = self.history.mean();
        Some(RttStats {
            latest: Duration::from_nanos(self.latest),
            smoothed: millis(self.smoothed),
            min,
            max,
            mean,
            jitter: Jitter {
                mean_over_min: mean.saturating_sub(min),
                max_over_min: max.saturating_sub(min),
                deviation: self.history.deviation(),
            },
        })
    }
}

fn millis(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1000.0).unwrap_or(Duration::ZERO)
}

/// The last samples, in microseconds. It takes memory with the first sample.
struct RttHistory {
    samples: Vec<u32>,
    /// The most samples that are kept; a new one then replaces the oldest.
    size: u16,
    next: u16,
}

impl RttHistory {
    const fn new(samples: u16) -> Self {
        Self { samples: Vec::new(), size: samples, next: 0 }
    }

    #[inline]
    fn add(&mut self, rtt: u64) {
        let micros = u32::try_from(rtt / 1000).unwrap_or(u32::MAX);
        if let Some(oldest) = self.samples.get_mut(usize::from(self.next)) {
            *oldest = micros;
        } else {
            // Reserve the whole history with the first sample, so that a warm endpoint allocates nothing and an idle
            // one holds none.
            self.samples.reserve_exact(usize::from(self.size) - self.samples.len());
            self.samples.push(micros);
        }
        self.next = if self.next + 1 < self.size { self.next + 1 } else { 0 };
    }

    fn extremes(&self) -> Option<(Duration, Duration)> {
        let (min, max) = (self.samples.iter().min()?, self.samples.iter().max()?);
        Some((Duration::from_micros((*min).into()), Duration::from_micros((*max).into())))
    }

    fn sum(&self) -> u64 {
        self.samples.iter().map(|micros| u64::from(*micros)).sum()
    }

    fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum().saturating_mul(1000) / self.samples.len().max(1) as u64)
    }

    /// Returns the standard deviation, from the sums: n² var = n Σx² - (Σx)².
    fn deviation(&self) -> Duration {
        let count = self.samples.len().max(1) as u128;
        let squares: u128 = self.samples.iter().map(|micros| u128::from(*micros).pow(2)).sum();
        // Saturating: rounding of the sums must not turn a zero deviation into an underflow.
        let spread = (count * squares).saturating_sub(u128::from(self.sum()).pow(2));
        Duration::from_nanos(u64::try_from(spread.isqrt() * 1000 / count).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::super::constants;
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn each_sample_moves_the_estimate_by_ten_percent() {
        let mut rtt = Rtt::new(constants::RTT_SMOOTHING, 16);
        assert_eq!(rtt.stats(), None);
        for (sample, smoothed) in [(0, 0), (100, 100_000), (200, 110_000), (110, 110_000), (10, 100_000)] {
            rtt.sample(sample * 1_000_000);
            let stats = rtt.stats().unwrap();
            assert!(stats.smoothed.abs_diff(Duration::from_micros(smoothed)) < Duration::from_nanos(10), "{sample}");
            assert_eq!(stats.latest, ms(sample));
        }
    }

    proptest! {
        #[test]
        fn spread_is_that_of_the_last_samples(
            samples in prop::collection::vec(prop_oneof![0..1000_u64, 0..u64::from(u32::MAX)], 1..100),
            size in 1..40_u16,
        ) {
            let mut rtt = Rtt::new(constants::RTT_SMOOTHING, size);
            for sample in &samples {
                rtt.sample(sample * 1000);
            }
            let last: Vec<f64> = samples.iter().rev().take(size.into()).map(|micros| *micros as f64).collect();
            let mean = last.iter().sum::<f64>() / last.len() as f64;
            let variance = last.iter().map(|sample| (sample - mean) * (sample - mean)).sum::<f64>() / last.len() as f64;
            let min = last.iter().copied().fold(f64::INFINITY, f64::min);
            let max = last.iter().copied().fold(0.0, f64::max);
            let stats = rtt.stats().unwrap();
            for (name, duration, expected) in [
                ("min", stats.min, min),
                ("max", stats.max, max),
                ("mean", stats.mean, mean),
                ("mean over min", stats.jitter.mean_over_min, mean - min),
                ("max over min", stats.jitter.max_over_min, max - min),
                ("deviation", stats.jitter.deviation, variance.sqrt()),
            ] {
                let micros = duration.as_secs_f64() * 1e6;
                prop_assert!((micros - expected).abs() < 1.0 + expected * 1e-6, "{}: {} {}", name, micros, expected);
            }
        }
    }
}
