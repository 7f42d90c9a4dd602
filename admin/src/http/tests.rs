//! Bad input for each route, and slow or many connections, by real HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use slipgate_server::ServerConfig;

use super::places::MAX_CONNECTIONS;
use crate::{Admin, AdminToken, ROUTES};

const MAX_WAIT: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn admin(token: Option<&str>) -> Admin {
    let bind = "127.0.0.1:0".parse().unwrap();
    match token {
        None => Admin::start(bind).unwrap(),
        Some(token) => Admin::start_with_token(bind, AdminToken::parse(token).unwrap()).unwrap(),
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
    stream
}

/// Sends the bytes of a request. Returns the status and the whole response; status 0 if the connection was closed.
fn exchange(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = connect(address);
    // The service may refuse the request before it has read everything.
    let _ = stream.write_all(request);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response.split(' ').nth(1).map_or(0, |status| status.parse().unwrap());
    (status, response)
}

fn request(method: &str, path: &str, head: &str, body: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len()).into()
}

/// Each route with its method in upper case and a concrete path.
fn routes() -> impl Iterator<Item = (String, &'static str)> {
    ROUTES.iter().map(|(path, method)| (path.replace("{id}", "7"), if *method == "get" { "GET" } else { "POST" }))
}

/// What is wrong with a request on any route: its method, further header fields, its body, and the expected status.
fn wrong_on_each_route(method: &'static str) -> Vec<(&'static str, String, String, u16, &'static str)> {
    let other = if method == "GET" { "POST" } else { "GET" };
    let case = |method, head: &str, body: String, status, code| (method, head.to_owned(), body, status, code);
    let fields: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    vec![
        case(other, "", String::new(), 405, "method_not_allowed"),
        case("DELETE", "", String::new(), 405, "method_not_allowed"),
        case("OPTIONS", "", String::new(), 405, "method_not_allowed"),
        case(method, "Host: localhost\r\n", String::new(), 421, "wrong_host"),
        case(method, "Host: evil.example\r\n", String::new(), 421, "wrong_host"),
        case(method, "Origin: null\r\n", String::new(), 403, "cross_origin"),
        case(method, "Origin: http://localhost:3000\r\n", String::new(), 403, "cross_origin"),
        case(method, "Sec-Fetch-Site: cross-site\r\n", String::new(), 403, "cross_origin"),
        case(method, "Sec-Fetch-Site: same-site\r\n", String::new(), 403, "cross_origin"),
        case(method, "", "x".repeat(4097), 413, "body_too_large"),
        case(method, "", "x".repeat(60_000), 413, "body_too_large"),
        case(method, &format!("X: {}\r\n", "x".repeat(9000)), String::new(), 431, ""),
        case(method, &fields, String::new(), 431, ""),
        case(method, "Content-Length: 7\r\n", String::new(), 400, ""),
        case(method, "Content-Length: -1\r\n", String::new(), 400, ""),
    ]
}

#[test]
fn bad_input_is_refused_on_each_route() {
    let admin = admin(None);
    let mut cases = 0;
    for (path, method) in routes() {
        for (method, head, body, status, code) in wrong_on_each_route(method) {
            let (found, response) = exchange(admin.address(), &request(method, &path, &head, &body));
            assert_eq!(found, status, "{method} {path} {head:.60} {}: {response}", body.len());
            assert!(code.is_empty() || response.contains(&format!(r#""code":"{code}""#)), "{response}");
            cases += 1;
        }
    }
    assert_eq!(cases, 15 * ROUTES.len());
    assert!(!admin.is_draining(), "none of them drained the server");
}

#[test]
fn malformed_bodies_of_commands_are_refused() {
    let admin = admin(None);
    let json = "Content-Type: application/json\r\n";
    for (path, method) in routes().filter(|(_, method)| *method == "POST") {
        for (head, body, status) in [
            (json, "{", 400),
            (json, "{}{}", 400),
            (json, "null", 400),
            (json, "7", 400),
            (json, "[[[[", 400),
            (json, r#"{"unknown":1}"#, 400),
            (json, r#"{"text":"a","text":"b"}"#, 400),
            (json, "\u{feff}{}", 400),
            ("", "{}", 415),
            ("Content-Type: application/json\r\nContent-Type: application/json\r\n", "{}", 415),
            ("Content-Type: application/x-www-form-urlencoded\r\n", "text=a", 415),
            ("Content-Type: application/json\r\nContent-Encoding: gzip\r\n", "{}", 415),
        ] {
            let (found, response) = exchange(admin.address(), &request(method, &path, head, body));
            assert_eq!(found, status, "{path} {head} {body}: {response}");
        }
        let deep = format!("{{\"text\":{}", "[".repeat(2000));
        assert_eq!(exchange(admin.address(), &request(method, &path, json, &deep)).0, 400);
        for chunks in ["zz\r\n{}\r\n0\r\n\r\n", "ffffffffffffffffff\r\n", "2\r\n{}\r\n"] {
            let head =
                format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{json}Transfer-Encoding: chunked\r\n\r\n");
            let mut stream = connect(admin.address());
            stream.write_all(format!("{head}{chunks}").as_bytes()).unwrap();
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut response = String::new();
            let _ = stream.read_to_string(&mut response);
            assert!(response.is_empty() || response.starts_with("HTTP/1.1 400"), "{path} {chunks:?}: {response}");
        }
    }
    assert!(!admin.is_draining(), "none of them drained the server");
}

#[test]
fn each_route_but_health_and_readiness_needs_the_token() {
    let admin = admin(Some(TOKEN));
    let wrong = [
        String::new(),
        format!("Authorization: Bearer {}\r\n", TOKEN.replace('0', "1")),
        format!("Authorization: Bearer {TOKEN}\r\nAuthorization: Bearer {TOKEN}\r\n"),
        format!("Authorization: Basic {TOKEN}\r\n"),
        format!("X-Authorization: Bearer {TOKEN}\r\n"),
    ];
    for (path, method) in routes() {
        let is_open = path == "/healthz" || path == "/readyz";
        for head in &wrong {
            let (status, response) = exchange(admin.address(), &request(method, &path, head, ""));
            assert_eq!(status == 401, !is_open, "{path} {head}: {response}");
            assert!(!response.contains(TOKEN), "{response}");
        }
    }
    for path in ["/healthz/", "//healthz", "/healthz/../clients", "/%68ealthz", "/clients?/healthz", "*"] {
        assert_eq!(exchange(admin.address(), &request("GET", path, "", "")).0, 401, "{path}");
    }
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    let (_, metrics) = exchange(admin.address(), &request("GET", "/metrics", &right, ""));
    assert!(metrics.contains(&format!("slipgate_admin_refusals_total {}\n", 8 * wrong.len() + 6)), "{metrics}");
}

#[test]
fn probe_is_answered_while_strangers_hold_all_places() {
    let admin = admin(Some(TOKEN));
    let _publisher = admin.publisher(&ServerConfig::new(1, 4, &[]), slipgate_server::Clock::start());
    let idle: Vec<_> = (0..2 * MAX_CONNECTIONS).map(|_| connect(admin.address())).collect();
    let mut slow: Vec<_> = (0..2 * MAX_CONNECTIONS).map(|_| connect(admin.address())).collect();
    slow.iter_mut().for_each(|stream| _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: loc"));
    // Without the replacement of strangers it would wait for their time limit of 5 s, twice.
    assert_eq!(exchange(admin.address(), &request("GET", "/healthz", "", "")).0, 200);
    let mut first = &idle[0];
    assert_eq!(first.read(&mut [0; 1]).unwrap_or(0), 0, "the oldest was closed");
}

/// Returns the code of an error response, which is a JSON object with a message.
fn error_code(response: &str) -> String {
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("\r\ncontent-type: application/json\r\n"), "{response}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{response}");
    body["error"]["code"].as_str().unwrap().to_owned()
}

#[test]
fn errors_of_the_framework_are_json_too() {
    let admin = admin(None);
    for (method, target, status, code) in [
        ("POST", "/clients/%ff/kick", 404, "unknown_client"),
        ("POST", "/clients/%c3%28/kick", 404, "unknown_client"),
        ("POST", "/clients/%zz/kick", 404, "unknown_client"),
        ("POST", "/clients/%00/kick", 404, "unknown_client"),
        ("POST", "/clients/7%2fkick/kick", 404, "unknown_client"),
        ("GET", "/clients/%ff/kick", 405, "method_not_allowed"),
        ("POST", "/clients//kick", 404, "unknown_client"),
        ("POST", "/clients/7/kick/", 404, "not_found"),
        ("GET", "/%ff", 404, "not_found"),
        ("OPTIONS", "*", 404, "not_found"),
        ("TRACE", "/drain", 405, "method_not_allowed"),
        ("X-OWN", "/", 405, "method_not_allowed"),
        ("CONNECT", "127.0.0.1:9100", 404, "not_found"),
        ("GET", "http://127.0.0.1:9100/none", 404, "not_found"),
        ("POST", "http://evil.example/drain", 421, "wrong_host"),
        ("GET", "/clients?after=%ff", 400, "invalid_query"),
        ("GET", "/clients?limit=1", 400, "invalid_query"),
        ("POST", "/clients/7/kick?text=bye", 400, "invalid_query"),
        ("POST", "/drain?dry_run", 400, "invalid_query"),
    ] {
        let (found, response) = exchange(admin.address(), &request(method, target, "", ""));
        assert_eq!((found, error_code(&response).as_str()), (status, code), "{method} {target}: {response}");
        assert_eq!(response.contains("\r\nallow: "), status == 405, "{response}");
    }
    let chunks = b"POST /drain HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(error_code(&exchange(admin.address(), chunks).1), "malformed_request");
    assert_eq!(error_code(&exchange(admin.address(), b"GET / HTTP/1.0\r\n\r\n").1), "wrong_host");
    assert!(!admin.is_draining(), "none of them drained the server");
}

#[test]
fn head_gets_the_head_of_get() {
    let admin = admin(None);
    for (path, method) in routes() {
        let (status, response) = exchange(admin.address(), &request("HEAD", &path, "", ""));
        let (expected, _) = if method == "GET" {
            exchange(admin.address(), &request("GET", &path, "Connection: close\r\n", ""))
        } else {
            (405, String::new())
        };
        assert_eq!(status, expected, "{path}: {response}");
        assert!(response.ends_with("\r\n\r\n"), "{path} has no body: {response}");
    }
}

#[test]
fn bytes_that_are_no_http_get_a_status_without_a_body() {
    let admin = admin(None);
    for bytes in [&b"\x16\x03\x01\0\0"[..], b"GET /\xff HTTP/1.1\r\n\r\n", b"\r\n x\r\n"] {
        let (status, response) = exchange(admin.address(), bytes);
        assert_eq!(status, 400, "{bytes:?}: {response}");
        assert!(response.ends_with("\r\n\r\n") && response.contains("content-length: 0\r\n"), "{response}");
    }
    // HTTP/2 with prior knowledge.
    assert_eq!(exchange(admin.address(), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").1, "");
}
