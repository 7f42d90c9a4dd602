//! Bytes of one connection to the token issuer, without a key and with one: each response is complete HTTP with the
//! security headers; a request without a key gets no token and registers nothing; a token is for a game of the issuer,
//! for at most its maximum lifetime, and for servers that the key may use; no response shows a secret.

#![no_main]

use std::cell::RefCell;
use std::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::redeem::redeem;
use slipgate_token_issuer::fuzzing::{ALLOWED, IssuerRequests, PROTOCOL_IDS, REGISTERED};

/// What an input may write instead of a key: the key without a name, that of the lobby and that of a server.
const PLACEHOLDERS: [&[u8]; 3] = [b"@any", b"@lobby", b"@server"];
/// The most bytes of the responses on one connection: some pages with the document of the API.
const MAX_RESPONSE: usize = 4 * 1024 * 1024;

thread_local! {
    static SERVICE: RefCell<IssuerRequests> = RefCell::new(answering());
}

/// Returns a service that responds: without responses the checks would check nothing.
fn answering() -> IssuerRequests {
    let mut service = IssuerRequests::new();
    let (bytes, _) = service.exchange(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(next(&mut bytes.as_slice()).expect("a response").status, 200);
    service
}

/// Which keys an input holds.
#[derive(Clone, Copy)]
struct Held {
    any: bool,
    lobby: bool,
    server: bool,
}

/// Replaces the placeholders by keys, which the fuzzer would not find.
fn with_keys(input: &[u8], keys: &[String; 3]) -> (Vec<u8>, Held) {
    let (mut bytes, mut rest, mut held) = (Vec::with_capacity(input.len()), input, [false; 3]);
    while let Some((first, behind)) = rest.split_first() {
        let found = (0..3).find(|index| rest.starts_with(PLACEHOLDERS[*index]));
        if let Some(index) = found {
            bytes.extend_from_slice(keys[index].as_bytes());
            held[index] = true;
            rest = &rest[PLACEHOLDERS[index].len()..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    let [any, lobby, server] = held;
    (bytes, Held { any, lobby, server })
}

/// One response of a connection.
struct Parsed<'a> {
    status: u16,
    head: String,
    body: &'a [u8],
}

/// Splits the first response from the bytes of a connection. Interim responses are skipped.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<Parsed<'a>> {
    loop {
        if bytes.is_empty() {
            return None;
        }
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a complete head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("a head in ASCII").to_lowercase();
        *bytes = &bytes[end + 4..];
        let status = head.strip_prefix("http/1.").and_then(|rest| rest.split(' ').nth(1)).expect("a status line");
        let status: u16 = status.parse().expect("a status");
        if status == 100 {
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map(str::parse::<usize>);
        // Without a length the body is the rest: a stream of events, or the answer to HEAD.
        let length = length.map_or(bytes.len(), |length| length.expect("a length").min(bytes.len()));
        let (body, rest) = bytes.split_at(length);
        *bytes = rest;
        return Some(Parsed { status, head, body });
    }
}

fn check(response: &Parsed<'_>, held: Held) {
    let Parsed { status, head, body } = response;
    if !head.contains("x-content-type-options: nosniff") {
        assert!([400, 414, 431].contains(status) && body.is_empty(), "{status} without the headers of the service");
        return;
    }
    assert!(head.contains("cache-control: no-store") && head.contains("x-request-id: "), "{head}");
    assert!(!head.contains("access-control-"), "{head}");
    assert!(*status < 500 || *status == 503, "{status}");
    if *status == 201 {
        assert!(held.any || held.lobby, "a token without a key");
        check_token(&serde_json::from_slice(body).expect("JSON"), held);
    }
}

fn check_token(created: &Value, held: Held) {
    let token = ConnectToken::from_bytes(&base64(created["token"].as_str().expect("a token"))).expect("2048 bytes");
    let request = token.request();
    let game: u64 = created["protocol_id"].as_str().and_then(|id| id.parse().ok()).expect("a number");
    assert!(PROTOCOL_IDS.contains(&game), "{game}");
    let redeemed = redeem(&request, game, &KeyRing::from(IssuerRequests::private_key())).expect("the issuer's token");
    assert_eq!(created["client_id"], redeemed.client_id.to_string());
    let minted = redeemed.minted.expect("a mint time").0 / 1000;
    assert!(redeemed.expires.0 - minted <= 45 + 1);
    assert!(0 < redeemed.timeout_seconds && redeemed.timeout_seconds <= 60);
    let known = ALLOWED.map(|text| text.parse::<SocketAddr>().expect("an address"));
    assert!(redeemed.servers.iter().all(|server| known.contains(server)), "{created}");
    // The lobby's key is for its group, in which only a key that registers adds other servers.
    if !held.any && !held.server {
        let first: SocketAddr = REGISTERED.parse().expect("an address");
        assert!(redeemed.servers.iter().all(|server| *server == first), "{created}");
    }
}

/// Decodes padded base64.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').chars() {
        bits = bits << 6 | ALPHABET.find(digit).expect("a digit") as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

fuzz_target!(|input: &[u8]| {
    SERVICE.with_borrow_mut(|service| {
        let (request, held) = with_keys(input, service.keys());
        let (bytes, servers) = service.exchange(&request);
        assert!(bytes.len() <= MAX_RESPONSE);
        for key in service.keys() {
            let secret = key.rsplit('.').next().expect("a secret").as_bytes();
            assert!(!bytes.windows(secret.len()).any(|window| window == secret), "a response shows a key");
        }
        assert!(held.any || held.server || servers == 1, "{servers} servers without a key that registers");
        let mut rest = bytes.as_slice();
        while let Some(response) = next(&mut rest) {
            check(&response, held);
        }
    });
});
