//! Which channel writes the next frame: by priority, then by weight, then by age. No channel starves.

use core::time::Duration;

use crate::channel::config::{ChannelConfig, ChannelId};
use crate::channel::layout::Layout;
use slipgate_netcode::slab::Slab;
use slipgate_netcode::time::Instant;

/// A channel that has had data to send for this long without a turn goes before all others until it had its turn:
/// [`QUANTUM_BYTES`] of frames, or most of a packet where packets are smaller, or all of its data.
///
/// The time counts from when it first had data to send, even if that data expires or is replaced.
///
/// A lower class thus sends about a packet every half second, whatever the higher classes send. These give up at most
/// that much, and one frame more, for each channel below them.
pub const STARVED_AFTER: Duration = Duration::from_millis(500);

/// Bytes of frames in a turn, in packets that have room for more.
pub const QUANTUM_BYTES: usize = 1024;
/// The share of smaller packets that makes a turn. A turn must not block all others for half a second on
/// a path that carries ten packets of 256 bytes per second.
const QUANTUM_SHARE: (usize, usize) = (7, 8);

/// How far the virtual time of a channel of weight 1 advances for each byte.
const STRIDE: u64 = 1 << 16;

/// The scheduling state of one channel, and its settings.
#[derive(Clone, Copy, Default)]
struct ChannelTurn {
    priority: u8,
    /// The first channel of the same priority.
    class: u8,
    weight: u16,
    /// Bytes of frames that may leave in a tick.
    per_tick: i64,
    /// Bytes that may leave in this tick. Below zero when more did.
    allowance: i64,
    /// The bytes that the channel has sent, divided by its weight. The channel with the least goes first (stride
    /// scheduling, Waldspurger 1995).
    virtual_time: u64,
    /// When the channel last had a turn.
    last_turn: Instant,
    /// Bytes of frames since then.
    written: usize,
    /// Since when the channel has had data to send without a turn. The data may have been discarded since.
    waiting_since: Option<Instant>,
    /// The channel had data to send when the last packet was finished.
    was_ready: bool,
}

impl ChannelTurn {
    /// Ends the channel's turn.
    const fn finish(&mut self, now: Instant) {
        (self.last_turn, self.written, self.waiting_since) = (now, 0, None);
    }
}

/// A channel that has data to send.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) channel: ChannelId,
    /// Since when its first message has waited.
    pub(crate) since: Instant,
}

/// The scheduler of one connection's channels.
pub(crate) struct Scheduler {
    turns: Slab<ChannelId, ChannelTurn>,
    /// The virtual time of each class, at the index of its first channel: that of the channel which wrote last. A
    /// channel that becomes ready starts there, so that it gets no credit for the time without data.
    class_times: Slab<ChannelId, u64>,
    /// Bytes of a turn in the packet that is being written.
    quantum_bytes: usize,
    /// Whether any channel has a limit of bytes in a tick.
    has_limits: bool,
}

impl Scheduler {
    pub(crate) fn new(layout: &Layout) -> Self {
        let turn = |config: &ChannelConfig| {
            let (priority, weight) = (config.priority, config.weight);
            let per_tick = config.bytes_per_tick.map_or(i64::MAX, i64::from);
            let class = layout.channels().position(|other| other.priority == priority).unwrap_or(0) as u8;
            ChannelTurn { priority, class, weight, per_tick, allowance: per_tick, ..ChannelTurn::default() }
        };
        let class_times = layout.channels().map(|_| 0).collect();
        let has_limits = layout.channels().any(|config| config.bytes_per_tick.is_some());
        Self { turns: layout.channels().map(turn).collect(), class_times, quantum_bytes: QUANTUM_BYTES, has_limits }
    }

    /// Begins a tick: refills the bytes per tick.
    pub(crate) fn begin_tick(&mut self) {
        if !self.has_limits {
            return;
        }
        for turn in &mut self.turns {
            // Unused bytes do not accumulate; an excess of the last tick is paid back here.
            turn.allowance = turn.allowance.saturating_add(turn.per_tick).min(turn.per_tick);
        }
    }

    /// Returns the priority class of a channel.
    pub(crate) fn priority(&self, channel: ChannelId) -> u8 {
        self.turns[channel].priority
    }

    /// Returns whether the channel may send more in this tick.
    pub(crate) fn allows(&self, channel: ChannelId) -> bool {
        self.turns[channel].allowance > 0
    }

    /// Returns the channel that goes first.
    pub(crate) fn first(&self, candidates: impl Iterator<Item = Candidate>, now: Instant) -> Option<ChannelId> {
        let rank = |candidate: &Candidate| {
            let turn = &self.turns[candidate.channel];
            let starved_since = self.starved_since(candidate, now).unwrap_or(Instant::NEVER);
            // Smallest first: starved channels by waiting time, then the highest class, then the least service.
            (starved_since, u8::MAX - turn.priority, turn.virtual_time, candidate.since, candidate.channel)
        };
        candidates.min_by_key(rank).map(|candidate| candidate.channel)
    }

    /// Returns since when a channel has had no turn, if it is starved.
    pub(crate) fn starved_since(&self, candidate: &Candidate, now: Instant) -> Option<Instant> {
        let turn = &self.turns[candidate.channel];
        // Data that expired since keeps its waiting time: otherwise short deadlines would prevent any turn.
        let since = turn.waiting_since.map_or(candidate.since, |since| since.min(candidate.since));
        let waits_since = since.max(turn.last_turn);
        now.reached(waits_since, STARVED_AFTER).then_some(waits_since)
    }

    /// Begins a packet with these channels ready, one bit for each, and this many bytes for frames.
    #[inline]
    pub(crate) fn begin_packet(&mut self, ready: u64, packet_bytes: usize) {
        self.quantum_bytes = QUANTUM_BYTES.min(packet_bytes * QUANTUM_SHARE.0 / QUANTUM_SHARE.1);
        for (id, turn) in (0..).map(ChannelId).zip(&mut self.turns) {
            let class_time = self.class_times[ChannelId(turn.class)];
            let is_ready = ready >> id.0 & 1 != 0;
            // An idle channel must not collect virtual time and then block the others.
            if is_ready && !turn.was_ready {
                turn.virtual_time = turn.virtual_time.max(class_time);
            }
            turn.was_ready = is_ready;
        }
    }

    /// Notes that a packet is written while this channel has data to send.
    pub(crate) fn on_waiting(&mut self, candidate: Candidate) {
        self.turns[candidate.channel].waiting_since.get_or_insert(candidate.since);
    }

    /// Ends the turn of a channel that has written all of its data: later data starts to wait from then on.
    pub(crate) fn on_quantum_done(&mut self, channel: ChannelId, now: Instant) {
        self.turns[channel].finish(now);
    }

    /// Charges a channel for a frame of this many bytes.
    #[inline]
    pub(crate) fn charge(&mut self, channel: ChannelId, bytes: usize, now: Instant) {
        let turn = &mut self.turns[channel];
        let before = turn.virtual_time;
        turn.written += bytes;
        // Enough for a turn: the channel is not starved any more.
        if turn.written >= self.quantum_bytes {
            turn.finish(now);
        }
        // 64 bits: at 1 GB/s of weight 1 this overflows after three days of one connection at full rate.
        turn.virtual_time += bytes as u64 * STRIDE / u64::from(turn.weight.max(1));
        turn.allowance = turn.allowance.saturating_sub(bytes as i64);
        // The class time is that before the frame, so that a channel which becomes ready is not behind the others.
        let class_time = &mut self.class_times[ChannelId(turn.class)];
        *class_time = before.max(*class_time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::config::Kind;
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
        let mut scheduler = Scheduler::new(layout);
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
        let mut scheduler = Scheduler::new(&layout);
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
        let mut scheduler = Scheduler::new(&layout);
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
            let mut scheduler = Scheduler::new(&layout);
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
        let mut scheduler = Scheduler::new(&layout);
        scheduler.charge(ChannelId(0), 99, at(0));
        assert!(scheduler.allows(ChannelId(0)));
        scheduler.charge(ChannelId(0), 201, at(0));
        for allowed in [false, false, true] {
            scheduler.begin_tick();
            assert_eq!(scheduler.allows(ChannelId(0)), allowed);
        }
        scheduler.charge(ChannelId(0), 100, at(0));
        assert!(!scheduler.allows(ChannelId(0)));
    }
}
