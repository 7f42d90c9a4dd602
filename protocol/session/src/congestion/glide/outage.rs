//! Outages: for a moment the path delivers nothing, which is neither random loss nor congestion (Glide §4.7).

use super::super::units::{Bounded, Seconds};
use super::send_rate::SendRate;
use crate::congestion::SentPacket;

/// An outage takes at least this long, in seconds, and this many times the time in which the path carries a packet: an
/// overflowing queue and a policer deliver a packet in each of those times.
const MIN_TIME: Seconds = Seconds(0.06);
const PACKET_TIMES: f64 = 3.0;
/// It has at least this many lost packets, and this share of the bytes that were sent after the first of them.
const MIN_PACKETS: usize = 8;
const MIN_SHARE: f64 = 0.9;
/// The runs of lost packets of one feedback that are examined. More of them are no outage.
const MAX_RUNS: usize = 4;

/// Finds runs of lost packets between which nothing arrived.
#[derive(Clone, Debug)]
pub(super) struct OutageDetector {
    /// When the newest acknowledged packet was sent.
    acked_until: Seconds,
}

impl OutageDetector {
    pub(super) const fn new() -> Self {
        Self { acked_until: Seconds::NEVER }
    }

    /// Processes feedback of a path that carries a packet in `packet_time`; lost packets are in the order of sending.
    /// Returns when the newest packet of an outage was sent, if there was one.
    pub(super) fn on_feedback(
        &mut self,
        acked: &[SentPacket],
        lost: &[SentPacket],
        send_rate: &SendRate,
        packet_time: Seconds,
    ) -> Option<Seconds> {
        let outage = self.find(acked, lost, send_rate, packet_time);
        self.on_acked(acked);
        outage
    }

    /// Processes feedback without losses.
    #[inline]
    pub(super) fn on_acked(&mut self, acked: &[SentPacket]) {
        self.acked_until = acked.iter().map(sent_at).fold(self.acked_until, Seconds::max);
    }

    fn find(
        &self,
        acked: &[SentPacket],
        mut lost: &[SentPacket],
        send_rate: &SendRate,
        packet_time: Seconds,
    ) -> Option<Seconds> {
        let mut arrived = self.acked_until;
        for _ in 0..MAX_RUNS {
            lost = lost.get(lost.partition_point(|packet| sent_at(packet) < arrived)..)?;
            if lost.len() < MIN_PACKETS {
                return None;
            }
            let first = sent_at(lost.first()?);
            let next = acked.iter().map(sent_at).filter(|at| *at > first).fold(Seconds(f64::INFINITY), Seconds::min);
            let run = lost.get(..lost.partition_point(|packet| sent_at(packet) < next))?;
            if is_outage(run, send_rate, packet_time) {
                return run.last().map(sent_at);
            }
            arrived = next;
        }
        None
    }
}

/// Returns whether a run of lost packets, between which nothing arrived, is an outage.
fn is_outage(run: &[SentPacket], send_rate: &SendRate, packet_time: Seconds) -> bool {
    let (Some(first), Some(last)) = (run.first().map(sent_at), run.last().map(sent_at)) else { return false };
    let least = MIN_TIME.max(PACKET_TIMES * packet_time);
    if run.len() < MIN_PACKETS || last - first < least {
        return false;
    }
    let lost: f64 = run.iter().filter(|packet| sent_at(packet) > first).map(|packet| f64::from(packet.bytes)).sum();
    lost >= MIN_SHARE * (send_rate.bytes_until(last.0) - send_rate.bytes_until(first.0)).at_least(1.0)
}

fn sent_at(packet: &SentPacket) -> Seconds {
    Seconds::from(packet.sent_at)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::vec::Vec;

    use super::*;
    use slipgate_netcode::time::Instant;

    /// Sends `ticks` of `packets` packets of 100 bytes, `every` milliseconds apart.
    fn sent(ticks: u64, packets: usize, every: u64) -> (SendRate, Vec<SentPacket>) {
        let mut send_rate = SendRate::new();
        let mut sent = Vec::new();
        for tick in 1..=ticks {
            let now = Instant::from_start(Duration::from_millis(tick * every));
            for _ in 0..packets {
                send_rate.push(100, now);
                sent.push(SentPacket { sent_at: now, bytes: 100, ..SentPacket::default() });
            }
        }
        (send_rate, sent)
    }

    #[test]
    fn everything_lost_for_a_moment_is_an_outage() {
        // Packets alone, and ticks of several.
        for (packets, every) in [(1, 1), (1, 10), (2, 5), (3, 10), (12, 16)] {
            let (send_rate, sent) = sent(60, packets, every);
            let (dark, until) = (20 * packets, 44 * packets);
            let lost = &sent[dark..until];
            let mut detector = OutageDetector::new();
            let packet_time = Seconds(0.001);
            assert_eq!(detector.on_feedback(&sent[..dark], &[], &send_rate, packet_time), None);
            let expected = (24 * every > 60).then(|| sent_at(lost.last().unwrap()));
            assert_eq!(
                detector.on_feedback(&sent[until..], lost, &send_rate, packet_time),
                expected,
                "{packets} {every}"
            );
        }
    }

    #[test]
    fn losses_between_which_packets_arrive_are_no_outage() {
        let (send_rate, sent) = sent(200, 1, 5);
        for passes in [2, 4, 10, 12] {
            // Reported at once, and in several feedbacks.
            for part in [200, 30] {
                let mut detector = OutageDetector::new();
                for sent in sent.chunks(part) {
                    let (acked, lost): (Vec<_>, Vec<_>) =
                        sent.iter().partition(|packet| packet.sent_at.since_start().as_millis() / 5 % passes == 0);
                    assert_eq!(
                        detector.on_feedback(&acked, &lost, &send_rate, Seconds(0.001)),
                        None,
                        "{passes} {part}"
                    );
                }
            }
        }
    }

    #[test]
    fn outage_is_long_and_complete() {
        let (send_rate, sent) = sent(100, 1, 10);
        let found = |lost: &[SentPacket], packet_time: f64| {
            OutageDetector::new().on_feedback(&sent[90..], lost, &send_rate, Seconds(packet_time)).is_some()
        };
        assert!(found(&sent[10..90], 0.01));
        assert!(!found(&sent[10..17], 0.01), "seven packets");
        assert!(!found(&sent[10..90], 0.3), "of a path that delivers a packet each 0.3 s");
        let half: Vec<_> = sent[10..90].iter().step_by(2).copied().collect();
        assert!(!found(&half, 0.01), "the others are unreported");
        // A single loss before does not hide it.
        let mut detector = OutageDetector::new();
        let acked = [&sent[..5], &sent[6..10], &sent[90..]].concat();
        let lost = [&sent[5..6], &sent[10..90]].concat();
        assert!(detector.on_feedback(&acked, &lost, &send_rate, Seconds(0.01)).is_some());
    }
}
