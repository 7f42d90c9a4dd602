//! Files that a running program reads together again: which of them have changed, and the outcome of their last read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::PathBuf;

use crate::file_watch::{self, Version};
use crate::reload::{LastRead, ReloadCause};

/// Files that are read again together: if one has changed, some seconds after a failed read, and whenever another cause
/// than a change asks for it.
#[derive(Debug)]
pub struct ReloadedFiles {
    /// The version of each file that was read last.
    versions: BTreeMap<PathBuf, Option<Version>>,
    /// The files that have changed since the last successful read.
    changed: BTreeSet<PathBuf>,
    last_read: LastRead,
}

/// A read that is worth a log line, and its result or error. The list has the files that have changed since the last
/// successful read, or all of them after another cause than a change.
pub type ReadOutcome<T> = (FileList, Result<T, String>);

impl ReloadedFiles {
    /// Creates them for files in their present versions, which the program has read.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut files = Self { versions: BTreeMap::new(), changed: BTreeSet::new(), last_read: LastRead::default() };
        files.set_paths(paths);
        files
    }

    /// Replaces the list of files. New ones count as read in their present versions.
    pub fn set_paths(&mut self, paths: impl IntoIterator<Item = PathBuf>) {
        let known = std::mem::take(&mut self.versions);
        let version = |path: PathBuf| {
            let version = known.get(&path).copied().unwrap_or_else(|| file_watch::version(&path));
            (path, version)
        };
        self.versions = paths.into_iter().map(version).collect();
    }

    /// Returns the paths.
    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.versions.keys()
    }

    /// Returns whether the last read has failed.
    #[must_use]
    pub const fn has_failed(&self) -> bool {
        self.last_read.has_failed()
    }

    /// Reads the files with `read`. After [`ReloadCause::Files`] it does so only if one of them has changed since the
    /// last read, or that read failed. Returns what is worth a log line: what was read, or an error that is not in the
    /// log yet. It looks at the files, which takes as long as the disk hangs.
    pub fn read_again<T, E: Display>(
        &mut self,
        cause: ReloadCause,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Option<ReadOutcome<T>> {
        let mut is_new = false;
        for (path, known) in &mut self.versions {
            let present = file_watch::version(path);
            if std::mem::replace(known, present) != present {
                self.changed.insert(path.clone());
                is_new = true;
            }
        }
        let is_retry = cause == ReloadCause::Files && self.has_failed();
        if cause == ReloadCause::Files && !is_new && !is_retry {
            return None;
        }
        let result = read().map_err(|error| error.to_string());
        let is_worth_a_line = self.last_read.record(is_retry, result.as_ref().err().cloned());
        let is_partial = cause == ReloadCause::Files && !self.changed.is_empty();
        let files = if is_partial { self.changed.clone() } else { self.paths().cloned().collect() };
        if result.is_ok() {
            self.changed.clear();
        }
        (result.is_ok() || is_worth_a_line).then_some((FileList(files), result))
    }
}

/// Paths for a log line, separated by commas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileList(BTreeSet<PathBuf>);

impl FileList {
    /// Returns the paths.
    pub fn iter(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter()
    }
}

impl Display for FileList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, path) in self.0.iter().enumerate() {
            write!(f, "{}{}", if index > 0 { ", " } else { "" }, path.display())?;
        }
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    #[test]
    fn line_names_the_files_that_have_changed() {
        let folder = std::env::temp_dir().join(format!("slipgate-reloaded-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        write("a", "one");
        write("b", "one");
        let mut files = ReloadedFiles::new([at("a"), at("b")]);
        let mut read = |cause, fails: bool| {
            let outcome = files.read_again(cause, || if fails { Err("wrong") } else { Ok(()) });
            outcome.map(|(files, result)| {
                let names = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
                (names.collect::<Vec<_>>().concat(), result)
            })
        };
        let (ok, wrong) = (Ok(()), Err("wrong".to_owned()));
        assert_eq!(read(ReloadCause::Files, false), None, "the present versions");
        assert_eq!(read(ReloadCause::Signal, false), Some(("ab".to_owned(), ok.clone())));
        assert_eq!(read(ReloadCause::NewKey, false), Some(("ab".to_owned(), ok.clone())));

        write("b", "a second");
        assert_eq!(read(ReloadCause::Files, false), Some(("b".to_owned(), ok.clone())));
        assert_eq!(read(ReloadCause::Files, false), None, "it was read");

        write("a", "a second");
        assert_eq!(read(ReloadCause::Files, true), Some(("a".to_owned(), wrong.clone())));
        assert_eq!(read(ReloadCause::Files, true), None, "the error is in the log");
        write("b", "and a third");
        assert_eq!(read(ReloadCause::Signal, true), Some(("ab".to_owned(), wrong)), "an operator asks");
        assert_eq!(read(ReloadCause::Files, false), Some(("ab".to_owned(), ok)), "all is well again");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
