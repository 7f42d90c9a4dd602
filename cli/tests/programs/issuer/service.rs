//! Minting, stop signals and the log.

use std::io::{BufRead, Read};
use std::time::Instant;

use serde_json::Value;

use super::program::{MAX_WAIT, Program, TestFolder, agent, request, request_token};

#[test]
fn issuer_mints_and_stops_on_sigterm_and_sigint_with_status_0() {
    let folder = TestFolder::new();
    for signal in ["-TERM", "-INT"] {
        let mut program = Program::start(folder.complete(&[]));
        let response = request_token(&program, &folder);
        assert_eq!(response.token().facts().protocol_id, 0x1234);
        program.signal(signal);
        let (code, log) = program.end();
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("minted a connect token") && log.contains("client_id=77"), "{log}");
        assert!(log.contains("stopped"), "{log}");
        folder.assert_no_secret(&log);
        folder.assert_no_secret(&program.first_line);
        assert!(!log.contains(&response.body["token"].as_str().unwrap()[1400..1440]), "{log}");
    }
}

#[test]
fn second_signal_aborts_open_requests() {
    use std::io::Write;
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    program.skip_lines_of_start();
    let address = program.url("").replace("http://", "");
    let mut stuck = std::net::TcpStream::connect(address).unwrap();
    stuck
        .write_all(b"POST /v1/tokens HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        .unwrap();
    stuck.read_exact(&mut [0; 25]).unwrap();
    program.signal("-TERM");
    let mut line = String::new();
    program.log.read_line(&mut line).unwrap();
    assert!(line.contains("stopping"), "{line}");
    program.signal("-TERM");
    let (code, log) = program.end();
    assert_eq!(code, Some(0));
    assert!(log.contains("stopped at once"), "{log}");
}

#[test]
fn shutdown_delay_serves_requests_while_not_ready() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&["--shutdown-delay", "1h"]));
    let ready = || {
        let mut response = agent().get(program.url("/readyz")).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    };
    assert_eq!(ready(), (200, r#"{"status":"ready"}"#.to_owned()));
    program.signal("-TERM");
    let start = Instant::now();
    while ready().0 == 200 {
        assert!(start.elapsed() < MAX_WAIT);
    }
    assert_eq!(ready(), (503, r#"{"status":"stopping"}"#.to_owned()));
    assert_eq!(request_token(&program, &folder).status, 201);
    // Its files are still read.
    program.signal("-HUP");
    let mut line = String::new();
    while !line.contains("the keys were read again") {
        line.clear();
        assert_ne!(program.log.read_line(&mut line).unwrap(), 0, "the log ended");
    }
    program.signal("-TERM");
    let (code, log) = program.end();
    assert_eq!((code, log.contains("stopped at once")), (Some(0), true), "{log}");

    let mut program = Program::start(folder.complete(&["--shutdown-delay", "500ms"]));
    program.signal("-TERM");
    let (code, log) = program.end();
    assert_eq!((code, log.contains("finishing open requests")), (Some(0), true), "{log}");
}

#[test]
fn json_log_has_one_object_per_line() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&["--log", "json"]));
    request_token(&program, &folder);
    program.signal("-TERM");
    let (_, log) = program.end();
    for line in [&program.first_line].into_iter().map(String::as_str).chain(log.lines()) {
        assert!(serde_json::from_str::<Value>(line).unwrap().is_object());
    }
    folder.assert_no_secret(&log);
}

/// JavaScript and jq round numbers above 2^53.
#[test]
fn client_id_is_a_string_in_the_json_log() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&["--log", "json"]));
    let response = request(&program, &folder, r#"{"client_id": "18446744073709551615"}"#);
    assert_eq!(response.status, 201);
    program.signal("-TERM");
    let (_, log) = program.end();
    let line = log.lines().find(|line| line.contains("minted")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["fields"]["client_id"], "18446744073709551615");
}
