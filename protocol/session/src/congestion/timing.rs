//! The round-trip time, and the timeouts derived from it: when a packet counts as lost, and when a probe is due.
//!
//! The packets that wait for these timeouts are in `sent_packets`.

use core::time::Duration;

use super::controller::{Feedback, NewestAck};
use super::units::Seconds;
use super::windowed_minmax::WindowedMinMax;
use slipgate_netcode::time::Instant;

/// The round trip before the first sample (RFC 9002, section 6.2.2).
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(333);
/// Weight of a new sample in the estimate (RFC 6298, section 2.3).
const SMOOTHING: f64 = 0.125;
/// Weight of a new sample in the variation (RFC 6298, section 2.3).
const VARIATION_SMOOTHING: f64 = 0.25;
/// Variations above the smoothed round trip that are still ordinary (RFC 6298, section 2.3).
const VARIATIONS: u64 = 4;
/// A packet may be reordered by an eighth of the round trip before it counts as lost (RFC 9002, section 6.1.2).
const REORDERING_SHARE: u64 = 8;
/// The resolution of timers (RFC 9002, section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// The longest time that a Slipgate peer holds an acknowledgement (RFC 9000, section 18.2).
const MAX_ACK_DELAY: Duration = Duration::from_millis(25);
/// The age at which an unacknowledged packet is lost ("Fiedler, Reliability, Ordering and Congestion Avoidance over
/// UDP").
const MAX_LOSS_DELAY: Duration = Duration::from_secs(1);

/// The longest timeout. No path takes longer: an acknowledgement that is tens of seconds late comes from a suspended
/// machine, and must not delay the next loss as much.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The feedback interval before it was measured: 30 packets per second, as in the article.
const INITIAL_FEEDBACK_INTERVAL: Duration = Duration::from_millis(33);
/// Weight of a new feedback interval.
const INTERVAL_SMOOTHING: f64 = 0.1;
/// The longest interval that counts: a longer silence is not the rhythm of the peer.
const MAX_FEEDBACK_INTERVAL: Duration = Duration::from_millis(300);
/// The window of the minimum round trip: as long as a route usually stays.
const BASE_WINDOW: Duration = Duration::from_secs(20);
/// A round trip below this share of the minimum needs a second one to confirm it, which may be longer by the same
/// share.
const SUSPICIOUS_SHARE: f64 = 0.75;
/// The lifetime of an unconfirmed round trip, as a multiple of the minimum round trip plus the feedback interval.
const CANDIDATE_LIFETIME: u32 = 4;

/// The measurements that loss detection and probes need, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Timing {
    /// The round-trip time, smoothed (RFC 6298).
    pub(crate) smoothed: u64,
    /// The mean deviation of the round trip (RFC 6298).
    pub(crate) variation: u64,
    /// The smoothed interval between the feedback datagrams of the peer.
    pub(crate) feedback_interval: u64,
}

/// The ages at which a packet counts as lost, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LossDelays {
    /// If packets sent later were acknowledged.
    pub(crate) after_gap: u64,
    /// In any case.
    pub(crate) limit: u64,
}

impl LossDelays {
    /// Returns the same age whether or not packets sent later were acknowledged.
    pub(crate) const fn fixed(limit: Duration) -> Self {
        Self { after_gap: nanos(limit), limit: nanos(limit) }
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            smoothed: nanos(INITIAL_ROUND_TRIP),
            variation: nanos(INITIAL_ROUND_TRIP) / 2,
            feedback_interval: nanos(INITIAL_FEEDBACK_INTERVAL),
        }
    }
}

impl Timing {
    /// Returns the ages at which a packet is lost (RFC 9002, section 6.1.2). They allow for a feedback interval too,
    /// because acknowledgements wait for the peer's next packet. The limit is one second, or up to five on a slower
    /// path.
    pub(crate) fn loss_delays(&self) -> LossDelays {
        let grace = self.smoothed / REORDERING_SHARE;
        // The largest allowance counts, not the sum: they overlap.
        let deviations = self.variation.saturating_mul(VARIATIONS);
        let allowance = grace.max(deviations).max(self.feedback_interval).max(nanos(GRANULARITY));
        let after_gap = self.smoothed.saturating_add(allowance);
        let limit = after_gap.saturating_add(self.feedback_interval).saturating_add(nanos(MAX_ACK_DELAY));
        LossDelays { after_gap, limit: limit.clamp(nanos(MAX_LOSS_DELAY), nanos(MAX_WAIT)) }
    }

    /// Returns how long after the last packet a silent path is probed, in nanoseconds (RFC 9002, section 6.2.1).
    #[must_use]
    pub(crate) fn probe_timeout(&self) -> u64 {
        let deviations = self.variation.saturating_mul(VARIATIONS).max(nanos(GRANULARITY));
        let timeout = self.smoothed.saturating_add(deviations).saturating_add(nanos(MAX_ACK_DELAY));
        timeout.min(nanos(MAX_WAIT))
    }
}

/// Measures the round trip and the feedback interval. A sample costs a few additions.
#[derive(Clone, Debug)]
pub(super) struct RttEstimator {
    timing: Timing,
    base: WindowedMinMax,
    last_received_at: Option<Instant>,
    candidate: Option<RttCandidate>,
}

/// A round trip far below the recent ones that no other has confirmed yet.
#[derive(Clone, Copy, Debug)]
struct RttCandidate {
    since: Instant,
    rtt: Duration,
}

impl RttEstimator {
    pub(super) fn new() -> Self {
        Self {
            timing: Timing::default(),
            base: WindowedMinMax::min(BASE_WINDOW, BASE_WINDOW),
            last_received_at: None,
            candidate: None,
        }
    }

    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let Some(last_received_at) = self.last_received_at {
            let interval = nanos_since(feedback.now, last_received_at).min(nanos(MAX_FEEDBACK_INTERVAL));
            // The interval is that of all feedback, also of feedback without a new packet.
            let smoothed = &mut self.timing.feedback_interval;
            *smoothed = ewma(*smoothed, interval, INTERVAL_SMOOTHING);
        }
        self.last_received_at = Some(feedback.now);
        if let Some(newest) = feedback.newest {
            self.sample(round_trip(&newest, feedback.now), feedback.now);
        }
    }

    pub(super) const fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Returns the minimum round trip of the window; `None` before the first.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base.value().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// Returns the smoothed round trip; `None` before the first.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.base().map(|_| Duration::from_nanos(self.timing.smoothed))
    }

    /// Returns whether a sample is a round trip of the path.
    ///
    /// A clock that jumps makes false samples: the peer's jumps while it holds the acknowledgement, or ours stops
    /// with its machine, which then finds the acknowledgement in its socket. Such round trips are too short, and
    /// the minimum keeps them for long. A much shorter one therefore counts only when a packet sent after it
    /// confirms it. No peer holds an acknowledgement for longer than the packet has been gone.
    #[inline]
    pub(super) fn is_plausible(&mut self, newest: &NewestAck, now: Instant) -> bool {
        let gone = nanos_since(now, newest.sent_at);
        // The peer cannot have held the acknowledgement for longer than the packet exists.
        if nanos(newest.ack_delay) > gone.saturating_add(nanos(GRANULARITY)) {
            return false;
        }
        let rtt = round_trip(newest, now);
        let rounded_up = Seconds::from_nanos(rtt.saturating_add(nanos(GRANULARITY))).0;
        if self.base.value().is_none_or(|base| rounded_up >= base * SUSPICIOUS_SHARE) {
            self.candidate = self.candidate.filter(|candidate| now.since(candidate.since) <= self.candidate_lifetime());
            return true;
        }
        self.confirms(Duration::from_nanos(rtt), newest.sent_at, now)
    }

    /// Returns how long a candidate waits. Bonded and alternating paths have short round trips between long ones.
    fn candidate_lifetime(&self) -> Duration {
        (self.base().unwrap_or_default() + Duration::from_nanos(self.timing.feedback_interval)) * CANDIDATE_LIFETIME
    }

    /// Returns whether a short sample counts because an earlier one was as short. The longer of the two is taken.
    #[cold]
    fn confirms(&mut self, rtt: Duration, sent_at: Instant, now: Instant) -> bool {
        match &mut self.candidate {
            // All datagrams that gathered in a socket are read at once, and are as wrong as the first of them.
            Some(candidate) if sent_at < candidate.since => candidate.rtt = candidate.rtt.max(rtt),
            Some(candidate) if rtt.mul_f64(SUSPICIOUS_SHARE) <= candidate.rtt + GRANULARITY => {
                let first = candidate.rtt;
                self.candidate = None;
                if rtt >= first {
                    return true;
                }
                self.sample(nanos(first), now);
            }
            candidate => *candidate = Some(RttCandidate { since: now, rtt }),
        }
        false
    }

    // The first sample is the estimate, and half of it the variation (RFC 6298, section 2.2).
    #[inline]
    fn sample(&mut self, sample: u64, now: Instant) {
        let Timing { smoothed, variation, .. } = &mut self.timing;
        (*smoothed, *variation) = if self.base.value().is_none() {
            (sample, sample / 2)
        } else {
            let off = smoothed.abs_diff(sample);
            (ewma(*smoothed, sample, SMOOTHING), ewma(*variation, off, VARIATION_SMOOTHING))
        };
        self.base.push(Seconds::from_nanos(sample).0, Seconds::from(now).0);
    }
}

/// Returns the exponentially weighted moving average in nanoseconds: `weight` of the way from `old` to `new`.
pub(super) fn ewma(old: u64, new: u64, weight: f64) -> u64 {
    // Signed, because x86 converts only signed integers in one instruction.
    let (from, to) = (old as i64 as f64, new as i64 as f64);
    (from + (to - from) * weight + 0.5) as i64 as u64
}

/// Returns the nanoseconds from `earlier` to `now`, or zero if `earlier` is later.
#[inline]
pub(super) const fn nanos_since(now: Instant, earlier: Instant) -> u64 {
    now.as_nanos().saturating_sub(earlier.as_nanos())
}

/// Returns the round trip of a packet, in nanoseconds, without the time that the peer held its acknowledgement.
#[inline]
fn round_trip(newest: &NewestAck, now: Instant) -> u64 {
    nanos_since(now, newest.sent_at).saturating_sub(nanos(newest.ack_delay))
}

/// Returns whole nanoseconds, at most the largest number of 64 bits.
#[inline]
pub(super) const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::NewestAck;
    use super::*;

    /// A millisecond in nanoseconds.
    const MS: u64 = 1_000_000;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn feed(path: &mut RttEstimator, at: u64, rtt: u64, ack_delay: u64) {
        let newest = NewestAck {
            sent_at: Instant::from_start(ms(at - rtt - ack_delay)),
            received_at: None,
            ack_delay: ms(ack_delay),
            socket_delay: Duration::ZERO,
        };
        path.on_feedback(&Feedback {
            now: Instant::from_start(ms(at)),
            newest: Some(newest),
            acked: &[],
            lost: &[],
            late: &[],
            delivered: 0,
            in_flight: 0,
        });
    }

    #[test]
    fn first_sample_is_estimate_and_half_is_variation() {
        let mut path = RttEstimator::new();
        assert_eq!((path.base(), path.smoothed(), *path.timing()), (None, None, Timing::default()));
        feed(&mut path, 1000, 80, 0);
        assert_eq!((path.timing().smoothed, path.timing().variation), (80 * MS, 40 * MS));
        assert_eq!(path.base(), Some(ms(80)));
    }

    #[test]
    fn ack_delay_is_no_part_of_the_round_trip() {
        let mut path = RttEstimator::new();
        feed(&mut path, 1000, 80, 20);
        assert_eq!(path.smoothed(), Some(ms(80)));
    }

    #[test]
    fn much_shorter_round_trip_needs_confirmation() {
        let newest = |at: u64, rtt: u64, ack_delay| NewestAck {
            sent_at: Instant::from_start(ms(at - rtt)),
            received_at: None,
            ack_delay: ms(ack_delay),
            socket_delay: Duration::ZERO,
        };
        let mut path = RttEstimator::new();
        let mut is_plausible = |at, rtt, ack_delay| {
            let is_plausible = path.is_plausible(&newest(at, rtt, ack_delay), Instant::from_start(ms(at)));
            if is_plausible {
                feed(&mut path, at, rtt - ack_delay.min(rtt), ack_delay.min(rtt));
            }
            (is_plausible, path.base().unwrap().as_millis())
        };
        for (at, rtt, ack_delay, expected, why) in [
            (1000, 80, 0, (true, 80), "the first"),
            (1010, 61, 0, (true, 61), "a little shorter"),
            (1020, 80, 0, (true, 61), "as long as usual"),
            (2000, 20, 0, (false, 61), "much shorter"),
            (2001, 40, 0, (false, 61), "read after it, but it had left before"),
            (2005, 6, 0, (false, 61), "and so had this one"),
            (2010, 80, 0, (true, 61), "a usual one between them"),
            (2038, 39, 0, (false, 61), "left a millisecond too early"),
            (2044, 44, 0, (true, 44), "left when the first was received, and is about as long as the longest of them"),
            (2100, 60, 20, (true, 40), "the time of holding is not a part of it"),
            (2110, 60, 300, (false, 40), "held for longer than it was gone"),
            (2120, 60, 300, (false, 40), "nor is that confirmed by another one"),
            (3000, 20, 0, (false, 40), "much shorter"),
            (3040, 10, 0, (false, 20), "what is shorter still confirms that alone"),
            (3050, 8, 0, (false, 20), "and is doubted by itself"),
            (3070, 13, 0, (false, 20), "which is not as short"),
            (3090, 13, 0, (true, 13), "but the next one is as short as that"),
            (4000, 5, 0, (false, 13), "much shorter"),
            (4500, 14, 0, (true, 13), "not confirmed for many round trips"),
            (4510, 5, 0, (false, 13), "and so this is the first"),
        ] {
            assert_eq!(is_plausible(at, rtt, ack_delay), expected, "{at}: {why}");
        }
    }

    #[test]
    fn alternating_path_gets_the_shorter_round_trip() {
        let mut path = RttEstimator::new();
        for at in 0..20 {
            feed(&mut path, 1000 + 100 * at, 300, 0);
        }
        let base = (0..10).map(|turn| {
            let (at, rtt) = (4000 + 100 * turn, if turn % 2 == 0 { 100 } else { 300 });
            let newest = NewestAck {
                sent_at: Instant::from_start(ms(at - rtt)),
                received_at: None,
                ack_delay: Duration::ZERO,
                socket_delay: Duration::ZERO,
            };
            if path.is_plausible(&newest, Instant::from_start(ms(at))) {
                feed(&mut path, at, rtt, 0);
            }
            path.base().unwrap()
        });
        assert_eq!(base.collect::<std::vec::Vec<_>>(), [[ms(300); 2].as_slice(), &[ms(100); 8]].concat());
    }

    #[test]
    fn feedback_interval_ignores_a_silence() {
        let mut path = RttEstimator::new();
        for at in 1..200 {
            feed(&mut path, 1000 + 100 * at, 80, 0);
        }
        assert!(path.timing().feedback_interval.abs_diff(100 * MS) < MS);
        feed(&mut path, 60_000, 80, 0);
        assert!(path.timing().feedback_interval <= 120 * MS, "{:?}", path.timing());
    }

    #[test]
    fn minimum_round_trip_expires_with_its_route() {
        let mut path = RttEstimator::new();
        feed(&mut path, 1000, 50, 0);
        for at in 2..20 {
            feed(&mut path, 1000 * at, 90, 0);
        }
        assert_eq!(path.base(), Some(ms(50)));
        for at in 20..30 {
            feed(&mut path, 1000 * at, 90, 0);
        }
        assert_eq!(path.base(), Some(ms(90)));
    }

    #[test]
    fn timeouts_are_those_of_rfc_9002() {
        let quick = Timing { smoothed: 80 * MS, variation: MS, feedback_interval: 5 * MS };
        let rare = Timing { feedback_interval: 33 * MS, ..quick };
        let unsteady = Timing { variation: 20 * MS, ..quick };
        for (timing, delay, probe) in [(quick, 90, 109), (rare, 113, 109), (unsteady, 160, 185)] {
            assert_eq!(
                (timing.loss_delays().after_gap, timing.probe_timeout()),
                (delay * MS, probe * MS),
                "{timing:?}"
            );
        }
    }

    #[test]
    fn path_slower_than_a_second_loses_nothing() {
        let near = Timing { smoothed: 80 * MS, variation: MS, feedback_interval: 33 * MS };
        let far = Timing { smoothed: 1200 * MS, variation: 100 * MS, feedback_interval: 33 * MS };
        assert_eq!((near.loss_delays().limit, far.loss_delays().limit), (1000 * MS, 1658 * MS));
    }

    #[test]
    fn suspended_machine_does_not_delay_losses() {
        let late = Timing { smoothed: 60_000 * MS, variation: 30_000 * MS, feedback_interval: 300 * MS };
        assert_eq!((late.loss_delays().limit, late.probe_timeout()), (5000 * MS, 5000 * MS));
    }
}
