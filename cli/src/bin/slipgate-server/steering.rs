//! The values of the setting `steering`.

use clap::ValueEnum;
use serde::Deserialize;
use slipgate_server::sockets::Steering;

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
