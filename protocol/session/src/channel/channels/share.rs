//! How the classes of channels share what the path would carry now: see `precedence` for the reason.

use super::Channels;
use crate::channel::block_lane::BlockLane;
use crate::channel::layout::{ChannelId, Kind};
use crate::channel::outgoing::Outgoing;
use crate::channel::precedence::{Means, PACKET_BYTES, Wish};
use crate::channel::schedule::priority_of;
use slipgate_netcode::time::Instant;

/// What a slice costs in a packet beside its bytes, at most: channel, length, and its own header of 7.
const SLICE_FRAME_BYTES: usize = 12;

/// How much of a packet that is being written which class may fill.
pub(super) struct Share {
    /// The channels that were ready when it began, one bit for each.
    waiting: u64,
    means: Means,
    room: usize,
    /// What waits and has found no place in this packet. Who comes later leaves as much for the next one.
    owed: u64,
}

impl Share {
    pub(super) const fn new(waiting: u64, means: Means, room: usize) -> Self {
        Self { waiting, means, room, owed: 0 }
    }

    /// What has so many bytes waits for the next packet.
    pub(super) const fn wait(&mut self, bytes: u64) {
        self.owed = self.owed.saturating_add(bytes).saturating_add(PACKET_BYTES);
    }
}

impl Channels {
    /// What goes first of what waits; `None` if nothing does.
    #[must_use]
    pub fn wish(&self, now: Instant) -> Option<Wish> {
        let waiting = self.ready();
        let first = self.first(waiting, now)?;
        let class = priority_of(&self.layout, first);
        let of_class = self.of(waiting).filter(|channel| priority_of(&self.layout, *channel) == class);
        Some(Wish {
            bytes: of_class.fold(0, |bytes: u64, channel| bytes.saturating_add(self.waiting_frame_bytes(channel))),
            ahead: self.ahead(waiting, first, now),
            kept: self.kept(first, now),
        })
    }

    /// How far ahead of what has come in the highest class may draw, because of what waits below it.
    #[must_use]
    pub fn most_ahead(&self, now: Instant) -> u64 {
        let class_of = |channel| priority_of(&self.layout, channel);
        let lowest = self.of(self.ready()).map(class_of).min();
        lowest.map_or(0, |lowest| self.bursts.kept(now, |other| class_of(other) > lowest))
    }

    /// Up to where a channel's frames may fill the packet.
    ///
    /// What a higher class could not put into it keeps what has come in for the next packet. The rest of this one is free for
    /// lower classes all the same, if enough has come in for both: they save the headers of a packet of their own.
    pub(super) fn limit(&self, share: &Share, channel: ChannelId, now: Instant) -> usize {
        let Share { waiting, means, room, owed } = *share;
        let room = self.slice_room(channel).map_or(room, |slice| room.min(slice.max(means.bulk)));
        if means.is_ample(owed.saturating_add(room as u64)) || self.is_starved(channel, now) {
            return room;
        }
        let credit = means.credit.saturating_add_unsigned(self.ahead(waiting, channel, now));
        let window = means.window.saturating_sub_unsigned(self.kept(channel, now));
        usize::try_from(credit.min(window).saturating_sub_unsigned(owed)).unwrap_or(0).min(room)
    }

    /// Bytes of frames without which no slice of a block leaves, whichever channel it is in.
    #[must_use]
    pub fn least_bulk(&self) -> usize {
        self.channels().filter_map(|channel| self.slice_room(channel)).max().unwrap_or(0)
    }

    /// Bytes of frames that a slice takes; `None` of a channel that is none of blocks.
    fn slice_room(&self, channel: ChannelId) -> Option<usize> {
        let config = self.layout.channel(channel).filter(|config| config.kind == Kind::Blocks)?;
        Some(usize::from(config.blocks.slice_bytes) + SLICE_FRAME_BYTES)
    }

    /// About how many bytes of frames a channel has that wait.
    pub(super) fn waiting_frame_bytes(&self, channel: ChannelId) -> u64 {
        let index = usize::from(channel.0);
        if self.blocks.get(index).is_some_and(BlockLane::wants_room) {
            return u64::MAX;
        }
        self.outgoing.get(index).map_or(0, Outgoing::waiting_frame_bytes)
    }

    /// How far ahead of what has come in a channel may draw: as far as what it, and the classes between it and the lowest
    /// that waits, write at once. One that starves draws as far as the highest.
    fn ahead(&self, waiting: u64, channel: ChannelId, now: Instant) -> u64 {
        let class_of = |channel| priority_of(&self.layout, channel);
        let class = if self.is_starved(channel, now) { u8::MAX } else { class_of(channel) };
        let Some(lowest) = self.of(waiting).map(class_of).min().filter(|lowest| *lowest < class) else { return 0 };
        self.bursts.kept(now, |other| lowest < class_of(other) && class_of(other) <= class)
    }

    /// How much of the window a channel leaves to those above it.
    fn kept(&self, channel: ChannelId, now: Instant) -> u64 {
        if self.is_starved(channel, now) {
            return 0;
        }
        let class = priority_of(&self.layout, channel);
        self.bursts.kept(now, |other| priority_of(&self.layout, other) > class)
    }

    fn is_starved(&self, channel: ChannelId, now: Instant) -> bool {
        self.candidate(channel).is_some_and(|candidate| self.schedule.starved_since(&candidate, now).is_some())
    }

    fn of(&self, mask: u64) -> impl Iterator<Item = ChannelId> + use<> {
        self.channels().filter(move |channel| mask >> channel.0 & 1 != 0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::time::Duration;
    use std::vec;

    use super::*;
    use crate::channel::block::Block;
    use crate::channel::{ChannelConfig, Layout, STARVED_AFTER, SendOptions};
    use crate::wire::reliable::Sequence;

    const STATE: ChannelId = ChannelId(0);
    const MAP: ChannelId = ChannelId(1);

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    const MUCH: Means = Means { credit: 100_000, window: 100_000, bulk: 1200 };

    fn means(credit: i64) -> Means {
        Means { credit, ..MUCH }
    }

    /// A sender whose block is accepted, and whose state has lately been of so many bytes.
    fn sender(state_bytes: usize) -> Channels {
        let layout = Arc::new(Layout::new([Kind::Sequenced, Kind::Blocks].map(ChannelConfig::new).to_vec()).unwrap());
        let [mut left, mut right] = [(); 2].map(|()| Channels::new(Arc::clone(&layout), None));
        left.send_block(MAP, Block::new(vec![7; 100_000]).unwrap(), 1).unwrap();
        left.send(STATE, &vec![1; state_bytes], SendOptions::default(), at(0)).unwrap();
        let (mut room, mut scratch) = ([0; 1200], vec![]);
        for number in 0..4 {
            let [from, to] = if number % 2 == 0 { [&mut left, &mut right] } else { [&mut right, &mut left] };
            let bytes = from.write(Sequence(number / 2), at(0), &mut room);
            let (frames, mut read) = (&room[..bytes], crate::channel::ReadAt::default());
            while to.next(frames, &mut read, &mut scratch, at(0)).unwrap().is_some() {}
        }
        left.begin_tick(at(1));
        left
    }

    fn send_state(channels: &mut Channels, bytes: usize, now: Instant) {
        channels.send(STATE, &vec![2; bytes], SendOptions::default(), now).unwrap();
    }

    /// Writes a packet, and answers the bytes of state and of the block in it.
    fn write(channels: &mut Channels, room: usize, means: Means, now: Instant) -> [u64; 2] {
        let number = channels.newest.map_or(Sequence(0), |newest| newest.ahead(1));
        let written = |channels: &Channels| [STATE, MAP].map(|on| channels.stats(on).unwrap().frame_bytes);
        let before = written(channels);
        channels.write_within(number, now, &mut vec![0; room], means);
        let after = written(channels);
        [after[0] - before[0], after[1] - before[1]]
    }

    #[test]
    fn a_block_fills_the_rest_of_a_packet_only_as_far_as_bytes_have_come_in() {
        for (credit, slices) in [(1200, 3), (1000, 2), (700, 0), (600, 0), (0, 0), (-50, 0)] {
            let mut channels = sender(600);
            send_state(&mut channels, 600, at(10));
            let [state, map] = write(&mut channels, 1186, means(credit), at(10));
            assert!((600..610).contains(&state), "{credit}: {state}");
            assert!((160 * slices..160 * slices + 20).contains(&map), "{credit}: {map}");
        }
    }

    #[test]
    fn on_a_thin_path_a_block_fills_as_much_of_a_packet_as_does_not_keep_others_waiting_but_a_slice_at_least() {
        for (bulk, slices) in [(1200, 7), (600, 3), (200, 1), (0, 1)] {
            let [state, map] = write(&mut sender(600), 1186, Means { bulk, ..MUCH }, at(10));
            assert!(state == 0 && (160 * slices..160 * slices + 20).contains(&map), "{bulk}: {map}");
        }
        // A state may have the whole packet, and then it holds nothing else.
        let mut channels = sender(600);
        send_state(&mut channels, 1000, at(10));
        let [state, map] = write(&mut channels, 1186, Means { bulk: 600, ..MUCH }, at(10));
        assert!(state > 1000 && map == 0, "{state}, {map}");
    }

    #[test]
    fn what_a_state_needs_for_the_next_packet_is_left_to_it() {
        for (credit, slices) in [(900, 0), (1600, 1), (100_000, 3)] {
            let mut channels = sender(600);
            // Two of them do not fit into one packet.
            send_state(&mut channels, 600, at(10));
            send_state(&mut channels, 600, at(10));
            let [state, map] = write(&mut channels, 1186, means(credit), at(10));
            assert!((600..610).contains(&state), "{credit}: {state}");
            assert!((160 * slices..160 * slices + 20).contains(&map), "{credit}: {map}");
        }
    }

    #[test]
    fn a_state_wishes_its_own_bytes_ahead_of_a_block_and_a_block_wishes_whatever_there_is() {
        let mut channels = sender(600);
        let Wish { bytes, ahead, kept } = channels.wish(at(10)).unwrap();
        assert_eq!((bytes, ahead), (u64::MAX, 0));
        assert!((680..700).contains(&kept), "{kept}");
        send_state(&mut channels, 300, at(10));
        let Wish { bytes, ahead, kept } = channels.wish(at(10)).unwrap();
        assert!((300..320).contains(&bytes) && (680..700).contains(&ahead) && kept == 0, "{bytes}, {ahead}, {kept}");
        // Nothing is kept for a state that does not come any more.
        assert_eq!(sender(600).wish(at(1000)).unwrap().kept, 0);
    }

    #[test]
    fn a_block_that_starves_has_its_turn_whatever_has_come_in() {
        let mut channels = sender(600);
        let starved = at(STARVED_AFTER.as_millis() as u64 + 1);
        // Its wish is noted when a packet begins.
        write(&mut channels, 100, means(0), at(1));
        send_state(&mut channels, 600, starved);
        let [state, map] = write(&mut channels, 1186, means(0), starved);
        assert!(state == 0 && map > 1000, "{state}, {map}");
    }
}
