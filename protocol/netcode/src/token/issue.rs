//! Issuing connect tokens from a backend's claims about a player.

use alloc::boxed::Box;
use core::fmt;

use rand::CryptoRng;

use super::ConnectToken;
use crate::crypto::key::Key;
use crate::crypto::sealed_token::{PrivateContext, seal_private};
use crate::ids::ClientId;
use crate::time::{UnixMillis, UnixSeconds};
use crate::wire::token::{PrivateLayout, PublicLayout, Servers};
use crate::wire::{CONNECT_TOKEN_BYTES, PRIVATE_TOKEN_BYTES, PRIVATE_TOKEN_PLAIN_BYTES, TOKEN_NONCE_BYTES, UserData};

/// The claims of a backend about a player: its id, the servers that it may join, and the token's lifetime.
#[derive(Clone)]
pub struct Claims<'a> {
    /// The id of the game. Servers of another game refuse the token.
    pub protocol_id: u64,
    /// The player's id, unique among the players that are connected to a server at a time.
    pub client_id: ClientId,
    /// The addresses that the client dials, in this order.
    pub servers: &'a Servers,
    /// The servers' own advertised addresses, one for each of `servers`, if NAT makes them differ.
    pub internal_servers: Option<&'a Servers>,
    /// The lifetime of the token in seconds, at least 1. A client needs the token for one connect, so 30 is enough.
    pub lifetime_seconds: u32,
    /// The seconds of silence that end the connection, at least 1. A negative value disables the timeout, for
    /// development. Servers of the reference refuse 0. Slipgate's servers clamp the value to 1..=60 by default.
    pub timeout_seconds: i32,
    /// The application's own data, which the server hands to the game when the player connects.
    pub user_data: &'a UserData,
}

/// Why no token was issued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IssueError {
    /// The lifetime is 0 s, so the token would expire at once.
    NoLifetime,
    /// The internal and the dialled server list have different lengths.
    ServerLists,
}

impl fmt::Display for IssueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLifetime => "a connect token needs a lifetime of at least 1 second",
            Self::ServerLists => "the internal server list must have one address for each dialled address",
        })
    }
}

impl core::error::Error for IssueError {}

/// Issues a connect token, sealed with the private key that the servers hold.
///
/// The sealed part carries the mint time, in bytes that the standard fills with zeros and other libraries ignore.
/// Slipgate's servers use it to refuse tokens from before their start.
///
/// # Errors
/// - `NoLifetime` when the lifetime is 0.
/// - `ServerLists` when the two server lists have different lengths.
pub fn issue(
    claims: &Claims<'_>,
    key: &Key,
    now: UnixMillis,
    entropy: &mut impl CryptoRng,
) -> Result<ConnectToken, IssueError> {
    let internal = check_claims(claims)?;
    let mut nonce = [0; TOKEN_NONCE_BYTES];
    entropy.fill_bytes(&mut nonce);
    // Each token has its own keys, so the sequence numbers of every connection may start at 0.
    let (client_to_server, server_to_client) = (Key::random(entropy), Key::random(entropy));
    let created = UnixSeconds::from(now);
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

    Ok(write_token(PublicLayout {
        protocol_id: claims.protocol_id,
        created,
        expires,
        nonce: &nonce,
        sealed: &sealed,
        timeout_seconds: claims.timeout_seconds,
        servers: claims.servers.clone(),
        client_to_server: client_to_server.expose(),
        server_to_client: server_to_client.expose(),
    }))
}

/// Checks the claims, and returns the server list for the private part.
fn check_claims<'a>(claims: &Claims<'a>) -> Result<&'a Servers, IssueError> {
    let internal = claims.internal_servers.unwrap_or(claims.servers);
    if claims.lifetime_seconds == 0 {
        return Err(IssueError::NoLifetime);
    }
    // A server finds itself by the same index in either list, which is also its lane (§1.12).
    if internal.len() != claims.servers.len() {
        return Err(IssueError::ServerLists);
    }
    Ok(internal)
}

/// Writes the token's 2048 bytes.
fn write_token(public: PublicLayout<'_>) -> ConnectToken {
    // The token is written on the heap: no copy with keys is left on the stack.
    let mut bytes = Box::new([0; CONNECT_TOKEN_BYTES]);
    public.emit(&mut bytes);
    ConnectToken { bytes, facts: public.into() }
}

/// Writes a private part and seals it.
#[must_use]
pub fn seal(private: &PrivateLayout<'_>, key: &Key, context: &PrivateContext<'_>) -> [u8; PRIVATE_TOKEN_BYTES] {
    let mut sealed = [0; PRIVATE_TOKEN_BYTES];
    if let Some(plain) = sealed.first_chunk_mut::<PRIVATE_TOKEN_PLAIN_BYTES>() {
        private.emit(plain);
    }
    // The nonce is random: XChaCha20 has 192 bits of it, so collisions are out of reach.
    seal_private(key, context, &mut sealed);
    sealed
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::wire::USER_DATA_BYTES;

    #[test]
    fn each_error_has_a_text_of_its_own() {
        let texts = [IssueError::NoLifetime, IssueError::ServerLists].map(|error| error.to_string());
        assert!(texts[0].contains("lifetime") && texts[1].contains("server list"), "{texts:?}");
    }

    #[test]
    fn the_text_of_a_token_has_its_facts_and_no_bytes_of_it() {
        let servers = Servers::new(&[core::net::SocketAddr::from(([192, 0, 2, 1], 40_000))]).unwrap();
        let claims = Claims {
            protocol_id: 4242,
            client_id: ClientId(7),
            servers: &servers,
            internal_servers: None,
            lifetime_seconds: 30,
            timeout_seconds: 5,
            user_data: &[0; USER_DATA_BYTES],
        };
        let token = issue(&claims, &Key::from([1; 32]), UnixMillis(1_000_000), &mut StdRng::seed_from_u64(1)).unwrap();
        let text = format!("{token:?}");
        assert!(text.contains("4242") && text.contains("192.0.2.1"), "{text}");
        assert!(text.len() < 500, "keys are not among the fields: {text}");
    }
}
