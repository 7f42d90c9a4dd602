//! The log lines of refused requests.

use std::io::BufRead;
use std::time::Instant;

use super::program::{Program, TestFolder, agent, request, request_token};

/// Sends a request with a wrong key and this id.
fn send_wrong_key(program: &Program, request_id: &str) {
    let request = agent().post(program.url("/v1/tokens")).header("Authorization", "Bearer sgk_wrong");
    let response = request.header("X-Request-Id", request_id).send("{}").unwrap();
    // Repeated ones get status 429.
    assert!(matches!(response.status().as_u16(), 401 | 429));
}

#[test]
fn refusal_is_logged_with_its_request_id_key_and_peer() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    program.skip_lines_of_start();
    send_wrong_key(&program, "stranger-1");
    assert_eq!(request(&program, &folder, r#"{"client_id": "x"}"#).status, 400);
    assert_eq!(request_token(&program, &folder).status, 201);
    let mut next_line = || {
        let mut line = String::new();
        program.log.read_line(&mut line).unwrap();
        folder.assert_no_secret(&line);
        line
    };
    let stranger = next_line();
    for part in [
        "refused a request",
        "unauthorized",
        "its id, a dot and the secret",
        "status=401",
        "peer=127.0.0.1:",
        "request_id=stranger-1",
    ] {
        assert!(stranger.contains(part), "{stranger}");
    }
    assert!(!stranger.contains("key=") && !stranger.contains("sgk_wrong"), "{stranger}");
    let refused = next_line();
    let reason = "reason=\"client_id must be a decimal integer";
    let field = "field=\"client_id\"";
    for part in
        ["refused a request", "invalid_field", field, reason, "status=400", " key=1", "peer=127.0.0.1:", "request_id="]
    {
        assert!(refused.contains(part), "{refused}");
    }
    let minted = next_line();
    for part in ["minted a connect token", "client_id=77", " key=1", "request_id="] {
        assert!(minted.contains(part), "{minted}");
    }
}

#[test]
fn refusal_names_player_and_group() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&["--max-tokens-per-minute", "1"]));
    program.skip_lines_of_start();
    let mut line_of = |body: &str, status: u16| {
        assert_eq!(request(&program, &folder, body).status, status, "{body}");
        let mut line = String::new();
        program.log.read_line(&mut line).unwrap();
        line
    };
    assert!(line_of(r#"{"client_id": 42}"#, 201).contains("minted a connect token"));
    let too_many = line_of(r#"{"client_id": 42}"#, 429);
    assert!(too_many.contains(r#" client_id=42 code="too_many_tokens""#), "{too_many}");
    let too_long = line_of(r#"{"client_id": "42", "lifetime_seconds": 99999999}"#, 400);
    assert!(too_long.contains(r#" client_id=42 code="out_of_range""#), "{too_long}");
    let no_group = line_of(r#"{"client_id": 43, "group": "ranked"}"#, 503);
    assert!(no_group.contains(r#" client_id=43 group=ranked code="no_free_slots""#), "{no_group}");
    let game = line_of(r#"{"client_id": 44, "group": "ranked", "protocol_id": 9}"#, 400);
    assert!(game.contains(r#" client_id=44 group=ranked code="unknown_protocol_id""#), "{game}");
    let no_id = line_of(r#"{"group": "ranked"}"#, 400);
    assert!(no_id.contains("missing_field") && !no_id.contains("client_id=") && !no_id.contains("group="), "{no_id}");
}

#[test]
fn strangers_hide_no_refusal_of_a_backend() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    let start = Instant::now();
    for _ in 0..100 {
        send_wrong_key(&program, "stranger");
    }
    assert_eq!(request(&program, &folder, "{}").status, 400);
    let seconds = usize::try_from(start.elapsed().as_secs()).unwrap();
    program.signal("-TERM");
    let (code, log) = program.end();
    assert_eq!(code, Some(0));
    let strangers = log.matches("request_id=stranger").count();
    assert!((1..=20 * (seconds + 1)).contains(&strangers), "{strangers} lines in {seconds} s");
    assert!(log.contains("missing_field"), "{log}");
    let sums = log.lines().filter(|line| line.contains("refused further requests"));
    let summed = sums.map(|line| line.split_once(" requests=").unwrap().1.split(' ').next().unwrap().parse::<usize>());
    assert_eq!(strangers + summed.map(Result::unwrap).sum::<usize>(), 100, "all are in the log at the end: {log}");
}

#[test]
fn sum_of_refusals_is_logged_without_a_later_request() {
    let folder = TestFolder::new();
    let mut program = Program::start(folder.complete(&[]));
    for _ in 0..100 {
        send_wrong_key(&program, "stranger");
    }
    let mut line = String::new();
    while !line.contains("refused further requests") {
        line.clear();
        assert_ne!(program.log.read_line(&mut line).unwrap(), 0, "the log ended");
    }
    assert!(line.contains("has_key=false"), "{line}");
}
