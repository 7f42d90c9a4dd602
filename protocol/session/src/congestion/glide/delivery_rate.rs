//! The delivery rate of the path by the receiver's clock, so that neither the return path nor held acknowledgements
//! disturb it (Glide §4.6).

use core::time::Duration;

use super::super::ring::Ring;
use super::super::units::Seconds;
use super::super::windowed_minmax::WindowedMinMax;

/// The window of the peak rate: no rate exceeds a multiple of it.
const PEAK_WINDOW: Duration = Duration::from_secs(10);
/// The window of the recent peak, which a policer test falls back to.
const RECENT_PEAK_WINDOW: Duration = Duration::from_secs(2);
/// The span of the instant rate, in seconds.
const INSTANT_SPAN: Seconds = Seconds(0.05);
/// The finest step of the record and its length: 256 steps are more than the longest span of 0.6 s.
const STEP: Seconds = Seconds(0.0025);
const STEPS: usize = 256;
/// A rate is measured over at least this share of its span.
const MIN_SHARE: f64 = 0.3;

/// The record of delivered bytes; rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct DeliveryRate {
    /// Times, and the bytes delivered until then.
    record: Ring<(f64, f64)>,
    rate: f64,
    /// The newest sample, also if the record does not have it.
    newest: (f64, f64),
    measured_at: Seconds,
    /// Packets sent until then are not measured.
    restarted_at: Seconds,
    /// Over both windows.
    peak: WindowedMinMax,
}

impl DeliveryRate {
    pub(super) fn new() -> Self {
        Self {
            record: Ring::new(STEPS),
            rate: 0.0,
            newest: (0.0, 0.0),
            measured_at: Seconds::NEVER,
            restarted_at: Seconds::NEVER,
            peak: WindowedMinMax::max(PEAK_WINDOW, RECENT_PEAK_WINDOW),
        }
    }

    /// Records that `delivered` bytes had arrived in all by `received`; the rate is measured over `span`.
    pub(super) fn sample(&mut self, received: f64, delivered: f64, span: f64, now: f64) {
        if self.record.newest().is_some_and(|(at, _)| received < *at) {
            // The peer's clock went back, so no time of the record is comparable.
            self.forget_record();
        }
        // Keep one entry older than the span, so that the span is fully covered.
        self.record.drop_while(1, |_, next| next.0 <= received - span);
        if let Some((since, until_then)) = self.record.oldest()
            && received - since > MIN_SHARE * span
        {
            self.rate = (delivered - until_then) / (received - since);
            self.measured_at = Seconds(now);
            self.peak.push(self.rate, now);
        }
        self.newest = (received, delivered);
        // Merge arrivals within a step: the record must hold the longest span at any packet rate.
        if self.record.newest().is_none_or(|(at, _)| received >= at + STEP.0) {
            self.record.push((received, delivered));
        }
    }

    /// Returns bytes per second over the span; zero before the first span.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns when the rate was last measured by the local clock.
    pub(super) const fn measured_at(&self) -> Seconds {
        self.measured_at
    }

    /// Returns bytes per second over the last 50 ms; over the span while the record is too short.
    pub(super) fn instant_rate(&self) -> f64 {
        let (received, delivered) = self.newest;
        let before = self.record.iter().rev().find(|(at, _)| *at <= received - INSTANT_SPAN.0);
        before.map_or(self.rate, |(at, until_then)| (delivered - until_then) / (received - at))
    }

    /// Returns the maximum rate of the last 10 s.
    pub(super) fn peak(&self) -> f64 {
        self.peak.value().unwrap_or(self.rate)
    }

    /// Returns the maximum rate of the last 2 s.
    pub(super) fn recent_peak(&self) -> f64 {
        self.peak.recent().unwrap_or(self.rate)
    }

    /// Restarts the record with packets that are sent after `now`; the rate stays. A restart after which nothing was
    /// measured is not repeated: silences may follow each other sooner than packets return.
    pub(super) fn restart(&mut self, now: Seconds) {
        if self.measured_at >= self.restarted_at {
            self.restarted_at = now;
            self.forget_record();
        }
    }

    /// Returns whether a packet sent at this time is measured.
    pub(super) fn measures(&self, sent: Seconds) -> bool {
        sent > self.restarted_at
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
    fn rate_covers_the_span_and_instant_rate_50_ms() {
        let mut delivery = DeliveryRate::new();
        for step in 0..100 {
            let now = f64::from(step) * 0.01;
            let bytes = if now < 0.9 { now * 1e6 } else { 0.9e6 + (now - 0.9) * 1e5 };
            delivery.sample(now + 7.0, bytes, 0.2, now);
        }
        assert!((delivery.instant_rate() - 1e5).abs() < 2e4, "{}", delivery.instant_rate());
        assert!((delivery.rate() - 0.595e6).abs() < 5e4, "{}", delivery.rate());
        assert!((delivery.peak() - 1e6).abs() < 1e3);
    }

    #[test]
    fn rate_is_zero_before_the_first_span() {
        let mut delivery = DeliveryRate::new();
        delivery.sample(1.0, 1e6, 0.2, 1.0);
        assert!(delivery.rate() == 0.0 && delivery.instant_rate() == 0.0);
    }

    #[test]
    fn thousand_samples_per_second_measure_the_same_rate() {
        let mut delivery = DeliveryRate::new();
        for step in 0..5000 {
            let now = f64::from(step) * 0.0002;
            delivery.sample(now, now * 1e7, 0.3, now);
        }
        assert!((delivery.rate() - 1e7).abs() < 1e4, "{}", delivery.rate());
    }

    #[test]
    fn rate_restarts_after_the_peer_clock_went_back() {
        let mut delivery = DeliveryRate::new();
        for step in 0..100 {
            let now = f64::from(step) * 0.01;
            let (ahead, rate) = if now < 0.5 { (8.0, 1e6) } else { (0.0, 2e6) };
            delivery.sample(now + ahead, 5e5 + (now - 0.5) * rate, 0.2, now);
        }
        assert!((delivery.rate() - 2e6).abs() < 1e3, "{}", delivery.rate());
        assert!((delivery.instant_rate() - 2e6).abs() < 1e3, "{}", delivery.instant_rate());
        assert!((delivery.peak() - 2e6).abs() < 1e3, "{}", delivery.peak());
    }

    #[test]
    fn former_rate_is_kept_after_a_stall() {
        let mut delivery = DeliveryRate::new();
        for step in 0..100 {
            delivery.sample(f64::from(step) * 0.01, f64::from(step) * 1e4, 0.2, f64::from(step) * 0.01);
        }
        delivery.forget_record();
        delivery.sample(1.5, 1.1e6, 0.2, 1.5);
        assert!((delivery.rate() - 1e6).abs() < 1e3, "{}", delivery.rate());
    }

    #[test]
    fn restart_waits_for_packets_sent_after_it() {
        let mut delivery = DeliveryRate::new();
        let arrive = |delivery: &mut DeliveryRate, step: u32| {
            let sent = f64::from(step) * 0.01;
            if delivery.measures(Seconds(sent)) {
                delivery.sample(sent + 7.0, f64::from(step) * 1e4, 0.2, sent + 0.1);
            }
        };
        (0..100).for_each(|step| arrive(&mut delivery, step));
        delivery.restart(Seconds(2.0));
        // One packet that was sent in the silence, then all.
        arrive(&mut delivery, 150);
        (201..230).for_each(|step| arrive(&mut delivery, step));
        assert!((delivery.rate() - 1e6).abs() < 1.0 && (delivery.instant_rate() - 1e6).abs() < 1.0);
        // Silences each quarter of a second, and packets that return after more than that.
        delivery.restart(Seconds(3.0));
        for step in 300..400 {
            if step % 25 == 24 {
                delivery.restart(Seconds(f64::from(step) * 0.01));
            }
            arrive(&mut delivery, step - 30);
        }
        assert!(delivery.measured_at() > Seconds(3.0));
    }
}
