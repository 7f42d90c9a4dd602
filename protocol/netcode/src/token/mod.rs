//! The connect token as a story.
//!
//! ```text
//!  claims ──issue──▶ connect token ──request──▶ redeemed ──history──▶ pending ──challenge──▶ proven ──▶ slot
//!  (backend)         (client)                   (decrypted, for this  (this token   (this address receives,
//!                                                server, in time)      was not used) the challenge is fresh)
//! ```
//!
//! Each arrow is one function, and each value is made only by the arrow before it.

pub mod challenge;
pub mod history;
pub mod issue;
pub mod redeem;
mod used;

use alloc::boxed::Box;
use core::fmt;

use zeroize::Zeroizing;

use crate::crypto::key::Key;
use crate::time::UnixSeconds;
use crate::wire::token::{LayoutError, PublicLayout, Servers};
use crate::wire::{CONNECT_TOKEN_BYTES, PRIVATE_TOKEN_BYTES, TOKEN_NONCE_BYTES};

/// A connect token: 2048 bytes that admit one player to one of a few servers for a short time.
///
/// It holds the session's keys in the clear: hand it to its player over HTTPS and to nobody else. It is wiped when
/// dropped, and its `Debug` shows only public facts.
#[derive(Clone)]
pub struct ConnectToken {
    bytes: Box<Zeroizing<[u8; CONNECT_TOKEN_BYTES]>>,
    facts: PublicFacts,
}

/// What anybody may know of a connect token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicFacts {
    /// The game.
    pub protocol_id: u64,
    /// When it was made.
    pub created: UnixSeconds,
    /// From this second on it is refused.
    pub expires: UnixSeconds,
    /// Seconds of silence that end the connection; negative: none do.
    pub timeout_seconds: i32,
    /// The servers, in the order in which they are tried.
    pub servers: Servers,
}

impl ConnectToken {
    /// Reads a connect token. The private part cannot be checked without the private key, and is not.
    ///
    /// # Errors
    /// The first check of §1.5 that fails.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, LayoutError> {
        let layout = PublicLayout::parse(bytes)?;
        let facts = PublicFacts {
            protocol_id: layout.protocol_id,
            created: layout.created,
            expires: layout.expires,
            timeout_seconds: layout.timeout_seconds,
            servers: layout.servers,
        };
        let bytes: &[u8; CONNECT_TOKEN_BYTES] = bytes.try_into().map_err(|_| LayoutError::Length)?;
        Ok(Self { bytes: Box::new(Zeroizing::new(*bytes)), facts })
    }

    /// The 2048 bytes, keys included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; CONNECT_TOKEN_BYTES] {
        &self.bytes
    }

    /// What anybody may know of it.
    #[must_use]
    pub const fn facts(&self) -> &PublicFacts {
        &self.facts
    }

    /// The key that seals what the client sends. Secret.
    #[must_use]
    pub fn client_to_server_key(&self) -> Key {
        Key::from_bytes(self.layout().map_or([0; 32], |layout| *layout.client_to_server))
    }

    /// The key that opens what the client receives. Secret.
    #[must_use]
    pub fn server_to_client_key(&self) -> Key {
        Key::from_bytes(self.layout().map_or([0; 32], |layout| *layout.server_to_client))
    }

    /// The nonce of the private part: unlike for every token.
    #[must_use]
    pub fn nonce(&self) -> [u8; TOKEN_NONCE_BYTES] {
        self.layout().map_or([0; TOKEN_NONCE_BYTES], |layout| *layout.nonce)
    }

    /// The sealed private part.
    #[must_use]
    pub fn sealed_private_part(&self) -> [u8; PRIVATE_TOKEN_BYTES] {
        self.layout().map_or([0; PRIVATE_TOKEN_BYTES], |layout| *layout.sealed)
    }

    fn layout(&self) -> Option<PublicLayout<'_>> {
        let layout = PublicLayout::parse(self.bytes.as_slice()).ok();
        debug_assert!(layout.is_some(), "the bytes were read once when the token was made");
        layout
    }
}

impl fmt::Debug for ConnectToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectToken").field(&self.facts).finish()
    }
}
