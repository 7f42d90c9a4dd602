//! The lock of a history file, and what it remembers of the file.
//!
//! The lock is on a file of its own, because a rewrite replaces the history file and would release a lock on it. The
//! lock file holds the number of confirmed records, so that an older copy in place of the history file is noticed. No
//! flush follows its writes: a crash of the server loses nothing, and a power failure leaves a smaller number at worst.
//!
//! ```text
//!   0        16       24          32      40
//!   ├────────┼────────┼───────────┼───────┤
//!   │ magic  │ file   │ confirmed │ check │
//!   └────────┴────────┴───────────┴───────┘
//! ```

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::HistoryFileError;
use super::format::{Check, LockMark};
use super::record_file::{beside, is_same_file, open_lock};

const MAGIC: &[u8; 16] = b"slipgate-lock-1\n";
const LOCK_BYTES: usize = 40;

/// A lock that this process holds until it drops it.
pub(super) struct HistoryLock {
    path: PathBuf,
    file: File,
    /// The lock file was removed or replaced, so another server may have started with the history file.
    is_lost: bool,
    /// This start has created the lock file.
    is_new: bool,
    /// A start that fails removes the lock file that it has created.
    is_kept: bool,
}

impl HistoryLock {
    /// Locks a history file for this process. Returns what the lock file remembers.
    ///
    /// # Errors
    /// - `Locked` when another process holds the lock.
    /// - `NotALock`, `NotAFile`, `IsLink`, `ExposedFile` when the file beside it is not a lock of ours.
    /// - `Io` when the lock file cannot be opened or read.
    pub(super) fn take(history: &Path) -> Result<(Self, Option<LockMark>), HistoryFileError> {
        let path = beside(history, ".lock");
        let (mut file, is_new) = open_lock(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(HistoryFileError::Locked),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
        let mut bytes = Vec::with_capacity(LOCK_BYTES + 1);
        (&mut file).take(LOCK_BYTES as u64 + 1).read_to_end(&mut bytes)?;
        // The file may have been replaced before it was locked.
        if !is_same_file(&file, &path)? {
            return Err(HistoryFileError::Locked);
        }
        let mark = parse(&bytes)?;
        Ok((Self { path, file, is_lost: false, is_new, is_kept: !is_new }, mark))
    }

    /// Returns whether this start has created the lock file.
    pub(super) const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Leaves the lock file in its place when the server ends. Its history file is in place, too.
    pub(super) const fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Returns the open lock file.
    pub(super) const fn file(&self) -> &File {
        &self.file
    }

    /// Checks that the lock file is still in its place. Once it was not, the lock is lost for good: another server may
    /// have read the history meanwhile.
    ///
    /// # Errors
    /// - `Other` when the lock is lost.
    /// - The error of the system when its place cannot be examined. That may succeed later.
    pub(super) fn require(&mut self) -> io::Result<()> {
        if !self.is_lost {
            let is_in_place = is_same_file(&self.file, &self.path);
            self.is_lost = !is_in_place.map_err(|error| {
                io::Error::new(error.kind(), format!("the lock file beside it cannot be examined: {error}"))
            })?;
        }
        if self.is_lost {
            return Err(io::Error::other(
                "the lock file beside it was removed or replaced, so another server may use it; no more clients are \
                 accepted until this server is restarted",
            ));
        }
        Ok(())
    }

    /// Remembers the number of confirmed records.
    pub(super) fn remember(&mut self, mark: LockMark) {
        let mut bytes = [0; LOCK_BYTES];
        let fields = MAGIC.iter().chain(&mark.file.0).copied().chain(mark.confirmed.to_le_bytes()).chain(mark.check.0);
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
        // A failure leaves a smaller number, which does no harm.
        let _ = self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&bytes));
    }
}

impl Drop for HistoryLock {
    fn drop(&mut self) {
        if !self.is_kept && is_same_file(&self.file, &self.path).unwrap_or(false) {
            // A file that stays is empty, and does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Parses a lock file. A new one is empty, and a power failure may leave zeros.
fn parse(bytes: &[u8]) -> Result<Option<LockMark>, HistoryFileError> {
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mark = bytes.strip_prefix(MAGIC).and_then(|rest| {
        let (file, rest) = rest.split_first_chunk()?;
        let (confirmed, rest) = rest.split_first_chunk()?;
        let check = <[u8; 8]>::try_from(rest).ok()?;
        Some(LockMark { file: Check(*file), confirmed: u64::from_le_bytes(*confirmed), check: Check(check) })
    });
    mark.map(Some).ok_or(HistoryFileError::NotALock)
}
