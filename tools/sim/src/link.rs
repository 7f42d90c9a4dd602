//! A link: both directions between a client and a server.

use slipgate_netcode::time::Instant;

use crate::conditions::Conditions;
use crate::path::{Bounds, Path};
use crate::random::Process;

/// Two paths: up, from the client to the server, and down. Both derive from one seed and are otherwise independent.
#[derive(Debug)]
pub struct Link<T = ()> {
    /// From the client to the server.
    pub up: Path<T>,
    /// From the server to the client.
    pub down: Path<T>,
}

impl<T: Copy> Link<T> {
    /// Creates two empty paths with the default bounds.
    #[must_use]
    pub fn new(up: Conditions, down: Conditions, seed: u64) -> Self {
        Self::bounded(up, down, seed, Bounds::default())
    }

    /// Creates two empty paths with these bounds each.
    #[must_use]
    pub fn bounded(up: Conditions, down: Conditions, seed: u64, bounds: Bounds) -> Self {
        let seed_of = |direction: Process| direction.stream(seed).next_u64();
        Self {
            up: Path::bounded(up, seed_of(Process::Up), bounds),
            down: Path::bounded(down, seed_of(Process::Down), bounds),
        }
    }

    /// Changes both directions, each as [`Path::set_conditions`] does.
    pub fn set_conditions(&mut self, up: Conditions, down: Conditions, now: Instant) {
        self.up.set_conditions(up, now);
        self.down.set_conditions(down, now);
    }

    /// Returns when one of the two paths must be polled next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        [self.up.next_due(), self.down.next_due()].into_iter().flatten().min()
    }
}
