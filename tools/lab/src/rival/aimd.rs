//! Reno: additive increase and multiplicative decrease of a window (RFC 5681).

use core::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::{BytesPerSecond, Controller, Demand, Feedback};

use super::path::{RttEstimate, acked_bytes, lost_since};
use super::{FIRST_WINDOW, MIN_WINDOW, MTU, paced};

/// Reno, paced.
pub struct Aimd {
    window: f64,
    threshold: f64,
    cut_at: Option<Instant>,
    path: RttEstimate,
    demand: Demand,
}

impl Default for Aimd {
    fn default() -> Self {
        let path = RttEstimate::default();
        Self { window: FIRST_WINDOW, threshold: f64::INFINITY, cut_at: None, path, demand: Demand::Met }
    }
}

impl Controller for Aimd {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        self.path.update(feedback, Duration::from_secs(10));
        if lost_since(feedback, self.cut_at) {
            self.window = (0.5 * self.window).max(MIN_WINDOW);
            self.threshold = self.window;
            self.cut_at = Some(feedback.now);
        } else if self.demand == Demand::Unmet {
            let acked = acked_bytes(feedback);
            self.window += if self.window < self.threshold { acked } else { MTU * acked / self.window };
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
