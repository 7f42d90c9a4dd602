//! Which channel writes the next frame: by priority, then by weight, then by age. No channel starves.

use core::time::Duration;

use crate::channel::channel_table::{ChannelState, ChannelTable, channels_in};
use crate::channel::config::ChannelId;
use crate::channel::scheduling::send_budget::MAX_RESERVE_BYTES;
use crate::channel::scheduling::turn::QUANTUM_BYTES;
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// A channel that has had data to send for this long without a turn goes before all others until it had its turn:
/// [`QUANTUM_BYTES`] of frames, or most of a packet where packets are smaller, or all of its data.
///
/// The time counts from when it first had data to send, even if that data expires or is replaced.
///
/// A lower class thus sends about a packet every half second, whatever the higher classes send. These give up at most
/// that much, and one frame more, for each channel below them.
pub const STARVED_AFTER: Duration = Duration::from_millis(500);

/// The share of smaller packets that makes a turn. A turn must not block all others for half a second on
/// a path that carries ten packets of 256 bytes per second.
const QUANTUM_SHARE: (usize, usize) = (7, 8);

/// A channel that has data to send.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) channel: ChannelId,
    /// Since when its first message has waited.
    pub(crate) since: Instant,
}

impl ChannelTable {
    /// Begins a tick: refills the bytes per tick.
    pub(crate) fn begin_tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        if !self.has_limits {
            return;
        }
        for ChannelState { turn, .. } in self.iter_mut() {
            // Unused bytes do not accumulate; an excess of the last tick is paid back here.
            turn.allowance = turn.allowance.saturating_add(turn.per_tick).min(turn.per_tick);
        }
    }

    /// Returns the priority class of a channel.
    pub(crate) fn priority(&self, channel: ChannelId) -> u8 {
        self.get(channel).must_exist("a channel of the layout").map_or(0, |state| state.turn.priority)
    }

    /// Returns the channel that goes first.
    pub(crate) fn first(&self, candidates: impl Iterator<Item = Candidate>, now: Instant) -> Option<ChannelId> {
        let rank = |candidate: &Candidate| {
            let turn =
                self.get(candidate.channel).map(|state| (u8::MAX - state.turn.priority, state.turn.virtual_time));
            let starved_since = self.starved_since(candidate, now).unwrap_or(Instant::NEVER);
            // Smallest first: starved channels by waiting time, then the highest class, then the least service.
            (starved_since, turn, candidate.since, candidate.channel)
        };
        candidates.min_by_key(rank).map(|candidate| candidate.channel)
    }

    /// Returns since when a channel has had no turn, if it is starved.
    pub(crate) fn starved_since(&self, candidate: &Candidate, now: Instant) -> Option<Instant> {
        let turn = &self.get(candidate.channel).must_exist("a channel of the layout")?.turn;
        // Data that expired since keeps its waiting time: otherwise short deadlines would prevent any turn.
        let since = turn.waiting_since.map_or(candidate.since, |since| since.min(candidate.since));
        let waits_since = since.max(turn.last_turn);
        now.reached(waits_since, STARVED_AFTER).then_some(waits_since)
    }

    /// Begins a packet with these channels ready, one bit for each, and this many bytes for frames.
    #[inline]
    pub(crate) fn begin_packet(&mut self, ready: u64, packet_bytes: usize) {
        self.quantum_bytes = QUANTUM_BYTES.min(packet_bytes * QUANTUM_SHARE.0 / QUANTUM_SHARE.1);
        let newly_ready = ready & !core::mem::replace(&mut self.was_ready, ready);
        for channel in channels_in(newly_ready) {
            let class = self.get(channel).and_then(|state| self.get(state.turn.class));
            let class_time = class.map_or(0, |first| first.turn.class_time);
            // An idle channel must not collect virtual time and then block the others.
            if let Some(ChannelState { turn, .. }) = self.get_mut(channel) {
                turn.virtual_time = turn.virtual_time.max(class_time);
            }
        }
    }

    /// Returns the bytes to reserve on the path for the bursts of the classes for which `is_reserved_for` returns true.
    pub(crate) fn reserve(&self, now: Instant, is_reserved_for: impl Fn(u8) -> bool) -> u64 {
        let reserved = self.iter().filter(|(_, state)| is_reserved_for(state.turn.priority));
        reserved.map(|(_, state)| state.burst.reserved_bytes(now)).sum::<u64>().min(MAX_RESERVE_BYTES)
    }

    /// Charges a channel for a frame of this many bytes.
    #[inline]
    pub(crate) fn charge(&mut self, channel: ChannelId, bytes: usize, now: Instant) {
        let (quantum_bytes, tick) = (self.quantum_bytes, self.tick);
        let Some(state) = self.get_mut(channel).must_exist("a channel of the layout") else { return };
        let (class, before) = (state.turn.class, state.turn.virtual_time);
        state.stats.frame_bytes += bytes as u64;
        state.turn.charge(bytes, quantum_bytes, now);
        state.burst.on_written(tick, bytes, now);
        // The class time is that before the frame, so that a channel which becomes ready is not behind the others.
        if let Some(ChannelState { turn, .. }) = self.get_mut(class) {
            turn.class_time = turn.class_time.max(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::config::{ChannelConfig, Kind};
    use crate::channel::layout::Layout;
    use std::vec;
    use std::vec::Vec;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn layout(channels: &[(u8, u16)]) -> Layout {
        let base = ChannelConfig::from(Kind::Unreliable);
        let channel =
            |(priority, weight): &(u8, u16)| ChannelConfig { priority: *priority, weight: *weight, ..base.clone() };
        Layout::try_from(channels.iter().map(channel).collect::<Vec<_>>()).unwrap()
    }

    /// Lets all channels always have data to send. Returns how many frames of `bytes` each wrote.
    fn shares(layout: &Layout, bytes: &[usize], frames: usize) -> Vec<usize> {
        let mut scheduler = ChannelTable::new(layout);
        let mut wrote = vec![0; bytes.len()];
        for _ in 0..frames {
            let all = (0..bytes.len()).map(|id| Candidate { channel: ChannelId(id as u8), since: at(0) });
            let first = scheduler.first(all, at(10)).unwrap();
            wrote[usize::from(first.0)] += 1;
            scheduler.charge(first, bytes[usize::from(first.0)], at(10));
        }
        wrote
    }

    #[test]
    fn class_shares_bytes_by_weight_and_lower_class_waits() {
        assert_eq!(shares(&layout(&[(1, 3), (1, 1), (0, 9)]), &[100, 100, 100], 400), [300, 100, 0]);
        assert_eq!(shares(&layout(&[(1, 1), (1, 1)]), &[300, 100], 400), [100, 300]);
    }

    #[test]
    fn idle_channel_gets_no_credit_for_its_idle_time() {
        let layout = layout(&[(0, 1), (0, 1)]);
        let mut scheduler = ChannelTable::new(&layout);
        for _ in 0..1000 {
            scheduler.begin_packet(0b01, 1200);
            scheduler.charge(ChannelId(0), 100, at(0));
        }
        scheduler.begin_packet(0b11, 1200);
        let mut wrote = [0; 2];
        for _ in 0..100 {
            let both = (0..2).map(|id| Candidate { channel: ChannelId(id), since: at(0) });
            let first = scheduler.first(both, at(0)).unwrap();
            wrote[usize::from(first.0)] += 1;
            scheduler.charge(first, 100, at(0));
        }
        assert!((49..=51).contains(&wrote[0]), "{wrote:?}");
    }

    #[test]
    fn starved_channel_goes_first_until_it_had_its_turn() {
        let layout = layout(&[(9, 1), (0, 1), (3, 1)]);
        let mut scheduler = ChannelTable::new(&layout);
        let mut first = |now, since: [u64; 3]| {
            let all = (0..3).zip(since).map(|(id, since)| Candidate { channel: ChannelId(id), since: at(since) });
            let first = scheduler.first(all, at(now)).unwrap();
            scheduler.charge(first, QUANTUM_BYTES / 2, at(now));
            first.0
        };
        assert_eq!(first(1499, [1490, 1000, 1001]), 0);
        let order = [0; 5].map(|_| first(1501, [1500, 1000, 1001]));
        assert_eq!(order, [1, 1, 2, 2, 0], "the channel that has waited longest goes first");
        assert_eq!(first(2000, [2000, 1000, 1001]), 0);
        let order = [0; 5].map(|_| first(2001, [2000, 1000, 1001]));
        assert_eq!(order, [2, 2, 1, 1, 0], "again half a second later, the higher class first");
    }

    #[test]
    fn one_small_packet_is_a_turn() {
        let layout = layout(&[(9, 1), (0, 1)]);
        for (packet_bytes, written, turns) in [(1186, 500, 3), (1186, 1050, 1), (193, 170, 1), (494, 250, 2)] {
            let mut scheduler = ChannelTable::new(&layout);
            let mut first = || {
                scheduler.begin_packet(0b11, packet_bytes);
                let both = (0..2).map(|id| Candidate { channel: ChannelId(id), since: at(0) });
                let first = scheduler.first(both, at(600)).unwrap();
                scheduler.charge(first, written, at(600));
                first.0
            };
            // The higher class has waited as long, and has its turn before.
            let order: Vec<u8> = (0..2 * turns + 1).map(|_| first()).collect();
            let wanted = [vec![0; turns], vec![1; turns], vec![0]].concat();
            assert_eq!(order, wanted, "{written} bytes in packets of {packet_bytes}");
        }
    }

    #[test]
    fn bytes_per_tick_are_overdrawn_once_and_paid_back() {
        let limited = ChannelConfig { bytes_per_tick: Some(100), ..ChannelConfig::from(Kind::Unreliable) };
        let layout = Layout::try_from(vec![limited]).unwrap();
        let mut scheduler = ChannelTable::new(&layout);
        scheduler.charge(ChannelId(0), 99, at(0));
        assert!(scheduler.get(ChannelId(0)).unwrap().turn.allows());
        scheduler.charge(ChannelId(0), 201, at(0));
        for allowed in [false, false, true] {
            scheduler.begin_tick();
            assert_eq!(scheduler.get(ChannelId(0)).unwrap().turn.allows(), allowed);
        }
        scheduler.charge(ChannelId(0), 100, at(0));
        assert!(!scheduler.get(ChannelId(0)).unwrap().turn.allows());
    }
}
