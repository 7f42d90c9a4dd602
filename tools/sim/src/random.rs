//! Chance by a seed: the same numbers for the same seed, on every machine and in every version.

use std::time::Duration;

use crate::units::Share;

/// What a stream of chance is for. Each cause has its own, so that a change of one condition moves no other's dice.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause {
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

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): small, quick, good enough for
/// everything but secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// A seed's stream for a cause.
    pub(crate) fn new(seed: u64, cause: Cause) -> Self {
        let mut seeds = Self { state: seed };
        let start = seeds.next();
        Self { state: start ^ mix(cause as u64 + 1) }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix(self.state)
    }

    /// Whether something happens that happens to this share. A share of none or all draws a number, too.
    pub(crate) fn hits(&mut self, share: Share) -> bool {
        // 53 bits are as many as a fraction has.
        let fraction = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        fraction < share.fraction()
    }

    /// A number from 0 to `end`, that is, below it; 0 for 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A time from `shortest` to `longest`, both included.
    pub(crate) fn time(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let nanos = u64::try_from(longest.saturating_sub(shortest).as_nanos()).unwrap_or(u64::MAX);
        shortest.saturating_add(Duration::from_nanos(self.below(nanos.saturating_add(1))))
    }

    /// A time from half of `middle` to one and a half of it.
    pub(crate) fn about(&mut self, middle: Duration) -> Duration {
        self.time(middle / 2, middle.saturating_add(middle / 2))
    }
}

const fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_published_generator() {
        // The first numbers of SplitMix64 from the state 1234567, as other implementations give them.
        let mut random = Random { state: 1_234_567 };
        let numbers = [random.next(), random.next(), random.next()];
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn causes_and_seeds_have_streams_of_their_own() {
        let first = |seed, cause| Random::new(seed, cause).next();
        assert_eq!(first(1, Cause::Loss), first(1, Cause::Loss));
        assert_ne!(first(1, Cause::Loss), first(1, Cause::Jitter));
        assert_ne!(first(1, Cause::Loss), first(2, Cause::Loss));
    }

    #[test]
    fn times_stay_within_their_ends() {
        let mut random = Random::new(3, Cause::Jitter);
        let (shortest, longest) = (Duration::from_nanos(5), Duration::from_nanos(8));
        let mut seen = [false; 4];
        for _ in 0..1000 {
            let time = random.time(shortest, longest);
            seen[usize::try_from((time - shortest).as_nanos()).unwrap()] = true;
        }
        assert_eq!(seen, [true; 4], "both ends included");
        assert_eq!(random.time(longest, shortest), longest, "ends the wrong way round are one time");
        assert!(random.about(Duration::MAX) >= Duration::MAX / 2);
    }

    #[test]
    fn none_never_happens_and_all_always_does() {
        let mut random = Random::new(4, Cause::Loss);
        assert!((0..1000).all(|_| !random.hits(Share::NONE) && random.hits(Share::ALL)));
    }
}
