//! The token history on disk: an append-only file of used tokens that survives crashes.
//!
//! ```text
//!   0        16            48      56        64              72      80             104
//!   ├────────┼─────────────┼───────┼─────────┼───────────────┼───────┼──────────────┼──────────┬──────────┬ …
//!   │ magic  │ digest key  │ since │ dropped │ dropped until │ check │ confirmation │ record   │ record   │
//!   └────────┴─────────────┴───────┴─────────┴───────────────┴───────┴──────────────┴──────────┴──────────┴ …
//!   since: the second from which on the file has every used token
//!   dropped: how many records earlier versions of the file dropped as expired
//!   dropped until: the latest expiry of those
//!   check: the first 8 bytes of the keyed digest of everything before it
//!   confirmation: the number of the records that are on the disk, and the check of the last one (24)
//!   record: digest of the token's tag (16), expiry in unix seconds (8), check of it and of the record before (8)
//! ```
//!
//! A client receives its first packet after its record and a confirmation of it are on the disk. The records are
//! written first, so a killed server leaves all confirmed records. Records may be missing in other cases: a file system
//! lost the end in a power failure, or the file was cut or is an older copy. The confirmation, or its copy in the lock
//! file, then exceeds the records. Without a lock file, the file may always be an older copy. Tokens of the missing
//! records could be used again, so the file's start is moved to the present: the server refuses all tokens from before.
//! A bad record in the middle is damage, and the file is refused.
//!
//! A torn end without confirmation is the result of a crash. It is cut off with a warning, because its clients were
//! never connected.
//!
//! A record is dropped when its token has expired by both clocks. A start has only the wall clock. If that shows a time
//! before an expiry that was dropped, it was stepped back, and dropped tokens may be valid again: the start refuses
//! tokens from before that expiry then. If a time of the file is more than a minute ahead, the clock was wrong when the
//! file was written: the start refuses tokens from before itself.
//!
//! Tokens are identified by a keyed digest of their tag. Only the owner can read the file.

mod error;
mod format;
mod lock;
mod record_file;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use error::HistoryFileError;
use format::{
    CONFIRMATION_OFFSET, ChainEnd, FormatVersion, HEADER_BYTES, HistoryHeader, LockMark, ParsedHistory, RECORD_BYTES,
    Remains,
};
use lock::HistoryLock;
use record_file::{Directory, NewFile, RecordFile, is_for_lack_of_room, open_existing, require_owners, resolve};
use slipgate_netcode::server::TokenCutoff;
use slipgate_netcode::time::{Now, UnixSeconds};
use slipgate_netcode::token::history::{JournalError, KeptTokens, UsedToken};
use slipgate_os::clock::Clock;
use tracing::warn;
use zeroize::Zeroizing;

use crate::journal::Disk;

/// The maximum number of unexpired tokens: 16 million, 512 MiB.
const MAX_UNEXPIRED: u64 = 1 << 24;
/// After this many new records a file is rewritten without its expired ones.
const MAX_APPENDED: u64 = 1 << 16;
/// The maximum seconds by which a time of the file may be ahead of a start, and still be its cutoff: more than a token
/// lives by default. A start behind more would lock all players out for that time.
const MAX_AHEAD: u64 = 60;
/// The maximum number of records in a file: a rewrite may fail once.
const MAX_RECORDS: u64 = MAX_UNEXPIRED + 2 * MAX_APPENDED;

/// The token history on disk, opened and locked for one server.
///
/// # Examples
/// ```no_run
/// use slipgate_server::history_file::HistoryFile;
/// use slipgate_server::keys::read_key_file;
/// use slipgate_server::{Clock, Server, ServerConfig, Sockets};
///
/// # fn start(sockets: Sockets, config: ServerConfig) -> Result<Server, Box<dyn std::error::Error>> {
/// let (now, keys) = (Clock::start().now(), read_key_file("private.key")?);
/// let history = HistoryFile::open("tokens.history", now.unix.into())?;
/// let server = Server::with_history(sockets, config, keys, now, history)?;
/// # Ok(server)
/// # }
/// ```
pub struct HistoryFile {
    path: PathBuf,
    /// Held until the server ends.
    lock: HistoryLock,
    /// `None` after a failed replacement left another file, or none, in its place. The next records are written to a
    /// new file then.
    file: Option<Box<dyn RecordFile>>,
    header: HistoryHeader,
    /// The tokens of all records that were not dropped.
    used: Vec<StoredToken>,
    /// The latest expiry of a dropped record, for the next rewrite.
    dropped_until: UnixSeconds,
    read_clocks: Box<dyn Fn() -> Now + Send>,
    origin: HistoryOrigin,
    /// The last confirmed record.
    end: ChainEnd,
    /// The number of records since the last rewrite.
    appended: u64,
    max_records: u64,
    buf: Vec<u8>,
    /// A write has failed: there may be bytes behind the last confirmed record.
    is_torn: bool,
    /// The last records may not be on the disk: a flush failed, or the directory may still name the old file. The file
    /// must be rewritten, because systems report a failed flush once and then discard the error.
    needs_full_write: bool,
    /// The current write error was logged.
    has_warned: bool,
}

/// A used token, with its expiry by both clocks.
#[derive(Clone, Copy)]
struct StoredToken {
    used: UsedToken,
    /// The second of the monotonic clock from which on it has expired.
    until: u64,
}

impl StoredToken {
    fn new(used: UsedToken, now: Now) -> Self {
        let left = used.expires.0.saturating_sub(UnixSeconds::from(now.unix).0);
        Self { used, until: now.monotonic.since_start().as_secs().saturating_add(left) }
    }

    /// Returns whether it has expired by both clocks. A wall clock that is stepped ahead expires none.
    fn has_expired(&self, now: Now) -> bool {
        self.used.expires <= now.unix.into() && self.until <= now.monotonic.since_start().as_secs()
    }
}

/// Which used tokens of earlier starts a history file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HistoryOrigin {
    /// The file was created by this start, and no earlier start is known.
    Created,
    /// The file has all used tokens of earlier starts.
    Continued,
    /// The file may lack used tokens of earlier starts.
    Shortened,
    /// The wall clock was stepped back. The file lacks used tokens that are in time again.
    ClockSteppedBack,
    /// The wall clock was far ahead when the file was written: its times say nothing.
    ClockWasAhead,
}

impl HistoryFile {
    /// Opens a history file, or creates one (mode 0600), and removes expired records.
    ///
    /// # Errors
    /// - `Io`: the file cannot be opened, read or written.
    /// - `Locked`: another server uses it.
    /// - `NotAFile`, `IsLink`, `NotAHistory`, `NotALock`, `TooLarge`, `Damaged`: the path has no valid history.
    /// - `ExposedFile`, `SharedDirectory`, `OtherOwner`: other users can change or replace it.
    pub fn open(path: impl AsRef<Path>, today: UnixSeconds) -> Result<Self, HistoryFileError> {
        let path = resolve(path.as_ref())?;
        let (mut lock, mut mark) = HistoryLock::take(&path)?;
        let existing = open_existing(&path)?;
        let bytes = existing.as_ref().map(read).transpose()?.unwrap_or_default();
        match existing {
            Some(file) if !bytes.is_empty() => {
                let parsed = ParsedHistory::parse(&bytes)?;
                drop(bytes);
                // The lock file of the old format has no content, so nothing is missing with it.
                if lock.is_new() && parsed.version == FormatVersion::Chained {
                    // It is written at once: a start that is killed before its end must not leave an empty one.
                    mark = Some(LockMark::UNKNOWN);
                    lock.remember(LockMark::UNKNOWN);
                }
                Self::continued(path, lock, mark, file, parsed, today)
            }
            empty => {
                drop(empty);
                Self::created(path, lock, mark, today)
            }
        }
    }

    /// Creates a file. The current second does not count: tokens may have been used in it before. If the lock file
    /// knows of confirmed records, the history was lost.
    fn created(
        path: PathBuf,
        lock: HistoryLock,
        mark: Option<LockMark>,
        today: UnixSeconds,
    ) -> Result<Self, HistoryFileError> {
        let is_lost = mark.is_some_and(|mark| mark.confirmed > 0);
        let origin = if is_lost { HistoryOrigin::Shortened } else { HistoryOrigin::Created };
        if is_lost {
            warn_of_shortened(&path);
        }
        let header = HistoryHeader::new(after(today))?;
        let (new, end) = write_first(&path, &header, std::iter::empty(), &[lock.file()])?;
        let directory = Directory::of(&path)?;
        let file = new.replace(&path)?;
        directory.sync()?;
        Ok(Self::opened(path, lock, file, header, Vec::new(), origin, end))
    }

    /// Continues a file: rewrites it without its expired records, in the present format.
    fn continued(
        path: PathBuf,
        lock: HistoryLock,
        mark: Option<LockMark>,
        file: File,
        parsed: ParsedHistory,
        today: UnixSeconds,
    ) -> Result<Self, HistoryFileError> {
        let origin = parsed.origin(mark, today);
        parsed.warn_of_losses(&path, origin, mark);
        let is_usable = parsed.is_usable_as_it_is(origin);
        let ParsedHistory { header: old, mut used, end: old_end, version, .. } = parsed;
        let mut dropped_until = take_expired(&mut used, |used| used.expires <= today, |used| used.expires);
        dropped_until = dropped_until.max(match version {
            // No token from before this start is admitted, so none of those that were dropped is.
            _ if origin == HistoryOrigin::ClockWasAhead => UnixSeconds(0),
            FormatVersion::Chained => old.dropped_until,
            // The old format does not have it, and drops only what has expired.
            FormatVersion::Separate => today,
        });
        let since = match origin {
            HistoryOrigin::ClockWasAhead => after(today),
            HistoryOrigin::Shortened => old.since.max(after(today)),
            HistoryOrigin::ClockSteppedBack => old.since.max(old.dropped_until),
            HistoryOrigin::Created | HistoryOrigin::Continued => old.since,
        };
        // A number that was once confirmed is not used again: the lock file may remember it.
        let known = mark.filter(|mark| *mark == old.lock_mark(mark.confirmed)).map_or(0, |mark| mark.confirmed);
        let next = old.number_of(old_end).max(known);
        let header = old.rewritten(since, next.saturating_sub(used.len() as u64), dropped_until);
        let (new, end) = match write_first(&path, &header, used.iter().copied(), &[&file, lock.file()]) {
            Ok(rewritten) => rewritten,
            Err(HistoryFileError::Io(error)) if is_usable && is_for_lack_of_room(&error) => {
                warn_of_expired_records(&path, &error);
                let mut opened = Self::opened(path, lock, file, old, stored(used, today), origin, old_end);
                opened.dropped_until = dropped_until;
                return Ok(opened);
            }
            Err(error) => return Err(error),
        };
        let directory = Directory::of(&path)?;
        // The lock file still holds the place.
        drop(file);
        let file = new.replace(&path)?;
        directory.sync()?;
        Ok(Self::opened(path, lock, file, header, stored(used, today), origin, end))
    }

    fn opened(
        path: PathBuf,
        lock: HistoryLock,
        file: File,
        header: HistoryHeader,
        used: Vec<StoredToken>,
        origin: HistoryOrigin,
        end: ChainEnd,
    ) -> Self {
        let clock = Clock::start();
        let mut opened = Self {
            path,
            lock,
            file: Some(Box::new(file)),
            dropped_until: header.dropped_until,
            header,
            used,
            read_clocks: Box::new(move || clock.now()),
            origin,
            end,
            appended: 0,
            max_records: MAX_RECORDS,
            buf: Vec::new(),
            is_torn: false,
            needs_full_write: false,
            has_warned: false,
        };
        opened.lock.keep();
        opened.remember();
        opened
    }

    /// Returns whether this call created the file. A new file lacks the tokens that were used before.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        matches!(self.origin, HistoryOrigin::Created)
    }

    /// Returns the time from which on the file has every used token.
    #[must_use]
    pub const fn since(&self) -> UnixSeconds {
        self.header.since
    }

    /// Returns the number of used, unexpired tokens at the start.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns whether the file had no used, unexpired token at the start.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Returns the tokens that earlier starts used.
    pub(crate) fn kept(&self) -> KeptTokens {
        KeptTokens {
            names: *self.header.digest_key,
            used: self.used.iter().map(|stored| stored.used).collect(),
            dropped_until: self.dropped_until,
        }
    }

    /// Returns the cutoff of a server with this history. A file from before the start knows the tokens since it was
    /// created, so those may be accepted. A file with missing records is cut off at the start, even if the settings
    /// accept older tokens: they were used under this file. After a step of the clock it is cut off at the latest
    /// expiry that was dropped.
    pub(crate) fn token_cutoff(&self, configured: TokenCutoff) -> TokenCutoff {
        match (self.origin, configured) {
            (HistoryOrigin::Continued | HistoryOrigin::ClockSteppedBack, TokenCutoff::AtStart)
            | (HistoryOrigin::ClockSteppedBack, TokenCutoff::None) => TokenCutoff::At(self.header.since.into()),
            (HistoryOrigin::Shortened | HistoryOrigin::ClockWasAhead, TokenCutoff::None) => TokenCutoff::AtStart,
            (
                HistoryOrigin::Shortened | HistoryOrigin::ClockSteppedBack | HistoryOrigin::ClockWasAhead,
                TokenCutoff::At(moment),
            ) => TokenCutoff::At(moment.max(self.header.since.into())),
            (_, configured) => configured,
        }
    }

    /// Writes records durably. After an error, none of them counts as written.
    fn try_store(&mut self, records: &[UsedToken]) -> io::Result<()> {
        self.lock.require()?;
        let count = records.len() as u64;
        let fits = self.end.records + count <= self.max_records;
        if !fits || self.needs_full_write || !self.is_in_place()? {
            self.rewrite(records)?;
        } else {
            let end = self.append(records)?;
            // Another server that took over the lock reads the file afterwards. If the lock is still ours now, that
            // server will find these records.
            self.lock.require()?;
            self.end = end;
            self.extend_used(records);
            self.appended += count;
        }
        self.remember();
        Ok(())
    }

    /// Returns whether the path names the open file.
    fn is_in_place(&self) -> io::Result<bool> {
        self.file.as_ref().map_or(Ok(false), |file| file.is_at(&self.path))
    }

    /// Writes the records, then the confirmation, and flushes both.
    fn append(&mut self, records: &[UsedToken]) -> io::Result<ChainEnd> {
        let (start, mut end) = (self.end.offset(), self.end);
        let file = self.file.as_mut().ok_or_else(|| io::Error::other("the history file is not open"))?;
        if std::mem::replace(&mut self.is_torn, true) {
            // The remains of a longer write would follow the new records.
            file.cut_off(start)?;
        }
        self.buf.clear();
        for used in records {
            let check = self.header.emit_record(end.check, *used, &mut self.buf);
            end = ChainEnd { records: end.records + 1, check };
        }
        file.write_at(start, &self.buf)?;
        file.write_at(CONFIRMATION_OFFSET, &self.header.confirmation(end))?;
        self.is_torn = false;
        file.sync().inspect_err(|_| self.needs_full_write = true)?;
        Ok(end)
    }

    /// Rewrites the file with these records and without expired ones. After the rename the new file is used, even if a
    /// later step fails.
    fn rewrite(&mut self, records: &[UsedToken]) -> io::Result<()> {
        // After a failure it is tried again after as many records, because it writes all of them.
        self.appended = 0;
        let now = (self.read_clocks)();
        let dropped_until =
            take_expired(&mut self.used, |stored| stored.has_expired(now), |stored| stored.used.expires);
        self.dropped_until = self.dropped_until.max(dropped_until);
        let known = self.used.len();
        if (known + records.len()) as u64 > self.max_records {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "there are too many unexpired tokens"));
        }
        self.extend_used(records);
        let outcome = self.replace(records.len() as u64);
        if outcome.is_err() {
            self.used.truncate(known);
        }
        outcome
    }

    fn extend_used(&mut self, records: &[UsedToken]) {
        let now = (self.read_clocks)();
        self.used.extend(records.iter().map(|used| StoredToken::new(*used, now)));
    }

    fn replace(&mut self, added: u64) -> io::Result<()> {
        let next = self.header.number_of(self.end) + added;
        let dropped = next.saturating_sub(self.used.len() as u64);
        let header = self.header.rewritten(self.header.since, dropped, self.dropped_until);
        let mut new = NewFile::create(&self.path)?;
        let end = write_all(&mut new, &header, self.used.iter().map(|stored| stored.used))?;
        let directory = Directory::of(&self.path)?;
        self.lock.require()?;
        self.put_in_place(new, &directory)?;
        (self.header, self.end) = (header, end);
        (self.is_torn, self.needs_full_write) = (false, true);
        directory.sync()?;
        self.needs_full_write = false;
        self.lock.require()
    }

    /// Closes the old file, and replaces it by the new one. If that fails, the old file is opened again.
    fn put_in_place(&mut self, new: NewFile, directory: &Directory) -> io::Result<()> {
        self.file = None;
        match new.replace(&self.path) {
            Ok(new) => self.file = Some(Box::new(new)),
            Err(error) => {
                self.file = self.reopen(directory);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Opens the file in its place, unless it is another one than the file that was closed.
    fn reopen(&self, directory: &Directory) -> Option<Box<dyn RecordFile>> {
        let mut file = open_existing(&self.path).ok()??;
        // The confirmation covers all records, because each check covers the record before.
        let expected = self.header.confirmed_header(self.end);
        let mut found = Zeroizing::new(vec![0; expected.len()]);
        file.read_exact(&mut found).ok()?;
        let is_same = *found == *expected && file.metadata().ok()?.len() >= self.end.offset();
        // A network file system may have renamed the new file although it reported an error.
        directory.sync().ok()?;
        is_same.then_some(Box::new(file))
    }

    /// Copies the number of confirmed records to the lock file.
    fn remember(&mut self) {
        self.lock.remember(self.header.lock_mark(self.header.number_of(self.end)));
    }

    fn warn_once(&mut self, error: &io::Error) -> JournalError {
        if !self.has_warned {
            self.has_warned = true;
            warn!(path = %self.path.display(), %error, "the history file cannot be written");
        }
        JournalError
    }
}

fn warn_of_expired_records(path: &Path, error: &io::Error) {
    let path = path.display();
    warn!(%path, %error, "the history file cannot be rewritten without its expired records; it is used as it is");
}

impl Disk for HistoryFile {
    fn store(&mut self, records: &[UsedToken]) -> Result<(), JournalError> {
        self.try_store(records).map_err(|error| self.warn_once(&error))?;
        self.has_warned = false;
        Ok(())
    }

    fn tidy(&mut self) {
        if self.appended >= MAX_APPENDED {
            // If this fails before the rename, the old file is still complete and in place.
            let outcome = self.rewrite(&[]);
            if let Err(error) = outcome {
                self.warn_once(&error);
            } else {
                self.remember();
            }
        }
    }
}

impl ParsedHistory {
    fn origin(&self, mark: Option<LockMark>, today: UnixSeconds) -> HistoryOrigin {
        let next = self.header.number_of(self.end);
        let is_older_copy =
            mark.is_some_and(|mark| mark.confirmed > next || mark != self.header.lock_mark(mark.confirmed));
        let newest = self.header.since.max(self.header.dropped_until);
        if newest.0.saturating_sub(today.0) > MAX_AHEAD {
            HistoryOrigin::ClockWasAhead
        } else if is_older_copy || self.remains == Remains::Shortened {
            HistoryOrigin::Shortened
        } else if self.header.dropped_until > today {
            HistoryOrigin::ClockSteppedBack
        } else {
            HistoryOrigin::Continued
        }
    }

    /// Returns whether records can be appended to the file without rewriting it.
    fn is_usable_as_it_is(&self, origin: HistoryOrigin) -> bool {
        (origin, self.torn_bytes, self.version) == (HistoryOrigin::Continued, 0, FormatVersion::Chained)
    }

    fn warn_of_losses(&self, path: &Path, origin: HistoryOrigin, mark: Option<LockMark>) {
        let bytes = self.torn_bytes;
        if bytes > 0 {
            warn!(path = %path.display(), bytes, "the history file ended in a torn record, which is cut off");
        }
        if origin == HistoryOrigin::Shortened {
            match mark {
                Some(LockMark::UNKNOWN) => warn_of_missing_lock(path),
                _ => warn_of_shortened(path),
            }
        }
        if origin == HistoryOrigin::ClockWasAhead {
            warn!(
                path = %path.display(),
                "the wall clock was far ahead when the history file was written, or it is behind now; this start \
                 therefore refuses all tokens from before it; set the clock by the network (NTP)"
            );
        }
        if origin == HistoryOrigin::ClockSteppedBack {
            let until = self.header.dropped_until.0;
            warn!(
                path = %path.display(),
                unix_seconds = until,
                "the wall clock was stepped back since used tokens of the history file were dropped as expired; this \
                 start refuses tokens from before the latest expiry that was dropped (unix_seconds); set the clock by \
                 the network (NTP)"
            );
        }
    }
}

fn warn_of_shortened(path: &Path) {
    let path = path.display();
    warn!(
        %path,
        "the history file lacks used tokens: it or its end was lost, or it is an older copy; this start therefore \
         refuses all tokens from before it"
    );
}

fn warn_of_missing_lock(path: &Path) {
    let path = path.display();
    warn!(
        %path,
        "the lock file beside the history file was missing, so the history file may be an older copy; this start \
         therefore refuses all tokens from before it"
    );
}

/// Returns the second after the present one.
const fn after(today: UnixSeconds) -> UnixSeconds {
    UnixSeconds(today.0.saturating_add(1))
}

fn read(mut file: &File) -> Result<Zeroizing<Vec<u8>>, HistoryFileError> {
    let length = file.metadata()?.len();
    if length > HEADER_BYTES as u64 + MAX_RECORDS * RECORD_BYTES as u64 {
        return Err(HistoryFileError::TooLarge);
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns tokens that a start has read at this time, which is zero by the monotonic clock of the file.
fn stored(used: Vec<UsedToken>, today: UnixSeconds) -> Vec<StoredToken> {
    let now = Now { unix: today.into(), ..Now::default() };
    used.into_iter().map(|used| StoredToken::new(used, now)).collect()
}

/// Removes what has expired. Returns the latest expiry that was removed, or 0.
fn take_expired<T>(
    used: &mut Vec<T>,
    has_expired: impl Fn(&T) -> bool,
    expiry: impl Fn(&T) -> UnixSeconds,
) -> UnixSeconds {
    let mut latest = UnixSeconds(0);
    used.retain(|used| {
        let is_kept = !has_expired(used);
        if !is_kept {
            latest = latest.max(expiry(used));
        }
        is_kept
    });
    latest
}

/// Writes a whole file beside the old one at a start, and returns it with the end of its records. `present` are the
/// files that must belong to the same user.
fn write_first(
    path: &Path,
    header: &HistoryHeader,
    used: impl ExactSizeIterator<Item = UsedToken>,
    present: &[&File],
) -> Result<(NewFile, ChainEnd), HistoryFileError> {
    // An empty file needs no room on the disk, but it needs an inode.
    let new = NewFile::create(path);
    require_owners(path, new.as_ref().ok(), present)?;
    let mut new = new?;
    let end = write_all(&mut new, header, used)?;
    Ok((new, end))
}

/// Writes the content of a whole file. Returns the end of its records.
fn write_all(
    new: &mut NewFile,
    header: &HistoryHeader,
    used: impl ExactSizeIterator<Item = UsedToken>,
) -> io::Result<ChainEnd> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER_BYTES + used.len() * RECORD_BYTES));
    let end = header.emit(used, &mut bytes);
    new.write(&bytes)?;
    Ok(end)
}

#[cfg(test)]
mod tests;
