//! The unit of limits for each address.

use core::net::{IpAddr, Ipv6Addr};

/// The unit of the limit for each address: an IPv4 address, or the /64 of an IPv6 address, which is one host's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ConnectionSource(IpAddr);

impl From<IpAddr> for ConnectionSource {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        })
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
}
