//! The token history on disk: an append-only file of used tokens that survives crashes.
//!
//! ```text
//!   0        16                 48        56        64
//!   ├────────┼──────────────────┼─────────┼─────────┼──────────┬──────────┬ …
//!   │ magic  │ digest key       │ since   │ check   │ record   │ record   │
//!   └────────┴──────────────────┴─────────┴─────────┴──────────┴──────────┴ …
//!   since: the second from which on the file has every used token
//!   check: the first 8 bytes of the keyed digest of everything before it
//!   record: digest of the token's tag (16), expiry in unix seconds (8), check (8)
//! ```
//!
//! A record is written before its client gets a slot, and flushed to the disk before the client receives its first
//! packet. A crash while a record is written leaves a torn end. It is cut off with a warning: its client was never
//! connected. Other damage is not caused by a crash, so the file is refused: silently forgotten tokens could be used
//! again. The header has its own check, because it contains the key of the records' checks: otherwise one flipped bit
//! would make all records a torn end. Tokens are identified by a keyed digest of their tag. Only the owner can read the
//! file.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::journal::{Disk, SyncWork};
use slipgate_netcode::crypto::digest::{Digest, DigestKey};
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::history::{JournalError, UsedToken};
use tracing::warn;
use zeroize::Zeroizing;

const MAGIC: &[u8; 16] = b"slipgate-hist-2\n";
/// The offset of the digest key.
const DIGEST_KEY_OFFSET: u64 = 16;
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 32;
/// The maximum records of a file: 16 million unexpired tokens, 512 MiB.
const MAX_RECORDS: u64 = 1 << 24;
/// After this many new records a file is rewritten without its expired ones.
const MAX_APPENDED: u64 = 1 << 16;

/// The token history on disk, opened and locked for one server.
pub struct HistoryFile {
    path: PathBuf,
    /// Shared with a running flush.
    file: Arc<File>,
    /// Held until the server ends. A rewrite replaces the history file and would release its lock, so the lock is on a
    /// file beside it.
    _lock: File,
    header: HistoryHeader,
    check: DigestKey,
    used: Vec<UsedToken>,
    is_new: bool,
    appended: u64,
    /// After a failed write, the end of the last complete record: what follows is cut off.
    torn_at: Option<u64>,
    /// The last records may not be on the disk: a flush failed, or the directory may still name the old file. The file
    /// must be rewritten, because systems report a failed flush once and then discard the error.
    needs_full_write: bool,
    /// The current write error was logged.
    has_warned: bool,
}

/// The header of the file, which never changes.
struct HistoryHeader {
    digest_key: Zeroizing<[u8; 32]>,
    since: UnixSeconds,
}

/// Why a history file could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum HistoryFileError {
    /// The file cannot be opened, read or written.
    Io(io::Error),
    /// Another server uses the file.
    Locked,
    /// The path is a directory, a pipe or a device.
    NotAFile,
    /// The file is not a history file.
    NotAHistory,
    /// The file is damaged at this byte, and not by a crash.
    Damaged(u64),
    /// The file has more than 16 million records.
    TooLarge,
}

impl fmt::Display for HistoryFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Locked => f.write_str("another server uses this history file"),
            Self::NotAFile => f.write_str("it is not a regular file"),
            Self::NotAHistory => f.write_str("this is not a token history file"),
            Self::Damaged(offset) => write!(
                f,
                "the history file is damaged at byte {offset}; move it away to start with a new one, which refuses \
                 tokens from before the start"
            ),
            Self::TooLarge => f.write_str("the history file is too large"),
        }
    }
}

impl std::error::Error for HistoryFileError {}

impl From<io::Error> for HistoryFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl HistoryFile {
    /// Opens a history file, or creates one (mode 0600), and removes expired records.
    ///
    /// # Errors
    /// - `Io`: the file cannot be opened, read or written.
    /// - `Locked`: another server uses it.
    /// - `NotAFile`, `NotAHistory`, `TooLarge`, `Damaged`: the path does not have a valid history.
    pub fn open(path: impl AsRef<Path>, today: UnixSeconds) -> Result<Self, HistoryFileError> {
        refuse_other_kinds(path.as_ref())?;
        // A symbolic link is resolved here. Otherwise a rename would replace the link instead of the file, and two
        // paths to one file would have two locks.
        drop(open_private(path.as_ref())?);
        let path = &std::fs::canonicalize(path)?;
        let lock = lock(&beside(path, ".lock"))?;
        let mut file = open_private(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(HistoryFileError::NotAFile);
        }
        let length = metadata.len();
        if length > HEADER_BYTES as u64 + MAX_RECORDS * RECORD_BYTES as u64 {
            return Err(HistoryFileError::TooLarge);
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(length as usize));
        file.read_to_end(&mut bytes)?;
        let is_new = bytes.is_empty();
        let header = if is_new { HistoryHeader::new(today)? } else { HistoryHeader::parse(&bytes)? };
        let check = check_key(&header.digest_key);
        let mut used = parse_records(&bytes, &check)?;
        let torn = bytes.len().saturating_sub(HEADER_BYTES + used.len() * RECORD_BYTES);
        if torn > 0 {
            warn!(path = %path.display(), bytes = torn, "the history file ended in a torn record, which is cut off");
        }
        used.retain(|used| used.expires > today);
        drop(file);
        let new_file = write_new(path, &header, &check, &used)?;
        let directory = Directory::of(path)?;
        let file = new_file.replace(path)?;
        directory.sync()?;
        Ok(Self {
            path: path.into(),
            file: file.into(),
            _lock: lock,
            header,
            check,
            used,
            is_new,
            appended: 0,
            torn_at: None,
            needs_full_write: false,
            has_warned: false,
        })
    }

    /// Returns whether the file was created by this call: it does not have the tokens that were used before.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
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

    /// Returns whether there were none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Returns the digest key, and the unexpired tokens that earlier starts used.
    pub(crate) fn kept(&self) -> ([u8; 32], Vec<UsedToken>) {
        (*self.header.digest_key, self.used.clone())
    }

    fn append(&mut self, used: UsedToken) -> io::Result<()> {
        let mut file = &*self.file;
        if let Some(end) = self.torn_at {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            self.torn_at = None;
        }
        let end = file.stream_position()?;
        self.torn_at = Some(end);
        file.write_all(&record(used, &self.check))?;
        self.torn_at = None;
        Ok(())
    }

    /// Rewrites the file without the records that have expired by `today`. After the rename the new file is used, even
    /// if a later step fails.
    fn compact(&mut self, today: UnixSeconds) -> io::Result<()> {
        // After a failure it is tried again after as many records, because it writes all of them.
        self.appended = 0;
        self.used.retain(|used| used.expires > today);
        let new_file = write_new(&self.path, &self.header, &self.check, &self.used)?;
        let directory = Directory::of(&self.path)?;
        self.file = new_file.replace(&self.path)?.into();
        (self.torn_at, self.needs_full_write) = (None, true);
        directory.sync()?;
        self.needs_full_write = false;
        Ok(())
    }

    fn warn_once(&mut self, error: &io::Error) -> JournalError {
        if !self.has_warned {
            self.has_warned = true;
            warn!(path = %self.path.display(), %error, "the history file cannot be written");
        }
        JournalError
    }
}

/// A rewrite may happen while a flush runs: the new file has the same records, and is flushed before it replaces the
/// old one.
impl Disk for HistoryFile {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        self.append(used).map_err(|error| self.warn_once(&error))?;
        self.used.push(used);
        self.appended += 1;
        self.has_warned = false;
        Ok(())
    }

    fn needs_rewrite(&self) -> bool {
        self.needs_full_write || self.appended >= MAX_APPENDED
    }

    fn sync(&mut self) -> Result<SyncWork, JournalError> {
        let today = || UnixSeconds::from(slipgate_os::clock::wall_clock());
        if self.needs_full_write {
            let rewritten = self.compact(today());
            self.on_synced(rewritten)?;
            return Ok(Box::new(|| Ok(())));
        }
        if self.appended >= MAX_APPENDED {
            // If this fails before the rename, the old file is still complete and in place.
            match self.compact(today()) {
                Ok(()) => return Ok(Box::new(|| Ok(()))),
                Err(error) if self.needs_full_write => return Err(self.warn_once(&error)),
                Err(error) => drop(self.warn_once(&error)),
            }
        }
        let file = Arc::clone(&self.file);
        Ok(Box::new(move || file.sync_data()))
    }

    fn on_synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError> {
        outcome.map_err(|error| {
            self.needs_full_write = true;
            self.warn_once(&error)
        })
    }
}

/// Refuses anything but a regular file, before it is opened: opening a pipe may block, and reading a device may never
/// end.
fn refuse_other_kinds(path: &Path) -> Result<(), HistoryFileError> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(()),
        Ok(_) => Err(HistoryFileError::NotAFile),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Appends to the file name: the same directory is on the same disk, so that the file can be renamed.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn lock(path: &Path) -> Result<File, HistoryFileError> {
    let file = open_private(path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(HistoryFileError::Locked),
        Err(TryLockError::Error(error)) => Err(HistoryFileError::Io(error)),
    }
}

/// Derives the key of the checks from the digest key.
fn check_key(digest_key: &[u8; 32]) -> DigestKey {
    DigestKey::from(&DigestKey::from(digest_key).full(&[b"history file check"]))
}

fn record(used: UsedToken, check: &DigestKey) -> [u8; RECORD_BYTES] {
    let expires = used.expires.0.to_le_bytes();
    let sum = check.digest(&[&used.name.0, &expires]);
    let mut record = [0; RECORD_BYTES];
    let fields = used.name.0.iter().chain(&expires).chain(sum.0.iter());
    record.iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
    record
}

impl HistoryHeader {
    /// The current second does not count: tokens may have been used in it before the file was created.
    fn new(today: UnixSeconds) -> io::Result<Self> {
        let digest_key = Zeroizing::new(slipgate_os::entropy::bytes()?);
        Ok(Self { digest_key, since: UnixSeconds(today.0.saturating_add(1)) })
    }

    fn parse(bytes: &[u8]) -> Result<Self, HistoryFileError> {
        let (header, check) = Self::split(bytes).ok_or(HistoryFileError::NotAHistory)?;
        if header.check() == check { Ok(header) } else { Err(HistoryFileError::Damaged(DIGEST_KEY_OFFSET)) }
    }

    /// Returns the header and its stored check, if the file starts with the magic bytes.
    fn split(bytes: &[u8]) -> Option<(Self, [u8; 8])> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (digest_key, rest) = rest.split_first_chunk()?;
        let (since, rest) = rest.split_first_chunk()?;
        let header = Self { digest_key: Zeroizing::new(*digest_key), since: UnixSeconds(u64::from_le_bytes(*since)) };
        (magic == MAGIC).then_some((header, *rest.first_chunk()?))
    }

    fn check(&self) -> [u8; 8] {
        let sum = check_key(&self.digest_key).digest(&[MAGIC, self.digest_key.as_slice(), &self.since.0.to_le_bytes()]);
        let [check @ .., _, _, _, _, _, _, _, _] = sum.0;
        check
    }

    fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.digest_key.as_slice());
        bytes.extend_from_slice(&self.since.0.to_le_bytes());
        bytes.extend_from_slice(&self.check());
    }
}

fn parse_record(bytes: &[u8], check: &DigestKey) -> Option<UsedToken> {
    let (name, rest) = bytes.split_first_chunk()?;
    let used = UsedToken { name: Digest(*name), expires: UnixSeconds(u64::from_le_bytes(*rest.first_chunk()?)) };
    (record(used, check) == bytes).then_some(used)
}

/// Parses every record up to a torn end. A valid record behind an invalid one means damage, not a torn end.
fn parse_records(bytes: &[u8], check: &DigestKey) -> Result<Vec<UsedToken>, HistoryFileError> {
    let records = bytes.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
    let mut used = Vec::with_capacity(records.len());
    let mut bad = None;
    for (index, bytes) in records.enumerate() {
        match (parse_record(bytes, check), bad) {
            (Some(record), None) => used.push(record),
            (Some(_), Some(offset)) => return Err(HistoryFileError::Damaged(offset)),
            (None, _) => bad = bad.or(Some((HEADER_BYTES + index * RECORD_BYTES) as u64)),
        }
    }
    Ok(used)
}

/// A rewritten file beside the old one: a crash leaves at least one of them complete.
struct NewFile {
    path: PathBuf,
    file: File,
}

fn write_new(path: &Path, header: &HistoryHeader, check: &DigestKey, used: &[UsedToken]) -> io::Result<NewFile> {
    let path = beside(path, ".new");
    let mut file = open_private(&path)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER_BYTES + used.len() * RECORD_BYTES));
    header.emit(&mut bytes);
    for used in used {
        bytes.extend_from_slice(&record(*used, check));
    }
    file.set_len(0)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    Ok(NewFile { path, file })
}

impl NewFile {
    /// Replaces the old file, and returns the new one opened at its end.
    fn replace(self, path: &Path) -> io::Result<File> {
        std::fs::rename(&self.path, path)?;
        Ok(self.file)
    }
}

/// The directory of the file. A rename survives a power failure only after its directory was flushed. It is opened
/// before the rename, because opening it afterwards might fail for lack of file handles.
struct Directory(#[cfg_attr(not(unix), expect(dead_code, reason = "only Unix flushes directories"))] Option<File>);

impl Directory {
    #[cfg(unix)]
    fn of(path: &Path) -> io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory).map(|directory| Self(Some(directory)))
    }

    #[cfg(not(unix))]
    fn of(_: &Path) -> io::Result<Self> {
        Ok(Self(None))
    }

    #[cfg(unix)]
    fn sync(&self) -> io::Result<()> {
        self.0.as_ref().map_or(Ok(()), File::sync_all)
    }

    #[cfg(not(unix))]
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
