//! Whether the peer has fallen silent while packets are under way: then nothing is known, and hardly anything is sent.

use crate::congestion::Departed;

/// Silence is no feedback for three of its intervals and half a round trip, at least so many seconds.
const INTERVALS: f64 = 3.0;
const ROUND_TRIPS: f64 = 0.5;
const LEAST: f64 = 0.2;
/// Each further second of it halves the rate to which one returns.
const HALVING: f64 = 1.0;
const HALF: f64 = 0.5;

/// Since when nothing was heard, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Silence {
    halved_at: Option<f64>,
    has_halved: bool,
    ended_at: f64,
}

impl Silence {
    pub(super) const fn new() -> Self {
        Self { halved_at: None, has_halved: false, ended_at: f64::NEG_INFINITY }
    }

    /// The peer was heard. Answers whether the silence that has ended was so long that it has halved the rate.
    pub(super) fn end(&mut self, now: f64) -> bool {
        if self.halved_at.take().is_some() {
            self.ended_at = now;
        }
        core::mem::take(&mut self.has_halved)
    }

    /// Of lost packets, those that left after the newest silence. What left before it ended was lost because nothing went
    /// through at all: that is no loss of the path's own, and no queue's.
    pub(super) fn lost_since<'a>(&self, lost: &'a [Departed]) -> &'a [Departed] {
        let is_of_silence = |packet: &Departed| packet.sent_at.since_start().as_secs_f64() <= self.ended_at;
        lost.get(lost.partition_point(is_of_silence)..).unwrap_or_default()
    }

    /// Time passed with packets under way; `quiet` since the newest feedback. Answers by what to multiply the rate.
    pub(super) fn pass(&mut self, quiet: f64, feedback_interval: f64, round_trip: f64, now: f64) -> f64 {
        if quiet <= (INTERVALS * feedback_interval + ROUND_TRIPS * round_trip).max(LEAST) {
            return 1.0;
        }
        let halved_at = *self.halved_at.get_or_insert(now);
        if now - halved_at <= HALVING {
            return 1.0;
        }
        (self.halved_at, self.has_halved) = (Some(now), true);
        HALF
    }

    pub(super) fn is_long(&self) -> bool {
        self.halved_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_long_after_some_intervals_and_halves_the_rate_each_further_second() {
        let mut silence = Silence::new();
        let mut rate = 1.0;
        for tick in 0..=500 {
            let now = f64::from(tick) / 100.0;
            rate *= silence.pass(now, 0.05, 0.1, now);
            assert_eq!(silence.is_long(), tick > 20, "{now}");
        }
        assert_eq!(rate, 0.0625);
        assert!(silence.end(5.0));
        assert!(!silence.is_long() && !silence.end(5.1));
    }
}
