//! Tokens across restarts, with and without a history file.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use slipgate_client::{CloseKind, ConnectToken};

use super::client::{TestClient, TestToken};
use super::hostile::request;
use super::program::{PROTOCOL_ID, Program, TestFolder};
use crate::scale::pick;

/// Starts a server on the address of an earlier one.
pub(super) fn restart(folder: &TestFolder, address: SocketAddr, flags: &[&str]) -> Program {
    Program::start(folder.on(&[&address.to_string()], flags))
}

fn tokens<const N: usize>(address: SocketAddr) -> [ConnectToken; N] {
    std::array::from_fn(|index| TestToken::new(index as u64, address).with_short_timeout().mint())
}

/// Sends connection requests with a used token, as an attacker may, and asserts that the server does not reply.
pub(super) fn assert_used(used: &ConnectToken, server: SocketAddr) {
    let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
    // A late reply to one request is found after the next one, and the last wait is long.
    for wait in [20, 20, 20, 20, 200] {
        attacker.set_read_timeout(Some(Duration::from_millis(wait))).unwrap();
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
    thread::sleep(Duration::from_millis(1100));
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

#[test]
fn cut_history_refuses_earlier_tokens_once() {
    let folder = TestFolder::new();
    let history = ["--history", "history"];
    let server = folder.start(&history);
    let address = server.address();
    thread::sleep(Duration::from_millis(1100));
    let [used, lost, unused] = tokens(address);
    TestClient::join_with(used.clone()).echo(b"recorded");
    TestClient::join_with(lost.clone()).echo(b"recorded and cut off");
    server.kill();
    // Exactly one record.
    let file = OpenOptions::new().write(true).open(folder.path("history")).unwrap();
    file.set_len(file.metadata().unwrap().len() - 32).unwrap();

    let server = restart(&folder, address, &history);
    server.wait_for("lacks used tokens");
    assert_eq!(server.fact("tokens_from"), "this start");
    for token in [&used, &lost, &unused] {
        assert_used(token, address);
    }
    TestClient::join(9, address).echo(b"from after the start");
    assert!(server.stop().contains("before_start: "));

    thread::sleep(Duration::from_millis(1100));
    let [later] = tokens(address);
    let server = restart(&folder, address, &history);
    assert_eq!(server.fact("tokens_from"), "the start of the history");
    for token in [&used, &lost, &unused] {
        assert_used(token, address);
    }
    TestClient::join_with(later).echo(b"the history is whole again");
    assert!(!server.stop().contains("lacks used tokens"));
}

/// Connects one client after another until the server is killed. Returns the tokens of all that were connected.
fn connect_until(is_killed: &AtomicBool, ids: &AtomicU64, address: SocketAddr) -> Vec<ConnectToken> {
    let mut used = Vec::new();
    while !is_killed.load(Ordering::Relaxed) {
        let token = TestToken::new(ids.fetch_add(1, Ordering::Relaxed), address).mint();
        let mut client = TestClient::new(token.clone());
        while !is_killed.load(Ordering::Relaxed) && !client.is_connected() {
            client.turn();
        }
        if client.is_connected() {
            used.push(token);
            client.leave();
        }
    }
    used
}

/// Presents each token from a socket of its own, and returns how many the server replies to.
fn replies(used: &[ConnectToken], server: SocketAddr) -> usize {
    let sockets: Vec<_> = used.iter().map(|token| (UdpSocket::bind("127.0.0.1:0").unwrap(), token)).collect();
    for _ in 0..2 {
        for (socket, token) in &sockets {
            socket.set_nonblocking(true).unwrap();
            socket.send_to(&request(token, PROTOCOL_ID), server).unwrap();
        }
        thread::sleep(Duration::from_millis(200));
    }
    sockets.iter().filter(|(socket, _)| socket.recv(&mut [0; 1500]).is_ok()).count()
}

#[test]
fn killed_server_admits_no_used_token_and_all_unused_ones() {
    let kills = pick(6, 60);
    let seed = u64::from_le_bytes(*slipgate_os::entropy::bytes().unwrap().first_chunk().unwrap());
    let mut random = StdRng::seed_from_u64(seed);
    let folder = TestFolder::new();
    let history = ["--history", "history", "--slots", "256"];
    let mut server = folder.start(&history);
    let address = server.address();
    thread::sleep(Duration::from_millis(1100));
    let (ids, mut presented, mut accepted) = (AtomicU64::new(1000), 0, 0);
    for kill in 0..kills {
        let unused = TestToken::new(kill, address).mint();
        let is_killed = AtomicBool::new(false);
        let used: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| connect_until(&is_killed, &ids, address))).collect();
            thread::sleep(Duration::from_micros(random.random_range(50_000..400_000)));
            server.kill();
            is_killed.store(true, Ordering::Relaxed);
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        server = restart(&folder, address, &history);
        presented += used.len();
        accepted += replies(&used, address);
        TestClient::join_with(unused).echo(b"a crash refuses no unused token");
    }
    println!("{accepted} of {presented} replays accepted after {kills} kills (seed {seed})");
    assert!(presented > 2 * kills as usize && accepted == 0, "{accepted} of {presented}, seed {seed}");
    assert!(!server.stop().contains("lacks used tokens"));
}
