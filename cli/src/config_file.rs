//! Reads configuration files in TOML. Error messages name the line but never quote the content, which may be a secret.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::Failure;
use slipgate_os::redact::redact;

/// Reads and parses a configuration file.
///
/// # Errors
/// Returns a usage failure if the file cannot be read, or if it does not parse; the message names the line.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let shown = redact(&path.to_string_lossy());
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("the configuration file {shown} cannot be read: {error}")))?;
    // toml's own message quotes the wrong line, which may hold a secret that was pasted there by mistake.
    toml::from_str(&text).map_err(|error| {
        let line = line_of(&text, error.span().map_or(0, |span| span.start));
        let message = redact(error.message());
        Failure::usage(format!("the configuration file {shown} is wrong in line {line}: {message}"))
    })
}

/// Resolves a relative path against the directory of the configuration file, because a service's working directory is
/// arbitrary.
#[must_use]
pub fn resolve_path(configuration: &Path, path: &Path) -> PathBuf {
    configuration.parent().unwrap_or(Path::new("")).join(path)
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_relative_to_the_configuration_file() {
        for (file, path, found) in [
            ("/etc/slipgate/server.toml", "keys", "/etc/slipgate/keys"),
            ("server.toml", "keys", "keys"),
            ("/etc/slipgate/server.toml", "/run/keys", "/run/keys"),
        ] {
            assert_eq!(resolve_path(Path::new(file), Path::new(path)), Path::new(found));
        }
    }
}
