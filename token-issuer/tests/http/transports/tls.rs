//! TLS: versions, certificates that are replaced, and slow handshakes.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use slipgate_token_issuer::http::{HttpLimits, TlsError, TlsIdentity};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ALL_VERSIONS, ClientConnection};

use super::certificate::TestCertificate;
use super::service::{CarriedService, TestTransport, read_response, read_to_close};
use crate::common::{MAX_WAIT, agent};

fn start(header_timeout: Duration) -> CarriedService {
    CarriedService::start(TestTransport::Tls, HttpLimits { header_timeout, ..HttpLimits::default() })
}

#[test]
fn token_is_minted_over_both_versions_of_tls() {
    let service = start(MAX_WAIT);
    for version in [&TLS12, &TLS13] {
        let mut stream = service.connect_tls(service.certificate.client(&[version]));
        stream.write_all(&service.plain.raw_token_request()).unwrap();
        assert!(read_response(&mut stream).starts_with("HTTP/1.1 201 "));
        assert_eq!(stream.conn.protocol_version(), Some(version.version));
        assert_eq!(stream.conn.alpn_protocol(), Some(b"http/1.1".as_slice()));
    }
}

#[test]
fn agent_with_connections_of_its_own_is_served() {
    let service = start(MAX_WAIT);
    let certificate = ureq::tls::Certificate::from_pem(service.certificate.pem.as_bytes()).unwrap();
    let roots = ureq::tls::RootCerts::new_with_certs(&[certificate]);
    let tls = ureq::tls::TlsConfig::builder().root_certs(roots).build();
    let config = ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(MAX_WAIT)).proxy(None);
    let agent: ureq::Agent = config.build().into();
    let url = format!("https://localhost:{}/v1/tokens", service.address.unwrap().port());
    for _ in 0..5 {
        let request = agent.post(&url).header("Authorization", service.plain.bearer());
        assert_eq!(request.content_type("application/json").send(r#"{"client_id": 1}"#).unwrap().status(), 201);
    }
}

#[test]
fn new_certificate_serves_new_connections() {
    let service = start(MAX_WAIT);
    let mut old = service.connect_tls(service.certificate.client(ALL_VERSIONS));
    old.write_all(&service.plain.raw_token_request()).unwrap();
    read_response(&mut old);

    let next = TestCertificate::new();
    service.folder.write(&next.pem, &next.key_pem, 0o600);
    service.identity.reload().unwrap();
    let mut new = service.connect_tls(next.client(ALL_VERSIONS));
    new.write_all(&service.plain.raw_token_request()).unwrap();
    assert!(read_response(&mut new).starts_with("HTTP/1.1 201 "));
    let mut refused = service.connect_tls(service.certificate.client(ALL_VERSIONS));
    assert!(refused.write_all(b"G").is_err(), "the client does not know the new certificate");
    old.write_all(&service.plain.raw_token_request()).unwrap();
    assert!(read_response(&mut old).starts_with("HTTP/1.1 201 "), "an open connection stays");
}

#[test]
fn wrong_files_keep_the_present_certificate() {
    let service = start(MAX_WAIT);
    let other = TestCertificate::new();
    let own = &service.certificate;
    type Check = fn(&TlsError) -> bool;
    let cases: [(&str, &str, u32, Check); 6] = [
        (&own.pem, &other.key_pem, 0o600, |error| matches!(error, TlsError::Refused(_))),
        ("", &own.key_pem, 0o600, |error| matches!(error, TlsError::NoCertificate(_))),
        ("-----BEGIN CERTIFICATE-----\n%\n", &own.key_pem, 0o600, |error| matches!(error, TlsError::NoCertificate(_))),
        (&own.pem, "", 0o600, |error| matches!(error, TlsError::NoKey(_))),
        (&own.pem, &own.pem, 0o600, |error| matches!(error, TlsError::NoKey(_))),
        (&own.pem, &own.key_pem, 0o640, |error| matches!(error, TlsError::KeyFile(_))),
    ];
    for (certificates, key, mode, is_expected) in cases {
        service.folder.write(certificates, key, mode);
        let error = service.identity.reload().unwrap_err();
        assert!(is_expected(&error), "{error}");
        assert!(!error.to_string().contains("BEGIN"), "{error}");
        let mut stream = service.connect_tls(own.client(ALL_VERSIONS));
        stream.write_all(&service.plain.raw_token_request()).unwrap();
        assert!(read_response(&mut stream).starts_with("HTTP/1.1 201 "));
    }
    let missing = TlsIdentity::read("/nonexistent/certificates", service.folder.key()).unwrap_err();
    assert!(matches!(missing, TlsError::Unreadable(..)));
}

#[test]
fn slow_handshake_is_cut_off() {
    let service = start(Duration::from_secs(1));
    let config = service.certificate.client(ALL_VERSIONS);
    let mut hello = Vec::new();
    ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap().write_tls(&mut hello).unwrap();
    // Nothing, one byte, a part of the first message, and all of it without the end of the handshake.
    for count in [0, 1, hello.len() / 2, hello.len()] {
        let mut stream = service.connect_tcp();
        stream.write_all(&hello[..count]).unwrap();
        let start = Instant::now();
        read_to_close(&mut stream);
        assert!(start.elapsed() < MAX_WAIT / 2, "{count} bytes");
    }
}

#[test]
fn bytes_that_are_no_tls_get_no_response_of_http() {
    let service = start(MAX_WAIT);
    let junk: [&[u8]; 4] = [b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n", &[0; 600], &[22, 3, 1, 255, 255], &[255; 5]];
    for junk in junk {
        let mut stream = service.connect_tcp();
        stream.write_all(junk).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!read_to_close(&mut stream).contains("HTTP"));
    }
    // The service goes on.
    let mut stream = service.connect_tls(service.certificate.client(ALL_VERSIONS));
    stream.write_all(&service.plain.raw_token_request()).unwrap();
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 201 "));
}

#[test]
fn stranger_with_a_handshake_does_not_block_others() {
    let service = start(MAX_WAIT);
    let mut waiting: Vec<_> = (0..20).map(|_| service.connect_tcp()).collect();
    for stream in &mut waiting {
        // The beginning of a message that does not follow.
        stream.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
    }
    let start = Instant::now();
    let mut stream = service.connect_tls(service.certificate.client(ALL_VERSIONS));
    stream.write_all(&service.plain.raw_token_request()).unwrap();
    assert!(read_response(&mut stream).starts_with("HTTP/1.1 201 "));
    assert!(start.elapsed() < MAX_WAIT / 4, "{:?}", start.elapsed());
    assert!(waiting[0].set_nonblocking(true).is_ok() && waiting[0].read(&mut [0]).is_err(), "they still wait");
}

#[test]
fn failed_handshakes_are_counted() {
    let service = start(MAX_WAIT);
    // No TLS, and a client that does not trust the certificate.
    let mut plain = service.connect_tcp();
    plain.write_all(&service.plain.raw_token_request()).unwrap();
    assert!(!read_to_close(&mut plain).contains("HTTP/1.1"));
    let mut distrustful = service.connect_tls(TestCertificate::new().client(ALL_VERSIONS));
    distrustful.write_all(b"G").unwrap_err();
    let start = Instant::now();
    loop {
        let request = agent().get(service.plain.url("/metrics")).header("Authorization", service.plain.bearer());
        let text = request.call().unwrap().body_mut().read_to_string().unwrap();
        let row = "slipgate_issuer_requests_total{outcome=\"tls_failed\",key=\"\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(row)).unwrap_or("0");
        if count == "2" {
            break;
        }
        assert!(start.elapsed() < MAX_WAIT, "{count} of 2");
        std::thread::sleep(Duration::from_millis(50));
    }
}
