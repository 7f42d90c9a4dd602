//! No secret leaves the server: not by its command line, its log at trace level, its metrics, or its admin service.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::admin::{admin_of, exchange};
use super::client::{TestClient, TestToken};
use super::program::{OTHER_KEY, PRIVATE_KEY, Program, TestFolder};

const ADMIN_TOKEN: &str = "adm1n-t0ken-0123456789-abcdefghijklmnop";
const REGISTRATION_KEY: &str = "server.sgk_5ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e75ec4e7abcd";

/// The texts of a secret that no output may contain.
struct SecretForms {
    name: &'static str,
    forms: Vec<String>,
}

impl SecretForms {
    /// A secret that is a text.
    fn text(name: &'static str, text: &str) -> Self {
        // A part of it gives it away as well.
        let part = &text[text.len() / 4..text.len() * 3 / 4];
        Self { name, forms: vec![part.to_lowercase(), STANDARD_NO_PAD.encode(text)] }
    }

    /// A secret of bytes: as digits, as Base64, as a list, and as they are.
    fn bytes(name: &'static str, bytes: &[u8]) -> Self {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let list = |bytes: &[u8]| format!("{bytes:?}").trim_matches(['[', ']']).to_owned();
        let half = &bytes[..bytes.len() / 2];
        let forms = vec![hex(half), STANDARD.encode(half)[..16].to_owned(), list(half)];
        Self { name, forms }
    }

    fn assert_absent(&self, what: &str, text: &str) {
        let lower = text.to_lowercase();
        let found = self.forms.iter().find(|form| text.contains(*form) || lower.contains(*form));
        assert!(found.is_none(), "{what} shows the {}: {text}", self.name);
    }
}

/// An issuer that refuses each request, and sends it back.
fn issuer_that_repeats_requests() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut buf = [0; 4096];
            let length = stream.read(&mut buf).unwrap_or(0);
            let head = format!("HTTP/1.1 500 X\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(&buf[..length]);
        }
    });
    address
}

/// Sends requests with the right token, without one, and with wrong ones. Returns all responses.
fn admin_responses(admin: SocketAddr) -> String {
    let mut responses = String::new();
    let paths = ["/", "/healthz", "/readyz", "/metrics", "/clients", "/dashboard.js", "/nothing", "/clients/1/kick"];
    for path in paths.into_iter().chain([&*format!("/clients?token={ADMIN_TOKEN}")]) {
        for field in ["", "Authorization: Bearer wrong\r\n", &format!("Authorization: Bearer {ADMIN_TOKEN}\r\n")] {
            for method in ["GET", "POST"] {
                let request = format!("{method} {path} HTTP/1.1\r\nHost: {admin}\r\n{field}Content-Length: 0\r\n\r\n");
                responses += &exchange(admin, &request).1;
            }
        }
    }
    responses
}

/// Lets clients join, fail and leave, so that each kind of line is in the log.
fn play(server: &Program) -> [SecretForms; 2] {
    let address = server.address();
    let token = TestToken::new(77, address).mint();
    let keys = token.keys();
    let forms = [
        SecretForms::bytes("key of the client's packets", keys.client_to_server.expose()),
        SecretForms::bytes("key of the server's packets", keys.server_to_client.expose()),
    ];
    let mut client = TestClient::join_with(token.clone());
    client.echo(b"hello");
    // Used before, sealed with another key, for another server, and expired.
    let of_other = TestToken { key: OTHER_KEY, ..TestToken::new(78, address).with_short_timeout() }.mint();
    let away = Some(vec!["192.0.2.1:1".parse().unwrap()]);
    let of_away = TestToken { internal: away, ..TestToken::new(79, address).with_short_timeout() }.mint();
    for wrong in [of_other, of_away] {
        TestClient::fail(wrong);
    }
    server.signal("-HUP");
    server.wait_for("was read again");
    client.leave();
    forms
}

#[test]
fn no_output_of_a_server_shows_a_secret() {
    let folder = TestFolder::new();
    folder.write("admin.token", ADMIN_TOKEN, 0o600);
    folder.write("registration.key", REGISTRATION_KEY, 0o600);
    let issuer = format!("http://{}", issuer_that_repeats_requests());
    let mut flags = vec!["--admin", "127.0.0.1:0", "--admin-token-file", "admin.token", "--first-start"];
    flags.extend(["--issuer", &issuer, "--issuer-key-file", "registration.key", "--server-id", "s", "--group", "g"]);
    flags.extend(["--redirect", "--history", "history"]);
    let mut command = folder.complete(&flags);
    command.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full");
    let server = Program::start(command);
    server.wait_for("a call was refused");
    let of_client = play(&server);
    let admin = admin_of(&server);
    let responses = admin_responses(admin);
    #[cfg(target_os = "linux")]
    let arguments = server.proc("cmdline");
    #[cfg(not(target_os = "linux"))]
    let arguments = String::new();
    let log = server.stop();
    assert!(log.contains("DEBUG") && responses.contains("slipgate_connects_total"), "{log}");
    let key: Vec<u8> =
        (0..32).map(|byte| u8::from_str_radix(&PRIVATE_KEY[2 * byte..2 * byte + 2], 16).unwrap()).collect();
    let secrets = [
        SecretForms::text("private key", PRIVATE_KEY),
        SecretForms::bytes("private key", &key),
        SecretForms::text("admin token", ADMIN_TOKEN),
        SecretForms::text("key of the registration", REGISTRATION_KEY),
    ];
    for secret in secrets.iter().chain(&of_client) {
        for (what, text) in [("the command line", &arguments), ("the log", &log), ("a response", &responses)] {
            secret.assert_absent(what, text);
        }
    }
}

#[test]
fn test_finds_secrets_in_each_form() {
    let secret = SecretForms::bytes("key", &[0xc0, 0xff, 0xee, 0x11, 0x22, 0x33, 0x44, 0x55].repeat(4));
    let text = SecretForms::text("token", ADMIN_TOKEN);
    let shown = [
        (&secret, "key=C0FFEE1122334455C0FFEE1122334455..".to_owned()),
        (&secret, format!("{:?}", [0xc0_u8, 0xff, 0xee, 0x11, 0x22, 0x33, 0x44, 0x55].repeat(4))),
        (&secret, STANDARD.encode([0xc0_u8, 0xff, 0xee, 0x11, 0x22, 0x33, 0x44, 0x55].repeat(4))),
        (&text, format!("?token={ADMIN_TOKEN}")),
    ];
    for (secret, text) in shown {
        assert!(std::panic::catch_unwind(|| secret.assert_absent("the test", &text)).is_err(), "{text}");
    }
}
