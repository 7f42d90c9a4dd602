//! Protected demand: the demand that an application had while the path had no queue (Glide §10).
//!
//! A queue that forms while the sending rate stays at such a demand comes from other flows, or from a capacity that
//! fell. The sender keeps the demand until a probe finds which. It gives the demand up if the queue is self-inflicted,
//! if far less arrives than is sent, or if much is lost.

use super::super::units::{Bounded, Seconds};
use super::path_sample::PathSample;

/// The time constants of the demand, in seconds, while it rises and while it falls.
const RISE_TIME: Seconds = Seconds(0.5);
const FALL_TIME: Seconds = Seconds(10.0);
/// The demand counts while the application sent all it had for this share of the time, with this time constant in
/// seconds.
const MET_SHARE: f64 = 0.8;
const MET_TIME: Seconds = Seconds(1.0);
/// A trial ends if the queue is below this share of the target: it is low between two bursts of another flow, too.
const TRIAL_OVER: f64 = 0.5;
/// The rate of a protected demand, as a multiple: what a probe held back is sent after it.
const CATCH_UP: f64 = 1.25;
/// The maximum time of a trial, in seconds: probes repeat each second or two, and each may be without a result.
const MAX_TRIAL: Seconds = Seconds(10.0);
/// A trial ends with a longer queue, in seconds: a game cannot be played with it.
const MAX_TRIAL_QUEUE: Seconds = Seconds(1.0);
/// A capacity that fell shows early in a trial, within this many seconds: less than this share of the sent bytes
/// arrives, with a queue of this many targets. Other flows that start double their rate each round trip, which leaves
/// more than a third.
const EARLY_SECONDS: Seconds = Seconds(0.4);
const COLLAPSE_SHARE: f64 = 0.33;
const COLLAPSE_TARGETS: f64 = 3.0;
/// The self-inflicted results that end the protection. A flow that fills the buffer pauses after its losses, and one
/// probe then sees a queue that falls by itself. One result is enough if it is certain, and the queue was above this
/// share of its peak: it was not falling.
const SELF_INFLICTED_RESULTS: u32 = 2;
const NEAR_PEAK: f64 = 0.9;
/// The maximum loss beyond the random loss, and for how many seconds it may be higher: a TCP flow that starts fills the
/// buffer once.
const MAX_EXCESS_LOSS: f64 = 0.25;
const MAX_LOSS_SECONDS: Seconds = Seconds(2.0);

/// The demand and whether it is protected. Rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct ProtectedDemand {
    demand: f64,
    state: Protection,
    /// The share of the time in which the application sent all it had.
    met: f64,
    lossy_since: Option<f64>,
    /// The self-inflicted results since there was no queue.
    self_inflicted_count: u32,
    /// The longest queue since there was none, in seconds.
    peak_queue: f64,
}

/// ```text
///  Unproven ──▶ Ready ◀──▶ Trial ──▶ Confirmed
///      ▲          ▲          │           │
///      │          └──────────│───────────┤ no queue
///      └─────────────────────┴───────────┘ self-inflicted, collapse, loss
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
enum Protection {
    /// The path has not carried the demand without a queue since protection ended.
    Unproven,
    /// There is no queue.
    Ready,
    /// A queue formed at this time, and no probe has found its cause.
    Trial(f64),
    /// A probe found that other flows fill the queue.
    Confirmed,
}

impl ProtectedDemand {
    pub(super) const fn new() -> Self {
        Self {
            demand: 0.0,
            state: Protection::Unproven,
            met: 0.0,
            lossy_since: None,
            self_inflicted_count: 0,
            peak_queue: 0.0,
        }
    }

    /// Processes the measurements of one feedback; `excess_loss` is the recent loss beyond the random one.
    pub(super) fn on_feedback(&mut self, sample: &PathSample, is_held: bool, excess_loss: f64) {
        let now = sample.now;
        self.met += (f64::from(u8::from(sample.app_limited)) - self.met) * (sample.step / MET_TIME.0).at_most(1.0);
        self.peak_queue = self.peak_queue.at_least(sample.instant_queue);
        if sample.queue < sample.target {
            self.on_low_queue(sample, is_held);
        } else if self.state == Protection::Ready {
            self.state = Protection::Trial(now);
        }
        if let Protection::Trial(since) = self.state {
            let is_early = now - since < EARLY_SECONDS.0 && !is_held;
            let is_too_long = now - since > MAX_TRIAL.0 || sample.instant_queue > MAX_TRIAL_QUEUE.0;
            if (is_early && has_collapsed(sample)) || is_too_long {
                self.end();
            }
        }
        self.check_loss(excess_loss, now);
    }

    fn on_low_queue(&mut self, sample: &PathSample, is_held: bool) {
        if !sample.app_limited || is_held || self.met < MET_SHARE {
            return;
        }
        if sample.queue < TRIAL_OVER * sample.target || self.state == Protection::Unproven {
            self.state = Protection::Ready;
            (self.self_inflicted_count, self.peak_queue) = (0, 0.0);
        }
        let time = if sample.sent > self.demand { RISE_TIME.0 } else { FALL_TIME.0 };
        self.demand += (sample.sent - self.demand) * (sample.step / time).at_most(1.0);
    }

    fn check_loss(&mut self, excess_loss: f64, now: f64) {
        if excess_loss < MAX_EXCESS_LOSS || !self.is_active() {
            self.lossy_since = None;
            return;
        }
        let since = *self.lossy_since.get_or_insert(now);
        if now - since > MAX_LOSS_SECONDS.0 {
            self.end();
        }
    }

    /// Records that a probe found other flows in the queue.
    pub(super) fn confirm(&mut self) {
        if self.is_active() {
            self.state = Protection::Confirmed;
        }
    }

    /// Records that a probe found the queue self-inflicted, which was `queue` seconds before. One result may be wrong
    /// while there is a proven demand, unless it is certain.
    pub(super) fn on_self_inflicted(&mut self, queue: f64, is_certain: bool) {
        self.self_inflicted_count += 1;
        let is_proven =
            self.self_inflicted_count >= SELF_INFLICTED_RESULTS || (is_certain && queue > NEAR_PEAK * self.peak_queue);
        if !self.is_active() || is_proven {
            self.end();
        }
    }

    /// Records that the capacity fell: the queue of a trial is self-inflicted.
    pub(super) fn on_fall(&mut self) {
        if matches!(self.state, Protection::Trial(_)) {
            self.end();
        }
    }

    /// Ends the protection: the demand must prove itself again.
    fn end(&mut self) {
        *self = Self::new();
    }

    fn is_active(&self) -> bool {
        matches!(self.state, Protection::Trial(_) | Protection::Confirmed)
    }

    /// Returns the minimum rate beside the present queue; `None` without protection.
    pub(super) fn rate(&self) -> Option<f64> {
        self.is_active().then_some(CATCH_UP * self.demand)
    }

    /// Returns the demand, or zero if none is known.
    pub(super) fn demand(&self) -> f64 {
        self.demand
    }
}

/// Returns whether the capacity fell far below the sending rate.
fn has_collapsed(sample: &PathSample) -> bool {
    let arrivals = sample.arrivals.at_least(sample.instant_arrivals);
    !sample.is_draining
        && sample.instant_queue > COLLAPSE_TARGETS * sample.target
        && arrivals < COLLAPSE_SHARE * sample.sent
}

#[cfg(test)]
mod tests {
    use super::super::path_sample::{QUIET, queued};
    use super::*;

    /// Returns a demand of 100 kB/s that the path has carried for five seconds, beside a queue now.
    fn beside_a_queue() -> ProtectedDemand {
        let mut protected = ProtectedDemand::new();
        let game = PathSample { app_limited: true, sent: 1e5, ..QUIET };
        for _ in 0..250 {
            protected.on_feedback(&game, false, 0.0);
        }
        protected.on_feedback(&PathSample { app_limited: true, sent: 1e5, ..queued(0.1, 100.0) }, false, 0.0);
        protected
    }

    #[test]
    fn proven_demand_is_kept_beside_a_queue() {
        let mut protected = beside_a_queue();
        assert!((protected.rate().unwrap() / 1.25e5 - 1.0).abs() < 0.01, "{protected:?}");
        protected.confirm();
        protected.on_feedback(&queued(0.1, 150.0), false, 0.1);
        assert!(protected.rate().is_some());
        protected.on_self_inflicted(0.1, false);
        assert!(protected.rate().is_some(), "one result may be wrong");
        protected.on_self_inflicted(0.1, false);
        assert_eq!(protected.rate(), None);
    }

    #[test]
    fn certain_result_ends_the_protection_at_the_peak_of_the_queue() {
        for (queue, is_certain, is_kept) in [(0.1, true, false), (0.08, true, true), (0.1, false, true)] {
            let mut protected = beside_a_queue();
            protected.on_self_inflicted(queue, is_certain);
            assert_eq!(protected.rate().is_some(), is_kept, "{queue} s, certain: {is_certain}");
        }
    }

    #[test]
    fn long_queue_and_fall_of_the_capacity_end_a_trial() {
        for (queue, is_confirmed, is_kept) in [(0.9, false, true), (1.1, false, false), (1.1, true, true)] {
            let mut protected = beside_a_queue();
            if is_confirmed {
                protected.confirm();
            }
            protected.on_feedback(&queued(queue, 101.0), false, 0.0);
            assert_eq!(protected.rate().is_some(), is_kept, "{queue} s, confirmed: {is_confirmed}");
            protected.on_fall();
            assert_eq!(protected.rate().is_some(), is_confirmed, "after a fall");
        }
    }

    #[test]
    fn transfer_has_no_protected_demand() {
        let mut protected = ProtectedDemand::new();
        for _ in 0..250 {
            protected.on_feedback(&QUIET, false, 0.0);
        }
        protected.on_feedback(&queued(0.1, 100.0), false, 0.0);
        assert_eq!(protected.rate(), None);
    }

    #[test]
    fn collapse_and_lasting_loss_end_the_protection() {
        let mut protected = beside_a_queue();
        let fallen = PathSample { sent: 1e5, arrivals: 2e4, instant_arrivals: 2e4, ..queued(0.2, 100.1) };
        protected.on_feedback(&fallen, false, 0.0);
        assert_eq!(protected.rate(), None);
        let mut protected = beside_a_queue();
        for (now, is_kept) in [(100.1, true), (101.0, true), (102.2, false)] {
            protected.on_feedback(&queued(0.2, now), false, 0.4);
            assert_eq!(protected.rate().is_some(), is_kept, "{now}");
        }
    }
}
