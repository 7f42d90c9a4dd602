//! Does loss without a queue depend on the rate? One sends less for a moment and looks.
//!
//! If the loss goes away, something polices the rate and the rate gets a ceiling just below; if it stays, it is the
//! path's own way.

use super::losses::Losses;
use super::reading::Reading;
use crate::congestion::Departed;

/// For the test one sends this share of what is delivered.
const TEST_SHARE: f64 = 0.80;
/// The test lasts a round trip and this, in seconds, and until enough packets are known; then this at most.
const TEST_TIME: f64 = 0.5;
const TEST_PATIENCE: f64 = 3.0;
/// Enough are as many as would lose this many packets, at so many times, and at least [`LEAST_PACKETS`]: losses that come
/// in bursts stay away for a while at any rate.
const TEST_LOSSES: f64 = 12.0;
const TEST_EVENTS: f64 = 6.0;
const LEAST_PACKETS: f64 = 60.0;
/// Loss below this share of what it was has gone away.
const GONE: f64 = 0.2;
/// One test in so many seconds, and only for a loss of more than this.
const TEST_INTERVAL: f64 = 4.0;
const LEAST_LOSS: f64 = 0.03;
/// The ceiling lies at this share of what was delivered, for so many seconds; then it rises.
const CEILING_SHARE: f64 = 0.98;
const CEILING_TIME: f64 = 8.0;
/// After its time it rises by this share each loop, and one may test it by that much more.
const CEILING_RISE: f64 = 0.02;
const CEILING_MARGIN: f64 = 0.05;
/// The rise is twice as fast after so many seconds without a new ceiling, and so on.
const CEILING_BOLDER: f64 = 1.0;
/// It is forgotten so many seconds after its time, unless there is loss.
const CEILING_MEMORY: f64 = 5.0;
/// Loss this soon under a new ceiling, in seconds and a round trip: so it was not the rate.
const SOON: f64 = 2.0;
const SOON_LOSS: f64 = 0.04;
/// After its time a ceiling is set anew without a test for so many seconds and times.
const RENEWAL: f64 = 20.0;
const RENEWALS: u32 = 3;
/// Of the greatest delivery of late, at least this share is what the path carries.
const RECENT_SHARE: f64 = 0.7;

/// A ceiling for the rate, and the test that finds it. Rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Ceiling {
    rate: f64,
    set_at: f64,
    until: f64,
    renewals: u32,
    /// It was set too high, and has been lowered.
    lowered: bool,
    test: Option<Test>,
    tested_at: f64,
}

#[derive(Clone, Copy, Debug)]
struct Test {
    begin: f64,
    end: f64,
    loss: f64,
    /// Packets that are enough to judge.
    enough: f64,
    delivery: f64,
    acked: f64,
    lost: f64,
}

/// What a feedback told about the loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Finding {
    Nothing,
    /// A test begins: hold this rate until then.
    Test {
        rate: f64,
        until: f64,
    },
    /// A queue grew: the test says nothing.
    Void,
    /// The loss goes with the rate, which is now limited.
    Policed,
    /// The ceiling was reached again, and lies lower now.
    Renewed,
    /// The loss is the path's own.
    Inherent,
}

impl Ceiling {
    pub(super) fn new() -> Self {
        Self {
            rate: f64::INFINITY,
            set_at: f64::NEG_INFINITY,
            until: f64::NEG_INFINITY,
            renewals: 0,
            lowered: false,
            test: None,
            tested_at: f64::NEG_INFINITY,
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// The most that may be sent: after its time one looks a little above.
    pub(super) fn limit(&self, now: f64) -> f64 {
        if now < self.until { self.rate } else { self.rate * (1.0 + CEILING_MARGIN) }
    }

    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Takes a feedback. `may_test` unless another question is being asked; `rate` is what may be sent.
    pub(super) fn hear(
        &mut self,
        reading: &Reading,
        acked: &[Departed],
        lost: &[Departed],
        losses: &mut Losses,
        may_test: bool,
        rate: f64,
    ) -> Finding {
        self.rise(reading);
        if let Some(mut test) = self.test.take() {
            test.acked += sent_after(test.begin, acked);
            test.lost += sent_after(test.begin, lost);
            return self.judge(test, reading, losses);
        }
        if reading.loses_more && reading.queue < reading.target && may_test {
            return self.suspect(reading, losses, rate);
        }
        Finding::Nothing
    }

    fn rise(&mut self, reading: &Reading) {
        if reading.now > self.until {
            let bolder = 1.0 + (reading.now - self.until) / CEILING_BOLDER;
            self.rate *= 1.0 + CEILING_RISE * bolder * reading.step / reading.loop_time();
            if reading.now - self.until > CEILING_MEMORY && !reading.loses_more {
                self.rate = f64::INFINITY;
            }
        }
    }

    fn judge(&mut self, test: Test, reading: &Reading, losses: &mut Losses) -> Finding {
        let now = reading.now;
        if reading.queue > 2.0 * reading.target {
            return Finding::Void;
        }
        let packets = test.acked + test.lost;
        // So many are lost that, whatever follows, it has not gone away.
        let stays = test.lost > GONE * test.loss * test.enough;
        let is_known = stays || packets >= test.enough;
        if !(now > test.end && is_known) && now <= test.end + TEST_PATIENCE {
            self.test = Some(test);
            return Finding::Nothing;
        }
        self.tested_at = now;
        let loss = test.lost / packets.max(1.0);
        if loss < GONE * test.loss && packets >= test.enough {
            losses.settle(loss, now);
            (self.renewals, self.lowered) = (0, false);
            self.limit_to(test.delivery / (1.0 - loss), now);
            return Finding::Policed;
        }
        // What is not known yet is taken for what it was.
        let share = (packets / test.enough).min(1.0);
        losses.settle(test.loss + 0.5 * share * (loss - test.loss), now);
        Finding::Inherent
    }

    /// There is loss without a queue.
    fn suspect(&mut self, reading: &Reading, losses: &mut Losses, rate: f64) -> Finding {
        let now = reading.now;
        let carried = reading.arrivals.max(RECENT_SHARE * reading.recent_peak);
        let limited = self.rate.is_finite();
        let since_set = now - self.set_at;
        if limited
            && since_set < SOON + reading.round_trip
            && losses.recent_packets() >= LEAST_PACKETS
            && losses.recent() > SOON_LOSS
        {
            if !self.lowered && reading.arrivals < self.rate {
                // What was carried before may have been a policer's savings.
                self.lowered = true;
                self.limit_to(reading.arrivals, now);
                losses.forget();
                return Finding::Renewed;
            }
            losses.settle(losses.recent(), now);
            self.rate = f64::INFINITY;
            return Finding::Inherent;
        }
        let may_renew = self.renewals < RENEWALS && now > self.until && now - self.until < RENEWAL;
        if limited && may_renew && rate > 1.01 * self.rate.min(carried) {
            self.renewals += 1;
            self.limit_to(carried / (1.0 - losses.inherent()), now);
            losses.forget();
            return Finding::Renewed;
        }
        if now - self.tested_at > TEST_INTERVAL && now > self.until && losses.long() > LEAST_LOSS {
            let end = now + reading.round_trip + TEST_TIME;
            let loss = losses.long();
            let enough = (TEST_LOSSES / loss).max(TEST_EVENTS / losses.long_events()).max(LEAST_PACKETS);
            self.test = Some(Test { begin: now, end, loss, enough, delivery: carried, acked: 0.0, lost: 0.0 });
            return Finding::Test { rate: TEST_SHARE * carried, until: end + TEST_PATIENCE + TEST_TIME };
        }
        Finding::Nothing
    }

    fn limit_to(&mut self, delivery: f64, now: f64) {
        self.rate = CEILING_SHARE * delivery;
        self.set_at = now;
        // Whoever was met again and again is asked less and less often.
        self.until = now + CEILING_TIME * f64::from(1_u32 << self.renewals.min(RENEWALS));
    }
}

fn sent_after(moment: f64, packets: &[Departed]) -> f64 {
    packets.iter().filter(|packet| packet.sent_at.since_start().as_secs_f64() > moment).count() as f64
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec;

    use super::super::losses::Sent;
    use super::super::reading::{QUIET, queued};
    use super::*;
    use slipgate_netcode::time::Instant;

    const LOSSY: Reading = Reading { loses_more: true, ..QUIET };

    /// A ceiling whose test has begun, and the losses that made it: a fifth of all packets.
    fn testing() -> (Ceiling, Losses) {
        let (mut ceiling, mut losses) = (Ceiling::new(), Losses::new());
        lose(&mut losses, 20, 1, 90.0);
        let finding = ceiling.hear(&LOSSY, &[], &[], &mut losses, true, 1e6);
        assert!(matches!(finding, Finding::Test { rate, until } if rate == 8e5 && until > 104.0), "{finding:?}");
        assert!(ceiling.is_testing());
        (ceiling, losses)
    }

    /// For ten seconds, of each hundred packets so many are lost, so many of them in a row.
    fn lose(losses: &mut Losses, lost: usize, in_a_row: usize, from: f64) {
        let mut sent = Sent::new(from);
        for _ in 0..50 {
            let lost = sent.hundred(lost, in_a_row, 0.2);
            losses.count(100 - lost.len(), &lost, &sent.departures, sent.now);
        }
    }

    fn packets(count: usize, at: f64) -> vec::Vec<Departed> {
        vec![Departed { sent_at: Instant::from_start(Duration::from_secs_f64(at)), bytes: 1200 }; count]
    }

    #[test]
    fn loss_that_goes_away_with_the_rate_makes_a_ceiling_for_a_while() {
        let (mut ceiling, mut losses) = testing();
        let later = Reading { now: 101.0, ..QUIET };
        assert_eq!(ceiling.hear(&later, &packets(200, 100.5), &[], &mut losses, true, 1e6), Finding::Policed);
        assert!((ceiling.limit(101.0) - 9.8e5).abs() < 1.0 && (ceiling.limit(110.0) - 1.029e6).abs() < 1.0);
        let much_later = Reading { now: 120.0, ..QUIET };
        ceiling.hear(&much_later, &[], &[], &mut losses, true, 1e6);
        assert!(ceiling.limit(120.0).is_infinite());
    }

    #[test]
    fn after_its_time_the_ceiling_rises_faster_and_faster() {
        let (mut ceiling, mut losses) = testing();
        ceiling.hear(&Reading { now: 101.0, ..QUIET }, &packets(200, 100.5), &[], &mut losses, true, 1e6);
        let mut after = |seconds: f64| {
            let before = ceiling.rate();
            ceiling.hear(&Reading { now: 109.0 + seconds, ..QUIET }, &[], &[], &mut losses, true, 1e6);
            ceiling.rate() / before - 1.0
        };
        let (first, later) = (after(0.1), after(3.1));
        assert!(first > 0.0 && (3.0..5.0).contains(&(later / first)), "{first}, {later}");
    }

    #[test]
    fn loss_that_stays_is_the_paths_own() {
        let (mut ceiling, mut losses) = testing();
        let later = Reading { now: 101.0, ..QUIET };
        let (acked, lost) = (packets(160, 100.5), packets(40, 100.5));
        assert_eq!(ceiling.hear(&later, &acked, &lost, &mut losses, true, 1e6), Finding::Inherent);
        assert!((losses.inherent() - 0.2).abs() < 0.01 && ceiling.limit(101.0).is_infinite());
    }

    #[test]
    fn a_few_lost_packets_are_enough_to_know_that_loss_stays_and_few_packets_change_little_of_what_was_known() {
        let (mut ceiling, mut losses) = testing();
        let later = Reading { now: 101.0, ..QUIET };
        let (acked, lost) = (packets(5, 100.5), packets(3, 100.5));
        assert_eq!(ceiling.hear(&later, &acked, &lost, &mut losses, true, 1e6), Finding::Inherent);
        assert!((0.2..0.22).contains(&losses.inherent()), "{}", losses.inherent());
    }

    #[test]
    fn loss_in_bursts_has_not_gone_away_because_there_was_none_for_a_while() {
        let (mut ceiling, mut losses) = (Ceiling::new(), Losses::new());
        lose(&mut losses, 20, 10, 90.0);
        ceiling.hear(&LOSSY, &[], &[], &mut losses, true, 1e6);
        let later = Reading { now: 101.0, ..QUIET };
        assert_eq!(ceiling.hear(&later, &packets(200, 100.5), &[], &mut losses, true, 1e6), Finding::Nothing);
        assert_eq!(ceiling.hear(&later, &packets(100, 100.6), &[], &mut losses, true, 1e6), Finding::Policed);
    }

    #[test]
    fn one_waits_three_seconds_for_enough_packets_and_no_longer() {
        let (mut ceiling, mut losses) = testing();
        let mut hear =
            |now: f64| ceiling.hear(&Reading { now, ..QUIET }, &packets(1, now - 0.1), &[], &mut losses, true, 1e6);
        assert_eq!(hear(103.4), Finding::Nothing);
        assert_eq!(hear(103.6), Finding::Inherent);
    }

    #[test]
    fn packets_from_before_the_test_do_not_count() {
        let (mut ceiling, mut losses) = testing();
        let later = Reading { now: 101.0, ..QUIET };
        assert_eq!(ceiling.hear(&later, &packets(500, 99.0), &[], &mut losses, true, 1e6), Finding::Nothing);
        assert!(ceiling.is_testing());
    }

    #[test]
    fn a_queue_makes_the_test_void() {
        let (mut ceiling, mut losses) = testing();
        assert_eq!(ceiling.hear(&queued(0.1, 100.2), &[], &[], &mut losses, true, 1e6), Finding::Void);
        assert!(!ceiling.is_testing());
    }

    #[test]
    fn loss_right_under_a_new_ceiling_lowers_it_once_and_then_shows_that_it_was_not_the_rate() {
        let (mut ceiling, mut losses) = testing();
        let later = Reading { now: 101.0, ..QUIET };
        ceiling.hear(&later, &packets(200, 100.5), &[], &mut losses, true, 1e6);
        let mut lose_until = |ceiling: &mut Ceiling, now: f64, arrivals: f64| {
            lose(&mut losses, 20, 1, now - 10.0);
            let soon = Reading { now, arrivals, ..LOSSY };
            ceiling.hear(&soon, &[], &[], &mut losses, true, 9e5)
        };
        // What the policer had saved up let the first one be set too high.
        assert_eq!(lose_until(&mut ceiling, 102.9, 8e5), Finding::Renewed);
        assert!((ceiling.limit(103.0) - 0.98 * 8e5).abs() < 1.0);
        assert_eq!(lose_until(&mut ceiling, 104.9, 6.4e5), Finding::Inherent);
        assert!(ceiling.limit(105.0).is_infinite());
    }

    #[test]
    fn nothing_is_tested_while_another_question_is_asked() {
        let mut losses = Losses::new();
        lose(&mut losses, 20, 1, 90.0);
        assert_eq!(Ceiling::new().hear(&LOSSY, &[], &[], &mut losses, false, 1e6), Finding::Nothing);
    }
}
