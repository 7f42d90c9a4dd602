//! The values of the settings `steering` and `wake`.

use clap::ValueEnum;
use serde::Deserialize;
use slipgate_server::sockets::{Steering, WakePolicy};

/// How the system chooses the shard of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SteeringKind {
    /// Use a hash of both addresses
    #[default]
    Hash,
    /// Use the CPU that the datagram arrived on
    Cpu,
}

impl From<SteeringKind> for Steering {
    fn from(kind: SteeringKind) -> Self {
        match kind {
            SteeringKind::Hash => Self::Hash,
            SteeringKind::Cpu => Self::Cpu,
        }
    }
}

/// How soon a datagram wakes the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WakeKind {
    /// At once under light load, otherwise up to 1.8 ms later with others
    #[default]
    Adaptive,
    /// At once
    Immediate,
}

impl From<WakeKind> for WakePolicy {
    fn from(kind: WakeKind) -> Self {
        match kind {
            WakeKind::Adaptive => Self::Adaptive,
            WakeKind::Immediate => Self::Immediate,
        }
    }
}
