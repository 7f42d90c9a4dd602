//! Any 1008 bytes inside a private part that is sealed with the right key, as a malicious issuer could write them.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::{PROTOCOL_ID, fit, key};
use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::crypto::sealed_token::{PrivateContext, seal_private};
use slipgate_netcode::discard::Discard;
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::redeem::redeem;
use slipgate_netcode::wire::packet::Request;
use slipgate_netcode::wire::token::PrivateLayout;
use slipgate_netcode::wire::{PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES};

const EXPIRES: UnixSeconds = UnixSeconds(1_700_000_000);
const NONCE: [u8; 24] = [0x3c; 24];

static KEYS: LazyLock<KeyRing> = LazyLock::new(|| KeyRing::from(key()));

fuzz_target!(|input: &[u8]| {
    let plain: [u8; PRIVATE_TOKEN_PLAIN_BYTES] = fit(input);
    let parsed = PrivateLayout::parse(&plain);

    let mut sealed: [u8; PRIVATE_TOKEN_BYTES] = fit(&plain);
    seal_private(&key(), &PrivateContext { protocol_id: PROTOCOL_ID, expires: EXPIRES, nonce: &NONCE }, &mut sealed);
    let request = Request { expires: EXPIRES, nonce: &NONCE, sealed: &sealed };
    let redeemed = redeem(&request, PROTOCOL_ID, &KEYS);

    let (parsed, redeemed) = match (parsed, redeemed) {
        (Ok(parsed), Ok(redeemed)) => (parsed, redeemed),
        (Err(_), redeemed) => return assert_eq!(redeemed.map(|_| ()), Err(Discard::TokenMalformed)),
        (Ok(_), Err(discard)) => panic!("{discard}: parses, but is not redeemed"),
    };
    assert_eq!((redeemed.client_id, redeemed.timeout_seconds), (parsed.client_id, parsed.timeout_seconds));
    assert_eq!((&redeemed.servers, &redeemed.user_data), (&parsed.servers, parsed.user_data));
    assert_eq!((redeemed.minted, redeemed.expires), (parsed.minted, EXPIRES));
    assert_eq!(redeemed.client_to_server.expose(), parsed.client_to_server);
    assert_eq!(redeemed.server_to_client.expose(), parsed.server_to_client);
    let servers = &redeemed.servers[..];
    assert!((1..=32).contains(&servers.len()));
    for server in servers {
        let index = redeemed.server_index(&[Address::from(*server)]).map(usize::from);
        assert!(index.is_some_and(|index| Address::from(servers[index]) == Address::from(*server)));
    }

    let mut written = [0xaa; PRIVATE_TOKEN_PLAIN_BYTES];
    parsed.emit(&mut written);
    let content: usize = servers.iter().map(|server| if server.is_ipv4() { 7 } else { 19 }).sum();
    assert_eq!(written[..16 + content + 320], plain[..16 + content + 320]);
    let again = PrivateLayout::parse(&written).map(|again| (again.client_id, again.servers, again.minted));
    assert_eq!(again, Ok((parsed.client_id, parsed.servers, parsed.minted)));
});
