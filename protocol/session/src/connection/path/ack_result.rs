//! Which of our packets were acknowledged or lost with the last datagram or tick, and the events of packets that an
//! application polls.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::congestion::SentPacket;
use crate::reliability::PacketEvent;
use crate::wire::reliable::Sequence;

/// The packets of ours that became acked or lost with the last datagram or tick.
#[derive(Default)]
pub(in crate::connection) struct AckResult {
    pub(super) acked: PacketColumns,
    pub(super) lost: PacketColumns,
}

impl AckResult {
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
}

/// Packets with the same outcome, in two columns: the controller takes the second one as a slice.
#[derive(Default)]
pub(super) struct PacketColumns {
    sequences: Vec<Sequence>,
    pub(super) packets: Vec<SentPacket>,
}

impl PacketColumns {
    #[inline]
    pub(super) fn clear(&mut self) {
        self.sequences.clear();
        self.packets.clear();
    }

    #[inline]
    pub(super) fn push(&mut self, sequence: Sequence, packet: SentPacket) {
        self.sequences.push(sequence);
        self.packets.push(packet);
    }

    #[inline]
    pub(super) fn append(&mut self, other: &mut Self) {
        // Both columns keep their capacity, so no tick allocates after warm-up.
        self.sequences.append(&mut other.sequences);
        self.packets.append(&mut other.packets);
    }
}

/// Events that the application has not polled yet: at most as many as the window of sent packets holds.
pub(super) struct PacketEvents {
    capacity: usize,
    queue: VecDeque<PacketEvent>,
    dropped: u64,
}

impl PacketEvents {
    pub(super) const fn new(capacity: usize) -> Self {
        Self { capacity, queue: VecDeque::new(), dropped: 0 }
    }

    pub(super) fn push(&mut self, event: PacketEvent) {
        // An application that never polls must not make memory grow: the oldest event is dropped and counted.
        if self.queue.len() >= self.capacity {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }

    pub(super) fn pop(&mut self) -> Option<PacketEvent> {
        self.queue.pop_front()
    }

    /// Returns how many events were dropped since the start.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }
}
