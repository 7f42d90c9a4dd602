//! Finds the addresses from which most of the junk comes, in a table of fixed size.
//!
//! It is the algorithm of Misra and Gries. An address in the table is counted. Another one takes a free entry, or
//! lowers all counts by its cost if no entry is free. If the lowest count is less, it lowers all by that one, and takes
//! its entry with the rest. An address with more than a ninth of the junk stays in the table, however many other
//! addresses there are.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::time::Instant;

/// The addresses that are counted at once.
const ADDRESSES: usize = 8;
/// The interval in which datagrams are counted: a tick at 60 Hz.
const WINDOW: Duration = Duration::from_millis(16);
/// The cost of the datagrams of one address in [`WINDOW`] that is too much: that of 64,000 of 60 bytes a second or
/// 21,000 of 1,200 bytes, which take a tenth of a core.
const MAX_JUNK_COST: u32 = 1024 * junk_cost(60);

/// Returns the cost of a datagram that is dropped: decrypting this number of bytes takes as long. Reading a datagram
/// takes as long as decrypting 512 bytes.
pub(crate) const fn junk_cost(bytes: usize) -> u32 {
    512 + bytes as u32
}

/// The junk of an address.
#[derive(Clone, Copy)]
struct JunkCount {
    from: Address,
    cost: u32,
}

/// The addresses with the most junk in a window.
#[derive(Default)]
pub(crate) struct JunkCounts {
    since: Instant,
    /// At most [`ADDRESSES`]; those with a count of 0 are free.
    counts: Vec<JunkCount>,
}

impl JunkCounts {
    /// Counts a datagram of this length. Returns whether its address has reached [`MAX_JUNK_COST`]; its count starts
    /// again then.
    pub(crate) fn add(&mut self, from: Address, bytes: usize, now: Instant) -> bool {
        let cost = junk_cost(bytes);
        if now.reached(self.since, WINDOW) {
            self.since = now;
            self.counts.clear();
        }
        if let Some(count) = self.counts.iter_mut().find(|count| count.from == from) {
            count.cost += cost;
            let has_reached = count.cost >= MAX_JUNK_COST;
            if has_reached {
                count.cost = 0;
            }
            return has_reached;
        }
        if self.counts.len() < ADDRESSES {
            // Allocated with the first datagram.
            self.counts.reserve_exact(ADDRESSES - self.counts.len());
            self.counts.push(JunkCount { from, cost });
            return false;
        }
        // No count loses more than the lowest one, or long datagrams would displace short ones that cost more together.
        let loss = self.counts.iter().map(|count| count.cost).min().unwrap_or(0).min(cost);
        self.counts.iter_mut().for_each(|count| count.cost -= loss);
        if loss < cost
            && let Some(free) = self.counts.iter_mut().find(|count| count.cost == 0)
        {
            *free = JunkCount { from, cost: cost - loss };
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    /// The datagrams of 60 bytes that are too many.
    const MAX_JUNK: u32 = 1024;

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
                found += u32::from(counts.add(from(1), 60, at(1000)));
            } else {
                assert!(!counts.add(from(1000 + number), 60, at(1000)));
            }
        }
        // It has sent 4,096, and loses one for eight of the others.
        assert_eq!(found, 2);
        assert!(counts.counts.capacity() <= ADDRESSES);
    }

    #[test]
    fn address_is_found_beside_datagrams_of_other_lengths() {
        let mut counts = JunkCounts::default();
        let mut found = 0;
        // Short datagrams of different addresses fill the table, and a long one of another address lowers all counts.
        for number in 0..64 * MAX_JUNK {
            let other = from(1000 + number);
            assert!(!counts.add(other, if number % 8 == 7 { 1200 } else { 1 }, at(1000)));
            // A sixth of the junk by its cost.
            found += u32::from(number % 4 == 0 && counts.add(from(1), 60, at(1000)));
        }
        // It has sent 16 times as many as are too many, and the others lower its count to a third.
        assert_eq!(found, 6);
    }

    #[test]
    fn eight_addresses_at_once_are_found() {
        let mut counts = JunkCounts::default();
        let found = (0..8 * MAX_JUNK).filter(|number| counts.add(from(number % 8), 60, at(1000)));
        assert_eq!(found.count(), 8);
    }

    #[test]
    fn a_third_as_many_long_datagrams_are_too_many() {
        let mut counts = JunkCounts::default();
        let found = (1..=MAX_JUNK).find(|_| counts.add(from(1), 1200, at(1000)));
        assert_eq!(found, Some(343), "1,712 against 572");
    }

    #[test]
    fn slow_junk_is_never_too_much() {
        let mut counts = JunkCounts::default();
        for window in 0..100 {
            for _ in 1..MAX_JUNK {
                assert!(!counts.add(from(1), 60, at(1000 + 16 * window)));
            }
        }
    }
}
