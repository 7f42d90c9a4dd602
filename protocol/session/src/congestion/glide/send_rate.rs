//! The bytes sent over time, which probes and loss events are compared with (Glide §4.5).

use core::time::Duration;

use super::super::ring::Ring;
use super::super::units::{Seconds, float};
use slipgate_netcode::time::Instant;

/// Packets sent within this time share an entry.
const STEP: Duration = Duration::from_millis(8);
/// The most entries: a probe is evaluated within three seconds.
const STEPS: usize = 512;
/// The span of the sending rate, in seconds.
const SPAN: Seconds = Seconds(0.25);
/// Below this many packets per span a single packet matters.
const FEW_PACKETS: f64 = 8.0;

/// The bytes sent, in all and over time. Queries state times in seconds; entries hold the lowest 32 bits of
/// nanoseconds and bytes, because [`memory`] covers fewer than 2^32 of both, at up to 1 GB/s.
#[derive(Clone, Debug)]
pub(super) struct SendRate {
    record: Ring<SendInterval>,
    /// When the newest entry began, in nanoseconds.
    newest: u64,
    total: u64,
    /// Bytes sent before the oldest entry.
    before: u64,
    /// How many entries behind the newest the span of the rate began when it was last asked for.
    span_entries: usize,
}

/// The packets of one step: the first, the last, and the bytes sent until then.
#[derive(Clone, Copy, Debug)]
struct SendInterval {
    since: u32,
    until: u32,
    total: u32,
}

impl SendRate {
    pub(super) fn new() -> Self {
        Self { record: Ring::new(STEPS), newest: 0, total: 0, before: 0, span_entries: 0 }
    }

    pub(super) fn push(&mut self, bytes: u32, now: Instant) {
        // A clock that stands still or goes back merges into the newest entry.
        let now = now.as_nanos().max(self.newest);
        self.total += u64::from(bytes);
        let (until, total) = (now as u32, self.total as u32);
        // Merge packets within a step: the record must cover its time at any packet rate.
        if now < self.newest + step()
            && let Some(step) = self.record.newest_mut()
        {
            (step.until, step.total) = (until, total);
            return;
        }
        self.forget_before(now);
        self.newest = now;
        if let Some(dropped) = self.record.push(SendInterval { since: until, until, total }) {
            self.before = self.full_total(&dropped);
        }
    }

    /// Drops the entries of which 32 bits would not be enough at `now`.
    fn forget_before(&mut self, now: u64) {
        let newest = self.newest;
        while let Some(dropped) = self.record.drop_if(|step| now - full(step.since, newest) > memory()) {
            self.before = self.full_total(&dropped);
        }
    }

    fn full_total(&self, step: &SendInterval) -> u64 {
        full(step.total, self.total)
    }

    /// Returns the bytes sent by `moment`; within an entry they count as evenly spread.
    pub(super) fn bytes_until(&self, moment: f64) -> f64 {
        let moment = nanos(moment);
        self.bytes_until_entry(self.entry_at(moment, 0), moment)
    }

    /// Returns how many entries behind the newest the entry of `moment` is. The search begins at `hint`.
    fn entry_at(&self, moment: u64, hint: usize) -> usize {
        // Ages are compared, because each of them fits into 32 bits.
        let age = self.newest.saturating_sub(moment);
        let newest = self.newest as u32;
        let is_as_old = |step: &SendInterval| u64::from(newest.wrapping_sub(step.since)) >= age;
        let mut entry = hint;
        while entry > 0 && self.record.before_newest(entry - 1).is_none_or(is_as_old) {
            entry -= 1;
        }
        while self.record.before_newest(entry).is_some_and(|step| !is_as_old(step)) {
            entry += 1;
        }
        entry
    }

    fn bytes_until_entry(&self, entry: usize, moment: u64) -> f64 {
        let Some(step) = self.record.before_newest(entry) else { return float(self.before) };
        let (since, after) = (full(step.since, self.newest), self.full_total(step));
        let (sent_for, length) = (moment - since, u64::from(step.until.wrapping_sub(step.since)));
        if sent_for >= length {
            return float(after);
        }
        let before = self.record.before_newest(entry + 1).map_or(self.before, |step| self.full_total(step));
        float(before) + float(after - before) * float(sent_for) / float(length)
    }

    /// Returns how much one more packet adds to the sending rate, if so few are sent in the span that it matters.
    pub(super) fn unit(packet_bytes: f64, rate: f64) -> f64 {
        if rate * SPAN.0 < FEW_PACKETS * packet_bytes { packet_bytes / SPAN.0 } else { 0.0 }
    }

    /// Returns the sending rate over the span, in bytes per second.
    pub(super) fn rate(&mut self, now: f64) -> f64 {
        let start = nanos(now - SPAN.0);
        // The span moves by an entry or two at a time, so the search begins where it ended.
        self.span_entries = self.entry_at(start, self.span_entries);
        (float(self.total) - self.bytes_until_entry(self.span_entries, start)) / SPAN.0
    }
}

/// Returns [`STEP`] in nanoseconds.
const fn step() -> u64 {
    STEP.as_nanos() as u64
}

/// Returns the time that the record covers, in nanoseconds: four seconds.
const fn memory() -> u64 {
    step() * STEPS as u64
}

/// Returns the value whose lowest 32 bits are `low`, at most 2^32 below `newest`.
fn full(low: u32, newest: u64) -> u64 {
    newest.saturating_sub(u64::from((newest as u32).wrapping_sub(low)))
}

fn nanos(seconds: f64) -> u64 {
    // Signed, for the same reason: moments before the start of the clock count as the start.
    (seconds * 1e9 + 0.5).max(0.0) as i64 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Instant {
        Instant::from_start(Duration::from_secs_f64(seconds))
    }

    #[test]
    fn rate_covers_a_quarter_of_a_second() {
        for (every, bytes) in [(0.016, 1600), (0.001, 100), (0.0001, 10)] {
            let mut send_rate = SendRate::new();
            let mut now = 0.0;
            while now < 2.0 {
                send_rate.push(bytes, at(now));
                now += every;
            }
            assert!((send_rate.rate(now) - 1e5).abs() < 7e3, "{bytes} bytes: {}", send_rate.rate(now));
        }
    }

    #[test]
    fn single_packets_are_exact_and_old_bytes_stay_counted() {
        let mut send_rate = SendRate::new();
        assert!(send_rate.bytes_until(5.0) == 0.0);
        for packet in 0..1000 {
            send_rate.push(100, at(f64::from(packet) * 0.01));
        }
        assert!(send_rate.bytes_until(9.0) == 90_100.0 && send_rate.bytes_until(9.005) == 90_100.0);
        assert!(send_rate.bytes_until(100.0) == 100_000.0);
        assert!(send_rate.bytes_until(0.0) == 59_000.0, "the record begins 4 s before the newest packet");
    }

    #[test]
    fn totals_are_exact_beyond_32_bits_and_after_pauses() {
        let (mut send_rate, mut total) = (SendRate::new(), 0.0);
        for now in [1.0, 1.5, 9.0, 9.001, 12.0, 500.0, 503.0, 504.0] {
            send_rate.push(1_000_000_000, at(now));
            total += 1e9;
            assert!(send_rate.bytes_until(now) == total && send_rate.bytes_until(now + 100.0) == total, "{now}");
        }
        assert!(send_rate.bytes_until(503.5) == total - 1e9 && send_rate.bytes_until(499.0) == total - 3e9);
        assert!(send_rate.bytes_until(2.0) == total - 3e9, "the entries before the pause are dropped");
    }
}
