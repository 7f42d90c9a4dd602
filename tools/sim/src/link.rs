//! Both directions between two ends.

use slipgate_netcode::time::Instant;

use crate::conditions::Conditions;
use crate::path::{Bounds, Path};
use crate::random::{Cause, Random};

/// Two paths: up, from the client to the server, and down. One seed decides over both; they share nothing else.
#[derive(Debug)]
pub struct Link<T = ()> {
    /// From the client to the server.
    pub up: Path<T>,
    /// From the server to the client.
    pub down: Path<T>,
}

impl<T: Copy> Link<T> {
    /// Two paths with nothing on their way, and the usual bounds for each.
    #[must_use]
    pub fn new(up: Conditions, down: Conditions, seed: u64) -> Self {
        Self::bounded(up, down, seed, Bounds::default())
    }

    /// Two paths, each with these bounds.
    #[must_use]
    pub fn bounded(up: Conditions, down: Conditions, seed: u64, bounds: Bounds) -> Self {
        let seed_of = |direction| Random::new(seed, direction).next();
        Self {
            up: Path::bounded(up, seed_of(Cause::Up), bounds),
            down: Path::bounded(down, seed_of(Cause::Down), bounds),
        }
    }

    /// Changes both directions, each as [`Path::set_conditions`] does.
    pub fn set_conditions(&mut self, up: Conditions, down: Conditions, now: Instant) {
        self.up.set_conditions(up, now);
        self.down.set_conditions(down, now);
    }

    /// When one of the two wants to be asked next.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        [self.up.next_due(), self.down.next_due()].into_iter().flatten().min()
    }
}
