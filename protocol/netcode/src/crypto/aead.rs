//! ChaCha20-Poly1305 (RFC 8439) in place, by one of two backends with equal output.
//!
//! [`ring`] is the backend of packets with the feature `ring` (on by default). Its assembly takes a tenth (16 bytes) to
//! a quarter (1200 bytes) of the portable crate's time on x86-64, without compiler flags. [`portable`] is the
//! `chacha20poly1305` crate for any CPU, `no_std` and wasm. `specs/ciphers.md` has the measurements.

#[cfg(not(feature = "ring"))]
pub use self::portable as packets;
#[cfg(feature = "ring")]
pub use self::ring as packets;

use crate::crypto::key::Key;
use crate::wire::TAG_BYTES;

/// Bytes of the nonce of ChaCha20-Poly1305 (RFC 8439, section 2.8).
pub const NONCE_BYTES: usize = 12;

/// Returns the nonce of a sequence number: four zero bytes, then the number, little-endian (§1.3).
#[inline]
#[must_use]
pub const fn nonce(sequence: u64) -> [u8; NONCE_BYTES] {
    let [a, b, c, d, e, f, g, h] = sequence.to_le_bytes();
    [0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// The error of a tag that does not match: a wrong key, nonce or associated data, or altered bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAuthentic;

/// A key that seals and opens packets: a [`Key`] for a single packet, a [`packets::PreparedKey`] for many.
pub trait PacketKey {
    /// Encrypts `plain` in place and returns the tag.
    #[must_use]
    fn seal(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES];

    /// Decrypts `sealed`, ciphertext and tag, in place and returns the plaintext.
    ///
    /// # Errors
    /// [`NotAuthentic`] when the tag does not match. The content of `sealed` is undefined then.
    fn open<'a>(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic>;
}

impl PacketKey for Key {
    fn seal(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
        packets::prepare(self).seal(nonce, associated, plain)
    }

    fn open<'a>(
        &self,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic> {
        packets::prepare(self).open(nonce, associated, sealed)
    }
}

/// The portable backend: the `chacha20poly1305` crate.
pub mod portable {
    use chacha20poly1305::aead::{AeadInOut, KeyInit};
    use chacha20poly1305::{ChaCha20Poly1305, Tag};

    use super::{NONCE_BYTES, NotAuthentic, PacketKey};
    use crate::crypto::key::Key;
    use crate::wire::TAG_BYTES;

    /// The key of a connection's packets. This backend prepares nothing.
    pub struct PreparedKey(Key);

    impl From<Key> for PreparedKey {
        fn from(key: Key) -> Self {
            Self(key)
        }
    }

    /// Returns a key for a single packet.
    #[cfg(not(feature = "ring"))]
    pub(crate) fn prepare(key: &Key) -> PreparedKey {
        key.clone().into()
    }

    impl PacketKey for PreparedKey {
        fn seal(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
            let cipher = ChaCha20Poly1305::new(self.0.expose().into());
            let tag = cipher.encrypt_inout_detached(&nonce.into(), associated, plain.into());
            // RFC 8439, section 2.8, limits the plaintext to 2^32 blocks of 64 bytes. No packet gets near it.
            debug_assert!(tag.is_ok(), "a packet is far below the cipher's limit of 256 GiB");
            tag.map(Into::into).unwrap_or_default()
        }

        fn open<'a>(
            &self,
            nonce: [u8; NONCE_BYTES],
            associated: &[u8],
            sealed: &'a mut [u8],
        ) -> Result<&'a mut [u8], NotAuthentic> {
            // A datagram shorter than a tag cannot be authentic.
            let (plain, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(NotAuthentic)?;
            let cipher = ChaCha20Poly1305::new(self.0.expose().into());
            cipher
                .decrypt_inout_detached(&nonce.into(), associated, (&mut *plain).into(), &Tag::from(*tag))
                .map_err(|_| NotAuthentic)?;
            Ok(plain)
        }
    }
}

/// The fast backend: ring's assembly.
#[cfg(feature = "ring")]
pub mod ring {
    use core::hint::black_box;

    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

    use super::{NONCE_BYTES, NotAuthentic, PacketKey};
    use crate::crypto::key::Key;
    use crate::wire::{KEY_BYTES, TAG_BYTES};

    /// The key of a connection's packets: ring's key object of 544 bytes, wiped when dropped. Preparing one takes 30
    /// ns.
    pub struct PreparedKey(LessSafeKey);

    impl From<Key> for PreparedKey {
        fn from(key: Key) -> Self {
            Self(prepare(&key))
        }
    }

    impl PreparedKey {
        /// Overwrites the key with an all-zero one, because ring does not wipe its keys.
        fn wipe(&mut self) {
            // The crate forbids `unsafe`, so a volatile write is not available.
            self.0 = prepare(&Key::from([0; KEY_BYTES]));
            // Without a reader the compiler could remove the write to a value that is about to be dropped.
            black_box(&self.0);
        }
    }

    impl Drop for PreparedKey {
        fn drop(&mut self) {
            self.wipe();
        }
    }

    /// Returns a key for a single packet.
    #[expect(clippy::expect_used, reason = "ring refuses a key only for its length, and this one has the right length")]
    pub(crate) fn prepare(key: &Key) -> LessSafeKey {
        LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.expose()).expect("a key of 32 bytes"))
    }

    impl PacketKey for PreparedKey {
        fn seal(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
            PacketKey::seal(&self.0, nonce, associated, plain)
        }

        fn open<'a>(
            &self,
            nonce: [u8; NONCE_BYTES],
            associated: &[u8],
            sealed: &'a mut [u8],
        ) -> Result<&'a mut [u8], NotAuthentic> {
            PacketKey::open(&self.0, nonce, associated, sealed)
        }
    }

    impl PacketKey for LessSafeKey {
        #[inline]
        fn seal(&self, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
            // The lanes guarantee uniqueness: a sequence number is taken once under each key.
            let nonce = Nonce::assume_unique_for_key(nonce);
            let tag = self.seal_in_place_separate_tag(nonce, Aad::from(associated), plain);
            debug_assert!(tag.is_ok(), "a packet is far below the cipher's limit of 256 GiB");
            tag.ok().and_then(|tag| tag.as_ref().try_into().ok()).unwrap_or_default()
        }

        #[inline]
        fn open<'a>(
            &self,
            nonce: [u8; NONCE_BYTES],
            associated: &[u8],
            sealed: &'a mut [u8],
        ) -> Result<&'a mut [u8], NotAuthentic> {
            let nonce = Nonce::assume_unique_for_key(nonce);
            // The name `assume_unique_for_key` concerns sealing. Opening a nonce twice is harmless.
            self.open_in_place(nonce, Aad::from(associated), sealed).map_err(|_| NotAuthentic)
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn prepared_key_seals_like_its_bytes_until_it_is_wiped() {
            let bytes = |byte| Key::from([byte; KEY_BYTES]);
            let mut prepared = PreparedKey::from(bytes(7));
            let sealed = |key: &dyn Fn(&mut [u8]) -> [u8; TAG_BYTES]| {
                let mut plain = [1; 40];
                (key(&mut plain), plain)
            };
            let of = |byte| sealed(&|plain| prepare(&bytes(byte)).seal([5; NONCE_BYTES], b"beside", plain));
            assert_eq!(sealed(&|plain| prepared.seal([5; NONCE_BYTES], b"beside", plain)), of(7));
            prepared.wipe();
            assert_eq!(sealed(&|plain| prepared.seal([5; NONCE_BYTES], b"beside", plain)), of(0));
        }
    }
}

#[cfg(all(test, feature = "ring"))]
mod tests {
    use super::*;
    use crate::crypto::key::Key;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_backends_produce_and_accept_the_same_bytes(
            key in any::<[u8; 32]>(),
            sequence in any::<u64>(),
            associated in prop::collection::vec(any::<u8>(), 0..64),
            plain in prop::collection::vec(any::<u8>(), 0..1300),
            flip in any::<prop::sample::Index>(),
        ) {
            let (fast_key, slow_key) = (ring::prepare(&Key::from(key)), portable::PreparedKey::from(Key::from(key)));
            let (mut fast, mut slow) = (plain.clone(), plain.clone());
            let tag = fast_key.seal(nonce(sequence), &associated, &mut fast);
            prop_assert_eq!(tag, slow_key.seal(nonce(sequence), &associated, &mut slow));
            prop_assert_eq!(&fast, &slow);

            fast.extend_from_slice(&tag);
            let mut crossed = fast.clone();
            let mut altered = fast.clone();
            prop_assert_eq!(slow_key.open(nonce(sequence), &associated, &mut fast), Ok(&mut plain.clone()[..]));
            prop_assert_eq!(fast_key.open(nonce(sequence), &associated, &mut crossed), Ok(&mut plain.clone()[..]));

            let index = flip.index(altered.len());
            altered[index] ^= 0x40;
            let mut again = altered.clone();
            prop_assert_eq!(slow_key.open(nonce(sequence), &associated, &mut altered), Err(NotAuthentic));
            prop_assert_eq!(fast_key.open(nonce(sequence), &associated, &mut again), Err(NotAuthentic));
        }
    }
}
