//! Which channel writes the next frame: by priority, then by weight, then by age; and nobody starves.

use alloc::vec::Vec;
use core::time::Duration;

use super::layout::{ChannelConfig, ChannelId, Layout};
use slipgate_netcode::time::Instant;

/// A channel that has not had its turn for so long, though it had something to send, goes before all others until it has
/// had it: [`TURN_BYTES`] of frames, or most of a packet where packets are smaller, or all that it may send.
///
/// Reckoned from when it first had something to send, whatever became of that: messages that are given up because their
/// deadline comes first, or are replaced, bring the turn of those behind them nearer.
///
/// So a lower class gets about a packet's worth every half second, whatever the classes above it send; and these give up
/// at most that, and one frame more, for each channel below them.
pub const STARVED_AFTER: Duration = Duration::from_millis(500);

/// Bytes of frames that are a turn, in packets that have room for more.
pub const TURN_BYTES: usize = 1024;
/// In smaller packets seven eighths of the room for frames are a turn: on a path that carries ten packets of 256 bytes in
/// a second a turn must not silence all others for half of it.
const TURN_SHARE: (usize, usize) = (7, 8);

/// How far a channel of weight 1 moves on for each byte.
const STRIDE: u64 = 1 << 16;

/// What is remembered of one channel.
#[derive(Clone, Copy, Default)]
struct Lane {
    /// Bytes that may leave in this tick; below zero when more did.
    allowance: i64,
    /// What the channel has sent by its weight; who has the least goes first.
    passed: u64,
    /// When it last had a turn, and what it wrote since.
    served: Instant,
    written: usize,
    /// Since when it has had something to send that no turn followed; it may have been given up since.
    unserved_since: Option<Instant>,
    /// It had something to send when the last packet was finished.
    was_ready: bool,
}

impl Lane {
    /// It has had its turn.
    const fn serve(&mut self, now: Instant) {
        (self.served, self.written, self.unserved_since) = (now, 0, None);
    }
}

/// A channel that has something to send.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) channel: ChannelId,
    /// Since when its first message has waited.
    pub(super) since: Instant,
}

/// The order of the channels of one connection.
pub(super) struct Schedule {
    lanes: Vec<Lane>,
    /// For each class, in the place of its first channel: how far the channel was that went last. One that comes anew
    /// starts there, instead of making up for the time in which it had nothing to send.
    clocks: Vec<u64>,
    /// Bytes that are a turn in the packet that is being written.
    turn_bytes: usize,
}

impl Schedule {
    pub(super) fn new(layout: &Layout) -> Self {
        let lanes = layout.channels().map(|config| Lane { allowance: per_tick(config), ..Lane::default() }).collect();
        Self { lanes, clocks: layout.channels().map(|_| 0).collect(), turn_bytes: TURN_BYTES }
    }

    /// A tick begins: budgets are filled up.
    pub(super) fn begin_tick(&mut self, layout: &Layout) {
        for (lane, config) in self.lanes.iter_mut().zip(layout.channels()) {
            let per_tick = per_tick(config);
            lane.allowance = lane.allowance.saturating_add(per_tick).min(per_tick);
        }
    }

    /// Whether the channel's budget of this tick lets it send.
    pub(super) fn allows(&self, channel: ChannelId) -> bool {
        self.lanes.get(usize::from(channel.0)).is_some_and(|lane| lane.allowance > 0)
    }

    /// Chooses the channel that goes first.
    pub(super) fn first(
        &self,
        layout: &Layout,
        candidates: impl Iterator<Item = Candidate>,
        now: Instant,
    ) -> Option<ChannelId> {
        let rank = |candidate: &Candidate| {
            let lane = self.lanes.get(usize::from(candidate.channel.0)).copied().unwrap_or_default();
            let starved_since = self.starved_since(candidate, now).unwrap_or(Instant::NEVER);
            let priority = priority_of(layout, candidate.channel);
            (starved_since, u8::MAX - priority, lane.passed, candidate.since, candidate.channel)
        };
        candidates.min_by_key(rank).map(|candidate| candidate.channel)
    }

    /// Since when a channel has not had its turn, if that is so long that it goes before all others.
    pub(super) fn starved_since(&self, candidate: &Candidate, now: Instant) -> Option<Instant> {
        let lane = self.lanes.get(usize::from(candidate.channel.0)).copied().unwrap_or_default();
        let since = lane.unserved_since.map_or(candidate.since, |since| since.min(candidate.since));
        let waits_since = since.max(lane.served);
        now.reached(waits_since, STARVED_AFTER).then_some(waits_since)
    }

    /// A packet begins with these channels ready, one bit for each, and so many bytes of room for frames.
    pub(super) fn begin_packet(&mut self, layout: &Layout, ready: u64, room: usize) {
        self.turn_bytes = TURN_BYTES.min(room * TURN_SHARE.0 / TURN_SHARE.1);
        for id in (0..self.lanes.len()).map(|id| ChannelId(id as u8)) {
            let clock = self.clocks.get(class_of(layout, id)).copied().unwrap_or(0);
            let ready = ready >> id.0 & 1 != 0;
            let Some(lane) = self.lanes.get_mut(usize::from(id.0)) else { continue };
            if ready && !lane.was_ready {
                lane.passed = lane.passed.max(clock);
            }
            lane.was_ready = ready;
        }
    }

    /// A packet leaves while this channel has something to send.
    pub(super) fn note_wait(&mut self, candidate: Candidate) {
        if let Some(lane) = self.lanes.get_mut(usize::from(candidate.channel.0)) {
            lane.unserved_since.get_or_insert(candidate.since);
        }
    }

    /// A channel has written all that it may write now: whatever comes later has not waited for others yet.
    pub(super) fn sated(&mut self, channel: ChannelId, now: Instant) {
        if let Some(lane) = self.lanes.get_mut(usize::from(channel.0)) {
            lane.serve(now);
        }
    }

    /// A channel has written a frame of so many bytes.
    pub(super) fn charge(&mut self, layout: &Layout, channel: ChannelId, bytes: usize, now: Instant) {
        let Some(lane) = self.lanes.get_mut(usize::from(channel.0)) else { return };
        let weight = layout.channel(channel).map_or(1, |config| u64::from(config.weight));
        let before = lane.passed;
        lane.written += bytes;
        if lane.written >= self.turn_bytes {
            lane.serve(now);
        }
        lane.passed += bytes as u64 * STRIDE / weight;
        lane.allowance = lane.allowance.saturating_sub(bytes as i64);
        if let Some(clock) = self.clocks.get_mut(class_of(layout, channel)) {
            *clock = before.max(*clock);
        }
    }
}

pub(super) fn priority_of(layout: &Layout, channel: ChannelId) -> u8 {
    layout.channel(channel).map_or(0, |config| config.priority)
}

fn per_tick(config: &ChannelConfig) -> i64 {
    config.bytes_per_tick.map_or(i64::MAX, i64::from)
}

/// The first channel of the same class.
fn class_of(layout: &Layout, channel: ChannelId) -> usize {
    let priority = layout.channel(channel).map(|config| config.priority);
    layout.channels().position(|config| Some(config.priority) == priority).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::layout::Kind;
    use std::vec;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn layout(channels: &[(u8, u16)]) -> Layout {
        let base = ChannelConfig::new(Kind::Unreliable);
        let channel =
            |(priority, weight): &(u8, u16)| ChannelConfig { priority: *priority, weight: *weight, ..base.clone() };
        Layout::new(channels.iter().map(channel).collect()).unwrap()
    }

    /// Lets all channels have something to send for ever, and answers how many frames of `bytes` each wrote.
    fn shares(layout: &Layout, bytes: &[usize], frames: usize) -> Vec<usize> {
        let mut schedule = Schedule::new(layout);
        let mut wrote = vec![0; bytes.len()];
        for _ in 0..frames {
            let all = (0..bytes.len()).map(|id| Candidate { channel: ChannelId(id as u8), since: at(0) });
            let first = schedule.first(layout, all, at(10)).unwrap();
            wrote[usize::from(first.0)] += 1;
            schedule.charge(layout, first, bytes[usize::from(first.0)], at(10));
        }
        wrote
    }

    #[test]
    fn a_class_shares_bytes_by_weight_and_the_one_below_it_waits() {
        assert_eq!(shares(&layout(&[(1, 3), (1, 1), (0, 9)]), &[100, 100, 100], 400), [300, 100, 0]);
        assert_eq!(shares(&layout(&[(1, 1), (1, 1)]), &[300, 100], 400), [100, 300]);
    }

    #[test]
    fn who_had_nothing_to_send_does_not_make_up_for_it() {
        let layout = layout(&[(0, 1), (0, 1)]);
        let mut schedule = Schedule::new(&layout);
        for _ in 0..1000 {
            schedule.begin_packet(&layout, 0b01, 1200);
            schedule.charge(&layout, ChannelId(0), 100, at(0));
        }
        schedule.begin_packet(&layout, 0b11, 1200);
        let mut wrote = [0; 2];
        for _ in 0..100 {
            let both = (0..2).map(|id| Candidate { channel: ChannelId(id), since: at(0) });
            let first = schedule.first(&layout, both, at(0)).unwrap();
            wrote[usize::from(first.0)] += 1;
            schedule.charge(&layout, first, 100, at(0));
        }
        assert!((49..=51).contains(&wrote[0]), "{wrote:?}");
    }

    #[test]
    fn a_channel_that_starves_goes_before_all_others_until_it_had_its_turn() {
        let layout = layout(&[(9, 1), (0, 1), (3, 1)]);
        let mut schedule = Schedule::new(&layout);
        let mut first = |now, since: [u64; 3]| {
            let all = (0..3).zip(since).map(|(id, since)| Candidate { channel: ChannelId(id), since: at(since) });
            let first = schedule.first(&layout, all, at(now)).unwrap();
            schedule.charge(&layout, first, TURN_BYTES / 2, at(now));
            first.0
        };
        assert_eq!(first(1499, [1490, 1000, 1001]), 0);
        let order = [0; 5].map(|_| first(1501, [1500, 1000, 1001]));
        assert_eq!(order, [1, 1, 2, 2, 0], "who has waited longest goes first");
        assert_eq!(first(2000, [2000, 1000, 1001]), 0);
        let order = [0; 5].map(|_| first(2001, [2000, 1000, 1001]));
        assert_eq!(order, [2, 2, 1, 1, 0], "again half a second later, the higher class first");
    }

    #[test]
    fn where_packets_are_small_one_of_them_is_a_turn() {
        let layout = layout(&[(9, 1), (0, 1)]);
        for (room, written, turns) in [(1186, 500, 3), (1186, 1050, 1), (193, 170, 1), (494, 250, 2)] {
            let mut schedule = Schedule::new(&layout);
            let mut first = || {
                schedule.begin_packet(&layout, 0b11, room);
                let both = (0..2).map(|id| Candidate { channel: ChannelId(id), since: at(0) });
                let first = schedule.first(&layout, both, at(600)).unwrap();
                schedule.charge(&layout, first, written, at(600));
                first.0
            };
            // The higher class has waited as long, and has its turn before.
            let order: Vec<u8> = (0..2 * turns + 1).map(|_| first()).collect();
            let wanted = [vec![0; turns], vec![1; turns], vec![0]].concat();
            assert_eq!(order, wanted, "{written} bytes in rooms of {room}");
        }
    }

    #[test]
    fn a_budget_may_be_overdrawn_once_and_is_paid_back_by_the_next_ticks() {
        let limited = ChannelConfig { bytes_per_tick: Some(100), ..ChannelConfig::new(Kind::Unreliable) };
        let layout = Layout::new(vec![limited]).unwrap();
        let mut schedule = Schedule::new(&layout);
        schedule.charge(&layout, ChannelId(0), 99, at(0));
        assert!(schedule.allows(ChannelId(0)));
        schedule.charge(&layout, ChannelId(0), 201, at(0));
        for allowed in [false, false, true] {
            schedule.begin_tick(&layout);
            assert_eq!(schedule.allows(ChannelId(0)), allowed);
        }
        schedule.charge(&layout, ChannelId(0), 100, at(0));
        assert!(!schedule.allows(ChannelId(0)));
    }
}
