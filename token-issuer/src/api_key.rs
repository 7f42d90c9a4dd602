//! API keys of backends, and the digests by which the issuer verifies them without storing the keys.
//!
//! ```text
//!  API key   sgk_ and 64 hexadecimal digits              the backend's secret
//!  digest    hmac-sha256:<64 hex: salt>:<64 hex: HMAC>   the issuer's configuration
//! ```
//!
//! The HTTP service reads the `Authorization` header.

use core::fmt;
use core::str::FromStr;

use rand::CryptoRng;
use slipgate_netcode::crypto::digest::DigestKey;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

/// The prefix of every API key, by which users and secret scanners recognise one.
pub const API_KEY_PREFIX: &str = "sgk_";
/// The maximum number of configured digests. A request without a valid key costs one HMAC for each of them.
pub const MAX_API_KEYS: usize = 16;

const SCHEME: &str = "hmac-sha256";
const SALT_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;
const KEY_BYTES: usize = 32;

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
        ApiKeyDigest { salt, digest: hmac(&salt, self.0.as_bytes()) }
    }
}

/// The salted HMAC-SHA256 of an API key. It verifies the key and does not reveal it.
///
/// `Display` and `FromStr` use the configured form `hmac-sha256:<salt>:<digest>`; `Debug` shows no content.
#[derive(Clone)]
pub struct ApiKeyDigest {
    salt: [u8; SALT_BYTES],
    digest: [u8; DIGEST_BYTES],
}

impl ApiKeyDigest {
    fn accepts(&self, presented: &[u8]) -> Choice {
        hmac(&self.salt, presented).ct_eq(&self.digest)
    }
}

fn hmac(salt: &[u8; SALT_BYTES], key: &[u8]) -> [u8; DIGEST_BYTES] {
    DigestKey::from(salt).full(&[key])
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
        let mut parsed = Self { salt: [0; SALT_BYTES], digest: [0; DIGEST_BYTES] };
        hex::decode_to_slice(salt, &mut parsed.salt).map_err(|_| ApiKeyError::NotADigest)?;
        hex::decode_to_slice(digest, &mut parsed.digest).map_err(|_| ApiKeyError::NotADigest)?;
        Ok(parsed)
    }
}

/// The digests of all accepted API keys: 1 to 16, so that a key can be replaced while the old one still works.
#[derive(Clone, Debug)]
pub struct ApiKeys(Box<[ApiKeyDigest]>);

impl ApiKeys {
    /// Creates the set of accepted keys from their digests.
    ///
    /// # Errors
    /// [`ApiKeyError::Count`] if there are none or more than 16.
    pub fn new(digests: Vec<ApiKeyDigest>) -> Result<Self, ApiKeyError> {
        if (1..=MAX_API_KEYS).contains(&digests.len()) {
            Ok(Self(digests.into()))
        } else {
            Err(ApiKeyError::Count(digests.len()))
        }
    }

    /// Returns whether this is one of the keys, in a time that depends on neither the key nor the matching digest.
    #[must_use]
    pub fn accept(&self, presented: &[u8]) -> bool {
        self.find(presented).is_some()
    }

    /// Returns which of the keys this is, in constant time as [`accept`](Self::accept).
    pub(crate) fn find(&self, presented: &[u8]) -> Option<KeyNumber> {
        // Compares every digest, even after a match, to keep the time constant.
        let number = self
            .0
            .iter()
            .zip(1_u8..)
            .fold(0, |found, (digest, number)| u8::conditional_select(&found, &number, digest.accepts(presented)));
        (number > 0).then_some(KeyNumber(number))
    }
}

/// The position of a key's digest in the configuration, from 1. Logs name a key by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyNumber(u8);

impl KeyNumber {
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "only the HTTP service logs it"))]
    pub(crate) const fn get(self) -> u8 {
        self.0
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
    /// The number of digests is not 1 to 16; holds the number given.
    Count(usize),
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
                write!(f, "{count} API key digests are configured; the maximum is {MAX_API_KEYS}")
            }
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

    #[test]
    fn key_is_accepted_by_its_digest_parsed_from_text() {
        let mut entropy = entropy();
        let (key, other) = (ApiKey::random(&mut entropy), ApiKey::random(&mut entropy));
        let text = key.digest(&mut entropy).to_string();
        assert_eq!(text.len(), "hmac-sha256:".len() + 64 + 1 + 64);
        let keys = ApiKeys::new(vec![text.parse().unwrap()]).unwrap();
        assert!(keys.accept(key.expose().as_bytes()));
        assert!(!keys.accept(other.expose().as_bytes()));
        assert!(!keys.accept(b""));
        assert!(!keys.accept(&key.expose().as_bytes()[1..]));
    }

    #[test]
    fn each_of_several_keys_is_accepted() {
        let mut entropy = entropy();
        let created: Vec<_> = (0..MAX_API_KEYS).map(|_| ApiKey::random(&mut entropy)).collect();
        let keys = ApiKeys::new(created.iter().map(|key| key.digest(&mut entropy)).collect()).unwrap();
        for (key, number) in created.iter().zip(1..) {
            assert_eq!(keys.find(key.expose().as_bytes()), Some(KeyNumber(number)));
        }
        assert_eq!(keys.find(b"sgk_"), None);
    }

    /// The expected value was computed by another implementation (Python's `hmac` module).
    #[test]
    fn digest_is_hmac_sha256_with_the_salt_as_key() {
        let digest = concat!(
            "hmac-sha256:000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
            ":a515915158706fafa6d881424389195abadadda536c12f8b0e718458428a5e0e",
        );
        let keys = ApiKeys::new(vec![digest.parse().unwrap()]).unwrap();
        assert!(keys.accept(b"sgk_test"));
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
    fn no_digest_and_too_many_digests_are_refused() {
        let digest = ApiKey::random(&mut entropy()).digest(&mut entropy());
        assert_eq!(ApiKeys::new(vec![]).unwrap_err(), ApiKeyError::Count(0));
        assert_eq!(ApiKeys::new(vec![digest; 17]).unwrap_err(), ApiKeyError::Count(17));
    }

    #[test]
    fn debug_shows_no_digest() {
        let digest = ApiKey::random(&mut entropy()).digest(&mut entropy());
        assert_eq!(format!("{:?}", ApiKeys::new(vec![digest]).unwrap()), "ApiKeys([ApiKeyDigest(..)])");
    }
}
