//! Issuing: from what a backend claims about a player to a connect token.

use alloc::boxed::Box;
use core::fmt;

use rand::CryptoRng;
use zeroize::Zeroizing;

use super::ConnectToken;
use crate::crypto::key::Key;
use crate::crypto::sealed_token::{PrivateContext, seal_private};
use crate::time::{UnixMillis, UnixSeconds};
use crate::wire::token::{PrivateLayout, PublicLayout, Servers};
use crate::wire::{CONNECT_TOKEN_BYTES, PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES, TOKEN_NONCE_BYTES, UserData};

/// What a backend says of a player: who it is, where it may go, and for how long.
#[derive(Clone)]
pub struct Claims<'a> {
    /// The game: servers of another game refuse the token.
    pub protocol_id: u64,
    /// Who the player is: unique among the players of a server at a time.
    pub client_id: u64,
    /// The addresses that the client dials, in this order.
    pub servers: &'a Servers,
    /// The addresses by which the servers know themselves, one for each of `servers`, where NAT makes them differ.
    pub internal_servers: Option<&'a Servers>,
    /// How many seconds the token is accepted, at least 1. Players need it for one connect: 30 is plenty.
    pub lifetime_seconds: u32,
    /// Seconds of silence that end the connection, at least 1. Negative ones switch time-outs off, for development;
    /// 0 cannot connect to servers of the reference. Our servers clamp it to 1..=60 unless told otherwise.
    pub timeout_seconds: i32,
    /// The application's own data, which the server hands to the game when the player connects.
    pub user_data: &'a UserData,
}

/// Why no token was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IssueError {
    /// A lifetime of 0 s: such a token would have expired at once.
    NoLifetime,
    /// Internal and dialled server lists have different lengths.
    ServerLists,
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLifetime => "a connect token needs a lifetime of at least one second",
            Self::ServerLists => "the internal server list must have one address for each dialled one",
        })
    }
}

impl core::error::Error for IssueError {}

/// Makes a connect token, sealed with the private key that the servers hold.
///
/// It carries its mint time in the sealed part, in bytes that the standard fills with zeros and others ignore: a server
/// of ours uses it to refuse tokens from before its start.
///
/// # Errors
/// See [`IssueError`].
pub fn issue(
    claims: &Claims<'_>,
    key: &Key,
    now: UnixMillis,
    entropy: &mut impl CryptoRng,
) -> Result<ConnectToken, IssueError> {
    let internal = claims.internal_servers.unwrap_or(claims.servers);
    if claims.lifetime_seconds == 0 {
        return Err(IssueError::NoLifetime);
    }
    if internal.as_slice().len() != claims.servers.as_slice().len() {
        return Err(IssueError::ServerLists);
    }
    let mut nonce = [0; TOKEN_NONCE_BYTES];
    entropy.fill_bytes(&mut nonce);
    let (client_to_server, server_to_client) = (Key::random(entropy), Key::random(entropy));
    let created = now.seconds();
    let expires = UnixSeconds(created.0.saturating_add(u64::from(claims.lifetime_seconds)));

    let private = PrivateLayout {
        client_id: claims.client_id,
        timeout_seconds: claims.timeout_seconds,
        servers: internal.clone(),
        client_to_server: client_to_server.expose(),
        server_to_client: server_to_client.expose(),
        user_data: claims.user_data,
        minted: Some(now),
    };
    let sealed = seal(&private, key, &PrivateContext { protocol_id: claims.protocol_id, expires, nonce: &nonce });

    let mut bytes = Box::new(Zeroizing::new([0; CONNECT_TOKEN_BYTES]));
    let public = PublicLayout {
        protocol_id: claims.protocol_id,
        created,
        expires,
        nonce: &nonce,
        sealed: &sealed,
        timeout_seconds: claims.timeout_seconds,
        servers: claims.servers.clone(),
        client_to_server: client_to_server.expose(),
        server_to_client: server_to_client.expose(),
    };
    public.emit(&mut bytes);
    let facts = super::PublicFacts {
        protocol_id: public.protocol_id,
        created,
        expires,
        timeout_seconds: public.timeout_seconds,
        servers: public.servers,
    };
    Ok(ConnectToken { bytes, facts })
}

/// Writes a private part and seals it.
#[must_use]
pub fn seal(private: &PrivateLayout<'_>, key: &Key, context: &PrivateContext<'_>) -> [u8; PRIVATE_TOKEN_BYTES] {
    let mut sealed = [0; PRIVATE_TOKEN_BYTES];
    if let Some(plain) = sealed.first_chunk_mut::<PRIVATE_TOKEN_PLAIN_BYTES>() {
        private.emit(plain);
    }
    seal_private(key, context, &mut sealed);
    sealed
}
