//! A running `slipgate-token-issuer`, its folder and its log.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
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
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// The private key of these tests; no output may show it.
pub(crate) const PRIVATE_KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";

/// A temporary folder with a key file, and an API key with its digest.
pub(crate) struct TestFolder {
    pub(crate) path: PathBuf,
    pub(crate) api_key: ApiKey,
    pub(crate) digest: String,
}

impl TestFolder {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn write(&self, name: &str, content: &str, mode: u32) -> PathBuf {
        let path = self.path.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Returns a command without configuration and without inherited `SLIPGATE_*` variables, with a state directory of
    /// its own.
    pub(crate) fn bare(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate-token-issuer"));
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.to_string_lossy().starts_with("SLIPGATE_")) {
            command.env_remove(name);
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let state = self.path.join(format!("state-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&state).unwrap();
        command.env("STATE_DIRECTORY", state).current_dir(&self.path);
        command.args(flags).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns a command with a complete configuration, on a port chosen by the system.
    pub(crate) fn complete(&self, flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "0x1234", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
        command.arg("--key-file").arg(self.path.join("keys")).arg("--api-key-digest").arg(&self.digest).args(flags);
        command
    }

    /// Runs a program that must end by itself within [`MAX_WAIT`].
    pub(crate) fn end(&self, mut command: Command) -> Output {
        let mut child = command.spawn().unwrap();
        let code = wait(&mut child);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code);
        self.assert_silent(&output);
        output
    }

    /// Returns the exit status and the one-line error of a program that must refuse its configuration.
    pub(crate) fn refused(&self, command: Command) -> (i32, String) {
        let output = self.end(command);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(message.lines().count(), 1, "one line: {message}");
        (output.status.code().unwrap(), message)
    }

    pub(crate) fn assert_silent(&self, output: &Output) {
        for text in [&output.stdout, &output.stderr] {
            self.assert_no_secret(&String::from_utf8_lossy(text));
        }
    }

    pub(crate) fn assert_no_secret(&self, text: &str) {
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

pub(crate) fn wait(child: &mut Child) -> Option<i32> {
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
pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) log: BufReader<Box<dyn Read + Send + Sync>>,
    pub(crate) first_line: String,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(Box::new(child.stderr.take().unwrap()) as Box<dyn Read + Send + Sync>);
        let mut first_line = String::new();
        log.read_line(&mut first_line).unwrap();
        // The issuer reaches for its store and listens at the same time, so either line may be the first.
        while first_line.contains("the store of the registry") {
            first_line.clear();
            log.read_line(&mut first_line).unwrap();
        }
        assert!(first_line.contains("listening"), "{first_line}");
        Self { child, log, first_line }
    }

    /// Starts the issuer and skips the warnings before the line that says where it listens.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_after_warnings(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(Box::new(child.stderr.take().unwrap()) as Box<dyn Read + Send + Sync>);
        let mut first_line = String::new();
        while !first_line.contains("listening") {
            first_line.clear();
            assert_ne!(log.read_line(&mut first_line).unwrap(), 0, "the log ended");
        }
        Self { child, log, first_line }
    }

    /// Starts the issuer, whose log goes to this file.
    pub(crate) fn start_with_log_file(mut command: Command, path: &Path) -> Self {
        let log = fs::File::create(path).unwrap();
        let no_log = BufReader::new(Box::new(std::io::empty()) as Box<dyn Read + Send + Sync>);
        let mut program = Self { child: command.stderr(log).spawn().unwrap(), log: no_log, first_line: String::new() };
        let start = Instant::now();
        while program.first_line.is_empty() {
            let log = fs::read_to_string(path).unwrap();
            program.first_line = log.lines().find(|line| line.contains("listening")).unwrap_or_default().to_owned();
            assert!(start.elapsed() < MAX_WAIT, "{log}");
            thread::sleep(Duration::from_millis(10));
        }
        program
    }

    /// Reads the lines of the log up to the one of the API keys, which is the last one of the start.
    pub(crate) fn skip_lines_of_start(&mut self) {
        let mut line = String::new();
        while !line.contains("the API keys are loaded") {
            line.clear();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "the log ended");
        }
    }

    /// Returns a URL of the service, with the port from the log's first line.
    pub(crate) fn url(&self, path: &str) -> String {
        let after = self.first_line.split_once("127.0.0.1:").unwrap().1;
        let port: String = after.chars().take_while(char::is_ascii_digit).collect();
        format!("http://127.0.0.1:{port}{path}")
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for the end. Returns the exit status and the rest of the log.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
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
pub(crate) struct TokenResponse {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl TokenResponse {
    /// Returns the token of a successful response.
    pub(crate) fn token(&self) -> ConnectToken {
        assert_eq!(self.status, 201, "{}", self.body);
        ConnectToken::from_bytes(&STANDARD.decode(self.body["token"].as_str().unwrap()).unwrap()).unwrap()
    }
}

/// Returns an HTTP client that ignores the environment's proxies and treats error statuses as responses.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(MAX_WAIT));
    config.proxy(None).build().into()
}

/// Requests a token for the client id 77.
pub(crate) fn request_token(program: &Program, folder: &TestFolder) -> TokenResponse {
    request(program, folder, r#"{"client_id": 77}"#)
}

/// Requests a token with this body.
pub(crate) fn request(program: &Program, folder: &TestFolder, body: &str) -> TokenResponse {
    let bearer = format!("Bearer {}", folder.api_key.expose());
    let request = agent().post(program.url("/v1/tokens")).header("Authorization", bearer);
    let mut response = request.content_type("application/json").send(body).unwrap();
    let body = serde_json::from_str(&response.body_mut().read_to_string().unwrap()).unwrap();
    TokenResponse { status: response.status().as_u16(), body }
}

impl TestFolder {
    /// Returns a command with a complete configuration that listens on `bind`.
    pub(crate) fn complete_on(&self, bind: &str, flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", bind]);
        command.arg("--key-file").arg(self.path.join("keys")).arg("--api-key-digest").arg(&self.digest).args(flags);
        command
    }
}
