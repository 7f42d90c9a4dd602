//! A server that registers with an issuer, and a player that gets its token for a group; a server under Agones.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipgate_client::ConnectToken;
use slipgate_token_issuer::api_key::ApiKey;
use ureq::http::Request;

use crate::issuer;
use crate::server::admin::{admin_of, exchange};
use crate::server::client::{TestClient, TestToken};
use crate::server::program::{MAX_WAIT, Program, TestFolder, assert_no_secret};

/// Sends a request with this key. Returns the status and the body.
fn send(program: &issuer::program::Program, key: &str, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let request =
        Request::builder().method(method).uri(program.url(path)).header("Authorization", format!("Bearer {key}"));
    let request = request.header("Content-Type", "application/json").body(body.to_string()).unwrap();
    let mut response = issuer::program::agent().run(request).unwrap();
    let body = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&body).unwrap_or_default())
}

/// Starts an issuer with a registry in memory. Returns it, its folder, and the keys of a backend and of servers.
fn issuer_with_registry() -> (issuer::program::Program, issuer::program::TestFolder, [String; 2]) {
    let folder = issuer::program::TestFolder::new();
    let keys = [(); 2].map(|()| ApiKey::random(&mut slipgate_token_issuer::system_entropy().unwrap()));
    let digests = [0, 1].map(|index: usize| keys[index].digest(&mut slipgate_token_issuer::system_entropy().unwrap()));
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 0x1234\nkey_file = \"keys\"\nregistry = \"memory\"\n\
         hosts = [\"127.0.0.1\"]\n\
         [[api_keys]]\nid = \"lobby\"\ndigests = [\"{}\"]\npermissions = [\"mint\", \"observe\"]\n\
         [[api_keys]]\nid = \"server\"\ndigests = [\"{}\"]\npermissions = [\"register\"]\n",
        digests[0], digests[1],
    );
    folder.write("issuer.toml", &text, 0o600);
    let config = folder.path.join("issuer.toml");
    let program = issuer::program::Program::start(folder.bare(&["--config", config.to_str().unwrap()]));
    let [lobby, server] = keys;
    let keys = [format!("lobby.{}", lobby.expose()), format!("server.{}", server.expose())];
    (program, folder, keys)
}

/// Repeats a request until its response meets a condition.
fn until(what: &str, mut request: impl FnMut() -> (u16, Value), holds: impl Fn(&(u16, Value)) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let response = request();
        if holds(&response) {
            return response.1;
        }
        assert!(start.elapsed() < MAX_WAIT, "{what}: {response:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn registered_server_gets_players_of_its_group() {
    let (issuer, _keys, [lobby, registration]) = issuer_with_registry();
    let folder = TestFolder::new();
    folder.write("registration.key", &registration, 0o600);
    let url = issuer.url("");
    let flags = ["--issuer", &url, "--issuer-key-file", "registration.key", "--server-id", "eu-1", "--group", "ranked"];
    let server = folder.start(&[&flags[..], &["--slots", "2", "--drain", "1h", "--first-start"]].concat());
    let list = || send(&issuer, &lobby, "GET", "/v1/servers", &Value::Null);
    let first = |response: &(u16, Value), name: &str| response.1["servers"][0][name].clone();
    until("registered", list, |response| first(response, "state") == "ready" && first(response, "free_slots") == 2);
    let request = json!({"client_id": 42, "group": "ranked", "timeout_seconds": 20});
    let (status, minted) = send(&issuer, &lobby, "POST", "/v1/tokens", &request);
    assert_eq!((status, minted["server_ids"].clone()), (201, json!(["eu-1"])), "{minted}");
    let token = STANDARD.decode(minted["token"].as_str().unwrap()).unwrap();
    let mut player = TestClient::join_with(ConnectToken::from_bytes(&token).unwrap());
    player.echo(b"hello");
    // The heartbeat that reports the player ends its reservation.
    until("admitted", list, |response| first(response, "free_slots") == 1 && first(response, "reserved_slots") == 0);
    server.signal("-TERM");
    until("draining", list, |response| first(response, "state") == "draining");
    let other = json!({"client_id": 43, "group": "ranked"});
    assert_eq!(send(&issuer, &lobby, "POST", "/v1/tokens", &other).0, 503, "no token leads to a draining server");
    player.leave();
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains(&registration[20..40]), "the key is shown");
    assert_eq!(list().1["servers"], json!([]), "removed at its end");
}

#[test]
fn player_that_leaves_at_once_keeps_no_slot_reserved() {
    let (issuer, _keys, [lobby, registration]) = issuer_with_registry();
    let folder = TestFolder::new();
    folder.write("registration.key", &registration, 0o600);
    let url = issuer.url("");
    let flags = ["--issuer", &url, "--issuer-key-file", "registration.key", "--server-id", "eu-1", "--group", "ranked"];
    let _server = folder.start(&[&flags[..], &["--slots", "2", "--first-start"]].concat());
    let list = || send(&issuer, &lobby, "GET", "/v1/servers", &Value::Null);
    let slots = |response: &(u16, Value), name: &str| response.1["servers"][0][name].clone();
    until("registered", list, |response| slots(response, "free_slots") == 2);
    // More visitors than slots. Without their heartbeats, their reservations would last for 53 s.
    let start = Instant::now();
    for client_id in 1..=4 {
        let request = json!({"client_id": client_id, "group": "ranked", "lifetime_seconds": 45});
        let (status, minted) = send(&issuer, &lobby, "POST", "/v1/tokens", &request);
        assert_eq!(status, 201, "{minted}");
        let token = STANDARD.decode(minted["token"].as_str().unwrap()).unwrap();
        TestClient::join_with(ConnectToken::from_bytes(&token).unwrap()).leave();
        until("free again", list, |response| {
            slots(response, "free_slots") == 2 && slots(response, "reserved_slots") == 0
        });
    }
    assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
}

#[test]
fn key_of_the_registration_is_replaced_without_a_restart() {
    let (issuer, _keys, [lobby, registration]) = issuer_with_registry();
    let folder = TestFolder::new();
    folder.write("registration.key", "server.sgk_wrong", 0o600);
    let url = issuer.url("");
    let flags = ["--issuer", &url, "--issuer-key-file", "registration.key", "--server-id", "eu-1", "--group", "ranked"];
    let server = folder.start(&[&flags[..], &["--admin", "127.0.0.1:0"]].concat());
    let list = || send(&issuer, &lobby, "GET", "/v1/servers", &Value::Null);
    let metrics = || exchange(admin_of(&server), "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").1;
    let refusal = server.wait_for("a call was refused");
    let names = ["server=\"eu-1\"", "group=\"ranked\"", &format!("url=\"{url}\"")];
    for part in ["status=401", "reason="].iter().chain(&names) {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    assert!(metrics().contains("\nslipgate_registered 0.0\n"));
    for (content, mode, part) in [("two words", 0o600, "one API key"), (registration.as_str(), 0o644, "mode 0644")] {
        folder.replace("registration.key", content, mode);
        assert!(server.wait_for(part).contains("keeping the current secret"));
        assert_eq!(list().1["servers"], json!([]));
    }
    folder.replace("registration.key", &registration, 0o600);
    server.wait_for("the file of --issuer-key-file was read again");
    let registered = server.wait_for("the server is registered");
    assert!(names.iter().all(|name| registered.contains(name)), "{registered}");
    assert!(metrics().contains("\nslipgate_registered 1.0\n"));
    until("registered", list, |response| response.1["servers"][0]["state"] == "ready");
    // A bad file takes nothing away from the server.
    folder.replace("registration.key", "", 0o600);
    server.signal("-HUP");
    server.wait_for_lines("the file of --issuer-key-file is invalid", 3);
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!((code, list().1["servers"].clone()), (Some(0), json!([])), "removed at its end: {log}");
    assert!(!log.contains(&registration[20..40]), "the key is shown");
}

#[test]
fn unreachable_issuer_does_not_stop_the_game() {
    let folder = TestFolder::new();
    folder.write("registration.key", "sgk_0123", 0o600);
    let flags = ["--issuer", "http://127.0.0.1:1", "--issuer-key-file", "registration.key"];
    let names = ["--server-id", "eu-1", "--group", "ranked", "--hook-url", "http://127.0.0.1:1/"];
    let server = folder.start(&[&flags[..], &names[..], &["--redirect"]].concat());
    assert!(server.wait_for("--redirect has no effect").contains("app=\"echo\""), "its clients have no channels");
    let mut player = TestClient::join(1, server.address());
    player.echo(b"while the issuer is lost");
    server.wait_for("a call failed");
    player.leave();
    server.stop();
    folder.write("no-program", "#!/bin/sh\n", 0o644);
    for (wrong, part) in [
        (&flags[..], "--server-id"),
        (&["--hook-command", "no-program"], "cannot be executed"),
        (&["--redirect-in-region", "--region", "eu"], "--redirect"),
        (&["--redirect-in-region", "--redirect"], "--region"),
        (&["--issuer", "ftp://x", "--issuer-key-file", "registration.key"], "http://"),
        (&["--issuer", "http://127.0.0.1:1"], "--issuer-key-file"),
        (&["--issuer", "http://127.0.0.1:1", "--issuer-key-file", "missing"], "missing"),
        (&[&flags[..], &["--server-id", "a/b", "--group", "x"]].concat(), "--server-id"),
        (&["--hook-url", "file:///etc/passwd"], "--hook-url"),
        (&["--hook-command", "no-such-program"], "--hook-command"),
    ] {
        let (code, message) = folder.refused(folder.complete(wrong));
        assert_eq!((code, message.contains(part)), (2, true), "{wrong:?}: {message}");
    }
}

#[test]
fn hook_command_is_the_file_in_the_working_directory() {
    let folder = TestFolder::new();
    folder.write("hook.sh", "#!/bin/sh\n", 0o700);
    let server = folder.start(&["--hook-command", "hook.sh"]);
    assert!(server.wait_for("the hook's command has run").contains("state=\"ready\""));
    server.stop();
}

/// A fake of the sidecar of Agones: it records the lines of requests, and knows an address of the server.
pub(crate) struct Sidecar {
    pub(crate) port: u16,
    lines: Arc<Mutex<Vec<String>>>,
    state: Arc<Mutex<&'static str>>,
}

impl Sidecar {
    pub(crate) fn start(address: &str, game_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let sidecar = Self { port, lines: Arc::default(), state: Arc::new(Mutex::new("Ready")) };
        let (record, state) = (Arc::clone(&sidecar.lines), Arc::clone(&sidecar.state));
        let address = address.to_owned();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let line = read_request(&stream);
                let status = json!({
                    "state": *state.lock().unwrap(), "address": address,
                    "ports": [{"name": "game", "port": game_port}],
                });
                let body = match line.split(' ').nth(1) {
                    Some("/gameserver") => json!({"status": status}).to_string(),
                    Some("/watch/gameserver") => format!("{}\n", json!({"result": {"status": status}})),
                    _ => "{}".to_owned(),
                };
                record.lock().unwrap().push(line);
                let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(format!("{head}{body}").as_bytes());
            }
        });
        sidecar
    }

    fn set_state(&self, state: &'static str) {
        *self.state.lock().unwrap() = state;
    }

    /// Returns the number of requests with this method and path.
    fn count(&self, wanted: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|line| *line == wanted).count()
    }

    fn until(&self, wanted: &str) {
        let start = Instant::now();
        while self.count(wanted) == 0 {
            assert!(start.elapsed() < MAX_WAIT, "{wanted}: {:?}", self.lines.lock().unwrap().last());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Reads a request. Returns its method and path.
fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    let _ = reader.read_line(&mut line);
    loop {
        let mut field = String::new();
        if reader.read_line(&mut field).unwrap_or(0) <= 2 {
            break;
        }
        let value = field.to_lowercase();
        length = value.strip_prefix("content-length: ").map_or(length, |value| value.trim().parse().unwrap());
    }
    let _ = reader.read_exact(&mut vec![0; length]);
    line.rsplit_once(' ').unwrap_or_default().0.to_owned()
}

/// Starts a server under Agones, with the address that the sidecar knows.
fn start_under_agones(folder: &TestFolder, sidecar: &Sidecar, flags: &[&str]) -> Program {
    let mut command = folder.on(&["0.0.0.0:0"], &[&["--agones", "--first-start"], flags].concat());
    command.env("AGONES_SDK_HTTP_PORT", sidecar.port.to_string());
    Program::start(command)
}

/// Connects a player with a token for the public address, which sends to the bound one.
fn join_under_agones(server: &Program) -> TestClient {
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    let mut token = TestToken::new(9, local);
    token.internal = Some(vec![PUBLIC.parse().unwrap()]);
    TestClient::join_with(token.mint())
}

/// The address that the sidecar knows.
const PUBLIC: &str = "203.0.113.5:7654";

#[test]
fn server_under_agones_advertises_its_address_and_is_allocated() {
    let (folder, sidecar) = (TestFolder::new(), Sidecar::start("203.0.113.5", 7654));
    let server = start_under_agones(&folder, &sidecar, &[]);
    assert_eq!((server.fact("advertise").as_str(), server.fact("end_when_empty").as_str()), (PUBLIC, "120s"));
    sidecar.until("POST /ready");
    sidecar.until("POST /health");
    assert_eq!(sidecar.count("POST /allocate"), 0, "no client has connected");
    let mut player = join_under_agones(&server);
    sidecar.until("POST /allocate");
    sidecar.until("PATCH /v1beta1/counters/players");
    player.leave();
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_no_secret(&log);
    assert_eq!(sidecar.count("POST /shutdown"), 1);
}

#[test]
fn allocated_server_that_no_player_joins_shuts_down() {
    for flags in [&[][..], &["--shards", "2"], &["--shards", "2", "--app", "relay"]] {
        if flags.len() > 1 && !cfg!(target_os = "linux") {
            continue;
        }
        let (folder, sidecar) = (TestFolder::new(), Sidecar::start("203.0.113.5", 7654));
        let states = folder.path("states");
        let text = format!("#!/bin/sh\necho $SLIPGATE_STATE >> {}\n", states.display());
        let hook = folder.write("hook", text, 0o700);
        let own = ["--end-when-empty", "1s", "--drain", "1h", "--hook-command", hook.to_str().unwrap()];
        let mut server = start_under_agones(&folder, &sidecar, &[&own[..], flags].concat());
        sidecar.until("POST /health");
        assert!(server.is_running(), "it waits for its allocation");
        sidecar.set_state("Allocated");
        let (code, log) = server.end();
        assert_eq!((code, log.contains("the allocated server has no clients")), (Some(0), true), "{log}");
        assert_eq!(sidecar.count("POST /shutdown"), 1);
        assert_eq!(std::fs::read_to_string(states).unwrap(), "ready\nallocated\ndraining\nended\n");
    }
}

#[test]
fn allocated_server_shuts_down_after_its_last_player() {
    let (folder, sidecar) = (TestFolder::new(), Sidecar::start("203.0.113.5", 7654));
    let limit = Duration::from_secs(4);
    let mut server = start_under_agones(&folder, &sidecar, &["--end-when-empty", "4s", "--drain", "1h"]);
    let mut player = join_under_agones(&server);
    let joined = Instant::now();
    while joined.elapsed() < 2 * limit {
        player.turn();
        assert!(server.is_running() && player.ended.is_none(), "the match goes on");
    }
    assert!(!server.log().contains("stopping"), "{}", server.log());
    player.leave();
    let (code, log) = server.end();
    assert_eq!((code, log.contains("the allocated server has no clients")), (Some(0), true), "{log}");
    assert_eq!(sidecar.count("POST /shutdown"), 1);
}

/// The first failure has a line, and only a call that was taken is logged as one.
#[test]
fn server_without_its_sidecar_does_not_log_that_it_takes_calls() {
    let folder = TestFolder::new();
    let mut command = folder.on(&["127.0.0.1:0"], &["--agones", "--first-start", "--advertise", "127.0.0.1:40000"]);
    command.env("AGONES_SDK_HTTP_PORT", "1");
    let server = Program::start(command);
    server.wait_for("a call failed");
    // Calls of the health are two seconds apart, and the back-off is shorter.
    thread::sleep(Duration::from_secs(5));
    server.signal("-TERM");
    let (_, log) = server.end();
    let lines = |part: &str| log.lines().filter(|line| line.contains("agones") && line.contains(part)).count();
    assert_eq!((lines("takes calls"), lines("a call failed")), (0, 1), "{log}");
}

#[test]
fn only_servers_under_agones_end_when_empty_by_default() {
    let (folder, sidecar) = (TestFolder::new(), Sidecar::start("203.0.113.5", 7654));
    assert_eq!(folder.start(&[]).fact("end_when_empty"), "never");
    assert_eq!(folder.start(&["--end-when-empty", "3m"]).fact("end_when_empty"), "180s");
    let never = start_under_agones(&folder, &sidecar, &["--end-when-empty", "0"]);
    assert_eq!(never.fact("end_when_empty"), "never");
}
