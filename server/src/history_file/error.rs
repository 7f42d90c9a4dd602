//! Why a history file could not be opened.

use std::fmt;
use std::io;

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
    /// The path of the file or of its lock is a symbolic link.
    IsLink,
    /// The file is not a history file.
    NotAHistory,
    /// The file beside it with the name of its lock has another content.
    NotALock,
    /// The file is damaged at this byte, and not by a crash.
    Damaged(u64),
    /// The file has more than 16 million records.
    TooLarge,
    /// Other users may access the file or its lock.
    ExposedFile {
        /// The permission bits.
        mode: u32,
    },
    /// Other users may replace files of the directory, because it is writable for them and not sticky.
    SharedDirectory {
        /// The permission bits.
        mode: u32,
    },
    /// The file or its lock belongs to another user than the server.
    OtherOwner {
        /// The number of that user.
        uid: u32,
    },
}

impl fmt::Display for HistoryFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Locked => f.write_str("another server uses this history file"),
            Self::NotAFile => f.write_str("it is not a regular file"),
            Self::IsLink => f.write_str("it or its .lock is a symbolic link; name the file itself"),
            Self::NotAHistory => f.write_str("this is not a token history file"),
            Self::NotALock => f.write_str("the file of the same name with .lock is not the lock of a history file"),
            Self::Damaged(offset) => write!(
                f,
                "the history file is damaged at byte {offset}; move it away to start with a new one, which refuses \
                 tokens from before the start"
            ),
            Self::TooLarge => f.write_str("the history file is too large"),
            Self::ExposedFile { mode } => {
                write!(f, "other users may access it or its .lock (mode {mode:04o}); set the mode of both to 0600")
            }
            Self::SharedDirectory { mode } => write!(
                f,
                "every user may replace files of its directory (mode {mode:04o}); use one that only the server's user \
                 can write to"
            ),
            Self::OtherOwner { uid } => write!(f, "it or its .lock belongs to another user than this server ({uid})"),
        }
    }
}

impl std::error::Error for HistoryFileError {}

impl From<io::Error> for HistoryFileError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
