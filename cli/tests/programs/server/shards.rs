//! `slipgate-server` with several shards.
#![cfg(target_os = "linux")]

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use slipgate_client::CloseKind;

use super::client::{TestClient, TestToken, until};
use super::hostile::request;
use super::program::{OTHER_KEY, PRIVATE_KEY, PROTOCOL_ID, Program, TestFolder};

/// Connects clients to a server of three shards. The probability that all of eight share a shard is 1 in 2,187.
fn clients(server: &Program, count: u64) -> Vec<TestClient> {
    (0..count).map(|id| TestClient::join(id, server.address())).collect()
}

/// Starts a server whose log says when each shard has taken a command.
fn start_with_debug_log(folder: &TestFolder, flags: &[&str]) -> Program {
    let mut command = folder.complete(flags);
    command.env("RUST_LOG", "debug");
    Program::start(command)
}

#[test]
fn shards_have_named_threads_own_totals_and_reload_keys() {
    let folder = TestFolder::new();
    let server = start_with_debug_log(&folder, &["--shards", "3"]);
    assert_eq!((server.fact("shards"), server.fact("steering")), ("3".to_owned(), "hash".to_owned()));
    let mut clients = clients(&server, 8);
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut names: Vec<_> =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap().trim().to_owned()).collect();
    names.sort();
    assert_eq!(
        names.iter().filter(|name| name.starts_with("shard-")).collect::<Vec<_>>(),
        ["shard-0", "shard-1", "shard-2"]
    );
    clients.iter_mut().for_each(|client| client.echo(b"through its shard"));
    let forged = TestToken { key: OTHER_KEY, ..TestToken::new(9, server.address()) }.mint();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.send_to(&request(&forged, PROTOCOL_ID), server.address()).unwrap();
    server.wait_for("token_not_authentic");
    folder.write("keys", format!("{OTHER_KEY}\n{PRIVATE_KEY}\n"), 0o600);
    server.signal("-HUP");
    server.wait_for_lines("the shard has the new keys", 3);
    let rotated = |id| TestToken { key: OTHER_KEY, ..TestToken::new(id, server.address()) }.mint();
    (10..14).for_each(|id| TestClient::join_with(rotated(id)).echo(b"by the new key"));
    let log = server.stop();
    assert_eq!(log.matches("totals since the start").count(), 3, "{log}");
    assert!(log.contains("totals of all shards shards=3 connects=12 "), "{log}");
    let sum = log.lines().find(|line| line.contains("totals of all shards")).unwrap();
    assert!(sum.contains(" turns_cut_short="), "{sum}");
    assert!(log.lines().any(|line| line.contains("client connected") && line.contains(" connected=8")), "{log}");
    assert!(sum.contains(" reasons=\"") && sum.contains("token_not_authentic: 1"), "{sum}");
    let count = |line: &str, name: &str| -> u64 {
        line.split(name).nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap()
    };
    for name in [" dropped=", " after_end="] {
        let of_shards =
            log.lines().filter(|line| line.contains("totals since the start")).map(|line| count(line, name));
        assert_eq!(count(sum, name), of_shards.sum::<u64>(), "{name}: {log}");
    }
    assert_eq!(sum.contains(" overflow_at_most="), cfg!(target_os = "linux"), "{sum}");
    assert!((0..3).filter(|id| log.contains(&format!("shard{{id={id}}}: "))).count() > 1, "{log}");
}

#[test]
fn steering_by_cpu_works_with_one_and_two_shards() {
    let folder = TestFolder::new();
    for shards in ["1", "2"] {
        let server = folder.start(&["--steering", "cpu", "--shards", shards]);
        assert_eq!((server.fact("shards").as_str(), server.fact("steering").as_str()), (shards, "cpu"));
        // The client's shard of two would change whenever the system moves the test to another CPU.
        if shards == "1" {
            server.wait_for("--steering cpu has no effect");
            clients(&server, 1)[0].echo(b"the only shard");
        }
        assert_eq!(server.stop().contains("has no effect"), shards == "1");
    }
}

#[test]
fn draining_shards_deny_new_clients_and_keep_the_others() {
    let folder = TestFolder::new();
    let mut server = start_with_debug_log(&folder, &["--shards", "2", "--drain", "1h"]);
    let address = server.address();
    let mut old = TestClient::join(1, address);
    server.signal("-TERM");
    server.wait_for_lines("the shard accepts or denies new clients from now on accept=false", 2);
    for id in 2..6 {
        assert_eq!(TestClient::fail(TestToken::new(id, address).mint()), CloseKind::Denied);
    }
    old.echo(b"still connected");
    assert!(server.is_running());
    old.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("reason=left ") && log.contains(" connects=1 "), "{log}");
}

#[test]
fn relay_reaches_the_clients_of_all_shards() {
    let folder = TestFolder::new();
    let server = folder.start(&["--app", "relay", "--shards", "3"]);
    let mut clients = clients(&server, 8);
    let mut turns = 0;
    until("received by all others", &mut clients.iter_mut().collect::<Vec<_>>(), |clients| {
        if turns % 50 == 0 {
            clients[0].send(b"to all clients");
        }
        turns += 1;
        clients[1..].iter().all(|client| client.has_received(b"to all clients"))
    });
    assert!(!clients[0].has_received(b"to all clients"));
    let log = server.stop();
    assert_eq!(log.matches("reason=server_stopped ").count(), 8, "{log}");
}

#[test]
fn history_is_shared_by_all_shards_and_survives_a_crash() {
    let folder = TestFolder::new();
    let server = folder.start(&["--shards", "3", "--history", "history"]);
    let address = server.address();
    std::thread::sleep(Duration::from_millis(1100));
    let used: Vec<_> = (0..6).map(|id| TestToken::new(id, address).with_short_timeout().mint()).collect();
    for token in &used {
        TestClient::join_with(token.clone()).echo(b"before the crash");
    }
    server.kill();

    let flags = ["--shards", "2", "--history", "history"];
    let server = Program::start(folder.on(&[&address.to_string()], &flags));
    assert_eq!(server.fact("remembered_tokens"), "6");
    for token in &used {
        // Several source ports, so that every shard gets a request.
        for _ in 0..4 {
            let attacker = UdpSocket::bind("127.0.0.1:0").unwrap();
            attacker.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            attacker.send_to(&request(token, PROTOCOL_ID), address).unwrap();
            assert!(attacker.recv(&mut [0; 1500]).is_err(), "the server replied to a used token");
        }
    }
    let log = server.stop();
    let is_refusal = |line: &&str| line.contains("totals since the start") && line.contains("token_used: ");
    assert_eq!(log.lines().filter(is_refusal).count(), 2, "each shard has refused: {log}");
}

#[test]
fn wrong_shard_count_and_port_in_use_are_refused() {
    let folder = TestFolder::new();
    for wrong in ["0", "257"] {
        let (code, message) = folder.refused(folder.complete(&["--shards", wrong]));
        assert_eq!((code, message.contains("--shards must be 1 to 256")), (2, true), "{message}");
    }
    let server = folder.start(&["--shards", "2"]);
    for shards in ["1", "2"] {
        let second = folder.on(&[&server.address().to_string()], &["--shards", shards]);
        let (code, message) = folder.refused(second);
        assert_eq!((code, message.contains("another program listens there already")), (1, true), "{message}");
    }
    server.stop();
}
