//! Slow, endless, invalid and numerous requests: raw bytes over loopback.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{MAX_WAIT, SERVERS, Service, agent, read_to_close};
use slipgate_token_issuer::callers::Scopes;
use slipgate_token_issuer::http::HttpLimits;
use slipgate_token_issuer::registry::{
    Heartbeat, Registry, RegistryError, RegistryFuture, RegistryName, ReservedServer, ServerInstance, ServerStatus,
    SlotRequest,
};

/// Returns limits so short that a test can wait for them.
fn short_limits() -> HttpLimits {
    HttpLimits {
        header_timeout: Duration::from_secs(3),
        request_timeout: Duration::from_secs(3),
        connection_age: Duration::from_secs(60),
        shutdown_timeout: Duration::from_millis(300),
        connections: 8,
        ..HttpLimits::default()
    }
}

fn head(service: &Service, more: &str) -> String {
    let bearer = service.bearer();
    let json = "Content-Type: application/json";
    format!("POST /v1/tokens HTTP/1.1\r\nHost: issuer\r\nAuthorization: {bearer}\r\n{json}\r\n{more}\r\n\r\n")
}

fn assert_response(response: &str, status: &str, code: &str) {
    assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    assert!(response.contains(&format!(r#""code":"{code}""#)), "{response}");
    let lower = response.to_lowercase();
    for header in ["cache-control: no-store\r\n", "x-content-type-options: nosniff\r\n"] {
        assert!(lower.contains(header), "{response}");
    }
}

#[test]
fn incomplete_head_is_cut_off() {
    let service = Service::start_with(short_limits(), &SERVERS);
    for head_start in ["", "POST", "POST /v1/tokens HTTP/1.1\r\nHost: issuer\r\nX-Slow: "] {
        let start = Instant::now();
        let response = service.raw(head_start.as_bytes());
        assert!(!response.contains("201"), "{response}");
        assert!(start.elapsed() < MAX_WAIT / 2);
    }
}

#[test]
fn connections_without_a_complete_request_are_counted() {
    let service = Service::start_with(short_limits(), &SERVERS);
    assert!(service.raw(b"no HTTP at all\r\n\r\n").starts_with("HTTP/1.1 400 "));
    let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(17 * 1024));
    assert!(service.raw(long.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert_eq!(service.raw(b"GET / HTTP/1.1\r\nHost: "), "");
    assert_eq!(service.raw(b""), "");
    // A backend's connection may wait for its next request, and a client may leave.
    let mut idle = service.connect();
    idle.write_all(&service.raw_token_request()).unwrap();
    assert!(read_to_close(&mut idle).starts_with("HTTP/1.1 201 "));
    drop(service.connect());
    let start = Instant::now();
    loop {
        let mut response =
            agent().get(service.url("/metrics")).header("Authorization", service.bearer()).call().unwrap();
        let text = response.body_mut().read_to_string().unwrap();
        let count = |outcome: &str| {
            let row = format!("slipgate_issuer_requests_total{{outcome=\"{outcome}\",key=\"\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&row)?.parse::<u32>().ok()).unwrap_or(0)
        };
        let counts = ["malformed_head", "head_too_large", "head_timeout"].map(count);
        if counts == [1, 1, 2] {
            break;
        }
        assert!(counts[2] <= 2 && start.elapsed() < MAX_WAIT, "{counts:?}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn slowly_sent_head_is_cut_off() {
    let service = Service::start_with(short_limits(), &SERVERS);
    let mut stream = service.connect();
    let start = Instant::now();
    // The gap between two bytes is well within the limit; the sum exceeds it.
    while stream.write_all(b"P").is_ok() {
        thread::sleep(Duration::from_millis(50));
        assert!(start.elapsed() < MAX_WAIT, "still open");
    }
}

#[test]
fn incomplete_body_gets_a_time_out_response() {
    let service = Service::start_with(short_limits(), &SERVERS);
    let response = service.raw(format!("{}{{\"client", head(&service, "Content-Length: 16")).as_bytes());
    assert_response(&response, "408", "request_timeout");
    assert!(response.to_lowercase().contains("connection: close\r\n"), "{response}");
}

#[test]
fn idle_connection_is_closed() {
    let service = Service::start_with(short_limits(), &SERVERS);
    let response = service.raw(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\n\r\n");
    assert!(response.ends_with(r#"{"status":"ok"}"#), "{response}");
}

#[test]
fn aged_connection_is_closed_between_requests() {
    let connection_age = Duration::from_secs(2);
    let limits = HttpLimits { connection_age, header_timeout: 2 * MAX_WAIT, ..HttpLimits::default() };
    let service = Service::start_with(limits, &SERVERS);
    let start = Instant::now();
    let response = service.raw(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\n\r\n");
    assert!(response.ends_with(r#"{"status":"ok"}"#), "{response}");
    assert!(start.elapsed() < MAX_WAIT, "closed because of its age, not because it was idle");
}

#[test]
fn long_body_is_drained_so_that_the_response_arrives() {
    let service = Service::start();
    for length in [4097, 65_536] {
        let mut stream = service.connect();
        stream.write_all(head(&service, &format!("Content-Length: {length}")).as_bytes()).unwrap();
        stream.write_all(&vec![b' '; length]).unwrap();
        // The connection accepts another request, because the whole body was read.
        stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\nConnection: close\r\n\r\n").unwrap();
        let response = read_to_close(&mut stream);
        assert_response(&response, "413", "body_too_large");
        assert!(response.ends_with(r#"{"status":"ok"}"#), "{response}");
    }
}

#[test]
fn announced_huge_body_is_refused_unread() {
    let service = Service::start();
    let response = service.raw(head(&service, "Content-Length: 1000000000").as_bytes());
    assert_response(&response, "413", "body_too_large");
    assert!(response.to_lowercase().contains("connection: close\r\n"), "{response}");
}

#[test]
fn huge_chunked_body_is_refused_after_the_drain() {
    let service = Service::start();
    let mut stream = service.connect();
    stream.write_all(head(&service, "Transfer-Encoding: chunked").as_bytes()).unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    // 64 KiB and one byte. More would arrive after the close and reset the connection before the response is read.
    for _ in 0..16 {
        stream.write_all(chunk.as_bytes()).unwrap();
    }
    stream.write_all(b"1\r\nx").unwrap();
    assert_response(&read_to_close(&mut stream), "413", "body_too_large");
}

#[test]
fn small_chunked_body_is_accepted() {
    let service = Service::start();
    let head = head(&service, "Connection: close\r\nTransfer-Encoding: chunked");
    let response = service.raw(format!("{head}8\r\n{{\"client\r\n8\r\n_id\": 1}}\r\n0\r\n\r\n").as_bytes());
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
}

#[test]
fn invalid_chunks_are_refused() {
    let service = Service::start();
    let response = service.raw(format!("{}nonsense\r\n", head(&service, "Transfer-Encoding: chunked")).as_bytes());
    assert_response(&response, "400", "malformed_body");
}

#[test]
fn invalid_http_closes_only_its_own_connection() {
    let service = Service::start();
    let long = format!("GET /v1/health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    for junk in ["\0\u{1}\u{2}\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &long] {
        let mut stream = service.connect();
        // The service may close before it has read all bytes.
        let _ = stream.write_all(junk.as_bytes());
        let response = read_to_close(&mut stream);
        assert!(!response.starts_with("HTTP/1.1 2"), "{response}");
    }
    assert_eq!(agent().get(service.url("/v1/health")).call().unwrap().status(), 200);
}

#[test]
fn head_is_limited_to_16_kib() {
    let service = Service::start();
    let request_head = |length: usize| {
        let head =
            format!("GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: {}\r\n\r\n", "x".repeat(length));
        service.raw(head.as_bytes())
    };
    assert!(request_head(15_000).starts_with("HTTP/1.1 200 "));
    let response = request_head(17_000);
    // The reset caused by the unread rest may overtake the response on some systems.
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431 "), "{response}");
}

#[test]
fn service_stops_with_open_connections() {
    let service = Service::start_with(
        HttpLimits { header_timeout: MAX_WAIT, request_timeout: MAX_WAIT, ..short_limits() },
        &SERVERS,
    );
    let address = service.running.address();
    let idle = service.connect();
    let mut used = service.connect();
    used.write_all(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\n\r\n").unwrap();
    assert_ne!(used.read(&mut [0; 1024]).unwrap(), 0);
    let mut stuck = service.connect();
    stuck.write_all(head(&service, "Content-Length: 16").as_bytes()).unwrap();
    let start = Instant::now();
    drop(service);
    assert!(start.elapsed() < MAX_WAIT / 2);
    drop((idle, stuck));
    assert!(TcpListener::bind(address).is_ok(), "the port is free again");
}

#[test]
fn open_request_is_finished_when_the_service_stops() {
    let service = Service::start_with(HttpLimits { shutdown_timeout: MAX_WAIT, ..HttpLimits::default() }, &SERVERS);
    let mut stream = service.connect();
    stream.write_all(head(&service, "Expect: 100-continue\r\nContent-Length: 16").as_bytes()).unwrap();
    // This interim response shows that the service is processing the request.
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    let stopping = thread::spawn(move || drop(service));
    thread::sleep(Duration::from_millis(300));
    stream.write_all(br#"{"client_id": 1}"#).unwrap();
    let response = read_to_close(&mut stream);
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    stopping.join().unwrap();
}

/// A store that never responds, and counts the turns of the runtime that it waits for.
#[derive(Default)]
struct EndlessStore(AtomicU64);

impl EndlessStore {
    fn wait<T>(&self) -> RegistryFuture<'_, T> {
        Box::pin(async {
            loop {
                self.0.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        })
    }

    /// Waits until the service has had many turns.
    fn await_turns(&self) {
        let (end, begin) = (self.0.load(Ordering::Relaxed) + 1000, Instant::now());
        while self.0.load(Ordering::Relaxed) < end {
            assert!(begin.elapsed() < MAX_WAIT, "the store is not asked");
            thread::yield_now();
        }
    }
}

impl Registry for EndlessStore {
    fn register<'a>(&'a self, _: Heartbeat, _: &'a Scopes) -> RegistryFuture<'a, ()> {
        self.wait()
    }

    fn remove<'a>(&'a self, _: RegistryName, _: Option<ServerInstance>, _: &'a Scopes) -> RegistryFuture<'a, bool> {
        self.wait()
    }

    fn servers(&self) -> RegistryFuture<'_, Vec<ServerStatus>> {
        self.wait()
    }

    fn reserve(&self, _: SlotRequest) -> RegistryFuture<'_, Vec<ReservedServer>> {
        self.wait()
    }

    fn check(&self) -> Result<(), RegistryError> {
        Ok(())
    }
}

#[test]
fn service_stops_while_a_connection_waits_for_room() {
    let limits = HttpLimits { connections: 1, request_timeout: 2 * MAX_WAIT, ..short_limits() };
    let store = Arc::new(EndlessStore::default());
    let registry = Arc::clone(&store);
    let service = Service::start_changed(limits, &SERVERS, |service| service.with_registry(registry));
    let mut answering = service.connect();
    let bearer = service.bearer();
    write!(answering, "GET /v1/servers HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\n\r\n").unwrap();
    store.await_turns();
    let _waiting = service.connect();
    // The service accepts the connection meanwhile.
    store.await_turns();
    let stopped = Instant::now();
    drop(service);
    assert!(stopped.elapsed() < MAX_WAIT, "it waited for the request, which lasts for a minute");
}

/// Returns the lines of a head without the date, and the bytes behind it.
fn head_and_body(response: &str) -> (Vec<&str>, &str) {
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split("\r\n").filter(|line| !line.starts_with("date: ")).collect(), body)
}

/// The specifications promise these bytes: see "Errors below the API".
#[test]
fn parser_refuses_a_head_without_body_and_request_id() {
    let service = Service::start_with(short_limits(), &SERVERS);
    let refused = |bytes: &str, status: &str| {
        let response = service.raw(bytes.as_bytes());
        let (head, body) = head_and_body(&response);
        let status = format!("HTTP/1.1 {status}");
        assert_eq!(head, [status.as_str(), "connection: close", "content-length: 0"], "{bytes:.80}");
        assert_eq!(body, "", "{bytes:.80}");
    };
    let with = |lines: &str| format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n{lines}\r\n");
    for malformed in [
        "no HTTP at all\r\n\r\n",
        "GET / HTTP/3.0\r\nHost: x\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        &with("no header\r\n"),
        &with("Content-Length: x\r\n"),
        &with("Content-Length: 1\r\nContent-Length: 2\r\n"),
        &with("Transfer-Encoding: gzip\r\n"),
    ] {
        refused(malformed, "400 Bad Request");
    }
    let long = "x".repeat(17 * 1024);
    for too_large in [
        with(&format!("X-Long: {long}\r\n")),
        format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"),
        with(&"X: y\r\n".repeat(99)),
    ] {
        refused(&too_large, "431 Request Header Fields Too Large");
    }
    assert!(service.raw(with(&"X: y\r\n".repeat(98)).as_bytes()).starts_with("HTTP/1.1 200 "), "100 fields");
    assert_eq!(service.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "", "the preface of HTTP/2");
}

#[test]
fn host_of_the_target_counts_before_that_of_the_header() {
    let names = vec!["tokens.example".to_owned()];
    let service = Service::start_changed(short_limits(), &SERVERS, |service| service.with_hosts(names));
    let (bearer, body) = (service.bearer(), r#"{"client_id": 1}"#);
    let send = |target: &str, hosts: &str| {
        let json = "Content-Type: application/json\r\nContent-Length: 16\r\nConnection: close\r\n";
        let head = format!("POST {target} HTTP/1.1\r\n{hosts}Authorization: {bearer}\r\n{json}\r\n");
        service.raw(format!("{head}{body}").as_bytes())
    };
    for (target, hosts) in [
        ("/v1/tokens", "Host: tokens.example:8080\r\n"),
        ("http://tokens.example/v1/tokens", "Host: tokens.example\r\n"),
        ("http://tokens.example:80/v1/tokens", "Host: other\r\n"),
    ] {
        assert!(send(target, hosts).starts_with("HTTP/1.1 201 "), "{target} {hosts}");
    }
    for (target, hosts) in [
        ("/v1/tokens", "Host: other\r\n"),
        ("http://other/v1/tokens", "Host: tokens.example\r\n"),
        ("http://tokens.example@other/v1/tokens", "Host: tokens.example\r\n"),
        ("http://tokens.example/v1/tokens", ""),
        ("http://tokens.example/v1/tokens", "Host: tokens.example\r\nHost: other\r\n"),
    ] {
        assert_response(&send(target, hosts), "421", "wrong_host");
    }
    let probe = service.raw(b"GET http://192.0.2.1/healthz HTTP/1.1\r\nHost: tokens.example\r\n\r\n");
    assert!(probe.starts_with("HTTP/1.1 200 "), "{probe}");
}
