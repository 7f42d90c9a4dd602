//! Peer addresses in one canonical form, so that one peer is one key.
//!
//! A dual-stack socket reports an IPv4 peer as `::ffff:a.b.c.d`. An IPv6 address carries a scope and a flow label,
//! which have a meaning on this host only. Comparing raw [`SocketAddr`]s would treat one peer as two.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A peer's IP address and port: IPv4-mapped IPv6 folded to IPv4, IPv6 scope and flow label zeroed.
///
/// It takes 18 bytes instead of the 32 of the standard library's type, because every packet needs a lookup in tables of
/// addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The IPv6 address, or the IPv4 address in its IPv4-mapped form.
    ip: [u8; 16],
    port: u16,
}

impl Address {
    /// Returns the address as the standard library's type, in canonical form.
    #[inline]
    #[must_use]
    pub const fn socket_addr(self) -> SocketAddr {
        SocketAddr::new(self.ip(), self.port)
    }

    #[inline]
    const fn ip(self) -> IpAddr {
        let ip = Ipv6Addr::from_octets(self.ip);
        match ip.to_ipv4_mapped() {
            Some(v4) => IpAddr::V4(v4),
            None => IpAddr::V6(ip),
        }
    }

    /// Returns the network that budgets count as one source: an IPv4 host (/32) or an IPv6 site (/64), as 16 bytes.
    pub(crate) fn network(self) -> [u8; 16] {
        match self.ip() {
            IpAddr::V4(_) => self.ip,
            // A site usually owns a whole /64, so one attacker can use 2^64 addresses of it.
            IpAddr::V6(ip) => (u128::from(ip) & (u128::MAX << 64)).to_be_bytes(),
        }
    }

    /// Returns address and port as 18 bytes, the input of keyed digests. They are equal for equal peers.
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
    /// Hashes whole 64-bit words: one for IPv4, three for IPv6.
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Every packet hashes an address, and SipHash costs a round for each word: IPv4 address and port share one.
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
    #[inline]
    fn from(address: SocketAddr) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            // Scope and flow label are dropped here.
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: address.port() }
    }
}

impl From<Address> for SocketAddr {
    #[inline]
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

/// Returns whether a packet can be sent to this address: a unicast host and a port other than 0.
#[must_use]
pub fn is_dialable(address: SocketAddr) -> bool {
    // The canonical form first: an IPv4-mapped wildcard is a wildcard, too.
    let ip = Address::from(address).ip();
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && ip != IpAddr::V4(Ipv4Addr::BROADCAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_of_one_peer_compare_equal() {
        let cases = [("127.0.0.1:9", "[::ffff:127.0.0.1]:9"), ("[fe80::1]:9", "[fe80::1%7]:9")];
        for (one, other) in cases {
            let (one, other): (SocketAddr, SocketAddr) = (one.parse().unwrap(), other.parse().unwrap());
            assert_eq!(Address::from(one), Address::from(other));
            assert_eq!(Address::from(one).to_bytes(), Address::from(other).to_bytes());
        }
    }

    #[test]
    fn canonical_address_converts_back_unchanged() {
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
    fn ipv6_site_is_one_network_and_ipv4_hosts_are_not() {
        let network = |text: &str| Address::from(text.parse::<SocketAddr>().unwrap()).network();
        assert_eq!(network("[2001:db8::1]:1"), network("[2001:db8::ffff:2]:2"));
        // A folded IPv4 address and its mapped form are equal, so they are one network, too.
        assert_eq!(network("[::ffff:10.0.0.1]:1"), network("10.0.0.1:1"));
        assert_ne!(network("[2001:db8::1]:1"), network("[2001:db8:0:1::1]:1"));
        assert_ne!(network("10.0.0.1:1"), network("10.0.0.2:1"));
    }

    #[test]
    fn only_a_unicast_host_with_a_port_is_dialable() {
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
