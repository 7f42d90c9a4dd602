//! NADA, network-assisted dynamic adaptation (RFC 8698), without what a network would mark.
//!
//! The receiver's half runs at the sender, on the reports that the other rivals have. Delays are filtered by the least of
//! an interval's reports, instead of 15 packets. The interval between losses is an exponential mean, not RFC 5348's of
//! eight. The least rate is the lab's, not 150 kbit/s, and there is no encoder and no buffer that shapes what it makes.
//! The highest rate steers the share: whoever knows twice the path's rate has it easier than in the field.

use core::time::Duration;
use std::collections::VecDeque;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};

use super::path::{Arrivals, RoundTrip, lost_since, one_way};
use super::{FIRST_RATE, LEAST_RATE};

// All of figure 3; delays in seconds.
/// The signal at which the highest rate is held (`XREF`; its weight `PRIO` is one).
const REFERENCE: f64 = 0.01;
/// The pace of gradual change (`KAPPA`), and the weight of the signal's own change (`ETA`).
const KAPPA: f64 = 0.5;
const ETA: f64 = 2.0;
/// The time that change takes (`TAU`).
const TAU: f64 = 0.5;
/// How often the rate is decided (`DELTA`).
const DELTA: Duration = Duration::from_millis(100);
/// What counts as of late (`LOGWIN`).
const RECENT: Duration = Duration::from_millis(500);
/// A longer delay is a queue (`QEPS`).
const QUEUE: f64 = 0.01;
/// How late the filter is (`DFILT`).
const FILTER: f64 = 0.12;
/// The most that ramping up adds (`GAMMA_MAX`), and the queue that it may cause (`QBOUND`).
const MOST_GAMMA: f64 = 0.5;
const CAUSED: f64 = 0.05;
/// After so many intervals between losses without one, delays count in full again (`MULTILOSS`).
const MULTILOSS: f64 = 7.0;
/// Delays above this are warped while there are losses (`QTH`), so steeply (`LAMBDA`).
const WARPED: f64 = 0.05;
const LAMBDA: f64 = 0.5;
/// This share of losses (`PLRREF`) counts as this delay (`DLOSS`), and the square of its multiples as so many.
const LOSS_SHARE: f64 = 0.01;
const LOSS_DELAY: f64 = 0.01;
/// Weight of a new share of losses (`ALPHA`), here of a new interval between them as well.
const SMOOTHING: f64 = 0.1;

/// The losses of late, and how far they are apart.
#[derive(Default)]
struct Losses {
    /// Packets that arrived and that were lost, by report.
    recent: VecDeque<(Instant, [usize; 2])>,
    /// The smoothed share.
    share: f64,
    at: Option<Instant>,
    /// Packets since the last loss, and between losses in the mean; none before the second.
    since: f64,
    interval: Option<f64>,
}

impl Losses {
    fn hear(&mut self, feedback: &Feedback<'_>) {
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

    /// The smoothed share, after a look at what is recent (section 5.1.2).
    fn look(&mut self) -> f64 {
        let [arrived, lost] = self.recent.iter().fold([0, 0], |sum, (_, more)| [sum[0] + more[0], sum[1] + more[1]]);
        let share = lost as f64 / (arrived + lost).max(1) as f64;
        self.share += SMOOTHING * (share - self.share);
        self.share
    }

    /// Whether the last one is so near that others compete for a queue that overflows (section 4.2).
    fn near(&self) -> bool {
        self.interval.is_some_and(|interval| self.since < MULTILOSS * interval)
    }
}

/// NADA.
pub struct Nada {
    rate: f64,
    most: f64,
    path: RoundTrip,
    arrivals: Arrivals,
    losses: Losses,
    /// The least one-way delay ever, by two clocks.
    base: f64,
    /// The least since the last decision.
    least: f64,
    /// When there was a queue.
    queued_at: Option<Instant>,
    signal: f64,
    decided_at: Option<Instant>,
}

impl Nada {
    /// NADA that never sends faster than this.
    #[must_use]
    pub fn up_to(most: BytesPerSecond) -> Self {
        Self {
            rate: FIRST_RATE.min(most.0),
            most: most.0,
            path: RoundTrip::default(),
            arrivals: Arrivals::over(RECENT),
            losses: Losses::default(),
            base: f64::INFINITY,
            least: f64::INFINITY,
            queued_at: None,
            signal: 0.0,
            decided_at: None,
        }
    }

    fn decide(&mut self, arriving: f64, now: Instant, since: f64) {
        let queue = core::mem::replace(&mut self.least, f64::INFINITY) - self.base;
        if queue >= QUEUE {
            self.queued_at = Some(now);
        }
        let signal = self.aggregate(queue);
        let change = signal - core::mem::replace(&mut self.signal, signal);
        let clear = self.queued_at.is_none_or(|queued| now.reached(queued, RECENT)) && !self.losses.any();
        let rate = if clear { self.ramp_up(arriving) } else { self.gradual(signal, change, since) };
        self.rate = rate.clamp(LEAST_RATE.min(self.most), self.most);
    }

    /// The aggregated signal `x_curr` (section 4.2).
    fn aggregate(&mut self, queue: f64) -> f64 {
        let warped = self.losses.near() && queue > WARPED;
        let delay = if warped { WARPED * libm::exp(-LAMBDA * (queue - WARPED) / WARPED) } else { queue };
        let multiple = self.losses.look() / LOSS_SHARE;
        delay + LOSS_DELAY * multiple * multiple
    }

    /// Accelerated ramp-up (section 4.3, equations 3 and 4).
    fn ramp_up(&self, arriving: f64) -> f64 {
        let gamma = MOST_GAMMA.min(CAUSED / (self.path.smoothed + DELTA.as_secs_f64() + FILTER));
        self.rate.max((1.0 + gamma) * arriving)
    }

    /// Gradual update (section 4.3, equations 5 to 7).
    fn gradual(&self, signal: f64, change: f64, since: f64) -> f64 {
        let offset = signal - REFERENCE * self.most / self.rate;
        self.rate - KAPPA * (since / TAU * offset / TAU + ETA * change / TAU) * self.rate
    }
}

impl Controller for Nada {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.path.hear(feedback, Duration::from_secs(10));
        self.losses.hear(feedback);
        let arriving = self.arrivals.hear(feedback);
        if let Some((_, delay)) = one_way(feedback) {
            self.base = self.base.min(delay);
            self.least = self.least.min(delay);
        }
        let now = feedback.now;
        let decided = *self.decided_at.get_or_insert(now);
        if let Some(arriving) = arriving
            && self.least.is_finite()
            && now.reached(decided, DELTA)
        {
            // A gap in the reports is no reason for a leap.
            self.decide(arriving, now, now.since(decided).as_secs_f64().min(TAU));
            self.decided_at = Some(now);
        }
    }

    fn on_tick(&mut self, _: u64, _: Instant) {}

    /// What an application does not send shows in the arriving rate.
    fn set_demand(&mut self, _: Demand) {}

    fn rate(&self, _: Instant) -> BytesPerSecond {
        BytesPerSecond(self.rate)
    }

    fn window(&self, _: Instant) -> Option<u64> {
        None
    }
}
