//! Reads private keys from a file that only its owner can read, or from text of the same format.
//!
//! ```text
//! # newest first; a line that starts with # is a comment
//! 5f3c…64 hexadecimal digits…9a id=2026-12 not-before=1796083200
//! 0b77…64 hexadecimal digits…12
//! ```
//!
//! An issuer seals with a key from its `not-before` on, in seconds since 1970. Servers accept each key of the file. So
//! a new key is in the files of all servers before the first token needs it. The id is for people; each key of a file
//! has another one. A file has each key once.
//!
//! Servers and issuers read such files; the command line also writes them.

use core::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use slipgate_netcode::crypto::key::{Key, KeyRing, MAX_PRIVATE_KEYS};
use slipgate_netcode::time::UnixSeconds;
use zeroize::Zeroizing;

use crate::redact::redact;

/// The maximum size of a key file in bytes: three keys and a page of comments.
pub const MAX_KEY_FILE_BYTES: u64 = 4096;

/// Reads 1 to 3 private keys, newest first.
///
/// The file must be inaccessible to group and others on Unix (mode 0600 or 0400). The mode is read from the opened
/// file, so that the file cannot be exchanged in between. The buffers are wiped from memory.
///
/// # Errors
/// A [`KeyFileError`] if the file cannot be read, is not a regular file, is accessible to others, is longer than
/// [`MAX_KEY_FILE_BYTES`], is not UTF-8, or holds no valid keys. No error shows any content.
pub fn read_key_file(path: impl AsRef<Path>) -> Result<KeyRing, KeyFileError> {
    let path = path.as_ref();
    let problem = |problem| KeyFileError { path: path.into(), problem };
    read(path).and_then(|text| parse_keys(&text).map_err(KeyFileProblem::Keys)).map_err(problem)
}

/// Reads the text of another file with a secret, under the same conditions. The caller checks the content.
///
/// # Errors
/// As [`read_key_file`], but for the content.
pub fn read_secret_file(path: impl AsRef<Path>) -> Result<Zeroizing<String>, KeyFileError> {
    let path = path.as_ref();
    read(path).map_err(|problem| KeyFileError { path: path.into(), problem })
}

fn read(path: &Path) -> Result<Zeroizing<String>, KeyFileProblem> {
    // Opening a pipe would block until it has a writer, so the kind is checked before. The mode is checked on the open
    // file.
    require_regular_file(&std::fs::metadata(path).map_err(KeyFileProblem::Unreadable)?)?;
    let file = File::open(path).map_err(KeyFileProblem::Unreadable)?;
    let metadata = file.metadata().map_err(KeyFileProblem::Unreadable)?;
    require_regular_file(&metadata)?;
    require_private(&metadata)?;
    // The capacity suffices from the start: a growing buffer would leave copies that are not wiped.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY_FILE_BYTES as usize + 1));
    file.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(KeyFileProblem::Unreadable)?;
    if bytes.len() as u64 > MAX_KEY_FILE_BYTES {
        return Err(KeyFileProblem::TooLong);
    }
    let text = core::str::from_utf8(&bytes).map_err(|_| KeyFileProblem::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn require_regular_file(metadata: &Metadata) -> Result<(), KeyFileProblem> {
    if metadata.is_file() { Ok(()) } else { Err(KeyFileProblem::NotAFile) }
}

#[cfg(unix)]
fn require_private(metadata: &Metadata) -> Result<(), KeyFileProblem> {
    use std::os::unix::fs::MetadataExt;
    match metadata.mode() & 0o7777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(KeyFileProblem::Exposed { mode }),
    }
}

#[cfg(not(unix))]
fn require_private(_: &Metadata) -> Result<(), KeyFileProblem> {
    Ok(())
}

/// Reads the keys of a file with their ids and times.
///
/// # Errors
/// As [`read_key_file`].
pub fn read_key_schedule(path: impl AsRef<Path>) -> Result<KeySchedule, KeyFileError> {
    let path = path.as_ref();
    let problem = |problem| KeyFileError { path: path.into(), problem };
    read(path).and_then(|text| parse_key_schedule(&text).map_err(KeyFileProblem::Keys)).map_err(problem)
}

/// Parses 1 to 3 private keys from the text of a key file: a key of 64 hexadecimal digits in each line, newest first.
///
/// Empty lines and lines that start with `#` are skipped. Commas may separate keys instead, for keys in an environment
/// variable. The attributes of keys are checked and left out.
///
/// # Errors
/// [`NotAKey`](KeyTextError::NotAKey) if a line is not a key, [`IdTwice`](KeyTextError::IdTwice) if it has the id of an
/// earlier key, [`KeyTwice`](KeyTextError::KeyTwice) if it has the key of an earlier line,
/// [`Empty`](KeyTextError::Empty) if there is no key, and [`TooMany`](KeyTextError::TooMany) for more than three. No
/// error shows any content.
pub fn parse_keys(text: &str) -> Result<KeyRing, KeyTextError> {
    parse_key_schedule(text).map(|schedule| schedule.all())
}

/// Parses keys with their ids and times.
///
/// # Errors
/// As [`parse_keys`].
pub fn parse_key_schedule(text: &str) -> Result<KeySchedule, KeyTextError> {
    let mut keys: Vec<ScheduledKey> = Vec::with_capacity(MAX_PRIVATE_KEYS);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for entry in line.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if keys.len() == MAX_PRIVATE_KEYS {
                return Err(KeyTextError::TooMany);
            }
            let key = parse_key(entry).ok_or(KeyTextError::NotAKey { line: index + 1 })?;
            if key.id.is_some() && keys.iter().any(|earlier| earlier.id == key.id) {
                return Err(KeyTextError::IdTwice { line: index + 1 });
            }
            if keys.iter().any(|earlier| earlier.key == key.key) {
                return Err(KeyTextError::KeyTwice { line: index + 1 });
            }
            keys.push(key);
        }
    }
    if keys.is_empty() { Err(KeyTextError::Empty) } else { Ok(KeySchedule { keys }) }
}

fn parse_key(entry: &str) -> Option<ScheduledKey> {
    let mut words = entry.split_whitespace();
    let mut parsed = ScheduledKey { key: words.next()?.parse().ok()?, id: None, not_before: UnixSeconds(0) };
    for word in words {
        match word.split_once('=')? {
            ("id", id) if (1..=MAX_ID_BYTES).contains(&id.len()) => parsed.id = Some(id.to_owned()),
            ("not-before", seconds) => parsed.not_before = UnixSeconds(seconds.parse().ok()?),
            _ => return None,
        }
    }
    Some(parsed)
}

/// The maximum length of a key's id, in bytes.
const MAX_ID_BYTES: usize = 64;

/// A private key, its id, and when issuers may begin to seal with it. It has no `Debug`.
#[derive(Clone)]
pub struct ScheduledKey {
    key: Key,
    id: Option<String>,
    not_before: UnixSeconds,
}

impl ScheduledKey {
    /// Creates a key with a name for people, with which issuers seal from this time on.
    #[must_use]
    pub const fn new(key: Key, id: String, not_before: UnixSeconds) -> Self {
        Self { key, id: Some(id), not_before }
    }

    /// Returns the key.
    #[must_use]
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Returns the name for people, if it has one.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the time from which issuers seal with the key.
    #[must_use]
    pub const fn not_before(&self) -> UnixSeconds {
        self.not_before
    }
}

/// The keys of a file, newest first: 1 to 3. It has no `Debug`.
#[derive(Clone)]
pub struct KeySchedule {
    keys: Vec<ScheduledKey>,
}

impl KeySchedule {
    /// Returns the keys with their ids and times, newest first.
    #[must_use]
    pub fn keys(&self) -> &[ScheduledKey] {
        &self.keys
    }

    /// Returns all keys, newest first, as servers accept them.
    #[must_use]
    pub fn all(&self) -> KeyRing {
        ring(self.keys.iter())
    }

    /// Returns the index of the key with which issuers seal at this time: the newest one that may. If none may yet, it
    /// is the oldest.
    #[must_use]
    pub fn sealing_index(&self, now: UnixSeconds) -> usize {
        self.keys.iter().position(|key| key.not_before <= now).unwrap_or(self.keys.len() - 1)
    }

    /// Returns all keys, with the one first that [seals](Self::sealing_index) at this time, as an issuer needs them.
    #[must_use]
    pub fn at(&self, now: UnixSeconds) -> KeyRing {
        let sealing = self.sealing_index(now);
        let others = self.keys.iter().enumerate().filter(|(index, _)| *index != sealing).map(|(_, key)| key);
        ring(self.keys.iter().skip(sealing).take(1).chain(others))
    }

    /// Returns the next time at which another key seals, if there is one.
    #[must_use]
    pub fn next_change(&self, now: UnixSeconds) -> Option<UnixSeconds> {
        self.keys.iter().map(|key| key.not_before).filter(|not_before| *not_before > now).min()
    }
}

fn ring<'a>(keys: impl Iterator<Item = &'a ScheduledKey>) -> KeyRing {
    let keys: Vec<Key> = keys.map(|key| key.key.clone()).collect();
    KeyRing::new(&keys).expect("a schedule has 1 to 3 keys")
}

/// The reason why a text holds no valid private keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyTextError {
    /// The text holds no key.
    Empty,
    /// The text holds more than three keys.
    TooMany,
    /// A line is not a key.
    NotAKey {
        /// The line number, from 1.
        line: usize,
    },
    /// A key has the id of an earlier one.
    IdTwice {
        /// The line number of the later one, from 1.
        line: usize,
    },
    /// A key is the same as an earlier one.
    KeyTwice {
        /// The line number of the later one, from 1.
        line: usize,
    },
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it holds no key"),
            Self::TooMany => write!(f, "it holds more than {MAX_PRIVATE_KEYS} keys"),
            Self::NotAKey { line } => write!(f, "line {line} is not a key of 64 hexadecimal digits"),
            Self::IdTwice { line } => {
                write!(f, "line {line} has the id of an earlier key: give each key an id of its own")
            }
            Self::KeyTwice { line } => write!(f, "line {line} has the key of an earlier line: remove one of them"),
        }
    }
}

impl core::error::Error for KeyTextError {}

/// The reason why a key file was refused. It names the file but never shows its content, nor a key that was given in
/// place of the path.
pub struct KeyFileError {
    path: PathBuf,
    problem: KeyFileProblem,
}

#[derive(Debug)]
enum KeyFileProblem {
    Unreadable(io::Error),
    NotAFile,
    #[cfg_attr(not(unix), expect(dead_code, reason = "only Unix has modes"))]
    Exposed {
        mode: u32,
    },
    TooLong,
    NotText,
    Keys(KeyTextError),
}

impl KeyFileError {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn redacted_path(&self) -> String {
        redact(&self.path.to_string_lossy())
    }
}

impl fmt::Debug for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFileError").field("path", &self.redacted_path()).field("problem", &self.problem).finish()
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.redacted_path();
        match &self.problem {
            KeyFileProblem::Unreadable(error) => write!(f, "the key file {path} cannot be read: {error}"),
            KeyFileProblem::NotAFile => write!(f, "the key file {path} is not a regular file"),
            KeyFileProblem::Exposed { mode } => {
                write!(f, "the key file {path} is accessible to other users (mode {mode:04o}): run `chmod 600 {path}`")
            }
            KeyFileProblem::TooLong => write!(f, "the key file {path} is longer than {MAX_KEY_FILE_BYTES} bytes"),
            KeyFileProblem::NotText => write!(f, "the key file {path} is not text"),
            KeyFileProblem::Keys(error) => write!(f, "the key file {path} is invalid: {error}"),
        }
    }
}

impl core::error::Error for KeyFileError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.problem {
            KeyFileProblem::Unreadable(error) => Some(error),
            KeyFileProblem::Keys(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
