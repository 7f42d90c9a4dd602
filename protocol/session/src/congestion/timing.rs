//! How long the path takes, and how long one waits before a packet counts as lost or a probe is due.
//!
//! Whether a packet's place is taken by such a deadline is the flight's matter.

use core::time::Duration;

use super::extreme::Extreme;
use super::{Feedback, Newest};
use slipgate_netcode::time::Instant;

/// Until a round trip was measured (RFC 9002, section 6.2.2).
const INITIAL_ROUND_TRIP: Duration = Duration::from_millis(333);
/// Weight of a new sample in the estimate (RFC 6298, section 2.3).
const SMOOTHING: f64 = 0.125;
/// Weight of a new sample in the variation (RFC 6298, section 2.3).
const VARIATION_SMOOTHING: f64 = 0.25;
/// How many variations a round trip may take longer than usual (RFC 6298, section 2.3).
const VARIATIONS: u32 = 4;
/// A packet may be late by an eighth of the round trip before it counts as lost (RFC 9002, section 6.1.2).
const REORDERING_SHARE: u32 = 8;
/// What a timer can tell apart (RFC 9002, section 6.1.2).
const GRANULARITY: Duration = Duration::from_millis(1);
/// How long a peer of ours holds an acknowledgement at most (RFC 9000, section 18.2).
const ACK_DELAY: Duration = Duration::from_millis(25);
/// Lost is what was not acknowledged within this ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP").
const LOSS_LIMIT: Duration = Duration::from_secs(1);

/// No path takes longer: what was acknowledged tens of seconds late waited for a machine that stood still, and must not
/// make the next loss wait as long.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Feedback comes at 30 packets per second (the same article) until its interval was measured.
const INITIAL_FEEDBACK_INTERVAL: Duration = Duration::from_millis(33);
/// Weight of a new interval between two datagrams of the peer.
const INTERVAL_SMOOTHING: f64 = 0.1;
/// A longer silence is none of the peer's rhythm.
const LONGEST_INTERVAL: Duration = Duration::from_millis(300);
/// How far back the least round trip is looked for: as long as a route usually stays.
const BASE_WINDOW: Duration = Duration::from_secs(20);
/// A round trip below this share of the least of late wants a second one, which may itself be longer by as much.
const DOUBTED: f64 = 0.75;
/// What is doubted is forgotten with a usual round trip so many of the least ones and of the feedback's intervals later.
const DOUBT_LASTS: u32 = 4;

/// What deadlines need to know of the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The round-trip time, smoothed (RFC 6298).
    pub smoothed: Duration,
    /// How far round trips are from it (RFC 6298).
    pub variation: Duration,
    /// How far apart the peer's reports come.
    pub feedback_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            smoothed: INITIAL_ROUND_TRIP,
            variation: INITIAL_ROUND_TRIP / 2,
            feedback_interval: INITIAL_FEEDBACK_INTERVAL,
        }
    }
}

impl Timing {
    /// The age beyond which a packet is lost once newer ones were acknowledged (RFC 9002, section 6.1.2; an interval of
    /// the feedback is allowed for too, because acknowledgements wait for the peer's next packet).
    #[must_use]
    pub fn loss_delay(&self) -> Duration {
        let grace = self.smoothed / REORDERING_SHARE;
        self.smoothed + grace.max(self.variation * VARIATIONS).max(self.feedback_interval).max(GRANULARITY)
    }

    /// The age at which a packet is lost, whatever was acknowledged: one second, or up to five where the path is slower.
    #[must_use]
    pub fn loss_limit(&self) -> Duration {
        LOSS_LIMIT.max(self.loss_delay() + self.feedback_interval + ACK_DELAY).min(LONGEST_WAIT)
    }

    /// How long after the last departure a silent path is probed (RFC 9002, section 6.2.1).
    #[must_use]
    pub fn probe_timeout(&self) -> Duration {
        (self.smoothed + GRANULARITY.max(self.variation * VARIATIONS) + ACK_DELAY).min(LONGEST_WAIT)
    }
}

/// Measures the round trip and the rhythm of the feedback. A sample costs a few additions.
#[derive(Clone, Debug)]
pub(super) struct RoundTrip {
    timing: Timing,
    base: Extreme,
    heard_at: Option<Instant>,
    doubt: Option<Doubt>,
}

/// A round trip that was much shorter than all of late, and that none has confirmed.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    since: Instant,
    rtt: Duration,
}

impl RoundTrip {
    pub(super) fn new() -> Self {
        Self { timing: Timing::default(), base: Extreme::least(BASE_WINDOW), heard_at: None, doubt: None }
    }

    pub(super) fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        if let Some(heard_at) = self.heard_at {
            let interval = feedback.now.since(heard_at).min(LONGEST_INTERVAL);
            self.timing.feedback_interval = blend(self.timing.feedback_interval, interval, INTERVAL_SMOOTHING);
        }
        self.heard_at = Some(feedback.now);
        if let Some(newest) = feedback.newest {
            self.sample(feedback.now.since(newest.sent_at).saturating_sub(newest.ack_delay), feedback.now);
        }
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// The least round trip of late; `None` before the first.
    pub(super) fn base(&self) -> Option<Duration> {
        self.base.value().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
    }

    /// The smoothed round trip; `None` before the first.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.base().map(|_| self.timing.smoothed)
    }

    /// Whether a sample may be taken for one of the path.
    ///
    /// A clock that moved meanwhile makes others: the peer's jumps while it holds the acknowledgement, or ours stands still
    /// with its machine, which then finds the acknowledgement in its socket. Such round trips are too short, and the least
    /// one is believed for long; so one that is much shorter than all of late counts when a packet that left after it was
    /// heard is as quick. No peer holds an acknowledgement for longer than the packet has been gone.
    pub(super) fn believes(&mut self, newest: &Newest, now: Instant) -> bool {
        let gone = now.since(newest.sent_at);
        if newest.ack_delay > gone + GRANULARITY {
            return false;
        }
        let rtt = gone.saturating_sub(newest.ack_delay);
        if self.base().is_none_or(|base| rtt + GRANULARITY >= base.mul_f64(DOUBTED)) {
            self.doubt = self.doubt.filter(|doubt| now.since(doubt.since) <= self.doubt_lasts());
            return true;
        }
        self.confirms(rtt, newest.sent_at, now)
    }

    /// Paths that are bonded, or that change to and fro, have short round trips between long ones.
    fn doubt_lasts(&self) -> Duration {
        (self.base().unwrap_or_default() + self.timing.feedback_interval) * DOUBT_LASTS
    }

    /// Whether a short sample counts, because one before was as short; if that was longer, it counts instead.
    fn confirms(&mut self, rtt: Duration, sent_at: Instant, now: Instant) -> bool {
        match &mut self.doubt {
            // All that gathered in a socket is read in one go, and is as wrong as the first of it.
            Some(doubt) if sent_at < doubt.since => doubt.rtt = doubt.rtt.max(rtt),
            Some(doubt) if rtt.mul_f64(DOUBTED) <= doubt.rtt + GRANULARITY => {
                let first = doubt.rtt;
                self.doubt = None;
                if rtt >= first {
                    return true;
                }
                self.sample(first, now);
            }
            doubt => *doubt = Some(Doubt { since: now, rtt }),
        }
        false
    }

    fn sample(&mut self, rtt: Duration, now: Instant) {
        let Timing { smoothed, variation, .. } = self.timing;
        (self.timing.smoothed, self.timing.variation) = if self.base.value().is_none() {
            (rtt, rtt / 2)
        } else {
            (blend(smoothed, rtt, SMOOTHING), blend(variation, smoothed.abs_diff(rtt), VARIATION_SMOOTHING))
        };
        self.base.push(rtt.as_secs_f64(), now.since_start().as_secs_f64());
    }
}

/// `weight` of the way from `old` to `new`.
fn blend(old: Duration, new: Duration, weight: f64) -> Duration {
    let (from, to) = (old.as_secs_f64(), new.as_secs_f64());
    Duration::try_from_secs_f64(from + (to - from) * weight).unwrap_or(old)
}

#[cfg(test)]
mod tests {
    use super::super::Newest;
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn hear(path: &mut RoundTrip, at: u64, rtt: u64, ack_delay: u64) {
        let newest = Newest {
            sent_at: Instant::from_start(ms(at - rtt - ack_delay)),
            received_at: None,
            ack_delay: ms(ack_delay),
            unread: Duration::ZERO,
        };
        path.on_feedback(&Feedback {
            now: Instant::from_start(ms(at)),
            newest: Some(newest),
            acked: &[],
            lost: &[],
            delivered: 0,
            in_flight: 0,
        });
    }

    #[test]
    fn the_first_sample_is_the_estimate_and_half_of_it_the_variation() {
        let mut path = RoundTrip::new();
        assert_eq!((path.base(), path.smoothed(), path.timing()), (None, None, Timing::default()));
        hear(&mut path, 1000, 80, 0);
        assert_eq!((path.timing().smoothed, path.timing().variation, path.base()), (ms(80), ms(40), Some(ms(80))));
    }

    #[test]
    fn what_the_peer_held_back_is_no_part_of_the_round_trip() {
        let mut path = RoundTrip::new();
        hear(&mut path, 1000, 80, 20);
        assert_eq!(path.smoothed(), Some(ms(80)));
    }

    #[test]
    fn a_round_trip_much_shorter_than_all_of_late_counts_when_a_packet_confirms_it_that_left_later() {
        let newest = |at: u64, rtt: u64, ack_delay| Newest {
            sent_at: Instant::from_start(ms(at - rtt)),
            received_at: None,
            ack_delay: ms(ack_delay),
            unread: Duration::ZERO,
        };
        let mut path = RoundTrip::new();
        let mut believes = |at, rtt, ack_delay| {
            let believes = path.believes(&newest(at, rtt, ack_delay), Instant::from_start(ms(at)));
            if believes {
                hear(&mut path, at, rtt - ack_delay.min(rtt), ack_delay.min(rtt));
            }
            (believes, path.base().unwrap().as_millis())
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
            (2044, 44, 0, (true, 44), "left as the first was heard, and is about as long as the longest of them"),
            (2100, 60, 20, (true, 40), "what was held is no part of it"),
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
            assert_eq!(believes(at, rtt, ack_delay), expected, "{at}: {why}");
        }
    }

    #[test]
    fn a_path_that_changes_to_and_fro_has_the_shorter_round_trip_after_a_second_of_that() {
        let mut path = RoundTrip::new();
        for at in 0..20 {
            hear(&mut path, 1000 + 100 * at, 300, 0);
        }
        let base = (0..10).map(|turn| {
            let (at, rtt) = (4000 + 100 * turn, if turn % 2 == 0 { 100 } else { 300 });
            let newest = Newest {
                sent_at: Instant::from_start(ms(at - rtt)),
                received_at: None,
                ack_delay: Duration::ZERO,
                unread: Duration::ZERO,
            };
            if path.believes(&newest, Instant::from_start(ms(at))) {
                hear(&mut path, at, rtt, 0);
            }
            path.base().unwrap()
        });
        assert_eq!(base.collect::<std::vec::Vec<_>>(), [[ms(300); 2].as_slice(), &[ms(100); 8]].concat());
    }

    #[test]
    fn the_interval_follows_the_peers_rhythm_but_no_silence() {
        let mut path = RoundTrip::new();
        for at in 1..200 {
            hear(&mut path, 1000 + 100 * at, 80, 0);
        }
        assert!(path.timing().feedback_interval.abs_diff(ms(100)) < ms(1));
        hear(&mut path, 60_000, 80, 0);
        assert!(path.timing().feedback_interval <= ms(120), "{:?}", path.timing());
    }

    #[test]
    fn the_least_round_trip_is_forgotten_with_its_route() {
        let mut path = RoundTrip::new();
        hear(&mut path, 1000, 50, 0);
        for at in 2..20 {
            hear(&mut path, 1000 * at, 90, 0);
        }
        assert_eq!(path.base(), Some(ms(50)));
        for at in 20..30 {
            hear(&mut path, 1000 * at, 90, 0);
        }
        assert_eq!(path.base(), Some(ms(90)));
    }

    #[test]
    fn deadlines_are_those_of_rfc_9002() {
        let quick = Timing { smoothed: ms(80), variation: ms(1), feedback_interval: ms(5) };
        let rare = Timing { feedback_interval: ms(33), ..quick };
        let unsteady = Timing { variation: ms(20), ..quick };
        for (timing, delay, probe) in [(quick, 90, 109), (rare, 113, 109), (unsteady, 160, 185)] {
            assert_eq!((timing.loss_delay(), timing.probe_timeout()), (ms(delay), ms(probe)), "{timing:?}");
        }
    }

    #[test]
    fn a_path_slower_than_a_second_loses_nothing_by_that() {
        let near = Timing { smoothed: ms(80), variation: ms(1), feedback_interval: ms(33) };
        let far = Timing { smoothed: ms(1200), variation: ms(100), feedback_interval: ms(33) };
        assert_eq!((near.loss_limit(), far.loss_limit()), (ms(1000), ms(1658)));
    }

    #[test]
    fn a_machine_that_stood_still_for_a_minute_does_not_make_losses_wait_as_long() {
        let late = Timing { smoothed: ms(60_000), variation: ms(30_000), feedback_interval: ms(300) };
        assert_eq!((late.loss_limit(), late.probe_timeout()), (ms(5000), ms(5000)));
    }
}
