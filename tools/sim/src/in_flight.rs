//! The datagrams that have passed the link, ordered by arrival time.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use slipgate_netcode::time::Instant;

use crate::buffers::InTransit;

/// A datagram with its arrival time.
#[derive(Debug)]
pub(crate) struct Scheduled<T> {
    pub(crate) due: Instant,
    /// Its position among the datagrams that left the link. Datagrams of one arrival time arrive in this order.
    pub(crate) number: u64,
    pub(crate) datagram: InTransit<T>,
}

/// The datagrams in flight.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    heap: BinaryHeap<Reverse<Scheduled<T>>>,
    bytes: usize,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), bytes: 0 }
    }
}

impl<T> InFlight<T> {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, scheduled: Scheduled<T>) {
        self.bytes += scheduled.datagram.bytes.len();
        self.heap.push(Reverse(scheduled));
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(next)| next.due)
    }

    /// Removes the earliest datagram if it has arrived by now.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Scheduled<T>> {
        self.next_due().filter(|due| *due <= now)?;
        let Reverse(scheduled) = self.heap.pop()?;
        self.bytes -= scheduled.datagram.bytes.len();
        Some(scheduled)
    }
}

impl<T> Ord for Scheduled<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<T> PartialOrd for Scheduled<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Scheduled<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Scheduled<T> {}
