//! The sample of an address with much junk: the packets that the client there sends next, and one of 64 of the others.
//!
//! ```text
//!   1,024 pieces of junk in 16 ms ──▶ the next 1,024 numbers pass ──▶ only one of 64 datagrams passes
//!                                        │ 24,000 or fewer in 1 s ▲     too much in 4 ms with these very numbers
//!                                        ▼                        │
//!                                       free                      └── moves on with the client's packets
//! ```
//!
//! These are pieces of 60 bytes; longer ones count more. The sequence number of a packet is in the clear. An attacker
//! that does not see the client's packets guesses it, and one of 64 numbers lies in the sample. The client's own
//! packets pass. It cannot get lost: the random sample and the client's next authentic packet move the window.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_udp::{NEXT_SEQUENCES, Passing};

use crate::junk_counts::junk_cost;

/// The datagrams outside the window of which the kernel lets one pass, and those of a probed sender.
pub(crate) const ONE_IN: u32 = 64;
/// The datagrams of a sampled address in a second, as far as the sample shows, beyond which it is sampled again.
const MAX_SAMPLED: u32 = 24_000;
/// How far the client's packets may be ahead of the window before it moves. Each move changes the kernel's filter.
const MAX_LEAD: u16 = NEXT_SEQUENCES / 4;
/// The interval in which junk within the window is counted.
const INTERVAL: Duration = Duration::from_millis(4);
/// The maximum cost of junk within the window in [`INTERVAL`]: 400,000 datagrams of 60 bytes a second, or 130,000 of
/// 1,200 bytes. These take less than half of a core. A flood at the speed of a core would fill the receive buffer for
/// all clients.
pub(super) const MAX_JUNK_COST: u32 = 1600 * junk_cost(60);

/// The datagrams of an address that pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct JunkSample {
    /// The first sequence number that passes, modulo 2^16, `None` if only the random sample does.
    first: Option<u16>,
    /// The datagrams in the window, and the others as far as the random sample shows.
    seen_next: u32,
    seen_others: u32,
    since: Instant,
    junk_cost: u32,
    max_junk_cost: u32,
}

impl JunkSample {
    /// Begins with the sequence number that a client at the address sends next.
    pub(super) fn new(next: Option<u64>, now: Instant) -> Self {
        let first = next.map(|next| next as u16);
        Self { first, seen_next: 0, seen_others: 0, since: now, junk_cost: 0, max_junk_cost: MAX_JUNK_COST }
    }

    /// Returns which datagrams the kernel lets pass.
    pub(super) fn passing(&self) -> Passing {
        self.first.map_or(Passing::OneIn64, |first| Passing::Next { first })
    }

    /// Counts a datagram that has passed the kernel. Returns whether the server handles it. A datagram outside the
    /// window stands for `one_in`.
    pub(super) fn passes(&mut self, sequence: Option<u16>, one_in: u32) -> bool {
        if let (Some(first), Some(sequence)) = (self.first, sequence)
            && sequence.wrapping_sub(first) < NEXT_SEQUENCES
        {
            self.seen_next = self.seen_next.saturating_add(1);
            return true;
        }
        self.seen_others = self.seen_others.saturating_add(one_in);
        // Without a filter of the kernel the server takes the sample.
        self.seen_others.is_multiple_of(ONE_IN)
    }

    /// Starts the counts again. Returns whether the junk went on.
    pub(super) fn renew(&mut self) -> bool {
        let seen = self.seen_next.saturating_add(self.seen_others);
        (self.seen_next, self.seen_others) = (0, 0);
        seen >= MAX_SAMPLED
    }

    /// Moves the window behind an authentic packet of the client that is far ahead. Returns whether it has moved.
    pub(super) fn follow(&mut self, sequence: Option<u16>) -> bool {
        let (Some(first), Some(sequence)) = (&mut self.first, sequence) else { return false };
        let next = sequence.wrapping_add(1);
        // A packet behind the window was late.
        let has_moved = (MAX_LEAD..u16::MAX - NEXT_SEQUENCES).contains(&next.wrapping_sub(*first));
        if has_moved {
            *first = next;
        }
        has_moved
    }

    /// Counts a datagram of this length that was junk. Returns whether the sample has changed, because there is too
    /// much junk within the window. `intervals` is how many of [`INTERVAL`] the junk may have waited in the socket.
    pub(super) fn on_junk(
        &mut self,
        bytes: usize,
        next: impl FnOnce() -> Option<u64>,
        intervals: u32,
        now: Instant,
    ) -> bool {
        if now.reached(self.since, INTERVAL) {
            (self.since, self.junk_cost, self.max_junk_cost) = (now, 0, MAX_JUNK_COST * intervals);
        }
        self.junk_cost = self.junk_cost.saturating_add(junk_cost(bytes));
        if self.first.is_none() || self.junk_cost < self.max_junk_cost {
            return false;
        }
        // Packets that repeat the numbers before the client's next one fall out of the window at first.
        let next = next().map(|next| next as u16);
        self.first = next.filter(|next| self.first != Some(*next));
        self.junk_cost = 0;
        true
    }
}

/// How long the server has not read, for loops that read at each tick only.
#[derive(Default)]
pub(super) struct ReadGap {
    last_read: Instant,
    ended_at: Instant,
    /// The gap in multiples of [`INTERVAL`].
    intervals: u32,
}

impl ReadGap {
    /// The maximum of the gap: a tick at 60 Hz.
    const MAX_INTERVALS: u128 = 4;

    /// Records that the server reads.
    pub(super) fn on_read(&mut self, now: Instant) {
        let intervals = now.since(self.last_read).as_millis() / INTERVAL.as_millis();
        if intervals > 0 {
            (self.intervals, self.ended_at) = (intervals.min(Self::MAX_INTERVALS) as u32, now);
        }
        self.last_read = now;
    }

    /// Returns how many intervals what is read now may have waited, at least 1.
    pub(super) fn intervals(&self, now: Instant) -> u32 {
        if now.reached(self.ended_at, INTERVAL * 2) { 1 } else { self.intervals.max(1) }
    }
}
