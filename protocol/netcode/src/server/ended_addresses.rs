//! The addresses of connections that ended a moment ago.
//!
//! A client that leaves sends ten disconnect packets, and the first one ends its connection. The others, and packets
//! that were in flight, belong to no connection. They are counted apart from packets of unknown senders, so that an
//! operator can see those.

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::address::Address;
use crate::crypto::key::Seed;
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::time::Instant;

/// The time for which an address is remembered: longer than packets are in flight, and equal to the usual timeout of a
/// client that did not receive the disconnect.
const REMEMBERED_FOR: Duration = Duration::from_secs(5);

/// The number of addresses for which memory is allocated at the start.
const INITIAL_ADDRESSES: usize = 1024;

/// The addresses of connections that ended at most [`REMEMBERED_FOR`] ago, at most one for each slot.
pub(super) struct EndedAddresses {
    capacity: usize,
    /// When the last connection of each address ended.
    ended_at: KeyedMap<Address, Instant>,
    /// The ends in their order. An address that ended twice has two entries.
    queue: VecDeque<(Instant, Address)>,
}

impl EndedAddresses {
    pub(super) fn new(slots: u32, seed: &Seed) -> Self {
        let capacity = slots as usize;
        let initial = capacity.min(INITIAL_ADDRESSES);
        let ended_at = map_with_capacity(initial, HashKey::derive(seed, "ended addresses"));
        Self { capacity, ended_at, queue: VecDeque::with_capacity(initial) }
    }

    /// Remembers the address of a connection that has ended. The oldest address gives way to it if there are too many.
    pub(super) fn insert(&mut self, address: Address, now: Instant) {
        if self.queue.len() >= self.capacity {
            self.remove_oldest();
        }
        self.ended_at.insert(address, now);
        self.queue.push_back((now, address));
    }

    /// Returns whether a connection of this address has just ended.
    pub(super) fn contains(&self, address: &Address, now: Instant) -> bool {
        self.ended_at.get(address).is_some_and(|ended_at| !now.reached(*ended_at, REMEMBERED_FOR))
    }

    /// Forgets the addresses that were remembered for long enough.
    pub(super) fn sweep(&mut self, now: Instant) {
        while self.queue.front().is_some_and(|(ended_at, _)| now.reached(*ended_at, REMEMBERED_FOR)) {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        let Some((ended_at, address)) = self.queue.pop_front() else { return };
        // A later end of the same address has an entry of its own.
        if self.ended_at.get(&address) == Some(&ended_at) {
            self.ended_at.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn address(port: u16) -> Address {
        Address::from(core::net::SocketAddr::from(([192, 0, 2, 1], port)))
    }

    #[test]
    fn address_is_remembered_for_five_seconds_after_its_last_end() {
        let mut ended = EndedAddresses::new(4, &Seed::from([1; 32]));
        ended.insert(address(1), at(0));
        ended.insert(address(1), at(2000));
        for (now, expected) in [(2000, true), (5000, true), (6999, true), (7000, false)] {
            ended.sweep(at(now));
            assert_eq!(ended.contains(&address(1), at(now)), expected, "{now} ms");
            assert!(!ended.contains(&address(2), at(now)));
        }
        assert!(ended.queue.is_empty() && ended.ended_at.is_empty());
    }

    #[test]
    fn table_has_at_most_one_address_for_each_slot() {
        let mut ended = EndedAddresses::new(3, &Seed::from([1; 32]));
        (0..10).for_each(|port| ended.insert(address(port), at(0)));
        assert_eq!((ended.queue.len(), ended.ended_at.len()), (3, 3));
        assert!((7..10).all(|port| ended.contains(&address(port), at(0))) && !ended.contains(&address(6), at(0)));
    }
}
