//! What the programs share as processes: few file descriptors, core dumps, and what other processes can read.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed test panics")]
#![cfg(target_os = "linux")]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::{Child, Command, Stdio};

use crate::{issuer, server};

/// The largest limit of file descriptors that these tests try. All programs start with fewer.
const ENOUGH: u32 = 64;

/// Returns the command with at most this number of file descriptors.
fn limited(command: &Command, descriptors: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" \"$@\""));
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    limited
}

fn stop(mut child: Child) -> Option<i32> {
    assert!(Command::new("sh").args(["-c", &format!("kill -TERM {}", child.id())]).status().unwrap().success());
    server::program::status(&mut child)
}

/// Starts the program with every limit from 3 up. Each start serves, or ends with one sentence and status 1.
///
/// Returns the lowest limit that serves.
fn try_every_limit(command: &Command, started: &str) -> u32 {
    let mut lowest = None;
    for descriptors in 3..=ENOUGH {
        let mut child = limited(command, descriptors).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        log.read_line(&mut text).unwrap();
        // A warning about fewer connections precedes the line of the start.
        if text.contains("WARN") {
            log.read_line(&mut text).unwrap();
        }
        if text.contains(started) {
            assert_eq!(stop(child), Some(0), "{descriptors}: {text}");
            lowest.get_or_insert(descriptors);
            continue;
        }
        assert_eq!(lowest, None, "{descriptors} are too few, and fewer sufficed: {text}");
        log.read_to_string(&mut text).unwrap();
        let status = server::program::status(&mut child);
        // The system's loader needs descriptors before the program runs.
        let is_loader = status == Some(127) && text.contains("shared librar");
        assert!(is_loader || status == Some(1), "{descriptors}: {status:?} {text}");
        assert_eq!(text.lines().count(), 1, "{descriptors}: {text}");
        assert!(is_loader || text.contains("file descriptors") || text.contains("open files"), "{descriptors}: {text}");
    }
    lowest.expect("64 file descriptors suffice")
}

#[test]
fn few_file_descriptors_end_the_issuer_with_one_sentence() {
    let folder = issuer::program::TestFolder::new();
    let lowest = try_every_limit(&folder.complete(&[]), "listening");
    assert!(lowest <= 32, "{lowest}");
    // With as few as that, it serves requests.
    let mut program = issuer::program::Program::start_after_warnings(limited(&folder.complete(&[]), lowest));
    for _ in 0..20 {
        assert_eq!(issuer::program::request_token(&program, &folder).status, 201);
    }
    program.signal("-TERM");
    assert_eq!(program.end().0, Some(0));
}

#[test]
fn few_file_descriptors_end_the_server_with_one_sentence() {
    let folder = server::program::TestFolder::new();
    let cases: [&[&str]; 3] =
        [&[], &["--history", "history"], &["--shards", "2", "--app", "relay", "--history", "history"]];
    for flags in cases {
        try_every_limit(&folder.on(&["127.0.0.1:0", "[::1]:0"], flags), "serving");
    }
}

/// Returns the command as a user without rights. Root may read all processes, so it could not tell.
fn unprivileged(program: &str) -> Command {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", program]);
    command
}

/// Starts the program as a user without rights, with its key in the environment. Returns the limit of its core dumps,
/// and whether another process of that user can read the environment.
fn secrets_at_rest(command: &Command, flags: &[&str]) -> (String, bool) {
    // The user without rights may not enter the folder of the built program.
    let folder = issuer::program::TestFolder::new();
    let program = folder.path.join("program");
    // Another process copies it: a test beside this one that forks would inherit an open file, and a file that is open
    // for writing cannot be executed.
    assert!(Command::new("cp").arg(command.get_program()).arg(&program).status().unwrap().success());
    fs::set_permissions(&folder.path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command_of_other = unprivileged(program.to_str().unwrap());
    command_of_other.args(command.get_args()).args(flags).env("SLIPGATE_PRIVATE_KEY", issuer::program::PRIVATE_KEY);
    command_of_other.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command_of_other.spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut first = String::new();
    log.read_line(&mut first).unwrap();
    assert!(first.contains("listening") || first.contains("serving"), "{first}");

    let limits = fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    let limit = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let limit = limit.split_whitespace().nth(4).unwrap().to_owned();
    let environ = unprivileged("cat").arg(format!("/proc/{}/environ", child.id())).output().unwrap();
    let is_readable = environ.stdout.windows(8).any(|bytes| bytes == b"c0ffee00");
    assert_eq!(environ.status.success(), is_readable, "{environ:?}");
    assert_eq!(stop(child), Some(0));
    (limit, is_readable)
}

#[test]
fn keys_in_memory_are_closed_to_other_processes_and_cores() {
    let issuer = issuer::program::TestFolder::new();
    let mut of_issuer = issuer.bare(&["--protocol-id", "7", "--server", "192.0.2.1:1", "--bind", "127.0.0.1:0"]);
    // The user without rights has no folder for a file.
    of_issuer.args(["--registry", "memory"]);
    of_issuer.arg("--api-key-digest").arg(&issuer.digest);
    let of_server = server::program::TestFolder::new().bare(&["--protocol-id", "7", "--bind", "127.0.0.1:0"]);
    for command in [of_issuer, of_server] {
        assert_eq!(secrets_at_rest(&command, &[]), ("0".to_owned(), false));
        let (limit, is_readable) = secrets_at_rest(&command, &["--allow-core-dumps"]);
        let own = fs::read_to_string("/proc/self/limits").unwrap();
        let own = own.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert!(is_readable && own.split_whitespace().nth(4) == Some(&limit), "{limit}: {own}");
    }
}
