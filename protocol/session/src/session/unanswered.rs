//! Whether a peer that is alive ever acknowledges what it is asked to (§5.6).
//!
//! Time alone says nothing: a game may pause, a debugger may hold either program, a path may break for a while. What counts
//! is how often this side asked, and the peer was heard afterwards without an answer.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// How long a round of asking takes at least: as long as a packet is awaited before it counts as lost.
const ROUND: Duration = Duration::from_secs(1);

/// The peer lives in a round if it was heard so long after the round began, or later: by then it has read what was asked,
/// on all but the slowest paths, and it sends ten packets a second in any case (§1.12).
const ALIVE_AFTER: Duration = Duration::from_millis(500);

/// Rounds in vain before a side gives up: with at least a second each they take three times as long as the longest time-out
/// that is usual in netcode's tokens (10 s), so that a path which is dead one way ends by the other side's time-out, and
/// six times as long as anybody waits for an acknowledgement (5 s, §5.9). If each way loses a fifth of all packets and
/// each round asks once, an honest peer fails to answer all rounds with a probability of 0.36^30, less than 10^-13.
pub(super) const MAX_ROUNDS: u32 = 30;

/// How often the peer was asked in vain since its last answer.
///
/// ```text
///           asked                    asked, heard of in between
///  nothing ───────▶ round 1 ───────▶ round 2 ───────▶ … ───────▶ in vain
///     ▲  answered      │                │
///     └────────────────┴────────────────┘
/// ```
#[derive(Default)]
pub(super) struct Unanswered {
    /// When the round began, which is when a packet left that must be acknowledged.
    since: Option<Instant>,
    /// When something of the peer arrived last, whatever it was.
    heard_at: Instant,
    /// One behind the newest packet that was acknowledged.
    answered_to: u64,
    rounds: u32,
}

impl Unanswered {
    /// Something of the peer arrived then.
    pub(super) fn heard(&mut self, at: Instant) {
        self.heard_at = self.heard_at.max(at);
    }

    /// A packet has left that must be acknowledged.
    pub(super) fn asked(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if now.reached(since, ROUND) && self.heard_at.reached(since, ALIVE_AFTER) {
            self.rounds += 1;
            self.since = Some(now);
        }
    }

    /// Something was acknowledged, or could have been, if this side had read it.
    pub(super) fn answered(&mut self) {
        (self.since, self.rounds) = (None, 0);
    }

    /// The newest packet that was acknowledged is the one before this, counted without the wrap. It is an answer if it is a
    /// newer one than before, even if it comes so late that it was lost long ago.
    pub(super) fn answered_to(&mut self, packet: u64) {
        if packet > self.answered_to {
            self.answered_to = packet;
            self.answered();
        }
    }

    /// Whether there is no use in asking on.
    pub(super) const fn is_in_vain(&self) -> bool {
        self.rounds >= MAX_ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Asks and hears every so many milliseconds; answers when it was in vain, if it was before the end.
    fn asks(unanswered: &mut Unanswered, asks: u64, hears: u64, end: u64) -> Option<u64> {
        (1..end).find(|millis| {
            if millis % hears == 0 {
                unanswered.heard(at(*millis));
            }
            if millis % asks == 0 {
                unanswered.asked(at(*millis));
            }
            unanswered.is_in_vain()
        })
    }

    #[test]
    fn a_peer_that_lives_and_never_answers_is_given_up_after_thirty_rounds() {
        for (asking, hearing, expected) in [
            (10, 100, Some(10 + 30 * 1000)),
            (1000, 100, Some(31 * 1000)),
            (5000, 100, Some(31 * 5000)),
            (10, 700, Some(10 + 30 * 1000)),
            // Nothing arrives in time to say that it lives.
            (10, 1_000_000, None),
        ] {
            let found = asks(&mut Unanswered::default(), asking, hearing, 200_000);
            let close = found.zip(expected).is_none_or(|(found, expected)| found.abs_diff(expected) <= 30 * 700);
            assert!(found.is_some() == expected.is_some() && close, "{asking} {hearing}: {found:?}");
            assert!(found.is_none_or(|found| found >= 30_000), "{asking} {hearing}: {found:?}");
        }
    }

    #[test]
    fn an_answer_begins_it_all_anew() {
        let mut unanswered = Unanswered::default();
        assert_eq!(asks(&mut unanswered, 10, 100, 29_000), None);
        unanswered.answered();
        assert_eq!(asks(&mut unanswered, 10, 100, 29_000), None);
    }

    #[test]
    fn a_pause_of_either_side_is_one_round_however_long_it_is() {
        let mut unanswered = Unanswered::default();
        unanswered.asked(at(0));
        for pause in 1..u64::from(MAX_ROUNDS) {
            // Both stand still for an hour; then the peer is heard before this side asks.
            let now = at(pause * 3_600_000);
            unanswered.heard(now);
            (0..900).for_each(|_| unanswered.asked(now));
        }
        assert!(!unanswered.is_in_vain());
    }

    #[test]
    fn who_does_not_ask_waits_for_no_answer() {
        let mut unanswered = Unanswered::default();
        (0..1_000_000).for_each(|millis| unanswered.heard(at(millis)));
        unanswered.asked(at(1_000_000));
        unanswered.asked(at(1_000_001));
        assert!(!unanswered.is_in_vain());
        assert_eq!(unanswered.rounds, 0);
    }
}
