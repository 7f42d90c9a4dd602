//! The API key of a server.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use slipgate_os::key_file::{KeyFileError, read_secret_file};
use zeroize::Zeroizing;

/// The API key with which a server registers. It is wiped when dropped, and no output shows it.
#[derive(Clone)]
pub struct RegistrationKey(Arc<Zeroizing<String>>);

impl RegistrationKey {
    /// Reads the key from a file that only its owner can read. White space around it is ignored.
    ///
    /// # Errors
    /// The file cannot be read, or others can read it.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, KeyFileError> {
        let text = read_secret_file(path)?;
        Ok(Self(Arc::new(Zeroizing::new(text.trim().to_owned()))))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for RegistrationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RegistrationKey(..)")
    }
}
