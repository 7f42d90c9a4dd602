//! Finds the addresses from which most of the junk comes, in a table of fixed size.
//!
//! It is the algorithm of Misra and Gries. An address in the table is counted. Another one takes a free entry, or
//! lowers all counts by one if no entry is free. An address with more than a ninth of the junk stays in the table,
//! however many other addresses there are.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::time::Instant;

/// The addresses that are counted at once.
const ADDRESSES: usize = 8;
/// The interval in which datagrams are counted: a tick at 60 Hz.
const WINDOW: Duration = Duration::from_millis(16);
/// The datagrams of one address in [`WINDOW`] that are too many: 64,000 a second, which take a tenth of a core.
pub(crate) const MAX_JUNK: u32 = 1024;

/// The junk of an address.
#[derive(Clone, Copy)]
struct JunkCount {
    from: Address,
    datagrams: u32,
}

/// The addresses with the most junk in a window.
#[derive(Default)]
pub(crate) struct JunkCounts {
    since: Instant,
    /// At most [`ADDRESSES`]; those with a count of 0 are free.
    counts: Vec<JunkCount>,
}

impl JunkCounts {
    /// Counts a datagram. Returns whether its address has reached [`MAX_JUNK`]; its count starts again then.
    pub(crate) fn add(&mut self, from: Address, now: Instant) -> bool {
        if now.reached(self.since, WINDOW) {
            self.since = now;
            self.counts.clear();
        }
        if let Some(count) = self.counts.iter_mut().find(|count| count.from == from) {
            count.datagrams += 1;
            let has_reached = count.datagrams >= MAX_JUNK;
            if has_reached {
                count.datagrams = 0;
            }
            return has_reached;
        }
        let new = JunkCount { from, datagrams: 1 };
        if self.counts.len() < ADDRESSES {
            // Allocated with the first datagram.
            self.counts.reserve_exact(ADDRESSES - self.counts.len());
            self.counts.push(new);
        } else if let Some(free) = self.counts.iter_mut().find(|count| count.datagrams == 0) {
            *free = new;
        } else {
            self.counts.iter_mut().for_each(|count| count.datagrams -= 1);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn from(number: u32) -> Address {
        Address::from(SocketAddr::from((number.to_be_bytes(), 9)))
    }

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    #[test]
    fn address_is_found_beside_three_times_as_many_others() {
        let mut counts = JunkCounts::default();
        let mut found = 0;
        for number in 0..16 * MAX_JUNK {
            // Every fourth datagram is from one address, and all others are from different ones.
            if number % 4 == 0 {
                found += u32::from(counts.add(from(1), at(1000)));
            } else {
                assert!(!counts.add(from(1000 + number), at(1000)));
            }
        }
        // It has sent 4,096, and loses one for eight of the others.
        assert_eq!(found, 2);
        assert!(counts.counts.capacity() <= ADDRESSES);
    }

    #[test]
    fn eight_addresses_at_once_are_found() {
        let mut counts = JunkCounts::default();
        let found = (0..8 * MAX_JUNK).filter(|number| counts.add(from(number % 8), at(1000)));
        assert_eq!(found.count(), 8);
    }

    #[test]
    fn slow_junk_is_never_too_much() {
        let mut counts = JunkCounts::default();
        for window in 0..100 {
            for _ in 1..MAX_JUNK {
                assert!(!counts.add(from(1), at(1000 + 16 * window)));
            }
        }
    }
}
