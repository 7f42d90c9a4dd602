//! API keys of backends, and the digests by which the issuer verifies them without storing the keys.
//!
//! ```text
//!  API key   sgk_ and 64 hexadecimal digits              the backend's secret
//!  digest    hmac-sha256:<64 hex: salt>:<64 hex: HMAC>   the issuer's configuration
//! ```
//!
//! A named key has an id and a dot before it; its digest is that of the part from `sgk_` on. `callers` has the keys
//! that a service accepts.

use core::fmt;
use core::str::FromStr;
#[cfg(feature = "http")]
use std::sync::LazyLock;

use rand::CryptoRng;
use slipgate_netcode::crypto::digest::DigestKey;
#[cfg(any(feature = "http", test))]
use subtle::{Choice, ConstantTimeEq};
use zeroize::Zeroizing;

/// The prefix of every API key, by which users and secret scanners recognise one.
pub const API_KEY_PREFIX: &str = "sgk_";

const SCHEME: &str = "hmac-sha256";
const SALT_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;
const KEY_BYTES: usize = 32;
/// The first bytes of a digest that a log shows.
#[cfg(any(feature = "http", test))]
const SHOWN_BYTES: usize = 4;

/// A bearer key of 256 random bits. It has no `Debug` and is wiped when dropped.
pub struct ApiKey(Zeroizing<String>);

impl ApiKey {
    /// Creates a random key. `entropy` must be the operating system's or seeded from it.
    #[must_use]
    pub fn random(entropy: &mut impl CryptoRng) -> Self {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        entropy.fill_bytes(bytes.as_mut_slice());
        let digits = Zeroizing::new(hex::encode(bytes.as_slice()));
        let mut text = Zeroizing::new(String::with_capacity(API_KEY_PREFIX.len() + digits.len()));
        text.push_str(API_KEY_PREFIX);
        text.push_str(&digits);
        Self(text)
    }

    /// Returns the key's text, as in `Authorization: Bearer <text>`. It is a secret.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the digest to configure, with a new random salt.
    #[must_use]
    pub fn digest(&self, entropy: &mut impl CryptoRng) -> ApiKeyDigest {
        let mut salt = [0; SALT_BYTES];
        entropy.fill_bytes(&mut salt);
        let key = DigestKey::from(&salt);
        let digest = key.full(&[self.0.as_bytes()]);
        ApiKeyDigest { salt, key, digest }
    }
}

/// The salted HMAC-SHA256 of an API key. It verifies the key and does not reveal it.
///
/// `Display` and `FromStr` use the configured form `hmac-sha256:<salt>:<digest>`; `Debug` shows no content.
#[derive(Clone)]
pub struct ApiKeyDigest {
    salt: [u8; SALT_BYTES],
    /// The salt as a prepared key.
    #[cfg_attr(not(any(feature = "http", test)), allow(dead_code, reason = "only the service verifies keys"))]
    key: DigestKey,
    digest: [u8; DIGEST_BYTES],
}

impl ApiKeyDigest {
    /// Returns a digest of which no key is known. Comparing with it takes as long as with others.
    #[cfg(feature = "http")]
    pub(crate) fn of_no_key() -> &'static Self {
        static NO_KEY: LazyLock<ApiKeyDigest> = LazyLock::new(|| ApiKeyDigest::new([0; SALT_BYTES], [0; DIGEST_BYTES]));
        &NO_KEY
    }

    fn new(salt: [u8; SALT_BYTES], digest: [u8; DIGEST_BYTES]) -> Self {
        Self { salt, key: DigestKey::from(&salt), digest }
    }

    /// Returns the first 8 hexadecimal digits of the digest, without the salt, for logs. Without the salt of 32 random
    /// bytes they tell nothing about the key.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn first_digits(&self) -> String {
        hex::encode(self.digest.iter().copied().take(SHOWN_BYTES).collect::<Vec<_>>())
    }

    #[cfg(any(feature = "http", test))]
    pub(crate) fn accepts(&self, presented: &[u8]) -> Choice {
        words(&self.key.full(&[presented])).ct_eq(&words(&self.digest))
    }
}

/// Returns a digest as words, which are compared faster than bytes.
#[cfg(any(feature = "http", test))]
fn words(digest: &[u8; DIGEST_BYTES]) -> [u64; DIGEST_BYTES / 8] {
    let mut words = [0; DIGEST_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

impl fmt::Display for ApiKeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}:{}:{}", hex::encode(self.salt), hex::encode(self.digest))
    }
}

impl fmt::Debug for ApiKeyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKeyDigest(..)")
    }
}

impl FromStr for ApiKeyDigest {
    type Err = ApiKeyError;

    fn from_str(text: &str) -> Result<Self, ApiKeyError> {
        if text.starts_with(API_KEY_PREFIX) {
            return Err(ApiKeyError::KeyItself);
        }
        let mut parts = text.split(':');
        let (Some(SCHEME), Some(salt), Some(digest), None) = (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ApiKeyError::NotADigest);
        };
        let (mut salt_bytes, mut digest_bytes) = ([0; SALT_BYTES], [0; DIGEST_BYTES]);
        hex::decode_to_slice(salt, &mut salt_bytes).map_err(|_| ApiKeyError::NotADigest)?;
        hex::decode_to_slice(digest, &mut digest_bytes).map_err(|_| ApiKeyError::NotADigest)?;
        Ok(Self::new(salt_bytes, digest_bytes))
    }
}

/// Why a configuration of API keys is refused. It never shows the refused text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ApiKeyError {
    /// The text is not `hmac-sha256:<64 hexadecimal digits>:<64 hexadecimal digits>`.
    NotADigest,
    /// The text is an API key instead of its digest.
    KeyItself,
    /// The number of digests of keys without a name is not 1 to 16; holds the number given.
    Count(usize),
    /// There are more than 1024 named keys; holds the number given.
    NamedCount(usize),
    /// A named key has no digest or more than two; holds the number given.
    Secrets(usize),
    /// Two named keys have the same id.
    IdTwice,
}

impl fmt::Display for ApiKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotADigest => write!(f, "an API key digest has the form {SCHEME}:<64 hex digits>:<64 hex digits>"),
            Self::KeyItself => {
                f.write_str("this is an API key, not its digest: others may have seen it, so create a new one")
            }
            Self::Count(0) => f.write_str("no API key digest is configured, so no request could be authorized"),
            Self::Count(count) => {
                write!(f, "{count} API key digests are configured; the maximum is 16")
            }
            Self::NamedCount(count) => write!(f, "{count} named API keys are configured; the maximum is 1024"),
            Self::Secrets(count) => write!(f, "a named API key has one or two digests, not {count}"),
            Self::IdTwice => f.write_str("two named API keys have the same id"),
        }
    }
}

impl core::error::Error for ApiKeyError {}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn entropy() -> StdRng {
        StdRng::from_seed([3; 32])
    }

    fn accepts(digest: &str, presented: &[u8]) -> bool {
        digest.parse::<ApiKeyDigest>().unwrap().accepts(presented).into()
    }

    #[test]
    fn key_is_accepted_by_its_digest_parsed_from_text() {
        let mut entropy = entropy();
        let (key, other) = (ApiKey::random(&mut entropy), ApiKey::random(&mut entropy));
        let text = key.digest(&mut entropy).to_string();
        assert_eq!(text.len(), "hmac-sha256:".len() + 64 + 1 + 64);
        assert!(accepts(&text, key.expose().as_bytes()));
        assert!(!accepts(&text, other.expose().as_bytes()));
        assert!(!accepts(&text, b""));
        assert!(!accepts(&text, &key.expose().as_bytes()[1..]));
    }

    /// The expected value was computed by another implementation (Python's `hmac` module).
    #[test]
    fn digest_is_hmac_sha256_with_the_salt_as_key() {
        let digest = concat!(
            "hmac-sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            ":a515915158706fafa6d881424389195abadadda536c12f8b0e718458428a5e0e",
        );
        assert!(accepts(digest, b"sgk_test"));
    }

    #[test]
    fn log_shows_the_digest_in_part_and_no_salt() {
        let text = format!("hmac-sha256:{}:{}{}", "ab".repeat(32), "0123cdef", "45".repeat(28));
        assert_eq!(text.parse::<ApiKeyDigest>().unwrap().first_digits(), "0123cdef");
    }

    #[test]
    fn each_digest_of_a_key_has_a_new_salt() {
        let mut entropy = entropy();
        let key = ApiKey::random(&mut entropy);
        assert_ne!(key.digest(&mut entropy).to_string(), key.digest(&mut entropy).to_string());
    }

    #[test]
    fn invalid_digest_is_refused_without_showing_it() {
        let (salt, digest) = ("ab".repeat(32), "cd".repeat(32));
        let not_digests = [
            String::new(),
            format!("sha256:{salt}:{digest}"),
            format!("hmac-sha256:{salt}"),
            format!("hmac-sha256:{salt}:{digest}:"),
            format!("hmac-sha256:{}:{digest}", &salt[2..]),
            format!("hmac-sha256:{salt}:{}", digest.replace('c', "x")),
        ];
        for text in not_digests {
            assert_eq!(text.parse::<ApiKeyDigest>().unwrap_err(), ApiKeyError::NotADigest, "{text}");
        }
        let key = ApiKey::random(&mut entropy());
        let error = key.expose().parse::<ApiKeyDigest>().unwrap_err();
        assert_eq!(error, ApiKeyError::KeyItself);
        assert!(!error.to_string().contains(&key.expose()[4..12]));
    }

    #[test]
    fn debug_shows_no_digest() {
        let digest = ApiKey::random(&mut entropy()).digest(&mut entropy());
        assert_eq!(format!("{digest:?}"), "ApiKeyDigest(..)");
    }
}
