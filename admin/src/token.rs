//! The bearer token that requests must show where other machines can reach the service.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipgate_os::key_file::{KeyFileError, read_secret_file};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The minimum length of a token, in characters: 128 bits in hexadecimal digits.
const MIN_TOKEN_CHARS: usize = 32;
/// The maximum length of a token, in characters.
const MAX_TOKEN_CHARS: usize = 256;

/// The secret of the header `Authorization: Bearer TOKEN`. Clones are handles to the same token. It is wiped when
/// dropped, and no output shows it.
#[derive(Clone)]
pub struct AdminToken(Arc<Mutex<Zeroizing<String>>>);

impl AdminToken {
    /// Reads the token from a file that only its owner can read. White space around the token is ignored.
    ///
    /// # Errors
    /// - [`AdminTokenError::File`]: the file cannot be read, or others can read it.
    /// - [`AdminTokenError::Invalid`]: the content is not 32 to 256 visible ASCII characters.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, AdminTokenError> {
        Self::parse(&read_secret_file(path).map_err(AdminTokenError::File)?)
    }

    /// Replaces the token by that of a file, for all clones: the next request must have it.
    ///
    /// # Errors
    /// As [`read`](Self::read); the present token stays.
    pub fn reload(&self, path: impl AsRef<Path>) -> Result<(), AdminTokenError> {
        let text = parse(&read_secret_file(path).map_err(AdminTokenError::File)?)?;
        *self.lock() = text;
        Ok(())
    }

    pub(crate) fn parse(text: &str) -> Result<Self, AdminTokenError> {
        Ok(Self(Arc::new(Mutex::new(parse(text)?))))
    }

    fn lock(&self) -> MutexGuard<'_, Zeroizing<String>> {
        // Poisoning is harmless: the critical sections only compare and replace.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the value of an `Authorization` header has this token. The time depends on its length only.
    pub(crate) fn accepts(&self, authorization: &[u8]) -> bool {
        let Some((scheme, rest)) = authorization.split_at_checked(b"Bearer ".len()) else { return false };
        // Scheme names are case-insensitive (RFC 9110, section 11.1).
        scheme.eq_ignore_ascii_case(b"Bearer ") && rest.trim_ascii().ct_eq(self.lock().as_bytes()).into()
    }
}

fn parse(text: &str) -> Result<Zeroizing<String>, AdminTokenError> {
    let token = text.trim();
    let is_valid =
        (MIN_TOKEN_CHARS..=MAX_TOKEN_CHARS).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_valid { Ok(Zeroizing::new(token.to_owned())) } else { Err(AdminTokenError::Invalid) }
}

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken(..)")
    }
}

/// Why a token was refused. It never shows the content of the file.
#[derive(Debug)]
#[non_exhaustive]
pub enum AdminTokenError {
    /// The file cannot be read, or others can read it.
    File(KeyFileError),
    /// The content is not 32 to 256 visible ASCII characters.
    Invalid,
}

impl fmt::Display for AdminTokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Invalid => write!(
                f,
                "the file must hold one token of {MIN_TOKEN_CHARS} to {MAX_TOKEN_CHARS} visible ASCII characters, such \
                 as the output of `openssl rand -hex 32`"
            ),
        }
    }
}

impl std::error::Error for AdminTokenError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_tokens_of_visible_characters_are_valid() {
        let long = "a".repeat(MAX_TOKEN_CHARS);
        for valid in [&"a".repeat(MIN_TOKEN_CHARS), &format!("  {long}\n")] {
            assert!(AdminToken::parse(valid).is_ok(), "{valid:?}");
        }
        let (short, inner) = ("a".repeat(MIN_TOKEN_CHARS - 1), format!("{} {}", &long[..40], &long[..40]));
        for invalid in ["", " \n", &short, &inner, &format!("{long}a"), &"ä".repeat(40)] {
            let error = AdminToken::parse(invalid).unwrap_err();
            assert!(invalid.is_empty() || !error.to_string().contains("aaa"), "{error}");
        }
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let text = "0123456789abcdef0123456789abcdef";
        let token = AdminToken::parse(text).unwrap();
        let accepts = |value: &str| token.accepts(value.as_bytes());
        assert!(accepts(&format!("Bearer {text}")) && accepts(&format!("bearer  {text} ")));
        for wrong in ["", "Bearer ", "Basic ", text, &text[1..]] {
            assert!(!accepts(wrong) && !accepts(&format!("Basic {text}")), "{wrong}");
        }
        for wrong in [&text[1..], &text[..31], &format!("{text}0"), &text.replace('0', "1")] {
            assert!(!accepts(&format!("Bearer {wrong}")), "{wrong}");
        }
        assert_eq!(format!("{token:?}"), "AdminToken(..)");
    }
}
