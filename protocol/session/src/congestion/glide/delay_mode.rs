//! Delay mode, the usual one: the rate follows the delivery rate, so that the queue stays near its target (Glide §7).
//!
//! It also decides when to probe whether a standing queue is self-inflicted; `probe_down` evaluates the probe.

use super::super::units::{Bounded, Seconds};
use super::path_sample::PathSample;
use super::send_rate::SendRate;

/// Growth above the delivery rate with an empty queue, as a share: near the known limit of the path, and far from it.
const NEAR: f64 = 0.05;
const FAR: f64 = 0.35;
/// Far growth per loop is at least this share of the peak's excess over the rate, up to a doubling: the path may carry
/// again what it carried before.
const PEAK_SHARE: f64 = 0.5;
const MAX_FAR: f64 = 1.0;
/// The range around the limit that counts as near.
const NEAR_FROM: f64 = 0.85;
const NEAR_TO: f64 = 1.10;
/// Without a rate cut for this many seconds, and with a queue below this share of the target, the limit may be
/// elsewhere.
const UNCUT: Seconds = Seconds(5.0);
const UNCUT_QUEUE: f64 = 0.3;
/// Far growth requires a queue below this share of the target, and a rate below this share of a policer's limit.
const FAR_QUEUE: f64 = 0.4;
const FAR_OF_POLICED: f64 = 0.9;
/// Growth requires that this share of the rate is sent, give or take a packet: on a slow path few packets are sent
/// while that is measured, and never a part of one.
const USED: f64 = 0.75;
/// Jitter from which on packets arrive in bunches, in seconds: the rate then grows from at least this share of the
/// recent peak of the delivery rate, unless the queue counted as self-inflicted within the last of these, in seconds.
const BUNCHED_JITTER: Seconds = Seconds(0.002);
const OF_RECENT_PEAK: f64 = 0.95;
const PEAK_AFTER_FALL: Seconds = Seconds(1.0);
/// The limit is discarded once the rate may reach less than this share of it.
const FORGET_BELOW: f64 = 0.5;
/// Time constant of the limit, in seconds.
const LIMIT_TIME: Seconds = Seconds(0.5);

/// The minimum share of the delivery rate while a queue drains: a self-inflicted queue, and an unknown one.
const MIN_SHARE_IF_SELF_INFLICTED: f64 = 0.15;
const MIN_SHARE_IF_UNKNOWN: f64 = 0.85;
/// The maximum share of the delivery rate above the target: jitter around the target must not push the rate down.
const MAX_ABOVE_TARGET: f64 = 1.02;
/// Growth per loop above the target, at most.
const RISE_ABOVE_TARGET: f64 = 0.1;
/// The rate before a standing queue is at most this multiple of the sending rate.
pub(super) const SENT_MARGIN: f64 = 1.2;
/// The minimum share of the early delivery rate during a standing queue, which cross traffic may have filled.
const STANDING_QUEUE_SHARE: f64 = 0.5;
/// How long a standing queue counts as early, in seconds.
const EARLY_SECONDS: Seconds = Seconds(0.35);
/// A standing queue within this many seconds of another is the same one; otherwise each would halve the rate again.
const SAME_STANDING_QUEUE_SECONDS: Seconds = Seconds(2.0);
/// The queue is self-inflicted if the instant delivery is below this share of the sending rate, with a queue of three
/// targets.
const COLLAPSE_SHARE: f64 = 0.5;
const COLLAPSE_TARGETS: f64 = 3.0;
/// The capacity fell if the queue was above three targets for [`EARLY_SECONDS`], and grew by this share of that time.
/// Cross traffic that doubles its rate in each round trip makes it grow by half of the time, a longer route only once.
const FALL_GROWTH: f64 = 0.6;
/// How long a queue counts as self-inflicted, in seconds: after a probe, and after a probe that ended compete mode.
const SELF_INFLICTED_SECONDS: Seconds = Seconds(1.0);
const SELF_INFLICTED_SECONDS_AFTER_COMPETITION: Seconds = Seconds(3.0);

/// A queue above this multiple of the target is a standing queue.
const STANDING_QUEUE: f64 = 1.2;
/// An early probe requires a queue above this multiple of the target plus a margin in seconds.
const PROBE_QUEUE: f64 = 1.5;
const PROBE_QUEUE_MARGIN: Seconds = Seconds(0.010);
/// The delay of an early probe, in seconds: for a queue above four targets, and for a lower one.
const PROBE_AFTER_HIGH: Seconds = Seconds(0.15);
const PROBE_AFTER: Seconds = Seconds(0.3);
const HIGH: f64 = 4.0;
/// The minimum time between two probes, in seconds.
const PROBE_INTERVAL: Seconds = Seconds(1.0);
/// A late probe follows after four round trips, at least this many seconds.
const SLOW_ROUND_TRIPS: f64 = 4.0;
const SLOW: Seconds = Seconds(1.0);
/// The minimum time since the probe before, in seconds. Each self-inflicted result doubles it, at most this many times.
const SLOW_INTERVAL: Seconds = Seconds(1.0);
const MAX_DOUBLINGS: u32 = 4;
/// Slow recovery: a queue that stays above this share of the target, and a rate below this share of the peak.
const SLOW_RECOVERY_QUEUE: f64 = 0.8;
const SLOW_RECOVERY_RATE: f64 = 0.8;
/// Slow recovery is probed after eight round trips, at least a second.
const SLOW_RECOVERY_ROUND_TRIPS: f64 = 8.0;
const SLOW_RECOVERY_SECONDS: Seconds = Seconds(1.0);
/// The same interval and doublings for slow recovery.
const SLOW_RECOVERY_INTERVAL: Seconds = Seconds(2.0);
const SLOW_RECOVERY_DOUBLINGS: u32 = 3;

/// After this many seconds without an empty queue it is drained once, to measure the base delay.
const DRAIN_INTERVAL: Seconds = Seconds(8.0);
/// A queue below this share of the target counts as empty.
const EMPTY: f64 = 0.5;
/// The rate while draining, as a share of the delivery rate, and the longest drain in seconds.
pub(super) const DRAIN_RATE: f64 = 0.6;
const MAX_DRAIN: Seconds = Seconds(0.3);
const DRAIN_MARGIN: Seconds = Seconds(0.03);

/// The state between feedbacks. Rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct DelayMode {
    /// The delivery rate at which a queue last formed; zero before the first.
    limit: f64,
    /// Whether a queue formed there: loss, or an application with little data, is no limit of the path.
    limit_is_known: bool,
    cut_at: f64,
    grow_after: f64,
    self_inflicted_until: f64,
    probe_after: f64,
    self_inflicted_count: u32,
    standing_queue: Option<StandingQueue>,
    /// The standing queue before, and when it ended.
    previous: Option<(f64, StandingQueue)>,
    slow_recovery: Option<SlowRecovery>,
    /// When the queue was last below three targets, and that queue, in seconds.
    low_queue: (f64, f64),
    empty_at: f64,
    /// When the queue was last not empty.
    busy_at: f64,
    drained_at: f64,
}

/// A queue that stays above the target.
#[derive(Clone, Copy, Debug)]
struct StandingQueue {
    since: f64,
    /// The rate when it started.
    rate: f64,
    /// When it became high enough for an early probe.
    high_since: Option<f64>,
    early_delivery: Option<f64>,
}

/// A queue that never empties, and a rate that does not return to its peak.
#[derive(Clone, Copy, Debug)]
struct SlowRecovery {
    since: f64,
    peak: f64,
}

/// Whether to start a probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProbeDecision {
    None,
    Probe,
}

/// The state of the other parts that decides whether to probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeContext {
    /// A rate is held for a probe, a test or a drain.
    pub(super) is_held: bool,
    /// A probe is active.
    pub(super) is_probing: bool,
    /// The time since the newest probe started.
    pub(super) since_probe: f64,
}

impl DelayMode {
    pub(super) fn new() -> Self {
        Self {
            limit: 0.0,
            limit_is_known: false,
            cut_at: f64::NEG_INFINITY,
            grow_after: f64::NEG_INFINITY,
            self_inflicted_until: f64::NEG_INFINITY,
            probe_after: f64::NEG_INFINITY,
            self_inflicted_count: 0,
            standing_queue: None,
            previous: None,
            slow_recovery: None,
            low_queue: (f64::INFINITY, 0.0),
            empty_at: 0.0,
            busy_at: f64::NEG_INFINITY,
            drained_at: 0.0,
        }
    }

    /// Starts or restarts the mode with this limit.
    pub(super) fn begin(&mut self, limit: f64, sample: &PathSample) {
        self.limit = limit;
        self.previous = None;
        // Wait one round trip: earlier feedback still shows the former rate.
        self.cut_at = sample.now;
        self.grow_after = sample.now + sample.round_trip;
    }

    /// Restarts the mode after compete mode: the cross traffic ended, or the queue was self-inflicted.
    pub(super) fn begin_after_competition(&mut self, sample: &PathSample, is_self_inflicted: bool) {
        self.begin(sample.delivery, sample);
        self.limit_is_known = true;
        self.standing_queue = None;
        if is_self_inflicted {
            self.self_inflicted_until = sample.now + SELF_INFLICTED_SECONDS_AFTER_COMPETITION.0;
        }
    }

    /// Restarts the mode after the route became longer, so there was no queue.
    pub(super) fn begin_on_longer_route(&mut self, sample: &PathSample) {
        self.begin(sample.delivery, sample);
        self.standing_queue = None;
        self.empty_at = sample.now;
    }

    pub(super) fn set_limit(&mut self, limit: f64) {
        self.limit = limit;
        self.limit_is_known = true;
    }

    /// Returns whether the limit of the path is known. Before that there is no reason to grow slowly.
    pub(super) fn knows_limit(&self) -> bool {
        self.limit_is_known
    }

    /// Discards the limit if an application with little data may only reach `max`, far below it: the limit may have
    /// changed, and startup should search for it again. Returns whether it was discarded now.
    pub(super) fn discard_stale_limit(&mut self, max: f64) -> bool {
        let forgets = self.limit_is_known && max < FORGET_BELOW * self.limit;
        self.limit_is_known &= !forgets;
        forgets
    }

    /// Updates limit and empty time, in every mode (Glide §7.1, §7.6).
    pub(super) fn observe(&mut self, sample: &PathSample) {
        if sample.queue < EMPTY * sample.target {
            self.empty_at = sample.now;
        } else {
            self.busy_at = sample.now;
        }
        if sample.queue > sample.target {
            self.limit_is_known |= !sample.app_limited;
            // The first queue sets the limit at once; later ones smooth it.
            let weight = if self.limit <= 0.0 { 1.0 } else { (sample.step / LIMIT_TIME.0).at_most(1.0) };
            self.limit += (sample.delivery - self.limit) * weight;
        }
    }

    /// Returns whether the queue grows so fast that the capacity must have fallen. It then counts as self-inflicted
    /// (Glide §7.3).
    pub(super) fn has_fallen(&mut self, sample: &PathSample) -> bool {
        let now = sample.now;
        if sample.instant_queue < COLLAPSE_TARGETS * sample.target {
            self.low_queue = (now, sample.instant_queue);
            return false;
        }
        let (low_at, low) = self.low_queue;
        let (time, growth) = (now - low_at, sample.instant_queue - low);
        if time < EARLY_SECONDS.0 || growth < FALL_GROWTH * time {
            return false;
        }
        let until = now + SELF_INFLICTED_SECONDS.0;
        (self.self_inflicted_until, self.probe_after) =
            (self.self_inflicted_until.at_least(until), self.probe_after.at_least(until));
        // A fall is one result, however many samples show it.
        self.self_inflicted_count = self.self_inflicted_count.max(1);
        if let Some(standing_queue) = &mut self.standing_queue {
            // What the path delivered before is no share to defend against cross traffic.
            standing_queue.early_delivery = Some(sample.delivery.at_most(sample.instant_arrivals));
        }
        true
    }

    /// Records that the queue is self-inflicted.
    pub(super) fn self_inflicted(&mut self, sample: &PathSample) {
        (self.self_inflicted_until, self.probe_after) =
            (sample.now + SELF_INFLICTED_SECONDS.0, sample.now + SELF_INFLICTED_SECONDS.0);
        // Repeated self-inflicted results make further probes rarer.
        self.self_inflicted_count += 1;
        self.previous = None;
        if let Some(standing_queue) = &mut self.standing_queue {
            standing_queue.early_delivery = Some(sample.delivery);
        }
    }

    /// Records that cross traffic fills the queue.
    pub(super) fn cross_traffic(&mut self) {
        self.self_inflicted_count = 0;
    }

    pub(super) fn is_self_inflicted(&self, now: f64) -> bool {
        now < self.self_inflicted_until
    }

    /// Returns the rate when the standing queue started, if there is one.
    pub(super) fn rate_before_queue(&self) -> Option<f64> {
        self.standing_queue.map(|standing_queue| standing_queue.rate)
    }

    pub(super) fn end_standing_queue(&mut self) {
        self.standing_queue = None;
    }

    /// Tracks standing queues, and returns whether to probe now (Glide §7.4).
    pub(super) fn on_queue(&mut self, sample: &PathSample, around: &ProbeContext, rate: f64) -> ProbeDecision {
        // A held rate or a stall distorts the queue: neither starts nor probes a standing queue.
        let free = !sample.is_draining && !around.is_held;
        let mut decision = ProbeDecision::None;
        if sample.queue > STANDING_QUEUE * sample.target && free {
            decision = self.on_standing_queue(sample, around, rate);
        } else if sample.queue < sample.target && !around.is_probing {
            self.previous =
                self.standing_queue.take().map(|standing_queue| (sample.now, standing_queue)).or(self.previous);
        }
        if decision == ProbeDecision::None {
            decision = self.on_slow_recovery(sample, around, rate, free);
        }
        decision
    }

    fn on_standing_queue(&mut self, sample: &PathSample, around: &ProbeContext, rate: f64) -> ProbeDecision {
        // Two queues in quick succession are one: the rate before the first is the one to restore.
        let now = sample.now;
        let previous = self.previous.filter(|(ended_at, _)| now - ended_at < SAME_STANDING_QUEUE_SECONDS.0);
        let standing_queue = self.standing_queue.get_or_insert_with(|| {
            let rate = rate.at_most(SENT_MARGIN * sample.sent);
            let started = StandingQueue { since: now, rate, high_since: None, early_delivery: None };
            previous.map_or(started, |(_, standing_queue)| StandingQueue {
                since: now,
                high_since: None,
                ..standing_queue
            })
        });
        // A queue that falls below the threshold restarts the delay of the early probe.
        standing_queue.high_since = if sample.queue > PROBE_QUEUE * sample.target + PROBE_QUEUE_MARGIN.0 {
            standing_queue.high_since.or(Some(now))
        } else {
            None
        };
        if standing_queue.early_delivery.is_none() && now - standing_queue.since > EARLY_SECONDS.0 {
            standing_queue.early_delivery = Some(sample.delivery);
        }
        let probe_delay = if sample.queue > HIGH * sample.target { PROBE_AFTER_HIGH.0 } else { PROBE_AFTER.0 };
        let soon = standing_queue.high_since.is_some_and(|since| now - since > probe_delay);
        let slow = now - standing_queue.since > (SLOW_ROUND_TRIPS * sample.round_trip).at_least(SLOW.0)
            && around.since_probe > doubled(SLOW_INTERVAL.0, self.self_inflicted_count, MAX_DOUBLINGS);
        let may = !around.is_probing && now > self.probe_after && around.since_probe > PROBE_INTERVAL.0;
        if may && (soon || slow) { ProbeDecision::Probe } else { ProbeDecision::None }
    }

    /// Handles a rate that never recovers (Glide §7.5).
    fn on_slow_recovery(&mut self, sample: &PathSample, around: &ProbeContext, rate: f64, free: bool) -> ProbeDecision {
        let now = sample.now;
        // The queue is below the threshold of a standing queue, but the rate never recovers: cross traffic may hold
        // it.
        let is_slow_recovery = sample.queue > SLOW_RECOVERY_QUEUE * sample.target
            && !sample.app_limited
            && rate < SLOW_RECOVERY_RATE * sample.peak;
        if !is_slow_recovery {
            self.slow_recovery = None;
            return ProbeDecision::None;
        }
        let slow_recovery = *self.slow_recovery.get_or_insert(SlowRecovery { since: now, peak: sample.peak });
        let long = now - slow_recovery.since
            > (SLOW_RECOVERY_ROUND_TRIPS * sample.round_trip).at_least(SLOW_RECOVERY_SECONDS.0);
        let rested =
            around.since_probe > doubled(SLOW_RECOVERY_INTERVAL.0, self.self_inflicted_count, SLOW_RECOVERY_DOUBLINGS);
        if !(long && rested && free && !around.is_probing) {
            return ProbeDecision::None;
        }
        let since = self.standing_queue.map_or(now, |standing_queue| standing_queue.since);
        let (high_since, early) = self.standing_queue.map_or((None, Some(sample.delivery)), |standing_queue| {
            (standing_queue.high_since, standing_queue.early_delivery)
        });
        self.standing_queue =
            Some(StandingQueue { since, rate: slow_recovery.peak, high_since, early_delivery: early });
        ProbeDecision::Probe
    }

    /// Returns the rate from now on.
    pub(super) fn next_rate(&mut self, sample: &PathSample, rate: f64, policer: f64) -> f64 {
        if sample.queue <= sample.target { self.grow(sample, rate, policer) } else { self.drain(sample, rate) }
    }

    /// Returns the rate below the target (Glide §7.2).
    fn grow(&mut self, sample: &PathSample, rate: f64, policer: f64) -> f64 {
        let now = sample.now;
        let sent = sample.sent + SendRate::unit(sample.largest_packet, rate);
        if sample.app_limited || now <= self.grow_after || sent <= USED * rate {
            return rate;
        }
        // Growth shrinks linearly as the queue approaches the target.
        let room = 1.0 - sample.queue / sample.target;
        let elsewhere = now - self.cut_at > UNCUT.0 && sample.queue < UNCUT_QUEUE * sample.target;
        let is_far = rate < NEAR_FROM * self.limit || rate > NEAR_TO * self.limit || elsewhere;
        let may_go_far = sample.queue < FAR_QUEUE * sample.target && rate < FAR_OF_POLICED * policer;
        let share = if is_far && may_go_far { self.far_growth(sample, rate) } else { NEAR };
        // Growth is per loop time, so that paths of any length grow alike between two reactions.
        let loops = sample.step / sample.loop_time();
        let target = self.carried(sample) * (1.0 + share * room) + sample.least_growth();
        // Grow gradually towards a higher target, and follow a lower one at the same pace.
        if target >= rate {
            (rate * (1.0 + share * room * loops) + sample.least_growth() * loops).at_most(target)
        } else {
            rate + (target - rate) * loops.at_most(1.0)
        }
    }

    /// Returns the growth per loop far from the limit. It is faster towards what the path carried in the last seconds,
    /// but not just after a queue: the capacity has fallen, or other flows have a part of it.
    fn far_growth(&self, sample: &PathSample, rate: f64) -> f64 {
        let is_empty = sample.now > self.busy_at + PEAK_AFTER_FALL.0;
        if !is_empty || !self.may_use_peak(sample.now) {
            return FAR;
        }
        (PEAK_SHARE * (sample.peak / rate - 1.0)).clamp(FAR, MAX_FAR)
    }

    /// Returns whether the last fall of the capacity was long enough ago that the path may carry a former peak.
    fn may_use_peak(&self, now: f64) -> bool {
        now > self.self_inflicted_until + PEAK_AFTER_FALL.0
    }

    /// Returns the delivery rate from which the rate grows. A short span of bunched packets shows less than the path
    /// carries; but a peak from before a fall of the capacity is not what it carries now.
    fn carried(&self, sample: &PathSample) -> f64 {
        let is_bunched = sample.jitter > BUNCHED_JITTER.0;
        if is_bunched && self.may_use_peak(sample.now) {
            return sample.delivery.at_least(OF_RECENT_PEAK * sample.recent_peak);
        }
        sample.delivery
    }

    /// Returns the rate above the target (Glide §7.3).
    fn drain(&mut self, sample: &PathSample, rate: f64) -> f64 {
        let now = sample.now;
        let delivery =
            if sample.has_collapsed { sample.instant_arrivals.at_most(sample.delivery) } else { sample.delivery };
        // The capacity fell far below the sending rate, so the queue is certainly ours: drain it deeply at once.
        if sample.instant_queue > COLLAPSE_TARGETS * sample.target
            && sample.instant_arrivals < COLLAPSE_SHARE * sample.sent
        {
            self.self_inflicted_until = self.self_inflicted_until.at_least(now + SELF_INFLICTED_SECONDS.0);
        }
        let least = if now < self.self_inflicted_until { MIN_SHARE_IF_SELF_INFLICTED } else { MIN_SHARE_IF_UNKNOWN };
        let share = 1.0 - (sample.queue_left - sample.target) / sample.drain_time();
        // The further the queue is above its target, the less is sent, within the bounds.
        let mut target = delivery * share.at_least(least).at_most(MAX_ABOVE_TARGET) + sample.least_growth();
        // If cross traffic fills the queue, draining would only give the path away.
        if let Some(StandingQueue { rate, early_delivery: Some(early), .. }) = self.standing_queue {
            target = target.at_least(STANDING_QUEUE_SHARE * early.at_most(rate));
        }
        if target < rate {
            self.cut_at = now;
            return target;
        }
        (rate * (1.0 + RISE_ABOVE_TARGET * sample.step / sample.loop_time())).at_most(target)
    }

    /// Returns for how many seconds the queue must be drained, if it was not empty for long (Glide §7.6).
    pub(super) fn drain_once(&mut self, sample: &PathSample) -> Option<f64> {
        let now = sample.now;
        let due = now - self.empty_at > DRAIN_INTERVAL.0 && now - self.drained_at > DRAIN_INTERVAL.0;
        if !due || sample.app_limited {
            return None;
        }
        // The time to empty the queue at this rate, plus a margin for the samples to show it.
        self.drained_at = now;
        Some((sample.queue / (1.0 - DRAIN_RATE)).at_most(MAX_DRAIN.0) + DRAIN_MARGIN.0)
    }
}

/// Returns `seconds`, doubled `times` times, at most `max` times.
fn doubled(seconds: f64, times: u32, max: u32) -> f64 {
    seconds * f64::from(1_u32 << times.min(max))
}

#[cfg(test)]
mod tests;
