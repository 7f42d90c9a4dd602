//! The feedback timeout: without feedback for packets in flight the path is unknown, and almost nothing is sent
//! (Glide §12).

use super::super::units::Seconds;
use crate::congestion::SentPacket;

/// The timeout: three feedback intervals plus half a round trip, at least this many seconds.
const INTERVALS: f64 = 3.0;
const ROUND_TRIPS: f64 = 0.5;
const MIN_SECONDS: Seconds = Seconds(0.2);
/// Each further second without feedback halves the rate that sending resumes with.
const HALVING: Seconds = Seconds(1.0);
const HALF: f64 = 0.5;

/// The time without feedback.
#[derive(Clone, Debug)]
pub(super) struct FeedbackTimeout {
    halved_at: Option<Seconds>,
    has_halved: bool,
    /// Losses of packets sent until then do not count.
    ignored_until: Seconds,
}

impl FeedbackTimeout {
    pub(super) const fn new() -> Self {
        Self { halved_at: None, has_halved: false, ignored_until: Seconds::NEVER }
    }

    /// Processes feedback after `idle_time`. Returns whether the timeout that ended had halved the rate.
    ///
    /// A suspended machine learns at once that time has passed and which packets are `lost`: that is a timeout too,
    /// although no tick noticed it.
    pub(super) fn on_feedback(
        &mut self,
        idle_time: Seconds,
        timeout: Seconds,
        lost: &[SentPacket],
        now: Seconds,
    ) -> bool {
        // No tick ran during the timeout if the machine was suspended.
        let unnoticed = idle_time > timeout && !lost.is_empty();
        if self.halved_at.take().is_some() || unnoticed {
            self.ignore_losses_until(now);
        }
        // Only a timeout long enough to halve the rate restarts the search for the capacity.
        core::mem::take(&mut self.has_halved)
    }

    /// Ignores the losses of packets that were sent until `now`. Their cause is known: nothing passed at all, the first
    /// startup filled a short buffer, or they were sent above a policer's limit that is renewed now.
    pub(super) const fn ignore_losses_until(&mut self, now: Seconds) {
        self.ignored_until = now;
    }

    /// Returns the lost packets that count as random loss or congestion.
    pub(super) fn without_ignored_losses<'a>(&self, lost: &'a [SentPacket]) -> &'a [SentPacket] {
        let is_ignored = |packet: &SentPacket| Seconds::from(packet.sent_at) <= self.ignored_until;
        lost.get(lost.partition_point(is_ignored)..).unwrap_or_default()
    }

    /// Returns the time without feedback that counts as a timeout.
    pub(super) fn timeout(feedback_interval: Seconds, round_trip: Seconds) -> Seconds {
        // An acknowledgement may be lost and the next one delayed before the path counts as silent.
        (INTERVALS * feedback_interval + ROUND_TRIPS * round_trip).max(MIN_SECONDS)
    }

    /// Advances the time with packets in flight. Returns the factor for the rate.
    pub(super) fn on_tick(&mut self, idle_time: Seconds, timeout: Seconds, now: Seconds) -> f64 {
        if idle_time <= timeout {
            return 1.0;
        }
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
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use slipgate_netcode::time::Instant;

    #[test]
    fn timeout_follows_some_intervals_and_halves_each_second() {
        let mut feedback_timeout = FeedbackTimeout::new();
        let mut rate = 1.0;
        for tick in 0..=500 {
            let now = Seconds(f64::from(tick) / 100.0);
            rate *= feedback_timeout.on_tick(now, FeedbackTimeout::timeout(Seconds(0.05), Seconds(0.1)), now);
            assert_eq!(feedback_timeout.is_expired(), tick > 20, "{now:?}");
        }
        assert_eq!(rate, 0.0625);
        assert!(feedback_timeout.on_feedback(Seconds(5.0), Seconds(0.2), &[], Seconds(5.0)));
        assert!(!feedback_timeout.is_expired());
        assert!(!feedback_timeout.on_feedback(Seconds(0.1), Seconds(0.2), &[], Seconds(5.1)));
    }

    #[test]
    fn losses_of_an_unnoticed_timeout_are_filtered() {
        let at = |seconds| SentPacket {
            sent_at: Instant::from_start(Duration::from_secs(seconds)),
            bytes: 1200,
            ..SentPacket::default()
        };
        for (idle_time, of_path) in [(0.1, 2), (3.0, 1)] {
            let mut feedback_timeout = FeedbackTimeout::new();
            assert!(
                !feedback_timeout.on_feedback(Seconds(idle_time), Seconds(0.2), &[at(1)], Seconds(4.0)),
                "no second passed in which the rate was halved"
            );
            assert_eq!(feedback_timeout.without_ignored_losses(&[at(1), at(5)]).len(), of_path, "{idle_time}");
        }
    }
}
