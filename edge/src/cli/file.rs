//! Reading a configuration file in TOML, and refusing one without showing what stands in it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use super::Failure;

/// Hexadecimal digits in a row that may be part of a key. No name and no number of ours has so many.
const SECRET_DIGITS: usize = 16;

/// Reads a configuration file.
///
/// # Errors
/// It cannot be read, or something in it is wrong. The failure tells the line.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let shown = path.display();
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

/// The message in one line, with an ellipsis where it holds what may be a key: messages quote values of a wrong type.
fn redact(message: &str) -> String {
    let message = message.replace('\n', " ");
    let mut rest = message.as_str();
    let mut redacted = String::with_capacity(message.len());
    while let Some(first) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits >= SECRET_DIGITS {
            redacted.push('…');
        }
        let taken = digits.max(first.len_utf8());
        let (head, tail) = rest.split_at(taken);
        if digits < SECRET_DIGITS {
            redacted.push_str(head);
        }
        rest = tail;
    }
    redacted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_a_key_is_not_shown() {
        let key = "c0ffee00".repeat(8);
        let cases = [
            (format!("invalid type: string \"{key}\", expected u32"), "invalid type: string \"…\", expected u32"),
            (key.clone(), "…"),
            ("unknown field `dead_beef`,\nexpected é".to_owned(), "unknown field `dead_beef`, expected é"),
            (String::new(), ""),
        ];
        for (message, shown) in cases {
            assert_eq!(redact(&message), shown);
        }
    }

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
