//! Sealing and opening of the two tokens: the private part of a connect token, and the challenge token (§1.3).

use chacha20::R20;
use zeroize::Zeroize;

use super::aead::{NONCE_BYTES, NotAuthentic, nonce, packets};
use super::key::Key;
use crate::time::UnixSeconds;
use crate::wire::cursor::Writer;
use crate::wire::{
    CHALLENGE_TOKEN_BYTES, CHALLENGE_TOKEN_PLAIN_BYTES, PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES, TAG_BYTES,
    TOKEN_NONCE_BYTES, VERSION,
};

/// Version, protocol id and expiry: what is authenticated beside the private part.
const ASSOCIATED_BYTES: usize = VERSION.len() + 8 + 8;

/// What a private part is sealed with beside the key: changing any of it makes the seal break.
#[derive(Clone, Copy)]
pub struct PrivateContext<'a> {
    /// The game.
    pub protocol_id: u64,
    /// When the token expires.
    pub expires: UnixSeconds,
    /// The token's random nonce.
    pub nonce: &'a [u8; TOKEN_NONCE_BYTES],
}

impl PrivateContext<'_> {
    fn associated(&self) -> [u8; ASSOCIATED_BYTES] {
        let mut associated = [0; ASSOCIATED_BYTES];
        let mut writer = Writer::new(&mut associated);
        writer.bytes(&VERSION);
        writer.u64(self.protocol_id);
        writer.u64(self.expires.0);
        associated
    }
}

/// XChaCha20-Poly1305 as ChaCha20-Poly1305: the key that HChaCha20 makes of the first 16 bytes of the nonce, and the last 8
/// as the sequence number (draft-irtf-cfrg-xchacha-03, sections 2.2 and 2.3).
fn extended(key: &Key, nonce: &[u8; TOKEN_NONCE_BYTES]) -> (Key, [u8; NONCE_BYTES]) {
    let (mut first, mut last) = ([0; 16], [0; 8]);
    let (head, tail) = nonce.split_at(first.len());
    first.copy_from_slice(head);
    last.copy_from_slice(tail);
    let mut made = chacha20::hchacha::<R20>(key.expose().into(), &first.into());
    let subkey = Key::from_bytes(made.into());
    made.zeroize();
    (subkey, super::aead::nonce(u64::from_le_bytes(last)))
}

/// Seals a private part with XChaCha20-Poly1305: `token` holds the plaintext, and room for the tag behind it.
pub fn seal_private(key: &Key, context: &PrivateContext<'_>, token: &mut [u8; PRIVATE_TOKEN_BYTES]) {
    let Some((plain, room)) = token.split_last_chunk_mut::<TAG_BYTES>() else { return };
    let (key, nonce) = extended(key, context.nonce);
    *room = packets::seal(&key, nonce, &context.associated(), plain);
}

/// Opens a private part in place.
///
/// # Errors
/// [`NotAuthentic`]: another key, or something was changed. The bytes are worthless then.
pub fn open_private<'a>(
    key: &Key,
    context: &PrivateContext<'_>,
    token: &'a mut [u8; PRIVATE_TOKEN_BYTES],
) -> Result<&'a mut [u8; PRIVATE_TOKEN_PLAIN_BYTES], NotAuthentic> {
    let (key, nonce) = extended(key, context.nonce);
    let plain = packets::open(&key, nonce, &context.associated(), token)?;
    plain.try_into().map_err(|_| NotAuthentic)
}

/// Seals a challenge token under the server's own key; no associated data.
pub fn seal_challenge(key: &Key, sequence: u64, token: &mut [u8; CHALLENGE_TOKEN_BYTES]) {
    if let Some((plain, room)) = token.split_last_chunk_mut::<TAG_BYTES>() {
        *room = packets::seal(key, nonce(sequence), &[], plain);
    }
}

/// Opens a challenge token in place.
///
/// # Errors
/// [`NotAuthentic`]: not one of ours, or not under this sequence number.
pub fn open_challenge<'a>(
    key: &Key,
    sequence: u64,
    token: &'a mut [u8; CHALLENGE_TOKEN_BYTES],
) -> Result<&'a mut [u8; CHALLENGE_TOKEN_PLAIN_BYTES], NotAuthentic> {
    let plain = packets::open(key, nonce(sequence), &[], token)?;
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
        fn a_private_part_is_sealed_as_the_portable_crate_seals_it(
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
            seal_private(&Key::from_bytes(key), &context, &mut ours);
            prop_assert_eq!(ours, theirs);
            prop_assert_eq!(open_private(&Key::from_bytes(key), &context, &mut ours), Ok(&mut before.clone()));
        }
    }
}
