//! Why an issuer cannot be made, and why it mints no token.

use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use slipgate_netcode::wire::{MAX_SERVERS_PER_TOKEN, USER_DATA_BYTES};

/// Why a configuration makes no issuer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IssuerError {
    /// The allow-list is empty.
    NoServers,
    /// No packet can be sent to this address of the allow-list.
    ServerNotDialable(SocketAddr),
}

impl fmt::Display for IssuerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoServers => f.write_str("the allow-list names no server: a token needs at least one to be used on"),
            Self::ServerNotDialable(server) => {
                write!(f, "the allow-list names {server}, to which no client can send: a host and a port are needed")
            }
        }
    }
}

impl core::error::Error for IssuerError {}

/// Why no token was minted: the caller asked for what the configuration does not allow.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MintError {
    /// No servers were asked for, and the allow-list is longer than a token has room for.
    NoServers,
    /// So many servers were asked for, and a token takes 1 to 32.
    ServerCount(usize),
    /// This server is not in the allow-list.
    ServerNotAllowed(SocketAddr),
    /// This server was asked for twice.
    ServerTwice(SocketAddr),
    /// So many bytes of user data were given, and a token takes up to 256.
    UserDataTooLong(usize),
    /// The lifetime is outside this range of seconds.
    Lifetime(RangeInclusive<u32>),
    /// The timeout is outside this range of seconds.
    Timeout(RangeInclusive<u32>),
    /// The protocol crate refused claims that this crate had checked: our own mistake.
    Refused,
}

impl MintError {
    /// The field at fault, by its name in the HTTP API; none if no field is.
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
                write!(f, "server_addresses must be given: the allow-list is longer than {MAX_SERVERS_PER_TOKEN}")
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
            Self::Refused => f.write_str("the token could not be made from checked claims"),
        }
    }
}

fn write_range(f: &mut fmt::Formatter<'_>, field: &str, allowed: &RangeInclusive<u32>) -> fmt::Result {
    write!(f, "{field} must be {} to {}", allowed.start(), allowed.end())
}

impl core::error::Error for MintError {}
