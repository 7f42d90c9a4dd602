//! Numbers that look random and are the same for a seed on every machine.
//!
//! It is xoshiro256** seeded by SplitMix64 (Blackman and Vigna, "Scrambled linear pseudorandom number generators",
//! 2021). It is written here, because generators of libraries may change their numbers with a version, and the table
//! in the specification would change with them.

use core::time::Duration;

/// A generator of numbers. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator of a seed for one purpose: two purposes of one seed have nothing to do with each other.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        let mut word = seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F);
        Self { state: [(); 4].map(|()| split_mix(&mut word)) }
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let result = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= shifted;
        *s3 = s3.rotate_left(45);
        result
    }

    /// A fraction of at least 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        let bits = (self.number() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// A number between two others.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// A number between two others, all orders of magnitude alike.
    pub fn between_in_proportion(&mut self, low: f64, high: f64) -> f64 {
        libm::exp(self.between(libm::log(low), libm::log(high)))
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.fraction() < probability
    }

    /// A duration between two others.
    pub fn duration(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_secs_f64(self.between(low.as_secs_f64(), high.as_secs_f64()))
    }

    /// A duration of this mean, distributed exponentially.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        Duration::from_secs_f64(-libm::log(1.0 - self.fraction()) * mean.as_secs_f64())
    }
}

fn split_mix(word: &mut u64) -> u64 {
    *word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *word;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_purpose_others() {
        let numbers = |seed, purpose| {
            let mut random = Random::new(seed, purpose);
            [(); 8].map(|()| random.number())
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        assert_ne!(numbers(7, 1), numbers(8, 1));
    }

    #[test]
    fn means_are_as_promised() {
        let mut random = Random::new(1, 1);
        let count = 100_000;
        let fraction: f64 = (0..count).map(|_| random.fraction()).sum::<f64>() / f64::from(count);
        assert!((fraction - 0.5).abs() < 0.005, "{fraction}");
        let mean = Duration::from_millis(10);
        let waited: f64 = (0..count).map(|_| random.exponential(mean).as_secs_f64()).sum::<f64>() / f64::from(count);
        assert!((waited - 0.010).abs() < 0.0002, "{waited}");
        let hits = (0..count).filter(|_| random.happens(0.05)).count();
        assert!((4700..5300).contains(&hits), "{hits}");
    }
}
