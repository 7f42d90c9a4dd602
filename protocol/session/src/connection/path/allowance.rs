//! What the path can carry now, in bytes of payload.

use crate::channel::{MAX_RESERVE_BYTES, PendingDemand, SendBudget};
use crate::congestion::{Priority, SendAllowance};
use slipgate_netcode::time::Instant;

/// Bytes of a packet's session frame, with extended acknowledgements of a few packets.
const SESSION_FRAME_BYTES: u64 = 16;

/// What may be sent at one moment.
#[derive(Clone, Copy)]
pub(in crate::connection) struct PathAllowance {
    pub(super) path: SendAllowance,
    /// The bytes that every datagram costs beside the payload behind its header.
    pub(super) overhead: u64,
    pub(super) now: Instant,
}

impl PathAllowance {
    /// Returns how many bytes of payload the next packet may have; `None` if none may leave now. `pending` returns what
    /// goes first of what waits.
    pub(in crate::connection) fn packet_budget(
        &self,
        max_bytes: usize,
        pending: impl FnOnce() -> PendingDemand,
    ) -> Option<usize> {
        // The usual case of a game: a whole packet of any priority may leave, so the priority need not be known.
        if self.path.is_ample_for(max_bytes as u64 + self.overhead, MAX_RESERVE_BYTES) {
            return Some(max_bytes);
        }
        let pending = pending();
        // The pacer decides when, the budget how much.
        let is_ready = self.next_send(pending).is_some_and(|ready| ready <= self.now);
        let payload = self.payload_for(pending);
        let is_enough = payload as u64 >= pending.bytes.min(max_bytes as u64);
        // A keep-alive must not overdraw the pacer: only a packet that holds the urgent data may.
        let payload = if is_enough { payload } else { self.payload(Priority::default()) };
        (is_ready && payload > 0).then(|| payload.min(max_bytes))
    }

    /// Returns what the path can carry now in one packet, in bytes of its payload.
    #[inline]
    pub(in crate::connection) fn send_budget(&self) -> SendBudget {
        // Data that may overdraw without limit is bounded by the window alone.
        let unlimited = Priority { overdraft: u64::MAX, reserve: 0 };
        SendBudget {
            credit: self.signed_payload(Priority::default()),
            window: self.signed_payload(unlimited),
            bulk: self.bulk(),
        }
    }

    /// Returns up to where transfers may fill a packet, in bytes of its payload.
    pub(in crate::connection) fn bulk(&self) -> usize {
        u64::from(self.path.bulk_packet_bytes()).saturating_sub(self.overhead + SESSION_FRAME_BYTES) as usize
    }

    /// Returns the budget of what goes first, with its priority.
    pub(in crate::connection) fn payload_for(&self, pending: PendingDemand) -> usize {
        self.payload(priority(pending))
    }

    /// Returns when the next packet may leave, if `pending` goes first.
    pub(in crate::connection) fn next_send(&self, pending: PendingDemand) -> Option<Instant> {
        self.path.next_send(pending.bytes.saturating_add(self.overhead + SESSION_FRAME_BYTES), priority(pending))
    }

    /// Returns how many bytes of payload of a given priority may leave now in one packet and those behind it.
    pub(super) fn payload(&self, priority: Priority) -> usize {
        usize::try_from(self.signed_payload(priority)).unwrap_or(0)
    }

    #[inline]
    fn signed_payload(&self, priority: Priority) -> i64 {
        self.path.budget(priority).saturating_sub_unsigned(self.overhead)
    }
}

/// Returns how the pending data may draw on the budget.
const fn priority(PendingDemand { overdraft, reserve, .. }: PendingDemand) -> Priority {
    Priority { overdraft, reserve }
}
