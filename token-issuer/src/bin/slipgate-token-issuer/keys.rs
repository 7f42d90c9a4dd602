//! Where the private keys come from: flag, else environment, else file.

use std::env;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use slipgate_protocol::crypto::key::KeyRing;
use slipgate_token_issuer::key_file::{parse_keys, read_key_file};
use zeroize::Zeroizing;

use crate::failure::Failure;

/// The environment variable that may hold the keys themselves.
pub(crate) const KEY_VARIABLE: &str = "SLIPGATE_PRIVATE_KEY";

/// Reads the keys from where the highest layer says.
pub(crate) fn read(
    matches: &ArgMatches,
    flag_or_variable: Option<&Path>,
    file: Option<&Path>,
) -> Result<KeyRing, Failure> {
    let by_flag = matches.value_source("key_file") == Some(ValueSource::CommandLine);
    match (flag_or_variable, from_variable()?) {
        (Some(path), _) if by_flag => read_file(path),
        (Some(_), Some(_)) => {
            let sentence = format!("SLIPGATE_KEY_FILE and {KEY_VARIABLE} are both set: unset one of them");
            Err(Failure::config(sentence))
        }
        (Some(path), None) => read_file(path),
        (None, Some(text)) => from_text(&text),
        (None, None) => read_file(file.ok_or_else(missing)?),
    }
}

fn from_variable() -> Result<Option<Zeroizing<String>>, Failure> {
    match env::var(KEY_VARIABLE) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(env::VarError::NotPresent) => Ok(None),
        // The error itself holds what was set.
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::config(format!("the environment variable {KEY_VARIABLE} is not text")))
        }
    }
}

fn from_text(text: &str) -> Result<KeyRing, Failure> {
    let of_no_use = |error| Failure::config(format!("the environment variable {KEY_VARIABLE} is of no use: {error}"));
    parse_keys(text).map_err(of_no_use)
}

fn read_file(path: &Path) -> Result<KeyRing, Failure> {
    read_key_file(path).map_err(|error| Failure::config(error.to_string()))
}

fn missing() -> Failure {
    let sentence = "no private key is configured: name a file by --key-file (`slipgate keygen` makes one), or set \
                    SLIPGATE_PRIVATE_KEY";
    Failure::config(sentence)
}
