//! Sources of the private keys: flag, else environment, else configuration file.
//!
//! A key is never given on the command line itself, because every user of a machine can read command lines.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use slipgate_netcode::crypto::key::{KeyFingerprint, KeyRing};
use zeroize::Zeroizing;

use super::Failure;
use slipgate_os::key_file::{
    KeyFileError, KeySchedule, KeyTextError, parse_key_schedule, read_key_file, read_key_schedule,
};

/// The environment variable that may hold the keys, separated by commas.
pub const KEY_VARIABLE: &str = "SLIPGATE_PRIVATE_KEY";

/// The source of a program's private keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeySource {
    /// A key file, which SIGHUP reads again.
    File(PathBuf),
    /// The environment variable, which cannot change while the program runs.
    Variable,
}

impl KeySource {
    /// Returns the source with the highest precedence. clap's argument for the flag must be called `key_file`.
    ///
    /// # Errors
    /// Returns a usage failure if no source is configured, or if the environment names two.
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
                let message = format!("SLIPGATE_KEY_FILE and {KEY_VARIABLE} are both set: unset one of them");
                Err(Failure::usage(message))
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

    /// Reads the keys with the times from which issuers seal with them. Keys of the environment have none.
    ///
    /// # Errors
    /// See [`KeySourceError`].
    pub fn read_schedule(&self) -> Result<KeySchedule, KeySourceError> {
        match self {
            Self::File(path) => read_key_schedule(path).map_err(KeySourceError::File),
            Self::Variable => schedule_from_variable(),
        }
    }

    /// Returns the path of the key file, or `None` if the keys come from the environment.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Variable => None,
        }
    }
}

/// Returns the fingerprints of private keys for a line of the log, such as `0c3dbb4abf2c5ac9, 51f3f1cbdbd97b1e`.
pub fn list_fingerprints(fingerprints: impl IntoIterator<Item = KeyFingerprint>) -> String {
    fingerprints.into_iter().map(|fingerprint| fingerprint.to_string()).collect::<Vec<_>>().join(", ")
}

fn from_variable() -> Result<KeyRing, KeySourceError> {
    schedule_from_variable().map(|schedule| schedule.all())
}

fn schedule_from_variable() -> Result<KeySchedule, KeySourceError> {
    // `VarError` holds the value of the variable, so it must not be passed on.
    let text = env::var(KEY_VARIABLE).map_err(|_| KeySourceError::VariableIsNotText)?;
    parse_key_schedule(&Zeroizing::new(text)).map_err(KeySourceError::Variable)
}

fn missing() -> Failure {
    let message = "no private key is configured: give --key-file (`slipgate keygen` creates the file), or set \
                    SLIPGATE_PRIVATE_KEY";
    Failure::usage(message)
}

/// Why the private keys could not be read. No variant shows any content.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeySourceError {
    /// The key file cannot be read or is invalid.
    File(KeyFileError),
    /// The environment variable is not valid Unicode.
    VariableIsNotText,
    /// The environment variable does not hold valid keys.
    Variable(KeyTextError),
}

impl fmt::Display for KeySourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::VariableIsNotText => write!(f, "the environment variable {KEY_VARIABLE} is not text"),
            Self::Variable(error) => write!(f, "the environment variable {KEY_VARIABLE} is invalid: {error}"),
        }
    }
}

impl std::error::Error for KeySourceError {}

impl From<KeySourceError> for Failure {
    fn from(error: KeySourceError) -> Self {
        Self::usage(error.to_string())
    }
}
