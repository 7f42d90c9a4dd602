//! Whether the peer has fallen silent while packets are under way: then nothing is known, and hardly anything is sent.

/// Silence is no feedback for three of its intervals and half a round trip, at least so many seconds.
const INTERVALS: f64 = 3.0;
const ROUND_TRIPS: f64 = 0.5;
const LEAST: f64 = 0.2;
/// Each further second of it halves the rate to which one returns.
const HALVING: f64 = 1.0;
const HALF: f64 = 0.5;

/// Since when nothing was heard, in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Silence {
    halved_at: Option<f64>,
}

impl Silence {
    /// The peer was heard.
    pub(super) fn end(&mut self) {
        self.halved_at = None;
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
        self.halved_at = Some(now);
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
        let mut silence = Silence::default();
        let mut rate = 1.0;
        for tick in 0..=500 {
            let now = f64::from(tick) / 100.0;
            rate *= silence.pass(now, 0.05, 0.1, now);
            assert_eq!(silence.is_long(), tick > 20, "{now}");
        }
        assert_eq!(rate, 0.0625);
        silence.end();
        assert!(!silence.is_long());
    }
}
