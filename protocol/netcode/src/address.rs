//! One canonical form for a peer's address, so that one peer is one key.
//!
//! A dual-stack socket reports an IPv4 peer as `::ffff:a.b.c.d`, and an IPv6 address comes with scope and flow labels
//! that are this host's business. Comparing raw [`SocketAddr`]s would make two peers out of one.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A peer's IP address and port: IPv4-mapped IPv6 folded to IPv4, IPv6 scope and flow label zeroed.
///
/// 18 bytes, where the standard library's type takes 32: tables of them are looked at for every packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// An IPv6 address; IPv4 as what is mapped into it.
    ip: [u8; 16],
    port: u16,
}

impl Address {
    /// The address as the standard library's type, in canonical form.
    #[must_use]
    pub const fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port)
    }

    const fn ip(self) -> IpAddr {
        let ip = Ipv6Addr::from_octets(self.ip);
        match ip.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(ip),
        }
    }

    /// The network that budgets count together: an IPv4 host (/32) or an IPv6 site (/64), as 16 bytes.
    #[must_use]
    pub fn network(self) -> [u8; 16] {
        match self.ip() {
            IpAddr::V4(_) => self.ip,
            IpAddr::V6(ip) => (u128::from(ip) & (u128::MAX << 64)).to_be_bytes(),
        }
    }

    /// Address and port as 18 bytes, the same for the same peer: what keyed digests take.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 18] {
        let mut bytes = [0; 18];
        let (head, port) = bytes.split_at_mut(16);
        head.copy_from_slice(&self.ip);
        port.copy_from_slice(&self.port.to_le_bytes());
        bytes
    }
}

impl Hash for Address {
    /// By few and whole words, one for IPv4: this is asked for every packet, and a keyed hash takes its time for each.
    fn hash<H: Hasher>(&self, state: &mut H) {
        if let IpAddr::V4(ip) = self.ip() {
            return state.write_u64(u64::from(u32::from(ip)) << 16 | u64::from(self.port));
        }
        let (network, host) = split(u128::from_be_bytes(self.ip));
        state.write_u64(network);
        state.write_u64(host);
        state.write_u64(u64::from(self.port));
    }
}

const fn split(ip: u128) -> (u64, u64) {
    ((ip >> 64) as u64, ip as u64)
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: address.port() }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        address.socket_addr()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket_addr().fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket_addr().fmt(f)
    }
}

/// Whether a packet could be sent to this address at all: a real host and a port other than 0.
#[must_use]
pub fn is_dialable(address: SocketAddr) -> bool {
    let ip = Address::from(address).ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_peer_is_one_address() {
        let cases = [("127.0.0.1:9", "[::ffff:127.0.0.1]:9"), ("[fe80::1]:9", "[fe80::1%7]:9")];
        for (one, other) in cases {
            let (one, other): (SocketAddr, SocketAddr) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(Address::from(one), Address::from(other));
            assert_eq!(Address::from(one).to_bytes(), Address::from(other).to_bytes());
        }
    }

    #[test]
    fn an_address_is_given_back_as_it_came() {
        for text in ["127.0.0.1:9", "0.0.0.0:0", "[2001:db8::1]:65535", "[::1]:1", "[::]:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(Address::from(address).socket_addr(), address);
            assert_eq!(
                std::format!("{} {:?}", Address::from(address), Address::from(address)),
                std::format!("{text} {text}")
            );
        }
    }

    #[test]
    fn a_v6_site_shares_a_budget_and_v4_hosts_do_not() {
        let network = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap()).network();
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::ffff:2]:2"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:0:1::1]:1"));
        assert_ne!(network("10.0.0.1:1"), network("10.0.0.2:1"));
    }

    #[test]
    fn only_a_host_with_a_port_can_be_dialled_in_whatever_spelling() {
        let cases = [
            ("192.0.2.1:40000", true),
            ("[2001:db8::1]:40000", true),
            ("[::ffff:192.0.2.1]:40000", true),
            ("192.0.2.1:0", false),
            ("0.0.0.0:40000", false),
            ("[::]:40000", false),
            ("[::ffff:0.0.0.0]:40000", false),
            ("224.0.0.1:40000", false),
            ("[ff02::1]:40000", false),
            ("[::ffff:224.0.0.1]:40000", false),
            ("255.255.255.255:40000", false),
            ("[::ffff:255.255.255.255]:40000", false),
        ];
        for (text, dialable) in cases {
            assert_eq!(is_dialable(text.parse().unwrap()), dialable, "{text}");
        }
    }
}
