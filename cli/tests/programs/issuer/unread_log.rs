//! An unread log costs lines, and never a request.

use std::io::{BufRead, BufReader, PipeReader};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::program::{MAX_WAIT, PRIVATE_KEY, TestFolder, agent, wait};
use crate::small_pipe::{KilledAtEnd, ReadFile, report_of_lost_lines, small_pipe};

/// The reloads that fill the queue of lines: it holds 1 MiB, and the line of each has the long path of the key file.
const RELOADS: u32 = 500;

/// Returns a command that has a key file with a path of some 3 KiB, and that path.
fn with_a_long_path(folder: &TestFolder) -> (Command, PathBuf) {
    let long = vec!["d".repeat(250); 12].join("/");
    std::fs::create_dir_all(folder.path.join(&long)).unwrap();
    let keys = folder.write(&format!("{long}/keys"), PRIVATE_KEY, 0o600);
    let mut command = folder.bare(&["--protocol-id", "0x1234", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
    command.arg("--key-file").arg(&keys).args(["--api-key-digest", &folder.digest]);
    (command, keys)
}

/// An issuer with a log that is read only when a test says so.
struct UnreadIssuer {
    program: KilledAtEnd,
    log: BufReader<PipeReader>,
    port: String,
}

impl UnreadIssuer {
    /// Starts the issuer, reads one line of its log, and lets it log about 1.5 MiB.
    fn start(folder: &TestFolder) -> Self {
        let (reader, writer) = small_pipe();
        let (mut command, keys) = with_a_long_path(folder);
        let program = KilledAtEnd(command.stderr(writer).spawn().unwrap());
        // The command holds the pipe's end for writing, and would keep it open.
        drop(command);
        let mut log = BufReader::with_capacity(1, reader);
        let mut first = String::new();
        log.read_line(&mut first).unwrap();
        let after = first.split_once("127.0.0.1:").unwrap().1;
        let port = after.chars().take_while(char::is_ascii_digit).collect();
        ReadFile::watch(&keys).reload(&program.0, RELOADS, MAX_WAIT, |_| {});
        Self { program, log, port }
    }

    /// Asserts that it mints tokens. They have at most 20 lines a second, so that they do not fill the queue.
    fn mint(&self, folder: &TestFolder) {
        let (agent, bearer) = (agent(), format!("Bearer {}", folder.api_key.expose()));
        let url = format!("http://127.0.0.1:{}/v1", self.port);
        for _ in 0..200 {
            let request = agent.post(format!("{url}/tokens")).header("Authorization", &bearer);
            let response = request.content_type("application/json").send(r#"{"client_id": 77}"#).unwrap();
            assert_eq!(response.status(), 201);
        }
        assert_eq!(agent.get(format!("{url}/health")).call().unwrap().status(), 200);
    }
}

#[test]
fn issuer_mints_and_stops_while_its_log_is_unread() {
    let folder = TestFolder::new();
    let mut issuer = UnreadIssuer::start(&folder);
    issuer.mint(&folder);
    kill_process(Pid::from_child(&issuer.program.0), Signal::TERM).unwrap();
    assert_eq!(wait(&mut issuer.program.0), Some(0));
}

#[test]
fn issuer_counts_the_lines_that_an_unread_log_has_lost() {
    let folder = TestFolder::new();
    let issuer = UnreadIssuer::start(&folder);
    issuer.mint(&folder);
    let report = report_of_lost_lines(issuer.log, MAX_WAIT);
    let lost: u32 = report.rsplit_once('=').unwrap().1.parse().unwrap();
    assert!(report.contains("WARN") && lost > 0, "{report}");
}
