//! Flights and pauses of a sender: the times with and without packets that wait for a report (Glide §12).

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The present flight, or when the one before it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// When its first packet was sent; `None` during a pause.
    since: Option<Instant>,
    ended_at: Instant,
}

impl Flight {
    pub(super) const fn new() -> Self {
        Self { since: None, ended_at: Instant::NEVER }
    }

    /// Notes that a packet was sent. Returns the length of the pause that it ends; zero within a flight.
    #[inline]
    pub(super) fn on_sent(&mut self, now: Instant) -> Duration {
        if self.since.is_some() {
            return Duration::ZERO;
        }
        self.since = Some(now);
        now.since(self.ended_at)
    }

    /// Ends the flight if the peer's report leaves nothing in flight. Losses by time alone do not end it: the path may
    /// have been silent, or the machine asleep.
    #[inline]
    pub(super) fn on_feedback(&mut self, in_flight: u64, now: Instant) {
        if in_flight == 0 && self.since.take().is_some() {
            self.ended_at = now;
        }
    }

    pub(super) const fn since(&self) -> Option<Instant> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_lasts_from_the_last_report_to_the_next_packet() {
        let at = |seconds| Instant::from_start(Duration::from_secs(seconds));
        let mut flight = Flight::new();
        assert_eq!(flight.on_sent(at(1)), Duration::ZERO, "no pause is known before the first packet");
        flight.on_feedback(1200, at(2));
        assert_eq!((flight.on_sent(at(3)), flight.since()), (Duration::ZERO, Some(at(1))));
        flight.on_feedback(0, at(4));
        // Packets of the peer do not shorten the pause.
        flight.on_feedback(0, at(9));
        assert_eq!((flight.since(), flight.on_sent(at(10))), (None, Duration::from_secs(6)));
    }
}
