//! The kernel drops the datagrams of senders for a while, because they send far more than they may.
//!
//! The server would drop these datagrams itself, but at 400,000 a second reading them takes a core, and the receive
//! buffer overflows for all clients. A client uses up its budget and exceeds it by authentic packets alone. Forged
//! ones count as its excess only when the client itself is 1,024 packets beyond its budget, and blocked already.
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
//! forges the address. They end no session. When an address has more than 64,000 of 60 bytes a second, the kernel
//! passes the packets that the client there sends next, by their sequence numbers, and one of 64 of the others, until
//! they are fewer. The server handles these, so a client that did not send the junk keeps its session and its packets:
//! see `sample`.

mod sample;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::time::Instant;
use slipgate_udp::{BlockedSender, Passing, sequence_of};

pub(crate) use self::sample::ONE_IN;
use self::sample::{JunkSample, ReadGap};
use crate::junk_counts::JunkCounts;

/// The senders that are remembered at once. The program of the kernel filter grows by 5 to 25 instructions for each. It
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
/// Packets within its budget between two blocks that distinguish an upload from a flood in bursts: the budgets of 4
/// ticks.
const MIN_ACCEPTED: u32 = 1024;
/// Blocks of a flood in bursts after which its session ends: 5 s with pauses of 50 ms, 10 s with pauses of 500 ms.
const MAX_BURST_BLOCKS: u32 = 16;
/// A client that is not blocked for this time has one block of a flood in bursts less.
const BURST_FORGIVEN: Duration = Duration::from_secs(10);
/// How long the kernel passes a sample of the datagrams of an address with much junk.
const SAMPLED: Duration = Duration::from_secs(1);
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

/// The action against a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FloodAction {
    /// Nothing.
    Nothing,
    /// It is blocked from now on, or other datagrams of it pass.
    Block,
    /// It is blocked from now on, and its session ends: it went on after the longest block.
    End,
}

/// The handling of a datagram before it is decrypted.
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
    /// Some of its datagrams pass and are handled.
    Sampled {
        until: Instant,
        sample: JunkSample,
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
    /// Whether a session at the address ended by a violation.
    has_violated: bool,
    /// Whether the kernel had no memory to drop its datagrams.
    is_refused: bool,
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
    fn sample(&mut self, sample: JunkSample, now: Instant) {
        let until = now.after(SAMPLED);
        self.treatment = Treatment::Sampled { until, sample };
        self.remembered_until = self.remembered_until.max(until.after(WINDOW));
    }

    /// Returns the order in which senders are forgotten: blocked ones last. Junk from many addresses must not make the
    /// guard forget a client that was blocked, so it displaces other junk first.
    const fn eviction_order(&self) -> (u8, u32, Instant) {
        let was_blocked = self.level > 0 || self.burst_blocks > 0 || self.stranger_blocks > 0;
        let has_history = was_blocked || self.has_ended || self.has_violated;
        let rank = match self.treatment {
            Treatment::Free | Treatment::Sampled { .. } if has_history => 2,
            Treatment::Free => 0,
            Treatment::Sampled { .. } => 1,
            Treatment::Probed { .. } => 3,
            Treatment::Blocked { .. } => 4,
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
    /// The index of each sender: each packet is looked up while there is any.
    indices: HashMap<Address, usize>,
    junk: JunkCounts,
    last_tick: Instant,
    read_gap: ReadGap,
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

    /// Records that the server reads datagrams.
    pub(crate) fn on_read(&mut self, now: Instant) {
        self.read_gap.on_read(now);
    }

    /// Records the result of a datagram. `next` returns the sequence number that a client at the address sends next.
    /// Unless it returns `Nothing`, the blocked senders have changed.
    #[inline]
    pub(crate) fn on_handled(
        &mut self,
        from: Address,
        datagram: &[u8],
        outcome: DatagramResult,
        next: impl FnOnce() -> Option<u64>,
        now: Instant,
    ) -> FloodAction {
        match outcome {
            DatagramResult::Accepted if self.senders.is_empty() => FloodAction::Nothing,
            DatagramResult::Accepted => self.on_accepted(from, datagram),
            DatagramResult::Excess(Excess::Client) => self.on_excess(from, Excess::Client, now),
            DatagramResult::Excess(Excess::Stranger) => {
                let action = self.on_excess(from, Excess::Stranger, now);
                if action == FloodAction::Nothing { self.on_junk(from, datagram.len(), next, now) } else { action }
            }
            DatagramResult::Junk => self.on_junk(from, datagram.len(), next, now),
        }
    }

    /// Counts a packet within its sender's budget.
    fn on_accepted(&mut self, from: Address, datagram: &[u8]) -> FloodAction {
        let Some(sender) = self.find(from) else { return FloodAction::Nothing };
        sender.accepted = sender.accepted.saturating_add(1);
        let has_moved = match &mut sender.treatment {
            Treatment::Sampled { sample, .. } => sample.follow(sequence_of(datagram)),
            _ => false,
        };
        if has_moved { FloodAction::Block } else { FloodAction::Nothing }
    }

    /// Counts a datagram of unproven origin.
    fn on_junk(
        &mut self,
        from: Address,
        bytes: usize,
        next: impl FnOnce() -> Option<u64>,
        now: Instant,
    ) -> FloodAction {
        let intervals = self.read_gap.intervals(now);
        let is_too_much = self.junk.add(from, bytes, now);
        if let Some(sender) = self.find(from)
            && let Treatment::Sampled { sample, .. } = &mut sender.treatment
        {
            let has_changed = sample.on_junk(bytes, next, intervals, now);
            return if has_changed { FloodAction::Block } else { FloodAction::Nothing };
        }
        if !is_too_much {
            return FloodAction::Nothing;
        }
        let index = self.index(from).unwrap_or_else(|| self.add(from, now));
        let Some(sender) = self.senders.get_mut(index) else { return FloodAction::Nothing };
        if sender.treatment != Treatment::Free {
            return FloodAction::Nothing;
        }
        sender.sample(JunkSample::new(next(), now), now);
        self.update_next_end();
        FloodAction::Block
    }

    /// Returns the index of a sender that is remembered.
    #[inline]
    fn index(&self, address: Address) -> Option<usize> {
        if self.senders.is_empty() { None } else { self.indices.get(&address).copied() }
    }

    #[inline]
    fn find(&mut self, address: Address) -> Option<&mut FloodSource> {
        let index = self.index(address)?;
        self.senders.get_mut(index)
    }

    /// Counts a datagram over its sender's budget. Unless it returns `Nothing`, the blocked senders have changed.
    fn on_excess(&mut self, from: Address, excess: Excess, now: Instant) -> FloodAction {
        let Some(index) = self.index(from).or_else(|| (excess == Excess::Client).then(|| self.add(from, now))) else {
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
        let index = self.index(from).unwrap_or_else(|| self.add(from, now));
        if let Some(sender) = self.senders.get_mut(index) {
            sender.has_violated = true;
            sender.remembered_until = sender.remembered_until.max(now.after(REMEMBERED));
        }
    }

    /// Returns what happens to a datagram. What had passed the kernel before a block is dropped without decryption.
    /// `one_in` says how many datagrams of a probed sender one stands for.
    #[inline]
    pub(crate) fn screen(&mut self, from: Address, datagram: &[u8], one_in: u32, now: Instant) -> Screening {
        if self.next_end.is_none() { Screening::Passes } else { self.screen_known(from, datagram, one_in, now) }
    }

    fn screen_known(&mut self, from: Address, datagram: &[u8], one_in: u32, now: Instant) -> Screening {
        let Some(sender) = self.find(from) else { return Screening::Passes };
        let one_in = if sender.is_refused { 1 } else { one_in };
        match &mut sender.treatment {
            Treatment::Free => return Screening::Passes,
            Treatment::Blocked { .. } => {}
            Treatment::Sampled { sample, .. } => {
                if sample.passes(sequence_of(datagram), one_in) {
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
            if let Treatment::Sampled { mut sample, .. } = sender.treatment
                && sample.renew()
            {
                sender.sample(sample, now);
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

    /// Returns the senders that the kernel should block. Those with the longest history come first: some kernels have
    /// no memory for all.
    pub(crate) fn blocked(&self) -> Vec<BlockedSender> {
        let mut senders: Vec<_> = self.senders.iter().collect();
        senders.sort_by_key(|sender| Reverse(sender.eviction_order()));
        let blocked = senders.into_iter().filter_map(|sender| {
            let passing = match sender.treatment {
                Treatment::Free => return None,
                Treatment::Blocked { .. } => Passing::Nothing,
                Treatment::Probed { .. } => Passing::OneIn64,
                Treatment::Sampled { sample, .. } => sample.passing(),
            };
            Some(BlockedSender { address: sender.address.into(), passing })
        });
        blocked.collect()
    }

    /// Records which senders the kernel does not drop: all their datagrams reach the server.
    pub(crate) fn set_refused(&mut self, refused: &[BlockedSender]) {
        for sender in &mut self.senders {
            let address = sender.address.into();
            sender.is_refused = refused.iter().any(|refused| refused.address == address);
        }
    }

    /// Forgets the senders that sent nothing too much for a while.
    fn forget(&mut self, now: Instant) {
        let before = self.senders.len();
        self.senders.retain(|sender| sender.remembered_until > now);
        if self.senders.len() < before {
            self.indices.clear();
            self.indices.extend(self.senders.iter().zip(0..).map(|(sender, index)| (sender.address, index)));
        }
    }

    /// Remembers a sender, in a full table in the place of another one. Returns its index.
    fn add(&mut self, address: Address, now: Instant) -> usize {
        self.forget(now);
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
            has_violated: false,
            is_refused: false,
            treatment: Treatment::Free,
            freed_at: now,
            forgiven_at: now,
            remembered_until: now.after(WINDOW),
        };
        if self.senders.len() < MAX_SENDERS {
            self.indices.insert(address, self.senders.len());
            self.senders.push(sender);
            return self.senders.len() - 1;
        }
        let evicted = (0..).zip(&self.senders).min_by_key(|(_, sender)| sender.eviction_order());
        let index = evicted.map_or(0, |(index, _)| index);
        if let Some(entry) = self.senders.get_mut(index) {
            self.indices.remove(&entry.address);
            self.indices.insert(address, index);
            *entry = sender;
        }
        self.update_next_end();
        index
    }
}

#[cfg(test)]
mod tests;
