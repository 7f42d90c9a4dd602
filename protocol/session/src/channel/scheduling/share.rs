//! How the priority classes share what the path would carry now. `send_budget` explains the rules.

use crate::channel::channel_table::channels_in;
use crate::channel::channels::Channels;
use crate::channel::config::ChannelId;
use crate::channel::scheduling::send_budget::{PACKET_BYTES, PendingDemand, SendBudget};
use crate::channel::transfer_channel::TransferChannel;
use slipgate_netcode::time::Instant;

/// The maximum cost of a transfer's slice in a packet besides its bytes: channel, length, and its own header of 7.
const SLICE_FRAME_BYTES: usize = 12;

/// How much of a packet that is being written each class may fill.
pub(crate) struct PacketShare {
    /// The channels that were ready when the packet began, one bit for each.
    ready: u64,
    budget: SendBudget,
    packet_bytes: usize,
    /// Bytes that wait and did not fit into this packet. Later channels leave as much for the next one.
    deferred: u64,
}

impl PacketShare {
    pub(crate) const fn new(ready: u64, budget: SendBudget, packet_bytes: usize) -> Self {
        Self { ready, budget, packet_bytes, deferred: 0 }
    }

    /// Notes that this many bytes wait for the next packet.
    pub(crate) const fn defer(&mut self, bytes: u64) {
        self.deferred = self.deferred.saturating_add(bytes).saturating_add(PACKET_BYTES);
    }
}

impl Channels {
    /// Returns the data that leaves next. `None` if nothing waits.
    #[must_use]
    pub(crate) fn pending_demand(&self, now: Instant) -> Option<PendingDemand> {
        let ready = self.ready();
        let first = self.next_channel(ready, now)?;
        let class = self.table.priority(first);
        // All channels of the class may leave in the next packets.
        let of_class = channels_in(ready).filter(|channel| self.table.priority(*channel) == class);
        let (bytes, largest) = of_class.fold((0, 0), |(bytes, largest): (u64, u64), channel| {
            (bytes.saturating_add(self.waiting_frame_bytes(channel)), largest.max(self.largest_frame_bytes(channel)))
        });
        let is_starved = self.is_starved(first, now);
        let overdraft = self.overdraft(ready, first, is_starved, now);
        Some(PendingDemand { bytes, largest, overdraft, reserve: self.reserve(first, is_starved, now) })
    }

    /// Returns how far the highest class may overdraw the credit, because of lower classes that wait.
    #[must_use]
    pub(crate) fn max_overdraft(&self, now: Instant) -> u64 {
        let lowest = channels_in(self.ready()).map(|channel| self.table.priority(channel)).min();
        lowest.map_or(0, |lowest| self.table.reserve(now, |class| class > lowest))
    }

    /// Returns up to where a channel's frames may fill the packet.
    ///
    /// Data of a higher class that did not fit into the packet keeps its credit for the next packet. Lower classes may
    /// fill the rest of this packet if the credit suffices for both, which saves the headers of a packet of their own.
    pub(crate) fn frame_limit(&self, share: &PacketShare, channel: ChannelId, now: Instant) -> usize {
        let PacketShare { ready, budget, packet_bytes, deferred } = *share;
        let slice = if self.transfers.is_empty() { None } else { self.slice_frame_bytes(channel) };
        let packet_bytes = slice.map_or(packet_bytes, |slice| packet_bytes.min(slice.max(budget.bulk)));
        // A starved channel gets a packet even without credit, so that the connection stays responsive.
        if budget.is_ample_for(deferred.saturating_add(packet_bytes as u64)) || self.is_starved(channel, now) {
            return packet_bytes;
        }
        // The credit may be overdrawn for lower classes, but the window must keep room for higher ones.
        let credit = budget.credit.saturating_add_unsigned(self.overdraft(ready, channel, false, now));
        let window = budget.window.saturating_sub_unsigned(self.reserve(channel, false, now));
        usize::try_from(credit.min(window).saturating_sub_unsigned(deferred)).unwrap_or(0).min(packet_bytes)
    }

    /// Returns the bytes of frames without which no slice of a transfer leaves, on any channel.
    #[must_use]
    pub(crate) fn min_bulk_bytes(&self) -> usize {
        self.channel_ids().filter_map(|channel| self.slice_frame_bytes(channel)).max().unwrap_or(0)
    }

    /// Returns the bytes of a slice's frame. `None` for a channel of messages.
    fn slice_frame_bytes(&self, channel: ChannelId) -> Option<usize> {
        let config = self.transfer_config(channel)?;
        Some(usize::from(config.transfers.slice_bytes) + SLICE_FRAME_BYTES)
    }

    /// Returns about how many bytes of frames of a channel wait.
    pub(crate) fn waiting_frame_bytes(&self, channel: ChannelId) -> u64 {
        let index = usize::from(channel.0);
        // A transfer always has more to send than a packet holds.
        if self.transfers.get(index).is_some_and(TransferChannel::has_frames) {
            return u64::MAX;
        }
        self.table.get(channel).map_or(0, |state| state.sender.waiting_frame_bytes())
    }

    /// Returns about how many bytes the largest frame of a channel has that waits; `u64::MAX` for a reliable one.
    fn largest_frame_bytes(&self, channel: ChannelId) -> u64 {
        self.table.get(channel).map_or(0, |state| match state.kind {
            kind if kind.is_reliable() => u64::MAX,
            _ => state.sender.largest_frame_bytes(),
        })
    }

    /// Returns how far a channel may overdraw the credit: as far as the bursts of its class and of those between it and
    /// the lowest class that waits. A starved channel may overdraw as far as the highest class.
    fn overdraft(&self, ready: u64, channel: ChannelId, is_starved: bool, now: Instant) -> u64 {
        // A starved channel counts as the highest class for this packet.
        let class = if is_starved { u8::MAX } else { self.table.priority(channel) };
        let classes = channels_in(ready).map(|channel| self.table.priority(channel));
        let Some(lowest) = classes.min().filter(|lowest| *lowest < class) else { return 0 };
        self.table.reserve(now, |other| lowest < other && other <= class)
    }

    /// Returns how much of the window a channel leaves to higher classes.
    fn reserve(&self, channel: ChannelId, is_starved: bool, now: Instant) -> u64 {
        if is_starved {
            return 0;
        }
        let class = self.table.priority(channel);
        self.table.reserve(now, |other| other > class)
    }

    fn is_starved(&self, channel: ChannelId, now: Instant) -> bool {
        self.candidate(channel).is_some_and(|candidate| self.table.starved_since(&candidate, now).is_some())
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::time::Duration;
    use std::vec;

    use super::*;
    use crate::channel::config::Kind;
    use crate::channel::transfer::Transfer;
    use crate::channel::{ChannelConfig, Layout, STARVED_AFTER, SendOptions};
    use crate::wire::reliable::Sequence;

    const STATE: ChannelId = ChannelId(0);
    const MAP: ChannelId = ChannelId(1);

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    const MUCH: SendBudget = SendBudget { credit: 100_000, window: 100_000, bulk: 1200 };

    fn budget(credit: i64) -> SendBudget {
        SendBudget { credit, ..MUCH }
    }

    /// Returns a sender with an accepted transfer and a last state of this many bytes.
    fn sender(state_bytes: usize) -> Channels {
        let layout =
            Arc::new(Layout::try_from([Kind::Sequenced, Kind::Transfers].map(ChannelConfig::from).to_vec()).unwrap());
        let [mut left, mut right] = [(); 2].map(|()| Channels::new(Arc::clone(&layout), None));
        left.send_transfer(MAP, Transfer::new(vec![7; 100_000]).unwrap(), 1).unwrap();
        left.send(STATE, &vec![1; state_bytes], SendOptions::default(), at(0)).unwrap();
        let (mut buf, mut scratch) = ([0; 1200], vec![]);
        for number in 0..4 {
            let [from, to] = if number % 2 == 0 { [&mut left, &mut right] } else { [&mut right, &mut left] };
            let bytes = from.write(Sequence(number / 2), at(0), &mut buf);
            let (frames, mut read) = (&buf[..bytes], crate::channel::FrameCursor::default());
            while to.next(frames, &mut read, &mut scratch, at(0)).unwrap().is_some() {}
        }
        left.begin_tick(at(1));
        left
    }

    fn send_state(channels: &mut Channels, bytes: usize, now: Instant) {
        channels.send(STATE, &vec![2; bytes], SendOptions::default(), now).unwrap();
    }

    /// Writes a packet. Returns the bytes of state and of the transfer in it.
    fn write(channels: &mut Channels, packet_bytes: usize, budget: SendBudget, now: Instant) -> [u64; 2] {
        let number = channels.newest.map_or(Sequence(0), |newest| newest + 1);
        let written = |channels: &Channels| [STATE, MAP].map(|on| channels.stats(on).unwrap().frame_bytes);
        let before = written(channels);
        channels.write_within(number, now, &mut vec![0; packet_bytes], budget);
        let after = written(channels);
        [after[0] - before[0], after[1] - before[1]]
    }

    #[test]
    fn transfer_fills_a_packet_only_within_the_credit() {
        for (credit, slices) in [(1200, 3), (1000, 2), (700, 0), (600, 0), (0, 0), (-50, 0)] {
            let mut channels = sender(600);
            send_state(&mut channels, 600, at(10));
            let [state, map] = write(&mut channels, 1186, budget(credit), at(10));
            assert!((600..610).contains(&state), "{credit}: {state}");
            assert!((160 * slices..160 * slices + 20).contains(&map), "{credit}: {map}");
        }
    }

    #[test]
    fn transfer_fills_a_thin_packet_up_to_bulk_or_one_slice() {
        for (bulk, slices) in [(1200, 7), (600, 3), (200, 1), (0, 1)] {
            let [state, map] = write(&mut sender(600), 1186, SendBudget { bulk, ..MUCH }, at(10));
            assert!(state == 0 && (160 * slices..160 * slices + 20).contains(&map), "{bulk}: {map}");
        }
        // A state may fill the whole packet.
        let mut channels = sender(600);
        send_state(&mut channels, 1000, at(10));
        let [state, map] = write(&mut channels, 1186, SendBudget { bulk: 600, ..MUCH }, at(10));
        assert!(state > 1000 && map == 0, "{state}, {map}");
    }

    #[test]
    fn credit_of_a_deferred_state_is_left_to_it() {
        for (credit, slices) in [(900, 0), (1600, 1), (100_000, 3)] {
            let mut channels = sender(600);
            // Two of them do not fit into one packet.
            send_state(&mut channels, 600, at(10));
            send_state(&mut channels, 600, at(10));
            let [state, map] = write(&mut channels, 1186, budget(credit), at(10));
            assert!((600..610).contains(&state), "{credit}: {state}");
            assert!((160 * slices..160 * slices + 20).contains(&map), "{credit}: {map}");
        }
    }

    #[test]
    fn state_overdraws_its_burst_and_transfer_leaves_a_reserve() {
        let mut channels = sender(600);
        let PendingDemand { bytes, overdraft, reserve, .. } = channels.pending_demand(at(10)).unwrap();
        assert_eq!((bytes, overdraft), (u64::MAX, 0));
        assert!((680..700).contains(&reserve), "{reserve}");
        send_state(&mut channels, 300, at(10));
        let PendingDemand { bytes, overdraft, reserve, .. } = channels.pending_demand(at(10)).unwrap();
        assert!(
            (300..320).contains(&bytes) && (680..700).contains(&overdraft) && reserve == 0,
            "{bytes}, {overdraft}, {reserve}"
        );
        send_state(&mut channels, 500, at(10));
        let PendingDemand { bytes, largest, .. } = channels.pending_demand(at(10)).unwrap();
        assert!((800..840).contains(&bytes) && (500..520).contains(&largest), "{bytes}, {largest}");
        // Nothing is reserved for a state that is not sent any more.
        assert_eq!(sender(600).pending_demand(at(1000)).unwrap().reserve, 0);
    }

    #[test]
    fn starved_transfer_gets_its_turn_without_credit() {
        let mut channels = sender(600);
        let starved = at(STARVED_AFTER.as_millis() as u64 + 1);
        // The waiting time starts when a packet begins.
        write(&mut channels, 100, budget(0), at(1));
        send_state(&mut channels, 600, starved);
        let [state, map] = write(&mut channels, 1186, budget(0), starved);
        assert!(state == 0 && map > 1000, "{state}, {map}");
    }
}
