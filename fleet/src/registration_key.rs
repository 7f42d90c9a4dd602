//! The API key of a server.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use slipgate_os::key_file::{KeyFileError, read_secret_file};
use zeroize::Zeroizing;

use crate::population::lock;

/// The API key with which a server registers. Clones are handles to the same key. It is wiped when dropped, and no
/// output shows it.
#[derive(Clone)]
pub struct RegistrationKey(Arc<Mutex<Arc<Zeroizing<String>>>>);

impl RegistrationKey {
    /// Reads the key from a file that only its owner can read. White space around it is ignored.
    ///
    /// # Errors
    /// - [`RegistrationKeyError::File`]: the file cannot be read, or others can read it.
    /// - [`RegistrationKeyError::Invalid`]: the content is not one word of visible ASCII characters.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, RegistrationKeyError> {
        Ok(Self(Arc::new(Mutex::new(read(path.as_ref())?))))
    }

    /// Replaces the key by that of a file, for all clones: the next request to the issuer has it.
    ///
    /// # Errors
    /// As [`read`](Self::read); the present key stays.
    pub fn reload(&self, path: impl AsRef<Path>) -> Result<(), RegistrationKeyError> {
        let key = read(path.as_ref())?;
        *lock(&self.0) = key;
        Ok(())
    }

    pub(crate) fn expose(&self) -> Arc<Zeroizing<String>> {
        Arc::clone(&lock(&self.0))
    }
}

fn read(path: &Path) -> Result<Arc<Zeroizing<String>>, RegistrationKeyError> {
    let text = read_secret_file(path).map_err(RegistrationKeyError::File)?;
    let key = text.trim();
    let is_valid = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(Arc::new(Zeroizing::new(key.to_owned()))) } else { Err(RegistrationKeyError::Invalid) }
}

impl fmt::Debug for RegistrationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistrationKey(..)")
    }
}

/// Why a key was refused. It never shows the content of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegistrationKeyError {
    /// The file cannot be read, or others can read it.
    File(KeyFileError),
    /// The content is not one word of visible ASCII characters.
    Invalid,
}

impl fmt::Display for RegistrationKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Invalid => f.write_str("the file must hold one API key of visible ASCII characters"),
        }
    }
}

impl std::error::Error for RegistrationKeyError {}
