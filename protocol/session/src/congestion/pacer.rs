//! The pacer: a token bucket that turns a rate into bytes that may be sent now (Glide §13).

use core::time::Duration;

use super::rate::BytesPerSecond;
use super::timing::nanos_since;
use super::units::{Bytes, Seconds};
use slipgate_netcode::time::Instant;

/// The bucket holds what the rate brings in this time, so that timers which fire late cost nothing. A bucket of one
/// packet lost 18 % of 10 Mbit/s to late timers.
const MIN_BURST: Duration = Duration::from_millis(5);
/// The bucket holds at least this many packets.
const MIN_PACKETS: f64 = 2.0;
/// A sender in ticks gets the bytes of this many ticks at once: one, and half of one for a late tick.
const TICKS: f64 = 1.5;

/// The token bucket of one connection.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// It is negative after more was sent than allowed, down to minus the capacity or one large
    /// packet.
    credit: Bytes,
    filled_at: Option<Instant>,
    packet: Bytes,
    /// Whether the bucket was full since the last call of [`take_full`](Self::take_full).
    was_full: bool,
}

impl Pacer {
    pub(super) fn new(packet_bytes: u32) -> Self {
        let packet = Bytes::from(packet_bytes);
        Self { credit: MIN_PACKETS * packet, filled_at: None, packet, was_full: false }
    }

    /// Returns the credit at `now`, if `rate` applied since the last filling; negative while a debt is paid back.
    pub(super) fn credit(&self, rate: BytesPerSecond, burst: Burst, now: Instant) -> Bytes {
        let passed = self.filled_at.map_or(0, |filled_at| nanos_since(now, filled_at));
        (self.credit + rate * Seconds::from_nanos(passed)).min(self.max_credit(rate, burst))
    }

    /// Adds the credit up to `now`; call it before the rate changes.
    pub(super) fn fill(&mut self, rate: BytesPerSecond, burst: Burst, now: Instant) {
        self.credit = self.credit(rate, burst, now);
        self.was_full |= self.credit >= self.max_credit(rate, burst);
        // Time may go back between two clocks; the credit of a moment must not be added twice.
        self.filled_at = self.filled_at.max(Some(now));
    }

    /// Returns whether the bucket was full since the last call: then a part of the rate was not used.
    pub(super) const fn take_full(&mut self) -> bool {
        core::mem::replace(&mut self.was_full, false)
    }

    /// Subtracts what was sent; the bucket must be filled up to that moment.
    pub(super) fn spend(&mut self, bytes: u32, rate: BytesPerSecond, burst: Burst) {
        let bytes = Bytes::from(bytes);
        self.credit = (self.credit - bytes).max(-self.max_credit(rate, burst).max(bytes));
    }

    /// Discards the credit; a debt stays.
    pub(super) fn discard_credit(&mut self) {
        self.credit = self.credit.min(Bytes(0.0));
    }

    fn max_credit(&self, rate: BytesPerSecond, burst: Burst) -> Bytes {
        let least = (MIN_PACKETS * self.packet).max(rate * burst.time);
        if burst.tick <= Seconds::ZERO {
            return least;
        }
        // What a tick leaves must add up to one more packet, or each tick sends whole packets and the rest is lost.
        least.max(rate * burst.tick + self.packet)
    }
}

/// What the bucket holds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Burst {
    /// The time whose bytes it holds.
    time: Seconds,
    /// The tick of the sender; zero without one.
    tick: Seconds,
}

/// Returns what the bucket holds for a sender in ticks of this length.
pub(super) fn burst(tick: Duration) -> Burst {
    let tick = Seconds::from(tick);
    Burst { time: Seconds::from(MIN_BURST).max(TICKS * tick), tick }
}

/// Returns when `missing` bytes of credit are there.
pub(super) fn ready_at(missing: Bytes, rate: BytesPerSecond, now: Instant) -> Instant {
    if missing <= Bytes(0.0) {
        return now;
    }
    // One nanosecond more: rounding down would wake the caller just before the credit is there.
    let wait = Duration::try_from_secs_f64((missing / rate).0).unwrap_or(Duration::MAX);
    now.after(wait.saturating_add(Duration::from_nanos(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 1000;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Returns when a packet's credit is there.
    fn packet_ready_at(pacer: &Pacer, rate: BytesPerSecond, now: Instant) -> Instant {
        ready_at(Bytes::from(PACKET) - pacer.credit(rate, burst(Duration::ZERO), now), rate, now)
    }

    #[test]
    fn bytes_per_second_match_the_rate_for_any_step() {
        let rate = BytesPerSecond(100_000.0);
        for step in [1, 7, 10] {
            let mut pacer = Pacer::new(PACKET);
            let mut left = 0;
            for millis in (0..=10_000).step_by(step) {
                pacer.fill(rate, burst(Duration::ZERO), at(millis));
                while pacer.credit(rate, burst(Duration::ZERO), at(millis)) >= Bytes::from(PACKET) {
                    pacer.spend(PACKET, rate, burst(Duration::ZERO));
                    left += 1;
                }
            }
            assert!((998..=1003).contains(&left), "{left} packets in steps of {step} ms");
        }
    }

    #[test]
    fn packet_larger_than_the_bucket_is_paid_in_full() {
        let rate = BytesPerSecond(100_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, burst(Duration::ZERO), at(0));
        pacer.spend(16 * PACKET, rate, burst(Duration::ZERO));
        let ready = packet_ready_at(&pacer, rate, at(0)).since(at(0));
        assert!((Duration::from_millis(150)..Duration::from_millis(151)).contains(&ready), "{ready:?}");
    }

    #[test]
    fn timer_late_by_five_milliseconds_costs_nothing() {
        let rate = BytesPerSecond(10_000_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, burst(Duration::ZERO), at(0));
        pacer.spend(2 * PACKET, rate, burst(Duration::ZERO));
        assert!((pacer.credit(rate, burst(Duration::ZERO), at(5)).0 - 50_000.0).abs() < 1.0);
        assert!(
            (pacer.credit(rate, burst(Duration::ZERO), at(500)).0 - 50_000.0).abs() < 1.0,
            "and a silence saves up no more"
        );
    }

    #[test]
    fn sender_in_ticks_gets_the_bytes_of_a_tick() {
        let (rate, burst) = (BytesPerSecond(1_000_000.0), burst(Duration::from_millis(16)));
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, burst, at(0));
        pacer.spend(2 * PACKET, rate, burst);
        assert!((pacer.credit(rate, burst, at(16)).0 - 16_000.0).abs() < 1.0);
    }

    #[test]
    fn packet_is_ready_when_its_credit_is_there() {
        let rate = BytesPerSecond(100_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, burst(Duration::ZERO), at(0));
        pacer.spend(2 * PACKET, rate, burst(Duration::ZERO));
        let ready = packet_ready_at(&pacer, rate, at(3));
        assert!(ready >= at(10) && ready.since(at(10)) < Duration::from_micros(1), "{ready:?}");
        assert!(pacer.credit(rate, burst(Duration::ZERO), ready) >= Bytes::from(PACKET));
        assert_eq!(packet_ready_at(&pacer, rate, at(15)), at(15));
    }

    #[test]
    fn debt_is_paid_back_and_at_most_one_bucket() {
        let rate = BytesPerSecond(100_000.0);
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, burst(Duration::ZERO), at(0));
        for _ in 0..1000 {
            pacer.spend(PACKET, rate, burst(Duration::ZERO));
        }
        assert!((pacer.credit(rate, burst(Duration::ZERO), at(0)).0 + 2000.0).abs() < 1.0);
        assert!((pacer.credit(rate, burst(Duration::ZERO), at(30)).0 - 1000.0).abs() < 1.0);
    }

    #[test]
    fn discarded_credit_leaves_debts() {
        let (rate, burst) = (BytesPerSecond(100_000.0), burst(Duration::ZERO));
        let mut pacer = Pacer::new(PACKET);
        pacer.fill(rate, burst, at(0));
        pacer.discard_credit();
        assert!((pacer.credit(rate, burst, at(5)).0 - 500.0).abs() < 1.0);
        pacer.spend(PACKET, rate, burst);
        pacer.discard_credit();
        assert!((pacer.credit(rate, burst, at(0)).0 + 1000.0).abs() < 1.0);
    }

    #[test]
    fn what_a_tick_leaves_adds_up_to_a_packet() {
        // Packets are a little smaller than the largest, whose credit each must wait for.
        for (rate, tick_ms) in
            [330_000.0, 438_000.0, 500_000.0, 620_000.0].into_iter().flat_map(|rate| [3, 5].map(|tick| (rate, tick)))
        {
            let (mut pacer, burst, allowed) =
                (Pacer::new(PACKET), burst(Duration::from_millis(tick_ms)), BytesPerSecond(rate));
            let mut sent = 0;
            for tick in 0..2000 {
                let now = at(tick_ms * tick);
                pacer.fill(allowed, burst, now);
                while pacer.credit(allowed, burst, now) >= Bytes::from(PACKET) {
                    pacer.spend(PACKET - 100, allowed, burst);
                    sent += PACKET - 100;
                }
            }
            let share = f64::from(sent) / (2.0 * tick_ms as f64 * rate);
            assert!((0.995..1.005).contains(&share), "{rate} bytes per second, {tick_ms} ms: {share}");
        }
    }
}
