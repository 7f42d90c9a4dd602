//! The errors of creating an issuer and of minting.

use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use slipgate_netcode::wire::{MAX_SERVERS_PER_TOKEN, USER_DATA_BYTES};

/// Why an issuer cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IssuerError {
    /// The allow-list is empty.
    NoServers,
    /// Clients cannot send to this address of the allow-list.
    ServerNotDialable(SocketAddr),
}

impl fmt::Display for IssuerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServers => f.write_str("the allow-list is empty: a token needs at least one server"),
            Self::ServerNotDialable(server) => {
                write!(
                    f,
                    "clients cannot send to {server} of the allow-list: a unicast address and a port are required"
                )
            }
        }
    }
}

impl core::error::Error for IssuerError {}

/// Why a request for a token was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MintError {
    /// The request lists no servers, and the allow-list has networks, no entry, or more than the 32 of a token.
    NoServers,
    /// The number of servers is not 1 to 32; holds the number requested.
    ServerCount(usize),
    /// This server is not in the allow-list.
    ServerNotAllowed(SocketAddr),
    /// This server is listed twice.
    ServerTwice(SocketAddr),
    /// The user data is longer than 256 bytes; holds its length.
    UserDataTooLong(usize),
    /// The lifetime is outside this range, in seconds.
    Lifetime(RangeInclusive<u32>),
    /// The timeout is outside this range, in seconds.
    Timeout(RangeInclusive<u32>),
    /// The netcode crate refused claims that this crate had checked: a bug.
    Refused,
}

impl MintError {
    /// Returns the name of the wrong field in the HTTP API, or `None` if no field is wrong.
    #[must_use]
    pub const fn field(&self) -> Option<&'static str> {
        match self {
            Self::NoServers | Self::ServerCount(_) | Self::ServerNotAllowed(_) | Self::ServerTwice(_) => {
                Some("server_addresses")
            }
            Self::UserDataTooLong(_) => Some("user_data"),
            Self::Lifetime(_) => Some("lifetime_seconds"),
            Self::Timeout(_) => Some("timeout_seconds"),
            Self::Refused => None,
        }
    }
}

impl fmt::Display for MintError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServers => {
                write!(
                    f,
                    "server_addresses or group is required: no list of 1 to {MAX_SERVERS_PER_TOKEN} servers is set"
                )
            }
            Self::ServerCount(count) => {
                write!(f, "server_addresses must list 1 to {MAX_SERVERS_PER_TOKEN} addresses, not {count}")
            }
            Self::ServerNotAllowed(server) => {
                write!(f, "server_addresses lists {server}, which is not in this issuer's allow-list")
            }
            Self::ServerTwice(server) => write!(f, "server_addresses lists {server} twice"),
            Self::UserDataTooLong(bytes) => {
                write!(f, "user_data holds at most {USER_DATA_BYTES} bytes, not {bytes}")
            }
            Self::Lifetime(allowed) => write_range(f, "lifetime_seconds", allowed),
            Self::Timeout(allowed) => write_range(f, "timeout_seconds", allowed),
            Self::Refused => f.write_str("internal error: the token could not be sealed"),
        }
    }
}

fn write_range(f: &mut fmt::Formatter<'_>, field: &str, allowed: &RangeInclusive<u32>) -> fmt::Result {
    write!(f, "{field} must be {} to {}", allowed.start(), allowed.end())
}

impl core::error::Error for MintError {}
