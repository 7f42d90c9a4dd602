//! Which of our packets were acknowledged or lost with the last datagram or tick.

use alloc::vec::Vec;

use crate::congestion::{NewlyAcked, SentPacket};
use crate::reliability::{PacketEvents, PacketOutcomes};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// The packets of ours that became acked or lost since the last [`AckResult::clear`].
#[derive(Default)]
pub(in crate::connection) struct AckResult {
    pub(super) acked: PacketColumns,
    pub(super) lost: PacketColumns,
    /// The newest acknowledged packet, unless a newer one was acknowledged before.
    pub(super) newest: Option<(Sequence, SentPacket)>,
    /// The events, where the application polls them.
    pub(super) events: Option<PacketEvents>,
}

impl AckResult {
    /// Returns whether no packet became acked or lost.
    #[inline]
    pub(in crate::connection) fn is_empty(&self) -> bool {
        self.acked.packets.is_empty() && self.lost.packets.is_empty()
    }

    /// Iterates over the packets that arrived; some of them may have been declared lost before.
    #[inline]
    pub(in crate::connection) fn acked(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.acked.sequences.iter().copied()
    }

    /// Iterates over the packets that count as lost.
    #[inline]
    pub(in crate::connection) fn lost(&self) -> impl Iterator<Item = Sequence> + '_ {
        self.lost.sequences.iter().copied()
    }

    /// Forgets all packets, but keeps the events.
    pub(super) fn clear(&mut self) {
        self.acked.clear();
        self.lost.clear();
        self.newest = None;
    }
}

impl PacketOutcomes for AckResult {
    fn on_acked(&mut self, sequence: Sequence, acked: &NewlyAcked, now: Instant) {
        self.acked.push(sequence, acked.packet);
        // RFC 9002, section 5.1: only the largest newly acknowledged packet gives an RTT sample.
        if acked.newest {
            self.newest = Some((sequence, acked.packet));
        }
        if let Some(events) = &mut self.events {
            events.on_acked(sequence, acked, now);
        }
    }

    fn on_lost(&mut self, sequence: Sequence, packet: SentPacket) {
        self.lost.push(sequence, packet);
        if let Some(events) = &mut self.events {
            events.on_lost(sequence, packet);
        }
    }
}

/// Packets with the same outcome, in two columns: the controller takes the second one as a slice.
#[derive(Default)]
pub(super) struct PacketColumns {
    sequences: Vec<Sequence>,
    pub(super) packets: Vec<SentPacket>,
}

impl PacketColumns {
    #[inline]
    fn clear(&mut self) {
        self.sequences.clear();
        self.packets.clear();
    }

    #[inline]
    fn push(&mut self, sequence: Sequence, packet: SentPacket) {
        self.sequences.push(sequence);
        self.packets.push(packet);
    }
}
