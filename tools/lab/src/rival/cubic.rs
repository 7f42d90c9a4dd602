//! CUBIC (RFC 9438) without HyStart.

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};

use super::path::{RttEstimate, acked_bytes, lost_since};
use super::{FIRST_WINDOW, MIN_WINDOW, MTU, paced};

/// The steepness of the curve, in packets per cubic second (RFC 9438, section 5.1).
const C: f64 = 0.4;
/// The factor of the decrease after a loss (RFC 9438, section 4.6).
const BETA: f64 = 0.7;
/// The growth of Reno with this decrease (RFC 9438, section 4.3).
const RENO: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// CUBIC, paced.
pub struct Cubic {
    window: f64,
    threshold: f64,
    max: f64,
    cut_at: Option<Instant>,
    epoch: Option<Epoch>,
    path: RttEstimate,
    demand: Demand,
}

/// The growth since a loss.
#[derive(Clone, Copy)]
struct Epoch {
    start: Instant,
    /// The time in seconds at which the curve reaches the window before the last loss.
    plateau: f64,
    reno: f64,
}

impl Default for Cubic {
    fn default() -> Self {
        Self {
            window: FIRST_WINDOW,
            threshold: f64::INFINITY,
            max: 0.0,
            cut_at: None,
            epoch: None,
            path: RttEstimate::default(),
            demand: Demand::Met,
        }
    }
}

impl Cubic {
    fn cut(&mut self, now: Instant) {
        // Fast convergence (RFC 9438, section 4.7).
        self.max = if self.window < self.max { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.window = (BETA * self.window).max(MIN_WINDOW);
        self.threshold = self.window;
        self.cut_at = Some(now);
        self.epoch = None;
    }

    fn grow(&mut self, acked: f64, now: Instant) {
        if self.window < self.threshold {
            self.window += acked;
            return;
        }
        let window = self.window;
        if self.epoch.is_none() {
            self.max = self.max.max(window);
        }
        let plateau = libm::cbrt((self.max - window) / MTU / C);
        let epoch = self.epoch.get_or_insert(Epoch { start: now, plateau, reno: window });
        let t = now.since(epoch.start).as_secs_f64() + self.path.min - epoch.plateau;
        let target = (C * t * t * t * MTU + self.max).clamp(window, 1.5 * window);
        epoch.reno += RENO * MTU * acked / window;
        let grown = window + (target - window) / window * acked;
        self.window = grown.max(epoch.reno);
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.path.update(feedback, Duration::from_secs(10));
        if lost_since(feedback, self.cut_at) {
            self.cut(feedback.now);
        } else if self.demand == Demand::Unmet {
            self.grow(acked_bytes(feedback), feedback.now);
        }
    }

    fn on_tick(&mut self, _: u64, _: Instant) {}

    fn set_demand(&mut self, demand: Demand) {
        self.demand = demand;
    }

    fn rate(&self, _: Instant) -> BytesPerSecond {
        paced(self.window, self.window < self.threshold, &self.path)
    }

    fn window(&self, _: Instant) -> Option<u64> {
        Some(self.window as u64)
    }
}
