//! Sealing and opening of both token types: the private part of a connect token, and the challenge token (§1.3).

use chacha20::R20;
use zeroize::Zeroize;

use super::aead::{NONCE_BYTES, NotAuthentic, PacketKey, nonce};
use super::key::Key;
use crate::time::UnixSeconds;
use crate::wire::cursor::Writer;
use crate::wire::{
    CHALLENGE_TOKEN_BYTES, CHALLENGE_TOKEN_PLAIN_BYTES, PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES, TAG_BYTES,
    TOKEN_NONCE_BYTES, VERSION,
};

/// Bytes of the associated data of a private part: version, protocol id and expiry.
const ASSOCIATED_BYTES: usize = VERSION.len() + 8 + 8;

/// The public inputs of a private part's seal. A change of any of them makes opening fail.
#[derive(Clone, Copy)]
pub struct PrivateContext<'a> {
    /// The id of the game.
    pub protocol_id: u64,
    /// The second in which the token expires.
    pub expires: UnixSeconds,
    /// The token's random nonce.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
}

impl PrivateContext<'_> {
    fn associated(&self) -> [u8; ASSOCIATED_BYTES] {
        let mut associated = [0; ASSOCIATED_BYTES];
        let mut writer = Writer::new(&mut associated);
        writer.bytes(&VERSION);
        writer.write::<u64>(self.protocol_id);
        writer.write::<u64>(self.expires.0);
        associated
    }
}

/// Reduces XChaCha20-Poly1305 to ChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03, sections 2.2 and 2.3): HChaCha20 of the
/// key and the first 16 bytes of the nonce gives the subkey, and the last 8 bytes are the sequence number.
fn xchacha_subkey(key: &Key, nonce: &[u8; TOKEN_NONCE_BYTES]) -> (Key, [u8; NONCE_BYTES]) {
    // Both backends lack XChaCha20 or differ in its interface, so HChaCha20 derives the key for either.
    let (mut first, mut last) = ([0; 16], [0; 8]);
    let (head, tail) = nonce.split_at(first.len());
    first.copy_from_slice(head);
    last.copy_from_slice(tail);
    let mut bytes = chacha20::hchacha::<R20>(key.expose().into(), &first.into());
    let subkey = Key::from(<[u8; crate::wire::KEY_BYTES]>::from(bytes));
    // `Key` wipes its own copy. This is the other one.
    bytes.zeroize();
    (subkey, super::aead::nonce(u64::from_le_bytes(last)))
}

/// Seals a private part with XChaCha20-Poly1305. `token` holds the plaintext, and its last 16 bytes receive the tag.
pub fn seal_private(key: &Key, context: &PrivateContext<'_>, token: &mut [u8; PRIVATE_TOKEN_BYTES]) {
    let Some((plain, tag)) = token.split_last_chunk_mut::<TAG_BYTES>() else { return };
    let (key, nonce) = xchacha_subkey(key, context.nonce);
    *tag = key.seal(nonce, &context.associated(), plain);
}

/// Opens a private part in place.
///
/// # Errors
/// [`NotAuthentic`] when the key or the context differs, or a byte was altered. The content of `token` is undefined
/// then.
pub fn open_private<'a>(
    key: &Key,
    context: &PrivateContext<'_>,
    token: &'a mut [u8; PRIVATE_TOKEN_BYTES],
) -> Result<&'a mut [u8; PRIVATE_TOKEN_PLAIN_BYTES], NotAuthentic> {
    let (key, nonce) = xchacha_subkey(key, context.nonce);
    let plain = key.open(nonce, &context.associated(), token)?;
    plain.try_into().map_err(|_| NotAuthentic)
}

/// Seals a challenge token under the server's own key, without associated data.
pub fn seal_challenge(key: &Key, sequence: u64, token: &mut [u8; CHALLENGE_TOKEN_BYTES]) {
    if let Some((plain, tag)) = token.split_last_chunk_mut::<TAG_BYTES>() {
        *tag = key.seal(nonce(sequence), &[], plain);
    }
}

/// Opens a challenge token in place.
///
/// # Errors
/// [`NotAuthentic`] when another key or sequence number sealed it. The content of `token` is undefined then.
pub fn open_challenge<'a>(
    key: &Key,
    sequence: u64,
    token: &'a mut [u8; CHALLENGE_TOKEN_BYTES],
) -> Result<&'a mut [u8; CHALLENGE_TOKEN_PLAIN_BYTES], NotAuthentic> {
    // The sequence number is sent unencrypted, but a changed one gives another nonce and fails here.
    let plain = key.open(nonce(sequence), &[], token)?;
    plain.try_into().map_err(|_| NotAuthentic)
}

#[cfg(test)]
mod tests {
    use chacha20poly1305::aead::{AeadInOut, KeyInit};
    use chacha20poly1305::{Tag, XChaCha20Poly1305};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn private_part_is_sealed_like_the_portable_crate(
            (key, noise, nonce) in any::<([u8; 32], [u8; 32], [u8; 24])>(),
            (protocol_id, expires) in any::<(u64, u64)>(),
        ) {
            let context = PrivateContext { protocol_id, expires: UnixSeconds(expires), nonce: &nonce };
            let mut ours = [0; PRIVATE_TOKEN_BYTES];
            ours.iter_mut().zip(noise.iter().cycle()).for_each(|(byte, noise)| *byte = *noise);
            let mut theirs = ours;
            let (plain, tag) = theirs.split_last_chunk_mut::<TAG_BYTES>().unwrap();
            let before = <[u8; PRIVATE_TOKEN_PLAIN_BYTES]>::try_from(&*plain).unwrap();
            let made = XChaCha20Poly1305::new((&key).into())
                .encrypt_inout_detached((&nonce).into(), &context.associated(), plain.into())
                .unwrap();
            *tag = Tag::into(made);
            seal_private(&Key::from(key), &context, &mut ours);
            prop_assert_eq!(ours, theirs);
            prop_assert_eq!(open_private(&Key::from(key), &context, &mut ours), Ok(&mut before.clone()));
        }
    }
}
