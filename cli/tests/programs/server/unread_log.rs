//! An unread log costs lines, and never a turn.

use std::io::{BufRead, BufReader, PipeReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{TestClient, TestToken, until};
use super::program::{MAX_WAIT, PRIVATE_KEY, TestFolder, status};
use crate::scale::pick;
use crate::small_pipe::{ReadFile, report_of_lost_lines, small_pipe};

/// The reloads that fill the queue of lines: it holds 1 MiB, and the line of each has the long path of the key file.
const RELOADS: u32 = 500;

/// A server with a log that is read only when a test says so.
struct UnreadServer {
    child: Child,
    /// `None` once it is read.
    log: Option<BufReader<PipeReader>>,
    address: SocketAddr,
    key_file: ReadFile,
}

impl UnreadServer {
    /// Starts the server and reads one line of its log.
    fn start((mut command, key_file): (Command, PathBuf)) -> Self {
        let (reader, writer) = small_pipe();
        let child = command.stderr(writer).spawn().unwrap();
        // The command holds the pipe's end for writing, and would keep it open.
        drop(command);
        let mut log = BufReader::with_capacity(1, reader);
        let mut first = String::new();
        log.read_line(&mut first).unwrap();
        let address = first.split_once("bind=\"").unwrap().1.split('"').next().unwrap().parse().unwrap();
        Self { child, log: Some(log), address, key_file: ReadFile::watch(&key_file) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Lets the server log about 1.5 MiB: each reload logs the long path of the key file.
    fn fill_the_queue(&self, clients: &mut [&mut TestClient]) {
        self.key_file.reload(&self.child, RELOADS, MAX_WAIT, |number| {
            // A turn of a client may wait for 10 ms.
            if number % 8 == 0 {
                clients.iter_mut().for_each(|client| client.turn());
            }
        });
    }

    /// Asserts that SIGTERM ends the server with status 0.
    fn stop(mut self) {
        self.signal(Signal::TERM);
        assert_eq!(status(&mut self.child), Some(0));
    }
}

impl Drop for UnreadServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a command that has a key file with a path of some 3 KiB, and that path.
fn with_a_long_path(folder: &TestFolder) -> (Command, PathBuf) {
    let long = vec!["d".repeat(250); 12].join("/");
    std::fs::create_dir_all(folder.path(&long)).unwrap();
    folder.write(&format!("{long}/keys"), PRIVATE_KEY, 0o600);
    let mut command = folder.bare(&["--protocol-id", "0x1234", "--bind", "127.0.0.1:0", "--log-level", "debug"]);
    command.args(["--key-file", &format!("{long}/keys"), "--drain", "0s"]);
    (command, folder.path(&format!("{long}/keys")))
}

#[test]
fn players_play_on_while_the_log_is_unread() {
    let folder = TestFolder::new();
    let mut server = UnreadServer::start(with_a_long_path(&folder));
    let mut first = TestClient::join(1, server.address);
    server.fill_the_queue(&mut [&mut first]);
    first.echo(b"the queue of lines is full");
    // Connects and disconnects log, too.
    for id in 10..30 {
        let mut guest = TestClient::join(id, server.address);
        guest.echo(b"welcome");
        guest.leave();
    }
    first.echo(b"still here");

    // The reader resumes.
    let line = report_of_lost_lines(server.log.take().unwrap(), MAX_WAIT);
    let lost: u32 = line.trim_end().rsplit_once('=').unwrap().1.parse().unwrap();
    assert!(line.contains("WARN") && lost > 0, "{line}");
    first.echo(b"goes on");
    server.stop();
}

#[test]
fn sigterm_ends_a_server_with_an_unread_log() {
    let counts = pick(&["2"][..], &["1", "2"][..]);
    for shards in counts {
        let folder = TestFolder::new();
        let (mut command, key_file) = with_a_long_path(&folder);
        command.args(["--shards", shards]);
        let server = UnreadServer::start((command, key_file));
        let mut client = TestClient::new(TestToken::new(1, server.address).mint());
        server.fill_the_queue(&mut [&mut client]);
        until("connected", &mut [&mut client], |clients| clients[0].is_connected());
        server.stop();
    }
}
