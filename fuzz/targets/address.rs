//! Any address records in a token's list, and their canonical forms.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::fit;
use slipgate_netcode::address::{Address, is_dialable};
use slipgate_netcode::wire::PRIVATE_TOKEN_PLAIN_BYTES;
use slipgate_netcode::wire::token::{PrivateLayout, Servers, TokenLayoutError};

/// The offset of the address count in a private part (§1.4). The input is written there.
const COUNT_OFFSET: usize = 12;

fuzz_target!(|input: &[u8]| {
    let mut plain = [0; PRIVATE_TOKEN_PLAIN_BYTES];
    plain[COUNT_OFFSET..].copy_from_slice(&fit::<{ PRIVATE_TOKEN_PLAIN_BYTES - COUNT_OFFSET }>(input));
    let private = match PrivateLayout::parse(&plain) {
        Ok(private) => private,
        Err(error) => return assert!(matches!(error, TokenLayoutError::ServerCount | TokenLayoutError::AddressType)),
    };
    let servers = &private.servers[..];
    assert_eq!(Servers::new(servers).as_ref(), Some(&private.servers));
    let addresses: Vec<_> = servers.iter().map(|server| Address::from(*server)).collect();
    for (number, (server, address)) in servers.iter().zip(&addresses).enumerate() {
        let address = *address;
        assert_eq!(Address::from(address.socket_addr()), address);
        assert_eq!(address.socket_addr().port(), server.port());
        assert_eq!(address.socket_addr().ip(), server.ip().to_canonical());
        assert_eq!(address.to_string().parse(), Ok(address.socket_addr()));
        assert_eq!(is_dialable(*server), is_dialable(address.socket_addr()), "{address}");
        for other in &addresses[..=number] {
            assert_eq!(address.to_bytes() == other.to_bytes(), address == *other);
        }
    }
});
