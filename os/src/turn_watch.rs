//! Warns of a loop that never ends its turns.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use tracing::warn;

/// How long a loop may run without ending a turn. A loop ends one at least once per tick.
const MAX_WITHOUT_END: Duration = Duration::from_secs(5);
/// The most time between two flushes that counts: a program that was paused for longer did not run.
const MAX_STEP: Duration = Duration::from_secs(1);

/// Warns once if a program flushes for 5 s without ending a turn: timeouts count only when a turn ends.
#[derive(Debug, Default)]
pub struct TurnWatch {
    flushed_at: Option<Instant>,
    without_end: Duration,
    has_warned: bool,
}

impl TurnWatch {
    /// Records a flush that does not end the turn.
    pub fn on_flush(&mut self, now: Instant) {
        let step = self.flushed_at.map_or(Duration::ZERO, |before| now.since(before).min(MAX_STEP));
        self.flushed_at = Some(now);
        self.without_end += step;
        if self.without_end >= MAX_WITHOUT_END && !self.has_warned {
            self.has_warned = true;
            warn!("turns without `end_turn` for 5 s: without it nothing times out; call it once per tick");
        }
    }

    /// Records the end of a turn.
    pub const fn on_end(&mut self) {
        (self.flushed_at, self.without_end) = (None, Duration::ZERO);
    }
}
