//! What the registry reports of a server.

use std::time::Duration;

use super::types::{DEAD_AFTER, Registration};

/// Whether tokens may lead to a server, and why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegistryState {
    /// It has a free slot without a reservation.
    Ready,
    /// Each of its free slots is reserved, or it has none.
    Full,
    /// It admits no new clients.
    Draining,
    /// It missed three heartbeats.
    Dead,
}

impl RegistryState {
    /// Returns the name of the state in the HTTP API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Full => "full",
            Self::Draining => "draining",
            Self::Dead => "dead",
        }
    }
}

/// A registered server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerStatus {
    /// What its last heartbeat reported.
    pub registration: Registration,
    /// The number of slots that are reserved for tokens; none on a dead server.
    pub reserved_slots: u32,
    /// The time since its last heartbeat.
    pub heartbeat_age: Duration,
}

impl ServerStatus {
    /// Creates the status of a server. Reservations on a dead one do not count: its tokens lead nowhere, unless it is
    /// alive and its heartbeats were lost. Then they count again with its next heartbeat.
    pub(super) fn new(registration: Registration, reserved_slots: u32, heartbeat_age: Duration) -> Self {
        let reserved_slots = if heartbeat_age >= DEAD_AFTER { 0 } else { reserved_slots };
        Self { registration, reserved_slots, heartbeat_age }
    }

    /// Returns whether tokens may lead to the server.
    #[must_use]
    pub fn state(&self) -> RegistryState {
        if self.heartbeat_age >= DEAD_AFTER {
            RegistryState::Dead
        } else if self.registration.is_draining {
            RegistryState::Draining
        } else if self.available_slots() == 0 {
            RegistryState::Full
        } else {
            RegistryState::Ready
        }
    }

    /// Returns the number of free slots without a reservation.
    #[must_use]
    pub fn available_slots(&self) -> u32 {
        self.registration.free_slots.saturating_sub(self.reserved_slots)
    }
}
