//! GCC, Google's congestion control for real-time media, main features (draft-ietf-rmcat-gcc-02).
//!
//! Both halves run at the sender, on the reports that the other controllers use: no REMB, no RTCP. It does not send
//! probes, with which WebRTC starts faster, so it grows by 8 % per second from its initial rate. The loss-based half
//! has no limit before its first reduction and evaluates once per second, as with an RTCP interval of that length. The
//! draft does not define how many packets a report covers, and that matters where a few percent are lost at random. The
//! next reduction for delay waits for the effect of the last one, as in WebRTC; the draft would reduce with each group.

mod overuse;

use core::time::Duration;

pub(super) use overuse::{Detector, Usage};
use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};

use super::path::{Arrivals, RttEstimate, one_way};
use super::{FIRST_RATE, MIN_RATE, MTU};

/// The time over which the arrival rate is measured (`T`, section 5.6).
const MEASURED: Duration = Duration::from_millis(500);
/// The factor of the arrival rate after over-use (`beta`, section 5.6).
const BETA: f64 = 0.85;
/// The growth per second, far from the rate at which the path was over-used (`eta`, section 5.5).
const ETA: f64 = 1.08;
/// The maximum ratio of the estimate to the arrival rate (section 5.5).
const AHEAD: f64 = 1.5;
/// The response time in seconds in addition to the round trip (section 5.5).
const RESPONSE: f64 = 0.1;
/// The minimum step of additive growth: 1,000 bits per second (section 5.5).
const MIN_STEP: f64 = 125.0;
/// The weight of a new sample of the rate at which the path was over-used (section 5.5).
const CAPACITY_SMOOTHING: f64 = 0.05;
/// The number of standard deviations within which the rate counts as near (section 5.5).
const NEAR: f64 = 3.0;
/// The bounds of that rate's variance, by the rate itself, in bytes per second: 0.4 and 2.5 kbit/s (WebRTC).
const VARIANCE: (f64, f64) = (50.0, 312.5);
/// The interval of the loss-based half.
const LOSS_INTERVAL: Duration = Duration::from_secs(1);
/// The loss below which it grows, the loss above which it reduces, and the growth (section 6).
const FEW: f64 = 0.02;
const MANY: f64 = 0.1;
const GROWTH: f64 = 1.05;

/// ```text
///            over                 normal          normal
///  any ──────────▶ Decrease ───────▶ Hold ─────────▶ Increase
///   └──────────────── under ──────────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Increase,
    Hold,
    Decrease,
}

impl State {
    /// Returns the state after a signal (section 5.5).
    const fn after(self, usage: Usage) -> Self {
        match (usage, self) {
            (Usage::Over, _) => Self::Decrease,
            (Usage::Normal, Self::Hold | Self::Increase) => Self::Increase,
            (Usage::Under, _) | (Usage::Normal, Self::Decrease) => Self::Hold,
        }
    }
}

/// The rate at which the path was over-used, and its variance relative to that rate.
#[derive(Clone, Copy)]
struct Capacity {
    mean: f64,
    variance: f64,
}

impl Capacity {
    /// Returns the uncertainty of the rate, in bytes per second.
    fn margin(&self) -> f64 {
        NEAR * (self.variance * self.mean).sqrt()
    }

    /// Returns the estimate after over-use at this rate. It restarts if the rate is far below the known one.
    fn after(known: Option<Self>, rate: f64) -> Self {
        let known = known.filter(|known| rate >= known.mean - known.margin());
        let Some(Self { mean, variance }) = known else { return Self { mean: rate, variance: VARIANCE.0 } };
        let off = rate - mean;
        let mean = mean + CAPACITY_SMOOTHING * off;
        let variance = variance + CAPACITY_SMOOTHING * (off * off / mean.max(1.0) - variance);
        Self { mean, variance: variance.clamp(VARIANCE.0, VARIANCE.1) }
    }
}

/// GCC, main features.
pub struct Gcc {
    detector: Detector,
    state: State,
    path: RttEstimate,
    arrivals: Arrivals,
    capacity: Option<Capacity>,
    /// The rate that the delay permits.
    by_delay: f64,
    updated_at: Option<Instant>,
    cut_at: Option<Instant>,
    /// The rate that the losses permit.
    by_loss: f64,
    /// The numbers of packets that arrived and that were lost since the loss-based half evaluated.
    packet_counts: [usize; 2],
    looked_at: Instant,
}

impl Default for Gcc {
    fn default() -> Self {
        Self {
            detector: Detector::default(),
            state: State::Increase,
            path: RttEstimate::default(),
            arrivals: Arrivals::over(MEASURED),
            capacity: None,
            by_delay: FIRST_RATE,
            updated_at: None,
            cut_at: None,
            by_loss: f64::INFINITY,
            packet_counts: [0; 2],
            looked_at: Instant::default(),
        }
    }
}

impl Gcc {
    fn on_delay(&mut self, feedback: &Feedback<'_>) {
        let arriving = self.arrivals.update(feedback);
        let Some((arrival, delay)) = one_way(feedback) else { return };
        self.state = self.state.after(self.detector.update(1000.0 * arrival, 1000.0 * delay));
        let now = feedback.now;
        let since = self.updated_at.replace(now).map_or(0.0, |updated| now.since(updated).as_secs_f64());
        let Some(arriving) = arriving else { return };
        match self.state {
            State::Increase => self.increase(arriving, since.min(1.0)),
            State::Hold => {}
            State::Decrease => self.decrease(arriving, now),
        }
    }

    fn increase(&mut self, arriving: f64, since: f64) {
        self.capacity = self.capacity.filter(|capacity| arriving <= capacity.mean + capacity.margin());
        let near = self.capacity.is_some_and(|capacity| arriving >= capacity.mean - capacity.margin());
        let grown = if near {
            self.by_delay + (0.5 * (since / self.response()).min(1.0) * self.expected_packet()).max(MIN_STEP)
        } else {
            self.by_delay * libm::pow(ETA, since)
        };
        self.by_delay = grown.min(AHEAD * arriving).max(self.by_delay);
    }

    /// Returns the mean size of a packet in 1/30 s, in bytes (section 5.5).
    fn expected_packet(&self) -> f64 {
        let frame = self.by_delay / 30.0;
        frame / (frame / MTU).ceil().max(1.0)
    }

    /// Returns the response time of the path to a change, in seconds.
    fn response(&self) -> f64 {
        RESPONSE + self.path.smoothed
    }

    fn decrease(&mut self, arriving: f64, now: Instant) {
        if self.cut_at.is_some_and(|cut| !now.reached(cut, Duration::from_secs_f64(self.response()))) {
            return;
        }
        self.capacity = Some(Capacity::after(self.capacity, arriving));
        self.by_delay = self.by_delay.min(BETA * arriving).max(MIN_RATE);
        self.cut_at = Some(now);
    }

    fn on_losses(&mut self, feedback: &Feedback<'_>) {
        self.packet_counts[0] += feedback.acked.len();
        self.packet_counts[1] += feedback.lost.len();
        if !feedback.now.reached(self.looked_at, LOSS_INTERVAL) {
            return;
        }
        let [arrived, lost] = core::mem::take(&mut self.packet_counts).map(|packets| packets as f64);
        let share = lost / (arrived + lost).max(1.0);
        if share > MANY {
            self.by_loss = (self.by_loss.min(self.by_delay) * (1.0 - 0.5 * share)).max(MIN_RATE);
        } else if share < FEW {
            self.by_loss *= GROWTH;
        }
        self.looked_at = feedback.now;
    }
}

impl Controller for Gcc {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.path.update(feedback, Duration::from_secs(10));
        self.on_delay(feedback);
        self.on_losses(feedback);
    }

    fn on_tick(&mut self, _: u64, _: Instant) {}

    /// Ignores the demand: the arrival rate already reflects what the application does not send.
    fn set_demand(&mut self, _: Demand) {}

    fn rate(&self, _: Instant) -> BytesPerSecond {
        BytesPerSecond(self.by_delay.min(self.by_loss))
    }

    fn window(&self, _: Instant) -> Option<u64> {
        None
    }
}
