//! The outcomes of sent packets, and the events that the application has not polled yet.

use alloc::collections::VecDeque;
use core::time::Duration;

use super::PacketEvent;
use crate::congestion::{NewlyAcked, SentPacket};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// Receives the outcomes of sent packets.
pub(crate) trait PacketOutcomes {
    /// Handles a packet that was acknowledged for the first time, perhaps after it was lost.
    fn on_acked(&mut self, acked: &NewlyAcked, now: Instant);

    /// Handles a packet that counts as lost.
    fn on_lost(&mut self, packet: SentPacket);
}

/// A [`PacketEvent`] in 8 bytes.
#[derive(Clone, Copy)]
enum StoredEvent {
    Acked { sequence: Sequence, micros: u32 },
    Lost { sequence: Sequence },
}

/// The newest events that the application has not polled yet: one that polls every turn misses none, and one that never
/// polls uses bounded memory.
pub(crate) struct PacketEvents {
    max: usize,
    queue: VecDeque<StoredEvent>,
    dropped: u64,
}

impl PacketEvents {
    /// Creates a queue of at most `max` events.
    pub(crate) const fn new(max: u16) -> Self {
        Self { max: max as usize, queue: VecDeque::new(), dropped: 0 }
    }

    /// Returns the oldest event.
    pub(crate) fn pop(&mut self) -> Option<PacketEvent> {
        self.queue.pop_front().map(|event| match event {
            StoredEvent::Acked { sequence, micros } => {
                PacketEvent::Acked { sequence, rtt: Duration::from_micros(micros.into()) }
            }
            StoredEvent::Lost { sequence } => PacketEvent::Lost { sequence },
        })
    }

    /// Returns how many events were dropped because the application did not poll.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    fn push(&mut self, event: StoredEvent) {
        // Drop the oldest event: the newest say more about the path as it is now.
        if self.queue.len() >= self.max {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
    }
}

impl PacketOutcomes for PacketEvents {
    fn on_acked(&mut self, acked: &NewlyAcked, now: Instant) {
        // 32 bits of microseconds hold more than an hour, and keep an event at 8 bytes.
        let micros = u32::try_from(now.since(acked.packet.sent_at).as_micros()).unwrap_or(u32::MAX);
        self.push(StoredEvent::Acked { sequence: acked.packet.sequence, micros });
    }

    fn on_lost(&mut self, packet: SentPacket) {
        self.push(StoredEvent::Lost { sequence: packet.sequence });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn unpolled_events_keep_the_newest_and_count_the_dropped() {
        let mut events = PacketEvents::new(4);
        let sent_at = Instant::from_start(Duration::from_millis(5));
        let packet = |number| SentPacket { sequence: Sequence(number), sent_at, bytes: 100 };
        (0..6).for_each(|number| events.on_lost(packet(number)));
        let acked = NewlyAcked { packet: packet(0), late: true, newest: false };
        events.on_acked(&acked, Instant::from_start(Duration::from_millis(25)));
        assert_eq!(events.dropped(), 3);
        let polled: Vec<PacketEvent> = core::iter::from_fn(|| events.pop()).collect();
        let lost = [3, 4, 5].map(|number| PacketEvent::Lost { sequence: Sequence(number) });
        assert_eq!(polled[..3], lost);
        let rtt = Duration::from_millis(20);
        assert_eq!(polled[3..], [PacketEvent::Acked { sequence: Sequence(0), rtt }]);
    }
}
