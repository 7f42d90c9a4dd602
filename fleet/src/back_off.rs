//! The pause between attempts: 1 s at first, twice as long after each failure, up to 5 s.

use std::time::Duration;

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(5);

/// The pauses of one series of failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BackOff {
    failures: u32,
}

impl BackOff {
    /// Returns the pause after another failure.
    pub(crate) fn on_failure(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(3)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Ends the series. Returns whether there was a failure.
    pub(crate) fn on_success(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Returns whether this is the first failure of a series, which is logged.
    pub(crate) const fn is_first(self) -> bool {
        self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_seconds() {
        let mut back_off = BackOff::default();
        assert!(back_off.is_first() && !back_off.on_success());
        let pauses: Vec<_> = (0..5).map(|_| back_off.on_failure().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        assert!(!back_off.is_first() && back_off.on_success());
        assert_eq!(back_off.on_failure(), FIRST);
    }
}
