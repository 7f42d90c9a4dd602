//! The program on several threads.
#![cfg(target_os = "linux")]

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use slipgate_client::EndReason;

use super::hostile::request;
use super::player::{Player, Ticket, until};
use super::program::{OTHER_KEY, PRIVATE_KEY, PROTOCOL_ID, Place, Program};

/// Players on a server of three shards: that all of eight have one shard happens once in 2,187.
fn players(server: &Program, count: u64) -> Vec<Player> {
    (0..count).map(|id| Player::join(id, server.address())).collect()
}

#[test]
fn shards_have_threads_with_names_serve_all_count_each_and_together_and_take_new_keys() {
    let place = Place::new();
    let server = place.start(&["--shards", "3"]);
    assert_eq!((server.fact("shards"), server.fact("steering")), ("3".to_owned(), "hash".to_owned()));
    let mut players = players(&server, 8);
    let tasks = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut names: Vec<_> =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap().trim().to_owned()).collect();
    names.sort();
    assert_eq!(
        names.iter().filter(|name| name.starts_with("shard-")).collect::<Vec<_>>(),
        ["shard-0", "shard-1", "shard-2"]
    );
    players.iter_mut().for_each(|player| player.echo(b"each by its own shard"));
    place.write("keys", format!("{OTHER_KEY}\n{PRIVATE_KEY}\n"), 0o600);
    server.signal("-HUP");
    server.wait_for("keys=2");
    // The shards take it at their next tick.
    std::thread::sleep(Duration::from_millis(100));
    let rotated = |id| Ticket { key: OTHER_KEY, ..Ticket::new(id, server.address()) }.mint();
    (10..14).for_each(|id| Player::join_with(rotated(id)).echo(b"by the new key"));
    let log = server.stop();
    assert_eq!(log.matches("totals since the start").count(), 3, "{log}");
    assert!(log.contains("totals of all shards shards=3 connects=12 "), "{log}");
    let sum = log.lines().find(|line| line.contains("totals of all shards")).unwrap();
    assert!(sum.contains(" turns_cut_short="), "{sum}");
    assert_eq!(sum.contains(" overflow_at_most="), cfg!(target_os = "linux"), "{sum}");
    assert!((0..3).filter(|id| log.contains(&format!("shard{{id={id}}}: "))).count() > 1, "{log}");
}

#[test]
fn steered_by_cpu_a_server_of_one_shard_starts_as_well_as_one_of_two() {
    let place = Place::new();
    for shards in ["1", "2"] {
        let server = place.start(&["--steering", "cpu", "--shards", shards]);
        assert_eq!((server.fact("shards").as_str(), server.fact("steering").as_str()), (shards, "cpu"));
        // Of two shards that of this test's CPU has the player, until the system moves the test to another.
        if shards == "1" {
            server.wait_for("--steering cpu changes nothing");
            players(&server, 1)[0].echo(b"the only shard");
        }
        assert_eq!(server.stop().contains("changes nothing"), shards == "1");
    }
}

#[test]
fn while_shards_drain_newcomers_are_denied_and_the_others_talk_on_until_they_leave() {
    let place = Place::new();
    let mut server = place.start(&["--shards", "2", "--drain", "1h"]);
    let address = server.address();
    let mut old = Player::join(1, address);
    server.signal("-TERM");
    server.wait_for("stopping");
    std::thread::sleep(Duration::from_millis(100));
    for id in 2..6 {
        assert_eq!(Player::fail(Ticket::new(id, address).mint()), EndReason::Denied);
    }
    old.echo(b"the old one talks on");
    assert!(server.is_running());
    old.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("reason=\"left\"") && log.contains(" connects=1 "), "{log}");
}

#[test]
fn a_relay_tells_the_clients_of_all_shards() {
    let place = Place::new();
    let server = place.start(&["--app", "relay", "--shards", "3"]);
    let mut players = players(&server, 8);
    let mut turns = 0;
    until("heard by all others", &mut players.iter_mut().collect::<Vec<_>>(), |players| {
        if turns % 50 == 0 {
            players[0].say(b"to everybody");
        }
        turns += 1;
        players[1..].iter().all(|player| player.has_heard(b"to everybody"))
    });
    assert!(!players[0].has_heard(b"to everybody"));
    let log = server.stop();
    assert_eq!(log.matches("reason=\"server_stopped\"").count(), 8, "{log}");
}

#[test]
fn shards_share_a_history_over_a_crash_and_starts_may_have_other_numbers_of_them() {
    let place = Place::new();
    let server = place.start(&["--shards", "3", "--history", "history"]);
    let address = server.address();
    std::thread::sleep(Duration::from_millis(1100));
    let used: Vec<_> = (0..6).map(|id| Ticket::new(id, address).impatient().mint()).collect();
    for token in &used {
        Player::join_with(token.clone()).echo(b"before the crash");
    }
    server.kill();

    let flags = ["--shards", "2", "--history", "history"];
    let server = Program::start(place.on(&[&address.to_string()], &flags));
    assert_eq!(server.fact("remembered_tokens"), "6");
    for token in &used {
        // From several ports, so that each shard is asked.
        for _ in 0..4 {
            let thief = UdpSocket::bind("127.0.0.1:0").unwrap();
            thief.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            thief.send_to(&request(token, PROTOCOL_ID), address).unwrap();
            assert!(thief.recv(&mut [0; 1500]).is_err(), "a used token was answered");
        }
    }
    let log = server.stop();
    assert_eq!(log.matches("token_used: ").count(), 2, "each shard has refused: {log}");
}

#[test]
fn a_number_that_cannot_be_and_a_port_that_others_have_are_refused() {
    let place = Place::new();
    for wrong in ["0", "257"] {
        let (code, told) = place.refused(place.complete(&["--shards", wrong]));
        assert_eq!((code, told.contains("--shards must be 1 to 256")), (2, true), "{told}");
    }
    let server = place.start(&["--shards", "2"]);
    for shards in ["1", "2"] {
        let second = place.on(&[&server.address().to_string()], &["--shards", shards]);
        let (code, told) = place.refused(second);
        assert_eq!((code, told.contains("another program listens there already")), (1, true), "{told}");
    }
    server.stop();
}
