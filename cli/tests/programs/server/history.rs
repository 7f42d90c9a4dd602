//! Tokens across restarts, with and without a history file.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use slipgate_client::{CloseKind, ConnectToken};

use super::client::{TestClient, TestToken};
use super::hostile::request;
use super::program::{PROTOCOL_ID, Program, TestFolder};

/// Starts a server on the address of an earlier one.
fn restart(folder: &TestFolder, address: SocketAddr, flags: &[&str]) -> Program {
    Program::start(folder.on(&[&address.to_string()], flags))
}

fn tokens<const N: usize>(address: SocketAddr) -> [ConnectToken; N] {
    std::array::from_fn(|index| TestToken::new(index as u64, address).with_short_timeout().mint())
}

/// Sends connection requests with a used token, as an attacker may, and asserts that the server does not reply.
fn assert_used(used: &ConnectToken, server: SocketAddr) {
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    attacker.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..5 {
        attacker.send_to(&request(used, PROTOCOL_ID), server).unwrap();
        assert!(attacker.recv(&mut [0; 1500]).is_err(), "the server replied to a used token");
    }
}

#[test]
fn history_keeps_used_and_unused_tokens_apart_over_a_crash() {
    let folder = TestFolder::new();
    let history = ["--history", "history"];
    let server = folder.start(&history);
    let address = server.address();
    // After a restart, tokens minted in the first second of the history are refused.
    std::thread::sleep(Duration::from_millis(1100));
    let [used, also_used, unused] = tokens(address);
    let mut first = TestClient::join_with(used.clone());
    TestClient::join_with(also_used.clone()).echo(b"before the crash");
    first.echo(b"before the crash");
    server.kill();

    let server = restart(&folder, address, &history);
    assert_eq!((server.fact("remembered_tokens"), server.fact("tokens_from")), {
        ("2".to_owned(), "the start of the history".to_owned())
    });
    assert_used(&used, address);
    assert_used(&also_used, address);
    TestClient::join_with(unused).echo(b"after the crash");
    let log = server.stop();
    assert!(log.contains("token_used: ") && !log.contains("before_start"), "{log}");
}

#[test]
fn tokens_from_before_the_start_are_refused_without_a_history() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let address = server.address();
    let [one, other] = tokens(address);
    server.kill();

    let server = restart(&folder, address, &[]);
    assert_eq!(server.fact("tokens_from"), "this start");
    for token in [one.clone(), other.clone()] {
        assert_eq!(TestClient::fail(token), CloseKind::RequestTimedOut);
    }
    TestClient::join(9, address).echo(b"from after the start");
    let log = server.stop();
    assert_eq!(log.matches("from before this server's start").count(), 1, "{log}");
    assert!(log.contains("before_start: "), "{log}");

    let server = restart(&folder, address, &["--first-start"]);
    assert_eq!(server.fact("tokens_from"), "any time");
    TestClient::join_with(one).echo(b"it is the first start");
    server.stop();
}

#[test]
fn tokens_from_before_the_history_began_are_refused() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let address = server.address();
    let [used] = tokens(address);
    TestClient::join_with(used.clone()).echo(b"used while there was no history");
    server.kill();
    let history = ["--history", "history"];
    restart(&folder, address, &history).kill();

    let server = restart(&folder, address, &history);
    assert_used(&used, address);
    assert!(server.stop().contains("before_start: "));
}

#[test]
fn torn_record_at_the_end_is_cut_off_and_logged() {
    let folder = TestFolder::new();
    let history = ["--history", "history"];
    folder.start(&history).kill();
    let mut file = OpenOptions::new().append(true).open(folder.path("history")).unwrap();
    file.write_all(b"torn!").unwrap();
    let log = folder.start(&history).stop();
    assert!(log.contains("ended in a torn record") && log.contains("bytes=5"), "{log}");
    assert!(!folder.start(&history).stop().contains("torn record"));
}
