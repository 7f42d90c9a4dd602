//! A limit of log lines of one kind: at most 20 a second, and a sum of the others.

use std::time::{Duration, Instant};

/// The most lines in a second. A client that sends requests in a loop fills no disk.
const MAX_LINES_PER_SECOND: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// The lines of the present second.
#[derive(Default)]
pub(super) struct LineBudget {
    since: Option<Instant>,
    lines: u32,
    /// The events without a line, since the last sum.
    unlogged: u64,
}

/// What is logged of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineLog {
    /// The number of earlier events without a line, if their second is over.
    pub(super) earlier: Option<u64>,
    /// Whether the event gets a line of its own.
    pub(super) has_line: bool,
}

impl LineBudget {
    /// Counts an event.
    pub(super) fn count(&mut self, now: Instant) -> LineLog {
        let is_over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= SECOND);
        let mut earlier = None;
        if is_over {
            (self.since, self.lines) = (Some(now), 0);
            earlier = Some(std::mem::take(&mut self.unlogged)).filter(|unlogged| *unlogged > 0);
        }
        let has_line = self.lines < MAX_LINES_PER_SECOND;
        self.lines += u32::from(has_line);
        self.unlogged += u64::from(!has_line);
        LineLog { earlier, has_line }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_summed_above_20_lines_a_second() {
        let (mut lines, start) = (LineBudget::default(), Instant::now());
        let with_line = (0..1000).filter(|millis| lines.count(start + Duration::from_millis(*millis)).has_line);
        assert_eq!(with_line.count(), 20);
        let next = lines.count(start + SECOND);
        assert_eq!(next, LineLog { earlier: Some(980), has_line: true });
        assert_eq!(lines.count(start + 2 * SECOND), LineLog { earlier: None, has_line: true });
    }
}
