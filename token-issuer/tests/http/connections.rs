//! Which connections stay open, and which are closed for others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{MAX_WAIT, SERVERS, Service, agent, read_response, read_to_close};
use slipgate_token_issuer::http::HttpLimits;

const HEALTH: &[u8] = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n";

/// Returns a service with few connections, and with timeouts longer than these tests.
fn crowded(connections: usize, connections_per_address: usize) -> Service {
    let limits = HttpLimits {
        connections,
        connections_per_address,
        header_timeout: 2 * MAX_WAIT,
        write_timeout: 2 * MAX_WAIT,
        linger_timeout: 2 * MAX_WAIT,
        ..HttpLimits::default()
    };
    Service::start_with(limits, &SERVERS)
}

/// Opens a connection and requests a token on it.
fn authenticated(service: &Service) -> TcpStream {
    let mut stream = service.connect();
    stream.write_all(&service.raw_token_request()).unwrap();
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 201 "));
    stream
}

/// Waits until these connections are served, then returns which are open for the next 0.1 s.
fn open(service: &Service, streams: &mut [TcpStream]) -> Vec<bool> {
    // The service accepts in order: after this response it has accepted all of them.
    assert_eq!(agent().get(service.url("/v1/health")).call().unwrap().status(), 200);
    let is_open = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let read = std::iter::repeat_with(|| stream.read(&mut [0]))
            .find(|read| read.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Interrupted))
            .unwrap();
        stream.set_read_timeout(Some(MAX_WAIT)).unwrap();
        read.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    };
    streams.iter_mut().map(is_open).collect()
}

/// Waits until these connections are served, and a condition holds for those that are still open. The service closes a
/// connection a little later than it decides so.
#[track_caller]
fn until_open(service: &Service, streams: &mut [TcpStream], holds: impl Fn(&[bool]) -> bool) {
    let start = Instant::now();
    loop {
        let open = open(service, streams);
        if holds(&open) {
            return;
        }
        assert!(start.elapsed() < MAX_WAIT, "{open:?}");
    }
}

#[test]
fn longest_idle_connection_gives_way() {
    let service = crowded(8, 8);
    let start = Instant::now();
    let mut idle: Vec<TcpStream> = (0..24).map(|_| service.connect()).collect();
    assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    assert!(start.elapsed() < MAX_WAIT, "it did not wait for a timeout");
    until_open(&service, &mut idle, |open| {
        assert!(open[20..].iter().all(|is_open| *is_open), "{open:?}");
        open[..16].iter().all(|is_open| !is_open)
    });
}

#[test]
fn idle_connections_with_a_key_do_not_lock_others_out() {
    let service = crowded(8, 8);
    let start = Instant::now();
    let mut idle: Vec<TcpStream> = (0..8).map(|_| authenticated(&service)).collect();
    assert_eq!(service.request_token(r#"{"client_id": 1}"#).status, 201);
    assert!(start.elapsed() < MAX_WAIT);
    // One gave way to the token. A second one does if the service sees the next request before the end of that one's
    // connection.
    until_open(&service, &mut idle, |open| {
        let left = open.iter().filter(|is_open| **is_open).count();
        assert!(left >= 6, "{open:?}");
        left <= 7
    });
}

#[test]
fn authenticated_connections_stay_when_strangers_fill_the_rest() {
    let service = crowded(8, 8);
    let mut backends: Vec<TcpStream> = (0..4).map(|_| authenticated(&service)).collect();
    let strangers: Vec<TcpStream> = (0..50).map(|_| service.connect()).collect();
    assert_eq!(open(&service, &mut backends), [true; 4]);
    drop(strangers);
    for backend in &mut backends {
        backend.write_all(&service.raw_token_request()).unwrap();
        assert!(read_response(backend).starts_with("HTTP/1.1 201 "));
    }
}

#[test]
fn one_address_has_a_limit_that_authenticated_ones_pass() {
    let service = crowded(100, 4);
    let mut backends: Vec<TcpStream> = (0..10).map(|_| authenticated(&service)).collect();
    let mut strangers: Vec<TcpStream> = (0..12).map(|_| service.connect()).collect();
    assert_eq!(open(&service, &mut backends), [true; 10]);
    until_open(&service, &mut strangers, |open| {
        assert!(open[11], "{open:?}");
        // A place went to the health check.
        open.iter().filter(|is_open| **is_open).count() <= 3 && open[..8].iter().all(|is_open| !is_open)
    });
}

#[test]
fn unauthenticated_connection_gets_one_request() {
    let service = crowded(8, 8);
    let start = Instant::now();
    let mut stream = service.connect();
    stream.write_all(HEALTH).unwrap();
    let response = read_to_close(&mut stream);
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("connection: close\r\n"), "{response}");
    assert!(start.elapsed() < MAX_WAIT, "not closed by the idle timeout");
    let refused = service.raw(b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 401 ") && refused.contains("connection: close\r\n"), "{refused}");
}

#[test]
fn authenticated_connection_is_kept_alive() {
    let service = Service::start();
    let mut stream = authenticated(&service);
    for _ in 0..5 {
        stream.write_all(HEALTH).unwrap();
        let response = read_response(&mut stream);
        assert!(response.starts_with("HTTP/1.1 200 ") && !response.contains("connection: close"), "{response}");
    }
}

#[test]
fn pipelining_closes_the_connection_after_the_second_response() {
    let service = Service::start();
    let mut stream = service.connect();
    stream.write_all(&service.raw_token_request().repeat(50)).unwrap();
    let responses = read_to_close(&mut stream);
    assert_eq!(responses.matches("HTTP/1.1 201 ").count(), 2);
    assert_eq!(responses.matches("connection: close\r\n").count(), 1);
}

#[test]
fn late_bytes_do_not_reset_a_connection_with_a_response() {
    let service = crowded(8, 8);
    let mut stream = service.connect();
    stream.write_all(HEALTH).unwrap();
    let response = read_response(&mut stream);
    assert!(response.contains("connection: close"), "{response}");
    for _ in 0..3 {
        stream.write_all(HEALTH).unwrap();
        // Time for a reset to arrive.
        thread::sleep(Duration::from_millis(20));
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "the end, not a reset");
}
