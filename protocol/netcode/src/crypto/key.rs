//! Keys and seeds: wiped when dropped, without `Debug`, compared in constant time.

use alloc::boxed::Box;
use core::fmt;
use core::ops::Deref;
use core::str::FromStr;

use rand::CryptoRng;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::wire::KEY_BYTES;

/// A 32-byte key. It has no `Debug`, is wiped when dropped, and is compared in constant time.
///
/// # Examples
/// ```compile_fail
/// // A key cannot be printed, so it cannot get into a log by accident.
/// println!("{:?}", slipgate_netcode::crypto::key::Key::from([7; 32]));
/// ```
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Key([u8; KEY_BYTES]);

impl Key {
    /// Draws a new random key.
    #[must_use]
    pub fn random(entropy: &mut impl CryptoRng) -> Self {
        let mut key = Self([0; KEY_BYTES]);
        entropy.fill_bytes(&mut key.0);
        key
    }

    /// Returns the key's bytes. The caller must wipe every copy.
    #[must_use]
    pub const fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns the fingerprint of the key.
    #[must_use]
    pub fn fingerprint(&self) -> KeyFingerprint {
        let digest = super::digest::DigestKey::from(&self.0).digest(&[FINGERPRINT_LABEL]);
        let mut cut = [0; FINGERPRINT_BYTES];
        cut.iter_mut().zip(digest.0).for_each(|(to, from)| *to = from);
        KeyFingerprint(cut)
    }
}

const FINGERPRINT_BYTES: usize = 8;
/// What the fingerprint is the digest of. Nothing else is digested with a private key.
const FINGERPRINT_LABEL: &[u8] = b"slipgate key fingerprint";

/// The fingerprint of a key: 8 bytes of an HMAC-SHA256 under the key. Logs and metrics may show it: a random key cannot
/// be found by it. Two keys with one fingerprint are the same key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyFingerprint([u8; FINGERPRINT_BYTES]);

impl fmt::Display for KeyFingerprint {
    /// Writes 16 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl From<[u8; KEY_BYTES]> for Key {
    fn from(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }
}

/// The text of a key is not 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyDigitsError;

impl FromStr for Key {
    type Err = KeyDigitsError;

    /// Parses 64 hexadecimal digits in upper or lower case.
    fn from_str(text: &str) -> Result<Self, KeyDigitsError> {
        let digits: &[u8; 2 * KEY_BYTES] = text.as_bytes().try_into().map_err(|_| KeyDigitsError)?;
        // The digits go straight into a `Key`, so that a failed parse leaves no unwiped copy behind.
        let mut key = Self([0; KEY_BYTES]);
        for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
            let [high, low] = pair else { return Err(KeyDigitsError) };
            *byte = hex_value(*high)? << 4 | hex_value(*low)?;
        }
        Ok(key)
    }
}

fn hex_value(digit: u8) -> Result<u8, KeyDigitsError> {
    char::from(digit).to_digit(16).map(|value| value as u8).ok_or(KeyDigitsError)
}

impl fmt::Display for KeyDigitsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key has exactly 64 hexadecimal digits")
    }
}

impl core::error::Error for KeyDigitsError {}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        // A comparison that stops at the first difference would reveal the key by its timing.
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Key {}

/// The maximum of private keys that a server accepts at a time.
pub const MAX_PRIVATE_KEYS: usize = 3;

/// One to three private keys, newest first, which the issuer and the servers share.
///
/// Rotate keys without an outage in three steps: put the new key first on every server, let the issuer seal with it,
/// and remove the old key when the last token under it has expired.
///
/// # Examples
/// ```
/// use slipgate_netcode::crypto::key::{Key, KeyRing};
///
/// let (new, old) = (Key::from([2; 32]), Key::from([1; 32]));
/// let keys = KeyRing::new(&[new, old]).expect("one to three keys");
/// assert_eq!(keys.len(), 2);
/// ```
#[derive(Clone)]
pub struct KeyRing(Box<[Key]>);

impl KeyRing {
    /// Returns the ring of these keys, newest first, or `None` unless there are 1 to 3.
    #[must_use]
    pub fn new(newest_first: &[Key]) -> Option<Self> {
        // Each key costs one decryption for every forged request, so their number is bounded.
        (1..=MAX_PRIVATE_KEYS).contains(&newest_first.len()).then(|| Self(newest_first.into()))
    }
}

impl Deref for KeyRing {
    type Target = [Key];

    /// Returns the keys, newest first.
    fn deref(&self) -> &[Key] {
        &self.0
    }
}

impl From<Key> for KeyRing {
    fn from(key: Key) -> Self {
        Self(Box::new([key]))
    }
}

/// The entropy of one start: 32 random bytes, from which a server derives each secret that two starts must not share.
///
/// Draw a new seed from the operating system for every start. Reusing one repeats the challenge key and the handshake
/// lane. Only simulations use a fixed seed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Seed([u8; 32]);

impl Seed {
    /// Draws a new seed from the caller's entropy.
    #[must_use]
    pub fn random(entropy: &mut impl CryptoRng) -> Self {
        let mut seed = Self([0; 32]);
        entropy.fill_bytes(&mut seed.0);
        seed
    }

    /// Returns a seed for the purpose `label`, independent of those for every other label.
    #[must_use]
    pub(crate) fn derive_seed(&self, label: &str) -> Self {
        Self(self.derive(label))
    }

    /// Returns 32 bytes for the purpose `label`, independent of those for every other label.
    #[must_use]
    pub(crate) fn derive(&self, label: &str) -> [u8; 32] {
        // HMAC is a pseudorandom function, so its outputs for different labels are independent.
        super::digest::DigestKey::from(&self.0).full(&[label.as_bytes()])
    }
}

impl From<[u8; 32]> for Seed {
    /// Returns a seed of known bytes, for simulations that must be reproducible.
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{borrow::ToOwned, format};

    #[test]
    fn key_is_parsed_from_exactly_64_hexadecimal_digits() {
        let text = "00ffA0".to_owned() + &"1b".repeat(29);
        let key = text.parse::<Key>().unwrap();
        assert_eq!(key.expose()[..4], [0, 0xff, 0xa0, 0x1b]);
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('b', "g"), &text.replace("1b", "é")] {
            assert!(wrong.parse::<Key>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn fingerprints_distinguish_keys_and_show_nothing_of_them() {
        let [one, other] = [1, 2].map(|byte| Key::from([byte; 32]).fingerprint());
        assert_eq!(one, Key::from([1; 32]).fingerprint());
        assert_ne!(one, other);
        // Python: hmac.new(bytes([1]) * 32, b"slipgate key fingerprint", "sha256").hexdigest()[:16]
        assert_eq!(format!("{one}"), "663f78cc10df6b77");
    }

    #[test]
    fn derived_bytes_depend_on_seed_and_label() {
        let (one, other) = (Seed::from([1; 32]), Seed::from([2; 32]));
        assert_eq!(one.derive("a"), one.derive("a"));
        assert_ne!(one.derive("a"), one.derive("b"));
        assert_ne!(one.derive("a"), other.derive("a"));
    }

    #[test]
    fn key_ring_holds_one_to_three_keys() {
        let key = Key::from([1; 32]);
        assert!(KeyRing::new(&[]).is_none());
        assert!(KeyRing::new(&[key.clone(), key.clone(), key.clone()]).is_some());
        assert!(KeyRing::new(&[key.clone(), key.clone(), key.clone(), key]).is_none());
    }
}
