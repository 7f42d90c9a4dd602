//! Junk, misdirected tokens, closed sockets and closed logs.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use slipgate_client::ConnectToken;
use slipgate_netcode::wire::REQUEST_BYTES;
use slipgate_netcode::wire::cursor::Writer;
use slipgate_netcode::wire::packet::Request;

use super::player::{Player, Ticket};
use super::program::{OTHER_KEY, PROTOCOL_ID, Place, Program, start_without_a_reader, status};

/// The connection request of a token, as a client sends it.
pub(crate) fn request(token: &ConnectToken, protocol_id: u64) -> [u8; REQUEST_BYTES] {
    let (nonce, sealed) = (token.nonce(), token.sealed_private_part());
    let mut bytes = [0; REQUEST_BYTES];
    Request { expires: token.facts().expires, nonce: &nonce, sealed: &sealed }
        .emit(protocol_id, &mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn a_misdirected_token_is_told_once_with_both_lists() {
    let place = Place::new();
    let server = place.start(&["--advertise", "198.51.100.1:40000"]);
    let elsewhere = vec!["203.0.113.7:40000".parse().unwrap(), "[2001:db8::7]:40001".parse().unwrap()];
    let servers = vec![server.address(); 2];
    for id in 0..2 {
        let internal = Some(elsewhere.clone());
        let ticket = Ticket { servers: servers.clone(), internal, ..Ticket::new(id, server.address()).impatient() };
        Player::fail(ticket.mint());
    }
    let log = server.stop();
    let told: Vec<_> = log.lines().filter(|line| line.contains("lists none of the addresses")).collect();
    assert_eq!(told.len(), 1, "{log}");
    for part in ["advertised=\"198.51.100.1:40000\"", "token_lists=\"203.0.113.7:40000, [2001:db8::7]:40001\""] {
        assert!(told[0].contains(part), "{}", told[0]);
    }
    assert!(log.contains("address_not_listed: "), "{log}");
}

/// One datagram of junk, of any of nine kinds.
fn junk(number: u32, entropy: &mut StdRng, token: &ConnectToken, foreign: &ConnectToken) -> Vec<u8> {
    let mut random = |length: u32| {
        let mut bytes = vec![0; length as usize];
        entropy.fill_bytes(&mut bytes);
        bytes
    };
    match number % 9 {
        0 => Vec::new(),
        1 => random(1 + number % 1400),
        2 => random(65_000),
        3 => request(token, PROTOCOL_ID + 1).to_vec(),
        4 => request(foreign, PROTOCOL_ID).to_vec(),
        5 => request(token, PROTOCOL_ID)[..1077].to_vec(),
        6 => [request(token, PROTOCOL_ID)[..54].to_vec(), random(1024)].concat(),
        // Prefixes of responses and payloads.
        7 => [vec![0x13], random(1 + 308 + 16)].concat(),
        _ => [vec![0x15], random(200)].concat(),
    }
}

fn throw_junk(count: u32, to: SocketAddr) {
    let mut entropy = StdRng::from_seed([5; 32]);
    let token = Ticket::new(99, to).mint();
    let foreign = Ticket { key: OTHER_KEY, ..Ticket::new(99, to) }.mint();
    let sockets: Vec<_> = (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for number in 0..count {
        let socket = &sockets[number as usize % sockets.len()];
        socket.send_to(&junk(number, &mut entropy, &token, &foreign), to).unwrap();
        if number.is_multiple_of(100) {
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn twenty_thousand_datagrams_of_junk_make_little_log_and_disturb_nobody() {
    let place = Place::new();
    let server = place.start(&[]);
    let address = server.address();
    let mut player = Player::join(1, address);
    let thrower = thread::spawn(move || throw_junk(20_000, address));
    let mut echoes = 0_u32;
    while !thrower.is_finished() || echoes < 10 {
        echoes += 1;
        player.echo(&echoes.to_le_bytes());
    }
    thrower.join().unwrap();
    Player::join(2, address).echo(b"newcomers are served afterwards");
    let log = server.stop();
    assert!(log.len() < 64 * 1024, "{} bytes of log", log.len());
    assert!(log.lines().count() < 20, "{log}");
    let totals = log.lines().find(|line| line.contains("totals since the start")).unwrap();
    let of = |name: &str| totals.split_once(name).unwrap().1.split(' ').next().unwrap().parse::<u32>().unwrap();
    assert!(totals.contains(" turns_cut_short="), "{totals}");
    // What the system's own buffer had no room for is ours to count on Linux alone, where the filter drops most of it.
    assert!(of(" dropped=") + of(" dropped_by_system=") > 10_000, "{totals}");
    if cfg!(target_os = "linux") {
        assert!(of(" dropped_by_system=") > 8_000, "{totals}");
        assert!(of(" overflow_at_most=") <= of(" dropped_by_system="), "{totals}");
    }
}

#[test]
fn sockets_that_close_before_they_are_answered_end_nothing() {
    let place = Place::new();
    let server = place.start(&[]);
    let mut player = Player::join(1, server.address());
    for round in 0..20 {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let token = Ticket::new(100 + round, server.address()).mint();
        stranger.send_to(&request(&token, PROTOCOL_ID), server.address()).unwrap();
        // The challenge comes to a closed port, and the system reports that to the server.
        drop(stranger);
        player.echo(&round.to_le_bytes());
    }
    Player::join(2, server.address()).echo(b"another");
    server.stop();
}

#[test]
fn a_log_that_nobody_reads_any_more_ends_nothing() {
    let place = Place::new();
    let (mut child, address) = start_without_a_reader(place.complete(&[]));
    let mut player = Player::join(1, address);
    player.echo(b"without a log");
    player.leave();
    Player::join(2, address).echo(b"and again");
    assert_eq!(child.try_wait().unwrap(), None);
    let kill = format!("kill -TERM {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(status(&mut child), Some(0));
}

#[test]
fn a_json_log_is_one_object_a_line_with_fields() {
    let place = Place::new();
    let mut command = place.complete(&["--log", "json", "--development", "--advertise", "198.51.100.1:40000"]);
    command.args(["--advertise", "198.51.100.2:40000"]);
    let server = Program::start(command);
    let first: Value = serde_json::from_str(&server.wait_for("serving")).unwrap();
    let bound = first["fields"]["bind"].as_str().unwrap().parse::<SocketAddr>().unwrap();
    assert_eq!(first["fields"]["advertise"], "198.51.100.1:40000, 198.51.100.2:40000");
    assert_eq!((&first["level"], &first["fields"]["slots"]), (&Value::from("INFO"), &Value::from(64)));

    let internal = Some(vec!["198.51.100.2:40000".parse().unwrap()]);
    let mut player = Player::join_with(Ticket { internal, ..Ticket::new(u64::MAX, bound) }.mint());
    player.echo(b"in JSON");
    Player::fail(Ticket::new(2, bound).impatient().mint());
    throw_junk(100, bound);
    server.signal("-HUP");
    server.wait_for("SIGHUP");
    player.leave();
    let log = server.stop();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message).unwrap();
    assert_eq!(of("client connected")["fields"]["client_id"], u64::MAX);
    assert_eq!(of("client disconnected")["fields"]["reason"], "left");
    assert!(of("totals since the start")["fields"]["dropped"].as_u64().unwrap() > 0);
}
