//! One file that a running program reads again, and the outcome of its last read.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use crate::reload::ReloadCause;
use crate::reloaded_files::ReloadedFiles;

/// A file that is read again alone, by the rules of [`ReloadedFiles`].
#[derive(Debug)]
pub struct ReloadedFile {
    path: PathBuf,
    files: ReloadedFiles,
}

impl ReloadedFile {
    /// Creates it for a file in its present version, which the program reads now, or has read.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), files: ReloadedFiles::new([path.to_owned()]) }
    }

    /// Returns the path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether the last read has failed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.files.has_failed()
    }

    /// Reads the file with `read`, as [`ReloadedFiles::read_again`]. Returns what is worth a log line: what was read,
    /// or an error that is not in the log yet.
    pub fn read_again<T, E: Display>(
        &mut self,
        cause: ReloadCause,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Option<Result<T, String>> {
        self.files.read_again(cause, read).map(|(_, result)| result)
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
