//! Turns a rate into bytes that may leave now: a token bucket.

use core::time::Duration;

use super::BytesPerSecond;
use slipgate_netcode::time::Instant;

/// The bucket holds what the rate brings in this time: timers that fire late cost nothing. With a bucket of one packet,
/// 18 % of 10 Mbit/s were lost to their slop.
const LEAST_BURST: Duration = Duration::from_millis(5);
/// The bucket holds at least this many packets.
const LEAST_PACKETS: f64 = 2.0;
/// Who sends in ticks gets a whole tick's worth at once, and this much more of it when a tick comes late.
const TICKS: f64 = 1.5;

/// The bucket of one connection.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// In bytes; below zero after somebody sent more than was allowed, at most as far as above, or a whole large packet.
    credit: f64,
    filled_at: Option<Instant>,
    packet_bytes: f64,
}

impl Pacer {
    pub(super) fn new(packet_bytes: u32) -> Self {
        let packet_bytes = f64::from(packet_bytes);
        Self { credit: LEAST_PACKETS * packet_bytes, filled_at: None, packet_bytes }
    }

    /// What may leave at `now`, if `rate` ruled since the last filling; below zero while a debt is paid back.
    pub(super) fn credit(&self, rate: BytesPerSecond, tick: Duration, now: Instant) -> f64 {
        let passed = self.filled_at.map_or(Duration::ZERO, |filled_at| now.since(filled_at));
        (self.credit + rate.0 * passed.as_secs_f64()).min(self.most(rate, tick))
    }

    /// Brings the bucket up to `now`: to be done before the rate changes.
    pub(super) fn fill(&mut self, rate: BytesPerSecond, tick: Duration, now: Instant) {
        self.credit = self.credit(rate, tick, now);
        self.filled_at = self.filled_at.max(Some(now));
    }

    /// Takes what has left out of the bucket, which was brought up to that moment.
    pub(super) fn spend(&mut self, bytes: u32, rate: BytesPerSecond, tick: Duration) {
        let bytes = f64::from(bytes);
        self.credit = (self.credit - bytes).max(-self.most(rate, tick).max(bytes));
    }

    /// When there is so much credit; it may be less than nothing.
    pub(super) fn ready_at(&self, credit: i64, rate: BytesPerSecond, tick: Duration, now: Instant) -> Instant {
        let missing = credit as f64 - self.credit(rate, tick, now);
        if missing <= 0.0 {
            return now;
        }
        let wait = Duration::try_from_secs_f64(missing / rate.0).unwrap_or(Duration::MAX);
        now.after(wait.saturating_add(Duration::from_nanos(1)))
    }

    fn most(&self, rate: BytesPerSecond, tick: Duration) -> f64 {
        let burst = LEAST_BURST.as_secs_f64().max(TICKS * tick.as_secs_f64());
        (LEAST_PACKETS * self.packet_bytes).max(rate.0 * burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 1000;
    const NO_TICK: Duration = Duration::ZERO;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn what_leaves_in_a_second_is_the_rate_however_often_one_looks() {
        let rate = BytesPerSecond(100_000.0);
        for step in [1, 7, 10] {
            let mut pacer = Pacer::new(PACKET);
            let mut left = 0;
            for millis in (0..=10_000).step_by(step) {
                pacer.fill(rate, NO_TICK, at(millis));
                while pacer.credit(rate, NO_TICK, at(millis)) >= f64::from(PACKET) {
                    pacer.spend(PACKET, rate, NO_TICK);
                    left += 1;
                }
            }
            assert!((998..=1003).contains(&left), "{left} packets in steps of {step} ms");
        }
    }

    #[test]
    fn a_packet_larger_than_the_bucket_is_paid_for_wholly() {
        let rate = BytesPerSecond(100_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, NO_TICK, at(0));
        pacer.spend(16 * PACKET, rate, NO_TICK);
        let ready = pacer.ready_at(PACKET.into(), rate, NO_TICK, at(0)).since(at(0));
        assert!((Duration::from_millis(150)..Duration::from_millis(151)).contains(&ready), "{ready:?}");
    }

    #[test]
    fn a_late_timer_of_five_milliseconds_costs_nothing() {
        let rate = BytesPerSecond(10_000_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, NO_TICK, at(0));
        pacer.spend(2 * PACKET, rate, NO_TICK);
        assert!((pacer.credit(rate, NO_TICK, at(5)) - 50_000.0).abs() < 1.0);
        assert!((pacer.credit(rate, NO_TICK, at(500)) - 50_000.0).abs() < 1.0, "and a silence saves up no more");
    }

    #[test]
    fn who_sends_in_ticks_gets_a_whole_ticks_worth() {
        let (rate, tick) = (BytesPerSecond(1_000_000.0), Duration::from_millis(16));
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, tick, at(0));
        pacer.spend(2 * PACKET, rate, tick);
        assert!((pacer.credit(rate, tick, at(16)) - 16_000.0).abs() < 1.0);
    }

    #[test]
    fn a_packet_is_ready_when_its_bytes_have_come_in() {
        let rate = BytesPerSecond(100_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, NO_TICK, at(0));
        pacer.spend(2 * PACKET, rate, NO_TICK);
        let ready = pacer.ready_at(PACKET.into(), rate, NO_TICK, at(3));
        assert!(ready >= at(10) && ready.since(at(10)) < Duration::from_micros(1), "{ready:?}");
        assert!(pacer.credit(rate, NO_TICK, ready) >= f64::from(PACKET));
        assert_eq!(pacer.ready_at(PACKET.into(), rate, NO_TICK, at(15)), at(15));
    }

    #[test]
    fn a_debt_is_paid_back_and_never_more_than_a_bucket() {
        let rate = BytesPerSecond(100_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, NO_TICK, at(0));
        for _ in 0..1000 {
            pacer.spend(PACKET, rate, NO_TICK);
        }
        assert!((pacer.credit(rate, NO_TICK, at(0)) + 2000.0).abs() < 1.0);
        assert!((pacer.credit(rate, NO_TICK, at(30)) - 1000.0).abs() < 1.0);
    }
}
