//! The program as an operator meets it: its flags, its sentences, its signals.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]
#![cfg(unix)]

#[path = "../../../token-issuer/tests/http/common.rs"]
mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use self::common::{Answer, PATIENCE, agent};
use rand::SeedableRng;
use rand::rngs::StdRng;
use slipgate_token_issuer::api_key::ApiKey;

/// The private key of these tests; no output may show it.
const PRIVATE_KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// A folder with a key file, and a bearer key with its digest.
struct Place {
    folder: PathBuf,
    api_key: ApiKey,
    digest: String,
}

impl Place {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slipgate-issuer-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let mut entropy = StdRng::from_seed([2; 32]);
        let api_key = ApiKey::random(&mut entropy);
        let digest = api_key.digest(&mut entropy).to_string();
        let place = Self { folder, api_key, digest };
        place.write("keys", PRIVATE_KEY, 0o600);
        place
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A program with nothing configured, and none of our variables inherited.
    fn bare(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate-token-issuer"));
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.to_string_lossy().starts_with("SLIPGATE_")) {
            command.env_remove(name);
        }
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// A program with all that it needs, on a port of the system's choice.
    fn complete(&self, flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "0x1234", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
        command.arg("--key-file").arg(self.folder.join("keys")).arg("--api-key-digest").arg(&self.digest).args(flags);
        command
    }

    /// Runs a program that must end by itself, and soon.
    fn end(&self, mut command: Command) -> Output {
        let mut child = command.spawn().unwrap();
        let code = wait(&mut child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code);
        self.assert_silent(&output);
        output
    }

    /// Its one sentence, and its status.
    fn refused(&self, command: Command) -> (i32, String) {
        let output = self.end(command);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(told.lines().count(), 1, "one sentence: {told}");
        (output.status.code().unwrap(), told)
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

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn wait(child: &mut Child) -> Option<i32> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("the program does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A program that listens.
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

    /// The port, as the log's first line tells it.
    fn url(&self, path: &str) -> String {
        let after = self.first_line.split_once("127.0.0.1:").unwrap().1;
        let port: String = after.chars().take_while(char::is_ascii_digit).collect();
        format!("http://127.0.0.1:{port}{path}")
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Its status, and the rest of its log.
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

fn ask(program: &Program, place: &Place) -> Answer {
    let bearer = format!("Bearer {}", place.api_key.expose());
    let request = agent().post(program.url("/v1/tokens")).header("Authorization", bearer);
    Answer::from(request.content_type("application/json").send(r#"{"client_id": 77}"#).unwrap())
}

#[test]
fn it_mints_and_stops_with_status_0_on_sigterm_and_on_sigint() {
    let place = Place::new();
    for signal in ["-TERM", "-INT"] {
        let mut program = Program::start(place.complete(&[]));
        let answer = ask(&program, &place);
        assert_eq!(answer.token().facts().protocol_id, 0x1234);
        program.signal(signal);
        let (code, log) = program.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("minted a connect token") && log.contains("client_id=77"), "{log}");
        assert!(log.contains("stopped"), "{log}");
        place.assert_no_secret(&log);
        place.assert_no_secret(&program.first_line);
        assert!(!log.contains(&answer.json["token"].as_str().unwrap()[1400..1440]), "{log}");
    }
}

#[test]
fn a_second_signal_does_not_wait_for_what_is_under_way() {
    use std::io::Write;
    let place = Place::new();
    let mut program = Program::start(place.complete(&[]));
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
fn its_log_is_json_when_asked_for() {
    let place = Place::new();
    let mut program = Program::start(place.complete(&["--log", "json"]));
    ask(&program, &place);
    program.signal("-TERM");
    let (_, log) = program.end();
    for line in [&program.first_line].into_iter().map(String::as_str).chain(log.lines()) {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap().is_object());
    }
    place.assert_no_secret(&log);
}

#[test]
fn strangers_make_no_line_in_the_log() {
    let place = Place::new();
    let mut program = Program::start(place.complete(&[]));
    for _ in 0..50 {
        assert_eq!(agent().post(program.url("/v1/tokens")).send("junk").unwrap().status(), 401);
    }
    program.signal("-TERM");
    assert_eq!(program.end().1.lines().count(), 2, "stopping and stopped");
}

#[test]
fn plain_http_beyond_loopback_needs_to_be_asked_for() {
    let place = Place::new();
    for bind in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let (code, told) = place.refused(place.complete_on(bind, &[]));
        assert_eq!(code, 2);
        assert!(told.contains("--insecure-http"), "{told}");
    }
    let mut program = place.complete_on("0.0.0.0:0", &["--insecure-http"]).spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    program.kill().unwrap();
    program.wait().unwrap();
}

impl Place {
    /// A complete program that binds elsewhere.
    fn complete_on(&self, bind: &str, flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", bind]);
        command.arg("--key-file").arg(self.folder.join("keys")).arg("--api-key-digest").arg(&self.digest).args(flags);
        command
    }
}

#[test]
fn a_port_in_use_is_one_sentence() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bind = taken.local_addr().unwrap().to_string();
    let (code, told) = place.refused(place.complete_on(&bind, &[]));
    assert_eq!(code, 1);
    assert_eq!(
        told.trim_end(),
        format!("slipgate-token-issuer: cannot listen on {bind}: another program listens there already")
    );
}

#[test]
fn what_is_missing_is_named_with_its_remedy() {
    let place = Place::new();
    let keys = place.folder.join("keys");
    let keys = keys.to_str().unwrap();
    let (id, server, digest) =
        (["--protocol-id", "7"], ["--server", "192.0.2.1:1"], ["--api-key-digest", &place.digest]);
    let file = ["--key-file", keys];
    let cases = [
        ([server, digest, file].concat(), "--protocol-id"),
        ([id, digest, file].concat(), "--server"),
        ([id, server, file].concat(), "slipgate keygen --bearer"),
        ([id, server, digest].concat(), "--key-file"),
    ];
    for (flags, remedy) in cases {
        let (code, told) = place.refused(place.bare(&flags));
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(remedy), "{told}");
    }
}

#[test]
fn a_key_file_that_others_can_read_is_refused_with_the_remedy() {
    let place = Place::new();
    let path = place.write("keys", PRIVATE_KEY, 0o644);
    let (code, told) = place.refused(place.complete(&[]));
    assert_eq!(code, 2);
    assert!(told.contains(&format!("(mode 0644): run `chmod 600 {}`", path.display())), "{told}");
    place.write("keys", &PRIVATE_KEY[1..], 0o600);
    assert!(place.refused(place.complete(&[])).1.contains("line 1 is not a key"));
    fs::remove_file(&path).unwrap();
    assert!(place.refused(place.complete(&[])).1.contains("cannot be read"));
}

#[test]
fn a_wrong_setting_is_one_sentence_without_its_value_where_that_may_be_secret() {
    let place = Place::new();
    let cases = [
        (vec!["--api-key-digest", place.api_key.expose()], "make a new one"),
        (vec!["--api-key-digest", "hmac-sha256:00:11"], "entry 2"),
        (vec!["--max-lifetime", "0"], "lifetime"),
        (vec!["--max-lifetime", "20", "--default-lifetime", "21"], "lifetime"),
        (vec!["--max-timeout", "61"], "timeout"),
        (vec!["--max-connections", "0"], "--max-connections"),
        (vec!["--server", "0.0.0.0:1"], "0.0.0.0:1"),
        (vec!["--config", "/nonexistent/slipgate.toml"], "cannot be read"),
    ];
    for (flags, part) in cases {
        let (code, told) = place.refused(place.complete(&flags));
        assert_eq!(code, 2, "{told}");
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn help_shows_no_secret_of_the_environment() {
    let place = Place::new();
    let mut command = place.bare(&["--help"]);
    command.env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY).env("SLIPGATE_ISSUER_API_KEY_DIGESTS", &place.digest);
    let output = place.end(command);
    assert_eq!(output.status.code(), Some(0));
    let help = String::from_utf8(output.stdout).unwrap();
    for named in ["SLIPGATE_PRIVATE_KEY", "SLIPGATE_ISSUER_API_KEY_DIGESTS", "--insecure-http", "Exit status"] {
        assert!(help.contains(named), "{help}");
    }
}

#[test]
fn keys_may_come_from_the_environment_but_not_from_two_places_of_it() {
    let place = Place::new();
    let command = |flags: &[&str]| {
        let mut command = place.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
        command.arg("--api-key-digest").arg(&place.digest).args(flags).env("SLIPGATE_PRIVATE_KEY", PRIVATE_KEY);
        command
    };
    let program = Program::start(command(&[]));
    assert_eq!(ask(&program, &place).status, 201);
    // A flag is above the environment.
    Program::start(command(&["--key-file", place.folder.join("keys").to_str().unwrap()]));
    let mut two = command(&[]);
    two.env("SLIPGATE_KEY_FILE", place.folder.join("keys"));
    assert!(place.refused(two).1.contains("are both set"));
    let mut wrong = command(&[]);
    wrong.env("SLIPGATE_PRIVATE_KEY", &PRIVATE_KEY[1..]);
    assert!(place.refused(wrong).1.contains("SLIPGATE_PRIVATE_KEY is of no use"));
}

#[test]
fn a_flag_is_above_the_environment_is_above_the_file() {
    let place = Place::new();
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
         api_key_digests = [\"{}\"]\n",
        place.digest
    );
    let file = place.write("issuer.toml", &text, 0o644);
    let facts = |environment: Option<&str>, flags: &[&str]| {
        let mut command = place.bare(flags);
        command.env("SLIPGATE_ISSUER_CONFIG", &file).current_dir(Path::new("/"));
        if let Some(id) = environment {
            command.env("SLIPGATE_PROTOCOL_ID", id).env("SLIPGATE_ISSUER_SERVERS", "192.0.2.2:1,192.0.2.3:1");
        }
        let answer = ask(&Program::start(command), &place);
        let facts = answer.token().facts().clone();
        (facts.protocol_id, facts.servers.as_slice().len())
    };
    assert_eq!(facts(None, &[]), (1, 1));
    assert_eq!(facts(Some("0x2"), &[]), (2, 2));
    assert_eq!(facts(Some("0x2"), &["--protocol-id", "3"]), (3, 2));
}

#[test]
fn a_wrong_file_is_refused_in_one_sentence_that_does_not_show_it() {
    let place = Place::new();
    let cases = [
        (format!("\nprivate_key = \"{PRIVATE_KEY}\""), "is wrong in line 2"),
        (format!("\nbind = \"{PRIVATE_KEY}\""), "is wrong in line 2"),
        (format!("\n\n{PRIVATE_KEY}"), "is wrong in line 3"),
        (format!("protocol_id = 7\napi_key_digests = \"{}\"", place.api_key.expose()), "make a new one"),
        (format!("protocol_id = 7\napi_key_digests = [[\"{}\"]]", place.digest), "is wrong in line 2"),
    ];
    for (text, part) in cases {
        let file = place.write("issuer.toml", &text, 0o600);
        let (code, told) = place.refused(place.bare(&["--config", file.to_str().unwrap()]));
        assert_eq!(code, 2);
        assert!(told.contains(part), "{told}");
    }
}
