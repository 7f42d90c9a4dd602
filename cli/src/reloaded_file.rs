//! A file that a running program reads again, and the outcome of its last read.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::file_watch::{self, Version};
use crate::reload::{LastRead, ReloadCause};

/// A file that is read again after SIGHUP, after a change, and some seconds after a failed read.
#[derive(Debug)]
pub struct ReloadedFile {
    path: PathBuf,
    /// The version that was read last.
    version: Option<Version>,
    last_read: LastRead,
}

impl ReloadedFile {
    /// Creates it for a file in its present version, which the program reads now, or has read.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), version: file_watch::version(path), last_read: LastRead::default() }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the last read has failed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.last_read.has_failed()
    }

    /// Reads the file with `read`: always after SIGHUP, otherwise if it has another version than the one that was read
    /// last, or that read failed. Returns what is worth a log line: what was read, or an error that is not in the log
    /// yet. It looks at the file, which takes as long as the disk hangs.
    pub fn read_again<T, E: Display>(
        &mut self,
        cause: ReloadCause,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, String>> {
        let (present, has_failed) = (file_watch::version(&self.path), self.has_failed());
        let is_new = std::mem::replace(&mut self.version, present) != present;
        if !is_new && !has_failed && cause != ReloadCause::Signal {
            return None;
        }
        let result = read().map_err(|error| error.to_string());
        let is_retry = cause == ReloadCause::Files && has_failed;
        let is_worth_a_line = self.last_read.record(is_retry, result.as_ref().err().cloned());
        (result.is_ok() || is_worth_a_line).then_some(result)
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    #[test]
    fn change_that_a_signal_has_read_is_not_read_again() {
        let path = std::env::temp_dir().join(format!("slipgate-reloaded-file-{}", std::process::id()));
        std::fs::write(&path, "one").unwrap();
        let mut file = ReloadedFile::new(&path);
        let mut read = |cause, fails: bool| {
            let text = std::fs::read_to_string(&path).unwrap();
            file.read_again(cause, || if fails { Err("wrong") } else { Ok(text) })
        };
        let ok = |text: &str| Some(Ok(text.to_owned()));
        let error = Some(Err("wrong".to_owned()));
        assert_eq!(read(ReloadCause::Files, false), None, "the present version");
        assert_eq!(read(ReloadCause::Signal, false), ok("one"));

        std::fs::write(&path, "a second").unwrap();
        assert_eq!(read(ReloadCause::Signal, false), ok("a second"));
        assert_eq!(read(ReloadCause::Files, false), None, "the signal has read this version");

        std::fs::write(&path, "and a third").unwrap();
        assert_eq!(read(ReloadCause::Files, true), error);
        assert_eq!(read(ReloadCause::Files, true), None, "the error is in the log");
        assert_eq!(read(ReloadCause::Signal, true), error, "an operator asks");
        assert_eq!(read(ReloadCause::Files, false), ok("and a third"), "the same version, which could not be read");
        std::fs::remove_file(&path).unwrap();
    }
}
