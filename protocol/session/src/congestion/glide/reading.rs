//! What is measured at one feedback, and what follows from it by formula alone.
//!
//! Rates are in bytes per second, times in seconds.

/// The queue that is aimed at: what a scheduler needs to keep the path busy, in seconds.
const TARGET: f64 = 0.010;
/// No more is aimed at, whatever the path is like.
const MOST_TARGET: f64 = 0.040;
/// The share of the jitter that is added to it.
const TARGET_JITTER: f64 = 0.7;
/// A packet as the path sees it lasts about this long, in seconds, within [`LEAST_PACKET`] and the largest.
const PACKET_TIME: f64 = 0.010;
/// 256-byte packets ("Fiedler, Reliability, Ordering and Congestion Avoidance over UDP").
const LEAST_PACKET: f64 = 256.0;
/// Beside the round trip and the feedback's interval, a change shows after this: the filter of the delay.
const FILTER: f64 = 0.05;
/// A queue is drained in no less than this.
const LEAST_DRAIN: f64 = 0.25;

/// One feedback's view of the path.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Reading {
    pub(super) now: f64,
    /// Since the feedback before, at most a quarter of a second.
    pub(super) step: f64,
    /// When the newest packet left, if it is news.
    pub(super) newest_sent: Option<f64>,
    /// The queue it met.
    pub(super) newest_queue: f64,
    /// The queue: filtered, or at once when the path's capacity has collapsed.
    pub(super) queue: f64,
    /// The lesser of the two newest samples.
    pub(super) queue_at_once: f64,
    /// What is in the queue now, by what is in flight: samples are a queue old.
    pub(super) queue_left: f64,
    /// The queue that is aimed at.
    pub(super) target: f64,
    /// What is delivered, lost packets counted in as far as loss says nothing of the rate.
    pub(super) delivery: f64,
    /// What is delivered.
    pub(super) arrivals: f64,
    /// The same over 50 ms.
    pub(super) arrivals_at_once: f64,
    /// Its greatest value of 10 s.
    pub(super) peak: f64,
    /// Its greatest value of 2 s.
    pub(super) recent_peak: f64,
    /// What is sent.
    pub(super) sent: f64,
    pub(super) round_trip: f64,
    pub(super) base_round_trip: f64,
    pub(super) feedback_interval: f64,
    /// Capacity fell at once.
    pub(super) has_collapsed: bool,
    /// What gathered during a stall is still draining.
    pub(super) is_draining: bool,
    /// More is lost than is known to be the path's way.
    pub(super) loses_more: bool,
    /// The application sends all it has.
    pub(super) app_limited: bool,
    pub(super) packet: f64,
    pub(super) largest_packet: f64,
}

impl Reading {
    /// How long a change of the rate takes to show.
    pub(super) fn loop_time(&self) -> f64 {
        self.round_trip + self.feedback_interval + FILTER
    }

    /// In which time a queue is drained.
    pub(super) fn drain_time(&self) -> f64 {
        (2.0 * self.loop_time()).max(LEAST_DRAIN)
    }

    /// Bytes per second that are added to any rate, so that small ones grow too: a fiftieth of a packet each loop.
    pub(super) fn least_growth(&self) -> f64 {
        0.02 * self.largest_packet / self.loop_time()
    }
}

/// A packet as the path sees it at this rate: games on slow paths send small ones.
pub(super) fn packet(delivery: f64, largest: f64) -> f64 {
    (delivery * PACKET_TIME).clamp(LEAST_PACKET.min(largest), largest)
}

/// The queue that is aimed at: one packet is always under way, and jitter passes for a queue.
pub(super) fn target(delivery: f64, packet: f64, jitter: f64) -> f64 {
    (TARGET + packet / delivery + TARGET_JITTER * jitter).min(MOST_TARGET)
}

/// A quiet path of 1 MB/s and 40 ms, all of it used.
#[cfg(test)]
pub(super) const QUIET: Reading = Reading {
    now: 100.0,
    step: 0.02,
    newest_sent: Some(99.96),
    newest_queue: 0.0,
    queue: 0.0,
    queue_at_once: 0.0,
    queue_left: 0.0,
    target: 0.011,
    delivery: 1e6,
    arrivals: 1e6,
    arrivals_at_once: 1e6,
    peak: 1e6,
    recent_peak: 1e6,
    sent: 1e6,
    round_trip: 0.04,
    base_round_trip: 0.04,
    feedback_interval: 0.02,
    has_collapsed: false,
    is_draining: false,
    loses_more: false,
    app_limited: false,
    packet: 1200.0,
    largest_packet: 1200.0,
};

/// The same with a queue.
#[cfg(test)]
pub(super) fn queued(queue: f64, now: f64) -> Reading {
    Reading { now, newest_queue: queue, queue, queue_at_once: queue, queue_left: queue, ..QUIET }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_holds_one_packet_more_than_a_schedulers_need() {
        for (mbit, expected) in [(100.0, 10.1), (10.0, 11.0), (1.0, 19.6), (0.25, 20.0), (0.125, 26.4), (0.064, 40.0)] {
            let delivery = mbit * 125_000.0;
            let target = target(delivery, packet(delivery, 1200.0), 0.0);
            assert!((target * 1000.0 - expected).abs() < 0.15, "{mbit} Mbit/s: {target}");
        }
    }

    #[test]
    fn jitter_widens_the_target_up_to_a_limit() {
        assert!((target(1e6, 1200.0, 0.010) - 0.0182).abs() < 1e-6);
        assert!(target(1e6, 1200.0, 1.0) <= 0.04);
    }
}
