//! The frames of each packet in flight, until the packet is acked or lost.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::channel::chunks::{ChunkPool, RETENTION};
use crate::channel::config::ChannelId;
use crate::channel::send::receipts::ReceiptPart;
use crate::channel::transfer::SentTransferFrame;
use crate::channel::wire::message_id::MessageId;
use crate::wire::reliable::Sequence;
use slipgate_netcode::time::Instant;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The maximum number of packets that are remembered. A displaced packet counts as lost.
const MAX_PACKETS: usize = crate::channel::MAX_PACKETS as usize;
/// The maximum number of frames that are remembered, of all packets together. Displaced packets count as lost.
const MAX_FRAMES: usize = 8192;
/// Frames that each connection may have in flight outside the shared budget: 16 KiB. Their list doubles, so this is a
/// power of two.
const FREE_FRAMES: usize = 1024;
/// The maximum number of frames of a packet: a message without content takes three bytes.
const PACKET_FRAMES: usize = MAX_PAYLOAD_BYTES / 3;
/// Packets, and frames, that may still leave when no more data should be in flight: PTO probes and acknowledgements,
/// which consume sequence numbers as well.
const RESERVE: usize = MAX_PACKETS / 8;
/// The number of further packets for which a late acknowledgement of a lost packet is recognized.
const LATE_PACKETS: u16 = 128;

/// A frame of which the acknowledgement or loss matters: consecutive messages, pieces of one, a frame of a transfer, or
/// a part of a message that is sent once and has a receipt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentFrame {
    /// `count` messages, whole or withdrawn, from `first` on.
    Whole { channel: ChannelId, first: MessageId, count: u16 },
    /// `count` pieces of a message, from `first` on.
    Slice { channel: ChannelId, id: MessageId, first: u16, count: u16 },
    /// A frame of a transfer.
    Transfer { channel: ChannelId, sent: SentTransferFrame },
    /// A message that is not sent again, or pieces of it.
    Once { channel: ChannelId, part: ReceiptPart },
}

/// A frame of a packet that is displaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Displaced {
    /// The packet counts as lost.
    Lost(SentFrame),
    /// The packet was lost before. Its acknowledgement will not be recognized any more.
    Forgotten(SentFrame),
}

/// The state of a packet in flight. It only advances.
///
/// ```text
///  Awaited ──▶ Probed ──▶ Lost ──▶ Acked (late acknowledgement)
///     └──────────┴──────────┴───────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum InFlightState {
    Awaited,
    /// Its frames were queued again by a PTO (RFC 9002 §6.2), and it is not lost.
    Probed,
    /// Its frames were queued again, and those that are sent once are lost.
    Lost,
    Acked,
}

#[derive(Clone, Copy)]
struct PacketFrames {
    packet: Sequence,
    /// The number of its first frame among all that were ever pushed, wrapping.
    first_frame: u32,
    count: u16,
    state: InFlightState,
    /// Whether it has a frame that can be sent again.
    can_repeat: bool,
}

/// The packets in flight, oldest first, and their frames in the same order. Handling an acknowledgement or loss costs a
/// binary search and one step for each of its frames.
pub(crate) struct FramesInFlight {
    packets: VecDeque<PacketFrames>,
    frames: VecDeque<SentFrame>,
    /// The frames that the memory allows: those that are free, and those charged to the shared budget.
    allowed_frames: usize,
    /// From how many frames on the next packet should wait, unless more may be allowed.
    full_at: usize,
    /// When the list was long last, as far as is known.
    last_use: Instant,
    /// The number of the first frame that is remembered.
    first_frame: u32,
    /// Packets that are awaited and have a frame that can be sent again.
    repeatable: u16,
}

impl FramesInFlight {
    pub(crate) fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            frames: VecDeque::new(),
            allowed_frames: FREE_FRAMES,
            full_at: usize::MAX,
            last_use: Instant::default(),
            first_frame: 0,
            repeatable: 0,
        }
    }

    /// Adds a frame of the packet that is being written, which is the newest.
    pub(crate) fn push(&mut self, packet: Sequence, frame: SentFrame) {
        if self.packets.back().is_none_or(|newest| newest.packet != packet) {
            let first_frame = self.first_frame.wrapping_add(self.frames.len() as u32);
            self.packets.push_back(PacketFrames {
                packet,
                first_frame,
                count: 0,
                state: InFlightState::Awaited,
                can_repeat: false,
            });
        }
        let Some(newest) = self.packets.back_mut() else { return };
        if frame.is_repeated() && !newest.can_repeat {
            newest.can_repeat = true;
            self.repeatable += 1;
        }
        // Small messages in sequence take one entry for the whole packet.
        if newest.count > 0 && self.frames.back_mut().is_some_and(|last| last.try_merge(frame)) {
            return;
        }
        newest.count += 1;
        self.frames.push_back(frame);
    }

    /// Makes room for the frames of another packet: forgets acked and lost packets, and the oldest packets if
    /// there are too many. Passes the frames of packets that were not acked to `displaced`. A longer list takes its
    /// memory from the shared budget of `pool`.
    pub(crate) fn make_room(&mut self, packet: Sequence, pool: &mut ChunkPool, mut displaced: impl FnMut(Displaced)) {
        // In time for the packet behind this one, so that `is_full` holds it back if there is no memory.
        if self.frames.len() + 2 * PACKET_FRAMES > self.allowed_frames {
            self.allow_more(pool);
        }
        while let Some(oldest) = self.packets.front() {
            let max_age = match oldest.state {
                InFlightState::Acked => 0,
                // Kept for a while, so that a late acknowledgement stops the retransmission.
                InFlightState::Lost => LATE_PACKETS,
                InFlightState::Awaited | InFlightState::Probed => MAX_PACKETS as u16,
            };
            // Probes and acknowledgements may be sent even when `is_full`: the oldest packets make room.
            if packet - oldest.packet < max_age
                && self.packets.len() < MAX_PACKETS
                && self.frames.len() + PACKET_FRAMES <= self.allowed_frames
            {
                return;
            }
            self.forget_oldest(&mut displaced);
        }
    }

    /// Returns whether the next packet should wait: otherwise the oldest packet would be displaced while it is awaited.
    pub(crate) fn is_full(&self, newest: Sequence) -> bool {
        let spans_all = |oldest: &PacketFrames| usize::from(newest - oldest.packet) >= MAX_PACKETS - RESERVE;
        self.packets.front().is_some_and(|oldest| {
            // A probed packet may be displaced: its frames were queued again already.
            oldest.state == InFlightState::Awaited && (self.frames.len() >= self.full_at || spans_all(oldest))
        })
    }

    /// Frees the memory of a long list if it was short for [`RETENTION`].
    pub(crate) fn tick(&mut self, now: Instant, pool: &mut ChunkPool) {
        if self.allowed_frames > FREE_FRAMES {
            self.shrink_unused(now, pool);
        }
    }

    #[cold]
    fn shrink_unused(&mut self, now: Instant, pool: &mut ChunkPool) {
        if self.frames.len() > FREE_FRAMES / 8 {
            self.last_use = now;
        } else if now.reached(self.last_use, RETENTION) {
            self.frames.shrink_to(FREE_FRAMES);
            pool.give_back_frames();
            (self.allowed_frames, self.full_at) = (FREE_FRAMES, usize::MAX);
        }
    }

    /// Doubles the frames that are allowed, up to the maximum, if the shared budget has the memory.
    #[cold]
    fn allow_more(&mut self, pool: &mut ChunkPool) {
        let more = self.allowed_frames.min(MAX_FRAMES - self.allowed_frames);
        let fits = more > 0 && pool.take_for_frames(more * size_of::<SentFrame>());
        self.allowed_frames += if fits { more } else { 0 };
        let can_grow = fits && self.allowed_frames < MAX_FRAMES;
        self.full_at = if can_grow { usize::MAX } else { self.allowed_frames - PACKET_FRAMES - RESERVE };
    }

    /// Marks a packet as acked. Returns its frames, unless it was acked before.
    pub(crate) fn on_acked(&mut self, packet: Sequence) -> impl Iterator<Item = SentFrame> {
        self.advance_state(packet, InFlightState::Acked)
    }

    /// Marks a packet as lost. Returns its frames, without those that a PTO has queued again.
    pub(crate) fn on_lost(&mut self, packet: Sequence) -> impl Iterator<Item = SentFrame> {
        self.advance_state(packet, InFlightState::Lost)
    }

    /// Returns whether [`on_pto`](Self::on_pto) would return any frames.
    pub(crate) const fn has_probe(&self) -> bool {
        self.repeatable > 0
    }

    /// Returns the frames of the oldest packet that is awaited and has a frame that can be sent again.
    pub(crate) fn on_pto(&mut self) -> impl Iterator<Item = SentFrame> {
        let is_probe = |packet: &&PacketFrames| packet.state == InFlightState::Awaited && packet.can_repeat;
        let oldest = self.packets.iter().find(is_probe).map(|packet| packet.packet);
        self.advance_state(oldest, InFlightState::Probed)
    }

    fn advance_state(
        &mut self,
        packet: impl Into<Option<Sequence>>,
        state: InFlightState,
    ) -> impl Iterator<Item = SentFrame> {
        let index = packet.into().and_then(|packet| self.index_of(packet));
        // A state never moves back: duplicates of acknowledgements have no effect.
        let entry = index.and_then(|index| self.packets.get_mut(index)).filter(|entry| entry.state < state);
        let (mut frames, mut was_probed) = (0..0, false);
        if let Some(entry) = entry {
            let before = core::mem::replace(&mut entry.state, state);
            // A PTO has queued the repeated frames already: only the others are lost now.
            was_probed = before == InFlightState::Probed && state == InFlightState::Lost;
            let entry = *entry;
            self.repeatable -= u16::from(before == InFlightState::Awaited && entry.can_repeat);
            frames = self.range(&entry);
        }
        self.frames.range(frames).copied().filter(move |frame| !was_probed || !frame.is_repeated())
    }

    /// Returns the range of a packet's frames.
    fn range(&self, packet: &PacketFrames) -> Range<usize> {
        let first = packet.first_frame.wrapping_sub(self.first_frame) as usize;
        let end = (first + usize::from(packet.count)).min(self.frames.len());
        first.min(end)..end
    }

    fn index_of(&self, packet: Sequence) -> Option<usize> {
        let oldest = self.packets.front()?.packet;
        // Sequence numbers wrap, distances from the oldest packet do not.
        let distance = packet - oldest;
        let index = self.packets.partition_point(|entry| entry.packet - oldest < distance);
        self.packets.get(index).filter(|entry| entry.packet == packet).map(|_| index)
    }

    fn forget_oldest(&mut self, displaced: &mut impl FnMut(Displaced)) {
        let Some(oldest) = self.packets.pop_front() else { return };
        let count = usize::from(oldest.count).min(self.frames.len());
        self.first_frame = self.first_frame.wrapping_add(count as u32);
        self.repeatable -= u16::from(oldest.state == InFlightState::Awaited && oldest.can_repeat);
        for frame in (0..count).map_while(|_| self.frames.pop_front()) {
            let was_repeated = oldest.state == InFlightState::Probed && frame.is_repeated();
            if oldest.state < InFlightState::Lost && !was_repeated {
                displaced(Displaced::Lost(frame));
            }
            if oldest.state < InFlightState::Acked {
                displaced(Displaced::Forgotten(frame));
            }
        }
    }
}

impl SentFrame {
    pub(crate) const fn channel(self) -> ChannelId {
        let (Self::Whole { channel, .. }
        | Self::Slice { channel, .. }
        | Self::Transfer { channel, .. }
        | Self::Once { channel, .. }) = self;
        channel
    }

    /// Returns whether the content is sent again when the packet is lost.
    const fn is_repeated(self) -> bool {
        !matches!(self, Self::Once { .. })
    }

    /// Merges the message behind the last one of this frame into it. Returns whether that was possible.
    fn try_merge(&mut self, next: Self) -> bool {
        match (self, next) {
            (Self::Whole { channel, first, count }, Self::Whole { channel: its_channel, first: id, count: 1 })
                if *channel == its_channel && first.ahead((*count).into()) == id =>
            {
                *count += 1;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::reliability::MemoryBudget;

    #[test]
    fn ack_or_loss_returns_the_packets_own_frames_across_wraps() {
        let mut in_flight = FramesInFlight { first_frame: u32::MAX - 100, ..FramesInFlight::new() };
        let (channel, start, mut pool) = (ChannelId(0), Sequence(65_400), ChunkPool::new(None));
        // Ids two apart, so that frames are not merged.
        let frames = |number: u16| {
            let frame = |index| SentFrame::Whole {
                channel,
                first: MessageId::new(u32::from(number * 16 + index * 2)),
                count: 1,
            };
            (0..number % 5).map(frame).collect::<Vec<_>>()
        };
        for number in 0..1000 {
            in_flight.make_room(start + number, &mut pool, |_| ());
            frames(number).into_iter().for_each(|frame| in_flight.push(start + number, frame));
            // 17 packets are in flight, and their acknowledgements come out of order.
            let Some(reported) = (number ^ 3).checked_sub(16) else { continue };
            let packet = start + reported;
            let returned = match reported % 3 {
                0 => in_flight.on_lost(packet).collect::<Vec<_>>(),
                _ => in_flight.on_acked(packet).collect(),
            };
            assert_eq!(returned, frames(reported), "packet {reported} of {number}");
            let late = if reported % 3 == 0 { returned.len() } else { 0 };
            assert_eq!(in_flight.on_acked(packet).count(), late, "a late acknowledgement");
        }
        assert!(in_flight.packets.len() < 200 && in_flight.frames.len() < 400);
    }

    /// Sends packets of 20 frames until the window is full. Returns how many frames are in flight then.
    fn fill(in_flight: &mut FramesInFlight, packet: &mut Sequence, pool: &mut ChunkPool) -> usize {
        for _ in 0..MAX_FRAMES {
            if in_flight.is_full(*packet) {
                break;
            }
            *packet = *packet + 1;
            in_flight.make_room(*packet, pool, |frame| panic!("{frame:?} is displaced"));
            for index in 0..20 {
                let first = MessageId::new(index * 2);
                in_flight.push(*packet, SentFrame::Whole { channel: ChannelId(0), first, count: 1 });
            }
        }
        in_flight.frames.len()
    }

    #[test]
    fn frames_beyond_the_first_ones_take_shared_memory() {
        let at = |seconds| Instant::from_start(core::time::Duration::from_secs(seconds));
        for (budget, allowed) in [(0, 1024), (1 << 14, 2048), (1 << 15, 2048), (1 << 16, 4096), (1 << 20, MAX_FRAMES)] {
            let memory = MemoryBudget::new(budget);
            let (mut in_flight, mut packet, mut pool) =
                (FramesInFlight::new(), Sequence(65_000), ChunkPool::new(Some(memory.clone())));
            let most = fill(&mut in_flight, &mut packet, &mut pool);
            assert!((allowed - PACKET_FRAMES - RESERVE..=allowed).contains(&most), "{most} frames with {budget} bytes");
            let held = in_flight.frames.capacity() * size_of::<SentFrame>();
            assert!(held <= budget - memory.left() + FREE_FRAMES * size_of::<SentFrame>(), "{held} bytes");
            // The first half is acked: the next packets need no more memory than there is.
            for number in 1..most as u16 / 40 {
                assert_eq!(in_flight.on_acked(Sequence(65_000) + number).count(), 20);
            }
            assert_eq!(fill(&mut in_flight, &mut packet, &mut pool) / 1000, most / 1000);
            // All is acked: the memory is given back after a time.
            for number in 1..=packet - Sequence(65_000) {
                _ = in_flight.on_acked(Sequence(65_000) + number).count();
            }
            in_flight.make_room(packet + 1, &mut pool, |frame| panic!("{frame:?} is displaced"));
            in_flight.tick(at(9), &mut pool);
            assert_eq!(in_flight.allowed_frames, allowed);
            in_flight.tick(at(10), &mut pool);
            assert_eq!((in_flight.allowed_frames, memory.left()), (FREE_FRAMES, budget));
            assert!(in_flight.frames.capacity() <= FREE_FRAMES);
        }
    }

    #[test]
    fn full_is_reported_before_a_packet_is_displaced() {
        for (frames_each, packets) in [(1_u16, 1793), (20, 377)] {
            let (mut in_flight, mut packet, mut pool) = (FramesInFlight::new(), Sequence(65_000), ChunkPool::new(None));
            let count = (0..2000)
                .take_while(|_| {
                    let next = packet + 1;
                    let full = in_flight.is_full(packet);
                    if !full {
                        in_flight.make_room(next, &mut pool, |frame| panic!("{frame:?} is displaced"));
                        let frame = |index| SentFrame::Whole {
                            channel: ChannelId(0),
                            first: MessageId::new(u32::from(index * 2)),
                            count: 1,
                        };
                        (0..frames_each).for_each(|index| in_flight.push(next, frame(index)));
                        packet = next;
                    }
                    !full
                })
                .count();
            assert_eq!(count, packets, "{frames_each} frames in each");
            assert!(in_flight.on_acked(Sequence(65_001)).count() == usize::from(frames_each));
            in_flight.make_room(packet + 1, &mut pool, |frame| panic!("{frame:?} is displaced"));
            assert!(!in_flight.is_full(packet), "the oldest is not awaited any more");
        }
    }
}
