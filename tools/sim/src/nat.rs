//! When a client's address changes, as behind a NAT that forgets, or with a phone that changes networks.

use std::time::Duration;

use slipgate_netcode::time::Instant;

use crate::random::{Cause, Random};

/// How often a client's address changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebinding {
    /// After this time, exactly.
    Every(Duration),
    /// By chance, after half of this time to one and a half of it.
    About(Duration),
}

/// An address changes at most so often.
const LEAST_LIFE: Duration = Duration::from_millis(1);

/// What stands between a client and the server, and from time to time gives the client another address.
#[derive(Debug)]
pub struct Nat {
    rebinding: Rebinding,
    random: Random,
    next: Instant,
}

impl Nat {
    /// A NAT that has just given the client its first address.
    #[must_use]
    pub fn new(rebinding: Rebinding, seed: u64, now: Instant) -> Self {
        let mut nat = Self { rebinding, random: Random::new(seed, Cause::Nat), next: now };
        nat.plan(now);
        nat
    }

    /// Whether the client has another address from now on. Changes that were missed are one.
    pub fn changes(&mut self, now: Instant) -> bool {
        let changes = self.next <= now;
        if changes {
            self.plan(now);
        }
        changes
    }

    /// When the address changes next.
    #[must_use]
    pub const fn next_change(&self) -> Instant {
        self.next
    }

    fn plan(&mut self, now: Instant) {
        let life = match self.rebinding {
            Rebinding::Every(life) => life,
            Rebinding::About(life) => self.random.about(life),
        };
        self.next = now.after(life.max(LEAST_LIFE));
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
    fn an_interval_is_kept_and_missed_changes_are_one() {
        let mut nat = Nat::new(Rebinding::Every(10 * SECOND), 1, at(0));
        let changes: Vec<u32> = (0..=30).filter(|second| nat.changes(at(*second))).collect();
        assert_eq!(changes, [10, 20, 30]);
        assert!(nat.changes(at(100)) && !nat.changes(at(100)));
        assert_eq!(nat.next_change(), at(110));
    }

    #[test]
    fn about_an_interval_is_from_half_of_it_to_one_and_a_half() {
        let mut nat = Nat::new(Rebinding::About(10 * SECOND), 2, at(0));
        let (mut last, mut lives) = (at(0), Vec::new());
        for _ in 0..1000 {
            let next = nat.next_change();
            assert!(nat.changes(next));
            lives.push(next.since(last));
            last = next;
        }
        assert!(lives.iter().all(|life| (5 * SECOND..=15 * SECOND).contains(life)));
        let mean = last.since_start() / 1000;
        assert!((9 * SECOND..11 * SECOND).contains(&mean), "{mean:?}");
    }
}
