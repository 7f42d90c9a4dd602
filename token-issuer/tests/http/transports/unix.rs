//! Unix sockets: limits by the user of the peer, and curl as a client.

use std::io::Write as _;
use std::process::Command;

use slipgate_token_issuer::http::HttpLimits;

use super::service::{CarriedService, TestTransport, read_response};

fn start() -> CarriedService {
    CarriedService::start(TestTransport::Unix, HttpLimits::default())
}

#[test]
fn wrong_keys_of_one_user_get_status_429_and_valid_ones_pass() {
    let service = start();
    let statuses: Vec<String> = (0..33)
        .map(|_| {
            let mut stream = service.connect();
            stream.write_all(b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").unwrap();
            read_response(&mut *stream)[9..12].to_owned()
        })
        .collect();
    assert!(statuses[..30].iter().all(|status| status == "401"), "{statuses:?}");
    assert!(statuses[31..].iter().any(|status| status == "429"), "{statuses:?}");
    let mut stream = service.connect();
    stream.write_all(&service.plain.raw_token_request()).unwrap();
    assert!(read_response(&mut *stream).starts_with("HTTP/1.1 201 "));
}

#[test]
fn curl_gets_a_token_over_the_socket() {
    let service = start();
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "20", "--unix-socket"]).arg(service.folder.socket());
    curl.args(["http://issuer/v1/tokens", "--json", r#"{"client_id": 7}"#]);
    curl.arg("--header").arg(format!("Authorization: {}", service.plain.bearer()));
    let Ok(output) = curl.output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: curl is not installed, so it is not tested");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(r#""client_id":"7""#), "{text}");
}
