//! NADA, network-assisted dynamic adaptation (RFC 8698), without marks of the network.
//!
//! The receiver's half runs at the sender, on the reports that the other controllers use. Delays are filtered by the
//! minimum of an interval's reports instead of 15 packets. The interval between losses is an exponential mean, not the
//! mean of eight in RFC 5348. The minimum rate is the laboratory's, not 150 kbit/s, and there is no encoder and no
//! shaping buffer. The maximum rate determines the share, so knowing twice the path's rate is an advantage over real
//! deployments.

use core::time::Duration;
use std::collections::VecDeque;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};

use super::path::{Arrivals, RttEstimate, lost_since, one_way};
use super::{FIRST_RATE, MIN_RATE};

// All constants are from figure 3; delays are in seconds.
/// The signal at which the maximum rate is held (`XREF`; its weight `PRIO` is one).
const REFERENCE: f64 = 0.01;
/// The gain of the gradual update (`KAPPA`), and the weight of the signal's own change (`ETA`).
const KAPPA: f64 = 0.5;
const ETA: f64 = 2.0;
/// The time constant of the update (`TAU`).
const TAU: f64 = 0.5;
/// The update interval of the rate (`DELTA`).
const DELTA: Duration = Duration::from_millis(100);
/// The observation window (`LOGWIN`).
const RECENT: Duration = Duration::from_millis(500);
/// The delay above which a queue exists (`QEPS`).
const QUEUE: f64 = 0.01;
/// The delay of the filter (`DFILT`).
const FILTER: f64 = 0.12;
/// The maximum increase of a ramp-up (`GAMMA_MAX`), and the queue that it may cause (`QBOUND`).
const MAX_GAMMA: f64 = 0.5;
const CAUSED: f64 = 0.05;
/// The number of mean loss intervals without a loss after which delays count in full again (`MULTILOSS`).
const MULTILOSS: f64 = 7.0;
/// The delay above which delays are warped while there are losses (`QTH`), and the steepness (`LAMBDA`).
const WARPED: f64 = 0.05;
const LAMBDA: f64 = 0.5;
/// The share of losses (`PLRREF`) that corresponds to a delay (`DLOSS`); the delay grows with the square of the share.
const LOSS_SHARE: f64 = 0.01;
const LOSS_DELAY: f64 = 0.01;
/// The weight of a new share of losses (`ALPHA`), here also of a new interval between them.
const SMOOTHING: f64 = 0.1;

/// The recent losses and their intervals.
#[derive(Default)]
struct Losses {
    /// The numbers of packets that arrived and that were lost, for each report.
    recent: VecDeque<(Instant, [usize; 2])>,
    /// The smoothed share.
    share: f64,
    at: Option<Instant>,
    /// Packets since the last loss, and the mean number between losses; `None` before the second.
    since: f64,
    interval: Option<f64>,
}

impl Losses {
    fn update(&mut self, feedback: &Feedback<'_>) {
        self.recent.push_back((feedback.now, [feedback.acked.len(), feedback.lost.len()]));
        while self.recent.front().is_some_and(|(at, _)| feedback.now.reached(*at, RECENT)) {
            self.recent.pop_front();
        }
        self.since += feedback.acked.len() as f64;
        // Losses of one round trip are one event (RFC 5348, section 5.2).
        if lost_since(feedback, self.at) {
            let interval = self.interval.unwrap_or(self.since);
            self.interval = Some(interval + SMOOTHING * (self.since - interval));
            self.since = 0.0;
            self.at = Some(feedback.now);
        }
    }

    fn any(&self) -> bool {
        self.recent.iter().any(|(_, [_, lost])| *lost > 0)
    }

    /// Updates and returns the smoothed share (section 5.1.2).
    fn look(&mut self) -> f64 {
        let [arrived, lost] = self.recent.iter().fold([0, 0], |sum, (_, more)| [sum[0] + more[0], sum[1] + more[1]]);
        let share = lost as f64 / (arrived + lost).max(1) as f64;
        self.share += SMOOTHING * (share - self.share);
        self.share
    }

    /// Returns whether the last loss is recent enough to indicate competition for a full queue (section 4.2).
    fn near(&self) -> bool {
        self.interval.is_some_and(|interval| self.since < MULTILOSS * interval)
    }
}

/// NADA.
pub struct Nada {
    rate: f64,
    max: f64,
    path: RttEstimate,
    arrivals: Arrivals,
    losses: Losses,
    /// The minimum one-way delay of the session, by two clocks.
    base: f64,
    /// The minimum since the last decision.
    min: f64,
    /// When a queue was last seen.
    queued_at: Option<Instant>,
    signal: f64,
    decided_at: Option<Instant>,
}

impl Nada {
    /// Creates NADA with this maximum rate.
    #[must_use]
    pub fn up_to(max: BytesPerSecond) -> Self {
        Self {
            rate: FIRST_RATE.min(max.0),
            max: max.0,
            path: RttEstimate::default(),
            arrivals: Arrivals::over(RECENT),
            losses: Losses::default(),
            base: f64::INFINITY,
            min: f64::INFINITY,
            queued_at: None,
            signal: 0.0,
            decided_at: None,
        }
    }

    fn decide(&mut self, arriving: f64, now: Instant, since: f64) {
        let queue = core::mem::replace(&mut self.min, f64::INFINITY) - self.base;
        if queue >= QUEUE {
            self.queued_at = Some(now);
        }
        let signal = self.aggregate(queue);
        let change = signal - core::mem::replace(&mut self.signal, signal);
        let clear = self.queued_at.is_none_or(|queued| now.reached(queued, RECENT)) && !self.losses.any();
        let rate = if clear { self.ramp_up(arriving) } else { self.gradual(signal, change, since) };
        self.rate = rate.clamp(MIN_RATE.min(self.max), self.max);
    }

    /// Returns the aggregated signal `x_curr` (section 4.2).
    fn aggregate(&mut self, queue: f64) -> f64 {
        let warped = self.losses.near() && queue > WARPED;
        let delay = if warped { WARPED * libm::exp(-LAMBDA * (queue - WARPED) / WARPED) } else { queue };
        let multiple = self.losses.look() / LOSS_SHARE;
        delay + LOSS_DELAY * multiple * multiple
    }

    /// Applies the accelerated ramp-up (section 4.3, equations 3 and 4).
    fn ramp_up(&self, arriving: f64) -> f64 {
        let gamma = MAX_GAMMA.min(CAUSED / (self.path.smoothed + DELTA.as_secs_f64() + FILTER));
        self.rate.max((1.0 + gamma) * arriving)
    }

    /// Applies the gradual update (section 4.3, equations 5 to 7).
    fn gradual(&self, signal: f64, change: f64, since: f64) -> f64 {
        let offset = signal - REFERENCE * self.max / self.rate;
        self.rate - KAPPA * (since / TAU * offset / TAU + ETA * change / TAU) * self.rate
    }
}

impl Controller for Nada {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.path.update(feedback, Duration::from_secs(10));
        self.losses.update(feedback);
        let arriving = self.arrivals.update(feedback);
        if let Some((_, delay)) = one_way(feedback) {
            self.base = self.base.min(delay);
            self.min = self.min.min(delay);
        }
        let now = feedback.now;
        let decided = *self.decided_at.get_or_insert(now);
        if let Some(arriving) = arriving
            && self.min.is_finite()
            && now.reached(decided, DELTA)
        {
            // The first report after a gap must not change the rate by the length of the gap.
            self.decide(arriving, now, now.since(decided).as_secs_f64().min(TAU));
            self.decided_at = Some(now);
        }
    }

    fn on_tick(&mut self, _: u64, _: Instant) {}

    /// Ignores the demand: the arriving rate is lower if the application sends less.
    fn set_demand(&mut self, _: Demand) {}

    fn rate(&self, _: Instant) -> BytesPerSecond {
        BytesPerSecond(self.rate)
    }

    fn window(&self, _: Instant) -> Option<u64> {
        None
    }
}
