//! Where the private keys come from: flag, else environment, else file. Never from the command line itself, which
//! every user of a machine can read.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use slipgate_netcode::crypto::key::KeyRing;
use zeroize::Zeroizing;

use super::Failure;
use slipgate_os::key_file::{KeyFileError, KeyTextError, parse_keys, read_key_file};

/// The environment variable that may hold the keys themselves.
pub const KEY_VARIABLE: &str = "SLIPGATE_PRIVATE_KEY";

/// Where a program's private keys come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// A key file; it may be read anew.
    File(PathBuf),
    /// The environment, which never changes while the program runs.
    Variable,
}

impl KeySource {
    /// The highest layer that names one. `key_file` must be the name of clap's argument for the flag.
    ///
    /// # Errors
    /// No layer does, or the environment does twice.
    pub fn choose(
        matches: &ArgMatches,
        flag_or_variable: Option<PathBuf>,
        file: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let by_flag = matches.value_source("key_file") == Some(ValueSource::CommandLine);
        let in_variable = env::var_os(KEY_VARIABLE).is_some();
        match (flag_or_variable, file) {
            (Some(path), _) if by_flag || !in_variable => Ok(Self::File(path)),
            (Some(_), _) => {
                let sentence = format!("SLIPGATE_KEY_FILE and {KEY_VARIABLE} are both set: unset one of them");
                Err(Failure::usage(sentence))
            }
            (None, _) if in_variable => Ok(Self::Variable),
            (None, Some(path)) => Ok(Self::File(path)),
            (None, None) => Err(missing()),
        }
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// See [`KeySourceError`].
    pub fn read(&self) -> Result<KeyRing, KeySourceError> {
        match self {
            Self::File(path) => read_key_file(path).map_err(KeySourceError::File),
            Self::Variable => from_variable(),
        }
    }

    /// The file, if the keys come from one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Variable => None,
        }
    }
}

fn from_variable() -> Result<KeyRing, KeySourceError> {
    // The error itself would hold what was set.
    let text = env::var(KEY_VARIABLE).map_err(|_| KeySourceError::VariableIsNotText)?;
    parse_keys(&Zeroizing::new(text)).map_err(KeySourceError::Variable)
}

fn missing() -> Failure {
    let sentence = "no private key is configured: name a file by --key-file (`slipgate keygen` makes one), or set \
                    SLIPGATE_PRIVATE_KEY";
    Failure::usage(sentence)
}

/// Why there are no keys where they should be. No error shows any content.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeySourceError {
    /// The file was not taken.
    File(KeyFileError),
    /// The environment variable is not text.
    VariableIsNotText,
    /// The environment variable does not hold keys.
    Variable(KeyTextError),
}

impl fmt::Display for KeySourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::VariableIsNotText => write!(f, "the environment variable {KEY_VARIABLE} is not text"),
            Self::Variable(error) => write!(f, "the environment variable {KEY_VARIABLE} is of no use: {error}"),
        }
    }
}

impl std::error::Error for KeySourceError {}

impl From<KeySourceError> for Failure {
    fn from(error: KeySourceError) -> Self {
        Self::usage(error.to_string())
    }
}
