//! The feedback timeout: without feedback for packets in flight the path is unknown, and almost nothing is sent
//! (Glide §12).

use super::super::units::Seconds;
use crate::congestion::SentPacket;

/// The timeout: three feedback intervals plus half a round trip, at least this many seconds.
const INTERVALS: f64 = 3.0;
const ROUND_TRIPS: f64 = 0.5;
const MIN_SECONDS: Seconds = Seconds(0.2);
/// How much longer a sender that sends all it has goes on: a packet in each 100 ms would find the end of a short
/// silence late.
const GRACE: Seconds = Seconds(0.2);
/// Each further second without feedback halves the rate that sending resumes with.
const HALVING: Seconds = Seconds(1.0);
const HALF: f64 = 0.5;

/// The time without feedback.
#[derive(Clone, Debug)]
pub(super) struct FeedbackTimeout {
    halved_at: Option<Seconds>,
    has_halved: bool,
    /// Whether almost nothing is to be sent.
    holds_back: bool,
}

/// What feedback says of the silence before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Silence {
    /// It was no timeout.
    None,
    /// It was a timeout.
    Short,
    /// It was a timeout that has halved the rate.
    Long,
}

impl FeedbackTimeout {
    pub(super) const fn new() -> Self {
        Self { halved_at: None, has_halved: false, holds_back: false }
    }

    /// Processes feedback after `idle_time`. Returns whether a timeout has ended.
    ///
    /// A suspended machine learns at once that time has passed and which packets are `lost`: that is a timeout too,
    /// although no tick noticed it.
    pub(super) fn on_feedback(&mut self, idle_time: Seconds, timeout: Seconds, lost: &[SentPacket]) -> Silence {
        // No tick ran during the timeout if the machine was suspended.
        let unnoticed = idle_time > timeout && !lost.is_empty();
        let was_timeout = self.halved_at.take().is_some() || unnoticed;
        self.holds_back = false;
        match core::mem::take(&mut self.has_halved) {
            true => Silence::Long,
            false if was_timeout => Silence::Short,
            false => Silence::None,
        }
    }

    /// Returns the time without feedback that counts as a timeout.
    pub(super) fn timeout(feedback_interval: Seconds, round_trip: Seconds) -> Seconds {
        // An acknowledgement may be lost and the next one delayed before the path counts as silent.
        (INTERVALS * feedback_interval + ROUND_TRIPS * round_trip).max(MIN_SECONDS)
    }

    /// Advances the time with packets in flight. Returns the factor for the rate.
    pub(super) fn on_tick(&mut self, idle_time: Seconds, timeout: Seconds, app_limited: bool, now: Seconds) -> f64 {
        if idle_time <= timeout {
            return 1.0;
        }
        self.holds_back = !app_limited || idle_time > timeout + GRACE;
        // The first second costs nothing: the rate is at the floor anyway, and may resume as it was.
        let halved_at = *self.halved_at.get_or_insert(now);
        if now - halved_at <= HALVING {
            return 1.0;
        }
        (self.halved_at, self.has_halved) = (Some(now), true);
        HALF
    }

    pub(super) fn is_expired(&self) -> bool {
        self.halved_at.is_some()
    }

    /// Returns whether almost nothing is to be sent.
    pub(super) const fn holds_back(&self) -> bool {
        self.holds_back
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_some_intervals_and_halves_each_second() {
        let mut feedback_timeout = FeedbackTimeout::new();
        let mut rate = 1.0;
        for tick in 0..=500 {
            let now = Seconds(f64::from(tick) / 100.0);
            let timeout = FeedbackTimeout::timeout(Seconds(0.05), Seconds(0.1));
            rate *= feedback_timeout.on_tick(now, timeout, tick % 2 == 0, now);
            assert_eq!(feedback_timeout.is_expired(), tick > 20, "{now:?}");
            assert_eq!(feedback_timeout.holds_back(), tick > 40 || (tick > 20 && tick % 2 == 1), "{now:?}");
        }
        assert_eq!(rate, 0.0625);
        assert_eq!(feedback_timeout.on_feedback(Seconds(5.0), Seconds(0.2), &[]), Silence::Long);
        assert!(!feedback_timeout.is_expired());
        assert_eq!(feedback_timeout.on_feedback(Seconds(0.1), Seconds(0.2), &[]), Silence::None);
    }

    #[test]
    fn losses_after_a_silence_show_an_unnoticed_timeout() {
        let lost = [SentPacket::default()];
        for (idle_time, lost, silence) in
            [(0.1, &lost[..], Silence::None), (3.0, &lost[..], Silence::Short), (3.0, &[], Silence::None)]
        {
            let mut feedback_timeout = FeedbackTimeout::new();
            assert_eq!(feedback_timeout.on_feedback(Seconds(idle_time), Seconds(0.2), lost), silence, "{idle_time}");
        }
    }
}
