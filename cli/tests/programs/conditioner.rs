//! `slipgate conditioner` as a process: between real sockets, and between a real client and server.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

use std::io::{BufRead, BufReader, Lines};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use slipgate_client::{self, Client, ConnectToken};
use slipgate_server::keys::Key;
use slipgate_server::{self, Clock, Server, ServerConfig, Sockets};
use slipgate_token_issuer::{Issuer, Limits, TokenRequest, system_entropy, wall_clock};

const PROTOCOL_ID: u64 = 0xc0d1;
const MAX_WAIT: Duration = Duration::from_secs(60);

fn slipgate(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate"));
    command.arg("conditioner").args(arguments);
    command
}

/// A conditioner that runs until the test ends.
struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    start: Value,
}

impl Running {
    fn new(to: SocketAddr, more: &[&str]) -> Self {
        let to = to.to_string();
        let mut process = slipgate(&["--listen", "127.0.0.1:0", "--to", &to, "--json", "--interval", "100ms"])
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let start: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(start["event"], "start");
        Self { process, lines, start }
    }

    fn listens_on(&self) -> SocketAddr {
        self.start["listen"].as_str().unwrap().parse().unwrap()
    }

    /// Returns the next line that satisfies the condition.
    fn line(&mut self, holds: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + MAX_WAIT;
        loop {
            let line = self.lines.next().expect("the conditioner is running").unwrap();
            let line: Value = serde_json::from_str(&line).unwrap();
            if holds(&line) {
                return line;
            }
            assert!(Instant::now() < end, "{line}");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(MAX_WAIT)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2048];
    let (bytes, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..bytes].to_vec(), from)
}

#[cfg(target_os = "linux")]
#[test]
fn datagrams_are_forwarded_while_the_output_is_unread() {
    let (server, client) = (socket(), socket());
    let (reader, writer) = crate::small_pipe::small_pipe();
    let to = server.local_addr().unwrap().to_string();
    let mut command = slipgate(&["--listen", "127.0.0.1:0", "--to", &to, "--json", "--interval", "10ms"]);
    let mut process = crate::small_pipe::KilledAtEnd(command.stdout(writer).spawn().unwrap());
    drop(command);
    let mut start = String::new();
    BufReader::with_capacity(1, &reader).read_line(&mut start).unwrap();
    let start: Value = serde_json::from_str(&start).unwrap();
    let listens_on: SocketAddr = start["listen"].as_str().unwrap().parse().unwrap();
    // The pipe is full after some 15 lines of 250 bytes, so after 0.15 s.
    for number in 0..100_u8 {
        client.send_to(&[number], listens_on).unwrap();
        assert_eq!(receive(&server).0, [number]);
        std::thread::sleep(Duration::from_millis(10));
    }
    let stop = rustix::process::Signal::TERM;
    rustix::process::kill_process(rustix::process::Pid::from_child(&process.0), stop).unwrap();
    let begin = Instant::now();
    while process.0.try_wait().unwrap().is_none() {
        assert!(begin.elapsed() < MAX_WAIT, "the conditioner does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(reader);
}

#[test]
fn datagrams_are_forwarded_impaired_and_counted() {
    let (server, client) = (socket(), socket());
    let impairments =
        ["--seed", "7", "--latency", "30ms", "--up", "duplicate=100%", "--down", "corrupt=100%,latency=50ms"];
    let mut conditioner = Running::new(server.local_addr().unwrap(), &impairments);
    assert_eq!(
        (&conditioner.start["seed"], &conditioner.start["up"], &conditioner.start["down"]),
        (&7.into(), &"latency 30ms, duplication 100%".into(), &"latency 50ms, corruption 100%".into())
    );
    let sent = Instant::now();
    client.send_to(b"hello", conditioner.listens_on()).unwrap();
    let ((first, from), (second, _)) = (receive(&server), receive(&server));
    assert_eq!((first, second), (b"hello".to_vec(), b"hello".to_vec()));
    assert!(sent.elapsed() >= Duration::from_millis(30));
    let replied = Instant::now();
    server.send_to(b"hello", from).unwrap();
    let (reply, _) = receive(&client);
    assert!(replied.elapsed() >= Duration::from_millis(50));
    let differing: u32 = reply.iter().zip(b"hello").map(|(one, other)| (one ^ other).count_ones()).sum();
    assert_eq!((reply.len(), differing), (5, 1));
    let line = conditioner.line(|line| line["down"]["out"] == 1);
    assert_eq!(
        (&line["up"]["in"], &line["up"]["duplicated"], &line["down"]["corrupted"]),
        (&1.into(), &1.into(), &1.into())
    );
    let shown = &line["clients"][0];
    assert_eq!(shown["address"], client.local_addr().unwrap().to_string());
    assert_eq!(shown["upstream"], from.to_string());
}

#[test]
fn rebinding_gives_the_client_a_new_address() {
    let (server, client) = (socket(), socket());
    let mut conditioner = Running::new(server.local_addr().unwrap(), &["--rebind", "200ms"]);
    client.send_to(b"one", conditioner.listens_on()).unwrap();
    let (_, before) = receive(&server);
    conditioner.line(|line| line["new_addresses"].as_u64() >= Some(1));
    client.send_to(b"two", conditioner.listens_on()).unwrap();
    let (_, after) = receive(&server);
    assert_ne!(before, after);
}

#[test]
fn plain_lines_and_totals_without_a_terminal() {
    let output = slipgate(&["--listen", "127.0.0.1:0", "--to", "127.0.0.1:9", "--preset", "wifi-bad"])
        .args(["--loss", "1%", "--seed", "3", "--interval", "100ms", "--for", "500ms"])
        .output()
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{message}");
    assert!(!message.contains('\u{1b}'), "no control sequences: {message}");
    assert!(message.contains("--seed 3"), "{message}");
    assert!(message.contains("up           latency 8ms, jitter 12ms, loss 1%, rate 20 Mbit/s"), "{message}");
    assert!(message.contains("up 0 in, 0 out (queue 0.0 ms); down 0 in, 0 out"), "{message}");
    assert!(message.contains("total: 0 clients"), "{message}");
}

#[cfg(unix)]
#[test]
fn signal_ends_the_conditioner_with_totals() {
    let server = socket();
    let mut conditioner = Running::new(server.local_addr().unwrap(), &[]);
    socket().send_to(b"hello", conditioner.listens_on()).unwrap();
    receive(&server);
    let killed = Command::new("kill").args(["-INT", &conditioner.process.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let summary = conditioner.line(|line| line["event"] == "summary");
    assert_eq!((&summary["up"]["out"], &summary["joined"]), (&1.into(), &1.into()));
    assert_eq!(conditioner.process.wait().unwrap().code(), Some(0));
}

#[test]
fn wrong_flags_are_refused_with_the_reason() {
    let taken = socket();
    let taken = taken.local_addr().unwrap().to_string();
    let cases: [(i32, &[&str], &str); 13] = [
        (2, &["--to", "127.0.0.1:9", "--loss", "2"], "a share is written as 2%"),
        (2, &["--to", "127.0.0.1:9", "--loss", "101%"], "from 0% to 100%"),
        (2, &["--to", "127.0.0.1:9", "--latency", "40"], "with its unit"),
        (2, &["--to", "127.0.0.1:9", "--rate", "1000"], "a rate is written in bits per second"),
        (2, &["--to", "127.0.0.1:9", "--buffer", "64KiB"], "buffer needs rate"),
        (2, &["--to", "127.0.0.1:9", "--up", "lost=2%"], "unknown impairment 'lost'"),
        (2, &["--to", "127.0.0.1:9", "--down", "loss=2"], "a share is written as 2%"),
        (2, &["--to", "127.0.0.1:9", "--preset", "5g"], "wifi-bad, 4g, satellite and dsl-bufferbloat"),
        (2, &["--to", "127.0.0.1:9", "--rebind", "0s"], "is at least 10ms"),
        (2, &["--to", "127.0.0.1:9", "--max-clients", "0"], "--max-clients must be 1 to 4096, not '0'"),
        (2, &["--to", "127.0.0.1:0"], "this is not a server's address"),
        (2, &["--to", "0.0.0.0:40000"], "this is not a server's address"),
        (1, &["--to", "127.0.0.1:9", "--listen", &taken], "another program listens there already"),
    ];
    for (status, arguments, reason) in cases {
        let listen: &[&str] = if arguments.contains(&"--listen") { &[] } else { &["--listen", "127.0.0.1:0"] };
        let output = slipgate(listen).args(arguments).args(["--for", "1s"]).output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {message}");
        assert!(message.contains(reason), "{arguments:?}: {message}");
    }
}

/// Runs an echo server that is known to clients by the address `advertised`.
fn serve(sockets: Sockets, advertised: SocketAddr, key: Key, stop: &AtomicBool) {
    let clock = Clock::start();
    let config = ServerConfig::new(PROTOCOL_ID, 4, &[advertised]);
    let mut server = Server::new(sockets, config, key.into(), clock.now()).unwrap();
    let mut inbox = slipgate_server::Inbox::default();
    while !stop.load(Ordering::Relaxed) {
        server.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut server) {
            if let slipgate_server::Event::Payload { client, bytes, .. } = event {
                server.send(client, bytes).unwrap();
            }
        }
        server.end_turn();
        server.wait(Duration::from_millis(10)).unwrap();
    }
}

fn token(key: Key, server: SocketAddr) -> ConnectToken {
    let issuer = Issuer::new(PROTOCOL_ID, key.into(), &[server], Limits::default()).unwrap();
    issuer.mint(&TokenRequest::new(42), wall_clock(), &mut system_entropy().unwrap()).unwrap().token
}

/// Sends 50 payloads per second for 3 s. Returns the number of echoes and the shortest round trip.
fn play(token: ConnectToken) -> (usize, Duration) {
    let clock = Clock::start();
    let (mut client, mut inbox) = (Client::new().unwrap(), slipgate_client::Inbox::default());
    client.connect(token, clock.now()).unwrap();
    let (mut sent, mut echoes) = (Vec::new(), Vec::new());
    let give_up = Instant::now() + MAX_WAIT;
    while sent.len() < 150 || sent.last().is_some_and(|last: &Instant| last.elapsed() < Duration::from_secs(1)) {
        client.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut client) {
            match event {
                slipgate_client::Event::Payload { bytes, .. } => echoes.push((Instant::now(), bytes[0])),
                slipgate_client::Event::Ended { reason } => panic!("the connection ended: {reason}"),
                _ => {}
            }
        }
        if client.state().is_connected() && sent.len() < 150 {
            client.send(&[sent.len() as u8; 100]).unwrap();
            sent.push(Instant::now());
        }
        client.end_turn();
        assert!(Instant::now() < give_up, "{}: {} sent", client.state(), sent.len());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(client.state().is_connected());
    let trip = |(arrived, number): &(Instant, u8)| *arrived - sent[usize::from(*number)];
    (echoes.len(), echoes.iter().map(trip).min().expect("an echo"))
}

#[test]
fn client_stays_connected_with_5_percent_loss_and_80_ms_delay() {
    let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
    let server = sockets.local_addresses()[0];
    let impairments = ["--latency", "80ms", "--jitter", "10ms", "--loss", "5%", "--reorder", "2%", "--seed", "1"];
    let mut conditioner = Running::new(server, &impairments);
    // Token and server name the conditioner's address, because clients send to it.
    let (address, key) = (conditioner.listens_on(), Key::random(&mut system_entropy().unwrap()));
    let stop = Arc::new(AtomicBool::new(false));
    let serving = std::thread::spawn({
        let (key, stop) = (key.clone(), Arc::clone(&stop));
        move || serve(sockets, address, key, &stop)
    });
    // The server accepts tokens minted after its start, which have a resolution of one second.
    std::thread::sleep(Duration::from_millis(1100));
    let (echoes, quickest) = play(token(key, address));
    stop.store(true, Ordering::Relaxed);
    serving.join().unwrap();
    assert!(quickest >= Duration::from_millis(160), "{quickest:?}");
    // The expected number is 135 of 150, less those that arrive after the end of the test.
    assert!((105..150).contains(&echoes), "{echoes} of 150");
    let line = conditioner.line(|line| line["up"]["in"].as_u64() >= Some(150));
    assert!(line["up"]["lost"].as_u64() > Some(0) && line["down"]["lost"].as_u64() > Some(0), "{line}");
}
