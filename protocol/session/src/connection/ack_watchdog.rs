//! Detects a peer that is alive but never acknowledges anything (§5.6).
//!
//! Time alone proves nothing: a game may pause, a debugger may stop either program, a path may break for a while. The
//! watchdog therefore counts how often this side sent a packet that must be acknowledged and then received something
//! else.

use core::time::Duration;

use slipgate_netcode::time::Instant;

/// The shortest duration of a round: as long as a packet is awaited before it counts as lost.
const ROUND: Duration = Duration::from_secs(1);

/// The peer is alive in a round if something arrives this long after the round began, or later. The peer has read the
/// packet by then on all but the slowest paths, and it sends ten packets a second in any case (§1.12).
const ALIVE_AFTER: Duration = Duration::from_millis(500);

/// Rounds without an acknowledgement before this side closes the connection.
///
/// 30 rounds of at least a second take three times as long as the longest usual timeout of a connect token
/// (10 s), so a path that is dead in one direction ends by the other side's timeout. They take six times as long as
/// the longest wait for an acknowledgement (5 s, §5.9). If each direction loses a fifth of all packets and each round
/// sends one packet, an honest peer misses all rounds with a probability of 0.36^30, less than 10^-13.
pub(super) const MAX_ROUNDS: u32 = 30;

/// Counts the rounds since the peer's last acknowledgement.
///
/// ```text
///           packet sent             sent, and received in between
///  idle ──────────────▶ round 1 ───────▶ round 2 ───────▶ … ───────▶ expired
///     ▲  acknowledged      │                │
///     └────────────────────┴────────────────┘
/// ```
#[derive(Default)]
pub(super) struct AckWatchdog {
    /// When the round began, by sending a packet that must be acknowledged.
    since: Option<Instant>,
    /// When anything authentic of the peer arrived last.
    last_received_at: Instant,
    /// One more than the newest packet number that was acknowledged.
    acked_to: u64,
    rounds: u32,
}

impl AckWatchdog {
    /// Records that something authentic of the peer arrived at that time.
    pub(super) fn on_received(&mut self, at: Instant) {
        self.last_received_at = self.last_received_at.max(at);
    }

    /// Records that a packet has left that must be acknowledged.
    pub(super) fn on_ack_eliciting_sent(&mut self, now: Instant) {
        // A round needs both: time to acknowledge, and proof that the peer was alive meanwhile.
        let since = *self.since.get_or_insert(now);
        if now.reached(since, ROUND) && self.last_received_at.reached(since, ALIVE_AFTER) {
            self.rounds += 1;
            self.since = Some(now);
        }
    }

    /// Records that the peer acknowledged something, or would have if this side had read it.
    pub(super) fn on_acked(&mut self) {
        // The next ack-eliciting packet begins round 1.
        (self.since, self.rounds) = (None, 0);
    }

    /// Records that every packet number below `packet`, counted without the wrap, may have been acknowledged. Only a
    /// newer one than before counts, even if its packet was given up as lost long ago.
    pub(super) fn on_acked_to(&mut self, packet: u64) {
        // Old acknowledgements are repeated in every packet and prove nothing new.
        if packet > self.acked_to {
            self.acked_to = packet;
            self.on_acked();
        }
    }

    /// Returns whether the connection should be closed.
    pub(super) const fn is_expired(&self) -> bool {
        self.rounds >= MAX_ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Sends every `sends` milliseconds and receives every `receives`. Returns when the watchdog expired before `end`.
    fn expiry(watchdog: &mut AckWatchdog, sends: u64, receives: u64, end: u64) -> Option<u64> {
        (1..end).find(|millis| {
            if millis % receives == 0 {
                watchdog.on_received(at(*millis));
            }
            if millis % sends == 0 {
                watchdog.on_ack_eliciting_sent(at(*millis));
            }
            watchdog.is_expired()
        })
    }

    #[test]
    fn a_live_peer_without_acks_expires_after_thirty_rounds() {
        for (sends, receives, expected) in [
            (10, 100, Some(10 + 30 * 1000)),
            (1000, 100, Some(31 * 1000)),
            (5000, 100, Some(31 * 5000)),
            (10, 700, Some(10 + 30 * 1000)),
            // Nothing arrives in time to show that the peer is alive.
            (10, 1_000_000, None),
        ] {
            let found = expiry(&mut AckWatchdog::default(), sends, receives, 200_000);
            let close = found.zip(expected).is_none_or(|(found, expected)| found.abs_diff(expected) <= 30 * 700);
            assert!(found.is_some() == expected.is_some() && close, "{sends} {receives}: {found:?}");
            assert!(found.is_none_or(|found| found >= 30_000), "{sends} {receives}: {found:?}");
        }
    }

    #[test]
    fn an_acknowledgement_resets_the_rounds() {
        let mut watchdog = AckWatchdog::default();
        assert_eq!(expiry(&mut watchdog, 10, 100, 29_000), None);
        watchdog.on_acked();
        assert_eq!(expiry(&mut watchdog, 10, 100, 29_000), None);
    }

    #[test]
    fn a_pause_of_either_side_counts_as_one_round() {
        let mut watchdog = AckWatchdog::default();
        watchdog.on_ack_eliciting_sent(at(0));
        for pause in 1..u64::from(MAX_ROUNDS) {
            // Both sides stop for an hour; then a packet of the peer arrives before this side sends.
            let now = at(pause * 3_600_000);
            watchdog.on_received(now);
            (0..900).for_each(|_| watchdog.on_ack_eliciting_sent(now));
        }
        assert!(!watchdog.is_expired());
    }

    #[test]
    fn a_side_that_sends_nothing_never_expires() {
        let mut watchdog = AckWatchdog::default();
        (0..1_000_000).for_each(|millis| watchdog.on_received(at(millis)));
        watchdog.on_ack_eliciting_sent(at(1_000_000));
        watchdog.on_ack_eliciting_sent(at(1_000_001));
        assert!(!watchdog.is_expired());
        assert_eq!(watchdog.rounds, 0);
    }
}
