//! Two rotations of the private key while 100 clients connect in a loop: none fails, none is disconnected.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slipgate_client::{Client, Clock, ConnectToken, Event, Inbox};

use crate::issuer::program::{MAX_WAIT, Program, TestFolder, request};
use crate::server;

const CLIENTS: u64 = 100;
/// How long a client stays connected.
const STAY: Duration = Duration::from_millis(500);

fn slipgate(arguments: &[&str], file: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_slipgate")).args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until issuers seal with the newest key of the file, and for 2 s more.
fn wait_for_the_new_key(file: &Path) {
    let begin = Instant::now();
    while !slipgate(&["keys", "list"], file).lines().next().unwrap().ends_with(" seals") {
        assert!(begin.elapsed() < MAX_WAIT, "the key is not in use");
        thread::sleep(Duration::from_millis(200));
    }
    thread::sleep(Duration::from_secs(2));
}

/// Connects with this token, and stays for a time. Returns the reason if that fails.
fn play(token: ConnectToken, stay: Duration) -> Result<(), String> {
    let (mut client, mut inbox, clock) = (Client::new().unwrap(), Inbox::default(), Clock::start());
    client.connect(token, clock.now()).unwrap();
    let begin = Instant::now();
    let mut connected: Option<Instant> = None;
    loop {
        client.begin_turn(clock.now());
        while let Some(event) = inbox.next(&mut client) {
            match event {
                Event::Connected { .. } => connected = Some(Instant::now()),
                Event::Ended { reason } => return Err(reason.to_string()),
                _ => {}
            }
        }
        client.end_turn();
        if connected.is_some_and(|since| since.elapsed() >= stay) {
            client.disconnect();
            client.end_turn();
            return Ok(());
        }
        if begin.elapsed() > MAX_WAIT {
            return Err("it takes too long".to_owned());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn token(issuer: &Program, folder: &TestFolder, client_id: u64, server: SocketAddr) -> ConnectToken {
    let body = format!(r#"{{"client_id": {client_id}, "server_addresses": ["{server}"], "lifetime_seconds": 45}}"#);
    request(issuer, folder, &body).token()
}

#[test]
fn rotations_disconnect_no_client_and_refuse_retired_keys() {
    let folder = TestFolder::new();
    let keys = folder.path.join("keys");
    let flags = ["--protocol-id", "0x1234", "--bind", "127.0.0.1:0", "--slots", "256"];
    let folder_of_server = server::program::TestFolder::new();
    let mut command = folder_of_server.bare(&flags);
    command.arg("--key-file").arg(&keys);
    let server = server::program::Program::start(command);
    let address = server.address();
    let issuer = Program::start(folder.complete(&["--server", &address.to_string()]));
    let of_retired_key = token(&issuer, &folder, 1, address);
    let (is_over, connects) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let client = |number: u64| {
            let (issuer, folder, is_over, connects) = (&issuer, &folder, &is_over, &connects);
            move || {
                // Each connect has a client id of its own: a server limits the tokens of one.
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let token = token(issuer, folder, number * 1_000_000 + round, address);
                    if let Err(reason) = play(token, STAY) {
                        panic!("client {number}, connect {round}: {reason}");
                    }
                    connects.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        (1..=CLIENTS).for_each(|number| _ = scope.spawn(client(number)));
        slipgate(&["keys", "rotate", "--in", "3s"], &keys);
        wait_for_the_new_key(&keys);
        slipgate(&["keys", "rotate", "--in", "3s", "--keep", "2"], &keys);
        wait_for_the_new_key(&keys);
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(connects.load(Ordering::Relaxed) >= CLIENTS, "{connects:?} connects");
    assert!(play(of_retired_key, STAY).is_err(), "its key is in no file");
    assert!(play(token(&issuer, &folder, 2, address), STAY).is_ok());
    folder.assert_no_secret(&server.stop());
}
