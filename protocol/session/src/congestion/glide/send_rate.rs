//! The bytes sent over time, which probes and loss events are compared with (Glide §4.5).

use super::super::units::Seconds;
use super::ring::Ring;

/// Packets sent within this time share an entry, in seconds.
const STEP: Seconds = Seconds(0.008);
/// 4 s of entries: a probe is evaluated within three.
const STEPS: usize = 512;
/// The span of the sending rate, in seconds.
const SPAN: Seconds = Seconds(0.25);
/// Below this many packets per span a single packet matters.
const FEW_PACKETS: f64 = 8.0;

/// The bytes sent, in all and over time; times in seconds.
#[derive(Clone, Debug)]
pub(super) struct SendRate {
    record: Ring<SendInterval>,
    total: f64,
}

#[derive(Clone, Copy, Debug)]
struct SendInterval {
    since: f64,
    until: f64,
    /// Bytes sent before the first packet, and after the last.
    before: f64,
    after: f64,
}

impl SendRate {
    pub(super) fn new() -> Self {
        Self { record: Ring::new(STEPS), total: 0.0 }
    }

    pub(super) fn push(&mut self, bytes: f64, now: f64) {
        let before = self.total;
        self.total += bytes;
        // Merge packets within a step: the record must cover 4 s at any packet rate.
        match self.record.newest_mut() {
            Some(step) if now < step.since + STEP.0 => (step.until, step.after) = (now, self.total),
            _ => self.record.push(SendInterval { since: now, until: now, before, after: self.total }),
        }
    }

    /// Returns the bytes sent by `moment`; within an entry they count as evenly spread.
    pub(super) fn bytes_until(&self, moment: f64) -> f64 {
        let step = self.record.iter().rev().find(|step| step.since <= moment);
        step.map_or_else(
            || self.record.oldest().map_or(self.total, |step| step.before),
            |step| {
                if moment >= step.until {
                    return step.after;
                }
                step.before + (step.after - step.before) * (moment - step.since) / (step.until - step.since)
            },
        )
    }

    /// Returns how much one more packet adds to the sending rate, if so few are sent in the span that it matters.
    pub(super) fn unit(packet_bytes: f64, rate: f64) -> f64 {
        if rate * SPAN.0 < FEW_PACKETS * packet_bytes { packet_bytes / SPAN.0 } else { 0.0 }
    }

    /// Returns the sending rate over the span, in bytes per second.
    pub(super) fn rate(&self, now: f64) -> f64 {
        (self.total - self.bytes_until(now - SPAN.0)) / SPAN.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_covers_a_quarter_of_a_second() {
        for (every, bytes) in [(0.016, 1600.0), (0.001, 100.0), (0.0001, 10.0)] {
            let mut send_rate = SendRate::new();
            let mut now = 0.0;
            while now < 2.0 {
                send_rate.push(bytes, now);
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
            send_rate.push(100.0, f64::from(packet) * 0.01);
        }
        assert!(send_rate.bytes_until(9.0) == 90_100.0 && send_rate.bytes_until(9.005) == 90_100.0);
        assert!(send_rate.bytes_until(100.0) == 100_000.0);
        assert!(send_rate.bytes_until(0.0) == 48_800.0, "the record begins 4 s ago");
    }
}
