//! The servers to which tokens may lead: exact addresses, and networks with a range of ports.

use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use core::str::FromStr;
use std::collections::BTreeSet;

use ipnet::IpNet;
use slipgate_netcode::address::Address;

/// A network of addresses that tokens may list, with a range of ports: `10.0.0.0/8:40000-40999` or
/// `[2001:db8::/32]:40000`.
///
/// It suits fleets that give each server a port of its own when it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AllowedNetwork {
    network: IpNet,
    ports: RangeInclusive<u16>,
}

impl AllowedNetwork {
    /// Returns whether an address is in the network and its port in the range.
    #[must_use]
    pub fn contains(&self, address: SocketAddr) -> bool {
        let address = Address::from(address).socket_addr();
        self.network.contains(&address.ip()) && self.ports.contains(&address.port())
    }
}

impl FromStr for AllowedNetwork {
    type Err = AllowedNetworkError;

    fn from_str(text: &str) -> Result<Self, AllowedNetworkError> {
        let (network, ports) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:"),
            None => text.split_once(':'),
        }
        .ok_or(AllowedNetworkError)?;
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (Some(first), Some(last)) = (port(first), port(last)) else { return Err(AllowedNetworkError) };
        let network: IpNet = network.parse().map_err(|_| AllowedNetworkError)?;
        // An IPv4-mapped network would never match, because addresses are compared in their canonical form.
        let is_canonical = !matches!(network, IpNet::V6(network) if network.addr().to_ipv4_mapped().is_some());
        let is_complete = is_canonical && network.addr() == network.network() && first <= last;
        if is_complete { Ok(Self { network, ports: first..=last }) } else { Err(AllowedNetworkError) }
    }
}

impl fmt::Display for AllowedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.network {
            IpNet::V4(network) => write!(f, "{network}")?,
            IpNet::V6(network) => write!(f, "[{network}]")?,
        }
        write!(f, ":{}-{}", self.ports.start(), self.ports.end())
    }
}

/// The text is not a network with a port or a range of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AllowedNetworkError;

impl fmt::Display for AllowedNetworkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a network of servers has the form 10.0.0.0/8:40000-40999 or [2001:db8::/32]:40000-40999")
    }
}

impl core::error::Error for AllowedNetworkError {}

/// The allow-list of an issuer.
pub(super) struct AllowedServers {
    pub(super) addresses: BTreeSet<Address>,
    pub(super) networks: Vec<AllowedNetwork>,
}

impl AllowedServers {
    pub(super) fn contains(&self, server: SocketAddr) -> bool {
        self.addresses.contains(&server.into()) || self.networks.iter().any(|network| network.contains(server))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.networks.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_with_ports_is_parsed_and_printed() {
        for (text, printed) in [
            ("10.0.0.0/8:40000-40999", "10.0.0.0/8:40000-40999"),
            ("192.0.2.7/32:1", "192.0.2.7/32:1-1"),
            ("[2001:db8::/32]:40000-40001", "[2001:db8::/32]:40000-40001"),
        ] {
            assert_eq!(text.parse::<AllowedNetwork>().unwrap().to_string(), printed);
        }
        let wrong = [
            "",
            "10.0.0.0/8",
            "10.0.0.1/8:1",
            "10.0.0.0/33:1",
            "10.0.0.0/8:0",
            "10.0.0.0/8:2-1",
            "10.0.0.0/8:1-",
            "10.0.0.0/8:65536",
            "2001:db8::/32:1",
            "[2001:db8::]/32:1",
            "[2001:db8::1/32]:1",
            "[2001:db8::/32]",
            "[::ffff:10.0.0.0/104]:1",
            "10.0.0.0:1",
        ];
        for text in wrong {
            assert_eq!(text.parse::<AllowedNetwork>(), Err(AllowedNetworkError), "{text}");
        }
    }

    #[test]
    fn address_must_be_in_the_network_and_its_port_in_the_range() {
        let network: AllowedNetwork = "10.1.0.0/16:40000-40009".parse().unwrap();
        for (address, is_allowed) in [
            ("10.1.0.0:40000", true),
            ("10.1.255.255:40009", true),
            ("[::ffff:10.1.2.3]:40001", true),
            ("10.2.0.0:40000", false),
            ("10.1.0.0:39999", false),
            ("10.1.0.0:40010", false),
            ("[2001:db8::1]:40000", false),
        ] {
            assert_eq!(network.contains(address.parse().unwrap()), is_allowed, "{address}");
        }
    }

    #[test]
    fn ipv6_address_must_be_in_the_network_too() {
        let network: AllowedNetwork = "[2001:db8:7::/48]:40000-40009".parse().unwrap();
        for (address, is_allowed) in [
            ("[2001:db8:7::]:40000", true),
            ("[2001:db8:7:ffff::1]:40009", true),
            ("[2001:db8:8::1]:40000", false),
            ("[2001:db8:7::1]:40010", false),
            ("192.0.2.7:40000", false),
        ] {
            assert_eq!(network.contains(address.parse().unwrap()), is_allowed, "{address}");
        }
    }
}
