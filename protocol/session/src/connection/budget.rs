//! The budget of a tick.

use super::path::ConnectionPath;
use crate::channel::PIECE_BYTES;
use crate::congestion::Suggestion;
use slipgate_netcode::time::Instant;

/// Bytes of a session frame with a few extended acknowledgements, and of a message's frame with its id and piece
/// numbers.
const FRAMING_BYTES: u64 = 16 + 12;

/// The bytes that may leave in this tick of the application: now, and in later turns up to its next tick, if that comes
/// as long after this one as this one after the newest message. Ask for it before composing the tick, and send less
/// detail instead of later data.
///
/// # Examples
/// ```
/// use slipgate_session::connection::Budget;
///
/// /// Returns how many entities of 12 bytes an update of this tick has room for.
/// fn max_entities(budget: &Budget) -> usize {
///     budget.max_message_bytes() / 12
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Budget {
    /// Bytes of payload that may leave in this tick, of messages that are more urgent than what waits now.
    pub bytes: usize,
    /// The intervals and sizes in which a game should send.
    pub suggestion: Suggestion,
    /// Bytes that a packet costs beside its payload.
    overhead: u64,
    /// The maximum payload of a packet behind its header, in bytes.
    packet_bytes: u64,
}

impl Budget {
    pub(super) fn of(path: &ConnectionPath, overdraft: u64, packet_bytes: usize, now: Instant) -> Self {
        let budget = Self {
            bytes: path.budget_with_overdraft(overdraft, now),
            suggestion: path.suggestion(now),
            overhead: path.overhead(),
            packet_bytes: packet_bytes as u64,
        };
        // The path does not know how small the packets of this traffic are.
        budget.with_payload_up_to(packet_bytes)
    }

    fn with_payload_up_to(self, bytes: usize) -> Self {
        let payload_bytes = self.suggestion.payload_bytes.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        Self { suggestion: Suggestion { payload_bytes, ..self.suggestion }, ..self }
    }

    /// Returns the size in bytes of the largest message that leaves whole in this tick, if nothing else is sent; 0 if
    /// none does. The estimate is low by at most one piece of 128 bytes per packet.
    ///
    /// The channel's [`max_message_bytes`](crate::channel::ChannelConfig::max_message_bytes) may be smaller.
    #[must_use]
    pub fn max_message_bytes(&self) -> usize {
        let contents = |payload: u64| payload.saturating_sub(FRAMING_BYTES);
        let bytes = self.bytes as u64;
        if bytes <= self.packet_bytes {
            // A message that fits into one packet is not sliced.
            return contents(bytes) as usize;
        }
        // A larger message travels in slices of whole pieces, one in each packet.
        let slice = |payload: u64| contents(payload) / PIECE_BYTES as u64 * PIECE_BYTES as u64;
        let (on_path, packet) = (bytes + self.overhead, self.packet_bytes + self.overhead);
        let (packets, rest) = (on_path / packet.max(1), on_path % packet.max(1));
        let last = slice(rest.saturating_sub(self.overhead));
        usize::try_from(packets.saturating_mul(slice(self.packet_bytes)).saturating_add(last)).unwrap_or(usize::MAX)
    }

    /// Returns the budget limited to `bytes` on the path in this tick.
    pub(crate) fn within(self, bytes: u64) -> Self {
        // The share is counted on the path, the budget in payload.
        let bytes = usize::try_from(bytes.saturating_sub(self.overhead)).unwrap_or(usize::MAX).min(self.bytes);
        Self { bytes, ..self }.with_payload_up_to(bytes)
    }
}
