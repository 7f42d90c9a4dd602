//! The standard streams, for threads that may wait for a reader.

use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a program waits until stderr takes the error that ends it.
const ERROR_TIME: Duration = Duration::from_secs(1);

/// Writes the error that ends the program. Gives up after 1 s on a stderr that is not read.
pub fn print_last_line(line: String) {
    let (done, is_done) = mpsc::channel();
    let write = move || {
        let _ = writeln!(stderr_stream(), "{line}");
        let _ = done.send(());
    };
    if thread::Builder::new().spawn(write).is_ok() {
        let _ = is_done.recv_timeout(ERROR_TIME);
    }
}

/// Returns stderr without the lock of [`io::stderr`], which a stuck writer would hold against panics and errors.
#[cfg(unix)]
pub(crate) fn stderr_stream() -> Box<dyn Write + Send> {
    use std::os::fd::AsFd;
    match io::stderr().as_fd().try_clone_to_owned() {
        Ok(stderr) => Box::new(std::fs::File::from(stderr)),
        // No file descriptor is left: the lock is the smaller evil.
        Err(_) => Box::new(io::stderr()),
    }
}

/// Returns stderr. On Windows only the standard library's own stream writes Unicode to a console.
#[cfg(not(unix))]
pub(crate) fn stderr_stream() -> Box<dyn Write + Send> {
    Box::new(io::stderr())
}

/// Returns stdout.
pub(crate) fn stdout_stream() -> Box<dyn Write + Send> {
    Box::new(io::stdout())
}
