//! Senders whose datagrams the kernel drops for a moment, because they send far more than they may.
//!
//! The server would drop these datagrams itself, but at 400,000 a second reading them takes a core, and the receive
//! buffer overflows for all clients. A client that used up its budget is proven by its authentic packets. Forged ones
//! do not count, so nobody can have another client blocked.

use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::time::Instant;

/// The senders that are remembered at once. The program of the kernel filter grows by 5 to 11 instructions for each.
const MAX_SENDERS: usize = 16;
/// Datagrams beyond a budget within [`WINDOW`] after which their sender is blocked: one batch.
const MAX_EXCESS: u32 = 64;
/// A tick at 60 Hz: after it a client has new budgets.
const WINDOW: Duration = Duration::from_millis(16);
/// How long a sender without a connection is blocked.
const STRANGER_BLOCK: Duration = Duration::from_secs(1);
/// How long a sender is remembered after its last block.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A datagram that was dropped because its sender sends too much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Excess {
    /// A client is beyond its budget.
    Client,
    /// An address without a connection. It counts only for a sender that was blocked before as a client.
    Stranger,
}

struct Sender {
    address: Address,
    window_since: Instant,
    excess: u32,
    blocked_until: Option<Instant>,
    remembered_until: Instant,
}

/// The senders that exceed their budgets.
#[derive(Default)]
pub(crate) struct FloodGuard {
    senders: Vec<Sender>,
    /// When the next block ends; a time in the past without a block.
    next_end: Option<Instant>,
}

impl FloodGuard {
    /// Counts a datagram. Returns whether the blocked senders have changed.
    pub(crate) fn on_excess(&mut self, from: Address, excess: Excess, now: Instant) -> bool {
        let known = self.senders.iter().position(|sender| sender.address == from);
        let Some(index) = known.or_else(|| (excess == Excess::Client).then(|| self.add(from, now))) else {
            return false;
        };
        let Some(sender) = self.senders.get_mut(index) else { return false };
        if now.reached(sender.window_since, WINDOW) {
            (sender.window_since, sender.excess) = (now, 0);
        }
        sender.excess += 1;
        // Datagrams that waited in the socket arrive while their sender is blocked already.
        if sender.excess < MAX_EXCESS || sender.blocked_until.is_some() {
            return false;
        }
        let block = if excess == Excess::Client { WINDOW } else { STRANGER_BLOCK };
        let end = now.after(block);
        sender.blocked_until = Some(end);
        sender.remembered_until = end.after(REMEMBERED);
        self.next_end = Some(self.next_end.map_or(end, |next| next.min(end)));
        true
    }

    /// Ends the blocks that are over. Returns whether the blocked senders have changed.
    pub(crate) fn end_blocks(&mut self, now: Instant) -> bool {
        if self.next_end.is_none_or(|end| now < end) {
            return false;
        }
        for sender in &mut self.senders {
            if sender.blocked_until.is_some_and(|end| now >= end) {
                (sender.blocked_until, sender.window_since, sender.excess) = (None, now, 0);
            }
        }
        self.next_end = self.senders.iter().filter_map(|sender| sender.blocked_until).min();
        true
    }

    /// Iterates over the blocked senders.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = Address> + '_ {
        self.senders.iter().filter(|sender| sender.blocked_until.is_some()).map(|sender| sender.address)
    }

    /// Remembers a sender in the place of the one that was remembered longest. Returns its index.
    fn add(&mut self, address: Address, now: Instant) -> usize {
        self.senders.retain(|sender| sender.remembered_until > now);
        let sender =
            Sender { address, window_since: now, excess: 0, blocked_until: None, remembered_until: now.after(WINDOW) };
        if self.senders.len() < MAX_SENDERS {
            self.senders.push(sender);
            return self.senders.len() - 1;
        }
        let oldest = (0..).zip(&self.senders).min_by_key(|(_, sender)| sender.remembered_until);
        let index = oldest.map_or(0, |(index, _)| index);
        if let Some(entry) = self.senders.get_mut(index) {
            *entry = sender;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    fn from(port: u16) -> Address {
        Address::from(SocketAddr::from(([192, 0, 2, 1], port)))
    }

    fn flood(guard: &mut FloodGuard, port: u16, excess: Excess, now: Instant) -> usize {
        (0..100).filter(|_| guard.on_excess(from(port), excess, now)).count()
    }

    #[test]
    fn client_far_beyond_its_budget_is_blocked_for_a_tick() {
        let mut guard = FloodGuard::default();
        for turn in 0..100 {
            let few = (0..MAX_EXCESS - 1).filter(|_| guard.on_excess(from(1), Excess::Client, at(turn * 16)));
            assert_eq!(few.count(), 0, "below the limit in each window");
        }
        assert_eq!(flood(&mut guard, 2, Excess::Client, at(2000)), 1);
        assert!(guard.blocked().eq([from(2)]) && !guard.end_blocks(at(2015)));
        assert!(guard.end_blocks(at(2016)) && guard.blocked().count() == 0 && !guard.end_blocks(at(2016)));
        assert_eq!(flood(&mut guard, 2, Excess::Client, at(2017)), 1, "it goes on");
    }

    #[test]
    fn stranger_is_blocked_only_if_it_flooded_as_a_client() {
        let mut guard = FloodGuard::default();
        assert_eq!(flood(&mut guard, 1, Excess::Stranger, at(0)), 0);
        assert_eq!(flood(&mut guard, 1, Excess::Client, at(0)), 1);
        assert!(guard.end_blocks(at(16)));
        assert_eq!(flood(&mut guard, 1, Excess::Stranger, at(20)), 1);
        assert!(!guard.end_blocks(at(1019)) && guard.end_blocks(at(1020)));
    }

    #[test]
    fn at_most_sixteen_senders_are_remembered() {
        let mut guard = FloodGuard::default();
        for port in 0..1000 {
            flood(&mut guard, port, Excess::Client, at(u64::from(port) / 100));
            assert!(guard.senders.len() <= MAX_SENDERS && guard.blocked().count() <= MAX_SENDERS);
        }
        assert!(guard.blocked().any(|address| address == from(999)));
    }
}
