//! Keyed digests, HMAC-SHA256 (RFC 2104, FIPS 180-4), for the binding of challenges and the names of tokens in the
//! history.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of a truncated digest: 128 bits, which neither guesses nor chance collisions reach.
pub const DIGEST_BYTES: usize = 16;

/// A truncated keyed digest, compared in constant time.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Digest(pub [u8; DIGEST_BYTES]);

impl core::hash::Hash for Digest {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// A prepared HMAC-SHA256 key, wiped when dropped. Preparing it hashes the two key blocks once.
#[derive(Clone)]
pub struct DigestKey(Hmac<Sha256>);

impl DigestKey {
    /// Returns the digest of the concatenated parts, truncated to 16 bytes. Each part must have a fixed length.
    #[must_use]
    pub fn digest(&self, parts: &[&[u8]]) -> Digest {
        let full = self.full(parts);
        let mut cut = [0; DIGEST_BYTES];
        // HMAC may be truncated to its leftmost half (RFC 2104, section 5).
        cut.iter_mut().zip(full).for_each(|(to, from)| *to = from);
        Digest(cut)
    }

    /// Returns the full digest of 32 bytes.
    #[must_use]
    pub fn full(&self, parts: &[&[u8]]) -> [u8; 32] {
        // The clone contains the hashed key blocks, which saves two compressions for each digest.
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

impl From<&[u8; 32]> for DigestKey {
    /// Prepares the key with these bytes.
    fn from(key: &[u8; 32]) -> Self {
        Self(Hmac::new(&block(key).into()))
    }
}

/// Pads the key with zeros to the hash's block of 64 bytes, as HMAC does (RFC 2104, section 2).
fn block(key: &[u8; 32]) -> [u8; 64] {
    // A key of exactly one block makes the constructor infallible.
    let mut block = [0; 64];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_hmac_sha256() {
        // RFC 4231, test case 1. HMAC treats its 20-byte key and the zero-padded one as the same key.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let full = DigestKey::from(&key).full(&[b"Hi ", b"There"]);
        assert_eq!(hex::encode(full), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert_eq!(DigestKey::from(&key).digest(&[b"Hi There"]).0, full[..16]);
    }
}
