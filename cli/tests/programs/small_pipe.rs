//! A pipe of 4 KiB, which is full after a few unread lines, and what fills the queue of lines behind it.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::io::{BufRead, PipeReader, PipeWriter, pipe};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process};

/// A process that ends with its test, even if that fails.
pub(crate) struct KilledAtEnd(pub(crate) Child);

impl Drop for KilledAtEnd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a pipe that holds 4096 bytes, the smallest that the system gives.
pub(crate) fn small_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = pipe().unwrap();
    let bytes = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
    assert_eq!(bytes, 4096);
    (reader, writer)
}

/// A file that a program reads, and then logs that it has done so.
pub(crate) struct ReadFile(OwnedFd);

impl ReadFile {
    /// Watches a file.
    pub(crate) fn watch(path: &Path) -> Self {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&watch, path, WatchFlags::CLOSE_NOWRITE).unwrap();
        Self(watch)
    }

    /// Returns whether the file was read since the last call.
    fn was_read(&self) -> bool {
        rustix::io::read(&self.0, &mut [0_u8; 4096]).is_ok()
    }

    /// Lets a program read the file again, this many times, by one signal after the other. Signals that come faster are
    /// merged. Calls `meanwhile` after each.
    pub(crate) fn reload(&self, program: &Child, times: u32, max_wait: Duration, mut meanwhile: impl FnMut(u32)) {
        for number in 0..times {
            self.was_read();
            kill_process(Pid::from_child(program), Signal::HUP).unwrap();
            let start = Instant::now();
            while !self.was_read() {
                assert!(start.elapsed() < max_wait, "SIGHUP {number} has no effect");
                thread::sleep(Duration::from_micros(200));
            }
            meanwhile(number);
        }
    }
}

/// Reads a log from now on. Returns the line that says how many lines are missing, because they were not read in time.
pub(crate) fn report_of_lost_lines(log: impl BufRead + Send + 'static, max_wait: Duration) -> String {
    let (found, report) = channel();
    thread::spawn(move || {
        for line in log.lines().map_while(Result::ok).filter(|line| line.contains("lost_lines=")) {
            let _ = found.send(line);
        }
    });
    report.recv_timeout(max_wait).expect("the log says how many lines are missing")
}
