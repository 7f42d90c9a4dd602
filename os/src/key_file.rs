//! Reading private keys: from a file that only its owner can read, or from text of the same form.
//!
//! ```text
//! # newest first; a line that starts with # is a comment
//! 5f3c…64 hexadecimal digits…9a
//! 0b77…64 hexadecimal digits…12
//! ```
//!
//! Servers and issuers use it. Writing such a file is the command line's.

use core::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use slipgate_netcode::crypto::key::{Key, KeyRing, MAX_PRIVATE_KEYS};
use zeroize::Zeroizing;

use crate::redact::redact;

/// The most bytes of a key file: three keys and a page of comments.
pub const MAX_KEY_FILE_BYTES: u64 = 4096;

/// Reads 1 to 3 private keys, newest first.
///
/// On Unix the file must be closed to group and others (mode 0600 or 0400). The mode is asked of the opened file, so
/// that nobody can swap it in between. What was read is wiped from memory.
///
/// # Errors
/// The file cannot be read, others can read it, or it holds something else than keys. No error shows any content.
pub fn read_key_file(path: impl AsRef<Path>) -> Result<KeyRing, KeyFileError> {
    let path = path.as_ref();
    let problem = |problem| KeyFileError { path: path.into(), problem };
    read(path).and_then(|text| parse_keys(&text).map_err(Problem::Keys)).map_err(problem)
}

fn read(path: &Path) -> Result<Zeroizing<String>, Problem> {
    // Opening a pipe would wait for its writer, so the kind is asked first; the mode is asked of the open file.
    refuse_other_kinds(&std::fs::metadata(path).map_err(Problem::Unreadable)?)?;
    let file = File::open(path).map_err(Problem::Unreadable)?;
    let metadata = file.metadata().map_err(Problem::Unreadable)?;
    refuse_other_kinds(&metadata)?;
    refuse_exposed(&metadata)?;
    // Room for all of it at once: a growing buffer would leave copies behind that nobody wipes.
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_KEY_FILE_BYTES as usize + 1));
    file.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(Problem::Unreadable)?;
    if bytes.len() as u64 > MAX_KEY_FILE_BYTES {
        return Err(Problem::TooLong);
    }
    let text = core::str::from_utf8(&bytes).map_err(|_| Problem::NotText)?;
    Ok(Zeroizing::new(text.to_owned()))
}

fn refuse_other_kinds(metadata: &Metadata) -> Result<(), Problem> {
    if metadata.is_file() { Ok(()) } else { Err(Problem::NotAFile) }
}

#[cfg(unix)]
fn refuse_exposed(metadata: &Metadata) -> Result<(), Problem> {
    use std::os::unix::fs::MetadataExt;
    match metadata.mode() & 0o7777 {
        mode if mode & 0o077 == 0 => Ok(()),
        mode => Err(Problem::Exposed { mode }),
    }
}

#[cfg(not(unix))]
fn refuse_exposed(_: &Metadata) -> Result<(), Problem> {
    Ok(())
}

/// Reads 1 to 3 private keys from the text of a key file: one key of 64 hexadecimal digits a line, newest first.
///
/// Empty lines and lines that start with `#` are skipped. Keys that come in an environment variable may be separated
/// by commas instead.
///
/// # Errors
/// A line is not a key, or there are none or more than three. No error shows any content.
pub fn parse_keys(text: &str) -> Result<KeyRing, KeyTextError> {
    let mut keys = Vec::with_capacity(MAX_PRIVATE_KEYS);
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with('#') {
            continue;
        }
        for entry in line.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if keys.len() == MAX_PRIVATE_KEYS {
                return Err(KeyTextError::TooMany);
            }
            keys.push(Key::from_hex(entry).ok_or(KeyTextError::NotAKey { line: index + 1 })?);
        }
    }
    KeyRing::new(&keys).ok_or(KeyTextError::Empty)
}

/// Why text holds no private keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyTextError {
    /// There is no key in it.
    Empty,
    /// There are more than three.
    TooMany,
    /// This line, counted from 1, is not a key.
    NotAKey {
        /// Counted from 1.
        line: usize,
    },
}

impl fmt::Display for KeyTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no key in it"),
            Self::TooMany => write!(f, "there are more than {MAX_PRIVATE_KEYS} keys in it"),
            Self::NotAKey { line } => write!(f, "line {line} is not a key of 64 hexadecimal digits"),
        }
    }
}

impl core::error::Error for KeyTextError {}

/// Why a key file was not taken. It names the file and never its content, nor a key that stands where the file's path
/// belongs.
pub struct KeyFileError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
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
    /// The file, as it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn shown(&self) -> String {
        redact(&self.path.to_string_lossy())
    }
}

impl fmt::Debug for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFileError").field("path", &self.shown()).field("problem", &self.problem).finish()
    }
}

impl fmt::Display for KeyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.shown();
        match &self.problem {
            Problem::Unreadable(error) => write!(f, "the key file {path} cannot be read: {error}"),
            Problem::NotAFile => write!(f, "the key file {path} is not a regular file"),
            Problem::Exposed { mode } => {
                write!(f, "the key file {path} is open to other users (mode {mode:04o}): run `chmod 600 {path}`")
            }
            Problem::TooLong => write!(f, "the key file {path} is longer than {MAX_KEY_FILE_BYTES} bytes"),
            Problem::NotText => write!(f, "the key file {path} is not text"),
            Problem::Keys(error) => write!(f, "the key file {path} is of no use: {error}"),
        }
    }
}

impl core::error::Error for KeyFileError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.problem {
            Problem::Unreadable(error) => Some(error),
            Problem::Keys(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
