//! The time of a registry within a process, which no step of the system's clock moves.

use std::time::Instant;

use slipgate_netcode::time::UnixMillis;

/// A clock that starts at a wall-clock time, and goes on by the monotonic clock.
#[derive(Clone, Copy)]
pub(super) struct RegistryClock {
    start: UnixMillis,
    started: Instant,
}

impl RegistryClock {
    pub(super) fn start_at(start: UnixMillis) -> Self {
        Self { start, started: Instant::now() }
    }

    pub(super) fn now(&self) -> UnixMillis {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        UnixMillis(self.start.0.saturating_add(passed))
    }
}
