//! Which of our packets were acknowledged or lost with the last datagram or tick.

use alloc::vec::Vec;

use crate::congestion::{NewlyAcked, SentPacket};
use crate::reliability::{PacketEvents, PacketOutcomes};
use slipgate_netcode::time::Instant;

/// The packets of ours that became acked or lost since the last [`AckResult::clear`].
#[derive(Default)]
pub(in crate::connection) struct AckResult {
    /// The packets that arrived; some of them may have been declared lost before.
    pub(in crate::connection) acked: Vec<SentPacket>,
    /// Those of them that had been declared lost.
    pub(super) late: Vec<SentPacket>,
    /// The packets that count as lost.
    pub(in crate::connection) lost: Vec<SentPacket>,
    /// Bytes that were acknowledged since the start.
    pub(super) delivered: u64,
    /// The newest acknowledged packet, unless a newer one was acknowledged before.
    pub(super) newest: Option<SentPacket>,
    /// The events, where the application polls them.
    pub(super) events: Option<PacketEvents>,
}

impl AckResult {
    /// Returns whether no packet became acked or lost.
    #[inline]
    pub(in crate::connection) fn is_empty(&self) -> bool {
        self.acked.is_empty() && self.lost.is_empty()
    }

    /// Forgets all packets, but keeps the events.
    pub(super) fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.late.clear();
        self.newest = None;
    }
}

impl PacketOutcomes for AckResult {
    #[inline]
    fn on_acked(&mut self, acked: &NewlyAcked, now: Instant) {
        self.acked.push(acked.packet);
        if acked.late {
            self.late.push(acked.packet);
        }
        self.delivered += u64::from(acked.packet.bytes);
        // RFC 9002, section 5.1: only the largest newly acknowledged packet gives an RTT sample.
        if acked.newest {
            self.newest = Some(acked.packet);
        }
        if let Some(events) = &mut self.events {
            events.on_acked(acked, now);
        }
    }

    fn on_lost(&mut self, packet: SentPacket) {
        self.lost.push(packet);
        if let Some(events) = &mut self.events {
            events.on_lost(packet);
        }
    }
}
