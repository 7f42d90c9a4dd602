//! ChaCha20-Poly1305 (RFC 8439) in place, by one of two backends that give the same bytes.
//!
//! [`ring`] carries packets where it builds (feature `ring`, on by default): its assembly costs a tenth (16 bytes) to a
//! quarter (1200 bytes) of the portable crate's time on x86-64 without any flag of the final user. [`portable`] is the `chacha20poly1305` crate: any CPU,
//! `no_std`, wasm. The measured reason for the choice stands in `specs/ciphers.md`.

#[cfg(not(feature = "ring"))]
pub use self::portable as packets;
#[cfg(feature = "ring")]
pub use self::ring as packets;

/// Bytes of the nonce of ChaCha20-Poly1305 (RFC 8439, section 2.8).
pub const NONCE_BYTES: usize = 12;

/// The nonce of a sequence number: four zero bytes, then the number, little-endian (§1.3).
#[must_use]
pub const fn nonce(sequence: u64) -> [u8; NONCE_BYTES] {
    let [a, b, c, d, e, f, g, h] = sequence.to_le_bytes();
    [0, 0, 0, 0, a, b, c, d, e, f, g, h]
}

/// The tag did not match: wrong key, nonce or associated data, or altered bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAuthentic;

/// The portable backend: the `chacha20poly1305` crate.
pub mod portable {
    use chacha20poly1305::aead::{AeadInOut, KeyInit};
    use chacha20poly1305::{ChaCha20Poly1305, Tag};

    use super::{NONCE_BYTES, NotAuthentic};
    use crate::crypto::key::Key;
    use crate::wire::TAG_BYTES;

    /// Encrypts in place and returns the tag.
    #[must_use]
    pub fn seal(key: &Key, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
        let cipher = ChaCha20Poly1305::new(key.expose().into());
        let tag = cipher.encrypt_inout_detached(&nonce.into(), associated, plain.into());
        debug_assert!(tag.is_ok(), "a packet is far below the cipher's limit of 256 GiB");
        tag.map(Into::into).unwrap_or_default()
    }

    /// Decrypts ciphertext and tag in place and returns the plaintext.
    ///
    /// # Errors
    /// [`NotAuthentic`]; the bytes are worthless then.
    pub fn open<'a>(
        key: &Key,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic> {
        let (plain, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(NotAuthentic)?;
        let cipher = ChaCha20Poly1305::new(key.expose().into());
        cipher
            .decrypt_inout_detached(&nonce.into(), associated, (&mut *plain).into(), &Tag::from(*tag))
            .map_err(|_| NotAuthentic)?;
        Ok(plain)
    }
}

/// The fast backend: ring's assembly.
#[cfg(feature = "ring")]
pub mod ring {
    use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};

    use super::{NONCE_BYTES, NotAuthentic};
    use crate::crypto::key::Key;
    use crate::wire::TAG_BYTES;

    // DECISION: ring's key object is made for each packet and not kept. It costs about 30 ns, saves half a
    // kibibyte for each direction of each client, and ring does not wipe its keys, while ours are.
    fn cipher(key: &Key) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, key.expose()).ok().map(LessSafeKey::new)
    }

    /// Encrypts in place and returns the tag.
    #[must_use]
    pub fn seal(key: &Key, nonce: [u8; NONCE_BYTES], associated: &[u8], plain: &mut [u8]) -> [u8; TAG_BYTES] {
        let tag = cipher(key).and_then(|cipher| {
            cipher.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(associated), plain).ok()
        });
        let tag = tag.and_then(|tag| tag.as_ref().try_into().ok());
        // Falling back keeps the promise of a sealed packet even if ring refused what it cannot refuse: 32 key bytes.
        tag.unwrap_or_else(|| super::portable::seal(key, nonce, associated, plain))
    }

    /// Decrypts ciphertext and tag in place and returns the plaintext.
    ///
    /// # Errors
    /// [`NotAuthentic`]; the bytes are worthless then.
    pub fn open<'a>(
        key: &Key,
        nonce: [u8; NONCE_BYTES],
        associated: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], NotAuthentic> {
        if sealed.len() < TAG_BYTES {
            return Err(NotAuthentic);
        }
        let cipher = cipher(key).ok_or(NotAuthentic)?;
        cipher
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(associated), sealed)
            .map_err(|_| NotAuthentic)
    }
}

#[cfg(all(test, feature = "ring"))]
mod tests {
    use super::*;
    use crate::crypto::key::Key;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_backends_give_and_take_the_same_bytes(
            key in any::<[u8; 32]>(),
            sequence in any::<u64>(),
            associated in prop::collection::vec(any::<u8>(), 0..64),
            plain in prop::collection::vec(any::<u8>(), 0..1300),
            flip in any::<prop::sample::Index>(),
        ) {
            let key = Key::from_bytes(key);
            let (mut fast, mut slow) = (plain.clone(), plain.clone());
            let tag = ring::seal(&key, nonce(sequence), &associated, &mut fast);
            prop_assert_eq!(tag, portable::seal(&key, nonce(sequence), &associated, &mut slow));
            prop_assert_eq!(&fast, &slow);

            fast.extend_from_slice(&tag);
            let mut crossed = fast.clone();
            let mut altered = fast.clone();
            prop_assert_eq!(portable::open(&key, nonce(sequence), &associated, &mut fast), Ok(&mut plain.clone()[..]));
            prop_assert_eq!(ring::open(&key, nonce(sequence), &associated, &mut crossed), Ok(&mut plain.clone()[..]));

            let place = flip.index(altered.len());
            altered[place] ^= 0x40;
            let mut again = altered.clone();
            prop_assert_eq!(portable::open(&key, nonce(sequence), &associated, &mut altered), Err(NotAuthentic));
            prop_assert_eq!(ring::open(&key, nonce(sequence), &associated, &mut again), Err(NotAuthentic));
        }
    }
}
