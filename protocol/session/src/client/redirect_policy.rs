//! Where a server may redirect a client to (`specs/session-1.md`, §5.12).
//!
//! A server that the backend chose is not trusted with the client's own network: it must not point the client at
//! addresses of a kind that the token of the application does not list.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use slipgate_netcode::client::TokenName;
use slipgate_netcode::token::ConnectToken;

/// The maximum number of redirects in a row, so that servers which redirect to each other cannot keep a client busy.
const MAX_REDIRECTS: u8 = 3;

/// The limits of redirects since the application's own token.
#[derive(Clone, Copy, Default)]
pub(super) struct RedirectPolicy {
    protocol_id: u64,
    /// The kinds of the addresses in the application's token, one bit each.
    networks: u8,
    redirects: u8,
    /// The token of the last redirect, until the client connects with it.
    next: Option<TokenName>,
}

impl RedirectPolicy {
    /// Returns the limits of a connection with this token. One that is not from a redirect is the application's.
    pub(super) fn connect(&self, token: &ConnectToken) -> Self {
        if self.next == Some(TokenName::from(token)) {
            return Self { redirects: self.redirects + 1, next: None, ..*self };
        }
        let (protocol_id, networks) = (token.facts().protocol_id, networks(token));
        Self { protocol_id, networks, redirects: 0, next: None }
    }

    /// Returns whether the client follows a redirect, and expects its token then.
    pub(super) fn allows(&mut self, token: &ConnectToken) -> bool {
        let is_allowed = self.redirects < MAX_REDIRECTS
            && token.facts().protocol_id == self.protocol_id
            && networks(token) & !(self.networks | Network::Public.bit()) == 0;
        self.next = is_allowed.then(|| TokenName::from(token));
        is_allowed
    }
}

/// The kinds of networks that addresses belong to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Network {
    Public,
    Private,
    LinkLocal,
    Loopback,
    /// Addresses that no public server has.
    Other,
}

impl Network {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => Self::of_v4(ip),
            IpAddr::V6(ip) => Self::of_v6(ip),
        }
    }

    /// Returns the kind of an IPv4 address (RFC 6890). A carrier's own network (RFC 6598) is a private one.
    const fn of_v4(ip: Ipv4Addr) -> Self {
        match ip.octets() {
            [127, ..] => Self::Loopback,
            [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Self::Private,
            [169, 254, ..] => Self::LinkLocal,
            [0 | 224..=255, ..] => Self::Other,
            _ => Self::Public,
        }
    }

    /// Returns the kind of an IPv6 address. Only 2000::/3 is public (RFC 4291), without the addresses of 6to4
    /// (RFC 3056), which hold addresses of IPv4.
    const fn of_v6(ip: Ipv6Addr) -> Self {
        match ip.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            [0xfc00..=0xfdff, ..] => Self::Private,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            [0x2002, ..] => Self::Other,
            [0x2000..=0x3fff, ..] => Self::Public,
            _ => Self::Other,
        }
    }
}

fn networks(token: &ConnectToken) -> u8 {
    token.facts().servers.iter().fold(0, |bits, server| bits | Network::of(*server).bit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_of_addresses() {
        for (address, network) in [
            ("203.0.113.5:1", Network::Public),
            ("100.63.0.1:1", Network::Public),
            ("172.32.0.1:1", Network::Public),
            ("10.9.8.7:1", Network::Private),
            ("172.16.0.1:1", Network::Private),
            ("192.168.1.1:1", Network::Private),
            ("100.64.0.1:1", Network::Private),
            ("169.254.169.254:1", Network::LinkLocal),
            ("127.9.0.1:1", Network::Loopback),
            ("0.0.0.0:1", Network::Other),
            ("255.255.255.255:1", Network::Other),
            ("[2001:db8::1]:1", Network::Public),
            ("[fd00::1]:1", Network::Private),
            ("[fe80::1]:1", Network::LinkLocal),
            ("[::1]:1", Network::Loopback),
            ("[::ffff:127.0.0.1]:1", Network::Loopback),
            ("[::ffff:10.0.0.1]:1", Network::Private),
            ("[64:ff9b::a00:1]:1", Network::Other),
            ("[2002:a00:1::]:1", Network::Other),
            ("[ff02::1]:1", Network::Other),
        ] {
            assert_eq!(Network::of(address.parse().unwrap()), network, "{address}");
        }
    }
}
