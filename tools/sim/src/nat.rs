//! Address changes of a client, as behind a NAT that drops its mapping or with a phone that changes networks.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::random::{Process, Random};

/// How often a client's address changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebinding {
    /// After exactly this time.
    Every(Duration),
    /// After a random time, from half of this duration to one and a half of it.
    About(Duration),
}

/// The minimum time between two changes.
const MIN_LIFETIME: Duration = Duration::from_millis(1);

/// A NAT between a client and the server, which gives the client another address from time to time.
#[derive(Debug)]
pub struct Nat {
    rebinding: Rebinding,
    random: Random,
    next: Instant,
}

impl Nat {
    /// Creates a NAT that gave the client its first address at `now`.
    #[must_use]
    pub fn new(rebinding: Rebinding, seed: u64, now: Instant) -> Self {
        let mut nat = Self { rebinding, random: Process::Nat.stream(seed), next: now };
        nat.plan(now);
        nat
    }

    /// Returns whether the client has another address from now on. Several missed changes count as one.
    pub fn changes(&mut self, now: Instant) -> bool {
        let changes = self.next <= now;
        if changes {
            self.plan(now);
        }
        changes
    }

    /// Returns when the address changes next.
    #[must_use]
    pub const fn next_change(&self) -> Instant {
        self.next
    }

    fn plan(&mut self, now: Instant) {
        let lifetime = match self.rebinding {
            Rebinding::Every(lifetime) => lifetime,
            Rebinding::About(lifetime) => self.random.around(lifetime),
        };
        self.next = now.after(lifetime.max(MIN_LIFETIME));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u32) -> Instant {
        Instant::from_start(SECOND * seconds)
    }

    #[test]
    fn fixed_interval_is_exact_and_missed_changes_count_once() {
        let mut nat = Nat::new(Rebinding::Every(10 * SECOND), 1, at(0));
        let changes: Vec<u32> = (0..=30).filter(|second| nat.changes(at(*second))).collect();
        assert_eq!(changes, [10, 20, 30]);
        assert!(nat.changes(at(100)) && !nat.changes(at(100)));
        assert_eq!(nat.next_change(), at(110));
    }

    #[test]
    fn random_interval_is_half_to_one_and_a_half() {
        let mut nat = Nat::new(Rebinding::About(10 * SECOND), 2, at(0));
        let (mut last, mut lifetimes) = (at(0), Vec::new());
        for _ in 0..1000 {
            let next = nat.next_change();
            assert!(nat.changes(next));
            lifetimes.push(next.since(last));
            last = next;
        }
        assert!(lifetimes.iter().all(|lifetime| (5 * SECOND..=15 * SECOND).contains(lifetime)));
        let mean = last.since_start() / 1000;
        assert!((9 * SECOND..11 * SECOND).contains(&mean), "{mean:?}");
    }
}
