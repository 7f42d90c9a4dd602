//! What waits to be sent, and how much budget it needs.

use super::Connection;
use super::Stage;
use crate::channel::PendingDemand;
use crate::congestion::FLOOR_PACKET_BYTES;
use crate::connection::path::PathAllowance;
use slipgate_netcode::time::Instant;

/// A packet with a smaller payload is not worth its headers, in bytes.
const MIN_CONTENTS: u64 = 64;
/// The demand of a hello alone, which is smaller.
const HELLO_DEMAND: PendingDemand =
    PendingDemand { bytes: MIN_CONTENTS, largest: MIN_CONTENTS, overdraft: 0, reserve: 0 };

impl Connection {
    /// Returns the smallest allowance with which a packet leaves, in bytes. A packet without space for a slice would
    /// delay transfers forever while messages use the whole allowance.
    pub(super) fn min_contents(&self) -> u64 {
        if self.channels.waiting_bytes().is_some() {
            return MIN_CONTENTS;
        }
        u64::from(FLOOR_PACKET_BYTES).saturating_sub(self.path.overhead()).max(MIN_CONTENTS)
    }

    /// Returns whether anything waits that this side may send.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        (self.hello.wants_packet() || self.channels.wants_to_send()) && !self.is_full()
    }

    /// Returns whether the window of packets in flight is full: sending continues after an acknowledgement or a loss.
    pub(super) fn is_full(&self) -> bool {
        self.path.is_full() || self.channels.is_full()
    }

    /// Returns what goes first of what waits.
    pub(super) fn pending_demand(&self, allowance: &PathAllowance, now: Instant) -> PendingDemand {
        let pending = self.channels.pending_demand(now).unwrap_or(HELLO_DEMAND);
        // Transfers always have more to send: they wait for the budget of one bulk packet.
        if pending.bytes == u64::MAX {
            let bytes = allowance.bulk().max(self.channels.min_bulk_bytes()) as u64;
            return PendingDemand { bytes, ..pending };
        }
        // Messages that are not retransmitted do not wait for a whole packet: they are worth something while they are
        // new, and a whole packet alone looks like a queue on a slow path.
        let bytes = pending.bytes.min(pending.largest.max(allowance.bulk() as u64));
        PendingDemand { bytes, ..pending }
    }

    /// Returns about how many bytes on the path would leave now, if nothing limited them but this connection's path.
    #[must_use]
    pub(crate) fn wanted_bytes(&self, now: Instant) -> u64 {
        if self.stage != Stage::Open || !self.may_send() {
            return 0;
        }
        let overhead = self.path.overhead();
        let allowance = self.path.allowance(now);
        let allowed = allowance.payload_for(self.pending_demand(&allowance, now)) as u64 + overhead;
        // One more packet for the remainder.
        let packets = |bytes: u64| bytes / self.max_packet_bytes() as u64 + 1;
        // Message frames add about as many bytes as the headers of their packets.
        let wanted = self.channels.waiting_bytes().map(|bytes| bytes + 2 * packets(bytes) * overhead);
        wanted.unwrap_or(u64::MAX).min(allowed)
    }
}
