//! Clients that are slow, endless, broken or many: raw bytes over loopback.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, SERVERS, Service, agent, read_to_close};
use slipgate_token_issuer::http::HttpLimits;

/// Limits so short that a test can wait for them.
fn impatient() -> HttpLimits {
    HttpLimits {
        header_timeout: Duration::from_secs(1),
        request_timeout: Duration::from_secs(1),
        connection_age: Duration::from_secs(60),
        shutdown_timeout: Duration::from_millis(300),
        connections: 8,
    }
}

fn head(service: &Service, more: &str) -> String {
    let bearer = service.bearer();
    let json = "Content-Type: application/json";
    format!("POST /v1/tokens HTTP/1.1\r\nHost: issuer\r\nAuthorization: {bearer}\r\n{json}\r\n{more}\r\n\r\n")
}

fn assert_answer(answer: &str, status: &str, code: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains(&format!(r#""code":"{code}""#)), "{answer}");
    let lower = answer.to_lowercase();
    for header in ["cache-control: no-store\r\n", "x-content-type-options: nosniff\r\n"] {
        assert!(lower.contains(header), "{answer}");
    }
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    let service = Service::start_with(impatient(), &SERVERS);
    for start in ["", "POST", "POST /v1/tokens HTTP/1.1\r\nHost: issuer\r\nX-Slow: "] {
        let begun = Instant::now();
        let answer = service.raw(start.as_bytes());
        assert!(!answer.contains("201"), "{answer}");
        assert!(begun.elapsed() < PATIENCE / 2);
    }
}

#[test]
fn a_head_that_drips_is_cut_off_all_the_same() {
    let service = Service::start_with(impatient(), &SERVERS);
    let mut stream = service.connect();
    let begun = Instant::now();
    // Each byte comes well inside the limit; together they exceed it.
    while stream.write_all(b"P").is_ok() {
        thread::sleep(Duration::from_millis(50));
        assert!(begun.elapsed() < PATIENCE, "still open");
    }
}

#[test]
fn a_body_that_never_ends_is_answered_with_a_time_out() {
    let service = Service::start_with(impatient(), &SERVERS);
    let answer = service.raw(format!("{}{{\"client", head(&service, "Content-Length: 16")).as_bytes());
    assert_answer(&answer, "408", "request_timeout");
    assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
}

#[test]
fn an_idle_connection_is_closed() {
    let service = Service::start_with(impatient(), &SERVERS);
    let answer = service.raw(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\n\r\n");
    assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
}

#[test]
fn an_aged_connection_is_closed_between_requests() {
    let limits = HttpLimits { connection_age: Duration::from_millis(300), ..HttpLimits::default() };
    let service = Service::start_with(limits, &SERVERS);
    let begun = Instant::now();
    let answer = service.raw(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\n\r\n");
    assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    assert!(begun.elapsed() < limits.header_timeout, "its age closed it, not its idling");
}

#[test]
fn a_long_body_is_drained_so_that_the_refusal_arrives() {
    let service = Service::start();
    for length in [4097, 65_536] {
        let mut stream = service.connect();
        stream.write_all(head(&service, &format!("Content-Length: {length}")).as_bytes()).unwrap();
        stream.write_all(&vec![b' '; length]).unwrap();
        // The connection is still good for another request: all of the body was read.
        stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\nConnection: close\r\n\r\n").unwrap();
        let answer = read_to_close(&mut stream);
        assert_answer(&answer, "413", "body_too_large");
        assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    }
}

#[test]
fn an_announced_giant_is_refused_unread() {
    let service = Service::start();
    let answer = service.raw(head(&service, "Content-Length: 1000000000").as_bytes());
    assert_answer(&answer, "413", "body_too_large");
    assert!(answer.to_lowercase().contains("connection: close\r\n"), "{answer}");
}

#[test]
fn a_giant_in_chunks_is_refused_after_the_drain() {
    let service = Service::start();
    let mut stream = service.connect();
    stream.write_all(head(&service, "Transfer-Encoding: chunked").as_bytes()).unwrap();
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    // 64 KiB and one byte. More would still be under way when the connection is closed, and reset it.
    for _ in 0..16 {
        stream.write_all(chunk.as_bytes()).unwrap();
    }
    stream.write_all(b"1\r\nx").unwrap();
    assert_answer(&read_to_close(&mut stream), "413", "body_too_large");
}

#[test]
fn a_small_body_in_chunks_is_read() {
    let service = Service::start();
    let head = head(&service, "Connection: close\r\nTransfer-Encoding: chunked");
    let answer = service.raw(format!("{head}8\r\n{{\"client\r\n8\r\n_id\": 1}}\r\n0\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
}

#[test]
fn broken_chunks_are_refused() {
    let service = Service::start();
    let answer = service.raw(format!("{}nonsense\r\n", head(&service, "Transfer-Encoding: chunked")).as_bytes());
    assert_answer(&answer, "400", "malformed_body");
}

#[test]
fn what_is_not_http_is_closed_and_the_next_is_served() {
    let service = Service::start();
    let long = format!("GET /v1/health HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(70_000));
    for junk in ["\0\u{1}\u{2}\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &long] {
        let mut stream = service.connect();
        // The service may close before it has taken all.
        let _ = stream.write_all(junk.as_bytes());
        let answer = read_to_close(&mut stream);
        assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    }
    assert_eq!(agent().get(service.url("/v1/health")).call().unwrap().status(), 200);
}

#[test]
fn a_head_ends_at_16_kib() {
    let service = Service::start();
    let ask = |length: usize| {
        let head = format!("GET /v1/health HTTP/1.1\r\nConnection: close\r\nX: {}\r\n\r\n", "x".repeat(length));
        service.raw(head.as_bytes())
    };
    assert!(ask(15_000).starts_with("HTTP/1.1 200 "));
    let answer = ask(17_000);
    // On some systems the reset of what was not read overtakes the answer.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[test]
fn connections_beyond_the_limit_wait_for_their_turn() {
    let service = Service::start_with(impatient(), &SERVERS);
    let idlers: Vec<TcpStream> = (0..8).map(|_| service.connect()).collect();
    // All seats are taken until the idlers' header time-out.
    assert_eq!(agent().get(service.url("/v1/health")).call().unwrap().status(), 200);
    drop(idlers);
}

#[test]
fn the_service_stops_though_connections_are_open() {
    let service = Service::start_with(
        HttpLimits { header_timeout: PATIENCE, request_timeout: PATIENCE, ..impatient() },
        &SERVERS,
    );
    let address = service.running.address();
    let idle = service.connect();
    let mut used = service.connect();
    used.write_all(b"GET /v1/health HTTP/1.1\r\nHost: issuer\r\n\r\n").unwrap();
    assert_ne!(used.read(&mut [0; 1024]).unwrap(), 0);
    let mut stuck = service.connect();
    stuck.write_all(head(&service, "Content-Length: 16").as_bytes()).unwrap();
    let begun = Instant::now();
    drop(service);
    assert!(begun.elapsed() < PATIENCE / 2);
    drop((idle, stuck));
    assert!(TcpListener::bind(address).is_ok(), "the port is free again");
}

#[test]
fn a_request_under_way_is_answered_when_the_service_stops() {
    let service = Service::start_with(HttpLimits { shutdown_timeout: PATIENCE, ..HttpLimits::default() }, &SERVERS);
    let mut stream = service.connect();
    stream.write_all(head(&service, "Expect: 100-continue\r\nContent-Length: 16").as_bytes()).unwrap();
    // From this answer on the request is under way.
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).unwrap();
    assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    let stopping = thread::spawn(move || drop(service));
    thread::sleep(Duration::from_millis(300));
    stream.write_all(br#"{"client_id": 1}"#).unwrap();
    let answer = read_to_close(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    stopping.join().unwrap();
}
