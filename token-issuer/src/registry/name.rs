//! Names in the registry: ids, groups and regions.

use core::fmt;
use core::str::FromStr;

/// The maximum length of a name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A name of 1 to 64 characters of `A-Z a-z 0-9 . _ -`, except `.` and `..`, which HTTP clients remove from paths. Such
/// a name needs no escape in URLs, logs and keys of stores.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegistryName(Box<str>);

impl RegistryName {
    /// Returns the text of the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RegistryName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_name = (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_name && !matches!(text, "." | "..") { Ok(Self(text.into())) } else { Err(NameError) }
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a name has 1 to {MAX_NAME_BYTES} characters of A-Z a-z 0-9 . _ - and is not `.` or `..`")
    }
}

impl core::error::Error for NameError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_only_harmless_characters() {
        for name in ["a", "eu-1.Ranked_2", "...", ".a", &"x".repeat(64)] {
            assert_eq!(name.parse::<RegistryName>().unwrap().as_str(), name);
        }
        for wrong in ["", ".", "..", "a b", "a/b", "a:b", "ä", "a\n", "*", &"x".repeat(65)] {
            assert_eq!(wrong.parse::<RegistryName>(), Err(NameError), "{wrong}");
        }
    }
}
