//! Why a client in the same program gets no slot.

use std::fmt;

use slipgate_netcode::server as netcode;

/// Why a client in the same program got no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoopbackError {
    /// No slot is free, or nobody is admitted any more.
    Full,
    /// The client id is connected already.
    ClientIdConnected,
    /// The server carries packets or channels, and clients in the same program bare payloads alone.
    WrongTraffic,
}

impl fmt::Display for LoopbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the server has no free slot",
            Self::ClientIdConnected => "this client id is connected already",
            Self::WrongTraffic => {
                "the server carries packets or channels, and a client in the same program bare payloads alone; \
                 connect it by UDP"
            }
        })
    }
}

impl std::error::Error for LoopbackError {}

impl From<netcode::LoopbackError> for LoopbackError {
    fn from(error: netcode::LoopbackError) -> Self {
        match error {
            netcode::LoopbackError::ClientIdConnected => Self::ClientIdConnected,
            _ => Self::Full,
        }
    }
}
