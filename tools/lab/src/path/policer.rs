//! A policer: what exceeds a rate is dropped at once, and nothing is ever late.

use slipgate_netcode::time::Instant;

/// A rate and how much may exceed it in a burst.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Police {
    /// Bytes per second.
    pub rate: f64,
    /// Bytes.
    pub bucket: f64,
}

/// A policer at work: a token bucket.
#[derive(Clone, Debug)]
pub struct Policer {
    police: Police,
    tokens: f64,
    filled_at: Instant,
}

impl Policer {
    /// A policer with a full bucket.
    #[must_use]
    pub fn new(police: Police) -> Self {
        Self { police, tokens: police.bucket, filled_at: Instant::default() }
    }

    /// Whether a packet of this size passes.
    pub fn passes(&mut self, bytes: u32, now: Instant) -> bool {
        let earned = now.since(self.filled_at).as_secs_f64() * self.police.rate;
        self.tokens = (self.tokens + earned).min(self.police.bucket);
        self.filled_at = now;
        let enough = self.tokens >= f64::from(bytes);
        if enough {
            self.tokens -= f64::from(bytes);
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn a_policer_lets_its_rate_pass_and_a_bucket_at_the_start() {
        let mut policer = Policer::new(Police { rate: 250_000.0, bucket: 20_000.0 });
        // Twice the rate for ten seconds.
        let passed: u32 = (0..5000_u64)
            .map(|packet| Instant::from_start(Duration::from_millis(2 * packet)))
            .filter(|now| policer.passes(1000, *now))
            .map(|_| 1000)
            .sum();
        assert!((2_510_000..=2_520_000).contains(&passed), "{passed}");
    }
}
