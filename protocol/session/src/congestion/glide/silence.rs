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

    /// The peer was heard, after `quiet`. Answers whether the silence that has ended was so long that it has halved the rate.
    ///
    /// What is told as `lost` was under way meanwhile, though none of it is any more: who was asleep learns all at once that
    /// time has passed, and what has arrived.
    pub(super) fn end(&mut self, quiet: f64, longest: f64, lost: &[Departed], now: f64) -> bool {
        let unnoticed = quiet > longest && !lost.is_empty();
        if self.halved_at.take().is_some() || unnoticed {
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

    /// For how long a peer may be quiet that is not silent.
    pub(super) fn longest(feedback_interval: f64, round_trip: f64) -> f64 {
        (INTERVALS * feedback_interval + ROUND_TRIPS * round_trip).max(LEAST)
    }

    /// Time passed with packets under way; `quiet` since the newest feedback, which may be the `longest`. Answers by what to
    /// multiply the rate.
    pub(super) fn pass(&mut self, quiet: f64, longest: f64, now: f64) -> f64 {
        if quiet <= longest {
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
    use core::time::Duration;

    use super::*;
    use slipgate_netcode::time::Instant;

    #[test]
    fn silence_is_long_after_some_intervals_and_halves_the_rate_each_further_second() {
        let mut silence = Silence::new();
        let mut rate = 1.0;
        for tick in 0..=500 {
            let now = f64::from(tick) / 100.0;
            rate *= silence.pass(now, Silence::longest(0.05, 0.1), now);
            assert_eq!(silence.is_long(), tick > 20, "{now}");
        }
        assert_eq!(rate, 0.0625);
        assert!(silence.end(5.0, 0.2, &[], 5.0));
        assert!(!silence.is_long() && !silence.end(0.1, 0.2, &[], 5.1));
    }

    #[test]
    fn what_was_lost_in_a_silence_that_nobody_was_awake_to_notice_is_of_the_silence() {
        let at = |seconds| Departed { sent_at: Instant::from_start(Duration::from_secs(seconds)), bytes: 1200 };
        for (quiet, of_path) in [(0.1, 2), (3.0, 1)] {
            let mut silence = Silence::new();
            assert!(!silence.end(quiet, 0.2, &[at(1)], 4.0), "no second passed in which the rate was halved");
            assert_eq!(silence.lost_since(&[at(1), at(5)]).len(), of_path, "{quiet}");
        }
    }
}
