//! How much is lost, and how much of that is the path's own way.
//!
//! A radio link loses packets at any rate; such *inherent* loss is no reason to send less. What is lost beyond it may be.

use super::ring::Ring;

/// Counts are kept in buckets of this many seconds.
const BUCKET: f64 = 0.2;
/// As many of them are looked at: 4 s.
const BUCKETS: usize = 20;
/// The share of late is that of this many packets, if they are at least [`LEAST_TIME`] seconds old.
const RECENT_PACKETS: f64 = 100.0;
const LEAST_TIME: f64 = 0.3;
/// How long a path's own loss is believed, in seconds.
const BELIEF: f64 = 30.0;
/// Loss is more than inherent beyond this multiple of it, and this share, and two standard deviations.
const EXCESS_FACTOR: f64 = 1.25;
const EXCESS_SHARE: f64 = 0.04;
const DEVIATIONS: f64 = 2.0;
/// The deviation is that of at least this loss.
const LEAST_DEVIATING: f64 = 0.02;
/// Fewer packets than these say nothing.
const LEAST_PACKETS: f64 = 40.0;
/// Fewer lost ones as well: a radio link loses some in a row.
const LEAST_LOST: f64 = 7.0;

/// Counts of acknowledged and lost packets over time, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    buckets: Ring<Bucket>,
    current: Bucket,
    recent: f64,
    recent_packets: f64,
    long: f64,
    inherent: f64,
    believed_until: f64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// When it ended, or when the current one began.
    at: Option<f64>,
    acked: f64,
    lost: f64,
}

const EMPTY: Bucket = Bucket { at: None, acked: 0.0, lost: 0.0 };

impl Losses {
    pub(super) fn new() -> Self {
        Self {
            buckets: Ring::new(BUCKETS),
            current: EMPTY,
            recent: 0.0,
            recent_packets: 0.0,
            long: 0.0,
            inherent: 0.0,
            believed_until: f64::NEG_INFINITY,
        }
    }

    /// So many packets were acknowledged, so many lost.
    pub(super) fn count(&mut self, acked: usize, lost: usize, now: f64) {
        self.current.acked += acked as f64;
        self.current.lost += lost as f64;
        let since = *self.current.at.get_or_insert(now);
        if now - since > BUCKET {
            self.buckets.push(Bucket { at: Some(now), ..self.current });
            self.current = Bucket { at: Some(now), ..EMPTY };
            self.add_up(now);
        }
        if now > self.believed_until {
            self.inherent = 0.0;
        }
    }

    fn add_up(&mut self, now: f64) {
        let span = BUCKET * BUCKETS as f64;
        self.buckets.drop_while(1, |oldest, _| oldest.at.is_some_and(|at| at < now - span));
        let (mut packets, mut lost, mut is_recent) = (0.0, 0.0, true);
        for bucket in self.buckets.iter().rev() {
            packets += bucket.acked + bucket.lost;
            lost += bucket.lost;
            if is_recent {
                (self.recent, self.recent_packets) = (lost / f64::max(packets, 1.0), packets);
                let is_old = bucket.at.is_some_and(|at| now - at > LEAST_TIME);
                is_recent = packets < RECENT_PACKETS || !is_old;
            }
        }
        self.long = lost / f64::max(packets, 1.0);
    }

    /// The share that is lost of late.
    pub(super) fn recent(&self) -> f64 {
        self.recent
    }

    /// Of how many packets that is known.
    pub(super) fn recent_packets(&self) -> f64 {
        self.recent_packets
    }

    /// The share that is lost in four seconds.
    pub(super) fn long(&self) -> f64 {
        self.long
    }

    /// The share that is lost at any rate.
    pub(super) fn inherent(&self) -> f64 {
        self.inherent
    }

    /// Whether more is lost than the path's own way explains.
    pub(super) fn is_more_than_inherent(&self) -> bool {
        let deviating = self.inherent.max(LEAST_DEVIATING) * (1.0 - self.inherent);
        let deviation = libm::sqrt(deviating / self.recent_packets.max(1.0));
        let expected = EXCESS_FACTOR * self.inherent + EXCESS_SHARE + DEVIATIONS * deviation;
        let enough = self.recent_packets >= LEAST_PACKETS && self.recent * self.recent_packets >= LEAST_LOST;
        enough && self.recent > expected
    }

    /// So much is the path's own way; what was counted before is settled by that.
    pub(super) fn settle(&mut self, inherent: f64, now: f64) {
        self.inherent = inherent;
        self.believed_until = now + BELIEF;
        self.forget();
    }

    /// What was counted belongs to a rate that is no longer sent at.
    pub(super) fn forget(&mut self) {
        self.buckets.clear();
        (self.recent, self.recent_packets) = (self.inherent, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `lost` of each hundred packets, a hundred each second.
    fn after(losses: &mut Losses, seconds: u32, lost: usize, from: f64) -> f64 {
        let mut now = from;
        for step in 0..seconds as usize * 10 {
            now += 0.1;
            // Spread evenly: the share of ten packets times the number of steps, rounded down, step by step.
            let of_step = (step + 1) * lost / 10 - step * lost / 10;
            losses.count(10 - of_step, of_step, now);
        }
        now
    }

    #[test]
    fn the_share_is_that_of_the_last_hundred_packets() {
        let mut losses = Losses::new();
        let now = after(&mut losses, 10, 0, 0.0);
        after(&mut losses, 2, 20, now);
        assert!((losses.recent() - 0.2).abs() < 0.05, "{}", losses.recent());
        assert!((losses.long() - 0.1).abs() < 0.03, "{}", losses.long());
    }

    #[test]
    fn loss_is_excessive_until_it_is_known_as_the_paths_own() {
        let mut losses = Losses::new();
        let now = after(&mut losses, 5, 20, 0.0);
        assert!(losses.is_more_than_inherent());
        losses.settle(0.2, now);
        assert!(!losses.is_more_than_inherent() && losses.recent_packets() == 0.0);
        let now = after(&mut losses, 5, 20, now);
        assert!(!losses.is_more_than_inherent());
        after(&mut losses, 5, 50, now);
        assert!(losses.is_more_than_inherent());
    }

    #[test]
    fn what_is_known_of_a_path_is_believed_for_half_a_minute() {
        let mut losses = Losses::new();
        losses.settle(0.2, 0.0);
        let now = after(&mut losses, 29, 20, 0.0);
        assert!(losses.inherent() > 0.19);
        after(&mut losses, 2, 20, now);
        assert!(losses.inherent() == 0.0 && losses.is_more_than_inherent());
    }

    #[test]
    fn a_few_packets_say_nothing() {
        let mut losses = Losses::new();
        losses.count(1, 20, 0.0);
        losses.count(1, 10, 0.3);
        assert!(losses.recent() > 0.9 && !losses.is_more_than_inherent());
    }
}
