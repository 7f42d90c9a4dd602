//! Datagrams behind the link, by the moment at which they arrive.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use slipgate_netcode::time::Instant;

use crate::store::Held;

/// A datagram that arrives at a known moment.
#[derive(Debug)]
pub(crate) struct InFlight<T> {
    pub(crate) due: Instant,
    /// Which of the datagrams that left the link it is: those of one moment arrive in this order.
    pub(crate) number: u64,
    pub(crate) held: Held<T>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Flight<T> {
    heap: BinaryHeap<Reverse<InFlight<T>>>,
    bytes: usize,
}

impl<T> Default for Flight<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), bytes: 0 }
    }
}

impl<T> Flight<T> {
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, datagram: InFlight<T>) {
        self.bytes += datagram.held.bytes.len();
        self.heap.push(Reverse(datagram));
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(next)| next.due)
    }

    /// The next datagram that has arrived by now.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<InFlight<T>> {
        self.next_due().filter(|due| *due <= now)?;
        let Reverse(datagram) = self.heap.pop()?;
        self.bytes -= datagram.held.bytes.len();
        Some(datagram)
    }
}

impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.number).cmp(&(other.due, other.number))
    }
}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for InFlight<T> {}
