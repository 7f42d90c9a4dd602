//! Clock epochs: which expiries were forgotten while the wall clock ran evenly, and when it was stepped.
//!
//! A used token is forgotten when it has expired. If the wall clock is stepped back later, the token is in time again,
//! so its expiry must be remembered. One latest expiry for all would be too coarse: after a glitch of an hour ahead, it
//! would refuse each token for an hour. So the expiries are kept as one interval for each *epoch*, a time in which wall
//! clock and monotonic clock advanced together.

use crate::time::{Now, UnixSeconds};

/// The change of the wall clock against the monotonic clock that begins an epoch, in milliseconds. Slewing by NTP and
/// reading the two clocks one after the other stay far below it. Tokens have whole seconds.
pub(crate) const CLOCK_STEP_MILLIS: u64 = 2000;

/// The maximum of earlier epochs whose intervals are stored. That of a further one joins the nearest.
const MAX_PAST: usize = 32;

/// The number of an epoch since the start, from 0. It repeats after 2^32 steps of the clock, which is harmless: then an
/// entry is kept longer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Epoch(u32);

/// The forgotten expiries of an earlier epoch, or of an earlier start (`None`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Past {
    epoch: Option<Epoch>,
    interval: Interval,
}

/// Forgotten expiries, both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Interval {
    first: UnixSeconds,
    last: UnixSeconds,
}

impl Interval {
    const fn contains(self, expires: UnixSeconds) -> bool {
        self.first.0 <= expires.0 && expires.0 <= self.last.0
    }

    fn join(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    /// Returns the seconds between two intervals, 0 if they overlap.
    fn gap(self, other: Self) -> u64 {
        let (behind, ahead) = (other.first.0.saturating_sub(self.last.0), self.first.0.saturating_sub(other.last.0));
        behind.max(ahead)
    }
}

/// The forgotten expiries of each clock epoch.
pub(super) struct ForgottenExpiries {
    epoch: Epoch,
    /// The wall clock minus the monotonic clock at the start of the epoch, in milliseconds.
    offset: Option<i128>,
    /// The expiries that this epoch has forgotten.
    present: Option<Interval>,
    past: [Option<Past>; MAX_PAST],
}

impl ForgottenExpiries {
    pub(super) const fn new() -> Self {
        Self { epoch: Epoch(0), offset: None, present: None, past: [None; MAX_PAST] }
    }

    /// Compares the two clocks, and begins an epoch when the wall clock was stepped. Returns the present epoch.
    pub(super) fn observe(&mut self, now: Now) -> Epoch {
        let offset = i128::from(now.unix.0) - now.monotonic.since_start().as_millis() as i128;
        match self.offset {
            Some(before) if before.abs_diff(offset) <= u128::from(CLOCK_STEP_MILLIS) => {}
            before => {
                self.offset = Some(offset);
                // The first reading begins epoch 0.
                if before.is_some() {
                    let ended = self.epoch;
                    self.epoch = Epoch(ended.0.wrapping_add(1));
                    if let Some(interval) = self.present.take() {
                        self.store(Past { epoch: Some(ended), interval });
                    }
                }
            }
        }
        self.epoch
    }

    /// Stores that a used token with this expiry, used in `epoch`, was forgotten.
    pub(super) fn insert(&mut self, expires: UnixSeconds, epoch: Epoch) {
        let forgotten = Interval { first: expires, last: expires };
        if epoch == self.epoch {
            self.present = Some(self.present.map_or(forgotten, |present| present.join(forgotten)));
        } else {
            self.store(Past { epoch: Some(epoch), interval: forgotten });
        }
    }

    /// Stores that all tokens which expire by this second may have been forgotten, by an earlier start.
    pub(super) fn insert_until(&mut self, expires: UnixSeconds) {
        self.store(Past { epoch: None, interval: Interval { first: UnixSeconds(0), last: expires } });
    }

    /// Returns whether a used token with this expiry may have been forgotten.
    pub(super) fn may_contain(&self, expires: UnixSeconds) -> bool {
        let past = self.past.iter().flatten().map(|past| past.interval);
        self.present.into_iter().chain(past).any(|interval| interval.contains(expires))
    }

    /// Stores forgotten expiries, joined with those of the same epoch. Two epochs are not joined, however close they
    /// are: between them are the tokens that are minted when the clock is right again.
    fn store(&mut self, added: Past) {
        let same = |past: &&mut Option<Past>| past.is_some_and(|past| past.epoch == added.epoch);
        if let Some(Some(same)) = self.past.iter_mut().find(same) {
            same.interval = same.interval.join(added.interval);
            return;
        }
        if let Some(free) = self.past.iter_mut().find(|past| past.is_none()) {
            *free = Some(added);
            return;
        }
        // The joined interval covers both, so nothing that was forgotten is lost.
        let nearest = self.past.iter_mut().flatten().min_by_key(|past| past.interval.gap(added.interval));
        if let Some(nearest) = nearest {
            nearest.interval = nearest.interval.join(added.interval);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Instant, UnixMillis};
    use core::time::Duration;
    use std::vec::Vec;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    fn at(monotonic: u64, unix: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_millis(monotonic)), unix: UnixMillis(unix) }
    }

    #[test]
    fn only_a_step_of_more_than_two_seconds_begins_an_epoch() {
        for (step, begins) in [(0, false), (1999, false), (2000, false), (2001, true), (3_600_000, true)] {
            for back in [false, true] {
                let mut forgotten = ForgottenExpiries::new();
                let first = forgotten.observe(at(0, 10_000_000));
                let unix = if back { 10_005_000 - step } else { 10_005_000 + step };
                assert_eq!(forgotten.observe(at(5000, unix)) != first, begins, "{step} ms, back: {back}");
            }
        }
    }

    #[test]
    fn glitch_of_an_hour_leaves_the_hour_before_it_free() {
        let mut forgotten = ForgottenExpiries::new();
        let normal = forgotten.observe(at(0, 1_000_000));
        forgotten.insert(UnixSeconds(1000), normal);
        let glitch = forgotten.observe(at(1000, 1_001_000 + 3_600_000));
        forgotten.insert(UnixSeconds(4605), glitch);
        forgotten.observe(at(2000, 1_002_000));
        forgotten.insert(UnixSeconds(4640), glitch);
        for (expires, expected) in [
            (999, false),
            (1000, true),
            (1001, false),
            (1031, false),
            (4604, false),
            (4605, true),
            (4620, true),
            (4640, true),
            (4641, false),
        ] {
            assert_eq!(forgotten.may_contain(UnixSeconds(expires)), expected, "{expires}");
        }
    }

    /// A glitch that is shorter than the life of a few tokens leaves free what is minted after it.
    #[test]
    fn glitch_of_any_length_leaves_later_tokens_free() {
        const LIFE: u64 = 30;
        for glitch in [3, 45, 60, 90, 115, 121, 3600] {
            let mut forgotten = ForgottenExpiries::new();
            let normal = forgotten.observe(at(0, 1_000_000));
            let during = forgotten.observe(at(1000, 1_001_000 + glitch * 1000));
            forgotten.observe(at(2000, 1_002_000));
            // They expire by the monotonic clock: those of before the glitch, and the one of the glitch.
            (1001..=1030).for_each(|expires| forgotten.insert(UnixSeconds(expires), normal));
            forgotten.insert(UnixSeconds(1001 + glitch + LIFE), during);
            let refused: Vec<_> = (1031..5000).filter(|expires| forgotten.may_contain(UnixSeconds(*expires))).collect();
            assert_eq!(refused, [1001 + glitch + LIFE], "glitch of {glitch} s");
        }
    }

    #[test]
    fn the_expiries_of_32_earlier_epochs_are_kept_apart() {
        for (steps, joined) in [(32, 0), (33, 1), (34, 2)] {
            let mut forgotten = ForgottenExpiries::new();
            for step in 0..steps {
                let epoch = forgotten.observe(at(step, 1_000_000 + step * 1_000_000));
                forgotten.insert(UnixSeconds(1000 * step), epoch);
            }
            forgotten.observe(at(steps, 1_000_000 + steps * 1_000_000));
            let between = (1..steps).filter(|step| forgotten.may_contain(UnixSeconds(1000 * step - 500)));
            assert_eq!(between.count(), joined, "{steps} steps of the clock");
        }
    }

    #[test]
    fn no_forgotten_expiry_is_lost_when_intervals_are_joined() {
        for seed in 0..40 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut forgotten, mut inserted) = (ForgottenExpiries::new(), Vec::new());
            let mut epochs = Vec::new();
            for step in 0..400_u64 {
                epochs.push(forgotten.observe(at(step, random.random_range(0..1_000_000_000))));
                let expires = UnixSeconds(random.random_range(0..1_000_000));
                forgotten.insert(expires, epochs[random.random_range(0..epochs.len())]);
                inserted.push(expires);
                assert!(inserted.iter().all(|expires| forgotten.may_contain(*expires)), "seed {seed}, step {step}");
            }
        }
    }
}
