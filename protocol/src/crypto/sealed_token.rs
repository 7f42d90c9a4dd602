//! Sealing and opening of the two tokens: the private part of a connect token, and the challenge token (§1.3).
//!
//! Handshakes only, so the portable backend serves: it has the extended nonce, and both run everywhere.

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305};

use super::aead::{self, NotAuthentic, nonce};
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

/// Seals a private part with XChaCha20-Poly1305: `token` holds the plaintext, and room for the tag behind it.
pub fn seal_private(key: &Key, context: &PrivateContext<'_>, token: &mut [u8; PRIVATE_TOKEN_BYTES]) {
    let Some((plain, room)) = token.split_last_chunk_mut::<TAG_BYTES>() else { return };
    let cipher = XChaCha20Poly1305::new(key.expose().into());
    let tag = cipher.encrypt_inout_detached(context.nonce.into(), &context.associated(), plain.into());
    debug_assert!(tag.is_ok(), "a token is far below the cipher's limit");
    *room = tag.map(Into::into).unwrap_or_default();
}

/// Opens a private part in place.
///
/// # Errors
/// [`NotAuthentic`]: another key, or something was changed. The bytes are as they were then.
pub fn open_private<'a>(
    key: &Key,
    context: &PrivateContext<'_>,
    token: &'a mut [u8; PRIVATE_TOKEN_BYTES],
) -> Result<&'a mut [u8; PRIVATE_TOKEN_PLAIN_BYTES], NotAuthentic> {
    let (plain, tag) = token.split_first_chunk_mut().ok_or(NotAuthentic)?;
    let tag: [u8; TAG_BYTES] = (&*tag).try_into().map_err(|_| NotAuthentic)?;
    let cipher = XChaCha20Poly1305::new(key.expose().into());
    let plain: &mut [u8; PRIVATE_TOKEN_PLAIN_BYTES] = plain;
    cipher
        .decrypt_inout_detached(
            context.nonce.into(),
            &context.associated(),
            plain.as_mut_slice().into(),
            &Tag::from(tag),
        )
        .map_err(|_| NotAuthentic)?;
    Ok(plain)
}

/// Seals a challenge token under the server's own key; no associated data.
pub fn seal_challenge(key: &Key, sequence: u64, token: &mut [u8; CHALLENGE_TOKEN_BYTES]) {
    if let Some((plain, room)) = token.split_last_chunk_mut::<TAG_BYTES>() {
        *room = aead::portable::seal(key, nonce(sequence), &[], plain);
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
    let plain = aead::portable::open(key, nonce(sequence), &[], token)?;
    plain.try_into().map_err(|_| NotAuthentic)
}
