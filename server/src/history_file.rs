//! The token history on disk: an append-only file of used tokens that survives crashes.
//!
//! ```text
//!   0        16                 48        56        64
//!   ├────────┼──────────────────┼─────────┼─────────┼──────────┬──────────┬ …
//!   │ magic  │ key of the names │ since   │ check   │ record   │ record   │
//!   └────────┴──────────────────┴─────────┴─────────┴──────────┴──────────┴ …
//!   since: the second from which on the file knows of every token used
//!   check: keyed digest of all that stands before it, its first 8 bytes
//!   record: digest of the token's tag (16), expiry in unix seconds (8), check (8)
//! ```
//!
//! A record is written before its client gets a slot, and flushed to the disk before the first packet tells the client.
//! A crash in the middle of a record leaves a torn end, which is cut off with a warning: its client was never told.
//! Damage elsewhere is no crash of ours, and the file is refused instead of forgetting tokens in silence. The header has
//! a check of its own, because the records' checks are keyed by it: without, a bit of it would make all of them a torn
//! end. Tags are named by a keyed digest, and the file is its owner's alone.

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
/// Where the header goes on behind its magic.
const NAMES_AT: u64 = 16;
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 32;
/// The most records that a file may hold: 16 million unexpired tokens, half a gibibyte.
const MAX_RECORDS: u64 = 1 << 24;
/// A file is written anew without its expired records when it has grown by so many.
const COMPACT_AFTER: u64 = 1 << 16;

/// The token history on disk, opened and locked for one server.
pub struct HistoryFile {
    path: PathBuf,
    /// Shared with a flush that is under way.
    file: Arc<File>,
    /// Held for as long as the server lives. The history itself is replaced when it is written anew, and its lock with
    /// it, so a file beside it is locked.
    _lock: File,
    header: Header,
    check: DigestKey,
    used: Vec<UsedToken>,
    is_new: bool,
    appended: u64,
    /// A write failed: where the last whole record ends, to cut off what may stand behind it.
    torn_at: Option<u64>,
    /// What was written last may not be on the disk: a flush failed, or the directory may still name the old file. Only
    /// writing the file anew can tell, because systems report a failed flush once and forget it.
    doubtful: bool,
    told: bool,
}

/// What stands at the beginning of the file, for as long as it lives.
struct Header {
    names: Zeroizing<[u8; 32]>,
    since: UnixSeconds,
}

/// Why a history file was not opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum HistoryFileError {
    /// It cannot be opened, read or written.
    Io(io::Error),
    /// Another server uses it.
    Locked,
    /// It is a directory, a pipe or a device.
    NotAFile,
    /// It is no history file.
    Foreign,
    /// It is damaged at this byte, and not by a crash of ours.
    Damaged(u64),
    /// It is larger than a history may be.
    TooLarge,
}

impl fmt::Display for HistoryFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Locked => f.write_str("another server uses this history file"),
            Self::NotAFile => f.write_str("it is not a regular file"),
            Self::Foreign => f.write_str("this is not a token history file"),
            Self::Damaged(at) => write!(
                f,
                "the history file is damaged at byte {at}; move it away to start with a new one, which refuses tokens \
                 from before the start"
            ),
            Self::TooLarge => f.write_str("the history file is larger than a history may be"),
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
    /// Opens a history file, or makes a new one (mode 0600), and drops what has expired.
    ///
    /// # Errors
    /// See [`HistoryFileError`].
    pub fn open(path: impl AsRef<Path>, today: UnixSeconds) -> Result<Self, HistoryFileError> {
        refuse_other_kinds(path.as_ref())?;
        // A link is followed once and for all: renaming over it would leave the file behind it as it was, and two paths
        // to one file would have two locks.
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
        let header = if is_new { Header::new(today)? } else { Header::parse(&bytes)? };
        let check = check_key(&header.names);
        let mut used = parse_records(&bytes, &check)?;
        let torn = bytes.len().saturating_sub(HEADER_BYTES + used.len() * RECORD_BYTES);
        if torn > 0 {
            warn!(path = %path.display(), bytes = torn, "the history file ended in a torn record, which is cut off");
        }
        used.retain(|used| used.expires > today);
        drop(file);
        let fresh = write_fresh(path, &header, &check, &used)?;
        let directory = Directory::of(path)?;
        let file = fresh.put_in_place(path)?;
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
            doubtful: false,
            told: false,
        })
    }

    /// Whether the file was made just now: what was used before it existed is not in it.
    #[must_use]
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// From when on it knows of every token used.
    #[must_use]
    pub const fn since(&self) -> UnixSeconds {
        self.header.since
    }

    /// How many used, unexpired tokens it holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// The key of the names, and the unexpired tokens that earlier starts used.
    pub(crate) fn kept(&self) -> ([u8; 32], Vec<UsedToken>) {
        (*self.header.names, self.used.clone())
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

    /// Writes the file anew without what has expired by `today`. From the rename on the new file is the one to write to,
    /// whatever fails behind it.
    fn compact(&mut self, today: UnixSeconds) -> io::Result<()> {
        // Tried again after as many records more, not at each: it writes them all.
        self.appended = 0;
        self.used.retain(|used| used.expires > today);
        let fresh = write_fresh(&self.path, &self.header, &self.check, &self.used)?;
        let directory = Directory::of(&self.path)?;
        self.file = fresh.put_in_place(&self.path)?.into();
        (self.torn_at, self.doubtful) = (None, true);
        directory.sync()?;
        self.doubtful = false;
        Ok(())
    }

    fn tell(&mut self, error: &io::Error) -> JournalError {
        if !self.told {
            self.told = true;
            warn!(path = %self.path.display(), %error, "the history file cannot be written");
        }
        JournalError
    }
}

/// The file may be written anew while it is flushed: then what was recorded before is in the new one, too, which was
/// flushed before it took the old one's place.
impl Disk for HistoryFile {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        self.append(used).map_err(|error| self.tell(&error))?;
        self.used.push(used);
        self.appended += 1;
        self.told = false;
        Ok(())
    }

    fn is_due_for_more(&self) -> bool {
        self.doubtful || self.appended >= COMPACT_AFTER
    }

    fn sync(&mut self) -> Result<SyncWork, JournalError> {
        let today = || slipgate_os::clock::wall_clock().seconds();
        if self.doubtful {
            let anew = self.compact(today());
            self.synced(anew)?;
            return Ok(Box::new(|| Ok(())));
        }
        if self.appended >= COMPACT_AFTER {
            // If this fails, the file that is there serves on, unless it is not known which one that is.
            match self.compact(today()) {
                Ok(()) => return Ok(Box::new(|| Ok(()))),
                Err(error) if self.doubtful => return Err(self.tell(&error)),
                Err(error) => drop(self.tell(&error)),
            }
        }
        let file = Arc::clone(&self.file);
        Ok(Box::new(move || file.sync_data()))
    }

    fn synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError> {
        outcome.map_err(|error| {
            self.doubtful = true;
            self.tell(&error)
        })
    }
}

/// Opening a pipe may wait for its other end, and a device may be read without end, so the kind is asked first.
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

/// A file name with something added: on the same disk, so that it can be renamed.
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

/// The key of the checks: another one than that of the names.
fn check_key(names: &[u8; 32]) -> DigestKey {
    DigestKey::new(&DigestKey::new(names).full(&[b"history file check"]))
}

fn record(used: UsedToken, check: &DigestKey) -> [u8; RECORD_BYTES] {
    let expires = used.expires.0.to_le_bytes();
    let sum = check.digest(&[&used.name.0, &expires]);
    let mut record = [0; RECORD_BYTES];
    let fields = used.name.0.iter().chain(&expires).chain(sum.0.iter());
    record.iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
    record
}

impl Header {
    /// The second that has begun already may have seen tokens used before the file was there.
    fn new(today: UnixSeconds) -> io::Result<Self> {
        let names = Zeroizing::new(slipgate_os::entropy::bytes()?);
        Ok(Self { names, since: UnixSeconds(today.0.saturating_add(1)) })
    }

    fn parse(bytes: &[u8]) -> Result<Self, HistoryFileError> {
        let (header, check) = Self::split(bytes).ok_or(HistoryFileError::Foreign)?;
        if header.check() == check { Ok(header) } else { Err(HistoryFileError::Damaged(NAMES_AT)) }
    }

    /// The header and what stands as its check, if the file begins as ours do.
    fn split(bytes: &[u8]) -> Option<(Self, [u8; 8])> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (names, rest) = rest.split_first_chunk()?;
        let (since, rest) = rest.split_first_chunk()?;
        let header = Self { names: Zeroizing::new(*names), since: UnixSeconds(u64::from_le_bytes(*since)) };
        (magic == MAGIC).then_some((header, *rest.first_chunk()?))
    }

    fn check(&self) -> [u8; 8] {
        let sum = check_key(&self.names).digest(&[MAGIC, self.names.as_slice(), &self.since.0.to_le_bytes()]);
        let [check @ .., _, _, _, _, _, _, _, _] = sum.0;
        check
    }

    fn emit(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(self.names.as_slice());
        bytes.extend_from_slice(&self.since.0.to_le_bytes());
        bytes.extend_from_slice(&self.check());
    }
}

fn parse_record(bytes: &[u8], check: &DigestKey) -> Option<UsedToken> {
    let (name, rest) = bytes.split_first_chunk()?;
    let used = UsedToken { name: Digest(*name), expires: UnixSeconds(u64::from_le_bytes(*rest.first_chunk()?)) };
    (record(used, check) == bytes).then_some(used)
}

/// Every record up to a torn end. Whole records behind a bad one are no torn end.
fn parse_records(bytes: &[u8], check: &DigestKey) -> Result<Vec<UsedToken>, HistoryFileError> {
    let records = bytes.get(HEADER_BYTES..).unwrap_or_default().chunks_exact(RECORD_BYTES);
    let mut used = Vec::with_capacity(records.len());
    let mut bad = None;
    for (index, bytes) in records.enumerate() {
        match (parse_record(bytes, check), bad) {
            (Some(record), None) => used.push(record),
            (Some(_), Some(at)) => return Err(HistoryFileError::Damaged(at)),
            (None, _) => bad = bad.or(Some((HEADER_BYTES + index * RECORD_BYTES) as u64)),
        }
    }
    Ok(used)
}

/// The file written anew beside the old one, so that a crash leaves either of them whole.
struct Fresh {
    path: PathBuf,
    file: File,
}

fn write_fresh(path: &Path, header: &Header, check: &DigestKey, used: &[UsedToken]) -> io::Result<Fresh> {
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
    Ok(Fresh { path, file })
}

impl Fresh {
    /// Takes the old file's place; the file is answered, opened at its end.
    fn put_in_place(self, path: &Path) -> io::Result<File> {
        std::fs::rename(&self.path, path)?;
        Ok(self.file)
    }
}

/// A renamed file is there after a power cut only when its directory was flushed. It is opened before the rename, so
/// that nothing behind the rename needs a file handle that may not be had.
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
