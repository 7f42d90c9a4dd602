//! The loss of the path, and how much of it is random (Glide §4.7).
//!
//! A radio link loses packets at any rate; such random loss is no reason to send less. Loss beyond it may be
//! congestion.

use super::super::ring::Ring;
use super::super::units::{Bounded, Seconds};
use super::send_rate::SendRate;
use crate::congestion::SentPacket;

/// The duration of a bucket, in seconds.
const BUCKET: Seconds = Seconds(0.2);
/// The number of buckets: 4 s.
const BUCKETS: usize = 20;
/// The recent share is that of this many packets, if they are at least [`MIN_TIME`] seconds old.
const RECENT_PACKETS: f64 = 100.0;
const MIN_TIME: Seconds = Seconds(0.3);
/// The maximum random loss: no usable link loses more, and random loss is sent on top of the delivery rate. An
/// overflowing queue or a dark path loses as much and more.
const MAX_RANDOM_LOSS: f64 = 0.25;
/// How long the known random loss is valid, in seconds.
const RANDOM_LOSS_MEMORY: Seconds = Seconds(30.0);
/// Loss is excessive above this multiple of the random loss, plus this share, plus two standard deviations.
const EXCESS_FACTOR: f64 = 1.25;
const EXCESS_SHARE: f64 = 0.04;
const DEVIATIONS: f64 = 2.0;
/// The loss that is sent on top of the delivery rate, at most, as a multiple of what is not excessive.
const PLAUSIBLE: f64 = 1.25;
/// The deviation is that of at least this loss.
const MIN_DEVIATING: f64 = 0.02;
/// The minimum packets for a result.
const MIN_PACKETS: f64 = 40.0;
/// The minimum lost packets for a result.
const MIN_LOST: f64 = 7.0;
/// Bursts of a radio link count as one event. Excess loss needs this many events, or this many packets, which no
/// burst explains.
const MIN_EVENTS: f64 = 3.0;
const NO_EVENT: f64 = 30.0;
/// Two lost packets belong to one burst if fewer bytes than this many times the second one were sent between them:
/// packets sent within a few milliseconds are only known as a sum.
const IN_A_ROW: f64 = 2.5;

/// Counts of acknowledged and lost packets over time, in seconds.
#[derive(Clone, Debug)]
pub(super) struct LossEstimator {
    buckets: Ring<LossBucket>,
    /// The newest bucket, which starts with the first count.
    current: Option<LossBucket>,
    recent: f64,
    recent_packets: f64,
    long: f64,
    long_events: f64,
    recent_events: f64,
    /// The bytes sent when the newest lost packet was sent.
    newest_lost: f64,
    random_loss: f64,
    random_loss_until: f64,
    /// Losses of packets sent until then do not count.
    ignored_until: Seconds,
}

#[derive(Clone, Copy, Debug)]
struct LossBucket {
    /// When the bucket ended, or when the current one started.
    at: f64,
    acked: u32,
    lost: u32,
    /// Packets that were acknowledged after they were lost, maybe in an earlier bucket.
    late: u32,
    /// Bursts of lost packets.
    events: u32,
}

impl LossBucket {
    const fn new(at: f64) -> Self {
        Self { at, acked: 0, lost: 0, late: 0, events: 0 }
    }
}

impl LossBucket {
    fn add(&mut self, other: &Self) {
        self.acked = self.acked.saturating_add(other.acked);
        self.lost = self.lost.saturating_add(other.lost);
        self.late = self.late.saturating_add(other.late);
        self.events = self.events.saturating_add(other.events);
    }

    /// Returns the number of lost packets that were not only late.
    fn lost_for_good(&self) -> f64 {
        f64::from(self.lost.saturating_sub(self.late))
    }

    /// Returns the number of events, as many for each lost packet as there are in all.
    fn events_for_good(&self) -> f64 {
        f64::from(self.events) * self.lost_for_good() / f64::from(self.lost.max(1))
    }
}

impl LossEstimator {
    pub(super) fn new() -> Self {
        Self {
            buckets: Ring::new(BUCKETS),
            current: None,
            recent: 0.0,
            recent_packets: 0.0,
            long: 0.0,
            long_events: 0.0,
            recent_events: 0.0,
            newest_lost: f64::NEG_INFINITY,
            random_loss: 0.0,
            random_loss_until: f64::NEG_INFINITY,
            ignored_until: Seconds::NEVER,
        }
    }

    /// Ignores the losses of packets that were sent until then. Their cause is known: nothing passed at all, the first
    /// startup filled a short buffer, or they were sent above a policer's limit that is renewed now.
    pub(super) fn ignore_until(&mut self, sent: Seconds) {
        self.ignored_until = self.ignored_until.max(sent);
    }

    /// Returns the lost packets that count as random loss or congestion.
    pub(super) fn without_ignored<'a>(&self, lost: &'a [SentPacket]) -> &'a [SentPacket] {
        lost.get(lost.partition_point(|packet| self.is_ignored(packet))..).unwrap_or_default()
    }

    fn is_ignored(&self, packet: &SentPacket) -> bool {
        Seconds::from(packet.sent_at) <= self.ignored_until
    }

    /// Counts acknowledged packets, and the packets that were lost.
    pub(super) fn count(&mut self, acked: usize, lost: &[SentPacket], send_rate: &SendRate, now: f64) {
        let current = self.current.get_or_insert(LossBucket::new(now));
        // A bucket has the packets of 0.2 s, or of one silence.
        current.acked = current.acked.saturating_add(acked as u32);
        current.lost = current.lost.saturating_add(lost.len() as u32);
        for packet in lost {
            let position = send_rate.bytes_until(Seconds::from(packet.sent_at).0);
            // Compare by bytes sent in between, not by numbers: feedback may split one burst.
            let is_next = (position - self.newest_lost).abs() < IN_A_ROW * f64::from(packet.bytes);
            current.events = current.events.saturating_add(u32::from(!is_next));
            self.newest_lost = position;
        }
        // Publish whole buckets only: the current one holds too few packets to judge.
        if now - current.at > BUCKET.0 {
            let ended = LossBucket { at: now, ..core::mem::replace(current, LossBucket::new(now)) };
            self.buckets.push(ended);
            let span = BUCKET.0 * BUCKETS as f64;
            self.buckets.drop_while(1, |oldest, _| oldest.at < now - span);
            // The usual case: all shares stay zero, and a further bucket without a loss changes nothing.
            if ended.lost > 0 || self.long > 0.0 || self.recent > 0.0 {
                self.update_shares(now);
            }
        }
        if now > self.random_loss_until {
            // An old measurement may be of another route.
            self.random_loss = 0.0;
        }
    }

    /// Takes back the losses of packets that were late: the path has reordered them.
    pub(super) fn take_back(&mut self, late: &[SentPacket], now: f64) {
        let late = late.iter().filter(|packet| !self.is_ignored(packet)).count();
        if late > 0 {
            let current = self.current.get_or_insert(LossBucket::new(now));
            current.late = current.late.saturating_add(late as u32);
        }
    }

    fn update_shares(&mut self, now: f64) {
        let (mut sum, mut packets, mut is_recent) = (LossBucket::new(now), 0.0, true);
        // Newest first, so that the recent share is complete before the long one.
        for bucket in self.buckets.iter().rev() {
            sum.add(bucket);
            packets = f64::from(sum.acked) + sum.lost_for_good();
            if is_recent {
                (self.recent, self.recent_packets) = (sum.lost_for_good() / packets.at_least(1.0), packets);
                self.recent_events = sum.events_for_good();
                is_recent = packets < RECENT_PACKETS || now - bucket.at <= MIN_TIME.0;
            }
        }
        self.long = sum.lost_for_good() / packets.at_least(1.0);
        self.long_events = sum.events_for_good() / packets.at_least(1.0);
    }

    /// Returns the recent loss share.
    pub(super) fn recent(&self) -> f64 {
        self.recent
    }

    /// Returns the number of packets behind the recent share.
    pub(super) fn recent_packets(&self) -> f64 {
        self.recent_packets
    }

    /// Returns the loss share of four seconds.
    pub(super) fn long(&self) -> f64 {
        self.long
    }

    /// Returns the loss events per packet of four seconds.
    pub(super) fn long_events(&self) -> f64 {
        self.long_events
    }

    /// Returns the share that is lost at any rate.
    pub(super) fn random_loss(&self) -> f64 {
        self.random_loss
    }

    /// Returns whether more is lost than random loss explains.
    pub(super) fn is_excess(&self) -> bool {
        let lost = self.recent * self.recent_packets;
        // One burst is no evidence, however many packets it took.
        let often = self.recent_events >= MIN_EVENTS || lost >= NO_EVENT;
        // Most paths lose too little for any result, which costs no square root.
        if self.recent_packets < MIN_PACKETS || lost < MIN_LOST || !often {
            return false;
        }
        self.recent > self.max_random()
    }

    /// Returns whether the recent loss is more than this multiple of what random loss explains.
    pub(super) fn exceeds_by(&self, factor: f64) -> bool {
        self.recent > factor * self.max_random()
    }

    /// Returns the largest share that random loss explains.
    fn max_random(&self) -> f64 {
        // The standard deviation of a binomial share.
        let deviating = self.random_loss.at_least(MIN_DEVIATING) * (1.0 - self.random_loss);
        let deviation = libm::sqrt(deviating / self.recent_packets.at_least(1.0));
        EXCESS_FACTOR * self.random_loss + EXCESS_SHARE + DEVIATIONS * deviation
    }

    /// Returns the recent loss as far as it may be random, which is sent on top of the delivery rate (Glide §4.9).
    pub(super) fn plausible(&self) -> f64 {
        // Most paths lose too little for a comparison, which costs no square root.
        if self.recent <= EXCESS_SHARE { self.recent } else { self.recent.at_most(PLAUSIBLE * self.max_random()) }
    }

    /// Sets the random loss. It covers the packets counted so far, so they are dropped.
    pub(super) fn set_random_loss(&mut self, random_loss: f64, now: f64) {
        // A higher value would amplify congestion: random loss is added to the sending rate.
        self.random_loss = random_loss.at_most(MAX_RANDOM_LOSS);
        self.random_loss_until = now + RANDOM_LOSS_MEMORY.0;
        self.reset_counts();
    }

    /// Drops all counts, also that of the current bucket.
    pub(super) fn forget(&mut self) {
        self.current = None;
        self.reset_counts();
    }

    /// Drops the counts, which belong to a former rate.
    pub(super) fn reset_counts(&mut self) {
        self.buckets.clear();
        // Restart from the known random loss, so that nothing looks excessive before new counts.
        (self.recent, self.recent_packets, self.recent_events) = (self.random_loss, 0.0, 0.0);
    }
}

/// Packets of 100 bytes for tests, and which of them are lost.
#[cfg(test)]
pub(super) struct TestSender {
    pub(super) send_rate: SendRate,
    pub(super) now: f64,
}

#[cfg(test)]
impl TestSender {
    pub(super) fn new(now: f64) -> Self {
        Self { send_rate: SendRate::new(), now }
    }

    /// Sends a hundred packets evenly within `seconds`. Returns the lost ones: `lost` in all, `in_a_row` in each burst.
    pub(super) fn hundred(&mut self, lost: usize, in_a_row: usize, seconds: f64) -> std::vec::Vec<SentPacket> {
        let mut lost_ones = std::vec::Vec::new();
        let every = (100 * in_a_row).checked_div(lost).unwrap_or(100);
        for packet in 0..100 {
            self.now += seconds / 100.0;
            let now = slipgate_netcode::time::Instant::from_start(core::time::Duration::from_secs_f64(self.now));
            self.send_rate.push(100, now);
            if packet % every < in_a_row && lost_ones.len() < lost {
                lost_ones.push(SentPacket { sent_at: now, bytes: 100, ..SentPacket::default() });
            }
        }
        lost_ones
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use slipgate_netcode::time::Instant;

    /// Sends a hundred packets per second, loses `lost` of each hundred in bursts of `in_a_row`, reports each tenth.
    fn lose(losses: &mut LossEstimator, sent: &mut TestSender, seconds: u32, lost: usize, in_a_row: usize) {
        for _ in 0..seconds {
            let from = sent.now;
            let lost = sent.hundred(lost, in_a_row, 1.0);
            for tenth in 0..10 {
                let (begin, end) = (from + 0.1 * f64::from(tenth), from + 0.1 * f64::from(tenth + 1));
                let of_tenth: std::vec::Vec<SentPacket> = lost
                    .iter()
                    .filter(|packet| {
                        let at = Seconds::from(packet.sent_at).0 - 1e-6;
                        begin < at && at < end
                    })
                    .copied()
                    .collect();
                losses.count(10 - of_tenth.len(), &of_tenth, &sent.send_rate, end);
            }
        }
    }

    #[test]
    fn recent_share_covers_the_last_hundred_packets() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        lose(&mut losses, &mut sent, 10, 0, 1);
        lose(&mut losses, &mut sent, 2, 20, 1);
        assert!((losses.recent() - 0.2).abs() < 0.05, "{}", losses.recent());
        assert!((losses.long() - 0.1).abs() < 0.03, "{}", losses.long());
    }

    #[test]
    fn loss_is_excessive_until_it_is_known_as_random() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        lose(&mut losses, &mut sent, 5, 20, 1);
        assert!(losses.is_excess());
        // 5/4 of 4 % and two deviations of 1.3 or 1.4 %.
        assert!((0.08..0.087).contains(&losses.plausible()), "{}", losses.plausible());
        losses.set_random_loss(0.2, sent.now);
        assert!(!losses.is_excess() && losses.recent_packets() == 0.0);
        lose(&mut losses, &mut sent, 5, 20, 1);
        assert!(!losses.is_excess() && losses.plausible() == losses.recent());
        lose(&mut losses, &mut sent, 5, 50, 1);
        assert!(losses.is_excess());
    }

    #[test]
    fn random_loss_is_valid_for_half_a_minute() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        losses.set_random_loss(0.2, 0.0);
        lose(&mut losses, &mut sent, 29, 20, 1);
        assert!(losses.random_loss() > 0.19);
        lose(&mut losses, &mut sent, 2, 20, 1);
        assert!(losses.random_loss() == 0.0 && losses.is_excess());
    }

    #[test]
    fn late_packets_were_not_lost() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        for _ in 0..10 {
            // 30 of 100 packets are late, in the next bucket, and 2 are lost.
            let lost = sent.hundred(32, 1, 0.3);
            losses.count(68, &lost, &sent.send_rate, sent.now);
            losses.take_back(&lost[..30], sent.now);
            losses.count(30, &[], &sent.send_rate, sent.now);
        }
        lose(&mut losses, &mut sent, 1, 2, 1);
        assert!((0.01..0.03).contains(&losses.long()), "{}", losses.long());
        assert!(losses.recent() < 0.03 && !losses.is_excess(), "{}", losses.recent());
        assert!((0.01..0.03).contains(&losses.long_events()), "{}", losses.long_events());
        // Late packets of before hide no more losses than there were.
        let mut losses = LossEstimator::new();
        losses.take_back(&[SentPacket::default(); 50], sent.now);
        lose(&mut losses, &mut sent, 4, 0, 1);
        assert!(losses.recent() == 0.0 && losses.long() == 0.0);
        lose(&mut losses, &mut sent, 4, 30, 1);
        assert!(losses.is_excess(), "{}", losses.recent());
    }

    #[test]
    fn losses_with_a_known_cause_are_ignored() {
        let at = |seconds| SentPacket {
            sent_at: Instant::from_start(Duration::from_secs(seconds)),
            ..SentPacket::default()
        };
        let lost = [3, 4, 5].map(at);
        let (mut losses, sent) = (LossEstimator::new(), TestSender::new(6.0));
        assert_eq!(losses.without_ignored(&lost), lost);
        losses.ignore_until(Seconds(4.0));
        assert_eq!(losses.without_ignored(&lost), [at(5)]);
        losses.count(9, &lost[2..], &sent.send_rate, 6.0);
        // Only what was counted is taken back.
        losses.take_back(&lost[..2], 6.0);
        losses.count(0, &[], &sent.send_rate, 6.3);
        assert!((losses.recent() - 0.1).abs() < 1e-9, "{}", losses.recent());
        losses.take_back(&lost[2..], 6.3);
        losses.count(1, &[], &sent.send_rate, 6.6);
        assert!(losses.recent() == 0.0, "{}", losses.recent());
    }

    #[test]
    fn few_packets_are_no_evidence() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        let lost = sent.hundred(30, 1, 0.3);
        losses.count(1, &lost[..20], &sent.send_rate, 0.0);
        losses.count(1, &lost[20..], &sent.send_rate, 0.3);
        assert!(losses.recent() > 0.9 && !losses.is_excess());
    }

    #[test]
    fn burst_is_no_excess_but_single_losses_are() {
        for (in_a_row, excess) in [(1, true), (4, true), (8, false), (15, false)] {
            let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
            lose(&mut losses, &mut sent, 5, 0, 1);
            lose(&mut losses, &mut sent, 1, 15, in_a_row);
            assert_eq!(losses.is_excess(), excess, "{in_a_row} in a row");
        }
    }

    #[test]
    fn losses_beyond_any_burst_are_an_excess() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        lose(&mut losses, &mut sent, 5, 0, 1);
        lose(&mut losses, &mut sent, 1, 50, 50);
        assert!(losses.is_excess());
    }

    #[test]
    fn burst_split_over_two_reports_is_one_event() {
        let (mut losses, mut sent) = (LossEstimator::new(), TestSender::new(0.0));
        for _ in 0..10 {
            let burst = sent.hundred(10, 10, 0.4);
            let (first, second) = burst.split_at(5);
            losses.count(45, first, &sent.send_rate, sent.now - 0.15);
            losses.count(45, second, &sent.send_rate, sent.now);
        }
        assert!((losses.long_events() - 0.01).abs() < 0.002, "{}", losses.long_events());
    }
}
