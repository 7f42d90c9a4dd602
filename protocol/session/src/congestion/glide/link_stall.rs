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

/// Tracks the intervals between arrivals.
#[derive(Clone, Debug)]
pub(super) struct LinkStall {
    usual: Seconds,
    /// The newest packet: when it was sent and when it arrived.
    previous: Option<(Seconds, Seconds)>,
    until: Seconds,
}

impl LinkStall {
    pub(super) fn new() -> Self {
        Self { usual: USUAL, previous: None, until: Seconds::NEVER }
    }

    /// Records that the newest packet was sent at `sent` and arrived at `received`. Returns whether a stall has just
    /// ended.
    pub(super) fn arrival(&mut self, sent: Seconds, received: Seconds, round_trip: Seconds, now: Seconds) -> bool {
        let previous = self.previous.replace((sent, received));
        let Some((previous_sent, previous_received)) = previous else { return false };
        let gap = received - previous_received;
        if gap < Seconds::ZERO {
            // The peer's clock went back, which says nothing of the path.
            return false;
        }
        // A sender that paused makes a gap too, but then the gap at sending is as long.
        let hole = gap > HOLE * self.usual.max(MIN_USUAL) && gap - (sent - previous_sent) > LONGER_THAN_SENT;
        if hole {
            self.until = now + gap.min(MAX_WAIT) + WAIT_ROUND_TRIPS * round_trip;
        }
        // Cap the interval, so that one stall does not hide the next.
        self.usual += SMOOTHING * (gap.min(MAX_USUAL * self.usual) - self.usual);
        hole
    }

    /// Returns whether the backlog of a stall may still be in the queue.
    pub(super) fn is_draining(&self, now: Seconds) -> bool {
        now <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records a packet that was sent and received at these seconds, on a path of 40 ms.
    fn arrival(stall: &mut LinkStall, sent: f64, received: f64, now: f64) -> bool {
        stall.arrival(Seconds(sent), Seconds(received), Seconds(0.04), Seconds(now))
    }

    fn steady_path() -> (LinkStall, f64) {
        let mut stall = LinkStall::new();
        for packet in 0..100 {
            let sent = f64::from(packet) * 0.016;
            assert!(!arrival(&mut stall, sent, sent + 0.02, sent + 0.04));
        }
        (stall, 99.0 * 0.016)
    }

    #[test]
    fn gap_between_arrivals_only_is_a_stall() {
        let (mut stall, last) = steady_path();
        let sent = last + 0.016;
        let now = sent + 0.24;
        assert!(arrival(&mut stall, sent, sent + 0.22, now));
        assert!(stall.is_draining(Seconds(now + 0.23)) && !stall.is_draining(Seconds(now + 0.24)));
    }

    #[test]
    fn stalls_are_found_after_the_clock_went_back() {
        let (mut stall, last) = steady_path();
        let sent = last + 0.016;
        assert!(!arrival(&mut stall, sent, sent - 7.0, sent + 0.04));
        for packet in 1..100 {
            let sent = sent + f64::from(packet) * 0.016;
            assert!(!arrival(&mut stall, sent, sent - 7.0, sent + 0.04), "{packet}");
        }
        let sent = sent + 1.6;
        assert!(arrival(&mut stall, sent, sent - 6.8, sent + 0.24));
    }

    #[test]
    fn pause_of_the_sender_is_no_stall() {
        let (mut stall, last) = steady_path();
        let sent = last + 0.5;
        assert!(!arrival(&mut stall, sent, sent + 0.02, sent + 0.04));
        assert!(!stall.is_draining(Seconds(sent + 0.04)));
    }

    #[test]
    fn growing_queue_is_no_stall() {
        let (mut stall, last) = steady_path();
        for packet in 1..100 {
            let sent = last + f64::from(packet) * 0.016;
            assert!(!arrival(&mut stall, sent, sent + 0.02 + f64::from(packet) * 0.008, sent + 0.04));
        }
    }
}
