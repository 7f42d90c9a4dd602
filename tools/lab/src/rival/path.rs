//! The measurements of the path that the controllers share.

use core::time::Duration;
use std::collections::VecDeque;

use slipgate_netcode::time::Instant;
use slipgate_session::congestion::Feedback;

/// The weight of a new round-trip time (RFC 6298, section 2.3).
const SMOOTHING: f64 = 0.125;

/// Round-trip times, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct RttEstimate {
    /// The smoothed round-trip time; zero before the first sample.
    pub(super) smoothed: f64,
    /// The recent minimum; zero before the first sample.
    pub(super) min: f64,
    /// When the minimum was measured.
    pub(super) least_at: Instant,
}

impl RttEstimate {
    /// Adds the sample of a report, if it has one. The minimum expires after `window`.
    pub(super) fn update(&mut self, feedback: &Feedback<'_>, window: Duration) -> Option<f64> {
        let newest = feedback.newest?;
        let sample = feedback.now.since(newest.sent_at).saturating_sub(newest.ack_delay).as_secs_f64().max(1e-4);
        let first = self.smoothed == 0.0;
        self.smoothed = if first { sample } else { self.smoothed + SMOOTHING * (sample - self.smoothed) };
        if first || sample <= self.min || feedback.now.reached(self.least_at, window) {
            self.min = sample;
            self.least_at = feedback.now;
        }
        Some(sample)
    }
}

/// The rate at which packets arrive at the peer, over a window of time.
#[derive(Clone, Debug)]
pub(super) struct Arrivals {
    window: Duration,
    /// Times and delivered bytes, the oldest from the start of the window.
    history: VecDeque<(Instant, u64)>,
}

impl Arrivals {
    pub(super) fn over(window: Duration) -> Self {
        Self { window, history: VecDeque::new() }
    }

    /// Adds a report. Returns the rate in bytes per second once a whole window is known.
    pub(super) fn update(&mut self, feedback: &Feedback<'_>) -> Option<f64> {
        self.history.push_back((feedback.now, feedback.delivered));
        while self.history.get(1).is_some_and(|(at, _)| feedback.now.reached(*at, self.window)) {
            self.history.pop_front();
        }
        let (since, delivered) = *self.history.front()?;
        let whole = feedback.now.reached(since, self.window);
        whole.then(|| (feedback.delivered - delivered) as f64 / feedback.now.since(since).as_secs_f64())
    }
}

/// Returns when the newest packet arrived and its one-way delay, in seconds. The two clocks differ, so only differences
/// are meaningful.
pub(super) fn one_way(feedback: &Feedback<'_>) -> Option<(f64, f64)> {
    let newest = feedback.newest?;
    let arrival = newest.received_at?.0.as_secs_f64();
    Some((arrival, arrival - newest.sent_at.since_start().as_secs_f64()))
}

/// Returns the bytes that a report acknowledges.
pub(super) fn acked_bytes(feedback: &Feedback<'_>) -> f64 {
    feedback.acked.iter().map(|packet| f64::from(packet.bytes)).sum()
}

/// Returns the bytes that were detected as lost.
pub(super) fn lost_bytes(feedback: &Feedback<'_>) -> f64 {
    feedback.lost.iter().map(|packet| f64::from(packet.bytes)).sum()
}

/// Returns whether a packet that was sent after `since` is lost.
pub(super) fn lost_since(feedback: &Feedback<'_>, since: Option<Instant>) -> bool {
    feedback.lost.iter().any(|packet| since.is_none_or(|since| packet.sent_at > since))
}
