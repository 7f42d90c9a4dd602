//! Minting: what a backend asks for becomes a connect token, if the configuration allows it.
//!
//! Who may ask is the business of the caller; how the token looks is `slipgate_netcode::token`'s.

mod error;

use core::net::SocketAddr;
use std::collections::BTreeSet;

use rand::CryptoRng;
use slipgate_netcode::address::{Address, is_dialable};
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_SERVERS_PER_TOKEN, USER_DATA_BYTES, UserData};

pub use self::error::{IssuerError, MintError};
use crate::limits::Limits;

/// Mints connect tokens for one game. Minting takes some microseconds and changes nothing: share it between threads.
///
/// Keys and allow-list are what they were made of: to change them, make another issuer and put it in this one's place.
/// It has no `Debug`, for it holds the private key.
pub struct Issuer {
    protocol_id: u64,
    keys: KeyRing,
    allowed: BTreeSet<Address>,
    /// The whole allow-list in the configured order, where one token has room for it.
    all: Option<Servers>,
    limits: Limits,
}

/// What a backend asks for. Whatever is left out gets the configured default.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// Who the player is: unique among the players of a server at a time.
    pub client_id: u64,
    /// The servers that the client tries, in this order: 1 to 32 from the allow-list. None: the whole allow-list.
    pub servers: Option<Vec<SocketAddr>>,
    /// Up to 256 bytes that the game server reads when the player connects; zeros follow them.
    pub user_data: Vec<u8>,
    /// How many seconds the token is accepted. None: the configured default.
    pub lifetime_seconds: Option<u32>,
    /// Seconds of silence that end the connection. None: the configured default.
    pub timeout_seconds: Option<u32>,
}

impl TokenRequest {
    /// A request with the defaults in all but who the player is.
    #[must_use]
    pub const fn new(client_id: u64) -> Self {
        Self { client_id, servers: None, user_data: Vec::new(), lifetime_seconds: None, timeout_seconds: None }
    }
}

/// A connect token and whose it is. Its `Debug` shows public facts only.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The player's.
    pub client_id: u64,
    /// The token, session keys included: hand it to this player over HTTPS and to nobody else.
    pub token: ConnectToken,
}

impl Issuer {
    /// An issuer for the game `protocol_id`, which seals with the newest of `keys` and hands out only `servers`.
    ///
    /// Equal addresses in `servers` count once, whatever their spelling.
    ///
    /// # Errors
    /// There is no server, or one to which no packet can be sent.
    pub fn new(protocol_id: u64, keys: KeyRing, servers: &[SocketAddr], limits: Limits) -> Result<Self, IssuerError> {
        if let Some(server) = servers.iter().find(|server| !is_dialable(**server)) {
            return Err(IssuerError::ServerNotDialable(*server));
        }
        let mut allowed = BTreeSet::new();
        let mut ordered: Vec<_> = servers.iter().copied().map(Address::from).collect();
        ordered.retain(|server| allowed.insert(*server));
        let ordered: Vec<_> = ordered.into_iter().map(Address::socket_addr).collect();
        if ordered.is_empty() {
            return Err(IssuerError::NoServers);
        }
        Ok(Self { protocol_id, keys, allowed, all: Servers::new(&ordered), limits })
    }

    /// Mints a token: the request is checked, then sealed with the newest key.
    ///
    /// `entropy` must be the operating system's or seeded from it: the session's keys come from there.
    ///
    /// # Errors
    /// The request asks for what the configuration does not allow; see [`MintError::field`].
    pub fn mint(
        &self,
        request: &TokenRequest,
        now: UnixMillis,
        entropy: &mut impl CryptoRng,
    ) -> Result<Minted, MintError> {
        let lifetime_seconds = self.limits.lifetime().choose(request.lifetime_seconds).map_err(MintError::Lifetime)?;
        let timeout_seconds = self.limits.timeout().choose(request.timeout_seconds).map_err(MintError::Timeout)?;
        let claims = Claims {
            protocol_id: self.protocol_id,
            client_id: request.client_id,
            servers: &self.servers(request.servers.as_deref())?,
            internal_servers: None,
            lifetime_seconds,
            timeout_seconds: timeout_seconds.cast_signed(),
            user_data: &pad(&request.user_data)?,
        };
        let newest = self.keys.keys().first().ok_or(MintError::Refused)?;
        let token = issue(&claims, newest, now, entropy).map_err(|_| MintError::Refused)?;
        Ok(Minted { client_id: request.client_id, token })
    }

    /// The game whose tokens it mints.
    #[must_use]
    pub const fn protocol_id(&self) -> u64 {
        self.protocol_id
    }

    /// What a request may ask for.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many servers the allow-list holds.
    #[must_use]
    pub fn server_count(&self) -> usize {
        self.allowed.len()
    }

    fn servers(&self, asked: Option<&[SocketAddr]>) -> Result<Servers, MintError> {
        let Some(asked) = asked else { return self.all.clone().ok_or(MintError::NoServers) };
        if !(1..=MAX_SERVERS_PER_TOKEN).contains(&asked.len()) {
            return Err(MintError::ServerCount(asked.len()));
        }
        let mut seen = BTreeSet::new();
        for server in asked {
            let address = Address::from(*server);
            if !self.allowed.contains(&address) {
                return Err(MintError::ServerNotAllowed(*server));
            }
            // DECISION: the standard allows a server twice. A server finds the nonce lane of its packets by its place
            // in the list, so two places for one server are a trap without any use.
            if !seen.insert(address) {
                return Err(MintError::ServerTwice(*server));
            }
        }
        let canonical: Vec<_> = asked.iter().map(|server| Address::from(*server).socket_addr()).collect();
        Servers::new(&canonical).ok_or(MintError::ServerCount(asked.len()))
    }
}

fn pad(user_data: &[u8]) -> Result<UserData, MintError> {
    let mut padded = [0; USER_DATA_BYTES];
    let room = padded.get_mut(..user_data.len()).ok_or(MintError::UserDataTooLong(user_data.len()))?;
    room.copy_from_slice(user_data);
    Ok(padded)
}

#[cfg(test)]
mod tests;
