//! Redeeming: a sealed private part becomes what the issuer said, if it was said to us.

use zeroize::Zeroizing;

use crate::address::Address;
use crate::crypto::aead::NotAuthentic;
use crate::crypto::key::{Key, KeyRing};
use crate::crypto::sealed_token::{PrivateContext, open_private};
use crate::discard::Discard;
use crate::time::{UnixMillis, UnixSeconds};
use crate::wire::packet::Request;
use crate::wire::token::{PrivateLayout, Servers};
use crate::wire::{PRIVATE_TOKEN_BYTES, UserData};

/// A connect token that opened with one of our keys: its content is the issuer's word.
///
/// Whether it was used before, and who presents it, is not known yet.
pub struct Redeemed {
    /// Who the client is.
    pub client_id: u64,
    /// Seconds of silence after which the server gives up; negative: never.
    pub timeout_seconds: i32,
    /// The servers that may accept it.
    pub servers: Servers,
    /// Opens what the client sends.
    pub client_to_server: Key,
    /// Seals what the client receives.
    pub server_to_client: Key,
    /// The application's own data.
    pub user_data: UserData,
    /// When it was minted, to the millisecond, if the issuer says so.
    pub minted: Option<UnixMillis>,
    /// When it stops being accepted.
    pub expires: UnixSeconds,
}

impl Redeemed {
    /// Our own place in the token's address list: the first entry that is one of ours.
    #[must_use]
    pub fn server_index(&self, ours: &[Address]) -> Option<u8> {
        let listed = |address: &core::net::SocketAddr| ours.contains(&Address::from(*address));
        self.servers.as_slice().iter().position(listed).map(|index| index as u8)
    }

    /// Which of two tokens for one client is newer: by mint time where known, else by expiry.
    #[must_use]
    pub fn age(&self) -> Age {
        Age { minted: self.minted, expires: self.expires }
    }
}

/// When a token was made, as far as it tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Age {
    minted: Option<UnixMillis>,
    expires: UnixSeconds,
}

impl Age {
    #[cfg(test)]
    pub(crate) const fn new(minted: Option<UnixMillis>, expires: UnixSeconds) -> Self {
        Self { minted, expires }
    }

    /// Whether this token was made after the other one. Tokens of the same moment are not newer than each other.
    #[must_use]
    pub fn is_newer_than(self, other: Self) -> bool {
        match (self.minted, other.minted) {
            (Some(this), Some(that)) => this > that,
            _ => self.expires > other.expires,
        }
    }
}

/// Opens the private part of a connection request with the first key that fits.
///
/// # Errors
/// `TokenNotAuthentic` or `TokenMalformed`.
pub fn redeem(request: &Request<'_>, protocol_id: u64, keys: &KeyRing) -> Result<Redeemed, Discard> {
    let context = PrivateContext { protocol_id, expires: request.expires, nonce: request.nonce };
    let mut buffer = Zeroizing::new([0; PRIVATE_TOKEN_BYTES]);
    for key in keys.keys() {
        *buffer = *request.sealed;
        let plain = match open_private(key, &context, &mut buffer) {
            Ok(plain) => plain,
            Err(NotAuthentic) => continue,
        };
        let private = PrivateLayout::parse(plain).map_err(|_| Discard::TokenMalformed)?;
        return Ok(Redeemed {
            client_id: private.client_id,
            timeout_seconds: private.timeout_seconds,
            servers: private.servers,
            client_to_server: Key::from_bytes(*private.client_to_server),
            server_to_client: Key::from_bytes(*private.server_to_client),
            user_data: *private.user_data,
            minted: private.minted,
            expires: request.expires,
        });
    }
    Err(Discard::TokenNotAuthentic)
}
