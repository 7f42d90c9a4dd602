//! Limits of log lines: a maximum per second, and one warning of a kind per 5 minutes.

use std::time::Duration;

use slipgate_netcode::time::Instant;

/// The interval after which a warning is given again if its cause goes on.
pub(super) const REPEAT_INTERVAL: Duration = Duration::from_secs(300);
/// The interval of the limits of lines.
const SECOND: Duration = Duration::from_secs(1);

/// A limit of the lines in one second.
pub(super) struct LineLimit {
    max: u32,
    lines: u32,
    until: Instant,
}

impl LineLimit {
    pub(super) fn new(max: u32) -> Self {
        Self { max, lines: 0, until: Instant::default() }
    }

    /// Returns whether another line may be written now, and counts it.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        if self.is_over(now) {
            (self.lines, self.until) = (0, now.after(SECOND));
        }
        self.lines += 1;
        self.lines <= self.max
    }

    /// Returns whether the second of the last lines is over, so that what exceeded the limit can be summed up.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }
}

/// A warning that is given again after [`REPEAT_INTERVAL`].
#[derive(Default)]
pub(super) struct Repeated {
    again: Option<Instant>,
}

impl Repeated {
    /// Returns whether the warning may be given now, and counts it as given.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.take_for(now, REPEAT_INTERVAL)
    }

    /// Returns whether the warning may be given now, and counts it as given for `interval`.
    pub(super) fn take_for(&mut self, now: Instant, interval: Duration) -> bool {
        let may = self.again.is_none_or(|again| now >= again);
        if may {
            self.again = Some(now.after(interval));
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn lines_are_limited_in_each_second() {
        let mut limit = LineLimit::new(20);
        assert_eq!((0..1000).filter(|millis| limit.take(at(*millis))).count(), 20);
        assert!(!limit.is_over(at(999)) && limit.is_over(at(1000)));
        assert_eq!((1000..2000).filter(|millis| limit.take(at(*millis))).count(), 20);
    }

    #[test]
    fn warning_is_repeated_after_five_minutes() {
        let mut warning = Repeated::default();
        let given: Vec<_> = (0..=700).filter(|second| warning.take(at(second * 1000))).collect();
        assert_eq!(given, [0, 300, 600]);
    }
}
