//! `slipgate-client` as a process, with real servers and a real issuer: output and exit status.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]

#[cfg(unix)]
use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
#[cfg(unix)]
use std::process::{Child, ExitStatus};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
#[cfg(unix)]
use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use slipgate_client::{Clock, ConnectToken};
use slipgate_server::keys::Key;
use slipgate_server::{Event, Inbox, Server, ServerConfig, Sockets};
use slipgate_token_issuer::api_key::ApiKey;
use slipgate_token_issuer::callers::ApiKeys;
use slipgate_token_issuer::http::{Games, RunningService, TokenService, spawn};
use slipgate_token_issuer::{Issuer, Limits, TokenRequest};

const PROTOCOL_ID: u64 = 77;

/// How a test server handles payloads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    Echo,
    Discard,
    Corrupt,
    KickAfterTen,
    Full,
}

/// A game server in its own thread.
struct TestServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    fn start(behaviour: Behaviour) -> Self {
        let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = sockets.local_addresses()[0];
        let clock = Clock::start();
        let config = ServerConfig::new(PROTOCOL_ID, 4, &[address]);
        let mut server = Server::new(sockets, config, key().into(), clock.now()).unwrap();
        server.accept_new_clients(behaviour != Behaviour::Full);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut inbox, mut payloads) = (Inbox::default(), 0);
            while !stopped.load(Ordering::Relaxed) {
                server.begin_turn(clock.now());
                while let Some(event) = inbox.next(&mut server) {
                    let Event::Payload { client, bytes, .. } = event else { continue };
                    payloads += 1;
                    match behaviour {
                        Behaviour::Echo | Behaviour::Full => server.send(client, bytes).unwrap(),
                        Behaviour::Discard => {}
                        Behaviour::Corrupt => {
                            let mut corrupted = bytes.to_vec();
                            *corrupted.last_mut().unwrap() ^= 1;
                            server.send(client, &corrupted).unwrap();
                        }
                        Behaviour::KickAfterTen if payloads > 10 => {
                            server.client(client).unwrap().disconnect().unwrap();
                        }
                        Behaviour::KickAfterTen => server.send(client, bytes).unwrap(),
                    }
                }
                server.end_turn();
                server.wait(Duration::from_millis(5)).unwrap();
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn key() -> Key {
    Key::from([5; 32])
}

fn issuer(server: SocketAddr) -> Issuer {
    Issuer::new(PROTOCOL_ID, key().into(), &[server], Limits::default()).unwrap()
}

fn token(server: SocketAddr) -> ConnectToken {
    let request = TokenRequest { timeout_seconds: Some(1), ..TokenRequest::new(9) };
    let now = Clock::start().now().unix;
    issuer(server).mint(&request, now, &mut StdRng::from_seed([1; 32])).unwrap().token
}

/// A temporary file.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("slipgate-client-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate-client"));
    command.args(arguments).env_remove("SLIPGATE_API_KEY");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn ends(status: i32, output: &Output) -> Vec<String> {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{error}");
    assert!(status == 2 || error.lines().count() == usize::from(status != 0), "one line: {error}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn token_is_read_from_file_or_stdin_as_bytes_or_base64() {
    let game = TestServer::start(Behaviour::Echo);
    for (number, in_base64) in [false, true].into_iter().enumerate() {
        let token = unique_token(game.address, number as u8);
        let content =
            if in_base64 { STANDARD.encode(token.as_bytes()).into_bytes() } else { token.as_bytes().to_vec() };
        let file = TempFile::new(&format!("token-{in_base64}"), &content);
        let output = program(&["--token", file.name(), "--for", "300ms", "--json"]).output().unwrap();
        let lines = ends(0, &output);
        let summary: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!((&summary["ok"], &summary["wrong"], &summary["missing"]), (&true.into(), &0.into(), &0.into()));
        assert!(summary["sent"].as_u64().unwrap() > 3, "{summary}");
    }
    let token = STANDARD.encode(unique_token(game.address, 7).as_bytes());
    let mut child = program(&["--token", "-", "--for", "300ms"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), token.as_bytes()).unwrap();
    let lines = ends(0, &child.wait_with_output().unwrap());
    assert!(lines.last().unwrap().starts_with("summary: connected, slot"), "{lines:?}");
}

fn unique_token(server: SocketAddr, number: u8) -> ConnectToken {
    let request = TokenRequest::new(u64::from(number));
    let now = Clock::start().now().unix;
    issuer(server).mint(&request, now, &mut StdRng::from_seed([number; 32])).unwrap().token
}

#[test]
fn exit_status_names_the_kind_of_failure() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (behaviour, status, expected) in [
        (Some(Behaviour::Discard), 5, "are missing, 0 echoes were wrong"),
        (Some(Behaviour::Corrupt), 5, "were wrong"),
        (Some(Behaviour::KickAfterTen), 4, "The game server closed the connection."),
        (Some(Behaviour::Full), 3, "The game server is full or closed."),
        (None, 3, "The game server does not respond. It may be offline, or your session has expired."),
    ] {
        let game = behaviour.map(TestServer::start);
        let server = game.as_ref().map_or(silent.local_addr().unwrap(), |game| game.address);
        let file = TempFile::new(&format!("status-{status}-{}", expected.len()), token(server).as_bytes());
        let output = program(&["--token", file.name(), "--for", "500ms", "--size", "100"]).output().unwrap();
        ends(status, &output);
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}

fn serve_tokens(server: SocketAddr) -> (RunningService, ApiKey) {
    let mut entropy = StdRng::from_seed([3; 32]);
    let api_key = ApiKey::random(&mut entropy);
    let keys = ApiKeys::new(vec![api_key.digest(&mut entropy)]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (spawn(listener, TokenService::new(issuer(server), keys)).unwrap(), api_key)
}

#[test]
fn api_key_comes_from_the_environment_or_a_file() {
    let game = TestServer::start(Behaviour::Echo);
    let (issuer, api_key) = serve_tokens(game.address);
    let url = format!("http://{}", issuer.address());
    let server = game.address.to_string();
    let flags = ["--issuer", &url, "--client-id", "18446744073709551615", "--server", &server, "--for", "200ms"];
    ends(0, &program(&flags).env("SLIPGATE_API_KEY", api_key.expose()).output().unwrap());

    let file = TempFile::new("api-key", format!("{}\n", api_key.expose()).as_bytes());
    let flags = ["--issuer", &url, "--client-id", "2", "--api-key-file", file.name(), "--for", "200ms"];
    ends(0, &program(&flags).output().unwrap());

    let flags = ["--issuer", &url, "--client-id", "3"];
    let output = program(&flags).output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("SLIPGATE_API_KEY"), "{}", text(&output.stderr));
    let output = program(&flags).env("SLIPGATE_API_KEY", "sgk_wrong").output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("refused (HTTP 401)"), "{}", text(&output.stderr));
    let flags = ["--issuer", &url, "--client-id", "3", "--server", "192.0.2.1:1"];
    let output = program(&flags).env("SLIPGATE_API_KEY", api_key.expose()).output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("refused (HTTP 400)"), "{}", text(&output.stderr));
}

#[test]
fn protocol_id_chooses_a_game_of_the_issuer() {
    let game = TestServer::start(Behaviour::Echo);
    let mut entropy = StdRng::from_seed([4; 32]);
    let api_key = ApiKey::random(&mut entropy);
    let keys = ApiKeys::new(vec![api_key.digest(&mut entropy)]).unwrap();
    let other = Issuer::new(PROTOCOL_ID + 1, key().into(), &[game.address], Limits::default()).unwrap();
    let games = Games::new(vec![issuer(game.address), other]).unwrap();
    let issuer = spawn(TcpListener::bind("127.0.0.1:0").unwrap(), TokenService::new(games, keys)).unwrap();
    let url = format!("http://{}", issuer.address());
    for (protocol_id, status, part) in [
        (&["--protocol-id", "0x4d"][..], 0, ""),
        (&["--protocol-id", "78"], 3, "does not respond"),
        (&["--protocol-id", "79"], 1, "refused (HTTP 400)"),
        (&[], 1, "refused (HTTP 400)"),
        (&["--protocol-id", "game"], 2, "--protocol-id"),
    ] {
        let flags = ["--issuer", &url, "--client-id", "1", "--for", "200ms"];
        let mut command = program(&[&flags[..], protocol_id].concat());
        let output = command.env("SLIPGATE_API_KEY", api_key.expose()).output().unwrap();
        ends(status, &output);
        assert!(text(&output.stderr).contains(part), "{protocol_id:?}: {}", text(&output.stderr));
    }
    ends(2, &program(&["--token", "x", "--protocol-id", "77"]).output().unwrap());
}

#[test]
fn loopback_issuer_is_reached_without_the_proxy() {
    let game = TestServer::start(Behaviour::Echo);
    let (issuer, api_key) = serve_tokens(game.address);
    let port = issuer.address().port();
    let dead = format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    for (client_id, url) in [("1", format!("http://127.0.0.1:{port}")), ("2", format!("http://localhost:{port}"))] {
        let mut command = program(&["--issuer", &url, "--client-id", client_id, "--for", "200ms"]);
        for variable in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            command.env(variable, &dead);
        }
        command.env_remove("no_proxy").env_remove("NO_PROXY").env("SLIPGATE_API_KEY", api_key.expose());
        ends(0, &command.output().unwrap());
    }
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

#[cfg(unix)]
#[track_caller]
fn ends_soon(mut child: Child) -> ExitStatus {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("the program does not end");
}

/// Returns whether this process ignores the signal, as shells set it for background jobs. Child processes inherit it.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(unix)]
#[test]
fn signal_while_connected_ends_the_program_with_a_summary() {
    let game = TestServer::start(Behaviour::Echo);
    for (number, name) in [(21, "-INT"), (22, "-TERM")] {
        let token = unique_token(game.address, number);
        let file = TempFile::new(&format!("signal{name}"), token.as_bytes());
        let mut child = program(&["--token", file.name(), "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().take(20).any(|line| line.contains("\"state\":\"connected\"")), "connected");
        signal(&child, name);
        let summary: Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
        assert_eq!((&summary["event"], &summary["ok"]), (&"summary".into(), &true.into()), "{name}");
        assert_eq!(ends_soon(child).code(), Some(0), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn signal_ends_the_program_while_it_waits_for_its_token() {
    use std::os::unix::process::ExitStatusExt;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for waiting in [&["--token", "-"][..], &["--issuer", &url, "--client-id", "1"]] {
        for (name, number) in [("-INT", 2), ("-TERM", 15)] {
            if is_ignored(number) {
                let _ = writeln!(
                    std::io::stderr(),
                    "SKIPPED: the test process inherited an ignored signal {number}, and so does the program"
                );
                continue;
            }
            let mut command = program(waiting);
            let child = command.env("SLIPGATE_API_KEY", "k").stdin(Stdio::piped()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            signal(&child, name);
            assert_eq!(ends_soon(child).signal(), Some(number), "{waiting:?} {name}");
        }
    }
}

#[test]
fn span_of_time_is_at_most_a_year_and_seconds_by_default() {
    let game = TestServer::start(Behaviour::Echo);
    let file = TempFile::new("span", token(game.address).as_bytes());
    for span in ["18446744073709551615s", "9000h", "-1", "ever"] {
        let output = program(&["--token", file.name(), &format!("--for={span}")]).output().unwrap();
        ends(2, &output);
        assert!(text(&output.stderr).contains("at most a year"), "{}", text(&output.stderr));
    }
    ends(0, &program(&["--token", file.name(), "--for", "1"]).output().unwrap());
}

#[test]
fn wrong_input_is_refused_before_anything_is_sent() {
    let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nowhere}");
    for (arguments, status) in [
        (vec![], 2),
        (vec!["--issuer", &url], 2),
        (vec!["--token", "x", "--issuer", &url, "--client-id", "1"], 2),
        (vec!["--token", "x", "--size", "15"], 2),
        (vec!["--token", "x", "--rate", "0"], 2),
        (vec!["--token", "/no/such/file"], 1),
    ] {
        ends(status, &program(&arguments).output().unwrap());
    }
    let output = program(&["--issuer", &url, "--client-id", "1"]).env("SLIPGATE_API_KEY", "k").output().unwrap();
    ends(1, &output);
    let message = format!("the token issuer cannot be reached at {url}: ");
    assert!(text(&output.stderr).contains(&message), "{}", text(&output.stderr));
    let bare = nowhere.to_string();
    let output = program(&["--issuer", &bare, "--client-id", "1"]).env("SLIPGATE_API_KEY", "k").output().unwrap();
    ends(1, &output);
    let message = "the address of an issuer starts with http:// or https://";
    assert!(text(&output.stderr).contains(message), "{}", text(&output.stderr));
    for arguments in [&[][..], &["--issuer", &url], &["--client-id", "1"]] {
        let error = text(&program(arguments).output().unwrap().stderr);
        assert!(error.contains("--token FILE, or --issuer URL with --client-id ID"), "{error}");
    }
    let file = TempFile::new("no-token", &[b'x'; 2048]);
    let output = program(&["--token", file.name()]).output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("holds no connect token"), "{}", text(&output.stderr));
}
