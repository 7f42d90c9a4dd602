//! The connect token, from its issue to a connection.
//!
//! ```text
//!  claims ──issue──▶ connect token ──request──▶ redeemed ──history──▶ pending ──challenge──▶ proven ──▶ slot
//!  (backend)         (client)                   (decrypted, for this  (this token   (this address receives,
//!                                                server, in time)      was not used) the challenge is fresh)
//! ```
//!
//! Each arrow is one function, and only that function makes the value behind it.

pub mod challenge;
pub(crate) mod epochs;
pub mod history;
pub mod issue;
pub mod redeem;
mod used;

use alloc::boxed::Box;
use core::fmt;

use zeroize::optimization_barrier;

use crate::crypto::key::Key;
use crate::time::UnixSeconds;
use crate::wire::packet::Request;
use crate::wire::token::{PublicLayout, Servers, TokenLayoutError};
use crate::wire::{CONNECT_TOKEN_BYTES, KEY_BYTES, PRIVATE_TOKEN_BYTES, TOKEN_NONCE_BYTES};

/// A connect token: 2048 bytes that admit one client to one of up to 32 servers for a short time.
///
/// It holds the connection's keys in the clear. Send it over HTTPS, and only to its player. It is wiped when dropped,
/// and its `Debug` shows only [`PublicFacts`].
///
/// # Examples
/// ```no_run
/// use slipgate_netcode::token::ConnectToken;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let token = ConnectToken::from_bytes(&std::fs::read("token")?)?;
/// println!("the token expires at {:?}", token.facts().expires);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ConnectToken {
    bytes: Box<[u8; CONNECT_TOKEN_BYTES]>,
    facts: PublicFacts,
}

/// The fields of a connect token that are not secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicFacts {
    /// The id of the game.
    pub protocol_id: u64,
    /// The second in which the token was made.
    pub created: UnixSeconds,
    /// The second from which on the token is refused.
    pub expires: UnixSeconds,
    /// The seconds of silence that end the connection. A negative value disables the timeout.
    pub timeout_seconds: i32,
    /// The servers, in the order in which a client tries them.
    pub servers: Servers,
}

/// The keys of a connection, one for each direction. They are wiped when dropped.
pub struct ConnectionKeys {
    /// The key of the packets from the client.
    pub client_to_server: Key,
    /// The key of the packets to the client.
    pub server_to_client: Key,
}

impl ConnectToken {
    /// Parses a connect token. The private part stays unchecked, because only servers have its key.
    ///
    /// # Errors
    /// - `Length` when `bytes` are not 2048, or a field is past the end.
    /// - `Version` when the version is not `NETCODE 1.02`.
    /// - `CreatedAfterExpiry` when the token expires before its creation.
    /// - `ServerCount` unless it lists 1 to 32 servers.
    /// - `AddressType` when an address is neither IPv4 nor IPv6.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TokenLayoutError> {
        // Parsed before the copy: malformed bytes cost no allocation.
        let layout = PublicLayout::parse(bytes)?;
        let facts = layout.into();
        let bytes: &[u8; CONNECT_TOKEN_BYTES] = bytes.try_into().map_err(|_| TokenLayoutError::Length)?;
        Ok(Self { bytes: Box::new(*bytes), facts })
    }

    /// Returns the 2048 bytes of the token, keys included.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; CONNECT_TOKEN_BYTES] {
        &self.bytes
    }

    /// Returns the fields that are not secret.
    #[must_use]
    pub const fn facts(&self) -> &PublicFacts {
        &self.facts
    }

    /// Returns the secret keys of the connection.
    #[must_use]
    pub fn keys(&self) -> ConnectionKeys {
        let (client_to_server, server_to_client) = self
            .layout()
            .map_or(([0; KEY_BYTES], [0; KEY_BYTES]), |layout| (*layout.client_to_server, *layout.server_to_client));
        ConnectionKeys { client_to_server: client_to_server.into(), server_to_client: server_to_client.into() }
    }

    /// Returns the connection request that presents this token: its expiry, its unique nonce and its sealed private
    /// part.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        let (nonce, sealed) = self
            .layout()
            .map_or((&[0; TOKEN_NONCE_BYTES], &[0; PRIVATE_TOKEN_BYTES]), |layout| (layout.nonce, layout.sealed));
        Request { expires: self.facts.expires, nonce, sealed }
    }

    fn layout(&self) -> Option<PublicLayout<'_>> {
        // Parsed again on each call, so that keys exist only once, in `bytes`.
        let layout = PublicLayout::parse(self.bytes.as_slice()).ok();
        debug_assert!(layout.is_some(), "the bytes were parsed when the token was made");
        layout
    }
}

impl From<PublicLayout<'_>> for PublicFacts {
    fn from(layout: PublicLayout<'_>) -> Self {
        Self {
            protocol_id: layout.protocol_id,
            created: layout.created,
            expires: layout.expires,
            timeout_seconds: layout.timeout_seconds,
            servers: layout.servers,
        }
    }
}

/// Wipes the bytes.
impl Drop for ConnectToken {
    fn drop(&mut self) {
        // Not by `Zeroizing`, which writes one byte at a time: for 2048 bytes that is 4 % of the CPU time of a token.
        self.bytes.fill(0);
        optimization_barrier(&*self.bytes);
    }
}

impl fmt::Debug for ConnectToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys must not get into logs.
        f.debug_tuple("ConnectToken").field(&self.facts).finish()
    }
}
