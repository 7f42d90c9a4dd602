//! An unread log costs lines, and never a request.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use super::program::{TestFolder, agent, wait};

#[test]
fn issuer_mints_and_stops_while_its_log_is_unread() {
    let folder = TestFolder::new();
    let (reader, writer) = crate::small_pipe::small_pipe();
    let mut command = folder.complete(&["--log-level", "debug"]);
    let mut program = crate::small_pipe::KilledAtEnd(command.stderr(writer).spawn().unwrap());
    let child = &mut program.0;
    drop(command);
    let mut log = BufReader::with_capacity(1, reader);
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    let after = first.split_once("127.0.0.1:").unwrap().1;
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    let (agent, bearer) = (agent(), format!("Bearer {}", folder.api_key.expose()));
    // A pipe of 4 KiB holds the lines of some 30 tokens.
    for _ in 0..200 {
        let request = agent.post(format!("http://127.0.0.1:{port}/v1/tokens")).header("Authorization", &bearer);
        assert_eq!(request.content_type("application/json").send(r#"{"client_id": 77}"#).unwrap().status(), 201);
    }
    assert_eq!(agent.get(format!("http://127.0.0.1:{port}/v1/health")).call().unwrap().status(), 200);
    let begin = Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(wait(child), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}
