//! Keyed digests, HMAC-SHA256 (RFC 2104, FIPS 180-4): the binding of challenges and the names of tokens in the history.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

/// Bytes of a truncated digest: 128 bits, beyond guessing and beyond chance collision.
pub const DIGEST_BYTES: usize = 16;

/// A truncated keyed digest. It compares in constant time.
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

/// A prepared HMAC-SHA256 key: its two key blocks are hashed once, here. Wiped when dropped.
#[derive(Clone)]
pub struct DigestKey(Hmac<Sha256>);

impl DigestKey {
    /// The key with these bytes.
    #[must_use]
    pub fn new(key: &[u8; 32]) -> Self {
        Self(Hmac::new(&block(key).into()))
    }

    /// The digest of the parts, one behind the other, cut to 16 bytes. Parts must have fixed lengths.
    #[must_use]
    pub fn digest(&self, parts: &[&[u8]]) -> Digest {
        let full = self.full(parts);
        let mut cut = [0; DIGEST_BYTES];
        cut.iter_mut().zip(full).for_each(|(to, from)| *to = from);
        Digest(cut)
    }

    /// The whole digest of 32 bytes.
    #[must_use]
    pub fn full(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }
}

/// HMAC pads a key shorter than the hash's block with zeros (RFC 2104, section 2); done here, it cannot fail.
fn block(key: &[u8; 32]) -> [u8; 64] {
    let mut block = [0; 64];
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_hmac_sha256() {
        // RFC 4231, test case 1: its 20-byte key and zeros are the same key to HMAC.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let full = DigestKey::new(&key).full(&[b"Hi ", b"There"]);
        assert_eq!(hex::encode(full), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert_eq!(DigestKey::new(&key).digest(&[b"Hi There"]).0, full[..16]);
    }
}
