//! An unread log costs lines, and never a request.

use std::io::{BufRead, BufReader};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::program::{PRIVATE_KEY, TestFolder, agent, wait};
use crate::small_pipe::{KilledAtEnd, small_pipe};

/// Returns a command that has a key file with a path of some 3 KiB.
fn with_a_long_path(folder: &TestFolder) -> Command {
    let long = vec!["d".repeat(250); 12].join("/");
    std::fs::create_dir_all(folder.path.join(&long)).unwrap();
    let keys = folder.write(&format!("{long}/keys"), PRIVATE_KEY, 0o600);
    let mut command = folder.bare(&["--protocol-id", "0x1234", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
    command.arg("--key-file").arg(keys).args(["--api-key-digest", &folder.digest]);
    command
}

#[test]
fn issuer_mints_and_stops_while_its_log_is_unread() {
    let folder = TestFolder::new();
    let (reader, writer) = small_pipe();
    let mut command = with_a_long_path(&folder);
    let mut program = KilledAtEnd(command.stderr(writer).spawn().unwrap());
    let child = &mut program.0;
    drop(command);
    let mut log = BufReader::with_capacity(1, reader);
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    let after = first.split_once("127.0.0.1:").unwrap().1;
    let port: String = after.chars().take_while(char::is_ascii_digit).collect();
    // Tokens have at most 20 lines a second. Each SIGHUP logs the long path, and the pipe holds one such line.
    for _ in 0..50 {
        kill_process(Pid::from_child(child), Signal::HUP).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    let (agent, bearer) = (agent(), format!("Bearer {}", folder.api_key.expose()));
    for _ in 0..200 {
        let request = agent.post(format!("http://127.0.0.1:{port}/v1/tokens")).header("Authorization", &bearer);
        assert_eq!(request.content_type("application/json").send(r#"{"client_id": 77}"#).unwrap().status(), 201);
    }
    assert_eq!(agent.get(format!("http://127.0.0.1:{port}/v1/health")).call().unwrap().status(), 200);
    let begin = Instant::now();
    kill_process(Pid::from_child(child), Signal::TERM).unwrap();
    assert_eq!(wait(child), Some(0));
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}
