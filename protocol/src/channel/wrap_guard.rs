//! Holds ids back whose predecessors of half a turn ago could still arrive and be mistaken for new ones.

use core::time::Duration;

use super::message_id::MessageId;
use crate::time::Instant;

/// How many packets newer than itself a packet may arrive after: the receiver's window, in packets.
const STALE_AFTER_PACKETS: u64 = super::MAX_PACKETS as u64;
/// Nor does it arrive after so long.
const STALE_AFTER: Duration = Duration::from_secs(10);
/// Ids that each packet brings. With as many as can be saved, 16,384 take at least 1,024 packets.
const IDS_PER_PACKET: u64 = 12;
/// Ids that may be saved.
const MOST_SAVINGS: u64 = 4096;

/// The number of a packet, counted without the wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct PacketNumber(pub(super) u64);

/// For each quarter of the ids, when one of them left last.
///
/// A receiver takes an id for new when it is less than 32768 ahead of what it expects. So when ids of one quarter begin
/// to be used, no packet with ids of the quarter before the last may be on its way any more: 16,384 ids must have taken
/// 1,024 packets. Lest a channel of many small messages come to that point and wait there for seconds, each packet may
/// spend a few ids only, and some more that were saved: the rest leaves in the next packet of the same tick.
#[derive(Clone, Copy)]
pub(super) struct WrapGuard {
    last_use: [Option<(PacketNumber, Instant)>; 4],
    /// Ids that may be spent, and up to which packet that is counted.
    savings: u64,
    counted: PacketNumber,
}

impl Default for WrapGuard {
    fn default() -> Self {
        Self { last_use: [None; 4], savings: MOST_SAVINGS, counted: PacketNumber(0) }
    }
}

impl WrapGuard {
    /// A new message spends an id.
    pub(super) fn spend(&mut self) {
        self.savings = self.savings.saturating_sub(1);
    }

    /// A message with this id leaves.
    pub(super) fn note(&mut self, id: MessageId, packet: PacketNumber, now: Instant) {
        if let Some(last_use) = self.last_use.get_mut(id.span()) {
            *last_use = Some((packet, now));
        }
    }

    /// Whether a message may leave under this new id.
    pub(super) fn allows(&mut self, id: MessageId, packet: PacketNumber, now: Instant) -> bool {
        let brought = IDS_PER_PACKET.saturating_mul(packet.0.saturating_sub(self.counted.0));
        self.savings = self.savings.saturating_add(brought).min(MOST_SAVINGS);
        self.counted = self.counted.max(packet);
        self.savings > 0 && self.is_unambiguous(id, packet, now)
    }

    fn is_unambiguous(&self, id: MessageId, packet: PacketNumber, now: Instant) -> bool {
        let span_before_last = (id.span() + 2) % self.last_use.len();
        if !id.begins_span() {
            return true;
        }
        let last_use = self.last_use.get(span_before_last).copied().flatten();
        last_use.is_none_or(|(number, at)| {
            packet.0.saturating_sub(number.0) >= STALE_AFTER_PACKETS || now.reached(at, STALE_AFTER)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_ids_waits_until_what_left_half_a_turn_before_is_stale() {
        let mut guard = WrapGuard::default();
        let at = |millis| Instant::from_start(Duration::from_millis(millis));
        assert!(guard.allows(MessageId(0), PacketNumber(0), at(0)));
        guard.note(MessageId(0), PacketNumber(5), at(100));
        guard.note(MessageId(16_384), PacketNumber(500), at(100));
        for (id, packet, millis, allowed) in [
            (16_384, 6, 100, true),
            (32_767, 6, 100, true),
            (32_768, 1028, 10_099, false),
            (32_768, 1029, 100, true),
            (32_768, 6, 10_100, true),
            (32_769, 6, 100, true),
            (49_152, 1029, 100, false),
            (49_152, 1524, 100, true),
        ] {
            assert_eq!(guard.allows(MessageId(id), PacketNumber(packet), at(millis)), allowed, "{id} in {packet}");
        }
    }

    #[test]
    fn a_channel_of_many_small_messages_never_comes_to_where_it_would_wait() {
        let mut guard = WrapGuard::default();
        let (mut id, now) = (MessageId(0), Instant::default());
        let mut least = usize::MAX;
        for packet in 0..50_000 {
            let packet = PacketNumber(packet);
            let mut spent = 0;
            while spent < 40 && guard.allows(id, packet, now) {
                guard.spend();
                guard.note(id, packet, now);
                (id, spent) = (id.ahead(1), spent + 1);
            }
            least = least.min(spent);
        }
        assert_eq!(least as u64, IDS_PER_PACKET);
    }
}
