use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_netcode::crypto::key::Key;
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::redeem::{Redeemed, redeem};

use super::*;

const NOW: UnixMillis = UnixMillis(1_760_000_000_123);

fn key(byte: u8) -> Key {
    Key::from([byte; 32])
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn issuer(servers: &[&str]) -> Issuer {
    let servers: Vec<_> = servers.iter().map(|server| address(server)).collect();
    let keys = KeyRing::new(&[key(2), key(1)]).unwrap();
    Issuer::new(7, keys, &servers, Limits::default()).unwrap()
}

fn mint(issuer: &Issuer, request: &TokenRequest) -> Result<Minted, MintError> {
    issuer.mint(request, NOW, &mut StdRng::from_seed([5; 32]))
}

fn open(minted: &Minted, key: Key) -> Option<Redeemed> {
    let request = minted.token.request();
    redeem(&request, 7, &key.into()).ok()
}

#[test]
fn newest_key_seals_the_requested_claims() {
    let issuer = issuer(&["192.0.2.1:1", "[2001:db8::1]:2"]);
    let request = TokenRequest {
        client_id: ClientId(u64::MAX),
        servers: Some(vec![address("[2001:db8::1]:2")]),
        user_data: vec![9; 256],
        lifetime_seconds: Some(45),
        timeout_seconds: Some(60),
    };
    let minted = mint(&issuer, &request).unwrap();
    assert!(open(&minted, key(1)).is_none(), "the older key seals nothing");
    let private = open(&minted, key(2)).unwrap();
    assert_eq!(private.client_id, ClientId(u64::MAX));
    assert_eq!(private.servers[..], [address("[2001:db8::1]:2")]);
    assert_eq!(private.user_data, [9; 256]);
    assert_eq!((private.timeout_seconds, private.expires), (60, UnixSeconds(1_760_000_045)));
    assert_eq!(private.minted, Some(NOW));
}

#[test]
fn absent_fields_get_the_defaults() {
    let minted = mint(&issuer(&["192.0.2.2:2", "192.0.2.1:1", "[::ffff:192.0.2.2]:2"]), &TokenRequest::new(3)).unwrap();
    let facts = minted.token.facts();
    assert_eq!(facts.servers[..], [address("192.0.2.2:2"), address("192.0.2.1:1")], "the configured order");
    assert_eq!(facts.expires.0 - facts.created.0, 30);
    assert_eq!(facts.timeout_seconds, 5);
    assert_eq!(open(&minted, key(2)).unwrap().user_data, [0; 256]);
}

#[test]
fn shorter_user_data_is_padded_with_zeros() {
    let minted = mint(&issuer(&["192.0.2.1:1"]), &TokenRequest { user_data: vec![1, 2], ..TokenRequest::new(3) });
    let user_data = open(&minted.unwrap(), key(2)).unwrap().user_data;
    assert_eq!(user_data[..3], [1, 2, 0]);
    assert_eq!(user_data[2..], [0; 254]);
}

#[test]
fn allowed_address_may_be_ipv4_mapped() {
    let request = TokenRequest { servers: Some(vec![address("[::ffff:192.0.2.1]:1")]), ..TokenRequest::new(3) };
    let minted = mint(&issuer(&["192.0.2.1:1"]), &request).unwrap();
    assert_eq!(minted.token.facts().servers[..], [address("192.0.2.1:1")]);
}

#[test]
fn request_outside_the_configuration_is_refused_by_field() {
    let (one, other) = (address("192.0.2.1:1"), address("192.0.2.1:2"));
    let servers = |servers: &[SocketAddr]| TokenRequest { servers: Some(servers.into()), ..TokenRequest::new(3) };
    let lifetime = |seconds| TokenRequest { lifetime_seconds: Some(seconds), ..TokenRequest::new(3) };
    let timeout = |seconds| TokenRequest { timeout_seconds: Some(seconds), ..TokenRequest::new(3) };
    let cases = [
        (servers(&[]), MintError::ServerCount(0), "server_addresses"),
        (servers(&[one; 33]), MintError::ServerCount(33), "server_addresses"),
        (servers(&[one, other]), MintError::ServerNotAllowed(other), "server_addresses"),
        (servers(&[one, one]), MintError::ServerTwice(one), "server_addresses"),
        (lifetime(0), MintError::Lifetime(1..=45), "lifetime_seconds"),
        (lifetime(46), MintError::Lifetime(1..=45), "lifetime_seconds"),
        (timeout(0), MintError::Timeout(1..=60), "timeout_seconds"),
        (timeout(61), MintError::Timeout(1..=60), "timeout_seconds"),
        (
            TokenRequest { user_data: vec![0; 257], ..TokenRequest::new(3) },
            MintError::UserDataTooLong(257),
            "user_data",
        ),
    ];
    let issuer = issuer(&["192.0.2.1:1"]);
    for (request, expected, field) in cases {
        let error = mint(&issuer, &request).unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(error.field(), Some(field));
        assert!(error.to_string().starts_with(field), "{error}");
    }
}

#[test]
fn allow_list_longer_than_a_token_has_no_default() {
    let many: Vec<_> = (1..=33).map(|port| format!("192.0.2.1:{port}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert!(mint(&issuer(&many[..32]), &TokenRequest::new(3)).is_ok());
    assert_eq!(mint(&issuer(&many), &TokenRequest::new(3)).unwrap_err(), MintError::NoServers);
}

#[test]
fn allow_list_needs_a_server_and_only_dialable_ones() {
    let make = |servers: &[SocketAddr]| Issuer::new(7, key(1).into(), servers, Limits::default()).err();
    assert_eq!(make(&[]), Some(IssuerError::NoServers));
    for wrong in ["192.0.2.1:0", "0.0.0.0:1", "224.0.0.1:1"] {
        assert_eq!(make(&[address(wrong)]), Some(IssuerError::ServerNotDialable(address(wrong))));
    }
}

#[test]
fn two_tokens_share_neither_nonce_nor_keys() {
    let issuer = issuer(&["192.0.2.1:1"]);
    let mut entropy = StdRng::from_seed([5; 32]);
    let mut next = || issuer.mint(&TokenRequest::new(3), NOW, &mut entropy).unwrap().token;
    let (one, other) = (next(), next());
    assert_ne!(*one.request().nonce, *other.request().nonce);
    assert!(one.keys().client_to_server != other.keys().client_to_server);
    assert!(one.keys().client_to_server != one.keys().server_to_client);
}

#[test]
fn debug_shows_no_secret() {
    let minted = mint(&issuer(&["192.0.2.1:1"]), &TokenRequest::new(3)).unwrap();
    let shown = format!("{minted:?}");
    assert!(shown.contains("client_id: ClientId(3)"));
    assert!(shown.len() < 400, "the 2048 bytes are not in it: {shown}");
}
