//! Estimates when the peer sent a packet, by our own clock, from its timestamps and the round-trip time.
//!
//! The two clocks have different origins. The smallest difference between arrival and timestamp is the offset of the
//! clocks plus the one-way delay of an empty path; half of the smallest round-trip time stands for that delay.
//!
//! The timestamps are the peer's word. Only the round-trip time bounds what they can claim.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// How long a minimum is remembered, at least: clocks drift by less than 1 ms in this time (100 ppm).
const WINDOW: Duration = Duration::from_secs(10);

/// How much a queue on the way may grow before a round trip shows it.
const MAX_NEW_QUEUE: Duration = Duration::from_millis(50);

/// The estimate for one connection. It is wrong by up to half of the path's asymmetry, by the peer's and our own
/// delay in reading sockets, and by the unit of timestamps, 250 microseconds.
#[derive(Default)]
pub(super) struct SendTimeEstimator {
    /// Our clock minus the peer's, in nanoseconds.
    transit: RecentMin,
    /// The round-trip time without the time that the peer held the acknowledgement, in nanoseconds.
    round_trip: RecentMin,
    /// The largest round-trip time, as the smallest of the negated values.
    negated_round_trip: RecentMin,
}

impl SendTimeEstimator {
    /// Records a round trip that was measured, in nanoseconds.
    #[inline]
    pub(super) fn on_round_trip(&mut self, round_trip: u64, now: Instant) {
        let round_trip = signed(round_trip);
        self.round_trip.push(round_trip, now);
        self.negated_round_trip.push(-round_trip, now);
    }

    /// Records a packet that arrived and left at `sent` nanoseconds of the peer's clock. Returns when it left by our
    /// clock; `None` before the first round trip was measured.
    #[inline]
    pub(super) fn on_packet(&mut self, sent: u64, now: Instant) -> Option<Instant> {
        let sent = signed(sent);
        self.transit.push(signed(now.as_nanos()) - sent, now);
        // Queues only add to a transit time: the minimum is the empty path.
        let offset = self.transit.min()? - self.round_trip.min()? / 2;
        let left = u64::try_from(sent.saturating_add(offset)).unwrap_or_default();
        // A packet cannot leave after it arrived, whatever the estimate says.
        Some(Instant::from_nanos(left).min(now))
    }

    /// Limits an estimate to what the path allows: a packet is on its way for no longer than the largest recent round
    /// trip and a new queue, and it does not leave after it `arrived`.
    #[inline]
    pub(super) fn plausible(&self, sent: Instant, arrived: Instant) -> Instant {
        let largest = u64::try_from(-self.negated_round_trip.min().unwrap_or(0)).unwrap_or_default();
        let earliest = (arrived - MAX_NEW_QUEUE).as_nanos().saturating_sub(largest);
        // A timestamp far in the past is a lie of the peer or a fault of its clock.
        sent.max(Instant::from_nanos(earliest)).min(arrived)
    }
}

/// Returns nanoseconds as a signed number: a peer's clock may show more than that holds.
#[inline]
fn signed(nanos: u64) -> i64 {
    nanos.min(i64::MAX as u64) as i64
}

/// The smallest value of the last one to two windows, in two buckets: the cost per value is one comparison.
struct RecentMin {
    since: Instant,
    current: i64,
    previous: i64,
}

/// The minimum of no values.
const EMPTY: i64 = i64::MAX;

impl Default for RecentMin {
    fn default() -> Self {
        Self { since: Instant::default(), current: EMPTY, previous: EMPTY }
    }
}

impl RecentMin {
    #[inline]
    fn push(&mut self, value: i64, now: Instant) {
        if self.current == EMPTY || now.reached(self.since, WINDOW) {
            self.since = now;
            // The minimum of the last window stays valid until the new window is full.
            self.previous = core::mem::replace(&mut self.current, EMPTY);
        }
        self.current = self.current.min(value);
    }

    #[inline]
    fn min(&self) -> Option<i64> {
        Some(self.current.min(self.previous)).filter(|min| *min != EMPTY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Returns a moment of the peer's clock in nanoseconds, which is 100 s ahead of ours.
    fn peer(millis: u64) -> u64 {
        at(100_000 + millis).as_nanos()
    }

    #[test]
    fn a_queued_packet_has_left_earlier_than_the_empty_path_says() {
        let mut estimator = SendTimeEstimator::default();
        assert_eq!(estimator.on_packet(peer(0), at(30)), None, "no round trip is known");
        estimator.on_round_trip(60_000_000, at(60));
        assert_eq!(estimator.on_packet(peer(100), at(130)), Some(at(100)));
        assert_eq!(estimator.on_packet(peer(200), at(280)), Some(at(200)), "50 ms in a queue");
        assert_eq!(estimator.on_packet(peer(300), at(330)), Some(at(300)));
    }

    #[test]
    fn a_peer_cannot_claim_to_have_sent_long_ago() {
        let mut estimator = SendTimeEstimator::default();
        estimator.on_round_trip(60_000_000, at(60));
        estimator.on_packet(peer(100), at(130)).unwrap();
        // Its timestamps stand still, as if each packet had been on its way for longer.
        for millis in [140, 200, 1000, 5000] {
            let claimed = estimator.on_packet(peer(100), at(millis)).unwrap();
            let sent = estimator.plausible(claimed, at(millis));
            assert_eq!(sent, at(100.max(millis - 110)), "{millis}");
        }
        assert_eq!(estimator.plausible(at(5100), at(5090)), at(5090), "not after its arrival");
    }

    #[test]
    fn a_clock_beyond_64_bits_counts_as_the_latest_moment() {
        assert_eq!((signed(i64::MAX as u64), signed(u64::MAX)), (i64::MAX, i64::MAX));
    }

    #[test]
    fn a_longer_route_is_learned_within_two_windows() {
        let mut estimator = SendTimeEstimator::default();
        for millis in (0..40_000).step_by(100) {
            let one_way = if millis < 10_000 { 20 } else { 50 };
            let now = at(millis + one_way);
            estimator.on_round_trip(2_000_000 * one_way, now);
            let sent = estimator.on_packet(peer(millis), now);
            if millis >= 30_000 {
                assert_eq!(sent, Some(at(millis)));
            }
        }
    }
}
