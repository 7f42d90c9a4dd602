//! The errors of a client in the same program that requests a slot.

use std::fmt;

use slipgate_netcode::server as netcode;

/// Why a client in the same program did not get a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoopbackError {
    /// No slot is free, or the server accepts no new clients.
    Full,
    /// A client with this id is connected.
    ClientIdConnected,
    /// The server carries packets or channels. Clients in the same program exchange payloads only.
    WrongTraffic,
}

impl fmt::Display for LoopbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the server has no free slot",
            Self::ClientIdConnected => "a client with this id is connected",
            Self::WrongTraffic => {
                "a client in the same program exchanges payloads only, and the server carries packets or channels; \
                 connect the client by UDP"
            }
        })
    }
}

impl std::error::Error for LoopbackError {}

impl From<netcode::LoopbackSlotError> for LoopbackError {
    fn from(error: netcode::LoopbackSlotError) -> Self {
        match error {
            netcode::LoopbackSlotError::ClientIdConnected => Self::ClientIdConnected,
            _ => Self::Full,
        }
    }
}
