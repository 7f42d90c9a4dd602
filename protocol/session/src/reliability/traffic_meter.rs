//! Loss over the last ten seconds and bandwidths over the last second.

use core::time::Duration;

use super::sliding_sum::SlidingSum;
use super::stats::BitsPerSecond;
use crate::congestion::NewlyAcked;
use slipgate_netcode::time::Instant;

/// A tenth of the second over which bandwidths are measured.
const BANDWIDTH_BUCKET: Duration = Duration::from_millis(100);
/// A tenth of the ten seconds over which loss is measured: at 10 packets per second, the slow rate of the article, one
/// lost packet is one per cent.
const LOSS_BUCKET: Duration = Duration::from_secs(1);

/// Sliding sums of bytes over the last second, and of packets over the last ten.
pub(super) struct TrafficMeter {
    sent: SlidingSum,
    received: SlidingSum,
    acked: SlidingSum,
    acked_packets: SlidingSum,
    lost_packets: SlidingSum,
}

/// The values of a [`TrafficMeter`] at one moment.
#[derive(Clone, Copy)]
pub(super) struct TrafficRates {
    pub(super) loss: f64,
    pub(super) sent: BitsPerSecond,
    pub(super) received: BitsPerSecond,
    pub(super) acked: BitsPerSecond,
}

impl TrafficMeter {
    pub(super) const fn new() -> Self {
        Self {
            sent: SlidingSum::new(BANDWIDTH_BUCKET),
            received: SlidingSum::new(BANDWIDTH_BUCKET),
            acked: SlidingSum::new(BANDWIDTH_BUCKET),
            acked_packets: SlidingSum::new(LOSS_BUCKET),
            lost_packets: SlidingSum::new(LOSS_BUCKET),
        }
    }

    pub(super) fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.sent.add(bytes.into(), now);
    }

    /// Counts a datagram that was accepted, a whole packet or a fragment.
    pub(super) fn on_datagram(&mut self, bytes: u32, now: Instant) {
        self.received.add(bytes.into(), now);
    }

    pub(super) fn on_acked(&mut self, acked: &NewlyAcked, now: Instant) {
        self.acked.add(acked.packet.bytes.into(), now);
        self.acked_packets.add(1, now);
        if acked.late {
            // The packet was counted as lost before. The sum may go below zero once the loss itself has expired.
            self.lost_packets.add(-1, now);
        }
    }

    pub(super) fn on_lost(&mut self, now: Instant) {
        self.lost_packets.add(1, now);
    }

    pub(super) fn rates(&self, now: Instant) -> TrafficRates {
        // The sums are in bytes, the public figures in bits.
        TrafficRates {
            loss: self.loss(now),
            sent: BitsPerSecond(self.sent.per_second(now) * 8.0),
            received: BitsPerSecond(self.received.per_second(now) * 8.0),
            acked: BitsPerSecond(self.acked.per_second(now) * 8.0),
        }
    }

    fn loss(&self, now: Instant) -> f64 {
        let (acked, lost) = (self.acked_packets.sum(now).max(0), self.lost_packets.sum(now).max(0));
        if lost == 0 { 0.0 } else { lost as f64 / (lost + acked) as f64 }
    }
}
