//! The issuer's API key, for tools that request tokens.

use std::path::Path;

use slipgate_cli::Failure;
use slipgate_os::key_file::read_secret_file;
use zeroize::Zeroizing;

/// The variable with the API key, where no file is given.
const API_KEY_VARIABLE: &str = "SLIPGATE_API_KEY";

/// Reads the API key from a file of mode 0600, or from the environment.
///
/// # Errors
/// A usage failure if there is neither, or the file is invalid. It never shows the content.
pub(crate) fn read(file: Option<&Path>) -> Result<Zeroizing<String>, Failure> {
    let text = match file {
        Some(path) => read_secret_file(path).map_err(|error| Failure::usage(error.to_string()))?,
        None => std::env::var(API_KEY_VARIABLE).map(Zeroizing::new).map_err(|_| {
            Failure::usage(format!("the issuer's API key is missing: give --api-key-file, or set {API_KEY_VARIABLE}"))
        })?,
    };
    let key = Zeroizing::new(text.trim().to_owned());
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage("the API key has characters that no key has"));
    }
    Ok(key)
}
