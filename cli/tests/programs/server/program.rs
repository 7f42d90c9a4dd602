//! A running `slipgate-server`, its folder and its log.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// The longest time that a test waits before it fails.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// The protocol id of these tests.
pub(crate) const PROTOCOL_ID: u64 = 0x1234;
/// The private key of these tests; no output may contain it.
pub(crate) const PRIVATE_KEY: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
/// Another private key.
pub(crate) const OTHER_KEY: &str = "facade11facade11facade11facade11facade11facade11facade11facade11";

/// A temporary folder with a key file.
pub(crate) struct TestFolder(PathBuf);

impl TestFolder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("slipgate-server-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let folder = Self(folder);
        folder.write("keys", PRIVATE_KEY, 0o600);
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Puts a file in the place of another one, in one step.
    pub(crate) fn replace(&self, name: &str, content: impl AsRef<[u8]>, mode: u32) {
        let new = self.write("new", content, mode);
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Returns a command without configuration and without inherited `SLIPGATE_*` variables.
    pub(crate) fn bare(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slipgate-server"));
        let ours = std::env::vars_os().map(|(name, _)| name);
        for name in ours.filter(|name| name.to_string_lossy().starts_with("SLIPGATE_")) {
            command.env_remove(name);
        }
        command.args(flags).current_dir(&self.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns a command with a complete configuration and, unless a flag sets one, no drain time.
    pub(crate) fn on(&self, bind: &[&str], flags: &[&str]) -> Command {
        let mut command = self.bare(&["--protocol-id", "0x1234", "--key-file", "keys"]);
        command.env("SLIPGATE_SERVER_DRAIN", "0s");
        command.args(bind.iter().flat_map(|bind| ["--bind", bind])).args(flags);
        command
    }

    /// Returns a command with a complete configuration, on a port chosen by the system.
    pub(crate) fn complete(&self, flags: &[&str]) -> Command {
        self.on(&["127.0.0.1:0"], flags)
    }

    pub(crate) fn start(&self, flags: &[&str]) -> Program {
        Program::start(self.complete(flags))
    }

    /// Returns the exit status and the message of a program that must end by itself.
    pub(crate) fn refused(&self, mut command: Command) -> (i32, String) {
        let mut child = command.spawn().unwrap();
        let code = wait(&mut child);
        let output = child.wait_with_output().unwrap();
        let message = String::from_utf8(output.stderr).unwrap();
        assert_no_secret(&message);
        assert_eq!(output.stdout, b"");
        (code.unwrap(), message)
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn assert_no_secret(text: &str) {
    let lower = text.to_lowercase();
    assert!(!lower.contains("c0ffee00") && !lower.contains("facade11"), "a private key is shown: {text}");
}

fn wait(child: &mut Child) -> Option<i32> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if start.elapsed() > MAX_WAIT {
            child.kill().unwrap();
            panic!("the program does not end");
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// The lines of a log so far.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    has_new_line: Condvar,
}

impl Log {
    fn follow(self: Arc<Self>, stderr: ChildStderr) -> thread::JoinHandle<()> {
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                self.lines.lock().unwrap().push(line.unwrap());
                self.has_new_line.notify_all();
            }
        })
    }
}

/// A running server.
pub(crate) struct Program {
    child: Child,
    log: Arc<Log>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let log = Arc::new(Log::default());
        let reader = Arc::clone(&log).follow(child.stderr.take().unwrap());
        let program = Self { child, log, reader: Some(reader) };
        program.wait_for("serving");
        program
    }

    /// Waits for a log line that contains `part` and returns it.
    pub(crate) fn wait_for(&self, part: &str) -> String {
        self.wait_for_lines(part, 1)
    }

    /// Waits for this number of log lines that contain `part` and returns the first one.
    pub(crate) fn wait_for_lines(&self, part: &str, count: usize) -> String {
        let lines = self.log.lines.lock().unwrap();
        let holds = |lines: &Vec<String>| lines.iter().filter(|line| line.contains(part)).count() >= count;
        let (lines, _) = self.log.has_new_line.wait_timeout_while(lines, MAX_WAIT, |lines| !holds(lines)).unwrap();
        let line = lines.iter().find(|line| line.contains(part)).filter(|_| holds(&lines));
        line.unwrap_or_else(|| panic!("no {count} lines with {part:?}: {lines:#?}")).clone()
    }

    /// Returns the log so far.
    pub(crate) fn log(&self) -> String {
        self.log.lines.lock().unwrap().join("\n")
    }

    /// Returns a field of the log line with the settings in effect.
    pub(crate) fn fact(&self, name: &str) -> String {
        let line = self.wait_for("serving");
        let after = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("no {name}: {line}")).1;
        match after.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap().to_owned(),
            None => after.split(' ').next().unwrap().to_owned(),
        }
    }

    /// Returns the bound addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.fact("bind").split(", ").map(|address| address.parse().unwrap()).collect()
    }

    /// Returns the first bound address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses()[0]
    }

    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill {name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end. Returns the exit status and the whole log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let code = wait(&mut self.child);
        self.reader.take().unwrap().join().unwrap();
        let log = self.log.lines.lock().unwrap().join("\n");
        assert_no_secret(&log);
        (code, log)
    }

    /// Stops the server and returns its log.
    pub(crate) fn stop(self) -> String {
        self.signal("-TERM");
        let (code, log) = self.end();
        assert_eq!(code, Some(0), "{log}");
        log
    }

    /// Kills the server, as a crash or a power failure does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        wait(&mut self.child);
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn proc(&self, file: &str) -> String {
        fs::read_to_string(PathBuf::from("/proc").join(self.child.id().to_string()).join(file)).unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server, reads the first line of its log and closes the log.
pub(crate) fn start_without_a_reader(mut command: Command) -> (Child, SocketAddr) {
    let mut child = command.spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut first).unwrap();
    let after = first.split_once("bind=\"").unwrap().1;
    (child, after.split('"').next().unwrap().parse().unwrap())
}

/// Waits for the end of a program and returns its exit status.
pub(crate) fn status(child: &mut Child) -> Option<i32> {
    wait(child)
}
