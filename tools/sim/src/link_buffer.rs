//! The conditioner's link: a tail-drop buffer, a rate and stalls. Datagrams leave in the order in which they entered.
//!
//! It computes in whole nanoseconds and bytes, so that delays are exact. A change of the rate takes effect with the
//! next datagram. The laboratory's [`Bottleneck`](crate::Bottleneck) changes its rate in the middle of a packet and
//! supports CoDel instead; merging the two would change the laboratory's figures.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::buffers::InTransit;
use crate::conditions::{Buffer, RateLimit, Stalls};
use crate::stalls::StallSchedule;

/// The datagrams that wait for the link. The first of them is being transmitted.
#[derive(Debug)]
pub(crate) struct LinkBuffer<T> {
    limit: Option<RateLimit>,
    stalls: StallSchedule,
    queue: VecDeque<InTransit<T>>,
    bytes: usize,
    /// When the transmission of the first datagram ends.
    head_departs: Instant,
    /// The end of the current hold, see [`hold`](Self::hold).
    held_until: Instant,
}

impl<T> LinkBuffer<T> {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            limit: None,
            stalls: StallSchedule::new(seed),
            queue: VecDeque::new(),
            bytes: 0,
            head_departs: Instant::NEVER,
            held_until: Instant::default(),
        }
    }

    /// Changes rate, buffer and stalls. The datagram in transmission departs as planned.
    pub(crate) fn set(&mut self, limit: Option<RateLimit>, stalls: Option<Stalls>, now: Instant) {
        self.limit = limit;
        self.stalls.set(stalls, now);
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) const fn stalls_met(&self) -> u64 {
        self.stalls.met()
    }

    /// Returns how long a datagram that enters now waits before its transmission starts.
    pub(crate) fn queue_delay(&self, now: Instant) -> Duration {
        let Some(first) = self.queue.front() else { return self.held_until.since(now) };
        let behind = self.bytes - first.bytes.len();
        let transmission = self.limit.map_or(Duration::ZERO, |limit| limit.rate.time_for(behind));
        self.head_departs.since(now).saturating_add(transmission)
    }

    /// Returns whether a datagram of this size fits into the buffer.
    pub(crate) fn has_space(&self, bytes: usize) -> bool {
        // DECISION: one datagram always fits. Otherwise a buffer smaller than a datagram would lose all of them.
        let Some(limit) = self.limit.filter(|_| !self.queue.is_empty()) else { return true };
        let capacity = match limit.buffer {
            Buffer::Bytes(bytes) => bytes,
            Buffer::Time(time) => limit.rate.bytes_in(time),
        };
        self.bytes.saturating_add(bytes) <= capacity
    }

    /// Enqueues a datagram.
    pub(crate) fn enqueue(&mut self, datagram: InTransit<T>, now: Instant) {
        self.bytes += datagram.bytes.len();
        self.queue.push_back(datagram);
        if self.queue.len() == 1 {
            self.start_transmission(now);
        }
    }

    /// Dequeues the first datagram if its transmission has ended by now, and returns the moment at which it ended.
    pub(crate) fn depart(&mut self, now: Instant) -> Option<(InTransit<T>, Instant)> {
        let sent_at = self.next_departure().filter(|departs| *departs <= now)?;
        let datagram = self.queue.pop_front()?;
        self.bytes -= datagram.bytes.len();
        self.start_transmission(sent_at);
        Some((datagram, sent_at))
    }

    /// Returns when the next transmission ends; `None` if the buffer is empty.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        (!self.queue.is_empty()).then_some(self.head_departs)
    }

    /// Holds the link: no bit leaves for this duration.
    pub(crate) fn hold(&mut self, duration: Duration, now: Instant) {
        let until = now.after(duration);
        let longer = until.since(self.held_until.max(now));
        self.held_until = self.held_until.max(until);
        self.head_departs = self.head_departs.after(longer);
    }

    /// Starts the transmission of the first datagram, at `start` or at the end of a hold.
    fn start_transmission(&mut self, start: Instant) {
        let Some(first) = self.queue.front() else { return };
        let transmission = self.limit.map_or(Duration::ZERO, |limit| limit.rate.time_for(first.bytes.len()));
        self.head_departs = self.stalls.finish(start.max(self.held_until), transmission);
    }
}
