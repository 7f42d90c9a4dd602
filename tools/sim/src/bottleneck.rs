//! The link: a buffer, a rate, stalls. Datagrams leave it in the order in which they came.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::conditions::{Buffer, RateLimit, Stalls};
use crate::stalls::StallSchedule;
use crate::store::Held;

/// Datagrams that wait for the link, the first of them on it.
#[derive(Debug)]
pub(crate) struct Bottleneck<T> {
    limit: Option<RateLimit>,
    stalls: StallSchedule,
    line: VecDeque<Held<T>>,
    bytes: usize,
    /// When the first of the line has left.
    first_leaves: Instant,
    /// Until when the link was told to stand still.
    held_until: Instant,
}

impl<T> Bottleneck<T> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            limit: None,
            stalls: StallSchedule::new(seed),
            line: VecDeque::new(),
            bytes: 0,
            first_leaves: Instant::NEVER,
            held_until: Instant::default(),
        }
    }

    /// What the link is like from now on. The datagram on it leaves as it would have.
    pub(crate) fn set(&mut self, limit: Option<RateLimit>, stalls: Option<Stalls>, now: Instant) {
        self.limit = limit;
        self.stalls.set(stalls, now);
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len()
    }

    pub(crate) const fn stalls_passed(&self) -> u64 {
        self.stalls.passed()
    }

    /// How long a datagram would wait that came now.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        let Some(first) = self.line.front() else { return self.held_until.since(now) };
        let behind = self.bytes - first.bytes.len();
        let theirs = self.limit.map_or(Duration::ZERO, |limit| limit.rate.time_for(behind));
        self.first_leaves.since(now).saturating_add(theirs)
    }

    /// Whether the buffer has room.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        // DECISION: one datagram always fits, or a buffer smaller than a datagram would lose all of them.
        let Some(limit) = self.limit.filter(|_| !self.line.is_empty()) else { return true };
        let room = match limit.buffer {
            Buffer::Bytes(bytes) => bytes,
            Buffer::Time(time) => limit.rate.bytes_in(time),
        };
        self.bytes.saturating_add(bytes) <= room
    }

    /// A datagram comes.
    pub(crate) fn enter(&mut self, held: Held<T>, now: Instant) {
        self.bytes += held.bytes.len();
        self.line.push_back(held);
        if self.line.len() == 1 {
            self.begin(now);
        }
    }

    /// The first datagram that has left by now, and when.
    pub(crate) fn leave(&mut self, now: Instant) -> Option<(Held<T>, Instant)> {
        let left = self.next_leaves().filter(|leaves| *leaves <= now)?;
        let held = self.line.pop_front()?;
        self.bytes -= held.bytes.len();
        self.begin(left);
        Some((held, left))
    }

    /// When the next datagram leaves.
    pub(crate) fn next_leaves(&self) -> Option<Instant> {
        (!self.line.is_empty()).then_some(self.first_leaves)
    }

    /// The link stands still for a while.
    pub(crate) fn hold(&mut self, duration: Duration, now: Instant) {
        let until = now.after(duration);
        let longer = until.since(self.held_until.max(now));
        self.held_until = self.held_until.max(until);
        self.first_leaves = self.first_leaves.after(longer);
    }

    /// The first of the line gets the link, at `start` or when the link is free.
    fn begin(&mut self, start: Instant) {
        let Some(first) = self.line.front() else { return };
        let work = self.limit.map_or(Duration::ZERO, |limit| limit.rate.time_for(first.bytes.len()));
        self.first_leaves = self.stalls.done(start.max(self.held_until), work);
    }
}
