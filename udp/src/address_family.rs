//! The family of a socket's addresses.

use std::net::SocketAddr;

/// The address families. Each has a socket of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressFamily {
    V4,
    V6,
}

impl AddressFamily {
    pub(super) const fn of(address: &SocketAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}
