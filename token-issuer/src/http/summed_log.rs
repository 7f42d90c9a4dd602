//! Log lines that sum up events: one a minute at most.

use std::time::Duration;

use tokio::time::Instant;

/// The minimum interval between two lines.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The events of one kind that have no line yet.
#[derive(Debug, Default)]
pub(super) struct SummedLog {
    last_logged: Option<Instant>,
    unlogged: u64,
}

impl SummedLog {
    /// Counts an event. Returns the number of events to log now, or `None` within the interval.
    pub(super) fn count(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.last_logged.is_some_and(|last| now.duration_since(last) < LOG_INTERVAL) {
            return None;
        }
        self.last_logged = Some(now);
        Some(core::mem::take(&mut self.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_logged_at_most_once_a_minute() {
        let (mut log, start) = (SummedLog::default(), Instant::now());
        for (millis, logged) in
            [(0, Some(1)), (200, None), (59_999, None), (60_000, Some(3)), (60_200, None), (500_000, Some(2))]
        {
            assert_eq!(log.count(start + Duration::from_millis(millis)), logged, "{millis} ms");
        }
    }
}
