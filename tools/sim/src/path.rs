//! One direction of a path, as a value: datagrams are pushed in and arrive later.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::buffers::{BufferPool, InTransit};
use crate::conditions::{Conditions, Order};
use crate::in_flight::{InFlight, Scheduled};
use crate::link_buffer::LinkBuffer;
use crate::loss::LossProcess;
use crate::random::{Process, Random};
use crate::stats::DirectionStats;

/// The maximum number of datagrams in transit. Datagrams beyond it are dropped and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// In datagrams.
    pub datagrams: usize,
    /// In bytes of datagrams.
    pub bytes: usize,
}

impl Default for Bounds {
    /// Returns 16,384 datagrams and 16 MiB: enough for 200 Mbit/s over 0.6 s.
    fn default() -> Self {
        Self { datagrams: 16_384, bytes: 16 << 20 }
    }
}

/// A datagram at the far end of the path. Its bytes stay valid until the next call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<'a, T = ()> {
    /// When it arrived, which may be earlier than the poll.
    pub at: Instant,
    /// The tag with which it was pushed.
    pub tag: T,
    /// The datagram.
    pub bytes: &'a [u8],
}

/// One direction of a path. The seed decides all random outcomes; they do not depend on how often the path is polled.
///
/// [`Bounds`] limits the memory, and buffers are reused: after warm-up a datagram of up to 1,280 bytes needs no
/// allocation. A datagram may carry a tag, for example its two addresses, so that one path serves many endpoints.
#[derive(Debug)]
pub struct Path<T = ()> {
    conditions: Conditions,
    bounds: Bounds,
    link: LinkBuffer<T>,
    loss: LossProcess,
    streams: Streams,
    in_flight: InFlight<T>,
    buffers: BufferPool,
    arrived: Vec<u8>,
    /// The number of datagrams that passed the link, without those lost. Copies have the number of their original.
    departures: u64,
    /// The arrival time of the last datagram that keeps the order.
    in_order_until: Instant,
    newest_delivered: u64,
    stats: DirectionStats,
}

#[derive(Debug)]
struct Streams {
    duplication: Random,
    corruption: Random,
    jitter: Random,
    reordering: Random,
}

impl Streams {
    fn new(seed: u64) -> Self {
        Self {
            duplication: Process::Duplication.stream(seed),
            corruption: Process::Corruption.stream(seed),
            jitter: Process::Jitter.stream(seed),
            reordering: Process::Reordering.stream(seed),
        }
    }
}

impl Path {
    /// Sends a datagram.
    pub fn push(&mut self, datagram: &[u8], now: Instant) {
        self.push_tagged((), datagram, now);
    }
}

impl<T: Copy> Path<T> {
    /// Creates an empty path with the default bounds.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self::bounded(conditions, seed, Bounds::default())
    }

    /// Creates an empty path with these bounds.
    #[must_use]
    pub fn bounded(conditions: Conditions, seed: u64, bounds: Bounds) -> Self {
        let mut path = Self {
            conditions,
            bounds,
            link: LinkBuffer::new(seed),
            loss: LossProcess::new(Process::Loss.stream(seed)),
            streams: Streams::new(seed),
            in_flight: InFlight::default(),
            buffers: BufferPool::default(),
            arrived: Vec::new(),
            departures: 0,
            in_order_until: Instant::default(),
            newest_delivered: 0,
            stats: DirectionStats::default(),
        };
        path.link.set(conditions.rate, conditions.stalls, Instant::default());
        path
    }

    /// Returns the current conditions.
    #[must_use]
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Changes the conditions. They apply to datagrams that still wait for the link; datagrams behind the link arrive
    /// as planned.
    pub fn set_conditions(&mut self, conditions: Conditions, now: Instant) {
        self.advance(now);
        self.conditions = conditions;
        self.link.set(conditions.rate, conditions.stalls, now);
    }

    /// Holds the link for this duration: a stall on demand.
    pub fn hold(&mut self, duration: Duration, now: Instant) {
        self.advance(now);
        self.link.hold(duration, now);
    }

    /// Sends a datagram with a tag that arrives with it.
    pub fn push_tagged(&mut self, tag: T, datagram: &[u8], now: Instant) {
        self.advance(now);
        self.stats.pushed += 1;
        self.stats.pushed_bytes += datagram.len() as u64;
        if !self.has_space(1, datagram.len()) {
            self.stats.overflowed += 1;
        } else if !self.link.has_space(datagram.len()) {
            self.stats.tail_dropped += 1;
        } else {
            let bytes = self.buffers.copy(datagram);
            self.link.enqueue(InTransit { tag, bytes }, now);
            self.advance(now);
        }
    }

    /// Returns the next datagram that has arrived by now, earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<Arrival<'_, T>> {
        self.advance(now);
        let Scheduled { due, number, datagram } = self.in_flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += datagram.bytes.len() as u64;
        self.stats.overtaken += u64::from(number < self.newest_delivered);
        self.newest_delivered = self.newest_delivered.max(number);
        let previous = core::mem::replace(&mut self.arrived, datagram.bytes);
        self.buffers.recycle(previous);
        Some(Arrival { at: due, tag: datagram.tag, bytes: &self.arrived })
    }

    /// Returns when the path must be polled next; nothing arrives before. A datagram that leaves the link then may
    /// arrive later still or be lost, so that the poll may return nothing.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        [self.in_flight.next_due(), self.link.next_departure()].into_iter().flatten().min()
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> DirectionStats {
        DirectionStats { stalls: self.link.stalls_met(), ..self.stats }
    }

    /// Returns how many datagrams are in transit, before the link and behind it.
    #[must_use]
    pub fn in_transit(&self) -> usize {
        self.link.len() + self.in_flight.len()
    }

    /// Returns how many bytes wait for the link, the datagram in transmission included.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.link.bytes()
    }

    /// Returns how long a datagram pushed now would wait for the link, without future stalls.
    #[must_use]
    pub fn queue_delay(&self, now: Instant) -> Duration {
        self.link.queue_delay(now)
    }

    fn has_space(&self, datagrams: usize, bytes: usize) -> bool {
        let bytes_held = self.link.bytes() + self.in_flight.bytes();
        self.in_transit() + datagrams <= self.bounds.datagrams && bytes_held.saturating_add(bytes) <= self.bounds.bytes
    }

    /// Moves each datagram that has passed the link by now into flight. Random numbers are drawn only here, in the
    /// order of departure, so that the outcome does not depend on when the path is polled.
    fn advance(&mut self, now: Instant) {
        while let Some((datagram, sent_at)) = self.link.depart(now) {
            self.on_sent(datagram, sent_at);
        }
    }

    /// Decides whether a datagram that passed the link is lost or duplicated.
    fn on_sent(&mut self, datagram: InTransit<T>, sent_at: Instant) {
        if self.loss.is_next_lost(&self.conditions.loss, sent_at) {
            self.stats.lost += 1;
            self.buffers.recycle(datagram.bytes);
            return;
        }
        let number = self.departures;
        self.departures += 1;
        let is_duplicated = self.streams.duplication.hits(self.conditions.duplication);
        let is_duplicated = is_duplicated && self.has_space(2, 2 * datagram.bytes.len());
        let copy = is_duplicated.then(|| InTransit { tag: datagram.tag, bytes: self.buffers.copy(&datagram.bytes) });
        self.launch(datagram, number, sent_at);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.launch(copy, number, sent_at);
        }
    }

    /// Puts a datagram or a copy into flight.
    fn launch(&mut self, mut datagram: InTransit<T>, number: u64, sent_at: Instant) {
        if self.streams.corruption.hits(self.conditions.corruption) {
            self.stats.corrupted += u64::from(self.flip_random_bit(&mut datagram.bytes));
        }
        let due = self.arrival_time(sent_at);
        self.in_flight.push(Scheduled { due, number, datagram });
    }

    /// Flips one bit. Returns whether there was one: an empty datagram has none.
    fn flip_random_bit(&mut self, bytes: &mut [u8]) -> bool {
        let bit = self.streams.corruption.below(bytes.len() as u64 * 8);
        let byte = bytes.get_mut((bit / 8) as usize);
        let has_bit = byte.is_some();
        byte.into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
        has_bit
    }

    /// Returns when a datagram arrives that passed the link at this moment.
    fn arrival_time(&mut self, sent_at: Instant) -> Instant {
        let conditions = &self.conditions;
        let jitter = self.streams.jitter.nanos_between(Duration::ZERO, conditions.jitter);
        let due = sent_at.after(conditions.latency).after(jitter);
        let is_held_back = self.streams.reordering.hits(conditions.reordering.share);
        let delay = self.streams.reordering.nanos_between(Duration::ZERO, conditions.reordering.longest);
        if is_held_back {
            self.stats.held_back += 1;
            return due.after(delay);
        }
        match conditions.order {
            Order::Free => due,
            Order::Kept => {
                self.in_order_until = self.in_order_until.max(due);
                self.in_order_until
            }
        }
    }
}

#[cfg(test)]
mod tests;
