//! Minting: checks a request against the configuration and seals a connect token.
//!
//! The caller must authorize the request. `slipgate_netcode::token` defines the token's format.

mod allowed;
mod error;

use core::net::SocketAddr;
use std::collections::BTreeSet;

use rand::CryptoRng;
use slipgate_netcode::address::{Address, is_dialable};
use slipgate_netcode::crypto::key::{Key, KeyFingerprint, KeyRing};
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::time::UnixMillis;
use slipgate_netcode::token::ConnectToken;
use slipgate_netcode::token::issue::{Claims, issue};
use slipgate_netcode::wire::token::Servers;
use slipgate_netcode::wire::{MAX_SERVERS_PER_TOKEN, USER_DATA_BYTES, UserData};

use self::allowed::AllowedServers;
pub use self::allowed::{AllowedNetwork, AllowedNetworkError};
pub use self::error::{IssuerError, MintError};
use crate::limits::Limits;

/// Mints connect tokens for one game. Minting takes a few microseconds and `&self`, so threads can share an issuer.
///
/// Keys and allow-list are immutable: to change them, create another issuer. It has no `Debug`, because it holds the
/// private key.
pub struct Issuer {
    protocol_id: u64,
    keys: KeyRing,
    allowed: AllowedServers,
    /// The whole allow-list in the configured order, if it has only addresses and a token can hold it.
    all: Option<Servers>,
    limits: Limits,
}

/// A request for a token. `None` stands for the configured default.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenRequest {
    /// The player's id, unique among the connected players of a server.
    pub client_id: ClientId,
    /// The servers that the client tries, in this order: 1 to 32 from the allow-list. `None`: the whole allow-list.
    pub servers: Option<Vec<SocketAddr>>,
    /// Up to 256 bytes that the game server receives when the player connects, padded with zeros.
    pub user_data: Vec<u8>,
    /// The lifetime of the token, in seconds. `None`: the configured default.
    pub lifetime_seconds: Option<u32>,
    /// The timeout of the connection, in seconds. `None`: the configured default.
    pub timeout_seconds: Option<u32>,
}

impl TokenRequest {
    /// Creates a request for a player with the defaults for everything else.
    #[must_use]
    pub fn new(client_id: impl Into<ClientId>) -> Self {
        Self {
            client_id: client_id.into(),
            servers: None,
            user_data: Vec::new(),
            lifetime_seconds: None,
            timeout_seconds: None,
        }
    }
}

/// A connect token and its player. Its `Debug` shows public facts only.
#[derive(Clone, Debug)]
pub struct Minted {
    /// The player's client id.
    pub client_id: ClientId,
    /// The token, including the session keys. Send it to this player only, over HTTPS.
    pub token: ConnectToken,
}

impl Issuer {
    /// Creates an issuer for the game `protocol_id` that seals with the newest of `keys` and allows only `servers`.
    ///
    /// Equal addresses in `servers` count once, even if written differently (`[::ffff:192.0.2.1]` is `192.0.2.1`).
    ///
    /// # Errors
    /// [`IssuerError::NoServers`] if `servers` is empty, [`IssuerError::ServerNotDialable`] for an address to which
    /// clients cannot send.
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
        let allowed = AllowedServers { addresses: allowed, networks: Vec::new() };
        Ok(Self { protocol_id, keys, allowed, all: Servers::new(&ordered), limits })
    }

    /// Creates an issuer without an allow-list: its tokens lead to registered servers, by [`Self::mint_to`].
    #[must_use]
    pub const fn without_servers(protocol_id: u64, keys: KeyRing, limits: Limits) -> Self {
        let allowed = AllowedServers { addresses: BTreeSet::new(), networks: Vec::new() };
        Self { protocol_id, keys, allowed, all: None, limits }
    }

    /// Returns the issuer with these networks in its allow-list. A request must then list its servers.
    #[must_use]
    pub fn with_networks(mut self, networks: Vec<AllowedNetwork>) -> Self {
        if !networks.is_empty() {
            self.all = None;
        }
        self.allowed.networks = networks;
        self
    }

    /// Returns the fingerprint of the key that seals, which the servers must have.
    #[must_use]
    pub fn sealing_key(&self) -> Option<KeyFingerprint> {
        self.keys.first().map(Key::fingerprint)
    }

    /// Returns the fingerprints of all private keys, that of the key that seals first.
    pub fn key_fingerprints(&self) -> impl Iterator<Item = KeyFingerprint> + '_ {
        self.keys.iter().map(Key::fingerprint)
    }

    /// Mints a token: checks the request, then seals it with the newest key.
    ///
    /// `entropy` must be the operating system's or seeded from it, because the session keys are drawn from it.
    ///
    /// # Errors
    /// Returns the [`MintError`] of the first field that the configuration does not allow; see [`MintError::field`].
    pub fn mint(
        &self,
        request: &TokenRequest,
        now: UnixMillis,
        entropy: &mut impl CryptoRng,
    ) -> Result<Minted, MintError> {
        let Some(requested) = &request.servers else {
            return self.seal(request, self.all.as_ref().ok_or(MintError::NoServers)?, now, entropy);
        };
        self.seal(request, &self.allowed_servers(requested)?, now, entropy)
    }

    /// Mints a token for these servers, which the caller has checked, as those of the registry. Ignores the request's
    /// own servers.
    ///
    /// # Errors
    /// As [`Self::mint`], but servers need not be in the allow-list. [`MintError::ServerCount`] unless there are 1 to
    /// 32.
    pub fn mint_to(
        &self,
        servers: &[SocketAddr],
        request: &TokenRequest,
        now: UnixMillis,
        entropy: &mut impl CryptoRng,
    ) -> Result<Minted, MintError> {
        let servers = Servers::new(servers).ok_or(MintError::ServerCount(servers.len()))?;
        self.seal(request, &servers, now, entropy)
    }

    fn seal(
        &self,
        request: &TokenRequest,
        servers: &Servers,
        now: UnixMillis,
        entropy: &mut impl CryptoRng,
    ) -> Result<Minted, MintError> {
        let (lifetime_seconds, timeout_seconds) = self.check(request)?;
        let claims = Claims {
            protocol_id: self.protocol_id,
            client_id: request.client_id,
            servers,
            internal_servers: None,
            lifetime_seconds,
            timeout_seconds: timeout_seconds.cast_signed(),
            user_data: &pad(&request.user_data)?,
        };
        let newest = self.keys.first().ok_or(MintError::Refused)?;
        let token = issue(&claims, newest, now, entropy).map_err(|_| MintError::Refused)?;
        Ok(Minted { client_id: request.client_id, token })
    }

    /// Checks a request but for its servers. Returns lifetime and timeout of its token, in seconds.
    ///
    /// # Errors
    /// [`MintError::Lifetime`] or [`MintError::Timeout`] outside the limits, [`MintError::UserDataTooLong`] above 256
    /// bytes.
    pub fn check(&self, request: &TokenRequest) -> Result<(u32, u32), MintError> {
        let lifetime_seconds = self.limits.lifetime().choose(request.lifetime_seconds).map_err(MintError::Lifetime)?;
        let timeout_seconds = self.limits.timeout().choose(request.timeout_seconds).map_err(MintError::Timeout)?;
        if request.user_data.len() > USER_DATA_BYTES {
            return Err(MintError::UserDataTooLong(request.user_data.len()));
        }
        Ok((lifetime_seconds, timeout_seconds))
    }

    /// Returns whether tokens may lead to this server: it is in the allow-list, or the issuer has none.
    #[must_use]
    pub fn allows(&self, server: SocketAddr) -> bool {
        self.allowed.is_empty() || self.allowed.contains(server)
    }

    /// Returns the protocol id of the game.
    #[must_use]
    pub const fn protocol_id(&self) -> u64 {
        self.protocol_id
    }

    /// Returns the limits of requests.
    #[must_use]
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of addresses and networks in the allow-list.
    #[must_use]
    pub fn server_count(&self) -> usize {
        self.allowed.addresses.len() + self.allowed.networks.len()
    }

    /// Checks the servers that a request lists.
    fn allowed_servers(&self, requested: &[SocketAddr]) -> Result<Servers, MintError> {
        if !(1..=MAX_SERVERS_PER_TOKEN).contains(&requested.len()) {
            return Err(MintError::ServerCount(requested.len()));
        }
        let mut seen = BTreeSet::new();
        for server in requested {
            let address = Address::from(*server);
            if !self.allowed.contains(*server) || !is_dialable(*server) {
                return Err(MintError::ServerNotAllowed(*server));
            }
            // DECISION: the standard allows a server twice. A server derives the nonce lane of its packets from its
            // index in the list, so two indices for one server are a hazard without any use.
            if !seen.insert(address) {
                return Err(MintError::ServerTwice(*server));
            }
        }
        let canonical: Vec<_> = requested.iter().map(|server| Address::from(*server).socket_addr()).collect();
        Servers::new(&canonical).ok_or(MintError::ServerCount(requested.len()))
    }
}

fn pad(user_data: &[u8]) -> Result<UserData, MintError> {
    let mut padded = [0; USER_DATA_BYTES];
    let prefix = padded.get_mut(..user_data.len()).ok_or(MintError::UserDataTooLong(user_data.len()))?;
    prefix.copy_from_slice(user_data);
    Ok(padded)
}

#[cfg(test)]
mod tests;
