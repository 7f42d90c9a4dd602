//! The down probe: it reduces the rate briefly and observes whether the standing queue is self-inflicted
//! (Glide §8).
//!
//! A self-inflicted queue falls by exactly the bytes held back; a queue of cross traffic hardly changes. Measured:
//! 1.00 of the expected fall alone, 0.0 to 0.35 against CUBIC.

use super::super::units::{Bounded, Seconds};
use super::path_sample::PathSample;
use super::send_rate::SendRate;

/// The duration of a probe as a share of the queue, and its bounds in seconds.
const QUEUE_SHARE: f64 = 0.25;
const MIN_PROBE: Seconds = Seconds(0.08);
const MAX_PROBE: Seconds = Seconds(0.15);
/// The rate during a probe, as a share of the delivery rate.
pub(super) const DEPTH: f64 = 0.25;
/// The queue before and after is the minimum over this many feedback intervals, at least this many seconds.
const WINDOW_INTERVALS: f64 = 1.2;
const MIN_WINDOW: Seconds = Seconds(0.06);
/// Packets sent within this share of a window after the start still measure the queue before it.
const OVERLAP: f64 = 0.3;
/// An earlier sample before the probe counts instead of a later one if its queue, less what was sent in between, is
/// shorter by this, in seconds.
const SHORTER: Seconds = Seconds(0.002);
/// The probe fails without a result after this many seconds.
const PROBE_TIMEOUT: Seconds = Seconds(3.0);
/// A probe with an expected fall below this, in seconds, is ineffective.
const MIN_FALL: Seconds = Seconds(0.03);
/// The share of the expected fall is not computed below this expected fall, in seconds: it would divide by almost
/// nothing.
const MIN_EXPECTED_FALL: Seconds = Seconds(0.010);
/// An ineffective probe is evidence of cross traffic if this share of the queue and this many targets are left.
const INEFFECTIVE_LEFT: f64 = 0.85;
const INEFFECTIVE_TARGETS: f64 = 1.5;

/// The share of the expected fall from which on the queue is self-inflicted: in delay mode, and in compete mode.
const SELF_INFLICTED_FALL: f64 = 0.6;
const SELF_INFLICTED_FALL_IF_COMPETING: f64 = 0.7;
/// The same share if the queue fell below the target.
const SELF_INFLICTED_FALL_IF_LOW: f64 = 0.4;
/// A queue below this share of the target is empty, so it was self-inflicted, whatever the expected fall.
const EMPTIED: f64 = 0.3;
/// A larger share has another cause, so the probe has no result.
const MAX_FALL: f64 = 1.3;
/// Shares between this and [`SELF_INFLICTED_FALL`] need a second probe, and so does a delivery rate that changed by
/// more than [`UNSTEADY`].
const CROSS_TRAFFIC_FALL: f64 = 0.35;
const UNSTEADY: f64 = 0.35;
/// A delivery rate that changed by more than this share during a probe is not that of the probe.
const MOVED: f64 = 0.15;
/// A fall that differs from the expected one by at most the first share, while the delivery rate changed by at most the
/// second, is certainly self-inflicted.
const CERTAIN_FALL: f64 = 0.2;
const CERTAIN_MOVED: f64 = 0.1;
/// A second probe must follow within this many seconds.
const UNCLEAR_SECONDS: Seconds = Seconds(3.0);
/// This many ineffective probes count as cross traffic.
const MAX_INEFFECTIVE: u32 = 2;
/// Queues that fall to the same floor are equal within this share, or within these seconds.
const SAME_SHARE: f64 = 0.03;
const SAME: Seconds = Seconds(0.003);
/// A queue has fallen to such a floor only if it fell by more than this, in seconds.
const FALLEN: Seconds = Seconds(0.010);
/// How long a self-inflicted result is remembered, in seconds.
const SELF_INFLICTED_MEMORY: Seconds = Seconds(20.0);

/// An active probe; all times in seconds, at sending.
#[derive(Clone, Copy, Debug)]
struct DownProbe {
    begin: f64,
    end: f64,
    window: f64,
    /// The delivery rate at the start, in bytes per second.
    delivery: f64,
    before: Option<QueueSample>,
    after: Option<QueueSample>,
}

#[derive(Clone, Copy, Debug)]
struct QueueSample {
    queue: f64,
    sent: f64,
    /// The queue less what this sender has added to it since the same moment for all samples.
    foreign: f64,
    /// The instant delivery rate.
    arrivals: f64,
}

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum ProbeResult {
    /// The queue is self-inflicted: sending less drains it.
    SelfInflicted,
    /// Cross traffic fills the queue: sending less gives the path away.
    CrossTraffic,
    /// There is no queue: the base round trip increased by this many seconds.
    RttIncreased(f64),
}

/// Whether the controller takes the queue as that of cross traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CrossTraffic {
    Alone,
    Competing,
}

/// Runs probes, and remembers their results.
#[derive(Clone, Debug)]
pub(super) struct DownProbes {
    active: Option<DownProbe>,
    started_at: f64,
    unclear_at: f64,
    ineffective_count: u32,
    self_inflicted_at: f64,
    /// The queue to which the last probe with cross traffic fell.
    floor: f64,
    fall: f64,
    queue_before: f64,
    /// The queue fell at the newest probe just as a self-inflicted one does.
    is_certain: bool,
}

impl DownProbes {
    pub(super) fn new() -> Self {
        Self {
            active: None,
            started_at: f64::NEG_INFINITY,
            unclear_at: f64::NEG_INFINITY,
            ineffective_count: 0,
            self_inflicted_at: f64::NEG_INFINITY,
            floor: 0.0,
            fall: 0.0,
            queue_before: 0.0,
            is_certain: false,
        }
    }

    /// Starts a probe. Returns until when its rate must be held.
    pub(super) fn begin(&mut self, sample: &PathSample) -> f64 {
        // At least one feedback must fall into each window.
        let window = (WINDOW_INTERVALS * sample.feedback_interval).at_least(MIN_WINDOW.0);
        let begin = sample.now;
        let end = begin + (QUEUE_SHARE * sample.queue).clamp(MIN_PROBE.0, MAX_PROBE.0);
        let delivery = sample.delivery;
        self.active = Some(DownProbe { begin, end, window, delivery, before: None, after: None });
        self.started_at = begin;
        // Hold the rate a little longer, so that the samples after the end are not mixed.
        end + OVERLAP * window
    }

    /// Ends an active probe without a result.
    pub(super) fn end_probe(&mut self) {
        self.active = None;
    }

    pub(super) fn is_active(&self) -> bool {
        self.active.is_some()
    }

    /// Returns the time since the newest probe started.
    pub(super) fn age(&self, now: f64) -> f64 {
        now - self.started_at
    }

    /// Returns the fall at the newest probe, as a share of that expected of a self-inflicted queue.
    pub(super) fn fall(&self) -> f64 {
        self.fall
    }

    /// Returns the queue before the newest probe.
    pub(super) fn queue_before(&self) -> f64 {
        self.queue_before
    }

    /// Returns whether the queue fell at the newest probe just as a self-inflicted one does.
    pub(super) fn is_certain(&self) -> bool {
        self.is_certain
    }

    /// Processes feedback. Returns the result once there is one.
    pub(super) fn on_feedback(
        &mut self,
        sample: &PathSample,
        send_rate: &SendRate,
        cross_traffic: CrossTraffic,
    ) -> Option<ProbeResult> {
        // Feedback without a new arrival says nothing about the queue.
        let sent = sample.newest_sent?;
        let mut probe = self.active?;
        let queue = sample.newest_queue;
        let foreign = queue + sent - send_rate.bytes_until(sent) / probe.delivery;
        probe.take(QueueSample { queue, sent, foreign, arrivals: sample.instant_arrivals });
        let is_over = sent > probe.end + probe.window || sample.now > probe.end + PROBE_TIMEOUT.0;
        self.active = Some(probe).filter(|_| !is_over);
        if !is_over {
            return None;
        }
        self.queue_before = probe.before.map_or(f64::INFINITY, |before| before.queue);
        let (before, after) = (probe.before?, probe.after?);
        let expected = probe.expected_fall(before, after, probe.delivery, send_rate);
        let fall = relative_fall(before, after, expected);
        let moved = (sample.delivery / probe.delivery - 1.0).abs();
        let changed = probe.changed_capacity(before, sample).filter(|_| cross_traffic == CrossTraffic::Alone);
        let is_change = changed.is_some_and(|capacity| {
            relative_fall(before, after, probe.expected_fall(before, after, capacity, send_rate)) >= SELF_INFLICTED_FALL
        });
        let result = if expected > MIN_FALL.0 {
            (self.fall, self.ineffective_count) = (fall, 0);
            self.classify(fall, after.queue, moved, sample, cross_traffic)
        } else {
            self.on_ineffective(before.queue, after.queue, sample, cross_traffic)
        };
        if is_change && result == Some(ProbeResult::CrossTraffic) {
            return None;
        }
        self.is_certain = (fall - 1.0).abs() < CERTAIN_FALL && moved < CERTAIN_MOVED;
        self.confirm(result?, before, after, fall, cross_traffic, sample.now)
    }

    /// Returns the result of an effective probe (Glide §8.3).
    fn classify(
        &mut self,
        fall: f64,
        after: f64,
        moved: f64,
        sample: &PathSample,
        cross_traffic: CrossTraffic,
    ) -> Option<ProbeResult> {
        let enough = if cross_traffic == CrossTraffic::Competing {
            SELF_INFLICTED_FALL_IF_COMPETING
        } else {
            SELF_INFLICTED_FALL
        };
        if after < EMPTIED * sample.target || (after < sample.target && fall >= SELF_INFLICTED_FALL_IF_LOW) {
            return Some(ProbeResult::SelfInflicted);
        }
        // Cross traffic ended during the probe, or the capacity rose.
        if fall > MAX_FALL {
            return None;
        }
        if fall >= enough {
            return Some(ProbeResult::SelfInflicted);
        }
        // Ask again before entering compete mode, which costs delay.
        let unclear = cross_traffic == CrossTraffic::Alone && (fall >= CROSS_TRAFFIC_FALL || moved > UNSTEADY);
        if unclear && sample.now - self.unclear_at > UNCLEAR_SECONDS.0 {
            self.unclear_at = sample.now;
            return None;
        }
        Some(ProbeResult::CrossTraffic)
    }

    /// Handles a probe without effect: the sending rate is so low already that reducing it changes nothing, and still
    /// there is a queue.
    fn on_ineffective(
        &mut self,
        before: f64,
        after: f64,
        sample: &PathSample,
        cross_traffic: CrossTraffic,
    ) -> Option<ProbeResult> {
        if cross_traffic == CrossTraffic::Competing {
            // In compete mode the window limits the rate, so the observed fall is that of the bytes held back.
            return None;
        }
        if after > INEFFECTIVE_LEFT * before && after > INEFFECTIVE_TARGETS * sample.target {
            self.ineffective_count += 1;
        }
        if self.ineffective_count < MAX_INEFFECTIVE {
            return None;
        }
        (self.ineffective_count, self.fall) = (0, 0.0);
        Some(ProbeResult::CrossTraffic)
    }

    /// Returns the result, unless the floor of the queue shows a longer route (Glide §8.4).
    fn confirm(
        &mut self,
        result: ProbeResult,
        before: QueueSample,
        after: QueueSample,
        fall: f64,
        cross_traffic: CrossTraffic,
        now: f64,
    ) -> Option<ProbeResult> {
        // The queue fell twice to the same floor, and was ours before: that floor is the base delay of a longer
        // route.
        let same_floor = (after.queue - self.floor).abs() < (SAME_SHARE * self.floor).at_least(SAME.0);
        let longer = ProbeResult::RttIncreased(self.floor);
        match (cross_traffic, result) {
            (CrossTraffic::Competing, result) => {
                if result == ProbeResult::SelfInflicted {
                    self.self_inflicted_at = now;
                }
                let fell = fall > SELF_INFLICTED_FALL && before.queue - after.queue > FALLEN.0;
                Some(if fell && same_floor { longer } else { result })
            }
            (CrossTraffic::Alone, ProbeResult::CrossTraffic) => {
                let was_self_inflicted = now - self.self_inflicted_at < SELF_INFLICTED_MEMORY.0;
                self.self_inflicted_at = f64::NEG_INFINITY;
                if was_self_inflicted && same_floor {
                    return Some(longer);
                }
                // Remember the floor: if the next probe reaches it again, it is no queue.
                self.floor = after.queue;
                Some(ProbeResult::CrossTraffic)
            }
            (CrossTraffic::Alone, result) => Some(result),
        }
    }
}

impl DownProbe {
    fn take(&mut self, sample: QueueSample) {
        if sample.sent <= self.begin + OVERLAP * self.window {
            // The minimum of the window, because jitter only adds to a sample. A sender above the capacity makes its
            // queue grow meanwhile, which must not hide the fall after it.
            let from = self.begin - self.window;
            let best = self.before.filter(|best| best.sent > from && best.foreign <= sample.foreign - SHORTER.0);
            self.before = Some(best.unwrap_or(sample));
        }
        if sample.sent >= self.end && self.after.is_none_or(|after| sample.queue < after.queue) {
            self.after = Some(sample);
        }
    }

    /// Returns the expected fall of a self-inflicted queue between two samples (Glide §8.2), on a path of this
    /// capacity: the time that passed, less that in which the path delivers the bytes sent.
    fn expected_fall(&self, before: QueueSample, after: QueueSample, capacity: f64, send_rate: &SendRate) -> f64 {
        let put_in = send_rate.bytes_until(after.sent) - send_rate.bytes_until(before.sent);
        (after.sent - before.sent) - put_in / capacity
    }

    /// Returns the capacity during the probe if it has changed: the mean of that before the probe and that after it.
    fn changed_capacity(&self, before: QueueSample, sample: &PathSample) -> Option<f64> {
        let has_moved = (sample.instant_arrivals / self.delivery - 1.0).abs() > MOVED;
        (has_moved && !sample.has_demand).then(|| before.arrivals.midpoint(sample.instant_arrivals))
    }
}

/// Returns the fall of the queue as a share of the expected one.
fn relative_fall(before: QueueSample, after: QueueSample, expected: f64) -> f64 {
    if expected > MIN_EXPECTED_FALL.0 { (before.queue - after.queue) / expected } else { -1.0 }
}

#[cfg(test)]
mod tests;
