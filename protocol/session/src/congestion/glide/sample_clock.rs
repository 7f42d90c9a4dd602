//! When the path is sampled: at each feedback, and rarely while there is nothing to decide (Glide §4.9).

use super::super::units::{Bounded, Seconds};

/// The longest time between two samples that counts, in seconds: growth would jump after a silence.
const MAX_STEP: Seconds = Seconds(0.25);
/// The time between two samples of a quiet path, in seconds.
const QUIET_INTERVAL: Seconds = Seconds(0.1);
/// A path is quiet while packets meet a queue below this share of the target.
const QUIET_QUEUE: f64 = 0.5;

/// The times of the samples, in seconds.
#[derive(Clone, Debug)]
pub(super) struct SampleClock {
    pub(super) last: Option<f64>,
    /// Until when the path counts as quiet.
    quiet_until: f64,
}

impl SampleClock {
    pub(super) const fn new() -> Self {
        Self { last: None, quiet_until: f64::NEG_INFINITY }
    }

    /// Starts a sample. Returns the time since the one before, or 0 if it is the first.
    pub(super) fn step(&mut self, now: f64) -> f64 {
        self.quiet_until = f64::NEG_INFINITY;
        self.last.replace(now).map_or(0.0, |last| (now - last).at_least(0.0).at_most(MAX_STEP.0))
    }

    /// Records that the last sample was one of a quiet path.
    pub(super) const fn set_quiet(&mut self, now: f64) {
        self.quiet_until = now + QUIET_INTERVAL.0;
    }

    /// Returns whether the next sample may wait.
    pub(super) fn may_wait(&self, now: f64) -> bool {
        now < self.quiet_until
    }
}

/// Returns whether a queue is so short that it changes nothing.
pub(super) fn is_quiet(queue: f64, target: f64) -> bool {
    queue < QUIET_QUEUE * target
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_path_is_sampled_after_a_tenth_of_a_second() {
        let mut clock = SampleClock::new();
        assert!(clock.step(1.0) == 0.0 && !clock.may_wait(1.0));
        clock.set_quiet(1.0);
        assert!(clock.may_wait(1.09) && !clock.may_wait(1.11));
        assert!((clock.step(1.11) - 0.11).abs() < 1e-9 && !clock.may_wait(1.12), "each sample decides again");
        assert!(clock.step(9.0) == MAX_STEP.0 && clock.step(8.0) == 0.0, "a silence, and a clock that goes back");
    }
}
