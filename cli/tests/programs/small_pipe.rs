//! A pipe of 4 KiB, which is full after a few unread lines.

#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::io::{PipeReader, PipeWriter, pipe};
use std::process::Child;

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
