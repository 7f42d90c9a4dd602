//! Loss over the last ten seconds and bandwidths over the last second.

use core::time::Duration;

use super::sliding_sum::SlidingSums;
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
    /// Sent, received and acknowledged bytes.
    bytes: SlidingSums<3>,
    /// Acknowledged and lost packets.
    packets: SlidingSums<2>,
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
        Self { bytes: SlidingSums::new(BANDWIDTH_BUCKET), packets: SlidingSums::new(LOSS_BUCKET) }
    }

    pub(super) fn on_sent(&mut self, bytes: u32, now: Instant) {
        self.bytes.add([bytes.into(), 0, 0], now);
    }

    /// Counts a datagram that was accepted, a whole packet or a fragment.
    pub(super) fn on_datagram(&mut self, bytes: u32, now: Instant) {
        self.bytes.add([0, bytes.into(), 0], now);
    }

    pub(super) fn on_acked(&mut self, acked: &NewlyAcked, now: Instant) {
        self.bytes.add([0, 0, acked.packet.bytes.into()], now);
        // A late packet was counted as lost before. The sum may go below zero once the loss itself has expired.
        self.packets.add([1, -i64::from(acked.late)], now);
    }

    pub(super) fn on_lost(&mut self, now: Instant) {
        self.packets.add([0, 1], now);
    }

    pub(super) fn rates(&self, now: Instant) -> TrafficRates {
        // The sums are in bytes, the public figures in bits.
        let [sent, received, acked] = self.bytes.per_second(now).map(|bytes| BitsPerSecond(bytes * 8.0));
        let [acked_packets, lost] = self.packets.sums(now).map(|packets| packets.max(0) as f64);
        let loss = if lost > 0.0 { lost / (lost + acked_packets) } else { 0.0 };
        TrafficRates { loss, sent, received, acked }
    }
}
