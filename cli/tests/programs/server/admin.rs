//! The admin service of the program, by real HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use slipgate_client::CloseKind;

use super::client::{TestClient, TestToken};
use super::program::{MAX_WAIT, OTHER_KEY, Program, TestFolder, assert_no_secret};

/// Returns the admin address of a server that was started with `--admin`.
pub(crate) fn admin_of(server: &Program) -> SocketAddr {
    let line = server.wait_for("admin service");
    line.split_once("address=").unwrap().1.split(' ').next().unwrap().parse().unwrap()
}

/// Sends the bytes of a request. Returns the status and the whole response.
pub(crate) fn exchange(address: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert_no_secret(&response);
    assert!(!response.to_lowercase().contains("access-control-"), "{response}");
    let status = response.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {response:?}"));
    (status.parse().unwrap(), response)
}

fn post(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, &format!("POST {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

fn get(address: SocketAddr, path: &str) -> (u16, String) {
    exchange(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// Repeats a request until its response has this status and this text.
fn wait_for(address: SocketAddr, path: &str, status: u16, part: &str) -> String {
    let start = Instant::now();
    loop {
        let (code, response) = get(address, path);
        if code == status && response.contains(part) {
            return response;
        }
        assert!(start.elapsed() < MAX_WAIT, "{path} is not {status} with {part:?}: {response}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn health_and_metrics_show_clients_and_drain() {
    for flags in [&[][..], &["--shards", "2"], &["--shards", "2", "--app", "relay"]] {
        if flags.len() > 1 && !cfg!(target_os = "linux") {
            continue;
        }
        let folder = TestFolder::new();
        let all = [&["--admin", "127.0.0.1:0", "--drain", "1h", "--slots", "2"], flags].concat();
        let server = folder.start(&all);
        let admin = admin_of(&server);
        wait_for(admin, "/healthz", 200, r#"{"status":"ok"}"#);
        wait_for(admin, "/readyz", 200, r#"{"status":"ok"}"#);
        let mut first = TestClient::join(1, server.address());
        let metrics = wait_for(admin, "/metrics", 200, "slipgate_clients{state=\"connected\"} 1");
        assert!(metrics.contains("content-type: application/openmetrics-text"), "{metrics}");
        assert!(metrics.contains("\nslipgate_connects_total 1\n"), "{metrics}");
        assert!(metrics.contains("\nslipgate_slots 2"), "{metrics}");
        assert!(!metrics.contains("slipgate_turn_time_seconds_count 0\n"), "{metrics}");
        let mut second = TestClient::join(2, server.address());
        wait_for(admin, "/readyz", 503, r#"{"status":"not_ready","reason":"full"}"#);
        second.leave();
        wait_for(admin, "/readyz", 200, "ok");
        let metrics = wait_for(admin, "/metrics", 200, "slipgate_disconnects_total{reason=\"left\"} 1\n");
        assert_eq!(metrics.matches("\nslipgate_disconnects_total{reason=").count(), 11, "{metrics}");
        server.signal("-TERM");
        wait_for(admin, "/readyz", 503, r#""reason":"draining""#);
        wait_for(admin, "/healthz", 200, "ok");
        first.leave();
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn wrong_requests_get_an_error_in_json() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0"]);
    let admin = admin_of(&server);
    let long = "x".repeat(5000);
    let head = "x".repeat(20_000);
    let post = |path: &str, header: &str, body: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{header}Content-Length: {}\r\n\r\n{body}", body.len())
    };
    let (kick, json) = ("/clients/1/kick", "Content-Type: application/json\r\n");
    let too_long = format!(r#"{{"text":"{}"}}"#, "x".repeat(257));
    for (request, status, code) in [
        (post(kick, json, "{}"), 404, "unknown_client"),
        (post("/clients/-1/kick", "", ""), 404, "unknown_client"),
        (post("/clients/18446744073709551616/kick", "", ""), 404, "unknown_client"),
        (post("/clients/%FF/kick", "", ""), 404, "unknown_client"),
        (post(kick, "", "{}"), 415, "unsupported_media_type"),
        (post(kick, "Content-Type: text/plain\r\n", "{}"), 415, "unsupported_media_type"),
        (post(kick, &format!("{json}Content-Encoding: gzip\r\n"), "{}"), 415, "unsupported_media_type"),
        (post(kick, json, "{"), 400, "invalid_json"),
        (post(kick, json, "[]]"), 400, "invalid_json"),
        (post(kick, json, r#"{"text":7}"#), 400, "invalid_json"),
        (post(kick, json, r#"{"reason":"x"}"#), 400, "invalid_json"),
        (post(kick, json, &too_long), 400, "text_too_long"),
        (post("/drain", json, r#"{"now":true}"#), 400, "invalid_json"),
        (post("/clients", "", ""), 405, "method_not_allowed"),
        ("GET /drain HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405, "method_not_allowed"),
        ("GET /clients?after=x HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400, "invalid_query"),
        ("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404, "not_found"),
        ("GET /metrics/ HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 404, "not_found"),
        ("POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405, "method_not_allowed"),
        ("OPTIONS /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405, "method_not_allowed"),
        ("GET /metrics HTTP/1.1\r\n\r\n".to_owned(), 421, "wrong_host"),
        ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), 421, "wrong_host"),
        ("GET /metrics HTTP/1.1\r\nHost: [::1\r\n\r\n".to_owned(), 421, "wrong_host"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\n\r\n".to_owned(), 403, "cross_origin"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-site\r\n\r\n".to_owned(), 403, "cross_origin"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{long}"), 413, "body_too_large"),
        (format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {head}\r\n\r\n"), 431, ""),
        ("junk\r\n\r\n".to_owned(), 400, ""),
    ] {
        let (found, response) = exchange(admin, &request);
        assert_eq!(found, status, "{request:.80}: {response}");
        assert!(code.is_empty() || response.contains(&format!(r#"{{"error":{{"code":"{code}""#)), "{response}");
    }
    server.stop();
}

#[test]
fn operator_lists_and_kicks_clients_and_drains_the_server() {
    for flags in [&[][..], &["--shards", "2"], &["--shards", "2", "--app", "relay"]] {
        if flags.len() > 1 && !cfg!(target_os = "linux") {
            continue;
        }
        let folder = TestFolder::new();
        let server = folder.start(&[&["--admin", "127.0.0.1:0", "--drain", "1h"], flags].concat());
        let admin = admin_of(&server);
        wait_for(admin, "/clients", 200, r#"{"clients":[]}"#);
        let mut clients = [1, u64::MAX].map(|id| TestClient::join(id, server.address()));
        // The digits of an id survive in JavaScript and jq.
        let list = wait_for(admin, "/clients", 200, r#""id":"18446744073709551615""#);
        for part in [r#""id":"1""#, r#""address":"127.0.0.1:"#, r#""connected_seconds":"#, r#""silent_seconds":"#] {
            assert!(list.contains(part), "{part}: {list}");
        }
        let (status, response) = post(admin, "/clients/18446744073709551615/kick");
        assert_eq!((status, response.contains(r#""text_sent":false"#)), (200, true), "{response}");
        clients[1].until("kicked", |client| client.ended.is_some());
        assert_eq!(post(admin, "/clients/18446744073709551615/kick").0, 404);
        let metrics = wait_for(admin, "/metrics", 200, "slipgate_disconnects_total{reason=\"kicked\"} 1\n");
        assert!(metrics.contains("slipgate_disconnects_total{reason=\"left\"} 0\n"), "{metrics}");
        assert_eq!(post(admin, "/drain").0, 200);
        let (status, response) = post(admin, "/drain");
        assert_eq!((status, response.contains("already_draining")), (409, true), "{response}");
        wait_for(admin, "/readyz", 503, r#""reason":"draining""#);
        // Agones and systemd send a signal after it. The drain goes on.
        server.wait_for("waiting for the others to leave");
        server.signal("-TERM");
        let signalled = Instant::now();
        while signalled.elapsed() < Duration::from_millis(300) {
            clients[0].turn();
            assert_eq!(clients[0].ended, None, "the drain goes on");
        }
        clients[0].leave();
        let (code, log) = server.end();
        assert_eq!((code, log.contains("an operator drains the server")), (Some(0), true), "{log}");
    }
}

#[test]
fn shutdown_delay_admits_new_clients_while_not_ready() {
    for flags in [&[][..], &["--shards", "2"], &["--shards", "2", "--app", "relay"]] {
        if flags.len() > 1 && !cfg!(target_os = "linux") {
            continue;
        }
        let folder = TestFolder::new();
        let own = ["--admin", "127.0.0.1:0", "--shutdown-delay", "1h", "--drain", "1h"];
        let mut server = folder.start(&[&own[..], flags].concat());
        let admin = admin_of(&server);
        wait_for(admin, "/readyz", 200, "ok");
        server.signal("-TERM");
        wait_for(admin, "/readyz", 503, r#""reason":"draining""#);
        let mut client = TestClient::join(1, server.address());
        assert!(server.is_running(), "it has no clients at first, and stays");
        // An operator ends the delay.
        assert_eq!(post(admin, "/drain").0, 200);
        server.wait_for("denying new clients");
        // The token of this client names a server that admits no more.
        assert_eq!(TestClient::fail(TestToken::new(2, server.address()).mint()), CloseKind::Denied);
        client.leave();
        let (code, log) = server.end();
        assert_eq!(code, Some(0), "{log}");
    }
}

#[test]
fn token_is_required_and_never_shown() {
    let folder = TestFolder::new();
    // A private key as token: the checks for shown keys find it.
    folder.write("token", format!("{OTHER_KEY}\n"), 0o600);
    let server = folder.start(&["--admin", "0.0.0.0:0", "--admin-token-file", "token", "--log-level", "debug"]);
    let admin = SocketAddr::from(([127, 0, 0, 1], admin_of(&server).port()));
    let request =
        |path: &str, header: &str| exchange(admin, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n"));
    let wrong = OTHER_KEY.replace('1', "2");
    for path in ["/metrics", "/clients", "/nothing"] {
        for header in ["", "Authorization: Bearer \r\n", &format!("Authorization: Bearer {wrong}\r\n")] {
            let (status, response) = request(path, header);
            assert_eq!((status, response.contains("www-authenticate: Bearer")), (401, true), "{response}");
        }
    }
    let right = format!("Authorization: Bearer {OTHER_KEY}\r\n");
    assert_eq!(request("/metrics", &right).0, 200);
    assert_eq!(request("/metrics", &format!("{right}{right}")).0, 401, "two tokens are ambiguous");
    assert_eq!(post(admin, "/drain").0, 401);
    assert_eq!(request("/healthz", "").0, 200);
    assert_eq!(request("/readyz", "").0, 200);
    server.stop();
    for (content, mode) in [("short", 0o600), (OTHER_KEY, 0o644)] {
        folder.write("wrong", content, mode);
        let flags = ["--admin", "127.0.0.1:0", "--admin-token-file", "wrong"];
        let (code, message) = folder.refused(folder.complete(&flags));
        assert_eq!((code, message.contains("--admin-token-file: ")), (2, true), "{message}");
    }
}

#[test]
fn token_is_replaced_while_the_server_runs() {
    for shards in if cfg!(target_os = "linux") { &["1", "2"][..] } else { &["1"] } {
        let folder = TestFolder::new();
        let [old, new, last] = ['1', '2', '3'].map(|digit| digit.to_string().repeat(40));
        folder.write("token", &old, 0o600);
        let flags = ["--admin", "127.0.0.1:0", "--admin-token-file", "token", "--shards", shards];
        let server = folder.start(&flags);
        let admin = admin_of(&server);
        let status = |token: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
            exchange(admin, &head).0
        };
        assert_eq!([status(&old), status(&new)], [200, 401]);
        // The watch notices the file.
        folder.replace("token", &new, 0o600);
        server.wait_for("the file of --admin-token-file was read again");
        assert_eq!([status(&old), status(&new)], [401, 200]);
        for (content, mode, part) in [("short", 0o600, "32 to 256"), (last.as_str(), 0o644, "mode 0644")] {
            folder.replace("token", content, mode);
            server.signal("-HUP");
            assert!(server.wait_for(part).contains("keeping the current secret"));
            assert_eq!([status(&last), status(&new)], [401, 200]);
        }
        folder.replace("token", &last, 0o600);
        server.signal("-HUP");
        server.wait_for_lines("the file of --admin-token-file was read again", 2);
        assert_eq!([status(&last), status(&new)], [200, 401]);
        let log = server.stop();
        assert!(log.contains("the key file was read again"), "the signal reads all files: {log}");
        assert!(![old, new, last].iter().any(|token| log.contains(token.as_str())), "a token is shown: {log}");
    }
}

#[test]
fn idle_connections_do_not_stop_the_game() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0"]);
    let admin = admin_of(&server);
    let idle: Vec<_> = (0..64).map(|_| TcpStream::connect(admin).unwrap()).collect();
    let mut client = TestClient::join(1, server.address());
    client.echo(b"while all places are taken");
    // The idle ones are closed after their header timeout.
    wait_for(admin, "/readyz", 200, "ok");
    drop(idle);
    server.stop();
}

#[test]
fn page_has_a_strict_policy_and_few_streams() {
    let folder = TestFolder::new();
    let server = folder.start(&["--admin", "127.0.0.1:0"]);
    let admin = admin_of(&server);
    for (path, kind) in [("/", "text/html"), ("/dashboard.js", "text/javascript"), ("/dashboard.css", "text/css")] {
        let (status, response) = get(admin, path);
        assert_eq!(status, 200, "{response}");
        for header in [kind, "default-src 'none'", "frame-ancestors 'none'", "nosniff", "no-store"] {
            assert!(response.contains(header), "{path}: {header}");
        }
        assert!(!response.contains("https:") && !response.contains("//cdn") && !response.contains("style="), "{path}");
    }
    let stream = || {
        let mut stream = TcpStream::connect(admin).unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        write!(stream, "GET /events HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n\r\n").unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        (stream, String::from_utf8_lossy(&head).into_owned())
    };
    let open: Vec<_> = (0..8).map(|_| stream()).collect();
    assert!(open.iter().all(|(_, head)| head == "HTTP/1.1 200"));
    assert_eq!(stream().1, "HTTP/1.1 429");
    wait_for(admin, "/metrics", 200, "# EOF");
    let (mut first, _) = open.into_iter().next().unwrap();
    let mut events = String::new();
    first.read_to_string(&mut events).unwrap();
    assert_eq!(events.matches("data: {\"uptime\":").count(), 10, "{events}");
    server.stop();
}

#[test]
fn other_addresses_than_loopback_are_refused() {
    let folder = TestFolder::new();
    for wrong in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9100"] {
        let (code, message) = folder.refused(folder.complete(&["--admin", wrong]));
        assert_eq!((code, message.contains("is not a loopback address")), (2, true), "{message}");
    }
    let server = folder.start(&["--admin", "127.0.0.1:0"]);
    let taken = admin_of(&server).to_string();
    let (code, message) = folder.refused(folder.complete(&["--admin", &taken]));
    assert_eq!((code, message.contains("the admin service cannot listen on")), (1, true), "{message}");
    server.stop();
}
