//! The measurements at one feedback, and the values that follow from them by formula (Glide §4.8, §4.9).
//!
//! Rates are in bytes per second, times in seconds.

use super::super::units::{Bounded, Bytes, Seconds};

/// The target queueing delay, in seconds: what a link scheduler needs to keep the path busy.
const TARGET: Seconds = Seconds(0.010);
/// The maximum target, in seconds.
const MAX_TARGET: Seconds = Seconds(0.040);
/// The target contains this multiple of the jitter.
const TARGET_JITTER: f64 = 1.2;
/// The duration of a typical packet on the path, in seconds, between [`MIN_PACKET`] and the largest packet.
const PACKET_TIME: Seconds = Seconds(0.010);
/// 256-byte packets ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP").
const MIN_PACKET: Bytes = Bytes(256.0);
/// The delay of the delay filter, in seconds, which adds to round trip and feedback interval.
const FILTER: Seconds = Seconds(0.05);
/// The minimum time in which a queue is drained, in seconds.
const MIN_DRAIN: Seconds = Seconds(0.25);
/// The time in which a queue is drained, in loop times: a shorter one drains past the target before that shows.
const DRAIN_LOOPS: f64 = 2.0;
/// The minimum growth per loop, in packets, so that small rates grow too.
const MIN_GROWTH_PACKETS: f64 = 0.02;

/// The state of the path at one feedback.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct PathSample {
    pub(super) now: f64,
    /// The time since the feedback before, at most a quarter of a second.
    pub(super) step: f64,
    /// When the newest packet was sent, if this feedback reports a new one.
    pub(super) newest_sent: Option<f64>,
    /// The queueing delay that this packet met.
    pub(super) newest_queue: f64,
    /// The queueing delay: filtered, or instant if the capacity has collapsed.
    pub(super) queue: f64,
    /// The smaller of the two newest delay samples.
    pub(super) instant_queue: f64,
    /// The estimated queueing delay now, from the bytes in flight: delay samples are a queue old.
    pub(super) queue_left: f64,
    /// The target queueing delay.
    pub(super) target: f64,
    /// The delivery rate, plus random loss.
    pub(super) delivery: f64,
    /// The delivery rate.
    pub(super) arrivals: f64,
    /// The delivery rate over 50 ms.
    pub(super) instant_arrivals: f64,
    /// The maximum delivery rate of the last 10 s.
    pub(super) peak: f64,
    /// The maximum delivery rate of the last 2 s.
    pub(super) recent_peak: f64,
    /// The sending rate.
    pub(super) sent: f64,
    pub(super) round_trip: f64,
    pub(super) base_round_trip: f64,
    pub(super) feedback_interval: f64,
    /// The capacity fell suddenly.
    pub(super) has_collapsed: bool,
    /// The backlog of a stall is still draining.
    pub(super) is_draining: bool,
    /// More is lost than random loss explains.
    pub(super) has_excess_loss: bool,
    /// The application sends all it has.
    pub(super) app_limited: bool,
    /// The application has had all that it wanted at this path, and wanted less than the path carries.
    pub(super) has_demand: bool,
    /// The jitter beyond what any path has.
    pub(super) jitter: f64,
    pub(super) packet: f64,
    pub(super) largest_packet: f64,
}

impl PathSample {
    /// Returns how long a change of the rate takes to show.
    pub(super) fn loop_time(&self) -> f64 {
        self.round_trip + self.feedback_interval + FILTER.0
    }

    /// Returns the time in which a queue is to be drained.
    pub(super) fn drain_time(&self) -> f64 {
        (DRAIN_LOOPS * self.loop_time()).at_least(MIN_DRAIN.0)
    }

    /// Returns the minimum growth in bytes per second.
    pub(super) fn least_growth(&self) -> f64 {
        MIN_GROWTH_PACKETS * self.largest_packet / self.loop_time()
    }
}

/// Returns the typical packet at this rate: games on slow paths send small packets.
pub(super) fn packet(delivery: f64, largest: f64) -> f64 {
    // The largest packet may itself be below the minimum.
    (delivery * PACKET_TIME.0).at_least(MIN_PACKET.0).at_most(largest)
}

/// Returns the target queueing delay: one packet is always in transmission, and jitter looks like a queue.
pub(super) fn target(delivery: f64, packet: f64, jitter: f64) -> f64 {
    // One packet is always in transmission: on a slow path that alone is many milliseconds.
    (TARGET.0 + packet / delivery + TARGET_JITTER * jitter).at_most(MAX_TARGET.0)
}

/// A quiet path of 1 MB/s and 40 ms, all of it used.
#[cfg(test)]
pub(super) const QUIET: PathSample = PathSample {
    now: 100.0,
    step: 0.02,
    newest_sent: Some(99.96),
    newest_queue: 0.0,
    queue: 0.0,
    instant_queue: 0.0,
    queue_left: 0.0,
    target: 0.011,
    delivery: 1e6,
    arrivals: 1e6,
    instant_arrivals: 1e6,
    peak: 1e6,
    recent_peak: 1e6,
    sent: 1e6,
    round_trip: 0.04,
    base_round_trip: 0.04,
    feedback_interval: 0.02,
    has_collapsed: false,
    is_draining: false,
    has_excess_loss: false,
    app_limited: false,
    has_demand: false,
    jitter: 0.0,
    packet: 1200.0,
    largest_packet: 1200.0,
};

/// The same with a queue.
#[cfg(test)]
pub(super) fn queued(queue: f64, now: f64) -> PathSample {
    PathSample { now, newest_queue: queue, queue, instant_queue: queue, queue_left: queue, ..QUIET }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_adds_one_packet_to_the_schedulers_need() {
        for (mbit, expected) in [(100.0, 10.1), (10.0, 11.0), (1.0, 19.6), (0.25, 20.0), (0.125, 26.4), (0.064, 40.0)] {
            let delivery = mbit * 125_000.0;
            let target = target(delivery, packet(delivery, 1200.0), 0.0);
            assert!((target * 1000.0 - expected).abs() < 0.15, "{mbit} Mbit/s: {target}");
        }
    }

    #[test]
    fn jitter_raises_the_target_up_to_a_limit() {
        assert!((target(1e6, 1200.0, 0.010) - 0.0232).abs() < 1e-6);
        assert!(target(1e6, 1200.0, 1.0) <= 0.04);
    }
}
