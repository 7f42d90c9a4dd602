//! The program `slipgate-client` against real servers and a real issuer: what it says, and how it ends.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code says what it expects by panicking")]

#[cfg(unix)]
use std::io::{BufRead, BufReader};
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
use slipgate_server::{Config, Event, Inbox, Key, Server, Sockets};
use slipgate_token_issuer::api_key::{ApiKey, ApiKeys};
use slipgate_token_issuer::http::{Running, TokenService, spawn};
use slipgate_token_issuer::{Issuer, Limits, TokenRequest};

const PROTOCOL_ID: u64 = 77;

/// What a server does with what it is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    Echoes,
    Swallows,
    Garbles,
    KicksAfterTen,
    IsFull,
}

/// A game server in a thread.
struct Game {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Game {
    fn start(manner: Manner) -> Self {
        let sockets = Sockets::bind(&["127.0.0.1:0".parse().unwrap()]).unwrap();
        let address = sockets.local_addresses()[0];
        let clock = Clock::start();
        let config = Config::new(PROTOCOL_ID, 4, vec![address.into()]);
        let mut server = Server::new(sockets, config, key().into(), clock.now()).unwrap();
        server.set_admitting(manner != Manner::IsFull);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut inbox, mut payloads) = (Inbox::default(), 0);
            while !stopped.load(Ordering::Relaxed) {
                server.begin_turn(clock.now());
                while let Some(event) = inbox.next(&mut server) {
                    let Event::Payload { client, bytes, .. } = event else { continue };
                    payloads += 1;
                    match manner {
                        Manner::Echoes | Manner::IsFull => server.send(client, bytes).unwrap(),
                        Manner::Swallows => {}
                        Manner::Garbles => {
                            let mut garbled = bytes.to_vec();
                            *garbled.last_mut().unwrap() ^= 1;
                            server.send(client, &garbled).unwrap();
                        }
                        Manner::KicksAfterTen if payloads > 10 => drop(server.disconnect(client)),
                        Manner::KicksAfterTen => server.send(client, bytes).unwrap(),
                    }
                }
                server.end_turn();
                server.wait(Duration::from_millis(5)).unwrap();
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Game {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn key() -> Key {
    Key::from_bytes([5; 32])
}

fn issuer(server: SocketAddr) -> Issuer {
    Issuer::new(PROTOCOL_ID, key().into(), &[server], Limits::default()).unwrap()
}

fn token(server: SocketAddr) -> ConnectToken {
    let request = TokenRequest { timeout_seconds: Some(1), ..TokenRequest::new(9) };
    let now = Clock::start().now().unix;
    issuer(server).mint(&request, now, &mut StdRng::from_seed([1; 32])).unwrap().token
}

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("slipgate-client-{}-{name}", std::process::id()));
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
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
    assert!(status == 2 || error.lines().count() == usize::from(status != 0), "one sentence: {error}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_token_from_a_file_or_from_standard_input_plain_or_in_base64_is_enough() {
    let game = Game::start(Manner::Echoes);
    for (number, in_base64) in [false, true].into_iter().enumerate() {
        let token = token_of_its_own(game.address, number as u8);
        let content =
            if in_base64 { STANDARD.encode(token.as_bytes()).into_bytes() } else { token.as_bytes().to_vec() };
        let file = Scratch::new(&format!("token-{in_base64}"), &content);
        let output = program(&["--token", file.name(), "--for", "300ms", "--json"]).output().unwrap();
        let lines = ends(0, &output);
        let summary: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        assert_eq!((&summary["ok"], &summary["wrong"], &summary["missing"]), (&true.into(), &0.into(), &0.into()));
        assert!(summary["sent"].as_u64().unwrap() > 3, "{summary}");
    }
    let token = STANDARD.encode(token_of_its_own(game.address, 7).as_bytes());
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

fn token_of_its_own(server: SocketAddr, number: u8) -> ConnectToken {
    let request = TokenRequest::new(u64::from(number));
    let now = Clock::start().now().unix;
    issuer(server).mint(&request, now, &mut StdRng::from_seed([number; 32])).unwrap().token
}

#[test]
fn the_exit_status_says_what_went_wrong() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    for (manner, status, said) in [
        (Some(Manner::Swallows), 5, "are missing, and 0 were wrong"),
        (Some(Manner::Garbles), 5, "were wrong"),
        (Some(Manner::KicksAfterTen), 4, "The game server has ended the connection."),
        (Some(Manner::IsFull), 3, "The game server is full,"),
        (None, 3, "The game server does not answer:"),
    ] {
        let game = manner.map(Game::start);
        let server = game.as_ref().map_or(silent.local_addr().unwrap(), |game| game.address);
        let file = Scratch::new(&format!("status-{status}-{}", said.len()), token(server).as_bytes());
        let output = program(&["--token", file.name(), "--for", "500ms", "--size", "100"]).output().unwrap();
        ends(status, &output);
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

fn serve_tokens(server: SocketAddr) -> (Running, ApiKey) {
    let mut entropy = StdRng::from_seed([3; 32]);
    let api_key = ApiKey::random(&mut entropy);
    let keys = ApiKeys::new(vec![api_key.digest(&mut entropy)]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    (spawn(listener, TokenService::new(issuer(server), keys)).unwrap(), api_key)
}

#[test]
fn an_issuer_is_asked_with_the_key_from_the_environment_or_a_file_and_never_from_a_flag() {
    let game = Game::start(Manner::Echoes);
    let (issuer, api_key) = serve_tokens(game.address);
    let url = format!("http://{}", issuer.address());
    let server = game.address.to_string();
    let ask = ["--issuer", &url, "--client-id", "18446744073709551615", "--server", &server, "--for", "200ms"];
    ends(0, &program(&ask).env("SLIPGATE_API_KEY", api_key.expose()).output().unwrap());

    let file = Scratch::new("api-key", format!("{}\n", api_key.expose()).as_bytes());
    let ask = ["--issuer", &url, "--client-id", "2", "--api-key-file", file.name(), "--for", "200ms"];
    ends(0, &program(&ask).output().unwrap());

    let ask = ["--issuer", &url, "--client-id", "3"];
    let output = program(&ask).output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("SLIPGATE_API_KEY"), "{}", text(&output.stderr));
    let output = program(&ask).env("SLIPGATE_API_KEY", "sgk_wrong").output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("refused (HTTP 401)"), "{}", text(&output.stderr));
    let ask = ["--issuer", &url, "--client-id", "3", "--server", "192.0.2.1:1"];
    let output = program(&ask).env("SLIPGATE_API_KEY", api_key.expose()).output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("refused (HTTP 400)"), "{}", text(&output.stderr));
}

#[test]
fn an_issuer_on_this_machine_is_asked_past_the_environments_proxy() {
    let game = Game::start(Manner::Echoes);
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
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    panic!("the program does not end");
}

/// Whether this process was started with the signal ignored, as a shell does in the background: programs inherit that.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(unix)]
#[test]
fn a_signal_while_connected_ends_the_program_in_good_order() {
    let game = Game::start(Manner::Echoes);
    for (number, name) in [(21, "-INT"), (22, "-TERM")] {
        let token = token_of_its_own(game.address, number);
        let file = Scratch::new(&format!("signal{name}"), token.as_bytes());
        let mut child = program(&["--token", file.name(), "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().take(20).any(|line| line.contains("\"state\":\"connected\"")), "it connects");
        signal(&child, name);
        let summary: Value = serde_json::from_str(&lines.last().unwrap()).unwrap();
        assert_eq!((&summary["event"], &summary["ok"]), (&"summary".into(), &true.into()), "{name}");
        assert_eq!(ends_soon(child).code(), Some(0), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_ends_the_program_while_it_waits_for_its_token() {
    use std::os::unix::process::ExitStatusExt;
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    for waiting in [&["--token", "-"][..], &["--issuer", &url, "--client-id", "1"]] {
        for (name, number) in [("-INT", 2), ("-TERM", 15)] {
            if is_ignored(number) {
                eprintln!("SKIPPED: whoever started the tests ignores signal {number}, and so does the program");
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
fn a_span_of_time_is_at_most_a_year_and_a_bare_number_is_seconds() {
    let game = Game::start(Manner::Echoes);
    let file = Scratch::new("span", token(game.address).as_bytes());
    for span in ["18446744073709551615s", "9000h", "-1", "ever"] {
        let output = program(&["--token", file.name(), &format!("--for={span}")]).output().unwrap();
        ends(2, &output);
        assert!(text(&output.stderr).contains("at most a year"), "{}", text(&output.stderr));
    }
    ends(0, &program(&["--token", file.name(), "--for", "1"]).output().unwrap());
}

#[test]
fn what_cannot_be_is_said_before_anything_is_sent() {
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
    let said = format!("the token issuer cannot be reached at {url}: ");
    assert!(text(&output.stderr).contains(&said), "{}", text(&output.stderr));
    let bare = nowhere.to_string();
    let output = program(&["--issuer", &bare, "--client-id", "1"]).env("SLIPGATE_API_KEY", "k").output().unwrap();
    ends(1, &output);
    let said = "an issuer's address starts with http:// or https://";
    assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    for arguments in [&[][..], &["--issuer", &url], &["--client-id", "1"]] {
        let error = text(&program(arguments).output().unwrap().stderr);
        assert!(error.contains("--token FILE, or from --issuer URL with --client-id ID"), "{error}");
    }
    let file = Scratch::new("no-token", &[b'x'; 2048]);
    let output = program(&["--token", file.name()]).output().unwrap();
    ends(1, &output);
    assert!(text(&output.stderr).contains("holds no connect token"), "{}", text(&output.stderr));
}
