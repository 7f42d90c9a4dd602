//! Link stalls: a radio link pauses for a moment, and the delay then says nothing of a queue (Glide §4.10).

use super::super::units::Seconds;

/// The usual interval between arrivals before it was measured, in seconds.
const USUAL: Seconds = Seconds(0.033);
/// Weight of a new interval in the usual one.
const SMOOTHING: f64 = 0.1;
/// The maximum weight of one interval, as a multiple of the usual one.
const MAX_USUAL: f64 = 4.0;
/// A gap is this many times the usual interval, which counts for at least [`MIN_USUAL`].
const HOLE: f64 = 2.5;
const MIN_USUAL: Seconds = Seconds(0.018);
/// The gap at the receiver exceeds the one at the sender by this, in seconds.
const LONGER_THAN_SENT: Seconds = Seconds(0.040);
/// The longest time that the backlog of a stall drains, in seconds, plus a share of the round trip.
const MAX_WAIT: Seconds = Seconds(0.5);
const WAIT_ROUND_TRIPS: f64 = 0.5;

/// Tracks the intervals between arrivals; all times in seconds.
#[derive(Clone, Debug)]
pub(super) struct LinkStall {
    usual: f64,
    /// The newest packet: when it was sent and when it arrived.
    previous: Option<(f64, f64)>,
    until: f64,
}

impl LinkStall {
    pub(super) fn new() -> Self {
        Self { usual: USUAL.0, previous: None, until: f64::NEG_INFINITY }
    }

    /// Records that the newest packet was sent at `sent` and arrived at `received`. Returns whether a stall has just
    /// ended.
    pub(super) fn arrival(&mut self, sent: f64, received: f64, round_trip: f64, now: f64) -> bool {
        let previous = self.previous.replace((sent, received));
        let Some((previous_sent, previous_received)) = previous else { return false };
        let gap = received - previous_received;
        if gap < 0.0 {
            // The peer's clock went back, which says nothing of the path.
            return false;
        }
        // A sender that paused makes a gap too, but then the gap at sending is as long.
        let hole = gap > HOLE * self.usual.max(MIN_USUAL.0) && gap - (sent - previous_sent) > LONGER_THAN_SENT.0;
        if hole {
            self.until = now + gap.min(MAX_WAIT.0) + WAIT_ROUND_TRIPS * round_trip;
        }
        // Cap the interval, so that one stall does not hide the next.
        self.usual += SMOOTHING * (gap.min(MAX_USUAL * self.usual) - self.usual);
        hole
    }

    /// Returns whether the backlog of a stall may still be in the queue.
    pub(super) fn is_draining(&self, now: f64) -> bool {
        now <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady_path() -> (LinkStall, f64) {
        let mut stall = LinkStall::new();
        for packet in 0..100 {
            let sent = f64::from(packet) * 0.016;
            assert!(!stall.arrival(sent, sent + 0.02, 0.04, sent + 0.04));
        }
        (stall, 99.0 * 0.016)
    }

    #[test]
    fn gap_between_arrivals_only_is_a_stall() {
        let (mut stall, last) = steady_path();
        let sent = last + 0.016;
        let now = sent + 0.24;
        assert!(stall.arrival(sent, sent + 0.22, 0.04, now));
        assert!(stall.is_draining(now + 0.23) && !stall.is_draining(now + 0.24));
    }

    #[test]
    fn stalls_are_found_after_the_clock_went_back() {
        let (mut stall, last) = steady_path();
        let sent = last + 0.016;
        assert!(!stall.arrival(sent, sent - 7.0, 0.04, sent + 0.04));
        for packet in 1..100 {
            let sent = sent + f64::from(packet) * 0.016;
            assert!(!stall.arrival(sent, sent - 7.0, 0.04, sent + 0.04), "{packet}");
        }
        let sent = sent + 1.6;
        assert!(stall.arrival(sent, sent - 6.8, 0.04, sent + 0.24));
    }

    #[test]
    fn pause_of_the_sender_is_no_stall() {
        let (mut stall, last) = steady_path();
        let sent = last + 0.5;
        assert!(!stall.arrival(sent, sent + 0.02, 0.04, sent + 0.04));
        assert!(!stall.is_draining(sent + 0.04));
    }

    #[test]
    fn growing_queue_is_no_stall() {
        let (mut stall, last) = steady_path();
        for packet in 1..100 {
            let sent = last + f64::from(packet) * 0.016;
            assert!(!stall.arrival(sent, sent + 0.02 + f64::from(packet) * 0.008, 0.04, sent + 0.04));
        }
    }
}
