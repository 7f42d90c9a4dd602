//! The kernel drops the datagrams of senders for a while, because they send far more than they may.
//!
//! The server would drop these datagrams itself, but at 400,000 a second reading them takes a core, and the receive
//! buffer overflows for all clients. A client uses up its budget by authentic packets alone. Forged ones count only
//! while the client itself has used up the budget of the turn.
//!
//! ```text
//!   256 packets over budget in 16 ms ──▶ blocked for 16 ms ──▶ probed for 32 ms ──▶ free
//!                                          ▲ twice as long       │ goes on          │ 64 packets over budget
//!                                          └─────────────────────┴──────────────────┘
//! ```
//!
//! The end of a block would let a burst in: at 800,000 datagrams a second hundreds wait in the socket before the server
//! notices, which delays all others by milliseconds. While a sender is probed the kernel therefore lets one of 64
//! datagrams pass, at random, and the server drops and counts it. A probe sees addresses alone, so an attacker that
//! knows the address of a blocked client could lengthen its block by forged datagrams. A client that was blocked only
//! once is therefore not blocked again by a probe.
//!
//! Each block raises the level of a sender, and each 500 ms in a row without a block lower it by one. The block that
//! leads to level 7 lasts 1 s. The next excess of authentic packets within 50 ms ends the session, with every kind of
//! traffic: a steady flood ends after 2 s. The address of an ended session is blocked for 1 s to 16 s each time.
//!
//! An upload with congestion control exceeds its budget again when its rate has grown again, which takes longer. After
//! a pause of 50 ms an excess therefore leads to no block of more than 256 ms, and ends no session at once. Between two
//! blocks an upload sends many packets within its budget, because it has slowed down. A flood in bursts does not: after
//! 16 blocks with few such packets in between, less the other blocks, its session ends.
//!
//! Datagrams that the server drops for another reason, such as forged or repeated ones, may come from any program that
//! forges the address. They end no session. When one address has more than 64,000 a second of them, the kernel passes
//! one of 64 datagrams of that address, at random, until they are fewer. The server handles these, so a client that did
//! not send the others keeps its session.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::time::Instant;
use slipgate_udp::{BlockedSender, Passing};

use crate::junk_counts::JunkCounts;

/// The senders that are remembered at once. The program of the kernel filter grows by 5 to 13 instructions for each. It
/// may have 4,096.
const MAX_SENDERS: usize = 64;
/// Datagrams beyond a budget within [`WINDOW`] after which a sender is blocked that was not blocked a moment ago. A
/// sender with congestion control may send twice its budget before it notices: 256 packets of a tick. Reading as many
/// more takes 0.3 ms, and 1.5 % of a core if a sender does so all the time.
const MAX_FIRST_EXCESS: u32 = 256;
/// The same for a sender that was blocked less than [`RECENT`] ago, or whose session has ended: one batch.
const MAX_EXCESS: u32 = 64;
/// A tick at 60 Hz: after it a client has new budgets.
const WINDOW: Duration = Duration::from_millis(16);
/// A flood exceeds its budget within one window after each block.
const RECENT: Duration = Duration::from_millis(50);
/// The first block of a client.
const FIRST_BLOCK: Duration = Duration::from_millis(16);
/// The highest level of a client. Each block raises the level and is twice as long as the one before: together 2 s. An
/// excess at this level within [`RECENT`] ends the session.
const MAX_LEVEL: u32 = 7;
/// The highest level to which an excess leads that comes later than [`RECENT`].
const MAX_LEVEL_AFTER_PAUSE: u32 = 4;
/// The level from which probes lengthen a block. Authentic packets alone lead to it.
const MIN_PROBED_LEVEL: u32 = 2;
/// A client that is not blocked for this time loses a level.
const FORGIVEN: Duration = Duration::from_millis(500);
/// The first block of a sender without a connection.
const FIRST_STRANGER_BLOCK: Duration = Duration::from_secs(1);
/// Blocks of such a sender, each twice as long as the one before, up to 16 s.
const MAX_STRANGER_BLOCKS: u32 = 5;
/// How long a sender is probed after a block.
const PROBE: Duration = Duration::from_millis(32);
/// Datagrams of a probed sender after which it is blocked again, if the kernel lets one of 64 pass: 48,000 a second. A
/// client at 15,000 a second, which is the most that it may, exceeds it in one of 100,000 probes.
const MAX_PROBED: u32 = 24;
/// The datagrams of a probed sender of which the kernel lets one pass.
pub(crate) const ONE_IN: u32 = 64;
/// Packets within its budget between two blocks that distinguish an upload from a flood in bursts: the budgets of 4
/// ticks.
const MIN_ACCEPTED: u32 = 1024;
/// Blocks of a flood in bursts after which its session ends: 5 s with pauses of 50 ms, 10 s with pauses of 500 ms.
const MAX_BURST_BLOCKS: u32 = 16;
/// A client that is not blocked for this time has one block of a flood in bursts less.
const BURST_FORGIVEN: Duration = Duration::from_secs(10);
/// How long the kernel passes a sample of the datagrams of an address with much junk.
const SAMPLED: Duration = Duration::from_secs(1);
/// The datagrams of such an address in [`SAMPLED`], as far as the sample shows, beyond which it is sampled again.
const MAX_SAMPLED: u32 = 24_000;
/// The maximum of ticks of 16 ms for which an excess is counted together. The budget of a client grows with the time
/// since the last tick, and so does the excess of an upload. A flood at 10 Hz must be blocked all the same.
const MAX_TICKS: u64 = 4;
/// How long a sender is remembered after its last block.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A datagram that was dropped because its sender sends too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excess {
    /// A client is beyond its budget.
    Client,
    /// An address without a connection, or with one that has ended. It counts only for a sender that was blocked before
    /// as a client, or that lost its session by a violation.
    Stranger,
}

/// The result of a datagram that the guard did not drop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DatagramResult {
    /// It was processed.
    Accepted,
    /// It was over its sender's budget.
    Excess(Excess),
    /// It was dropped for another reason.
    Junk,
}

/// What is to be done about a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FloodAction {
    /// Nothing.
    Nothing,
    /// It is blocked from now on.
    Block,
    /// It is blocked from now on, and its session ends: it went on after the longest block.
    End,
}

/// What happens to a datagram before it is decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Screening {
    /// It is handled.
    Passes,
    /// It is dropped.
    Dropped,
    /// It is dropped, and its sender is blocked from now on.
    Blocks,
}

/// How the datagrams of a sender are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Treatment {
    Free,
    Blocked {
        until: Instant,
    },
    /// `seen` datagrams were sent since the end of the block, as far as the sample shows.
    Probed {
        until: Instant,
        seen: u32,
    },
    /// The same since the start of the sample, which is handled.
    Sampled {
        until: Instant,
        seen: u32,
    },
}

impl Treatment {
    /// Returns when it ends.
    const fn end(self) -> Option<Instant> {
        match self {
            Self::Free => None,
            Self::Blocked { until } | Self::Probed { until, .. } | Self::Sampled { until, .. } => Some(until),
        }
    }
}

struct FloodSource {
    address: Address,
    window_since: Instant,
    excess: u32,
    /// Packets within its budget since its last block.
    accepted: u32,
    /// Blocks of a flood in bursts, less the others.
    burst_blocks: u32,
    /// The level as a client, and the blocks without a connection.
    level: u32,
    stranger_blocks: u32,
    /// Whether the last block was that of a sender without a connection.
    is_stranger: bool,
    /// Whether its session was ended. Its slot may still wait for the acknowledgement.
    has_ended: bool,
    treatment: Treatment,
    freed_at: Instant,
    /// Since when it has earned the loss of its next level.
    forgiven_at: Instant,
    remembered_until: Instant,
}

impl FloodSource {
    /// Returns whether it was blocked or probed a moment ago. A flood goes on at once, and congestion control does not.
    fn is_recent(&self, now: Instant) -> bool {
        self.treatment != Treatment::Free || self.level > 0 && !now.reached(self.freed_at, RECENT)
    }

    /// Returns how many datagrams beyond a budget it may send in a window.
    fn max_excess(&self, now: Instant) -> u32 {
        if self.is_recent(now) || self.has_ended || self.stranger_blocks > 0 { MAX_EXCESS } else { MAX_FIRST_EXCESS }
    }

    /// Lowers its level by one for each [`FORGIVEN`] since its last block.
    fn forgive(&mut self, now: Instant) {
        while self.level > 0 && self.treatment == Treatment::Free && now.reached(self.forgiven_at, FORGIVEN) {
            self.level -= 1;
            self.forgiven_at = self.forgiven_at.after(FORGIVEN);
        }
    }

    /// Returns whether the datagrams of a probe, whose origin is not proven, lengthen its block.
    const fn may_extend(&self) -> bool {
        self.is_stranger || self.has_ended || self.level >= MIN_PROBED_LEVEL
    }

    /// Counts a block. Returns whether the sender is a flood in bursts.
    fn count_burst(&mut self, now: Instant) -> bool {
        let forgiven = now.since(self.freed_at).as_secs() / BURST_FORGIVEN.as_secs();
        let blocks = self.burst_blocks.saturating_sub(forgiven as u32);
        let is_burst = std::mem::replace(&mut self.accepted, 0) < MIN_ACCEPTED;
        self.burst_blocks = if is_burst { blocks + 1 } else { blocks.saturating_sub(1) };
        self.burst_blocks >= MAX_BURST_BLOCKS
    }

    /// Passes only a sample of its datagrams for a while.
    fn sample(&mut self, now: Instant) {
        let until = now.after(SAMPLED);
        self.treatment = Treatment::Sampled { until, seen: 0 };
        self.remembered_until = self.remembered_until.max(until.after(WINDOW));
    }

    /// Returns the order in which senders are forgotten: free ones first, blocked ones last.
    const fn eviction_order(&self) -> (u8, u32, Instant) {
        let rank = match self.treatment {
            Treatment::Free => 0,
            Treatment::Probed { .. } | Treatment::Sampled { .. } => 1,
            Treatment::Blocked { .. } => 2,
        };
        (rank, self.level + self.stranger_blocks, self.remembered_until)
    }

    /// Blocks it, longer than the last time.
    fn block(&mut self, excess: Excess, now: Instant) {
        let until = now.after(self.next_block(excess, now));
        self.is_stranger = excess == Excess::Stranger;
        self.treatment = Treatment::Blocked { until };
        self.remembered_until = until.after(REMEMBERED);
    }

    fn next_block(&mut self, excess: Excess, now: Instant) -> Duration {
        match excess {
            Excess::Client => {
                let max_level = if self.is_recent(now) { MAX_LEVEL } else { MAX_LEVEL_AFTER_PAUSE };
                let block = FIRST_BLOCK * (1 << self.level.min(max_level));
                self.level = self.level.max(max_level.min(self.level + 1));
                block
            }
            Excess::Stranger => {
                let block = FIRST_STRANGER_BLOCK * (1 << self.stranger_blocks);
                self.stranger_blocks = (self.stranger_blocks + 1).min(MAX_STRANGER_BLOCKS - 1);
                block
            }
        }
    }
}

/// The senders that exceed their budgets.
#[derive(Default)]
pub(crate) struct FloodGuard {
    senders: Vec<FloodSource>,
    junk: JunkCounts,
    last_tick: Instant,
    /// When the next block or probe ends.
    next_end: Option<Instant>,
    /// Datagrams of blocked senders that had passed the kernel before.
    dropped: u64,
}

impl FloodGuard {
    /// Records a tick of the server.
    pub(crate) const fn on_tick(&mut self, now: Instant) {
        self.last_tick = now;
    }

    /// Records the result of a datagram. Unless it returns `Nothing`, the blocked senders have changed.
    #[inline]
    pub(crate) fn on_handled(&mut self, from: Address, outcome: DatagramResult, now: Instant) -> FloodAction {
        match outcome {
            DatagramResult::Accepted if self.senders.is_empty() => FloodAction::Nothing,
            DatagramResult::Accepted => {
                let sender = self.senders.iter_mut().find(|sender| sender.address == from);
                if let Some(sender) = sender {
                    sender.accepted = sender.accepted.saturating_add(1);
                }
                FloodAction::Nothing
            }
            DatagramResult::Excess(Excess::Client) => self.on_excess(from, Excess::Client, now),
            DatagramResult::Excess(Excess::Stranger) => {
                let action = self.on_excess(from, Excess::Stranger, now);
                if action == FloodAction::Nothing { self.on_junk(from, now) } else { action }
            }
            DatagramResult::Junk => self.on_junk(from, now),
        }
    }

    /// Counts a datagram of unproven origin.
    fn on_junk(&mut self, from: Address, now: Instant) -> FloodAction {
        if !self.junk.add(from, now) {
            return FloodAction::Nothing;
        }
        let known = self.senders.iter().position(|sender| sender.address == from);
        let index = known.unwrap_or_else(|| self.add(from, now));
        let Some(sender) = self.senders.get_mut(index) else { return FloodAction::Nothing };
        if sender.treatment != Treatment::Free {
            return FloodAction::Nothing;
        }
        sender.sample(now);
        self.update_next_end();
        FloodAction::Block
    }

    /// Counts a datagram over its sender's budget. Unless it returns `Nothing`, the blocked senders have changed.
    fn on_excess(&mut self, from: Address, excess: Excess, now: Instant) -> FloodAction {
        let known = self.senders.iter().position(|sender| sender.address == from);
        let Some(index) = known.or_else(|| (excess == Excess::Client).then(|| self.add(from, now))) else {
            return FloodAction::Nothing;
        };
        let ticks = (now.since(self.last_tick).as_millis() as u64 / WINDOW.as_millis() as u64).clamp(1, MAX_TICKS);
        let Some(sender) = self.senders.get_mut(index) else { return FloodAction::Nothing };
        sender.forgive(now);
        if now.reached(sender.window_since, WINDOW) {
            (sender.window_since, sender.excess) = (now, 0);
        }
        sender.excess += 1;
        let max = sender.max_excess(now);
        if sender.excess < max || sender.treatment != Treatment::Free || sender.excess < max * ticks as u32 {
            return FloodAction::Nothing;
        }
        let is_steady = sender.level >= MAX_LEVEL && sender.is_recent(now);
        let ends = excess == Excess::Client && (sender.count_burst(now) || is_steady);
        sender.has_ended |= ends;
        sender.block(excess, now);
        self.update_next_end();
        if ends { FloodAction::End } else { FloodAction::Block }
    }

    /// Remembers the address of a session that ended by a violation: its sender may go on.
    pub(crate) fn on_violation(&mut self, from: Address, now: Instant) {
        if !self.senders.iter().any(|sender| sender.address == from) {
            let index = self.add(from, now);
            if let Some(sender) = self.senders.get_mut(index) {
                sender.remembered_until = now.after(REMEMBERED);
            }
        }
    }

    /// Returns what happens to a datagram. What had passed the kernel before a block is dropped without decryption.
    /// `one_in` says how many datagrams of a probed sender one stands for.
    #[inline]
    pub(crate) fn screen(&mut self, from: Address, one_in: u32, now: Instant) -> Screening {
        if self.next_end.is_none() { Screening::Passes } else { self.screen_known(from, one_in, now) }
    }

    fn screen_known(&mut self, from: Address, one_in: u32, now: Instant) -> Screening {
        let Some(sender) = self.senders.iter_mut().find(|sender| sender.address == from) else {
            return Screening::Passes;
        };
        match &mut sender.treatment {
            Treatment::Free => return Screening::Passes,
            Treatment::Blocked { .. } => {}
            Treatment::Sampled { seen, .. } => {
                *seen = seen.saturating_add(one_in);
                // Without a filter of the kernel the server takes the sample.
                if (*seen).is_multiple_of(ONE_IN) {
                    return Screening::Passes;
                }
            }
            Treatment::Probed { seen, .. } => {
                *seen = seen.saturating_add(one_in);
                if *seen >= MAX_PROBED * ONE_IN && sender.may_extend() {
                    let excess = if sender.is_stranger { Excess::Stranger } else { Excess::Client };
                    sender.block(excess, now);
                    self.update_next_end();
                    self.dropped += 1;
                    return Screening::Blocks;
                }
            }
        }
        self.dropped += 1;
        Screening::Dropped
    }

    /// Returns how many datagrams of blocked senders were dropped unread.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Ends the blocks that are over. Returns whether the blocked senders have changed.
    pub(crate) fn end_blocks(&mut self, now: Instant) -> bool {
        if self.next_end.is_none_or(|end| now < end) {
            return false;
        }
        for sender in &mut self.senders {
            if sender.treatment.end().is_none_or(|end| now < end) {
                continue;
            }
            if let Treatment::Sampled { seen: MAX_SAMPLED.., .. } = sender.treatment {
                sender.sample(now);
                continue;
            }
            let is_blocked = matches!(sender.treatment, Treatment::Blocked { .. });
            // A session ends by authentic packets alone, so the last block is followed by no probe.
            if is_blocked && (sender.is_stranger || sender.has_ended || sender.level < MAX_LEVEL) {
                sender.treatment = Treatment::Probed { until: now.after(PROBE), seen: 0 };
            } else {
                sender.treatment = Treatment::Free;
                (sender.freed_at, sender.window_since, sender.excess) = (now, now, 0);
                sender.forgiven_at = now;
            }
        }
        self.update_next_end();
        true
    }

    fn update_next_end(&mut self) {
        self.next_end = self.senders.iter().filter_map(|sender| sender.treatment.end()).min();
    }

    /// Iterates over the blocked senders: the kernel drops their datagrams.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = BlockedSender> + '_ {
        self.senders.iter().filter_map(|sender| {
            let passing = match sender.treatment {
                Treatment::Free => return None,
                Treatment::Blocked { .. } => Passing::Nothing,
                Treatment::Probed { .. } | Treatment::Sampled { .. } => Passing::OneIn64,
            };
            Some(BlockedSender { address: sender.address.into(), passing })
        })
    }

    /// Remembers a sender, in a full table in the place of another one. Returns its index.
    fn add(&mut self, address: Address, now: Instant) -> usize {
        self.senders.retain(|sender| sender.remembered_until > now);
        let sender = FloodSource {
            address,
            window_since: now,
            excess: 0,
            // Its earlier packets are unknown, so its first block is not that of a flood in bursts.
            accepted: MIN_ACCEPTED,
            burst_blocks: 0,
            level: 0,
            stranger_blocks: 0,
            is_stranger: false,
            has_ended: false,
            treatment: Treatment::Free,
            freed_at: now,
            forgiven_at: now,
            remembered_until: now.after(WINDOW),
        };
        if self.senders.len() < MAX_SENDERS {
            self.senders.push(sender);
            return self.senders.len() - 1;
        }
        let evicted = (0..).zip(&self.senders).min_by_key(|(_, sender)| sender.eviction_order());
        let index = evicted.map_or(0, |(index, _)| index);
        if let Some(entry) = self.senders.get_mut(index) {
            *entry = sender;
        }
        self.update_next_end();
        index
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::junk_counts::MAX_JUNK;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn from(port: u16) -> Address {
        Address::from(SocketAddr::from(([192, 0, 2, 1], port)))
    }

    /// Sends until an action. Returns it, and how many datagrams were counted.
    fn flood(guard: &mut FloodGuard, port: u16, excess: Excess, now: Instant) -> (FloodAction, u32) {
        guard.on_tick(now);
        let mut actions = (1..=300).map(|count| (guard.on_excess(from(port), excess, now), count));
        actions.find(|(action, _)| *action != FloodAction::Nothing).unwrap_or((FloodAction::Nothing, 300))
    }

    /// Returns the ports that the kernel blocks, and whether they are probed.
    fn blocked(guard: &FloodGuard) -> Vec<(u16, bool)> {
        guard.blocked().map(|sender| (sender.address.port(), sender.passing == Passing::OneIn64)).collect()
    }

    #[test]
    fn blocks_double_and_after_two_seconds_the_session_ends() {
        let mut guard = FloodGuard::default();
        for turn in 0..100 {
            guard.on_tick(at(turn * 16));
            for _ in 0..MAX_FIRST_EXCESS - 1 {
                let action = guard.on_excess(from(1), Excess::Client, at(turn * 16));
                assert_eq!(action, FloodAction::Nothing, "below the limit in each window");
            }
        }
        let mut now = 2000;
        for block in [16, 32, 64, 128, 256, 512, 1024] {
            let max = if block == 16 { MAX_FIRST_EXCESS } else { MAX_EXCESS };
            assert_eq!(flood(&mut guard, 2, Excess::Client, at(now)), (FloodAction::Block, max), "{block} ms");
            assert_eq!(blocked(&guard), [(2, false)]);
            assert_eq!(guard.screen(from(2), ONE_IN, at(now)), Screening::Dropped);
            assert_eq!(guard.screen(from(1), ONE_IN, at(now)), Screening::Passes);
            assert!(!guard.end_blocks(at(now + block - 1)) && guard.end_blocks(at(now + block)));
            if block < 1024 {
                assert_eq!(blocked(&guard), [(2, true)]);
                assert_eq!(guard.screen(from(2), ONE_IN, at(now + block)), Screening::Dropped);
                assert!(guard.end_blocks(at(now + block + 32)));
            }
            assert_eq!(blocked(&guard), []);
            assert_eq!(guard.screen(from(2), ONE_IN, at(now + block + 32)), Screening::Passes);
            now += block + 33;
        }
        assert_eq!(flood(&mut guard, 2, Excess::Client, at(now)), (FloodAction::End, MAX_EXCESS));
        assert!(guard.end_blocks(at(now + 2048)) && blocked(&guard) == [(2, true)], "probed again after its end");
        assert_eq!(guard.dropped(), 13);
    }

    #[test]
    fn probed_sender_that_goes_on_is_blocked_twice_as_long() {
        for (one_in, datagrams) in [(ONE_IN, MAX_PROBED), (1, MAX_PROBED * ONE_IN)] {
            let mut guard = FloodGuard::default();
            flood(&mut guard, 1, Excess::Client, at(1000));
            assert!(guard.end_blocks(at(1016)));
            // Forged datagrams may look the same, so the first block is not lengthened.
            for _ in 0..2 * datagrams {
                assert_eq!(guard.screen(from(1), one_in, at(1017)), Screening::Dropped);
            }
            assert!(guard.end_blocks(at(1048)) && blocked(&guard).is_empty(), "freed as if nothing had come");
            assert_eq!(flood(&mut guard, 1, Excess::Client, at(1049)), (FloodAction::Block, MAX_EXCESS));
            assert!(guard.end_blocks(at(1081)));
            for _ in 1..datagrams {
                assert_eq!(guard.screen(from(1), one_in, at(1082)), Screening::Dropped);
            }
            assert_eq!(guard.screen(from(1), one_in, at(1082)), Screening::Blocks);
            assert_eq!(blocked(&guard), [(1, false)]);
            assert!(!guard.end_blocks(at(1145)) && guard.end_blocks(at(1146)));
        }
    }

    /// Floods for a moment, then is silent for this many milliseconds after the block and the probe. Returns the time
    /// after the pause, and the result of the flood.
    fn flood_and_pause(guard: &mut FloodGuard, pause: u64, now: u64) -> (u64, FloodAction) {
        let (action, _) = flood(guard, 1, Excess::Client, at(now));
        let mut end = now;
        while let Some(next) = guard.next_end {
            assert!(guard.end_blocks(next));
            end = next.since_start().as_millis() as u64;
        }
        (end + pause, action)
    }

    #[test]
    fn sender_with_long_pauses_begins_with_a_short_block_again() {
        let mut guard = FloodGuard::default();
        let mut now = 0;
        for _ in 0..MAX_BURST_BLOCKS {
            let start = now;
            let (next, action) = flood_and_pause(&mut guard, 500, now);
            assert_eq!((action, next - start), (FloodAction::Block, 16 + 32 + 500), "the shortest block");
            now = next;
        }
    }

    #[test]
    fn pause_of_half_a_second_lowers_the_level_by_one_only() {
        // A pause of 50 ms forgave all levels at first, and a flood with such pauses never ended.
        let mut guard = FloodGuard::default();
        let mut now = 0;
        for block in [16, 32, 64, 128] {
            let (next, _) = flood_and_pause(&mut guard, 60, now);
            assert_eq!(next - now, block + 32 + 60);
            now = next;
        }
        for (pause, block) in [(500, 128), (1000, 64), (5000, 16)] {
            let start = now - 60 + pause;
            now = flood_and_pause(&mut guard, 60, start).0;
            assert_eq!(now - start, block + 32 + 60, "after {pause} ms");
        }
    }

    #[test]
    fn flood_with_short_pauses_ends_within_seconds() {
        for pause in [0, 20, 49] {
            let mut guard = FloodGuard::default();
            let mut now = 0;
            loop {
                let (next, action) = flood_and_pause(&mut guard, pause, now);
                if action == FloodAction::End {
                    break;
                }
                assert_eq!(action, FloodAction::Block);
                now = next;
            }
            assert!(now < 6000, "pauses of {pause} ms: ended after {now} ms");
        }
    }

    /// Floods in bursts with pauses until the session ends or `bursts` are over. Before each burst `accepted` packets
    /// are within the budget. Returns the end, and the longest block in milliseconds.
    fn bursts(accepted: &mut dyn FnMut(u32) -> u32, pause: u64, bursts: u32) -> (Option<u64>, u64) {
        let mut guard = FloodGuard::default();
        let (mut now, mut longest) = (0, 0);
        for burst in 0..bursts {
            (0..accepted(burst)).for_each(|_| {
                assert_eq!(guard.on_handled(from(1), DatagramResult::Accepted, at(now)), FloodAction::Nothing);
            });
            let (next, action) = flood_and_pause(&mut guard, pause, now);
            if action == FloodAction::End {
                return (Some(now), longest);
            }
            (now, longest) = (next, longest.max(next - now - pause - 32));
        }
        (None, longest)
    }

    #[test]
    fn excess_of_an_upload_is_blocked_but_ends_no_session() {
        // An honest upload on a path that is faster than its budget was ended by such excesses. A third of its blocks
        // look like those of a flood in bursts.
        for pause in [50, 60, 100, 250, 400, 499] {
            let mut accepted = |burst| if burst % 3 == 0 { 600 } else { 2000 };
            assert_eq!(bursts(&mut accepted, pause, 300), (None, 256), "pauses of {pause} ms");
        }
    }

    #[test]
    fn flood_in_bursts_ends_after_sixteen_of_them() {
        // The budget of a turn is accepted each time.
        for (pause, seconds) in [(50, 6), (100, 7), (250, 8), (500, 10), (1000, 18), (5000, 90)] {
            let (end, longest) = bursts(&mut |_| 256, pause, 300);
            assert!(end.is_some_and(|end| end < seconds * 1000), "pauses of {pause} ms: {end:?}");
            assert!(longest <= 256, "{longest} ms");
        }
        assert_eq!(bursts(&mut |_| 256, 10_000, 300).0, None, "rare bursts are harmless");
    }

    #[test]
    fn slow_loop_may_find_the_excess_of_four_ticks() {
        for (millis, ticks) in [(10, 1), (16, 1), (33, 2), (50, 3), (200, 4), (60_000, 4)] {
            let mut guard = FloodGuard::default();
            guard.on_tick(at(1000));
            let now = at(1000 + millis);
            for _ in 1..MAX_FIRST_EXCESS * ticks {
                assert_eq!(guard.on_excess(from(1), Excess::Client, now), FloodAction::Nothing, "{millis} ms");
            }
            assert_eq!(guard.on_excess(from(1), Excess::Client, now), FloodAction::Block, "{millis} ms");
        }
    }

    #[test]
    fn junk_of_an_address_is_sampled_while_it_goes_on() {
        for outcome in [DatagramResult::Junk, DatagramResult::Excess(Excess::Stranger)] {
            let mut guard = FloodGuard::default();
            for _ in 1..MAX_JUNK {
                assert_eq!(guard.on_handled(from(1), outcome, at(1000)), FloodAction::Nothing);
            }
            assert_eq!(guard.on_handled(from(1), outcome, at(1000)), FloodAction::Block);
            for second in 1..5 {
                assert_eq!(blocked(&guard), [(1, true)], "a sample passes");
                // The kernel has dropped the others, and the server handles these.
                for _ in 0..400 {
                    assert_eq!(guard.screen(from(1), ONE_IN, at(1000 * second)), Screening::Passes);
                    assert_eq!(guard.on_handled(from(1), outcome, at(1000 * second)), FloodAction::Nothing);
                }
                assert!(guard.end_blocks(at(1000 + 1000 * second)));
            }
            // A client at 15,000 a second is not sampled again.
            for _ in 0..15_000 / ONE_IN {
                assert_eq!(guard.screen(from(1), ONE_IN, at(5500)), Screening::Passes);
            }
            assert!(guard.end_blocks(at(6000)) && blocked(&guard).is_empty());
            assert_eq!(guard.on_excess(from(1), Excess::Client, at(6100)), FloodAction::Nothing, "no level is raised");
        }
    }

    #[test]
    fn server_takes_the_sample_where_the_kernel_has_no_filter() {
        let mut guard = FloodGuard::default();
        for _ in 0..MAX_JUNK {
            guard.on_handled(from(1), DatagramResult::Junk, at(1000));
        }
        let passed = (0..6400).filter(|_| guard.screen(from(1), 1, at(1001)) == Screening::Passes).count();
        assert_eq!((passed, guard.dropped()), (100, 6300));
        assert_eq!(guard.screen(from(2), 1, at(1001)), Screening::Passes);
    }

    #[test]
    fn stranger_is_blocked_only_if_it_was_a_hostile_client() {
        let mut guard = FloodGuard::default();
        assert_eq!(flood(&mut guard, 1, Excess::Stranger, at(0)).0, FloodAction::Nothing);
        assert_eq!(flood(&mut guard, 1, Excess::Client, at(0)).0, FloodAction::Block);
        assert!(guard.end_blocks(at(16)) && guard.end_blocks(at(48)));
        guard.on_violation(from(2), at(50));
        let mut now = 50;
        for seconds in [1, 2, 4, 8, 16, 16, 16] {
            for port in [1, 2] {
                assert_eq!(flood(&mut guard, port, Excess::Stranger, at(now)).0, FloodAction::Block);
            }
            assert!(!guard.end_blocks(at(now + 1000 * seconds - 1)), "{seconds} s");
            now += 1000 * seconds;
            assert!(guard.end_blocks(at(now)) && blocked(&guard) == [(1, true), (2, true)]);
            now += 32;
            assert!(guard.end_blocks(at(now)) && blocked(&guard).is_empty());
        }
    }

    #[test]
    fn many_senders_do_not_free_a_blocked_one() {
        let mut guard = FloodGuard::default();
        // The first one is blocked for longer each time.
        for (now, block) in [(0, 16), (50, 32), (120, 64), (220, 128)] {
            assert_eq!(flood(&mut guard, 1, Excess::Client, at(now)).0, FloodAction::Block);
            assert!(guard.end_blocks(at(now + block)) && guard.end_blocks(at(now + block + 32)));
        }
        assert_eq!(flood(&mut guard, 1, Excess::Client, at(381)).0, FloodAction::Block);
        for port in 2..1000 {
            flood(&mut guard, port, Excess::Client, at(381 + u64::from(port) / 10));
            assert!(guard.senders.len() <= MAX_SENDERS && guard.blocked().count() <= MAX_SENDERS);
            assert!(blocked(&guard).contains(&(1, false)) && blocked(&guard).contains(&(port, false)), "{port}");
        }
        // Single datagrams over a budget, without a block.
        let mut guard = FloodGuard::default();
        flood(&mut guard, 1, Excess::Client, at(0));
        (2..1000).for_each(|port| assert_eq!(guard.on_excess(from(port), Excess::Client, at(1)), FloodAction::Nothing));
        assert_eq!(blocked(&guard), [(1, false)]);
    }
}
