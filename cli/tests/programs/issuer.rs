//! `slipgate-token-issuer` as a process: flags, messages and signals.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(unix)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::Value;
use slipgate_client::ConnectToken;
use slipgate_token_issuer::api_key::ApiKey;

/// The longest time that a test waits for a program before it fails.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The private key of these tests; no output may show it.
const PRIVATE_KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// A temporary folder with a key file, and an API key with its digest.
struct TestFolder {
    path: PathBuf,
    api_key: ApiKey,
    digest: String,
}

impl TestFolder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slipgate-issuer-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let mut entropy = StdRng::from_seed([2; 32]);
        let api_key = ApiKey::random(&mut entropy);
        let digest = api_key.digest(&mut entropy).to_string();
        let folder = Self { path, api_key, digest };
        folder.write("keys", PRIVATE_KEY, 0o600);
        folder
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Returns a command without configuration and without inherited `SLIPGATE_*` variables.
    fn bare(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate-token-issuer"));
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.to_string_lossy().starts_with("SLIPGATE_")) {
            command.env_remove(name);
        }
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns a command with a complete configuration, on a port chosen by the system.
    fn complete(&self, flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "0x1234", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
        command.arg("--key-file").arg(self.path.join("keys")).arg("--api-key-digest").arg(&self.digest).args(flags);
        command
    }

    /// Runs a program that must end by itself within [`MAX_WAIT`].
    fn end(&self, mut command: Command) -> Output {
        let mut child = command.spawn().unwrap();
        let code = wait(&mut child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code);
        self.assert_silent(&output);
        output
    }

    /// Returns the exit status and the one-line error of a program that must refuse its configuration.
    fn refused(&self, command: Command) -> (i32, String) {
        let output = self.end(command);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message.lines().count(), 1, "one line: {message}");
        (output.status.code().unwrap(), message)
    }

    fn assert_silent(&self, output: &Output) {
        for text in [&output.stdout, &output.stderr] {
            self.assert_no_secret(&String::from_utf8_lossy(text));
        }
    }

    fn assert_no_secret(&self, text: &str) {
        let lower = text.to_lowercase();
        assert!(!lower.contains("c0ffee00"), "the private key is shown: {text}");
        assert!(!text.contains(&self.api_key.expose()[4..20]), "the API key is shown: {text}");
        assert!(!text.contains(&self.digest[..40]), "the digest is shown: {text}");
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn wait(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if start.elapsed() > MAX_WAIT {
            child.kill().unwrap();
            panic!("the program does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A running issuer.
struct Program {
    child: Child,
    log: BufReader<ChildStderr>,
    first_line: String,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut first_line = String::new();
        log.read_line(&mut first_line).unwrap();
        assert!(first_line.contains("listening"), "{first_line}");
        Self { child, log, first_line }
    }

    /// Returns a URL of the service, with the port from the log's first line.
    fn url(&self, path: &str) -> String {
        let after = self.first_line.split_once("127.0.0.1:").unwrap().1;
        let port: String = after.chars().take_while(char::is_ascii_digit).collect();
        format!("http://127.0.0.1:{port}{path}")
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for the end. Returns the exit status and the rest of the log.
    fn end(&mut self) -> (Option<i32>, String) {
        let code = wait(&mut self.child);
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (code, rest)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response of the service.
struct TokenResponse {
    status: u16,
    body: Value,
}

impl TokenResponse {
    /// Returns the token of a successful response.
    fn token(&self) -> ConnectToken {
        assert_eq!(self.status, 201, "{}", self.body);
        ConnectToken::from_bytes(&STANDARD.decode(self.body["token"].as_str().unwrap()).unwrap()).unwrap()
    }
}

/// Returns an HTTP client that ignores the environment's proxies and treats error statuses as responses.
fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(MAX_WAIT));
    config.proxy(None).build().into()
}

/// Requests a token for the client id 77.
fn request_token(program: &Program, folder: &TestFolder) -> TokenResponse {
    let bearer = format!("Bearer {}", folder.api_key.expose());
    let request = agent().post(program.url("/v1/tokens")).header("Authorization", bearer);
    let mut response = request.content_type("application/json").send(r#"{"client_id": 77}"#).unwrap();
    let body = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    TokenResponse { status: response.status().as_u16(), body }
}

#[test]
fn issuer_mints_and_stops_on_sigterm_and_sigint_with_status_0() {
    let folder = TestFolder::new();
    for signal in ["-TERM", "-INT"] {
        let mut program = Program::start(folder.complete(&[]));
        let response = request_token(&program, &folder);
        assert_eq!(response.token().facts().protocol_id, 0x1234);
        program.signal(signal);
        let (code, log) = program.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("minted a connect token") && log.contains("client_id=77"), "{log}");
        assert!(log.contains("stopped"), "{log}");
        folder.assert_no_secret(&log);
        folder.assert_no_secret(&program.first_line);
        assert!(!log.contains(&response.body["token"].as_str().unwrap()[1400..1440]), "{log}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn issuer_mints_and_stops_while_nobody_reads_its_log() {
    let folder = TestFolder::new();
    let (reader, writer) = crate::small_pipe::small_pipe();
    let mut command = folder.complete(&["--log-level", "debug"]);
    let mut program = crate::small_pipe::KilledAtEnd(command.stderr(writer).spawn().unwrap());
    let child = &mut program.0;
    drop(command);
    let mut log = BufReader::with_capacity(1, reader);
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    let after = first.split_once("127.0.0.1:").unwrap().1;
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    let (agent, bearer) = (agent(), format!("Bearer {}", folder.api_key.expose()));
    // A pipe of 4 KiB holds the lines of some 30 tokens.
    for _ in 0..200 {
        let request = agent.post(format!("http://127.0.0.1:{port}/v1/tokens")).header("Authorization", &bearer);
        assert_eq!(request.content_type("application/json").send(r#"{"client_id": 77}"#).unwrap().status(), 201);
    }
    assert_eq!(agent.get(format!("http://127.0.0.1:{port}/v1/health")).call().unwrap().status(), 200);
    let begin = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(wait(child), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn second_signal_aborts_open_requests() {
    use std::io::Write;
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    let address = program.url("").replace("http://", "");
    let mut stuck = std::net::TcpStream::connect(address).unwrap();
    stuck
        .write_all(b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        .unwrap();
    stuck.read_exact(&mut [0; 25]).unwrap();
    program.signal("-TERM");
    let mut line = String::new();
    program.log.read_line(&mut line).unwrap();
    assert!(line.contains("stopping"), "{line}");
    program.signal("-TERM");
    let (code, log) = program.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("stopped at once"), "{log}");
}

#[test]
fn json_log_has_one_object_per_line() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&["--log", "json"]));
    request_token(&program, &folder);
    program.signal("-TERM");
    let (_, log) = program.end();
    for line in [&program.first_line].into_iter().map(String::as_str).chain(log.lines()) {
        assert!(serde_json::from_str::<Value>(line).unwrap().is_object());
    }
    folder.assert_no_secret(&log);
}

#[test]
fn unauthorized_requests_are_not_logged() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    for _ in 0..50 {
        assert_eq!(agent().post(program.url("/v1/tokens")).send("junk").unwrap().status(), 401);
    }
    program.signal("-TERM");
    assert_eq!(program.end().1.lines().count(), 2, "stopping and stopped");
}

#[test]
fn plain_http_beyond_loopback_needs_a_flag() {
    let folder = TestFolder::new();
    for bind in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let (code, message) = folder.refused(folder.complete_on(bind, &[]));
        assert_eq!(code, 2);
        assert!(message.contains("--insecure-http"), "{message}");
    }
    let mut program = folder.complete_on("0.0.0.0:0", &["--insecure-http"]).spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    program.kill().unwrap();
    program.wait().unwrap();
}

impl TestFolder {
    /// Returns a command with a complete configuration that listens on `bind`.
    fn complete_on(&self, bind: &str, flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", bind]);
        command.arg("--key-file").arg(self.path.join("keys")).arg("--api-key-digest").arg(&self.digest).args(flags);
        command
    }
}

#[test]
fn port_in_use_is_a_one_line_error() {
    let folder = TestFolder::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap().to_string();
    let (code, message) = folder.refused(folder.complete_on(&bind, &[]));
    assert_eq!(code, 1);
    assert_eq!(
        message.trim_end(),
        format!("slipgate-token-issuer: cannot listen on {bind}: another program listens there already")
    );
}

#[test]
fn missing_setting_is_named_with_its_remedy() {
    let folder = TestFolder::new();
    let keys = folder.path.join("keys");
    let keys = keys.to_str().unwrap();
    let (id, server, digest) =
        (["--protocol-id", "7"], ["--server", "192.0.2.1:1"], ["--api-key-digest", &folder.digest]);
    let file = ["--key-file", keys];
    let cases = [
        ([server, digest, file].concat(), "--protocol-id"),
        ([id, digest, file].concat(), "--server"),
        ([id, server, file].concat(), "slipgate keygen --bearer"),
        ([id, server, digest].concat(), "--key-file"),
    ];
    for (flags, remedy) in cases {
        let (code, message) = folder.refused(folder.bare(&flags));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(remedy), "{message}");
    }
}

#[test]
fn key_file_readable_by_others_is_refused_with_the_remedy() {
    let folder = TestFolder::new();
    let path = folder.write("keys", PRIVATE_KEY, 0o644);
    let (code, message) = folder.refused(folder.complete(&[]));
    assert_eq!(code, 2);
    assert!(message.contains(&format!("(mode 0644): run `chmod 600 {}`", path.display())), "{message}");
    folder.write("keys", &PRIVATE_KEY[1..], 0o600);
    assert!(folder.refused(folder.complete(&[])).1.contains("line 1 is not a key"));
    fs::remove_file(&path).unwrap();
    assert!(folder.refused(folder.complete(&[])).1.contains("cannot be read"));
}

#[test]
fn wrong_setting_is_a_one_line_error_without_secrets() {
    let folder = TestFolder::new();
    let cases = [
        (vec!["--api-key-digest", folder.api_key.expose()], "create a new one"),
        (vec!["--api-key-digest", "hmac-sha256:00:11"], "entry 2"),
        (vec!["--max-lifetime", "0"], "lifetime"),
        (vec!["--max-lifetime", "20", "--default-lifetime", "21"], "lifetime"),
        (vec!["--max-timeout", "61"], "timeout"),
        (vec!["--max-connections", "0"], "--max-connections"),
        (vec!["--server", "0.0.0.0:1"], "0.0.0.0:1"),
        (vec!["--config", "/nonexistent/slipgate.toml"], "cannot be read"),
    ];
    for (flags, part) in cases {
        let (code, message) = folder.refused(folder.complete(&flags));
        assert_eq!(code, 2, "{message}");
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn help_shows_no_secret_of_the_environment() {
    let folder = TestFolder::new();
    let mut command = folder.bare(&["--help"]);
    command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY).env("SLIPGATE_ISSUER_API_KEY_DIGESTS", &folder.digest);
    let output = folder.end(command);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for part in ["SLIPGATE_PRIVATE_KEY", "SLIPGATE_ISSUER_API_KEY_DIGESTS", "--insecure-http", "Exit status"] {
        assert!(help.contains(part), "{help}");
    }
}

#[test]
fn keys_may_come_from_one_environment_variable_only() {
    let folder = TestFolder::new();
    let command = |flags: &[&str]| {
        let mut command = folder.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
        command.arg("--api-key-digest").arg(&folder.digest).args(flags).env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
        command
    };
    let program = Program::start(command(&[]));
    assert_eq!(request_token(&program, &folder).status, 201);
    // The flag overrides the environment.
    Program::start(command(&["--key-file", folder.path.join("keys").to_str().unwrap()]));
    let mut two = command(&[]);
    two.env("SLIPGATE_KEY_FILE", folder.path.join("keys"));
    assert!(folder.refused(two).1.contains("are both set"));
    let mut wrong = command(&[]);
    wrong.env("SLIPGATE_PRIVATE_KEY", &PRIVATE_KEY[1..]);
    assert!(folder.refused(wrong).1.contains("SLIPGATE_PRIVATE_KEY is invalid"));
}

#[test]
fn flag_overrides_environment_overrides_file() {
    let folder = TestFolder::new();
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
         api_key_digests = [\"{}\"]\n",
        folder.digest
    );
    let file = folder.write("issuer.toml", &text, 0o644);
    let facts = |environment: Option<&str>, flags: &[&str]| {
        let mut command = folder.bare(flags);
        command.env("SLIPGATE_ISSUER_CONFIG", &file).current_dir(Path::new("/"));
        if let Some(id) = environment {
            command.env("SLIPGATE_PROTOCOL_ID", id).env("SLIPGATE_ISSUER_SERVERS", "192.0.2.2:1,192.0.2.3:1");
        }
        let response = request_token(&Program::start(command), &folder);
        let facts = response.token().facts().clone();
        (facts.protocol_id, facts.servers.len())
    };
    assert_eq!(facts(None, &[]), (1, 1));
    assert_eq!(facts(Some("0x2"), &[]), (2, 2));
    assert_eq!(facts(Some("0x2"), &["--protocol-id", "3"]), (3, 2));
}

#[test]
fn wrong_file_is_refused_without_quoting_it() {
    let folder = TestFolder::new();
    let cases = [
        (format!("\nprivate_key = \"{PRIVATE_KEY}\""), "is wrong in line 2"),
        (format!("\nbind = \"{PRIVATE_KEY}\""), "is wrong in line 2"),
        (format!("\n\n{PRIVATE_KEY}"), "is wrong in line 3"),
        (format!("protocol_id = 7\napi_key_digests = \"{}\"", folder.api_key.expose()), "create a new one"),
        (format!("protocol_id = 7\napi_key_digests = [[\"{}\"]]", folder.digest), "is wrong in line 2"),
    ];
    for (text, part) in cases {
        let file = folder.write("issuer.toml", &text, 0o600);
        let (code, message) = folder.refused(folder.bare(&["--config", file.to_str().unwrap()]));
        assert_eq!(code, 2);
        assert!(message.contains(part), "{message}");
    }
}
