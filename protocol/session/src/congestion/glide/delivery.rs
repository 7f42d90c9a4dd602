//! How fast the path delivers, by the receiver's clock: so neither the way back nor held acknowledgements disturb it.

use core::time::Duration;

use super::super::extreme::Extreme;
use super::ring::Ring;

/// How long the greatest rate is remembered: nothing asks for more than a multiple of it.
const PEAK_WINDOW: Duration = Duration::from_secs(10);
/// The same for the rate to which a test for loss goes back.
const RECENT_PEAK_WINDOW: Duration = Duration::from_secs(2);
/// The rate at once is measured over this, in seconds.
const AT_ONCE: f64 = 0.05;
/// The record's finest step and its length: 256 steps are more than the longest span of 0.6 s.
const STEP: f64 = 0.0025;
const STEPS: usize = 256;
/// A rate is measured over at least this share of its span.
const LEAST_SHARE: f64 = 0.3;

/// What was delivered when; rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    /// When, and how many bytes until then.
    record: Ring<(f64, f64)>,
    rate: f64,
    at_once: f64,
    peak: Extreme,
    recent_peak: Extreme,
}

impl Delivery {
    pub(super) fn new() -> Self {
        Self {
            record: Ring::new(STEPS),
            rate: 0.0,
            at_once: 0.0,
            peak: Extreme::greatest(PEAK_WINDOW),
            recent_peak: Extreme::greatest(RECENT_PEAK_WINDOW),
        }
    }

    /// `delivered` bytes had arrived in all by `received`; the rate is measured over `span`.
    pub(super) fn sample(&mut self, received: f64, delivered: f64, span: f64, now: f64) {
        if self.record.newest().is_some_and(|(at, _)| received < *at) {
            // The peer's clock went back: no time of the record is one of this clock.
            self.forget_record();
        }
        self.record.drop_while(1, |_, next| next.0 <= received - span);
        if let Some((since, until_then)) = self.record.oldest()
            && received - since > LEAST_SHARE * span
        {
            self.rate = (delivered - until_then) / (received - since);
            self.peak.push(self.rate, now);
            self.recent_peak.push(self.rate, now);
        }
        let before = self.record.iter().rev().find(|(at, _)| *at <= received - AT_ONCE);
        self.at_once = before.map_or(self.rate, |(at, until_then)| (delivered - until_then) / (received - at));
        if self.record.newest().is_none_or(|(at, _)| received >= at + STEP) {
            self.record.push((received, delivered));
        }
    }

    /// Bytes per second over the span; zero until there is such a span.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Bytes per second over the last 50 ms.
    pub(super) fn at_once(&self) -> f64 {
        self.at_once
    }

    /// The greatest rate of 10 s.
    pub(super) fn peak(&self) -> f64 {
        self.peak.value().unwrap_or(self.rate)
    }

    /// The greatest rate of 2 s.
    pub(super) fn recent_peak(&self) -> f64 {
        self.recent_peak.value().unwrap_or(self.rate)
    }

    /// Forgets what was delivered until now, but not how fast: after a stall the record spans a hole.
    pub(super) fn forget_record(&mut self) {
        self.record.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_span_and_the_quick_one_that_of_50_ms() {
        let mut delivery = Delivery::new();
        for step in 0..100 {
            let now = f64::from(step) * 0.01;
            let bytes = if now < 0.9 { now * 1e6 } else { 0.9e6 + (now - 0.9) * 1e5 };
            delivery.sample(now + 7.0, bytes, 0.2, now);
        }
        assert!((delivery.at_once() - 1e5).abs() < 2e4, "{}", delivery.at_once());
        assert!((delivery.rate() - 0.595e6).abs() < 5e4, "{}", delivery.rate());
        assert!((delivery.peak() - 1e6).abs() < 1e3);
    }

    #[test]
    fn nothing_is_known_before_there_is_a_span() {
        let mut delivery = Delivery::new();
        delivery.sample(1.0, 1e6, 0.2, 1.0);
        assert!(delivery.rate() == 0.0 && delivery.at_once() == 0.0);
    }

    #[test]
    fn a_thousand_samples_in_a_second_measure_the_same() {
        let mut delivery = Delivery::new();
        for step in 0..5000 {
            let now = f64::from(step) * 0.0002;
            delivery.sample(now, now * 1e7, 0.3, now);
        }
        assert!((delivery.rate() - 1e7).abs() < 1e4, "{}", delivery.rate());
    }

    #[test]
    fn a_clock_that_goes_back_is_measured_by_from_there() {
        let mut delivery = Delivery::new();
        for step in 0..100 {
            let now = f64::from(step) * 0.01;
            let (ahead, rate) = if now < 0.5 { (8.0, 1e6) } else { (0.0, 2e6) };
            delivery.sample(now + ahead, 5e5 + (now - 0.5) * rate, 0.2, now);
        }
        assert!((delivery.rate() - 2e6).abs() < 1e3, "{}", delivery.rate());
        assert!((delivery.at_once() - 2e6).abs() < 1e3, "{}", delivery.at_once());
        assert!((delivery.peak() - 2e6).abs() < 1e3, "{}", delivery.peak());
    }

    #[test]
    fn after_a_stall_the_rate_is_that_of_before_until_there_is_a_new_one() {
        let mut delivery = Delivery::new();
        for step in 0..100 {
            delivery.sample(f64::from(step) * 0.01, f64::from(step) * 1e4, 0.2, f64::from(step) * 0.01);
        }
        delivery.forget_record();
        delivery.sample(1.5, 1.1e6, 0.2, 1.5);
        assert!((delivery.rate() - 1e6).abs() < 1e3, "{}", delivery.rate());
    }
}
