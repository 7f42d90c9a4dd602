//! The time limits and the rules for connections hold on TLS and on Unix sockets as on TCP.

use std::thread;
use std::time::{Duration, Instant};

use slipgate_token_issuer::http::HttpLimits;

use super::service::{CarriedService, TestTransport, read_response, read_to_close};
use crate::common::MAX_WAIT;

const BOTH: [TestTransport; 2] = [TestTransport::Tls, TestTransport::Unix];
const HEALTH: &[u8] = b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n";

/// Returns limits so short that a test can wait for them.
fn short_limits() -> HttpLimits {
    HttpLimits {
        header_timeout: Duration::from_secs(3),
        request_timeout: Duration::from_secs(3),
        shutdown_timeout: Duration::from_millis(300),
        ..HttpLimits::default()
    }
}

#[test]
fn backend_keeps_its_connection_on_each_transport() {
    for transport in BOTH {
        let service = CarriedService::start(transport, HttpLimits::default());
        let mut stream = service.connect();
        for _ in 0..3 {
            stream.write_all(&service.plain.raw_token_request()).unwrap();
            let response = read_response(&mut *stream);
            assert!(response.starts_with("HTTP/1.1 201 ") && !response.contains("connection: close"), "{response}");
        }
    }
}

#[test]
fn stranger_gets_one_request_on_each_transport() {
    for transport in BOTH {
        let service = CarriedService::start(transport, HttpLimits::default());
        let mut stream = service.connect();
        stream.write_all(HEALTH).unwrap();
        let response = read_response(&mut *stream);
        assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("connection: close\r\n"), "{response}");
        // The end is a proper one, with the alert of TLS: nothing was cut off.
        let mut rest = Vec::new();
        stream.finish();
        assert_eq!(stream.read_to_end(&mut rest).unwrap(), 0, "{transport:?}");
    }
}

#[test]
fn slowly_sent_head_is_cut_off_on_each_transport() {
    for transport in BOTH {
        let service = CarriedService::start(transport, short_limits());
        let mut stream = service.connect();
        let start = Instant::now();
        while stream.write_all(b"P").and_then(|()| stream.flush()).is_ok() {
            thread::sleep(Duration::from_millis(50));
            assert!(start.elapsed() < MAX_WAIT, "{transport:?}: still open");
        }
    }
}

#[test]
fn incomplete_body_gets_status_408_on_each_transport() {
    for transport in BOTH {
        let service = CarriedService::start(transport, short_limits());
        let mut stream = service.connect();
        let request = service.plain.raw_token_request();
        stream.write_all(&request[..request.len() - 3]).unwrap();
        let response = read_to_close(&mut stream);
        assert!(response.starts_with("HTTP/1.1 408 ") && response.contains("request_timeout"), "{response}");
    }
}

#[test]
fn idle_connection_is_closed_on_each_transport() {
    for transport in BOTH {
        let service = CarriedService::start(transport, short_limits());
        let mut stream = service.connect();
        stream.write_all(&service.plain.raw_token_request()).unwrap();
        read_response(&mut *stream);
        let start = Instant::now();
        read_to_close(&mut stream);
        assert!(start.elapsed() < MAX_WAIT / 2, "{transport:?}");
    }
}

#[test]
fn pipelining_closes_the_connection_on_each_transport() {
    for transport in BOTH {
        let service = CarriedService::start(transport, HttpLimits::default());
        let mut stream = service.connect();
        stream.write_all(&service.plain.raw_token_request().repeat(20)).unwrap();
        let responses = read_to_close(&mut stream);
        assert_eq!(responses.matches("HTTP/1.1 201 ").count(), 2, "{transport:?}");
    }
}

#[test]
fn one_peer_has_few_connections_on_each_transport() {
    for transport in BOTH {
        let limits = HttpLimits { connections: 100, connections_per_address: 4, ..HttpLimits::default() };
        let service = CarriedService::start(transport, limits);
        let mut backend = service.connect();
        backend.write_all(&service.plain.raw_token_request()).unwrap();
        read_response(&mut *backend);
        // A handshake of TLS begins with the first byte.
        let mut strangers: Vec<_> = (0..12).map(|_| service.connect()).collect();
        let sent: Vec<_> = strangers.iter_mut().map(|stream| stream.write_all(b"G").is_ok()).collect();
        drop(sent);
        let start = Instant::now();
        for stream in &mut strangers[..8] {
            read_to_close(stream);
        }
        assert!(start.elapsed() < MAX_WAIT / 4, "{transport:?}: they gave way, before any timeout");
        backend.write_all(&service.plain.raw_token_request()).unwrap();
        assert!(read_response(&mut *backend).starts_with("HTTP/1.1 201 "), "{transport:?}");
    }
}

#[test]
fn service_stops_with_open_connections_on_each_transport() {
    for transport in BOTH {
        let limits = HttpLimits { header_timeout: MAX_WAIT, request_timeout: MAX_WAIT, ..short_limits() };
        let service = CarriedService::start(transport, limits);
        let idle = service.connect();
        let mut used = service.connect();
        used.write_all(&service.plain.raw_token_request()).unwrap();
        read_response(&mut *used);
        let start = Instant::now();
        drop(service);
        assert!(start.elapsed() < MAX_WAIT / 2, "{transport:?}");
        drop((idle, used));
    }
}
