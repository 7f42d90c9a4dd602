//! Which packets were sent, and which of them were acknowledged or lost (§2.4).

use alloc::collections::VecDeque;
use core::time::Duration;

use super::sequence_bits::SequenceBits;
use super::{PacketEvent, constants};
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;

/// Time since sending within which a lost packet may still be acknowledged: four times the longest round trip that
/// the article measures.
const LATE_ACK_LIMIT: Duration = constants::MAX_RTT.saturating_mul(4);

/// The largest window that an endpoint may have: a peer acknowledges no packet further behind the newest that it
/// received.
const MAX_PEER_WINDOW: u64 = 1 << 14;

/// Packets this far apart have the same sequence number.
const SEQUENCE_SPACE: u64 = 1 << 16;

/// The record of one sent packet.
#[derive(Clone, Copy)]
struct SentRecord {
    sent_at: Instant,
    bytes: u32,
    state: AckState,
}

/// ```text
///  Unacked ──▶ Acked        AckOnly ──▶ Acked        Skipped
///     │          ▲
///     └──▶ Lost ─┘ (its acknowledgement was late)
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
enum AckState {
    /// In flight: no acknowledgement, not declared lost.
    Unacked,
    /// An ack-only packet. The peer does not acknowledge it, so it is never declared lost.
    AckOnly,
    /// No packet has this number.
    Skipped,
    Acked,
    Lost,
}

impl SentRecord {
    /// Returns whether an acknowledgement of this packet would change nothing.
    fn is_resolved(&self, now: Instant) -> bool {
        match self.state {
            AckState::Unacked => false,
            AckState::Lost => now.reached(self.sent_at, LATE_ACK_LIMIT),
            AckState::AckOnly | AckState::Skipped | AckState::Acked => true,
        }
    }
}

/// Whether the peer acknowledges a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SessionPacketKind {
    AckEliciting,
    AckOnly,
}

/// The order in which packets with acknowledgements were sent, compared with the order of their arrival.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ArrivalOrder {
    /// Sent after all that arrived before it, so its acknowledgements are at least as new as theirs.
    Newest,
    /// Sent before one that arrived earlier, so its acknowledgements may be outdated.
    Overtaken,
}

/// The result of one acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AckOutcome {
    NewlyAcked(AckedPacket),
    /// Acknowledged before, ack-only, or no longer remembered.
    AlreadyKnown,
    /// The packet was never sent.
    NeverSent,
    /// The number was skipped, so that only a peer that lies acknowledges it.
    Skipped,
}

/// A packet that was acknowledged for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AckedPacket {
    pub(super) bytes: u32,
    /// The time from sending to this acknowledgement.
    pub(super) age: Duration,
    /// It had been declared lost.
    pub(super) late: bool,
}

/// A [`PacketEvent`] in 8 bytes.
#[derive(Clone, Copy)]
enum StoredEvent {
    Acked { sequence: Sequence, micros: u32 },
    Lost { sequence: Sequence },
}

/// The window of sent packets, and the events that the application did not poll yet.
pub(super) struct SendWindow {
    /// Packets sent in all. Numbers start at 0, so this is the number of the next packet, without the wrap.
    total: u64,
    /// The oldest unacknowledged packet in the same count, or `total`.
    oldest: u64,
    /// The peer acknowledges no packet before this one any more: it received one at least [`MAX_PEER_WINDOW`] newer.
    oldest_reportable: u64,
    /// One more than the newest packet that the peer is known to have received.
    peer_received_end: u64,
    /// One more than the newest number that was acknowledged in any order while it meant one packet.
    acked_end: u64,
    /// The skipped numbers of the last `size`, if any are skipped.
    skipped: Option<SequenceBits>,
    /// The last packets, newest last, at most `size`. It grows with the packets in flight.
    packets: VecDeque<SentRecord>,
    size: u16,
    /// The newest events, at most `size`: an application that polls every turn misses none, and one that never polls
    /// uses bounded memory.
    events: VecDeque<StoredEvent>,
    dropped_events: u64,
}

impl SendWindow {
    pub(super) const fn new(size: u16) -> Self {
        Self {
            total: 0,
            oldest: 0,
            oldest_reportable: 0,
            peer_received_end: 0,
            acked_end: 0,
            skipped: None,
            packets: VecDeque::new(),
            size,
            events: VecDeque::new(),
            dropped_events: 0,
        }
    }

    /// Returns one more than the newest packet that the peer is known to have received, without the wrap.
    pub(super) const fn peer_received_end(&self) -> u64 {
        self.peer_received_end
    }

    /// Returns the number of the next packet.
    pub(super) const fn next(&self) -> Sequence {
        Sequence(self.total as u16)
    }

    /// Records the next packet. Returns whether the window was full of unacknowledged packets, so that the oldest
    /// counts as lost.
    pub(super) fn on_packet_sent(&mut self, kind: SessionPacketKind, bytes: u32, now: Instant) -> bool {
        let state = if kind == SessionPacketKind::AckEliciting { AckState::Unacked } else { AckState::AckOnly };
        // Without room for another number the oldest would be confused with the newest.
        let displaced = self.total - self.oldest == self.size.into();
        if displaced {
            self.declare_oldest_lost();
        }
        self.drop_resolved(now);
        if let Some(skipped) = &mut self.skipped {
            skipped.clear(Sequence(self.total as u16), 1);
        }
        self.packets.push_back(SentRecord { sent_at: now, bytes, state });
        self.total += 1;
        // An ack-only packet is never waited for: `oldest` must step over it at once.
        self.skip_resolved();
        displaced
    }

    /// Skips the next number, unless that would displace a packet: an acknowledgement of it is a lie.
    pub(super) fn skip(&mut self, now: Instant) {
        if self.total - self.oldest == self.size.into() {
            return;
        }
        self.drop_resolved(now);
        // A record of its own would be forgotten as soon as all older packets are acknowledged. The bit stays.
        self.skipped.get_or_insert_with(|| SequenceBits::new(self.size)).set(Sequence(self.total as u16));
        self.packets.push_back(SentRecord { sent_at: now, bytes: 0, state: AckState::Skipped });
        self.total += 1;
        self.skip_resolved();
    }

    /// Processes the acknowledgement of one packet.
    pub(super) fn on_ack(&mut self, sequence: Sequence, arrival_order: ArrivalOrder, now: Instant) -> AckOutcome {
        let Some(number) = self.resolve_number(sequence, arrival_order) else { return AckOutcome::NeverSent };
        if self.was_skipped(sequence, number) {
            return AckOutcome::Skipped;
        }
        // Only the newest header proves how far the peer is: an overtaken one may be arbitrarily old.
        if arrival_order == ArrivalOrder::Newest {
            self.on_peer_received(number);
        }
        let Some(record) = self.record_mut(number) else { return AckOutcome::AlreadyKnown };
        let SentRecord { sent_at, bytes, state } = *record;
        if state == AckState::Acked {
            return AckOutcome::AlreadyKnown;
        }
        record.state = AckState::Acked;
        self.skip_resolved();
        if matches!(state, AckState::AckOnly | AckState::Skipped) {
            return AckOutcome::AlreadyKnown;
        }
        if !self.may_mean_older() {
            self.acked_end = self.acked_end.max(number + 1);
        }
        let age = now.since(sent_at);
        // 32 bits of microseconds hold more than an hour, and keep an event at 8 bytes.
        let micros = u32::try_from(age.as_micros()).unwrap_or(u32::MAX);
        self.push_event(StoredEvent::Acked { sequence, micros });
        AckOutcome::NewlyAcked(AckedPacket { bytes, age, late: state == AckState::Lost })
    }

    /// Returns the newest packet with this sequence number, or `None` if no honest peer can name it.
    ///
    /// A peer that received nothing for 32,768 packets or more still names the last one that it has. That number
    /// looks like one ahead of all sent packets, and must not count as an error.
    fn resolve_number(&self, sequence: Sequence, arrival_order: ArrivalOrder) -> Option<u64> {
        // Count back from the next number: the newest number with these 16 bits.
        let ahead = u64::from(sequence - self.next());
        let number = self.total.checked_sub(SEQUENCE_SPACE - ahead)?;
        (arrival_order == ArrivalOrder::Overtaken || number >= self.oldest_reportable).then_some(number)
    }

    /// Returns whether a number was skipped, and no older packet with the same 16 bits can be meant.
    fn was_skipped(&self, sequence: Sequence, number: u64) -> bool {
        let is_remembered = self.total - number <= self.size.into();
        let is_skipped = || self.skipped.as_ref().is_some_and(|skipped| skipped.get(sequence));
        is_remembered && !self.may_mean_older() && is_skipped()
    }

    /// Returns whether the peer has acknowledged nothing for so long that it may mean a packet with the same number a
    /// whole number space ago.
    ///
    /// Unlike [`is_ambiguous`](Self::is_ambiguous), acknowledgements in overtaken packets count: a peer that sends only
    /// such packets would make its lies count as ambiguous.
    fn may_mean_older(&self) -> bool {
        let oldest = self.oldest_reportable.max(self.acked_end.saturating_sub(MAX_PEER_WINDOW));
        self.total - oldest > SEQUENCE_SPACE
    }

    /// Returns whether the peer has received nothing for so long that a sequence number may mean two packets.
    fn is_ambiguous(&self) -> bool {
        self.total - self.oldest_reportable > SEQUENCE_SPACE
    }

    /// Records that the peer received a packet, unless its number is ambiguous.
    fn on_peer_received(&mut self, number: u64) {
        // Beyond a full number space two packets share the number, and the older may be meant.
        if !self.is_ambiguous() {
            self.oldest_reportable = self.oldest_reportable.max(number.saturating_sub(MAX_PEER_WINDOW));
            self.peer_received_end = self.peer_received_end.max(number + 1);
        }
    }

    /// Declares the oldest packet lost if it has been unacknowledged for `deadline`. Returns whether it did; call it
    /// until it returns false.
    ///
    /// Packets are sent in the order of their numbers, so none is overdue before the oldest is.
    pub(super) fn declare_overdue_lost(&mut self, deadline: Duration, now: Instant) -> bool {
        let overdue = self.oldest_unacked_sent_at().is_some_and(|since| now.reached(since, deadline));
        if overdue {
            self.declare_oldest_lost();
        }
        overdue
    }

    /// Returns when the oldest unacknowledged packet was sent.
    pub(super) fn oldest_unacked_sent_at(&self) -> Option<Instant> {
        self.oldest_unacked().map(|record| record.sent_at)
    }

    /// Returns the oldest event that was not polled yet.
    pub(super) fn poll(&mut self) -> Option<PacketEvent> {
        self.events.pop_front().map(|event| match event {
            StoredEvent::Acked { sequence, micros } => {
                PacketEvent::Acked { sequence, rtt: Duration::from_micros(micros.into()) }
            }
            StoredEvent::Lost { sequence } => PacketEvent::Lost { sequence },
        })
    }

    /// Returns how many events were dropped because the application did not poll.
    pub(super) const fn dropped_events(&self) -> u64 {
        self.dropped_events
    }

    pub(super) fn reset(&mut self) {
        *self = Self::new(self.size);
    }

    /// Makes room for one more packet, and drops the oldest records that no acknowledgement can change.
    fn drop_resolved(&mut self, now: Instant) {
        // A steady stream with a round trip of 100 ms then remembers a tenth of a second of packets, not a window.
        let full = usize::from(self.size);
        while self.packets.front().is_some_and(|oldest| self.packets.len() >= full || oldest.is_resolved(now)) {
            self.packets.pop_front();
        }
    }

    /// Declares the oldest unacknowledged packet lost.
    fn declare_oldest_lost(&mut self) {
        let number = self.oldest;
        if let Some(record) = self.record_mut(number) {
            record.state = AckState::Lost;
        }
        self.push_event(StoredEvent::Lost { sequence: Sequence(number as u16) });
        self.skip_resolved();
    }

    /// Advances to the oldest unacknowledged packet. Each number is passed once, so the cost per packet is constant.
    fn skip_resolved(&mut self) {
        while self.oldest_unacked().is_some_and(|record| record.state != AckState::Unacked) {
            self.oldest += 1;
        }
    }

    fn oldest_unacked(&self) -> Option<&SentRecord> {
        self.packets.get(self.index(self.oldest)?)
    }

    fn record_mut(&mut self, number: u64) -> Option<&mut SentRecord> {
        let index = self.index(number)?;
        self.packets.get_mut(index)
    }

    /// Returns the index of a packet, or `None` if it is dropped or not sent yet.
    fn index(&self, number: u64) -> Option<usize> {
        // The deque ends with the newest packet, so index from its end.
        let behind_newest = usize::try_from(self.total.checked_sub(number)?).ok()?;
        self.packets.len().checked_sub(behind_newest)
    }

    fn push_event(&mut self, event: StoredEvent) {
        // Drop the oldest event: the newest say more about the path as it is now.
        if self.events.len() >= self.size.into() {
            self.events.pop_front();
            self.dropped_events += 1;
        }
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests;
