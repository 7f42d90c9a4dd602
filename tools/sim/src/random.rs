//! Random numbers that are the same for a seed on every machine and in every version.
//!
//! The generator is xoshiro256** seeded by SplitMix64 (Blackman and Vigna, "Scrambled linear pseudorandom number
//! generators", 2021). It is written here because library generators may change their numbers with a version, and
//! `specs/congestion-table.md` would change with them. The conditioner, the laboratory and the tests share it.

use std::time::Duration;

use crate::units::Share;

/// A random process of the conditioner. Each has a stream of its own, so that changing one condition leaves the
/// numbers of all others unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Process {
    Loss,
    Duplication,
    Corruption,
    Jitter,
    Reordering,
    Stalls,
    Nat,
    Up,
    Down,
    #[cfg(feature = "proxy")]
    Clients,
}

impl Process {
    /// Returns the stream of this process for a seed.
    pub(crate) fn stream(self, seed: u64) -> Random {
        Random::new(seed, self as u64)
    }
}

/// A pseudorandom generator. It must not be used for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// Creates the generator of one stream of a seed. The streams of a seed are independent of each other.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut word = seed.wrapping_mul(0xD134_2543_DE82_EF95) ^ stream.wrapping_mul(0xA076_1D64_78BD_642F);
        Self { state: [(); 4].map(|()| split_mix(&mut word)) }
    }

    /// Returns the next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
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

    /// Returns a number of at least 0 and below 1.
    pub fn fraction(&mut self) -> f64 {
        // An f64 has a mantissa of 53 bits.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns whether an event occurs that has this probability. A share of none or all consumes no number, so that
    /// a process with certain outcomes can be switched on without shifting its stream.
    pub fn hits(&mut self, share: Share) -> bool {
        match share {
            Share::NONE => false,
            Share::ALL => true,
            share => self.fraction() < share.fraction(),
        }
    }

    /// Returns an integer of at least 0 and below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // Lemire's multiplication ("Fast random integer generation in an interval", 2019) without its rejection
        // step: the bias is below `end` / 2^64.
        ((u128::from(self.next_u64()) * u128::from(end)) >> 64) as u64
    }

    /// Returns a number from `low` to `high`, uniformly.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// Returns a number from `low` to `high` with a uniform logarithm: each order of magnitude is equally likely.
    pub fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        libm::exp(self.between(libm::log(low), libm::log(high)))
    }

    /// Returns a duration from `low` to `high`, uniformly, computed in floating-point seconds.
    pub fn duration_between(&mut self, low: Duration, high: Duration) -> Duration {
        Duration::from_secs_f64(self.between(low.as_secs_f64(), high.as_secs_f64()))
    }

    /// Returns a duration from `shortest` to `longest`, both included, in whole nanoseconds.
    ///
    /// Unlike [`duration_between`](Self::duration_between) it takes every duration, [`Duration::MAX`] too. Both
    /// remain, because one in place of the other would change the laboratory's figures or the conditioner's bounds.
    pub fn nanos_between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.saturating_sub(shortest).as_nanos()).unwrap_or(u64::MAX);
        shortest.saturating_add(Duration::from_nanos(self.below(nanos.saturating_add(1))))
    }

    /// Returns a duration from half of `middle` to one and a half of it.
    pub fn around(&mut self, middle: Duration) -> Duration {
        self.nanos_between(middle / 2, middle.saturating_add(middle / 2))
    }

    /// Returns an exponentially distributed duration with this mean.
    pub fn exponential(&mut self, mean: Duration) -> Duration {
        Duration::from_secs_f64(-libm::log(1.0 - self.fraction()) * mean.as_secs_f64())
    }
}

const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the next number of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
fn split_mix(word: &mut u64) -> u64 {
    *word = word.wrapping_add(GOLDEN_GAMMA);
    let mut mixed = *word;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_equal_those_of_the_published_generators() {
        // SplitMix64 from the state 1234567, as other implementations compute it.
        let mut word = 1_234_567;
        let numbers = [(); 3].map(|()| split_mix(&mut word));
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
        // xoshiro256** from the state 1, 2, 3, 4, as the crate `rand_xoshiro` tests it.
        let mut random = Random { state: [1, 2, 3, 4] };
        assert_eq!([(); 4].map(|()| random.next_u64()), [11_520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn seeds_and_streams_are_independent() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [(); 8].map(|()| random.next_u64())
        };
        assert_eq!(numbers(7, 1), numbers(7, 1));
        assert_ne!(numbers(7, 1), numbers(7, 2));
        assert_ne!(numbers(7, 1), numbers(8, 1));
        let first = |seed, process: Process| process.stream(seed).next_u64();
        assert_eq!(first(1, Process::Loss), first(1, Process::Loss));
        assert_ne!(first(1, Process::Loss), first(1, Process::Jitter));
        assert_ne!(first(1, Process::Loss), first(2, Process::Loss));
    }

    #[test]
    fn durations_stay_within_their_bounds() {
        let mut random = Process::Jitter.stream(3);
        let (shortest, longest) = (Duration::from_nanos(5), Duration::from_nanos(8));
        let mut seen = [false; 4];
        for _ in 0..1000 {
            let time = random.nanos_between(shortest, longest);
            seen[usize::try_from((time - shortest).as_nanos()).unwrap()] = true;
        }
        assert_eq!(seen, [true; 4], "both bounds are included");
        assert_eq!(random.nanos_between(longest, shortest), longest, "reversed bounds give one duration");
        assert!(random.around(Duration::MAX) >= Duration::MAX / 2);
    }

    #[test]
    fn share_of_none_never_hits_and_of_all_always() {
        let mut random = Process::Loss.stream(4);
        assert!((0..1000).all(|_| !random.hits(Share::NONE) && random.hits(Share::ALL)));
    }

    #[test]
    fn means_match_their_distributions() {
        let mut random = Random::new(1, 1);
        let count = 100_000;
        let fraction: f64 = (0..count).map(|_| random.fraction()).sum::<f64>() / f64::from(count);
        assert!((fraction - 0.5).abs() < 0.005, "{fraction}");
        let mean = Duration::from_millis(10);
        let waited: f64 = (0..count).map(|_| random.exponential(mean).as_secs_f64()).sum::<f64>() / f64::from(count);
        assert!((waited - 0.010).abs() < 0.0002, "{waited}");
        let hits = (0..count).filter(|_| random.hits(Share::percent(5.0))).count();
        assert!((4700..5300).contains(&hits), "{hits}");
    }
}
