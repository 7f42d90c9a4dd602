//! The settings of the load, and the times that follow from them.

use std::time::Duration;

use slipgate_netcode::time::Instant;
use slipgate_os::clock::Clock;
use slipgate_sim::Preset;

use super::flags::LoadFlags;

/// The settings that all threads share.
#[derive(Clone)]
pub(super) struct LoadPlan {
    pub(super) clock: Clock,
    pub(super) start: Instant,
    pub(super) clients: u32,
    pub(super) first_client_id: u64,
    ramp: Duration,
    duration: Duration,
    interval: Duration,
    size: u16,
    pub(super) preset: Option<Preset>,
}

impl LoadPlan {
    pub(super) fn of(flags: &LoadFlags, clock: Clock) -> Self {
        Self {
            clock,
            start: clock.monotonic(),
            clients: flags.clients,
            first_client_id: flags.first_client_id,
            ramp: flags.ramp.0,
            duration: flags.duration.0,
            interval: flags.interval(),
            size: flags.size,
            preset: flags.preset,
        }
    }

    /// Returns when this client begins to connect.
    pub(super) fn begin_of(&self, number: u32) -> Instant {
        self.start.after(self.ramp.mul_f64(f64::from(number) / f64::from(self.clients.max(1))))
    }

    /// Returns the time in which payloads are sent.
    pub(super) fn total(&self) -> Duration {
        self.ramp + self.duration
    }

    /// Returns the time in which payloads were sent until `now`.
    pub(super) fn sending_time(&self, now: Instant) -> Duration {
        now.since(self.start).min(self.total())
    }

    /// Returns the facts of a turn at `now`.
    pub(super) fn turn(&self, now: Instant) -> LoadTurn {
        let sends = now.since(self.start) < self.total();
        LoadTurn { now, sends, interval: self.interval, size: self.size }
    }
}

/// The facts of one turn that are the same for all clients.
pub(super) struct LoadTurn {
    pub(super) now: Instant,
    pub(super) sends: bool,
    pub(super) interval: Duration,
    pub(super) size: u16,
}
