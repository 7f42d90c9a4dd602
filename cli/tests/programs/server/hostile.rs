//! Invalid datagrams, misdirected tokens, closed sockets and closed logs.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use slipgate_client::ConnectToken;
use slipgate_netcode::wire::REQUEST_BYTES;
use slipgate_netcode::wire::cursor::Writer;

use super::client::{TestClient, TestToken};
use super::program::{OTHER_KEY, PROTOCOL_ID, Program, TestFolder, start_without_a_reader, status};

/// Returns the connection request of a token as a client sends it.
pub(crate) fn request(token: &ConnectToken, protocol_id: u64) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    token.request().emit(protocol_id, &mut Writer::new(&mut bytes));
    bytes
}

#[test]
fn misdirected_tokens_are_logged_once_with_both_lists() {
    let folder = TestFolder::new();
    let server = folder.start(&["--advertise", "198.51.100.1:40000"]);
    let elsewhere = vec!["203.0.113.7:40000".parse().unwrap(), "[2001:db8::7]:40001".parse().unwrap()];
    let servers = vec![server.address(); 2];
    let token = |id| TestToken {
        servers: servers.clone(),
        internal: Some(elsewhere.clone()),
        ..TestToken::new(id, server.address()).with_short_timeout()
    };
    thread::scope(|scope| {
        for token in [token(0), token(1)] {
            scope.spawn(move || TestClient::fail(token.mint()));
        }
    });
    let log = server.stop();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("lists none of the addresses")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in ["advertised=\"198.51.100.1:40000\"", "token_lists=\"203.0.113.7:40000, [2001:db8::7]:40001\""] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
    assert!(log.contains("address_not_listed: "), "{log}");
}

/// Returns an invalid datagram of one of nine kinds.
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
        // The prefix bytes of responses and payloads.
        7 => [vec![0x13], random(1 + 308 + 16)].concat(),
        _ => [vec![0x15], random(200)].concat(),
    }
}

fn send_junk(count: u32, to: SocketAddr) {
    let mut entropy = StdRng::from_seed([5; 32]);
    let token = TestToken::new(99, to).mint();
    let foreign = TestToken { key: OTHER_KEY, ..TestToken::new(99, to) }.mint();
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
fn invalid_datagrams_fill_no_log_and_disturb_no_client() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let address = server.address();
    let mut client = TestClient::join(1, address);
    let sender = thread::spawn(move || send_junk(20_000, address));
    let mut echoes = 0_u32;
    while !sender.is_finished() || echoes < 10 {
        echoes += 1;
        client.echo(&echoes.to_le_bytes());
    }
    sender.join().unwrap();
    TestClient::join(2, address).echo(b"new clients are served afterwards");
    let log = server.stop();
    assert!(log.len() < 64 * 1024, "{} bytes of log", log.len());
    assert!(log.lines().count() < 20, "{log}");
    let totals = log.lines().find(|line| line.contains("totals since the start")).unwrap();
    let of = |name: &str| totals.split_once(name).unwrap().1.split(' ').next().unwrap().parse::<u32>().unwrap();
    assert!(totals.contains(" turns_cut_short="), "{totals}");
    // Only Linux reports the datagrams that the system dropped; there the kernel filter drops most of them.
    assert!(of(" dropped=") + of(" dropped_by_system=") > 10_000, "{totals}");
    if cfg!(target_os = "linux") {
        assert!(of(" dropped_by_system=") > 8_000, "{totals}");
        assert!(of(" overflow_at_most=") <= of(" dropped_by_system="), "{totals}");
    }
}

#[test]
fn sockets_closed_before_the_reply_do_no_harm() {
    let folder = TestFolder::new();
    let server = folder.start(&[]);
    let mut client = TestClient::join(1, server.address());
    for round in 0..20 {
        let unconnected = UdpSocket::bind("127.0.0.1:0").unwrap();
        let token = TestToken::new(100 + round, server.address()).mint();
        unconnected.send_to(&request(&token, PROTOCOL_ID), server.address()).unwrap();
        // The challenge reaches a closed port, and the system reports the ICMP error to the server's socket.
        drop(unconnected);
        client.echo(&round.to_le_bytes());
    }
    TestClient::join(2, server.address()).echo(b"another");
    server.stop();
}

#[test]
fn server_keeps_running_when_its_log_is_closed() {
    let folder = TestFolder::new();
    let (mut child, address) = start_without_a_reader(folder.complete(&[]));
    let mut client = TestClient::join(1, address);
    client.echo(b"without a log");
    client.leave();
    TestClient::join(2, address).echo(b"and again");
    assert_eq!(child.try_wait().unwrap(), None);
    let kill = format!("kill -TERM {}", child.id());
    assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(status(&mut child), Some(0));
}

#[test]
fn json_log_has_one_object_per_line_with_fields() {
    let folder = TestFolder::new();
    let mut command = folder.complete(&["--log", "json", "--development", "--advertise", "198.51.100.1:40000"]);
    command.args(["--advertise", "198.51.100.2:40000"]);
    let server = Program::start(command);
    let first: Value = serde_json::from_str(&server.wait_for("serving")).unwrap();
    let bound = first["fields"]["bind"].as_str().unwrap().parse::<SocketAddr>().unwrap();
    assert_eq!(first["fields"]["advertise"], "198.51.100.1:40000, 198.51.100.2:40000");
    assert_eq!((&first["level"], &first["fields"]["slots"]), (&Value::from("INFO"), &Value::from(64)));

    let internal = Some(vec!["198.51.100.2:40000".parse().unwrap()]);
    let mut client = TestClient::join_with(TestToken { internal, ..TestToken::new(u64::MAX, bound) }.mint());
    client.echo(b"in JSON");
    TestClient::fail(TestToken::new(2, bound).with_short_timeout().mint());
    send_junk(100, bound);
    server.signal("-HUP");
    server.wait_for("was read again");
    client.leave();
    let log = server.stop();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |message: &str| lines.iter().find(|line| line["fields"]["message"] == message).unwrap();
    assert_eq!(of("client connected")["fields"]["client_id"], u64::MAX.to_string());
    assert_eq!(of("client disconnected")["fields"]["client_id"], u64::MAX.to_string());
    assert_eq!(of("client disconnected")["fields"]["reason"], "left");
    let last = &of("client disconnected")["fields"];
    assert!(last["seconds"].as_f64().unwrap() > 0.0, "{last}");
    // One echo at least: 7 bytes, and 49 bytes of headers.
    for bytes in ["bytes_sent", "bytes_received"] {
        let bytes = last[bytes].as_u64().unwrap();
        assert!(bytes >= 56 && bytes % 56 == 0, "{last}");
    }
    assert!(last["round_trip_ms"].is_null() && last["loss_percent"].is_null(), "payloads are not acknowledged: {last}");
    assert!(of("totals since the start")["fields"]["dropped"].as_u64().unwrap() > 0);
}
