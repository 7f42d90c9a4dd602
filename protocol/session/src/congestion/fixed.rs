//! A fixed rate: for local networks and for tests.

use super::controller::{Controller, Demand, Feedback};
use super::rate::{BytesPerSecond, FLOOR};
use slipgate_netcode::time::Instant;

/// A controller that sends at one rate, whatever the path does.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Fixed {
    rate: BytesPerSecond,
}

impl Fixed {
    /// Creates a controller with this rate, or the minimum rate if that is more.
    #[must_use]
    pub(crate) fn new(rate: BytesPerSecond) -> Self {
        Self { rate: BytesPerSecond(rate.0.max(FLOOR.0)) }
    }
}

impl Controller for Fixed {
    fn on_sent(&mut self, _: u32, _: Instant) {}

    fn on_feedback(&mut self, _: &Feedback<'_>) {}

    fn on_tick(&mut self, _: u64, _: Instant) {}

    fn set_demand(&mut self, _: Demand) {}

    fn rate(&self, _: Instant) -> BytesPerSecond {
        self.rate
    }

    fn window(&self, _: Instant) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_rate_is_never_below_the_floor() {
        for (asked, rate) in [(1e6, 1e6), (10.0, 2560.0), (f64::NAN, 2560.0)] {
            let fixed = Fixed::new(BytesPerSecond(asked));
            assert_eq!((fixed.rate(Instant::default()).0, fixed.window(Instant::default())), (rate, None));
        }
    }
}
