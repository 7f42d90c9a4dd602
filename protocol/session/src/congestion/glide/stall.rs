//! Whether the path has just stood still, as a radio link does for a moment: then a delay says nothing of a queue.

/// Intervals between arrivals are taken to be this long until they were measured, in seconds.
const USUAL: f64 = 0.033;
/// Weight of a new interval in the usual one.
const SMOOTHING: f64 = 0.1;
/// An interval counts for at most as many usual ones when these are measured.
const MOST_USUAL: f64 = 4.0;
/// A hole is this many times the usual interval, which counts for at least [`LEAST_USUAL`].
const HOLE: f64 = 2.5;
const LEAST_USUAL: f64 = 0.018;
/// The hole at the receiver is longer than the one at the sender by this, in seconds.
const LONGER_THAN_SENT: f64 = 0.040;
/// One waits no longer than this for what has gathered to drain, in seconds, and half a round trip.
const LONGEST_WAIT: f64 = 0.5;

/// Watches the intervals between arrivals; all in seconds.
#[derive(Clone, Debug)]
pub(super) struct Stall {
    usual: f64,
    /// The newest packet: when it left and when it arrived.
    previous: Option<(f64, f64)>,
    until: f64,
}

impl Stall {
    pub(super) fn new() -> Self {
        Self { usual: USUAL, previous: None, until: f64::NEG_INFINITY }
    }

    /// The newest packet left at `sent` and arrived at `received`. Answers whether a stall has just ended.
    pub(super) fn arrival(&mut self, sent: f64, received: f64, round_trip: f64, now: f64) -> bool {
        let previous = self.previous.replace((sent, received));
        let Some((previous_sent, previous_received)) = previous else { return false };
        let gap = received - previous_received;
        if gap < 0.0 {
            // The peer's clock went back, which says nothing of the path.
            return false;
        }
        let hole = gap > HOLE * self.usual.max(LEAST_USUAL) && gap - (sent - previous_sent) > LONGER_THAN_SENT;
        if hole {
            self.until = now + gap.min(LONGEST_WAIT) + 0.5 * round_trip;
        }
        self.usual += SMOOTHING * (gap.min(MOST_USUAL * self.usual) - self.usual);
        hole
    }

    /// Whether what gathered during a stall may still be in the queue.
    pub(super) fn is_draining(&self, now: f64) -> bool {
        now <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady() -> (Stall, f64) {
        let mut stall = Stall::new();
        for packet in 0..100 {
            let sent = f64::from(packet) * 0.016;
            assert!(!stall.arrival(sent, sent + 0.02, 0.04, sent + 0.04));
        }
        (stall, 99.0 * 0.016)
    }

    #[test]
    fn a_hole_between_arrivals_that_was_none_between_departures_is_a_stall() {
        let (mut stall, last) = steady();
        let sent = last + 0.016;
        let now = sent + 0.24;
        assert!(stall.arrival(sent, sent + 0.22, 0.04, now));
        assert!(stall.is_draining(now + 0.23) && !stall.is_draining(now + 0.24));
    }

    #[test]
    fn a_clock_that_goes_back_once_blinds_nobody() {
        let (mut stall, last) = steady();
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
    fn a_pause_of_the_sender_is_none() {
        let (mut stall, last) = steady();
        let sent = last + 0.5;
        assert!(!stall.arrival(sent, sent + 0.02, 0.04, sent + 0.04));
        assert!(!stall.is_draining(sent + 0.04));
    }

    #[test]
    fn a_queue_that_grows_packet_by_packet_is_none() {
        let (mut stall, last) = steady();
        for packet in 1..100 {
            let sent = last + f64::from(packet) * 0.016;
            assert!(!stall.arrival(sent, sent + 0.02 + f64::from(packet) * 0.008, 0.04, sent + 0.04));
        }
    }
}
