//! What each packet carried, until its fate is known: then the messages hear of it.

use alloc::collections::VecDeque;
use core::ops::Range;

use super::block::Part;
use super::layout::ChannelId;
use super::message_id::MessageId;
use super::receipts::Share;
use crate::wire::reliable::Sequence;

/// The most packets that are remembered; one that is displaced counts as lost.
const MAX_PACKETS: usize = super::MAX_PACKETS as usize;
/// The most loads that are remembered, of all packets together. Packets that are displaced count as lost.
const MAX_LOADS: usize = 8192;
/// Packets that still leave, and loads that one may have, when no more should be under way: probes, and acknowledgements,
/// which have numbers as well.
const RESERVE: usize = MAX_PACKETS / 8;
/// How many packets a late acknowledgement of a lost one is waited for.
const LATE_PACKETS: u16 = 128;

/// Cargo of a packet whose fate matters: consecutive messages, pieces of one, a frame of a block, or some of a message
/// that is sent once and asked for a receipt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Load {
    /// `count` messages, whole or withdrawn, from `first` on.
    Whole { channel: ChannelId, first: MessageId, count: u16 },
    /// `count` pieces of a message, from `first` on.
    Slice { channel: ChannelId, id: MessageId, first: u16, count: u16 },
    /// A frame of a block.
    Block { channel: ChannelId, part: Part },
    /// A message that is not sent again, or pieces of it.
    Once { channel: ChannelId, share: Share },
}

/// What is known of a packet: ever more, and never less.
///
/// ```text
///  Awaited ──▶ Probed ──▶ Lost ──▶ Acked (the acknowledgement was late)
///     └──────────┴──────────┴───────▲
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
enum Known {
    Awaited,
    /// What it carried was offered anew to be on the safe side.
    Probed,
    /// What it carried was offered anew, and what cannot be is lost.
    Lost,
    Acked,
}

#[derive(Clone, Copy)]
struct Departed {
    packet: Sequence,
    /// The number of its first load: of all that were ever noted, wrapping.
    first_load: u32,
    loads: u16,
    known: Known,
}

/// The packets under way, the oldest first, and their loads in the same order. A packet's fate costs a binary search and a
/// step for each of its own loads.
#[derive(Default)]
pub(super) struct Carried {
    packets: VecDeque<Departed>,
    loads: VecDeque<Load>,
    /// The number of the first load that is remembered.
    first_load: u32,
}

impl Carried {
    /// Notes cargo of the packet that is being written, the newest of all.
    pub(super) fn note(&mut self, packet: Sequence, load: Load) {
        if self.packets.back().is_none_or(|newest| newest.packet != packet) {
            let first_load = self.first_load.wrapping_add(self.loads.len() as u32);
            self.packets.push_back(Departed { packet, first_load, loads: 0, known: Known::Awaited });
        }
        let Some(newest) = self.packets.back_mut() else { return };
        if newest.loads > 0 && self.loads.back_mut().is_some_and(|last| last.absorb(load)) {
            return;
        }
        newest.loads += 1;
        self.loads.push_back(load);
    }

    /// Makes place for the loads of another packet: forgets what is settled, and the oldest packets if there are too
    /// many. The loads of those are handed to `lost`.
    pub(super) fn make_place(&mut self, packet: Sequence, mut lost: impl FnMut(Load)) {
        while let Some(oldest) = self.packets.front() {
            let age = packet.distance_from(oldest.packet);
            let crowded = self.packets.len() >= MAX_PACKETS || self.loads.len() >= MAX_LOADS;
            let keep = match oldest.known {
                Known::Acked => false,
                Known::Lost => !crowded && age < LATE_PACKETS,
                Known::Awaited | Known::Probed => !crowded && usize::from(age) < MAX_PACKETS,
            };
            if keep {
                return;
            }
            self.forget_oldest(&mut lost);
        }
    }

    /// Whether the next packet should wait, or what the oldest carried would be offered anew although nobody knows its
    /// fate.
    pub(super) fn is_full(&self, newest: Sequence) -> bool {
        let spans_all = |oldest: &Departed| usize::from(newest.distance_from(oldest.packet)) >= MAX_PACKETS - RESERVE;
        self.packets.front().is_some_and(|oldest| {
            oldest.known == Known::Awaited && (self.loads.len() >= MAX_LOADS - RESERVE || spans_all(oldest))
        })
    }

    /// The packet arrived: its loads, if that is news.
    pub(super) fn acked(&mut self, packet: Sequence) -> impl Iterator<Item = Load> {
        self.settle(packet, Known::Acked)
    }

    /// The packet is lost: its loads, but for those that a probe has offered anew.
    pub(super) fn lost(&mut self, packet: Sequence) -> impl Iterator<Item = Load> {
        self.settle(packet, Known::Lost)
    }

    /// The loads of the oldest packet that is awaited and has any that can leave anew.
    pub(super) fn probe(&mut self) -> impl Iterator<Item = Load> {
        let awaited = |departed: &&Departed| departed.known == Known::Awaited;
        let may_leave_anew =
            |departed: &&Departed| self.loads.range(self.range(departed)).any(|load| load.is_sent_again());
        let oldest = self.packets.iter().filter(awaited).find(may_leave_anew).map(|departed| departed.packet);
        self.settle(oldest, Known::Probed)
    }

    fn settle(&mut self, packet: impl Into<Option<Sequence>>, known: Known) -> impl Iterator<Item = Load> {
        let place = packet.into().and_then(|packet| self.place_of(packet));
        let departed = place.and_then(|place| self.packets.get_mut(place)).filter(|departed| departed.known < known);
        let (mut loads, mut was_probed) = (0..0, false);
        if let Some(departed) = departed {
            was_probed = core::mem::replace(&mut departed.known, known) == Known::Probed && known == Known::Lost;
            let departed = *departed;
            loads = self.range(&departed);
        }
        self.loads.range(loads).copied().filter(move |load| !was_probed || !load.is_sent_again())
    }

    /// Where the loads of a packet are.
    fn range(&self, departed: &Departed) -> Range<usize> {
        let first = departed.first_load.wrapping_sub(self.first_load) as usize;
        let end = (first + usize::from(departed.loads)).min(self.loads.len());
        first.min(end)..end
    }

    fn place_of(&self, packet: Sequence) -> Option<usize> {
        let oldest = self.packets.front()?.packet;
        let distance = packet.distance_from(oldest);
        let place = self.packets.partition_point(|departed| departed.packet.distance_from(oldest) < distance);
        self.packets.get(place).filter(|departed| departed.packet == packet).map(|_| place)
    }

    fn forget_oldest(&mut self, lost: &mut impl FnMut(Load)) {
        let Some(oldest) = self.packets.pop_front() else { return };
        let loads = usize::from(oldest.loads).min(self.loads.len());
        self.first_load = self.first_load.wrapping_add(loads as u32);
        for load in self.loads.drain(..loads) {
            let was_offered = oldest.known == Known::Probed && load.is_sent_again();
            if oldest.known < Known::Lost && !was_offered {
                lost(load);
            }
        }
    }
}

impl Load {
    /// The index of its channel in the layout.
    pub(super) fn channel_index(self) -> usize {
        let (Self::Whole { channel, .. }
        | Self::Slice { channel, .. }
        | Self::Block { channel, .. }
        | Self::Once { channel, .. }) = self;
        channel.0.into()
    }

    const fn is_sent_again(self) -> bool {
        !matches!(self, Self::Once { .. })
    }

    /// Takes in the message behind its last one; answers whether it could.
    fn absorb(&mut self, next: Self) -> bool {
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

    #[test]
    fn each_packets_fate_is_that_of_its_own_loads_in_whatever_order_and_around_every_wrap() {
        let mut carried = Carried { first_load: u32::MAX - 100, ..Carried::default() };
        let (channel, start) = (ChannelId(0), Sequence(65_400));
        // Two apart, so that no load absorbs the next one.
        let loads = |number: u16| {
            let of = |load| Load::Whole { channel, first: MessageId::new(u32::from(number * 16 + load * 2)), count: 1 };
            (0..number % 5).map(of).collect::<Vec<_>>()
        };
        for number in 0..1000 {
            carried.make_place(start.ahead(number), |_| ());
            loads(number).into_iter().for_each(|load| carried.note(start.ahead(number), load));
            // 17 packets are under way, and their acknowledgements come out of order.
            let Some(told) = (number ^ 3).checked_sub(16) else { continue };
            let packet = start.ahead(told);
            let heard = match told % 3 {
                0 => carried.lost(packet).collect::<Vec<_>>(),
                _ => carried.acked(packet).collect(),
            };
            assert_eq!(heard, loads(told), "packet {told} of {number}");
            assert_eq!(carried.acked(packet).count(), if told % 3 == 0 { heard.len() } else { 0 }, "a late word");
        }
        assert!(carried.packets.len() < 200 && carried.loads.len() < 400);
    }

    #[test]
    fn who_has_no_place_for_another_packet_says_so_before_anything_is_taken_for_lost() {
        for (loads_of_each, packets) in [(1_u16, 1793), (20, 397)] {
            let (mut carried, mut packet) = (Carried::default(), Sequence(65_000));
            let count = (0..2000)
                .take_while(|_| {
                    let next = packet.ahead(1);
                    let full = carried.is_full(packet);
                    if !full {
                        carried.make_place(next, |load| panic!("{load:?} is taken for lost"));
                        let load = |at| Load::Whole {
                            channel: ChannelId(0),
                            first: MessageId::new(u32::from(at * 2)),
                            count: 1,
                        };
                        (0..loads_of_each).for_each(|at| carried.note(next, load(at)));
                        packet = next;
                    }
                    !full
                })
                .count();
            assert_eq!(count, packets, "{loads_of_each} loads in each");
            assert!(carried.acked(Sequence(65_001)).count() == usize::from(loads_of_each));
            carried.make_place(packet.ahead(1), |load| panic!("{load:?} is taken for lost"));
            assert!(!carried.is_full(packet), "the oldest is not awaited any more");
        }
    }
}
