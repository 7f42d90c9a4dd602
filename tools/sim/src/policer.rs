//! A policer: drops packets beyond a rate at once and delays none.

use slipgate_netcode::time::Instant;

/// The settings of a policer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicerConfig {
    /// The sustained rate, in bytes per second.
    pub rate: f64,
    /// The size of the token bucket: the largest burst above the rate, in bytes.
    pub bucket: f64,
}

/// A policer: a token bucket without a queue.
#[derive(Clone, Debug)]
pub struct Policer {
    config: PolicerConfig,
    tokens: f64,
    filled_at: Instant,
}

impl Policer {
    /// Creates a policer with a full bucket.
    #[must_use]
    pub fn new(config: PolicerConfig) -> Self {
        Self { config, tokens: config.bucket, filled_at: Instant::default() }
    }

    /// Returns whether a packet of this size passes. A packet that passes consumes tokens.
    pub fn admits(&mut self, bytes: u32, now: Instant) -> bool {
        let earned = now.since(self.filled_at).as_secs_f64() * self.config.rate;
        self.tokens = (self.tokens + earned).min(self.config.bucket);
        self.filled_at = now;
        let is_covered = self.tokens >= f64::from(bytes);
        if is_covered {
            self.tokens -= f64::from(bytes);
        }
        is_covered
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn policer_admits_its_rate_and_one_bucket() {
        let mut policer = Policer::new(PolicerConfig { rate: 250_000.0, bucket: 20_000.0 });
        // Twice the rate for ten seconds.
        let passed: u32 = (0..5000_u64)
            .map(|packet| Instant::from_start(Duration::from_millis(2 * packet)))
            .filter(|now| policer.admits(1000, *now))
            .map(|_| 1000)
            .sum();
        assert!((2_510_000..=2_520_000).contains(&passed), "{passed}");
    }
}
