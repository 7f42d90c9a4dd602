//! Redeeming: opening the sealed private part of a token and reading the issuer's claims.

use zeroize::Zeroizing;

use crate::address::Address;
use crate::crypto::aead::NotAuthentic;
use crate::crypto::key::{Key, KeyRing};
use crate::crypto::sealed_token::{PrivateContext, open_private};
use crate::discard::Discard;
use crate::ids::ClientId;
use crate::time::{UnixMillis, UnixSeconds};
use crate::wire::packet::Request;
use crate::wire::token::{PrivateLayout, Servers};
use crate::wire::{PRIVATE_TOKEN_BYTES, UserData};

/// The content of a connect token that opened with one of the server's keys, so the issuer wrote it.
///
/// The token may have been used before, and its sender's address is not verified yet.
pub struct Redeemed {
    /// The client's id.
    pub client_id: ClientId,
    /// The seconds of silence that end the connection. A negative value requests no timeout.
    pub timeout_seconds: i32,
    /// The servers that may accept the token.
    pub servers: Servers,
    /// The key of the packets from the client.
    pub client_to_server: Key,
    /// The key of the packets to the client.
    pub server_to_client: Key,
    /// The application's own data.
    pub user_data: UserData,
    /// The mint time, if the issuer wrote one.
    pub minted: Option<UnixMillis>,
    /// The second from which on the token is refused.
    pub expires: UnixSeconds,
}

impl Redeemed {
    /// Returns this server's index in the token's address list: the first entry that is in `ours`.
    #[must_use]
    pub fn server_index(&self, ours: &[Address]) -> Option<u8> {
        let listed = |address: &core::net::SocketAddr| ours.contains(&Address::from(*address));
        // A list has at most 32 entries, so the index fits.
        self.servers.iter().position(listed).map(|index| index as u8)
    }

    /// Returns the token's age, which orders the tokens of one client.
    pub(crate) fn age(&self) -> TokenAge {
        TokenAge { minted: self.minted, expires: self.expires }
    }
}

/// The age of a token: its mint time, if it has one, and its expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TokenAge {
    minted: Option<UnixMillis>,
    expires: UnixSeconds,
}

impl TokenAge {
    #[cfg(test)]
    pub(crate) const fn new(minted: Option<UnixMillis>, expires: UnixSeconds) -> Self {
        Self { minted, expires }
    }

    /// Returns the mint time, if the issuer wrote one.
    pub(crate) const fn minted(self) -> Option<UnixMillis> {
        self.minted
    }

    /// Returns the second from which on the token is refused.
    pub(crate) const fn expires(self) -> UnixSeconds {
        self.expires
    }

    /// Returns whether this token is newer than the other one. Tokens with the same time are not.
    pub(crate) fn is_newer_than(self, other: Self) -> bool {
        // Tokens of other issuers have no mint time. Their expiry orders tokens of equal lifetime.
        match (self.minted, other.minted) {
            (Some(this), Some(that)) => this > that,
            _ => self.expires > other.expires,
        }
    }
}

/// Opens the private part of a connection request with the first key that fits.
///
/// # Errors
/// - `TokenNotAuthentic` when no key opens it.
/// - `TokenMalformed` when it opens, but its content is malformed.
pub fn redeem(request: &Request<'_>, protocol_id: u64, keys: &KeyRing) -> Result<Redeemed, Discard> {
    let context = PrivateContext { protocol_id, expires: request.expires, nonce: request.nonce };
    let mut buf = Zeroizing::new([0; PRIVATE_TOKEN_BYTES]);
    for key in keys.iter() {
        // A failed attempt leaves garbage behind, so each key starts from the sealed bytes.
        *buf = *request.sealed;
        let plain = match open_private(key, &context, &mut buf) {
            Ok(plain) => plain,
            Err(NotAuthentic) => continue,
        };
        let private = PrivateLayout::parse(plain).map_err(|_| Discard::TokenMalformed)?;
        return Ok(Redeemed {
            client_id: private.client_id,
            timeout_seconds: private.timeout_seconds,
            servers: private.servers,
            client_to_server: Key::from(*private.client_to_server),
            server_to_client: Key::from(*private.server_to_client),
            user_data: *private.user_data,
            minted: private.minted,
            expires: request.expires,
        });
    }
    Err(Discard::TokenNotAuthentic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn newer_token_has_a_later_mint_time_or_else_expiry() {
        // Mint time and expiry of two tokens, and whether the first one is newer.
        for (this, other, is_newer) in [
            ((Some(2), 10), (Some(1), 10), true),
            ((Some(1), 10), (Some(2), 10), false),
            ((Some(2), 10), (Some(2), 5), false),
            // Both have a mint time, so the expiry does not matter.
            ((Some(2), 5), (Some(1), 10), true),
            ((Some(1), 10), (Some(2), 5), false),
            // One or both have none.
            ((None, 11), (None, 10), true),
            ((None, 10), (None, 10), false),
            ((None, 9), (None, 10), false),
            ((Some(1), 11), (None, 10), true),
            ((Some(9), 10), (None, 10), false),
            ((None, 11), (Some(9), 10), true),
            ((None, 9), (Some(1), 10), false),
        ] {
            let age =
                |(minted, expires): (Option<u64>, u64)| TokenAge::new(minted.map(UnixMillis), UnixSeconds(expires));
            assert_eq!(age(this).is_newer_than(age(other)), is_newer, "{this:?}, {other:?}");
        }
    }

    proptest! {
        #[test]
        fn no_token_is_newer_than_itself(minted in any::<Option<u64>>(), expires in any::<u64>()) {
            let age = TokenAge::new(minted.map(UnixMillis), UnixSeconds(expires));
            prop_assert!(!age.is_newer_than(age));
        }
    }
}
