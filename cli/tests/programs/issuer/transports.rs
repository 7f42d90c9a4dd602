//! TLS, Unix sockets, and the reload of certificates and of the key set of players.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use super::program::{MAX_WAIT, PRIVATE_KEY, Program, TestFolder, wait};

/// Writes a new certificate for `localhost` and its key. Returns the certificate in PEM.
fn write_certificate(folder: &TestFolder) -> String {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let pem = made.cert.pem();
    folder.write("certificate.pem", &pem, 0o644);
    folder.write("key.pem", &made.signing_key.serialize_pem(), 0o600);
    pem
}

/// Returns the status of a request for a token by a new connection that trusts this certificate alone.
fn request_by_tls(program: &Program, folder: &TestFolder, trusted: &str) -> Option<u16> {
    let roots = RootCerts::new_with_certs(&[Certificate::from_pem(trusted.as_bytes()).unwrap()]);
    let tls = TlsConfig::builder().root_certs(roots).build();
    let config = ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(MAX_WAIT)).proxy(None);
    let agent: ureq::Agent = config.http_status_as_error(false).build().into();
    let url = program.url("/v1/tokens").replace("http://127.0.0.1", "https://localhost");
    let request = agent.post(url).header("Authorization", format!("Bearer {}", folder.api_key.expose()));
    let response = request.content_type("application/json").send(r#"{"client_id": 77}"#);
    response.ok().map(|response| response.status().as_u16())
}

fn next_line_with(program: &mut Program, part: &str) -> String {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(program.log.read_line(&mut line).unwrap(), 0, "the log ended before {part:?}");
    }
    line
}

/// Returns the next line of the log that is not about a request.
fn next_line_of_reload(program: &mut Program) -> String {
    let mut line = String::new();
    while line.is_empty() || line.contains("refused a request") {
        line.clear();
        assert_ne!(program.log.read_line(&mut line).unwrap(), 0, "the log ended");
    }
    line
}

fn tls_flags(folder: &TestFolder) -> [String; 4] {
    let path = |name: &str| folder.path.join(name).to_str().unwrap().to_owned();
    ["--tls-certificate-file".to_owned(), path("certificate.pem"), "--tls-key-file".to_owned(), path("key.pem")]
}

#[test]
fn certificates_are_reloaded_on_sighup_and_on_change() {
    let folder = TestFolder::new();
    let first = write_certificate(&folder);
    let flags = tls_flags(&folder);
    let mut program = Program::start(folder.complete(&flags.each_ref().map(String::as_str)));
    assert!(program.first_line.contains("tls=true"), "{}", program.first_line);
    assert_eq!(request_by_tls(&program, &folder, &first), Some(201));

    let second = write_certificate(&folder);
    program.signal("-HUP");
    next_line_with(&mut program, "SIGHUP: the certificates were read again");
    assert_eq!(request_by_tls(&program, &folder, &second), Some(201));
    assert_eq!(request_by_tls(&program, &folder, &first), None);

    let third = write_certificate(&folder);
    let start = Instant::now();
    while request_by_tls(&program, &folder, &third) != Some(201) {
        assert!(start.elapsed() < MAX_WAIT, "the change was not noticed");
        std::thread::sleep(Duration::from_millis(100));
    }
    let line = next_line_with(&mut program, "a file has changed: the certificates were read again");
    assert!(line.contains(".pem") && !line.contains("/keys"), "{line}");
    folder.write("keys", PRIVATE_KEY, 0o600);
    let line = next_line_with(&mut program, "a file has changed");
    assert!(line.contains("the keys were read again") && line.contains("/keys"), "no certificate has changed: {line}");

    folder.write("key.pem", "junk", 0o600);
    program.signal("-HUP");
    let line = next_line_with(&mut program, "keeping the current certificates");
    assert!(line.contains("no private key"), "{line}");
    assert_eq!(request_by_tls(&program, &folder, &third), Some(201));
    program.signal("-TERM");
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn tls_is_served_beyond_loopback() {
    let folder = TestFolder::new();
    write_certificate(&folder);
    let flags = tls_flags(&folder);
    let flags = flags.each_ref().map(String::as_str);
    let mut command = folder.complete_on("0.0.0.0:0", &flags);
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();

    let (code, message) = folder.refused(folder.complete(&flags[..2]));
    assert!(code == 2 && message.contains("--tls-key-file"), "{message}");
    folder.write("key.pem", "junk", 0o600);
    let (code, message) = folder.refused(folder.complete(&flags));
    assert!(code == 2 && message.contains("no private key in PEM"), "{message}");
    folder.write("key.pem", "junk", 0o644);
    assert!(folder.refused(folder.complete(&flags)).1.contains("chmod 600"));
}

/// An issuer on a Unix socket.
struct SocketProgram {
    child: Child,
    path: PathBuf,
    log: BufReader<Box<dyn Read>>,
}

impl SocketProgram {
    fn start(folder: &TestFolder, flags: &[&str]) -> Self {
        let path = folder.path.join("socket");
        let mut child = folder.complete_on(&format!("unix:{}", path.display()), flags).spawn().unwrap();
        let mut log = BufReader::new(Box::new(child.stderr.take().unwrap()) as Box<dyn Read>);
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        assert!(line.contains("listening") && line.contains("address=unix:"), "{line}");
        Self { child, path, log }
    }

    fn mode(&self) -> u32 {
        let metadata = fs::symlink_metadata(&self.path).unwrap();
        assert!(metadata.file_type().is_socket());
        metadata.mode() & 0o777
    }

    fn request(&self, head: &str) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    fn stop(&mut self, signal: &str) -> Option<i32> {
        let kill = format!("kill {signal} {}", self.child.id());
        assert!(std::process::Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        wait(&mut self.child)
    }
}

impl Drop for SocketProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn issuer_on_a_unix_socket_shows_its_peers_in_the_log() {
    let folder = TestFolder::new();
    let mut program = SocketProgram::start(&folder, &[]);
    assert_eq!(program.mode(), 0o600);
    let body = r#"{"client_id": 77}"#;
    let response = program.request(&format!(
        "POST /v1/tokens HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        folder.api_key.expose(),
        body.len()
    ));
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    let refused = program.request("POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    assert_eq!(program.stop("-TERM"), Some(0));
    let mut log = String::new();
    program.log.read_to_string(&mut log).unwrap();
    let peer = format!("peer=unix:uid={},pid={}", fs::metadata("/proc/self").unwrap().uid(), std::process::id());
    assert!(log.contains(&peer), "{log}");
    assert!(!program.path.exists(), "the socket is removed");
}

#[test]
fn socket_has_the_configured_mode_and_survives_a_crash() {
    let folder = TestFolder::new();
    let mut program = SocketProgram::start(&folder, &["--socket-mode", "0660"]);
    assert_eq!(program.mode(), 0o660);
    // Another issuer does not take the address of one that runs.
    let path = format!("unix:{}", program.path.display());
    let (code, message) = folder.refused(folder.complete_on(&path, &[]));
    assert!(code == 1 && message.contains("another program listens there already"), "{message}");
    program.stop("-KILL");
    assert!(program.path.exists(), "a crash leaves it");
    let mut again = SocketProgram::start(&folder, &[]);
    assert_eq!(again.mode(), 0o600);
    assert_eq!(again.stop("-INT"), Some(0));

    let file = folder.write("file", "content", 0o600);
    let (code, message) = folder.refused(folder.complete_on(&format!("unix:{}", file.display()), &[]));
    assert!(code == 1 && message.contains("no socket"), "{message}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "content");
    write_certificate(&folder);
    let flags = tls_flags(&folder);
    let command = folder.complete_on(&path, &flags.each_ref().map(String::as_str));
    assert!(folder.refused(command).1.contains("needs no certificates"));
}

/// Returns a key set with one Ed25519 key of this id. No token of its owner exists.
fn key_set(id: &str) -> String {
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    serde_json::json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": x, "kid": id}]}).to_string()
}

#[test]
fn key_set_of_players_is_read_from_its_file_and_again() {
    let folder = TestFolder::new();
    folder.write("players.json", &key_set("first"), 0o644);
    let text = format!(
        "bind = \"127.0.0.1:0\"\nprotocol_id = 1\nservers = [\"192.0.2.1:1\"]\nkey_file = \"keys\"\n\
         api_key_digests = \"{}\"\n[players]\nkeys = \"players.json\"\nissuer = \"https://id.example/\"\n\
         audiences = \"game\"\n",
        folder.digest
    );
    let file = folder.write("issuer.toml", &text, 0o600);
    let config = ["--config", file.to_str().unwrap()];
    let mut program = Program::start(folder.bare(&config));
    program.skip_lines_of_start();
    // {"alg":"EdDSA","kid":"first"} and no valid signature: the key decides about the reason of the refusal.
    let jwt = "eyJhbGciOiJFZERTQSIsImtpZCI6ImZpcnN0In0.e30.AAAA";
    let refusal = |program: &Program| {
        let body = serde_json::json!({"player_jwt": jwt}).to_string();
        let response = super::program::request(program, &folder, &body);
        assert_eq!(response.status, 403);
        response.body["error"]["message"].as_str().unwrap().to_owned()
    };
    assert!(refusal(&program).contains("wrong signature"));
    folder.write("players.json", &key_set("second"), 0o644);
    let line = next_line_of_reload(&mut program);
    for part in ["a file has changed: the keys of players were read again", "players.json", "keys=1"] {
        assert!(line.contains(part), "other files have not changed: {line}");
    }
    assert!(refusal(&program).contains("unknown key id"));
    folder.write("players.json", "{}", 0o644);
    let line = next_line_of_reload(&mut program);
    assert!(line.contains("keeping the current keys of players") && line.contains("players.json"), "{line}");
    assert!(refusal(&program).contains("unknown key id"));
    folder.write("players.json", &key_set("first"), 0o644);
    let line = next_line_of_reload(&mut program);
    assert!(line.contains("a file has changed: the keys of players were read again"), "{line}");
    assert!(refusal(&program).contains("wrong signature"));
    program.signal("-TERM");
    assert_eq!(program.end().0, Some(0));

    folder.write("players.json", "{}", 0o644);
    let (code, message) = folder.refused(folder.bare(&config));
    assert!(code == 2 && message.contains("no JSON Web Key Set"), "{message}");
    for (keys, part) in [("http://id.example/keys", "must be https"), ("missing.json", "cannot be read")] {
        folder.write("issuer.toml", &text.replace("players.json", keys), 0o600);
        let (code, message) = folder.refused(folder.bare(&config));
        assert!(code == 2 && message.contains(part), "{message}");
    }
}
