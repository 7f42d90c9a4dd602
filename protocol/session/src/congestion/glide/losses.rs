//! How much is lost, and how much of that is the path's own way.
//!
//! A radio link loses packets at any rate; such *inherent* loss is no reason to send less. What is lost beyond it may be.

use super::departures::Departures;
use super::ring::Ring;
use crate::congestion::Departed;

/// Counts are kept in buckets of this many seconds.
const BUCKET: f64 = 0.2;
/// As many of them are looked at: 4 s.
const BUCKETS: usize = 20;
/// The share of late is that of this many packets, if they are at least [`LEAST_TIME`] seconds old.
const RECENT_PACKETS: f64 = 100.0;
const LEAST_TIME: f64 = 0.3;
/// More than this is never the path's own way: no link is used that loses so much, and what is held for its own is sent on
/// top of what arrives. A queue that overflows after a fall of the rate, or a path that was dark, loses as much and more.
const MOST_INHERENT: f64 = 0.25;
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
/// Fewer lost ones as well.
const LEAST_LOST: f64 = 7.0;
/// A radio link loses many in a row, now and then: that is one event, and there must be so many; or so many lost packets
/// that no such event explains them.
const LEAST_EVENTS: f64 = 3.0;
const NO_EVENT: f64 = 30.0;
/// Two lost packets were sent in a row, or nearly, if from one to the other less than this many times the second one left:
/// what left within the same few milliseconds is only known in all.
const IN_A_ROW: f64 = 2.5;

/// Counts of acknowledged and lost packets over time, in seconds.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    buckets: Ring<Bucket>,
    current: Bucket,
    recent: f64,
    recent_packets: f64,
    long: f64,
    long_events: f64,
    recent_events: f64,
    /// How many bytes had left when the newest lost packet had.
    newest_lost: f64,
    inherent: f64,
    believed_until: f64,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// When it ended, or when the current one began.
    at: Option<f64>,
    acked: f64,
    lost: f64,
    /// Times that packets were lost in a row.
    events: f64,
}

const EMPTY: Bucket = Bucket { at: None, acked: 0.0, lost: 0.0, events: 0.0 };

impl Losses {
    pub(super) fn new() -> Self {
        Self {
            buckets: Ring::new(BUCKETS),
            current: EMPTY,
            recent: 0.0,
            recent_packets: 0.0,
            long: 0.0,
            long_events: 0.0,
            recent_events: 0.0,
            newest_lost: f64::NEG_INFINITY,
            inherent: 0.0,
            believed_until: f64::NEG_INFINITY,
        }
    }

    /// So many packets were acknowledged, and these lost.
    pub(super) fn count(&mut self, acked: usize, lost: &[Departed], departures: &Departures, now: f64) {
        self.current.acked += acked as f64;
        self.current.lost += lost.len() as f64;
        for packet in lost {
            let position = departures.until(packet.sent_at.since_start().as_secs_f64());
            let is_next = (position - self.newest_lost).abs() < IN_A_ROW * f64::from(packet.bytes);
            self.current.events += if is_next { 0.0 } else { 1.0 };
            self.newest_lost = position;
        }
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
        let (mut packets, mut lost, mut events, mut is_recent) = (0.0, 0.0, 0.0, true);
        for bucket in self.buckets.iter().rev() {
            packets += bucket.acked + bucket.lost;
            lost += bucket.lost;
            events += bucket.events;
            if is_recent {
                (self.recent, self.recent_packets) = (lost / f64::max(packets, 1.0), packets);
                self.recent_events = events;
                let is_old = bucket.at.is_some_and(|at| now - at > LEAST_TIME);
                is_recent = packets < RECENT_PACKETS || !is_old;
            }
        }
        self.long = lost / f64::max(packets, 1.0);
        self.long_events = events / f64::max(packets, 1.0);
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

    /// How many times something is lost in four seconds, for each packet.
    pub(super) fn long_events(&self) -> f64 {
        self.long_events
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
        let lost = self.recent * self.recent_packets;
        let often = self.recent_events >= LEAST_EVENTS || lost >= NO_EVENT;
        self.recent_packets >= LEAST_PACKETS && lost >= LEAST_LOST && often && self.recent > expected
    }

    /// So much is the path's own way; what was counted before is settled by that.
    pub(super) fn settle(&mut self, inherent: f64, now: f64) {
        self.inherent = inherent.min(MOST_INHERENT);
        self.believed_until = now + BELIEF;
        self.forget();
    }

    /// What was counted belongs to a rate that is no longer sent at.
    pub(super) fn forget(&mut self) {
        self.buckets.clear();
        (self.recent, self.recent_packets, self.recent_events) = (self.inherent, 0.0, 0.0);
    }
}

/// Packets of 100 bytes that leave, and which of them are lost.
#[cfg(test)]
pub(super) struct Sent {
    pub(super) departures: Departures,
    pub(super) now: f64,
}

#[cfg(test)]
impl Sent {
    pub(super) fn new(now: f64) -> Self {
        Self { departures: Departures::new(), now }
    }

    /// A hundred packets leave, evenly within so many seconds; answers which are lost: so many, so many in a row.
    pub(super) fn hundred(&mut self, lost: usize, in_a_row: usize, seconds: f64) -> std::vec::Vec<Departed> {
        let mut lost_ones = std::vec::Vec::new();
        let every = (100 * in_a_row).checked_div(lost).unwrap_or(100);
        for packet in 0..100 {
            self.now += seconds / 100.0;
            let now = slipgate_netcode::time::Instant::from_start(core::time::Duration::from_secs_f64(self.now));
            self.departures.push(100.0, now.since_start().as_secs_f64());
            if packet % every < in_a_row && lost_ones.len() < lost {
                lost_ones.push(Departed { sent_at: now, bytes: 100 });
            }
        }
        lost_ones
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For so many seconds a hundred packets each, of which so many are lost, so many in a row; heard of in tenths.
    fn lose(losses: &mut Losses, sent: &mut Sent, seconds: u32, lost: usize, in_a_row: usize) {
        for _ in 0..seconds {
            let from = sent.now;
            let lost = sent.hundred(lost, in_a_row, 1.0);
            for tenth in 0..10 {
                let (begin, end) = (from + 0.1 * f64::from(tenth), from + 0.1 * f64::from(tenth + 1));
                let of_tenth: std::vec::Vec<Departed> = lost
                    .iter()
                    .filter(|packet| {
                        let at = packet.sent_at.since_start().as_secs_f64() - 1e-6;
                        begin < at && at < end
                    })
                    .copied()
                    .collect();
                losses.count(10 - of_tenth.len(), &of_tenth, &sent.departures, end);
            }
        }
    }

    #[test]
    fn the_share_is_that_of_the_last_hundred_packets() {
        let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
        lose(&mut losses, &mut sent, 10, 0, 1);
        lose(&mut losses, &mut sent, 2, 20, 1);
        assert!((losses.recent() - 0.2).abs() < 0.05, "{}", losses.recent());
        assert!((losses.long() - 0.1).abs() < 0.03, "{}", losses.long());
    }

    #[test]
    fn loss_is_excessive_until_it_is_known_as_the_paths_own() {
        let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
        lose(&mut losses, &mut sent, 5, 20, 1);
        assert!(losses.is_more_than_inherent());
        losses.settle(0.2, sent.now);
        assert!(!losses.is_more_than_inherent() && losses.recent_packets() == 0.0);
        lose(&mut losses, &mut sent, 5, 20, 1);
        assert!(!losses.is_more_than_inherent());
        lose(&mut losses, &mut sent, 5, 50, 1);
        assert!(losses.is_more_than_inherent());
    }

    #[test]
    fn what_is_known_of_a_path_is_believed_for_half_a_minute() {
        let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
        losses.settle(0.2, 0.0);
        lose(&mut losses, &mut sent, 29, 20, 1);
        assert!(losses.inherent() > 0.19);
        lose(&mut losses, &mut sent, 2, 20, 1);
        assert!(losses.inherent() == 0.0 && losses.is_more_than_inherent());
    }

    #[test]
    fn a_few_packets_say_nothing() {
        let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
        let lost = sent.hundred(30, 1, 0.3);
        losses.count(1, &lost[..20], &sent.departures, 0.0);
        losses.count(1, &lost[20..], &sent.departures, 0.3);
        assert!(losses.recent() > 0.9 && !losses.is_more_than_inherent());
    }

    #[test]
    fn a_burst_is_no_excess_and_the_same_loss_in_single_packets_is() {
        for (in_a_row, excess) in [(1, true), (4, true), (8, false), (15, false)] {
            let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
            lose(&mut losses, &mut sent, 5, 0, 1);
            lose(&mut losses, &mut sent, 1, 15, in_a_row);
            assert_eq!(losses.is_more_than_inherent(), excess, "{in_a_row} in a row");
        }
    }

    #[test]
    fn so_many_as_no_burst_takes_are_an_excess_even_in_a_row() {
        let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
        lose(&mut losses, &mut sent, 5, 0, 1);
        lose(&mut losses, &mut sent, 1, 50, 50);
        assert!(losses.is_more_than_inherent());
    }

    #[test]
    fn a_burst_of_which_two_reports_tell_is_one_event() {
        let (mut losses, mut sent) = (Losses::new(), Sent::new(0.0));
        for _ in 0..10 {
            let burst = sent.hundred(10, 10, 0.4);
            let (first, second) = burst.split_at(5);
            losses.count(45, first, &sent.departures, sent.now - 0.15);
            losses.count(45, second, &sent.departures, sent.now);
        }
        assert!((losses.long_events() - 0.01).abs() < 0.002, "{}", losses.long_events());
    }
}
