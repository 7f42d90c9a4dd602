//! The policer test: does loss without a queue depend on the rate? It reduces the rate briefly and observes the loss
//! (Glide §11).
//!
//! If the loss disappears, a policer limits the rate, and the controller stays just below it. If the loss stays, it
//! is random.

use super::super::units::{Bounded, Seconds};
use super::losses::LossEstimator;
use super::path_sample::PathSample;
use crate::congestion::SentPacket;

/// The rate during a test, as a share of the delivery rate.
const TEST_SHARE: f64 = 0.80;
/// The test lasts a round trip plus this, in seconds, until enough packets are known, at most the grace time longer.
const TEST_TIME: Seconds = Seconds(0.5);
const TEST_GRACE: Seconds = Seconds(3.0);
/// Enough packets are those that would lose this many packets in this many events, and at least [`MIN_PACKETS`]:
/// bursty loss pauses at any rate.
const TEST_LOSSES: f64 = 12.0;
const TEST_EVENTS: f64 = 6.0;
const MIN_PACKETS: f64 = 60.0;
/// Loss below this share of the former loss has disappeared.
const GONE: f64 = 0.2;
/// It depends on the rate, too, if it has fallen by this many standard deviations of random loss.
const FALLEN: f64 = 3.0;
/// A queue above this many targets ends a test without a result: it adds congestive loss.
const VOID_QUEUE: f64 = 2.0;
/// The weight of a complete test in the known random loss.
const TEST_WEIGHT: f64 = 0.5;
/// The minimum time between tests, in seconds, and the minimum loss.
const TEST_INTERVAL: Seconds = Seconds(4.0);
/// The minimum time if the application is not app-limited, and the loss is this multiple of what the known random loss
/// explains.
const FAR_EXCESS: f64 = 1.5;
const FAR_INTERVAL: Seconds = Seconds(1.0);
const MIN_LOSS: f64 = 0.03;
/// The rate limit as a share of the delivery rate, and how many seconds it stays; then it rises.
const LIMIT_SHARE: f64 = 0.98;
const LIMIT_TIME: Seconds = Seconds(8.0);
/// The growth of an expired limit per loop, and how far the rate may exceed it.
const LIMIT_GROWTH: f64 = 0.02;
const LIMIT_MARGIN: f64 = 0.05;
/// The growth doubles after this many seconds without a new limit, and so on.
const GROWTH_DOUBLING: Seconds = Seconds(1.0);
/// An expired limit is dropped after this many seconds without loss.
const LIMIT_MEMORY: Seconds = Seconds(5.0);
/// Loss this soon under a new limit, in seconds plus a round trip, shows that the rate was not the cause.
const SOON: Seconds = Seconds(2.0);
const SOON_LOSS: f64 = 0.04;
/// Loss below the limit shows that it is too high, or that the test ended without loss by chance: at least this many
/// events, and more than this share plus a multiple of the random loss. The limit is lowered once by this factor, then
/// dropped.
const BELOW_EVENTS: u32 = 3;
const BELOW_LOSS: f64 = 0.02;
const BELOW_RANDOM: f64 = 1.25;
const LOWERED: f64 = 0.95;
/// A packet that was sent later than this after the lost one before, in seconds, starts a new event.
const EVENT_TIME: Seconds = Seconds(0.1);
/// An expired limit is renewed without a test within this many seconds, and this many times.
const RENEWAL_SECONDS: Seconds = Seconds(20.0);
const RENEWALS: u32 = 3;
/// It is renewed only if the allowed rate exceeds it by this factor.
const RENEWED_ABOVE: f64 = 1.01;
/// The minimum share of the recent peak that counts as the capacity.
const RECENT_SHARE: f64 = 0.7;

/// The rate limit of a policer, and the test that finds it. Rates in bytes per second, times in seconds.
#[derive(Clone, Debug)]
pub(super) struct PolicerDetector {
    rate: f64,
    set_at: f64,
    until: f64,
    renewals: u32,
    /// The limit was too high, and was lowered once.
    lowered: bool,
    below: BelowLimit,
    test: Option<PolicerTest>,
    tested_at: f64,
}

#[derive(Clone, Copy, Debug)]
struct PolicerTest {
    begin: f64,
    end: f64,
    loss: f64,
    /// Packets needed for a result.
    enough: f64,
    /// Loss events for each packet before the test.
    events: f64,
    delivery: f64,
    acked: f64,
    lost: f64,
}

/// The packets sent below a limit in force.
#[derive(Clone, Copy, Debug)]
struct BelowLimit {
    /// Counts packets sent after this time. Just after a new limit the policer's token bucket may be empty.
    since: f64,
    acked: f64,
    lost: f64,
    events: u32,
    /// When the newest packet of the newest event was sent.
    event_at: f64,
}

impl PolicerTest {
    /// Returns the share of the former loss below which a test of this many packets shows that the loss depends on the
    /// rate. Random events are independent, so the deviation of their number is its square root.
    fn gone_below(&self, packets: f64) -> f64 {
        (1.0 - FALLEN / libm::sqrt((self.events * packets).at_least(1.0))).at_least(GONE)
    }
}

impl BelowLimit {
    const fn new(since: f64) -> Self {
        Self { since, acked: 0.0, lost: 0.0, events: 0, event_at: f64::NEG_INFINITY }
    }

    fn count(&mut self, acked: &[SentPacket], lost: &[SentPacket]) {
        self.acked += sent_after(self.since, acked);
        for packet in lost {
            let sent_at = Seconds::from(packet.sent_at).0;
            if sent_at <= self.since {
                continue;
            }
            self.lost += 1.0;
            self.events = self.events.saturating_add(u32::from(sent_at > self.event_at + EVENT_TIME.0));
            self.event_at = sent_at;
        }
    }

    /// Returns the share of lost packets if the rate does not cause it.
    fn loss(&self, random_loss: f64) -> Option<f64> {
        let packets = self.acked + self.lost;
        if self.events < BELOW_EVENTS || packets < MIN_PACKETS {
            return None;
        }
        let loss = self.lost / packets;
        (loss > BELOW_LOSS + BELOW_RANDOM * random_loss).then_some(loss)
    }
}

/// The result of one feedback.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PolicerFinding {
    Nothing,
    /// A test starts: hold this rate until then.
    Test {
        rate: f64,
        until: f64,
    },
    /// A queue formed, so the test has no result.
    Void,
    /// The loss depends on the rate, which is limited now.
    Policed,
    /// The limit was reached again, or packets were lost below it. It is lower now.
    Renewed,
    /// The loss is random.
    RandomLoss,
}

impl PolicerDetector {
    pub(super) fn new() -> Self {
        Self {
            rate: f64::INFINITY,
            set_at: f64::NEG_INFINITY,
            until: f64::NEG_INFINITY,
            renewals: 0,
            lowered: false,
            below: BelowLimit::new(f64::NEG_INFINITY),
            test: None,
            tested_at: f64::NEG_INFINITY,
        }
    }

    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the maximum rate, a little above an expired limit.
    pub(super) fn limit(&self, now: f64) -> f64 {
        if now < self.until { self.rate } else { self.rate * (1.0 + LIMIT_MARGIN) }
    }

    /// Ends an active test without a result.
    pub(super) fn end_test(&mut self) {
        self.test = None;
    }

    pub(super) fn is_testing(&self) -> bool {
        self.test.is_some()
    }

    /// Returns whether there is a limit or a test.
    pub(super) fn is_active(&self) -> bool {
        self.is_testing() || self.rate.is_finite()
    }

    /// Takes back the losses of packets that were late.
    pub(super) fn take_back(&mut self, late: &[SentPacket]) {
        if let Some(test) = &mut self.test {
            test.lost = (test.lost - sent_after(test.begin, late)).at_least(0.0);
        }
        self.below.lost = (self.below.lost - sent_after(self.below.since, late)).at_least(0.0);
    }

    /// Processes feedback. `may_test` unless another probe or test is active; `rate` is the allowed rate.
    pub(super) fn on_feedback(
        &mut self,
        sample: &PathSample,
        acked: &[SentPacket],
        lost: &[SentPacket],
        losses: &mut LossEstimator,
        may_test: bool,
        rate: f64,
    ) -> PolicerFinding {
        self.rise(sample);
        if let Some(mut test) = self.test.take() {
            test.acked += sent_after(test.begin, acked);
            test.lost += sent_after(test.begin, lost);
            return self.evaluate(test, sample, losses);
        }
        if self.rate.is_finite() && sample.now < self.until && sample.queue < sample.target && may_test {
            self.below.count(acked, lost);
            if let Some(loss) = self.below.loss(losses.random_loss()) {
                return self.on_loss_below(loss, sample, losses);
            }
        }
        if sample.has_excess_loss && sample.queue < sample.target && may_test {
            return self.on_excess_loss(sample, losses, rate);
        }
        PolicerFinding::Nothing
    }

    fn rise(&mut self, sample: &PathSample) {
        // Most paths have no policer.
        if self.rate.is_finite() && sample.now > self.until {
            // A limit that was not met for long may be gone: rise faster and faster.
            let faster = 1.0 + (sample.now - self.until) / GROWTH_DOUBLING.0;
            self.rate *= 1.0 + LIMIT_GROWTH * faster * sample.step / sample.loop_time();
            if sample.now - self.until > LIMIT_MEMORY.0 && !sample.has_excess_loss {
                self.rate = f64::INFINITY;
            }
        }
    }

    /// Handles loss below a limit in force: lowers it once, then drops it.
    fn on_loss_below(&mut self, loss: f64, sample: &PathSample, losses: &mut LossEstimator) -> PolicerFinding {
        if self.lowered {
            losses.set_random_loss(loss, sample.now);
            self.rate = f64::INFINITY;
            return PolicerFinding::RandomLoss;
        }
        self.lowered = true;
        self.rate *= LOWERED;
        self.below = BelowLimit::new(sample.now);
        losses.reset_counts();
        PolicerFinding::Renewed
    }

    fn evaluate(&mut self, test: PolicerTest, sample: &PathSample, losses: &mut LossEstimator) -> PolicerFinding {
        let now = sample.now;
        if sample.queue > VOID_QUEUE * sample.target {
            return PolicerFinding::Void;
        }
        let packets = test.acked + test.lost;
        // Enough packets are lost already: no further acknowledgement can bring the share below the threshold.
        let stays = test.lost > test.gone_below(test.enough) * test.loss * test.enough;
        let is_known = stays || packets >= test.enough;
        if !(now > test.end && is_known) && now <= test.end + TEST_GRACE.0 {
            self.test = Some(test);
            return PolicerFinding::Nothing;
        }
        self.tested_at = now;
        let loss = test.lost / packets.at_least(1.0);
        if loss < test.gone_below(packets) * test.loss && packets >= test.enough {
            // The remaining loss of the test is the random part of the path.
            losses.set_random_loss(loss, now);
            (self.renewals, self.lowered) = (0, false);
            self.limit_to(test.delivery / (1.0 - loss), now);
            return PolicerFinding::Policed;
        }
        // Weigh the test by its packets: a short one changes the known loss only a little.
        let share = (packets / test.enough).at_most(1.0);
        losses.set_random_loss(test.loss + TEST_WEIGHT * share * (loss - test.loss), now);
        PolicerFinding::RandomLoss
    }

    /// Handles loss without a queue.
    fn on_excess_loss(&mut self, sample: &PathSample, losses: &mut LossEstimator, rate: f64) -> PolicerFinding {
        let now = sample.now;
        let carried = sample.arrivals.at_least(RECENT_SHARE * sample.recent_peak);
        let limited = self.rate.is_finite();
        let since_set = now - self.set_at;
        if limited
            && since_set < SOON.0 + sample.round_trip
            && losses.recent_packets() >= MIN_PACKETS
            && losses.recent() > SOON_LOSS
        {
            // Lower the limit once before concluding that the rate was not the cause.
            if !self.lowered && sample.arrivals < self.rate {
                // The former delivery rate may have included the token bucket that the policer had saved up.
                self.lowered = true;
                self.limit_to(sample.arrivals, now);
                losses.reset_counts();
                return PolicerFinding::Renewed;
            }
            losses.set_random_loss(losses.recent(), now);
            self.rate = f64::INFINITY;
            return PolicerFinding::RandomLoss;
        }
        // The same policer most likely: renew its limit without another costly test.
        let may_renew = self.renewals < RENEWALS && now > self.until && now - self.until < RENEWAL_SECONDS.0;
        if limited && may_renew && rate > RENEWED_ABOVE * self.rate.at_most(carried) {
            self.renewals += 1;
            self.limit_to(carried / (1.0 - losses.random_loss()), now);
            losses.reset_counts();
            return PolicerFinding::Renewed;
        }
        let is_far = !sample.app_limited && losses.exceeds_by(FAR_EXCESS);
        let interval = if is_far { FAR_INTERVAL } else { TEST_INTERVAL };
        if now - self.tested_at > interval.0 && now > self.until && losses.long() > MIN_LOSS {
            let end = now + sample.round_trip + TEST_TIME.0;
            let loss = losses.long();
            let events = losses.long_events();
            let enough = (TEST_LOSSES / loss).at_least(TEST_EVENTS / events).at_least(MIN_PACKETS);
            let delivery = carried;
            self.test = Some(PolicerTest { begin: now, end, loss, enough, events, delivery, acked: 0.0, lost: 0.0 });
            // Hold the test rate beyond the test: the caller releases it with the result.
            return PolicerFinding::Test { rate: TEST_SHARE * carried, until: end + TEST_GRACE.0 + TEST_TIME.0 };
        }
        PolicerFinding::Nothing
    }

    fn limit_to(&mut self, delivery: f64, now: f64) {
        // Just below the policer, so that its token bucket refills.
        self.rate = LIMIT_SHARE * delivery;
        self.set_at = now;
        self.below = BelowLimit::new(now + SOON.0);
        // A policer that is met again and again is tested less and less often.
        self.until = now + LIMIT_TIME.0 * f64::from(1_u32 << self.renewals.min(RENEWALS));
    }
}

fn sent_after(moment: f64, packets: &[SentPacket]) -> f64 {
    packets.iter().filter(|packet| Seconds::from(packet.sent_at).0 > moment).count() as f64
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec;

    use super::super::losses::TestSender;
    use super::super::path_sample::{QUIET, queued};
    use super::*;
    use slipgate_netcode::time::Instant;

    const LOSSY: PathSample = PathSample { has_excess_loss: true, ..QUIET };

    /// A detector with an active test, and the loss that started it: a fifth of all packets.
    fn testing() -> (PolicerDetector, LossEstimator) {
        let (mut policer, mut losses) = (PolicerDetector::new(), LossEstimator::new());
        lose(&mut losses, 20, 1, 90.0);
        let finding = policer.on_feedback(&LOSSY, &[], &[], &mut losses, true, 1e6);
        assert!(matches!(finding, PolicerFinding::Test { rate, until } if rate == 8e5 && until > 104.0), "{finding:?}");
        assert!(policer.is_testing());
        (policer, losses)
    }

    /// Loses `lost` of each hundred packets for ten seconds, in bursts of `in_a_row`.
    fn lose(losses: &mut LossEstimator, lost: usize, in_a_row: usize, from: f64) {
        let mut sent = TestSender::new(from);
        for _ in 0..50 {
            let lost = sent.hundred(lost, in_a_row, 0.2);
            losses.count(100 - lost.len(), &lost, &sent.send_rate, sent.now);
        }
    }

    fn packets(count: usize, at: f64) -> vec::Vec<SentPacket> {
        vec![
            SentPacket {
                sent_at: Instant::from_start(Duration::from_secs_f64(at)),
                bytes: 1200,
                ..SentPacket::default()
            };
            count
        ]
    }

    #[test]
    fn loss_that_follows_the_rate_sets_a_limit() {
        let (mut policer, mut losses) = testing();
        let later = PathSample { now: 101.0, ..QUIET };
        assert_eq!(
            policer.on_feedback(&later, &packets(200, 100.5), &[], &mut losses, true, 1e6),
            PolicerFinding::Policed
        );
        assert!((policer.limit(101.0) - 9.8e5).abs() < 1.0 && (policer.limit(110.0) - 1.029e6).abs() < 1.0);
        let much_later = PathSample { now: 120.0, ..QUIET };
        policer.on_feedback(&much_later, &[], &[], &mut losses, true, 1e6);
        assert!(policer.limit(120.0).is_infinite());
    }

    #[test]
    fn expired_limit_rises_faster_and_faster() {
        let (mut policer, mut losses) = testing();
        policer.on_feedback(&PathSample { now: 101.0, ..QUIET }, &packets(200, 100.5), &[], &mut losses, true, 1e6);
        let mut after = |seconds: f64| {
            let before = policer.rate();
            policer.on_feedback(&PathSample { now: 109.0 + seconds, ..QUIET }, &[], &[], &mut losses, true, 1e6);
            policer.rate() / before - 1.0
        };
        let (first, later) = (after(0.1), after(3.1));
        assert!(first > 0.0 && (3.0..5.0).contains(&(later / first)), "{first}, {later}");
    }

    #[test]
    fn limit_that_loses_is_lowered_once_and_dropped() {
        for (share, events, findings) in [
            (10, 1, [PolicerFinding::Nothing; 2]),
            (1, 9, [PolicerFinding::Nothing; 2]),
            (5, 3, [PolicerFinding::Renewed, PolicerFinding::RandomLoss]),
        ] {
            let (mut policer, mut losses) = testing();
            let at = |now: f64| PathSample { now, ..QUIET };
            policer.on_feedback(&at(101.0), &packets(200, 100.5), &[], &mut losses, true, 1e6);
            let before = policer.rate();
            for (period, finding) in findings.into_iter().enumerate() {
                let mut found = PolicerFinding::Nothing;
                let from = 103.1 + 1.5 * period as f64;
                for event in 0..events {
                    let sent_at = from + 0.15 * f64::from(event);
                    let acked = packets(100 - share, sent_at);
                    let lost = packets(share, sent_at);
                    found = policer.on_feedback(&at(sent_at + 0.05), &acked, &lost, &mut losses, true, 1e6);
                }
                assert_eq!(found, finding, "{share} % in {events} events, period {period}");
                let expected = if finding == PolicerFinding::Renewed { 0.95 * before } else { before };
                assert!(policer.rate() == expected || finding == PolicerFinding::RandomLoss);
            }
            assert_eq!(policer.rate().is_infinite(), findings[1] == PolicerFinding::RandomLoss);
        }
    }

    #[test]
    fn loss_below_a_limit_counts_only_without_queue_and_probe() {
        for (queue, may_test, counts) in [(0.0, true, true), (0.1, true, false), (0.0, false, false)] {
            let (mut policer, mut losses) = testing();
            policer.on_feedback(&PathSample { now: 101.0, ..QUIET }, &packets(200, 100.5), &[], &mut losses, true, 1e6);
            let before = policer.rate();
            for event in 0..4 {
                let sent_at = 103.1 + 0.15 * f64::from(event);
                let sample = PathSample { now: sent_at + 0.05, queue, ..QUIET };
                let (acked, lost) = (packets(95, sent_at), packets(5, sent_at));
                policer.on_feedback(&sample, &acked, &lost, &mut losses, may_test, 1e6);
            }
            assert_eq!(policer.rate() < before, counts, "{queue} s, {may_test}");
        }
    }

    #[test]
    fn loss_that_stays_is_random() {
        let (mut policer, mut losses) = testing();
        let later = PathSample { now: 101.0, ..QUIET };
        let (acked, lost) = (packets(160, 100.5), packets(40, 100.5));
        assert_eq!(policer.on_feedback(&later, &acked, &lost, &mut losses, true, 1e6), PolicerFinding::RandomLoss);
        assert!((losses.random_loss() - 0.2).abs() < 0.01 && policer.limit(101.0).is_infinite());
    }

    #[test]
    fn loss_that_falls_by_more_than_chance_sets_a_limit() {
        // Of 400 packets of which a fifth should be lost, three standard deviations are a third.
        for (in_a_row, lost, is_policed) in [(1, 48, true), (1, 56, false), (10, 48, false)] {
            let (mut policer, mut losses) = (PolicerDetector::new(), LossEstimator::new());
            lose(&mut losses, 20, in_a_row, 90.0);
            policer.on_feedback(&LOSSY, &[], &[], &mut losses, true, 1e6);
            let later = PathSample { now: 101.0, ..QUIET };
            let (acked, lost) = (packets(400 - lost, 100.5), packets(lost, 100.5));
            let finding = policer.on_feedback(&later, &acked, &lost, &mut losses, true, 1e6);
            let expected = if is_policed { PolicerFinding::Policed } else { PolicerFinding::RandomLoss };
            assert_eq!(finding, expected, "{} lost, {in_a_row} in a row", lost.len());
            if is_policed {
                assert!((losses.random_loss() - 0.12).abs() < 1e-9, "what is left: {}", losses.random_loss());
                assert!((policer.limit(101.0) - 0.98 * 1e6 / 0.88).abs() < 1.0, "{}", policer.limit(101.0));
            }
        }
    }

    #[test]
    fn far_more_loss_than_is_known_is_tested_again_soon() {
        for (lost, tested_at) in [(60, 102.05), (40, 105.05)] {
            let (mut policer, mut losses) = testing();
            let (acked, random) = (packets(160, 100.5), packets(40, 100.5));
            policer.on_feedback(&PathSample { now: 101.0, ..QUIET }, &acked, &random, &mut losses, true, 1e6);
            lose(&mut losses, lost, 1, 91.0);
            assert!(losses.is_excess());
            let mut finding_at = |now: f64| {
                let finding = policer.on_feedback(&PathSample { now, ..LOSSY }, &[], &[], &mut losses, true, 1e6);
                matches!(finding, PolicerFinding::Test { .. })
            };
            assert_eq!((finding_at(tested_at - 0.1), finding_at(tested_at)), (false, true), "{lost} % lost");
        }
    }

    #[test]
    fn loss_that_was_reordering_disappears_in_the_test() {
        let (mut policer, mut losses) = testing();
        let (acked, lost) = (packets(100, 100.5), packets(4, 100.5));
        let during = PathSample { now: 100.1, ..QUIET };
        assert_eq!(policer.on_feedback(&during, &[], &lost, &mut losses, true, 1e6), PolicerFinding::Nothing);
        policer.take_back(&lost);
        let later = PathSample { now: 101.0, ..QUIET };
        assert_eq!(policer.on_feedback(&later, &acked, &[], &mut losses, true, 1e6), PolicerFinding::Policed);
        assert!(losses.random_loss() == 0.0, "{}", losses.random_loss());
    }

    #[test]
    fn short_test_changes_the_known_loss_only_a_little() {
        let (mut policer, mut losses) = testing();
        let later = PathSample { now: 101.0, ..QUIET };
        let (acked, lost) = (packets(5, 100.5), packets(3, 100.5));
        assert_eq!(policer.on_feedback(&later, &acked, &lost, &mut losses, true, 1e6), PolicerFinding::RandomLoss);
        assert!((0.2..0.22).contains(&losses.random_loss()), "{}", losses.random_loss());
    }

    #[test]
    fn pause_of_bursty_loss_does_not_end_the_test() {
        let (mut policer, mut losses) = (PolicerDetector::new(), LossEstimator::new());
        lose(&mut losses, 20, 10, 90.0);
        policer.on_feedback(&LOSSY, &[], &[], &mut losses, true, 1e6);
        let later = PathSample { now: 101.0, ..QUIET };
        assert_eq!(
            policer.on_feedback(&later, &packets(200, 100.5), &[], &mut losses, true, 1e6),
            PolicerFinding::Nothing
        );
        assert_eq!(
            policer.on_feedback(&later, &packets(100, 100.6), &[], &mut losses, true, 1e6),
            PolicerFinding::Policed
        );
    }

    #[test]
    fn test_waits_at_most_three_seconds_for_packets() {
        let (mut policer, mut losses) = testing();
        let mut on_feedback = |now: f64| {
            policer.on_feedback(&PathSample { now, ..QUIET }, &packets(1, now - 0.1), &[], &mut losses, true, 1e6)
        };
        assert_eq!(on_feedback(103.4), PolicerFinding::Nothing);
        assert_eq!(on_feedback(103.6), PolicerFinding::RandomLoss);
    }

    #[test]
    fn packets_sent_before_the_test_do_not_count() {
        let (mut policer, mut losses) = testing();
        let later = PathSample { now: 101.0, ..QUIET };
        assert_eq!(
            policer.on_feedback(&later, &packets(500, 99.0), &[], &mut losses, true, 1e6),
            PolicerFinding::Nothing
        );
        assert!(policer.is_testing());
    }

    #[test]
    fn queue_voids_the_test() {
        let (mut policer, mut losses) = testing();
        assert_eq!(policer.on_feedback(&queued(0.1, 100.2), &[], &[], &mut losses, true, 1e6), PolicerFinding::Void);
        assert!(!policer.is_testing());
    }

    #[test]
    fn loss_under_new_limit_lowers_it_once_then_is_random() {
        let (mut policer, mut losses) = testing();
        let later = PathSample { now: 101.0, ..QUIET };
        policer.on_feedback(&later, &packets(200, 100.5), &[], &mut losses, true, 1e6);
        let mut lose_until = |policer: &mut PolicerDetector, now: f64, arrivals: f64| {
            lose(&mut losses, 20, 1, now - 10.0);
            let soon = PathSample { now, arrivals, ..LOSSY };
            policer.on_feedback(&soon, &[], &[], &mut losses, true, 9e5)
        };
        // The token bucket of the policer made the first limit too high.
        assert_eq!(lose_until(&mut policer, 102.9, 8e5), PolicerFinding::Renewed);
        assert!((policer.limit(103.0) - 0.98 * 8e5).abs() < 1.0);
        assert_eq!(lose_until(&mut policer, 104.9, 6.4e5), PolicerFinding::RandomLoss);
        assert!(policer.limit(105.0).is_infinite());
    }

    #[test]
    fn no_test_starts_during_another_probe() {
        let mut losses = LossEstimator::new();
        lose(&mut losses, 20, 1, 90.0);
        assert_eq!(
            PolicerDetector::new().on_feedback(&LOSSY, &[], &[], &mut losses, false, 1e6),
            PolicerFinding::Nothing
        );
    }
}
