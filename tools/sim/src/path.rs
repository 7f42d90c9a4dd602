//! One direction of a path, as a value: datagrams in, later datagrams out.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::bottleneck::Bottleneck;
use crate::conditions::{Conditions, Order};
use crate::flight::{Flight, InFlight};
use crate::loss::LossProcess;
use crate::random::{Cause, Random};
use crate::stats::PathStats;
use crate::store::{Held, Store};

/// How much may be on its way; what comes beyond that is dropped and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// So many datagrams.
    pub datagrams: usize,
    /// So many bytes of them.
    pub bytes: usize,
}

impl Default for Bounds {
    /// 16,384 datagrams, 16 MiB: what 200 Mbit/s need for 0.6 s.
    fn default() -> Self {
        Self { datagrams: 16_384, bytes: 16 << 20 }
    }
}

/// A datagram at the far end of the path. Its bytes lie in the path's buffer until the next call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival<'a, T = ()> {
    /// When it arrived, which may be before it was asked for.
    pub at: Instant,
    /// What it was tagged with.
    pub tag: T,
    /// The datagram.
    pub bytes: &'a [u8],
}

/// One direction of a path. The seed decides all that happens by chance: it does not matter how often one asks.
///
/// Memory is bounded by [`Bounds`], and buffers are used again: after warm-up a datagram of up to 1,280 bytes costs no
/// allocation. A datagram may carry a tag, for example its two addresses, so that one path serves a world of many.
#[derive(Debug)]
pub struct Path<T = ()> {
    conditions: Conditions,
    bounds: Bounds,
    link: Bottleneck<T>,
    loss: LossProcess,
    dice: Dice,
    flight: Flight<T>,
    store: Store,
    lent: Vec<u8>,
    /// Datagrams that left the link, copies included.
    departures: u64,
    /// When the last one that keeps the order arrives.
    in_order_until: Instant,
    newest_delivered: u64,
    stats: PathStats,
}

#[derive(Debug)]
struct Dice {
    duplication: Random,
    corruption: Random,
    jitter: Random,
    reordering: Random,
}

impl Dice {
    fn new(seed: u64) -> Self {
        Self {
            duplication: Random::new(seed, Cause::Duplication),
            corruption: Random::new(seed, Cause::Corruption),
            jitter: Random::new(seed, Cause::Jitter),
            reordering: Random::new(seed, Cause::Reordering),
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
    /// A path with nothing on its way, and the usual bounds.
    #[must_use]
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        Self::bounded(conditions, seed, Bounds::default())
    }

    /// A path with bounds of one's own.
    #[must_use]
    pub fn bounded(conditions: Conditions, seed: u64, bounds: Bounds) -> Self {
        let mut path = Self {
            conditions,
            bounds,
            link: Bottleneck::new(seed),
            loss: LossProcess::new(seed),
            dice: Dice::new(seed),
            flight: Flight::default(),
            store: Store::default(),
            lent: Vec::new(),
            departures: 0,
            in_order_until: Instant::default(),
            newest_delivered: 0,
            stats: PathStats::default(),
        };
        path.link.set(conditions.rate, conditions.stalls, Instant::default());
        path
    }

    /// What the path does at present.
    #[must_use]
    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Changes the path. What waits before the link sees the new one; what is behind it already arrives as it would have.
    pub fn set_conditions(&mut self, conditions: Conditions, now: Instant) {
        self.advance(now);
        self.conditions = conditions;
        self.link.set(conditions.rate, conditions.stalls, now);
    }

    /// Lets the link stand still for a while, from now on: a stall at will.
    pub fn hold(&mut self, duration: Duration, now: Instant) {
        self.advance(now);
        self.link.hold(duration, now);
    }

    /// Sends a datagram with a tag that arrives with it.
    pub fn push_tagged(&mut self, tag: T, datagram: &[u8], now: Instant) {
        self.advance(now);
        self.stats.pushed += 1;
        self.stats.pushed_bytes += datagram.len() as u64;
        if !self.has_room(1, datagram.len()) {
            self.stats.overflowed += 1;
        } else if !self.link.fits(datagram.len()) {
            self.stats.tail_dropped += 1;
        } else {
            let bytes = self.store.keep(datagram);
            self.link.enter(Held { tag, bytes }, now);
            self.advance(now);
        }
    }

    /// The next datagram that has arrived by now, earliest first.
    pub fn pop_due(&mut self, now: Instant) -> Option<Arrival<'_, T>> {
        self.advance(now);
        let InFlight { due, number, held } = self.flight.pop(now)?;
        self.stats.delivered += 1;
        self.stats.delivered_bytes += held.bytes.len() as u64;
        self.stats.overtaken += u64::from(number < self.newest_delivered);
        self.newest_delivered = self.newest_delivered.max(number);
        let done = core::mem::replace(&mut self.lent, held.bytes);
        self.store.take_back(done);
        Some(Arrival { at: due, tag: held.tag, bytes: &self.lent })
    }

    /// When the path wants to be asked next: nothing arrives before. What then leaves the link may arrive later still, or
    /// be lost, so that nothing may be due after all.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        [self.flight.next_due(), self.link.next_leaves()].into_iter().flatten().min()
    }

    /// What the path has done so far.
    #[must_use]
    pub fn stats(&self) -> PathStats {
        PathStats { stalls: self.link.stalls_passed(), ..self.stats }
    }

    /// How many datagrams are on their way, before the link and behind it.
    #[must_use]
    pub fn on_the_way(&self) -> usize {
        self.link.len() + self.flight.len()
    }

    /// How many bytes wait before the link, the datagram on it included.
    #[must_use]
    pub const fn queued_bytes(&self) -> usize {
        self.link.bytes()
    }

    /// How long a datagram that comes now waits for the link, stalls to come not counted.
    #[must_use]
    pub fn queue_delay(&self, now: Instant) -> Duration {
        self.link.delay(now)
    }

    fn has_room(&self, datagrams: usize, bytes: usize) -> bool {
        let held = self.link.bytes() + self.flight.bytes();
        self.on_the_way() + datagrams <= self.bounds.datagrams && held.saturating_add(bytes) <= self.bounds.bytes
    }

    /// Everything that has left the link by now goes on its way. Dice fall in this order alone, so that it does not
    /// matter when somebody asks.
    fn advance(&mut self, now: Instant) {
        while let Some((held, left)) = self.link.leave(now) {
            self.depart(held, left);
        }
    }

    /// A datagram leaves the link.
    fn depart(&mut self, held: Held<T>, left: Instant) {
        if self.loss.strikes(&self.conditions.loss) {
            self.stats.lost += 1;
            self.store.take_back(held.bytes);
            return;
        }
        let number = self.departures;
        self.departures += 1;
        let copied = self.dice.duplication.hits(self.conditions.duplication) && self.has_room(2, 2 * held.bytes.len());
        let copy = copied.then(|| Held { tag: held.tag, bytes: self.store.keep(&held.bytes) });
        self.fly(held, number, left);
        if let Some(copy) = copy {
            self.stats.duplicated += 1;
            self.fly(copy, number, left);
        }
    }

    /// A datagram, or a copy, is on its way to the far end.
    fn fly(&mut self, mut held: Held<T>, number: u64, left: Instant) {
        if self.dice.corruption.hits(self.conditions.corruption) {
            self.stats.corrupted += u64::from(self.flip_a_bit(&mut held.bytes));
        }
        let due = self.arrival(left);
        self.flight.push(InFlight { due, number, held });
    }

    fn flip_a_bit(&mut self, bytes: &mut [u8]) -> bool {
        let bit = self.dice.corruption.below(bytes.len() as u64 * 8);
        let byte = bytes.get_mut((bit / 8) as usize);
        let found = byte.is_some();
        byte.into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
        found
    }

    /// When a datagram arrives that left the link at this moment.
    fn arrival(&mut self, left: Instant) -> Instant {
        let conditions = &self.conditions;
        let jitter = self.dice.jitter.time(Duration::ZERO, conditions.jitter);
        let due = left.after(conditions.latency).after(jitter);
        let held_back = self.dice.reordering.hits(conditions.reordering.share);
        let held = self.dice.reordering.time(Duration::ZERO, conditions.reordering.longest);
        if held_back {
            self.stats.held_back += 1;
            return due.after(held);
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
