//! The other end of a connection, and the unit of the limits for each peer.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The other end of a connection: a client, or the proxy before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HttpPeer {
    /// The address of a TCP connection.
    Address(SocketAddr),
    /// The user and the process that connected to a Unix socket. Some systems do not report the process.
    #[cfg_attr(all(windows, not(test)), expect(dead_code, reason = "Windows has no such sockets here"))]
    Process { user: u32, process: Option<i32> },
}

impl fmt::Display for HttpPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Process { user, process: Some(process) } => write!(f, "unix:uid={user},pid={process}"),
            Self::Process { user, process: None } => write!(f, "unix:uid={user}"),
        }
    }
}

/// The unit of the limits for each peer: an IPv4 address, the /64 of an IPv6 address, which is one host's, or a user of
/// this machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum ConnectionSource {
    Network(IpAddr),
    User(u32),
}

impl From<IpAddr> for ConnectionSource {
    fn from(address: IpAddr) -> Self {
        Self::Network(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        })
    }
}

impl From<HttpPeer> for ConnectionSource {
    fn from(peer: HttpPeer) -> Self {
        match peer {
            HttpPeer::Address(address) => address.ip().into(),
            HttpPeer::Process { user, .. } => Self::User(user),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(address: &str) -> ConnectionSource {
        address.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn hosts_of_one_ipv6_network_count_together() {
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
    }

    #[test]
    fn processes_of_one_user_count_together() {
        let process = |user, process| HttpPeer::Process { user, process: Some(process) };
        assert_eq!(ConnectionSource::from(process(33, 1)), process(33, 2).into());
        assert_ne!(ConnectionSource::from(process(33, 1)), process(34, 1).into());
        assert_eq!(process(33, 7).to_string(), "unix:uid=33,pid=7");
        assert_eq!(HttpPeer::Process { user: 33, process: None }.to_string(), "unix:uid=33");
    }
}
