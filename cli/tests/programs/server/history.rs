//! Tokens across starts: what was used stays used, with a history file and without.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use slipgate_client::{ConnectToken, EndReason};

use super::hostile::request;
use super::player::{Player, Ticket};
use super::program::{PROTOCOL_ID, Place, Program};

/// A server where another one was.
fn restart(place: &Place, address: SocketAddr, flags: &[&str]) -> Program {
    Program::start(place.on(&[&address.to_string()], flags))
}

fn tokens<const N: usize>(address: SocketAddr) -> [ConnectToken; N] {
    std::array::from_fn(|place| Ticket::new(place as u64, address).impatient().mint())
}

/// Asks for a slot with a used token, which a thief may do and our client does not, and gets no answer.
fn show_again(used: &ConnectToken, server: SocketAddr) {
    let thief = UdpSocket::bind("127.0.0.1:0").unwrap();
    thief.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    for _ in 0..5 {
        thief.send_to(&request(used, PROTOCOL_ID), server).unwrap();
        assert!(thief.recv(&mut [0; 1500]).is_err(), "a used token was answered");
    }
}

#[test]
fn with_a_history_a_used_token_stays_used_and_an_unused_one_stays_good_over_a_crash() {
    let place = Place::new();
    let history = ["--history", "history"];
    let server = place.start(&history);
    let address = server.address();
    // What was minted in the second in which the history began is not trusted at a later start.
    std::thread::sleep(Duration::from_millis(1100));
    let [used, also_used, unused] = tokens(address);
    let mut first = Player::join_with(used.clone());
    Player::join_with(also_used.clone()).echo(b"before the crash");
    first.echo(b"before the crash");
    server.kill();

    let server = restart(&place, address, &history);
    assert_eq!((server.fact("remembered_tokens"), server.fact("tokens_from")), {
        ("2".to_owned(), "the history's beginning on".to_owned())
    });
    show_again(&used, address);
    show_again(&also_used, address);
    Player::join_with(unused).echo(b"after the crash");
    let log = server.stop();
    assert!(log.contains("token_used: ") && !log.contains("before_start"), "{log}");
}

#[test]
fn without_a_history_tokens_from_before_the_start_are_refused_counted_and_told_once() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.address();
    let [one, other] = tokens(address);
    server.kill();

    let server = restart(&place, address, &[]);
    assert_eq!(server.fact("tokens_from"), "this start on");
    for token in [one.clone(), other.clone()] {
        assert_eq!(Player::fail(token), EndReason::RequestTimedOut);
    }
    Player::join(9, address).echo(b"from after the start");
    let log = server.stop();
    assert_eq!(log.matches("from before this server's start").count(), 1, "{log}");
    assert!(log.contains("before_start: "), "{log}");

    let server = restart(&place, address, &["--first-start"]);
    assert_eq!(server.fact("tokens_from"), "any time");
    Player::join_with(one).echo(b"it is the first start");
    server.stop();
}

#[test]
fn a_history_that_begins_late_does_not_vouch_for_tokens_from_before_it() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.address();
    let [used] = tokens(address);
    Player::join_with(used.clone()).echo(b"used while there was no history");
    server.kill();
    let history = ["--history", "history"];
    restart(&place, address, &history).kill();

    let server = restart(&place, address, &history);
    show_again(&used, address);
    assert!(server.stop().contains("before_start: "));
}

#[test]
fn a_torn_end_that_is_cut_off_is_told_with_its_length() {
    let place = Place::new();
    let history = ["--history", "history"];
    place.start(&history).kill();
    let mut file = OpenOptions::new().append(true).open(place.path("history")).unwrap();
    file.write_all(b"torn!").unwrap();
    let log = place.start(&history).stop();
    assert!(log.contains("ended in a torn record") && log.contains("bytes=5"), "{log}");
    assert!(!place.start(&history).stop().contains("torn record"));
}
