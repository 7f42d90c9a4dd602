//! What the log says of clients that do not get in: who, why, and what an operator may have done wrong.

use std::net::{SocketAddr, UdpSocket};

use slipgate_client::CloseKind;
use slipgate_netcode::time::UnixMillis;
use slipgate_os::clock::wall_clock;

use super::client::{TestClient, TestToken, until};
use super::hostile::request;
use super::program::{OTHER_KEY, PROTOCOL_ID, TestFolder};

/// A configuration file: each client id may use one token.
const LIMITS: &str = "[limits]\ntokens_per_client_id = 1\n";

/// Sends the request of a token that a client would not use, because it has expired.
fn send_request(token: &TestToken, minted: UnixMillis, to: SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        socket.send_to(&request(&token.mint_at(minted), PROTOCOL_ID), to).unwrap();
    }
}

#[test]
fn issuer_clock_that_is_behind_is_named_with_its_error() {
    let folder = TestFolder::new();
    let server = folder.start(&["--first-start"]);
    let behind = || UnixMillis(wall_clock().0 - 120_000);
    for id in [41, 42, 43] {
        send_request(&TestToken::new(id, server.address()), behind(), server.address());
        let line = server.wait_for(&format!("client refused client_id={id} "));
        assert!(line.contains("reason=token_expired minted_seconds_ago=120"), "{line}");
        assert!(line.contains("expires_in_seconds=-7"), "{line}");
    }
    let line = server.wait_for("s behind this server's");
    assert!(line.contains("WARN") && line.contains("clock is about 120 s behind"), "{line}");
    let log = server.stop();
    assert_eq!(log.matches("client refused").count(), 3, "one line for each client: {log}");
}

#[test]
fn issuer_clock_that_is_ahead_is_named_even_if_it_does_no_harm() {
    let folder = TestFolder::new();
    let server = folder.start(&["--max-token-lifetime", "2m"]);
    let token = TestToken::new(1, server.address()).mint_at(UnixMillis(wall_clock().0 + 30_000));
    TestClient::join_with(token).echo(b"plays");
    server.wait_for("clock is about 30 s ahead of this server's");
    send_request(&TestToken::new(2, server.address()), UnixMillis(wall_clock().0 + 300_000), server.address());
    let line = server.wait_for("client refused client_id=2 ");
    assert!(line.contains("reason=token_lifetime_too_long minted_seconds_ago=-"), "{line}");
    server.stop();
}

#[test]
fn full_server_says_so_and_names_the_refused_client() {
    let folder = TestFolder::new();
    let server = folder.start(&["--slots", "1"]);
    let mut player = TestClient::join(1, server.address());
    let mut late = TestClient::new(TestToken::new(42, server.address()).mint());
    until("denied", &mut [&mut player, &mut late], |clients| clients[1].ended.is_some());
    assert_eq!(late.ended, Some(CloseKind::Denied));
    assert!(server.wait_for("the server is full").contains("WARN"));
    assert!(server.wait_for("client refused client_id=42 ").contains("reason=server_full"));
    // The same player again, from another device, while the first one plays: a silent one would be taken over.
    let mut second = TestClient::new(TestToken::new(1, server.address()).with_short_timeout().mint());
    until("refused", &mut [&mut player, &mut second], |clients| clients[1].ended.is_some());
    assert!(player.is_connected());
    assert!(server.wait_for("client waits client_id=1 ").contains("reason=client_id_connected"));
    server.stop();
    // Without takeovers it is refused.
    let server = folder.start(&["--takeover-after", "0s"]);
    let mut player = TestClient::join(1, server.address());
    let mut second = TestClient::new(TestToken::new(1, server.address()).with_short_timeout().mint());
    until("refused", &mut [&mut player, &mut second], |clients| clients[1].ended.is_some());
    assert!(server.wait_for("client refused client_id=1 ").contains("reason=client_id_connected"));
    server.stop();
}

#[test]
fn forged_datagram_does_not_spend_the_warning_of_another_key() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let forged = TestToken { key: OTHER_KEY, ..TestToken::new(1, server.address()) };
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&request(&forged.mint(), PROTOCOL_ID), server.address()).unwrap();
    TestClient::fail(forged.with_short_timeout().mint());
    let line = server.wait_for("the token issuer may have another key");
    assert!(line.contains("WARN"), "{line}");
    let log = server.stop();
    let refused = log.lines().position(|line| line.contains("token_not_authentic")).unwrap();
    assert!(log.lines().nth(refused).unwrap().contains("none has opened lately"), "{log}");
}

#[test]
fn requests_for_another_protocol_id_are_warned_of() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let foreign = TestToken { protocol_id: PROTOCOL_ID + 1, ..TestToken::new(1, server.address()) };
    // A single one must not make the kernel drop all others.
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&request(&foreign.mint(), PROTOCOL_ID + 1), server.address()).unwrap();
    TestClient::fail(foreign.with_short_timeout().mint());
    let line = server.wait_for("the token issuer may have another protocol id");
    assert!(line.contains("WARN") && line.contains("request_protocol"), "{line}");
    let log = server.stop();
    assert_eq!(log.matches("may have another protocol id").count(), 1, "{log}");
}

#[test]
fn debug_log_explains_a_handshake_step_by_step() {
    let folder = TestFolder::new();
    let mut command = folder.complete(&[]);
    command.env("RUST_LOG", "debug");
    let server = super::program::Program::start(command);
    let mut client = TestClient::join(42, server.address());
    client.echo(b"hello");
    client.leave();
    TestClient::fail(TestToken { key: OTHER_KEY, ..TestToken::new(7, server.address()).with_short_timeout() }.mint());
    let log = server.stop();
    let steps = ["a challenge is sent client_id=42 ", "the client gets a slot client_id=42 ", "client connected"];
    let positions = steps.map(|step| log.find(step).unwrap_or_else(|| panic!("no {step:?}: {log}")));
    assert!(positions.is_sorted(), "{log}");
    assert!(log.contains("handshake packet dropped") && log.contains("reason=token_not_authentic"), "{log}");
    assert!(!log.contains("client_id=\"") && !log.contains("address=\""), "one search finds all lines: {log}");

    let quiet = folder.start(&[]);
    TestClient::join(42, quiet.address()).echo(b"hello");
    assert!(!quiet.stop().contains("a challenge is sent"));
}

#[test]
fn client_id_with_too_many_tokens_is_named_by_the_warning() {
    let folder = TestFolder::new();
    let server = folder.start(&["--config", folder.write("limits.toml", LIMITS, 0o600).to_str().unwrap()]);
    TestClient::join(42, server.address()).leave();
    TestClient::fail(TestToken::new(42, server.address()).with_short_timeout().mint());
    let line = server.wait_for("has used its maximum of unexpired connect tokens");
    assert!(line.contains("WARN") && line.contains("client_id=42"), "{line}");
    server.stop();
}
