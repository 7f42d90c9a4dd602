//! What we have sent until when: the other side of every question about the path.

use super::ring::Ring;

/// Packets that leave within this time share an entry, in seconds.
const STEP: f64 = 0.008;
/// 4 s of steps: a pulse is judged within three.
const STEPS: usize = 512;
/// The rate of sending is measured over this, in seconds.
const SPAN: f64 = 0.25;
/// Fewer packets than these are few.
const FEW_PACKETS: f64 = 8.0;

/// The bytes that left, in all and over time; times in seconds.
#[derive(Clone, Debug)]
pub(super) struct Departures {
    record: Ring<Step>,
    total: f64,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    since: f64,
    until: f64,
    /// Before its first packet, and after its last.
    before: f64,
    after: f64,
}

impl Departures {
    pub(super) fn new() -> Self {
        Self { record: Ring::new(STEPS), total: 0.0 }
    }

    pub(super) fn push(&mut self, bytes: f64, now: f64) {
        let before = self.total;
        self.total += bytes;
        match self.record.newest_mut() {
            Some(step) if now < step.since + STEP => (step.until, step.after) = (now, self.total),
            _ => self.record.push(Step { since: now, until: now, before, after: self.total }),
        }
    }

    /// Bytes that had left by `moment`; within a step they count as spread evenly.
    pub(super) fn until(&self, moment: f64) -> f64 {
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

    /// What one more packet of so many bytes adds to the measured rate of sending, if so few leave at this rate in the time
    /// of a measurement that it matters.
    pub(super) fn unit(packet_bytes: f64, rate: f64) -> f64 {
        if rate * SPAN < FEW_PACKETS * packet_bytes { packet_bytes / SPAN } else { 0.0 }
    }

    /// Bytes per second of late.
    pub(super) fn rate(&self, now: f64) -> f64 {
        (self.total - self.until(now - SPAN)) / SPAN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_what_left_in_a_quarter_of_a_second() {
        for (every, bytes) in [(0.016, 1600.0), (0.001, 100.0), (0.0001, 10.0)] {
            let mut departures = Departures::new();
            let mut now = 0.0;
            while now < 2.0 {
                departures.push(bytes, now);
                now += every;
            }
            assert!((departures.rate(now) - 1e5).abs() < 7e3, "{bytes} bytes: {}", departures.rate(now));
        }
    }

    #[test]
    fn single_packets_are_known_exactly_and_what_was_forgotten_stays_counted() {
        let mut departures = Departures::new();
        assert!(departures.until(5.0) == 0.0);
        for packet in 0..1000 {
            departures.push(100.0, f64::from(packet) * 0.01);
        }
        assert!(departures.until(9.0) == 90_100.0 && departures.until(9.005) == 90_100.0);
        assert!(departures.until(100.0) == 100_000.0);
        assert!(departures.until(0.0) == 48_800.0, "the record begins 4 s ago");
    }
}
