//! Reading a configuration file in TOML, and refusing one without showing what stands in it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::Failure;
use slipgate_os::redact::redact;

/// Reads a configuration file.
///
/// # Errors
/// It cannot be read, or something in it is wrong. The failure tells the line.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let shown = redact(&path.to_string_lossy());
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("the configuration file {shown} cannot be read: {error}")))?;
    // The error's own text quotes the line at fault; a secret put there by mistake would be shown.
    toml::from_str(&text).map_err(|error| {
        let line = line_of(&text, error.span().map_or(0, |span| span.start));
        let message = redact(error.message());
        Failure::usage(format!("the configuration file {shown} is wrong in line {line}: {message}"))
    })
}

/// A path in a configuration file lies beside it, if relative: a service's working directory is anywhere.
#[must_use]
pub fn beside(configuration: &Path, path: &Path) -> PathBuf {
    configuration.parent().unwrap_or(Path::new("")).join(path)
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_file_lies_beside_it() {
        for (file, path, found) in [
            ("/etc/slipgate/server.toml", "keys", "/etc/slipgate/keys"),
            ("server.toml", "keys", "keys"),
            ("/etc/slipgate/server.toml", "/run/keys", "/run/keys"),
        ] {
            assert_eq!(beside(Path::new(file), Path::new(path)), Path::new(found));
        }
    }
}
