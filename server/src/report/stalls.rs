//! Times in which the server had no turn: suspended, starved of CPU, or held up by its game.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use tracing::warn;

use super::limit::Repeated;

/// The time between the begins of two turns above which the server stood still. A timeout of a token is at least 1 s.
const STALL: Duration = Duration::from_secs(1);
/// The interval of the warning. A program that has a turn every two seconds must not fill its log.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// The stalls of a server since its start.
#[derive(Default)]
pub(super) struct StallLog {
    /// The begin of the last turn. The time before the first one is the game's own.
    last_turn: Option<Instant>,
    count: u64,
    warned: Repeated,
}

impl StallLog {
    /// Records the begin of a turn, and logs a stall before it.
    pub(super) fn on_turn(&mut self, now: Instant) {
        let Some(stall) = self.take(now) else { return };
        let seconds = (stall.as_secs_f64() * 10.0).round() / 10.0;
        warn!(
            seconds,
            "the server did not run for {seconds} s (suspended, starved of CPU, or busy in one turn); clients may have \
             timed out"
        );
    }

    /// Returns the number of stalls.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Counts a stall before a turn. Returns its length if the warning may be given.
    fn take(&mut self, now: Instant) -> Option<Duration> {
        let stall = now.since(self.last_turn.replace(now)?);
        if stall <= STALL {
            return None;
        }
        self.count += 1;
        self.warned.take_for(now, WARNING_INTERVAL).then_some(stall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_a_second_without_a_turn_is_a_stall() {
        let mut stalls = StallLog::default();
        let steps = [
            (9000, None),
            (9016, None),
            (10_016, None),
            (22_916, Some(12_900)),
            (24_000, None),
            (35_000, Some(11_000)),
        ];
        for (millis, expected) in steps {
            let stall = stalls.take(Instant::from_start(Duration::from_millis(millis)));
            assert_eq!(stall.map(|stall| stall.as_millis()), expected, "at {millis} ms");
        }
        assert_eq!(stalls.count(), 3, "the second one is counted without a warning");
    }
}
