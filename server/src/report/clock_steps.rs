//! Finds steps of the wall clock against the monotonic clock, because connect tokens expire by the wall clock.

use std::time::Duration;

use slipgate_netcode::time::{Instant, Now};
use tracing::warn;

/// The change of the wall clock against the monotonic clock that is logged.
const CLOCK_STEP: Duration = Duration::from_secs(5);
/// The shortest time between two lines. A clock that jumps all the time is logged once a minute.
const LINE_INTERVAL: Duration = Duration::from_secs(60);

/// The watch of both clocks, and the steps that have no line yet.
pub(super) struct ClockSteps {
    /// The clocks when they were last found apart, or at the start.
    compared: Now,
    /// The next line. Steps before it are summed up in it.
    next_line: Instant,
    steps: u32,
    /// The seconds of all steps ahead, and of all steps back.
    ahead: f64,
    back: f64,
}

impl ClockSteps {
    pub(super) const fn new(now: Now) -> Self {
        Self { compared: now, next_line: now.monotonic, steps: 0, ahead: 0.0, back: 0.0 }
    }

    /// Compares the clocks. Logs a step at once, and the later ones of a minute when it is over.
    pub(super) fn watch(&mut self, now: Now) {
        self.compare(now);
        if now.monotonic >= self.next_line && self.steps > 0 {
            self.next_line = now.monotonic.after(LINE_INTERVAL);
            self.flush();
        }
    }

    /// Counts by how much the wall clock has moved against the monotonic clock since the last step, if that is more
    /// than [`CLOCK_STEP`].
    fn compare(&mut self, now: Now) {
        let expected =
            self.compared.unix.0 as f64 / 1000.0 + now.monotonic.since(self.compared.monotonic).as_secs_f64();
        let step = now.unix.0 as f64 / 1000.0 - expected;
        if step.abs() <= CLOCK_STEP.as_secs_f64() {
            return;
        }
        self.compared = now;
        self.steps = self.steps.saturating_add(1);
        self.ahead += step.max(0.0);
        self.back += (-step).max(0.0);
    }

    /// Logs the steps that have no line yet, at the end of their minute or of the server.
    pub(super) fn flush(&mut self) {
        let (ahead, back) = (tenths(std::mem::take(&mut self.ahead)), tenths(std::mem::take(&mut self.back)));
        match std::mem::take(&mut self.steps) {
            0 => {}
            1 => warn!(
                seconds = ahead - back,
                "the wall clock was stepped against the monotonic clock, ahead if `seconds` is positive; connect \
                 tokens are checked by the wall clock, so let the network set it (NTP)"
            ),
            steps => warn!(
                steps,
                ahead_seconds = ahead,
                back_seconds = back,
                "the wall clock was stepped further times against the monotonic clock within a minute; connect tokens \
                 are checked by the wall clock, so let the network set it (NTP)"
            ),
        }
    }
}

/// Rounds to whole tenths of a second: the clocks are read one after the other.
fn tenths(seconds: f64) -> f64 {
    (seconds * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;
    use crate::test_log::count_lines;

    fn at(monotonic: u64, unix: u64) -> Now {
        Now {
            monotonic: Instant::from_start(Duration::from_secs(monotonic)),
            unix: slipgate_netcode::time::UnixMillis(unix * 1000),
        }
    }

    /// Watches the clocks, and requires one line with these words, or no line without any.
    fn expect(clocks: &mut ClockSteps, now: Now, words: &'static str) {
        let (message, count) = if words.is_empty() { ("the wall clock", 0) } else { (words, 1) };
        assert_eq!(count_lines(Level::WARN, message, || clocks.watch(now)).1, count, "{now:?} {words}");
    }

    #[test]
    fn step_of_the_wall_clock_is_reported_once_a_minute_at_most() {
        let mut clocks = ClockSteps::new(at(0, 1000));
        for (now, words) in [
            (at(10, 1010), ""),
            (at(20, 1025), ""),
            (at(30, 1036), "seconds=6.0"),
            (at(31, 4637), ""),
            (at(89, 4695), ""),
            (at(90, 4696), "seconds=3600.0"),
            (at(150, 1150), "seconds=-3606.0"),
            (at(500, 1500), ""),
        ] {
            expect(&mut clocks, now, words);
        }
    }

    #[test]
    fn clock_set_back_within_the_minute_is_named_when_it_is_over() {
        let mut clocks = ClockSteps::new(at(0, 10_000));
        for (now, words) in [
            (at(1, 10_007), "seconds=6.0"),
            // A glitch that is over before the minute is.
            (at(10, 13_616), ""),
            (at(20, 10_026), ""),
            (at(60, 10_066), ""),
            (at(61, 10_067), "steps=2"),
            (at(200, 10_206), ""),
        ] {
            expect(&mut clocks, now, words);
        }
        for field in ["ahead_seconds=3600.0", "back_seconds=3600.0"] {
            let mut clocks = ClockSteps::new(at(0, 10_000));
            [at(1, 10_007), at(10, 13_616), at(20, 10_026)].into_iter().for_each(|now| clocks.watch(now));
            expect(&mut clocks, at(61, 10_067), field);
        }
    }

    #[test]
    fn clock_that_jumps_in_each_turn_has_one_line_a_minute() {
        let mut clocks = ClockSteps::new(at(0, 10_000));
        let jump = |clocks: &mut ClockSteps| {
            (1..=600).for_each(|second| clocks.watch(at(second, 10_000 + second + second % 2 * 60)));
        };
        assert_eq!(count_lines(Level::WARN, "the wall clock was stepped", || jump(&mut clocks)).1, 10);
    }

    #[test]
    fn steps_without_a_line_have_one_at_the_end() {
        let mut clocks = ClockSteps::new(at(0, 10_000));
        expect(&mut clocks, at(1, 10_007), "seconds=6.0");
        expect(&mut clocks, at(2, 9002), "");
        assert_eq!(count_lines(Level::WARN, "seconds=-1006.0", || clocks.flush()).1, 1);
        assert_eq!(count_lines(Level::WARN, "the wall clock", || clocks.flush()).1, 0);
    }
}
