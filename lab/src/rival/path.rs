//! What every rival measures of its path.

use core::time::Duration;

use slipgate_protocol::congestion::Feedback;
use slipgate_protocol::time::Instant;

/// Weight of a new round-trip time (RFC 6298, section 2.3).
const SMOOTHING: f64 = 0.125;

/// Round-trip times, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct RoundTrip {
    /// Smoothed; zero before the first.
    pub(super) smoothed: f64,
    /// The least of late; zero before the first.
    pub(super) least: f64,
    /// When that was measured.
    pub(super) least_at: Instant,
}

impl RoundTrip {
    /// Takes the sample that a report brings, if it does. The least is forgotten after `window`.
    pub(super) fn hear(&mut self, feedback: &Feedback<'_>, window: Duration) -> Option<f64> {
        let newest = feedback.newest?;
        let sample = feedback.now.since(newest.sent_at).saturating_sub(newest.ack_delay).as_secs_f64().max(1e-4);
        let first = self.smoothed == 0.0;
        self.smoothed = if first { sample } else { self.smoothed + SMOOTHING * (sample - self.smoothed) };
        if first || sample <= self.least || feedback.now.reached(self.least_at, window) {
            self.least = sample;
            self.least_at = feedback.now;
        }
        Some(sample)
    }
}

/// Bytes that a report acknowledges.
pub(super) fn acked_bytes(feedback: &Feedback<'_>) -> f64 {
    feedback.acked.iter().map(|packet| f64::from(packet.bytes)).sum()
}

/// Bytes that a report calls lost.
pub(super) fn lost_bytes(feedback: &Feedback<'_>) -> f64 {
    feedback.lost.iter().map(|packet| f64::from(packet.bytes)).sum()
}

/// Whether a packet that left after `since` is lost.
pub(super) fn lost_since(feedback: &Feedback<'_>, since: Option<Instant>) -> bool {
    feedback.lost.iter().any(|packet| since.is_none_or(|since| packet.sent_at > since))
}
