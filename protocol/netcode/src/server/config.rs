//! The settings of a server: every limit with its default and its reason.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;

use crate::address::is_dialable;
use crate::crypto::key::MAX_PRIVATE_KEYS;
use crate::time::UnixMillis;
use crate::timing::TimeoutPolicy;

/// The maximum of client slots of one server.
pub const MAX_SLOTS: u32 = 65_536;
/// The maximum of addresses at which one token may be pending at a time.
pub const MAX_ADDRESSES_PER_TOKEN: u8 = 8;

/// The settings of a server.
///
/// [`ServerConfig::new`] returns the defaults, which admit clients of every netcode 1.02 library.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use slipgate_netcode::server::ServerConfig;
///
/// let advertised = ["192.0.2.1:40000".parse().unwrap()];
/// let mut config = ServerConfig::new(0x1234, 32, &advertised);
/// config.takeover_after = Some(Duration::from_secs(2));
/// assert!(config.check().is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The id of the game. Tokens and packets with another id are refused.
    pub protocol_id: u64,
    /// The number of client slots, 1 to 65,536.
    pub slots: u32,
    /// The addresses of this server in connect tokens, at least one.
    pub advertised: Vec<SocketAddr>,
    /// The maximum lifetime of a token, 45 s by default. A token that expires later than this is refused, and a token
    /// without a mint time counts as minted this long before it expires. `None` accepts any expiry, like the reference.
    /// Then [`token_cutoff`](Self::token_cutoff) refuses every token without a mint time.
    pub max_token_lifetime: Option<Duration>,
    /// The mint time before which tokens are refused: this start by default.
    pub token_cutoff: TokenCutoff,
    /// The policy for the timeout that a token requests.
    pub timeouts: TimeoutPolicy,
    /// The silence after which a newer token for a connected client id may take over its slot, 1 s by default: a player
    /// returns at once after a crash of its game. `None` and zero forbid takeovers, like the reference: such a player
    /// must wait for the timeout.
    pub takeover_after: Option<Duration>,
    /// The maximum of addresses at which one token may be pending at a time, 1 to 8, 4 by default. The reference has 1,
    /// so an attacker that replays a sniffed request first locks its owner out.
    pub addresses_per_token: u8,
    /// The maximum of pending clients of a shard, 20,480 by default: what [`Budgets::decrypts`] lets in within the
    /// second for which an entry is protected. Memory for more than 1,024, about 1 KiB each, is allocated when they
    /// come. When the table is full, the oldest entry that is older than a second gives way.
    pub pending_clients: u32,
    /// The time for which a client may be pending, 5 s by default. A shorter timeout in its token shortens it.
    pub pending_lifetime: Duration,
    /// The maximum age of a returned challenge, 5 s by default.
    pub challenge_lifetime: Duration,
    /// The capacity of the history of used, unexpired tokens, by default 16 for each slot, but at least 65,536. A full
    /// history refuses new tokens. Memory for more than one for each slot, and more than 4,096, is allocated when they
    /// come: at most 9 MiB for 65,536.
    pub history_tokens: usize,
    /// The maximum of unexpired tokens that one client id may have used, 8 by default. Otherwise one account could fill
    /// the history by connecting again and again. A restored history has no client ids, so its tokens do not count.
    /// If tokens may live for longer than some minutes, raise it.
    pub tokens_per_client_id: u32,
    /// The limits on the work that received datagrams cause.
    pub budgets: Budgets,
}

/// The mint time before which a server refuses tokens.
///
/// A restarted server does not know which tokens were used before its start. Without a cutoff it would admit a used
/// token again, with the same keys and sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TokenCutoff {
    /// Refuses a token that was or may have been minted before this start. The default.
    #[default]
    AtStart,
    /// Refuses a token that was or may have been minted before this moment, since which a journal contains every used
    /// token.
    At(UnixMillis),
    /// Refuses no token for its age. This is safe at the first start of an instance (a new address, or a pause longer
    /// than any token's lifetime), and with a journal that was used since then and is complete. The history file of
    /// `slipgate-server` that lacks used tokens refuses earlier tokens all the same.
    None,
}

/// The limits on the work that received datagrams cause.
///
/// Each [`tick`](super::NetcodeServer::tick) restores the budgets of a turn. The defaults suit 60 ticks per second. The
/// budget of each client grows with the time since the last tick, and the others do not. A server with 10 ticks per
/// second handles a sixth of the requests, responses and forged packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// The maximum of connection requests that one turn examines, 1,024 by default. Further requests are dropped.
    /// Connected clients are not affected.
    pub strangers_per_turn: u32,
    /// The maximum of responses from pending clients' addresses that one turn decrypts, 1,024 by default. Requests do
    /// not use it. A turn decrypts at most 64 from each address, and reserves half of the budget for first responses.
    pub responses_per_turn: u32,
    /// The maximum of authentic packets of one connected client that one turn accepts, 256 by default. Packets with a
    /// wrong content size count, too. It is meant for turns of 16 ms: after a pause of more it is multiplied by the
    /// whole turns of 16 ms since the last tick, at most 60.
    pub packets_per_client_and_turn: u32,
    /// The maximum of forged packets under connected clients' addresses that one turn tries to decrypt, 16,384 by
    /// default. Under one address these are at most 8,192 with sequence numbers up to 1,024 ahead of the client's
    /// newest one, and 1,024 with others. Each takes about 0.3 us, and is not charged to the client. When the budget is
    /// used up, a client's packets are still decrypted until 4 were forged under its address.
    pub forgeries_per_turn: u32,
    /// The maximum of tokens decrypted for one source (IPv4 /32, IPv6 /64), per second and at once, 1,000 by default. A
    /// decryption takes about 1 us.
    pub decrypts_per_source: u32,
    /// The maximum of tokens decrypted for all sources, per second and at once, 20,000 by default: 2 % of a core.
    pub decrypts: u32,
}

impl Budgets {
    fn check(&self) -> Result<(), ServerConfigError> {
        // A request takes one decryption for each private key, so during a rotation a smaller budget would refuse all.
        let keys = MAX_PRIVATE_KEYS as u32;
        let is_sufficient = self.strangers_per_turn > 0
            && self.responses_per_turn > 0
            && self.packets_per_client_and_turn > 0
            && self.forgeries_per_turn > 0
            && self.decrypts_per_source >= keys
            && self.decrypts >= keys;
        if is_sufficient { Ok(()) } else { Err(ServerConfigError::Budgets) }
    }
}

impl Default for Budgets {
    fn default() -> Self {
        Self {
            strangers_per_turn: 1024,
            responses_per_turn: 1024,
            packets_per_client_and_turn: 256,
            forgeries_per_turn: 16_384,
            decrypts_per_source: 1000,
            decrypts: 20_000,
        }
    }
}

/// The default of [`ServerConfig::max_token_lifetime`].
pub const DEFAULT_MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(45);
/// The default of [`ServerConfig::pending_lifetime`] and of [`ServerConfig::challenge_lifetime`].
pub const DEFAULT_PENDING_LIFETIME: Duration = Duration::from_secs(5);

/// The default of [`ServerConfig::takeover_after`]: ten keep-alives of a client in a row are missing.
pub const DEFAULT_TAKEOVER_AFTER: Duration = Duration::from_secs(1);
/// The default of [`ServerConfig::pending_clients`]: the 20,000 decryptions a second of [`Budgets::decrypts`], and some
/// more.
pub const DEFAULT_PENDING_CLIENTS: u32 = 20_480;
/// The minimum of the default of [`ServerConfig::history_tokens`]: 1,456 connections a second with tokens of 45 s.
pub const DEFAULT_HISTORY_TOKENS: usize = 65_536;
/// The default of [`ServerConfig::tokens_per_client_id`]: a player that reconnects every 6 s with tokens of 45 s.
pub const DEFAULT_TOKENS_PER_CLIENT_ID: u32 = 8;

/// The minimum lifetime of a pending client and of a challenge. A round trip must fit into it.
pub const MIN_PENDING_LIFETIME: Duration = Duration::from_millis(100);
/// The maximum lifetime of a pending client and of a challenge.
pub const MAX_PENDING_LIFETIME: Duration = Duration::from_secs(60);

impl ServerConfig {
    /// Returns the defaults for a game, a number of slots, and the server's addresses in connect tokens.
    #[must_use]
    pub fn new(protocol_id: u64, slots: u32, advertised: &[SocketAddr]) -> Self {
        Self {
            protocol_id,
            slots,
            advertised: advertised.to_vec(),
            max_token_lifetime: Some(DEFAULT_MAX_TOKEN_LIFETIME),
            token_cutoff: TokenCutoff::AtStart,
            timeouts: TimeoutPolicy::Clamped,
            takeover_after: Some(DEFAULT_TAKEOVER_AFTER),
            // Enough for a client that changes its network or its address family while it connects.
            addresses_per_token: 4,
            pending_clients: DEFAULT_PENDING_CLIENTS,
            pending_lifetime: DEFAULT_PENDING_LIFETIME,
            challenge_lifetime: DEFAULT_PENDING_LIFETIME,
            // 16 tokens for each slot within 45 s: players that reconnect often still fit.
            history_tokens: (slots as usize).saturating_mul(16).max(DEFAULT_HISTORY_TOKENS),
            tokens_per_client_id: DEFAULT_TOKENS_PER_CLIENT_ID,
            budgets: Budgets::default(),
        }
    }

    /// Returns the silence after which a newer token may take over a slot, or `None` if takeovers are off.
    pub(crate) fn takeover_time(&self) -> Option<Duration> {
        self.takeover_after.filter(|after| !after.is_zero())
    }

    /// Checks the settings. Every start of a server does this, too.
    ///
    /// # Errors
    /// The variant of [`ServerConfigError`] for the first setting that is out of range.
    pub fn check(&self) -> Result<(), ServerConfigError> {
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            return Err(ServerConfigError::Slots);
        }
        // A wildcard address never appears in a token, so it would refuse every client.
        if self.advertised.is_empty() {
            return Err(ServerConfigError::NoAdvertised);
        }
        if let Some(address) = self.advertised.iter().find(|address| !is_dialable(**address)) {
            return Err(ServerConfigError::Advertised(*address));
        }
        if !(1..=MAX_ADDRESSES_PER_TOKEN).contains(&self.addresses_per_token) {
            return Err(ServerConfigError::AddressesPerToken);
        }
        if !(1..=MAX_SLOTS).contains(&self.pending_clients) {
            return Err(ServerConfigError::PendingClients);
        }
        // 2^24 entries take more than 512 MiB, and the history's indices are 32 bits wide.
        if self.history_tokens == 0 || self.history_tokens > 1 << 24 {
            return Err(ServerConfigError::HistoryTokens);
        }
        if self.tokens_per_client_id == 0 {
            return Err(ServerConfigError::TokensPerClientId);
        }
        let lifetimes = MIN_PENDING_LIFETIME..=MAX_PENDING_LIFETIME;
        if !lifetimes.contains(&self.pending_lifetime) || !lifetimes.contains(&self.challenge_lifetime) {
            return Err(ServerConfigError::PendingLifetime);
        }
        // Token timestamps have whole seconds, so a shorter lifetime would refuse every token.
        if self.max_token_lifetime.is_some_and(|max| max < Duration::from_secs(1)) {
            return Err(ServerConfigError::TokenLifetime);
        }
        self.budgets.check()
    }
}

/// The error of a server setting that is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServerConfigError {
    /// The number of slots is not 1 to 65,536.
    Slots,
    /// There is no advertised address.
    NoAdvertised,
    /// Packets cannot be sent to this advertised address: it is a wildcard, multicast or broadcast address, or its port
    /// is 0.
    Advertised(SocketAddr),
    /// The number of addresses per token is not 1 to 8.
    AddressesPerToken,
    /// The number of pending clients is not 1 to 65,536.
    PendingClients,
    /// The capacity of the history is not 1 to 16,777,216 tokens.
    HistoryTokens,
    /// The number of tokens for each client id is 0.
    TokensPerClientId,
    /// The lifetime of pending clients or challenges is not 100 ms to 60 s.
    PendingLifetime,
    /// The maximum lifetime of tokens is less than 1 s.
    TokenLifetime,
    /// A budget is 0, or a budget of decryptions is less than 3 per second, so that no client could connect.
    Budgets,
    /// The number of shards is not 1 to 256, or a shard id is not one of them.
    Shards,
    /// The journal holds more unexpired tokens than the history's capacity.
    JournalTooLarge,
}

impl fmt::Display for ServerConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Advertised(address) => {
                return write!(f, "{address} cannot stand in connect tokens: advertise the address that clients dial");
            }
            Self::NoAdvertised => "a server needs at least one advertised address: the one that clients dial",
            Self::Slots => "a server must have 1 to 65536 slots",
            Self::AddressesPerToken => "one token may be pending at 1 to 8 addresses",
            Self::PendingClients => "the number of pending clients must be 1 to 65536",
            Self::HistoryTokens => "the capacity of the token history must be 1 to 16777216 tokens",
            Self::TokensPerClientId => "one client id must be allowed at least 1 used token",
            Self::PendingLifetime => "the lifetime of pending clients and challenges must be 100 ms to 60 s",
            Self::TokenLifetime => "the maximum lifetime of tokens must be at least 1 second",
            Self::Budgets => "every budget must be at least 1, and those of decryptions at least 3 per second",
            Self::Shards => "a server must have 1 to 256 shards",
            Self::JournalTooLarge => {
                "the history file holds more unexpired tokens than the capacity of the token history"
            }
        })
    }
}

impl core::error::Error for ServerConfigError {}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::*;

    #[test]
    fn each_error_has_a_text_of_its_own() {
        use ServerConfigError as Error;
        let errors = [
            Error::Slots,
            Error::NoAdvertised,
            Error::Advertised(SocketAddr::from(([0, 0, 0, 0], 40_000))),
            Error::AddressesPerToken,
            Error::PendingClients,
            Error::HistoryTokens,
            Error::TokensPerClientId,
            Error::PendingLifetime,
            Error::TokenLifetime,
            Error::Budgets,
            Error::Shards,
            Error::JournalTooLarge,
        ];
        let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.retain(|text| !text.is_empty());
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), errors.len());
    }

    #[test]
    fn defaults_are_those_of_the_documents() {
        let config = |slots| ServerConfig::new(7, slots, &[SocketAddr::from(([192, 0, 2, 1], 40_000))]);
        assert_eq!([1, 4096].map(|slots| config(slots).history_tokens), [65_536; 2]);
        assert_eq!(config(8192).history_tokens, 131_072);
        let ServerConfig { tokens_per_client_id, addresses_per_token, pending_clients, .. } = config(4);
        assert_eq!((tokens_per_client_id, addresses_per_token, pending_clients), (8, 4, 20_480));
        let [seconds_1, seconds_5, seconds_45] = [1, 5, 45].map(Duration::from_secs);
        assert_eq!((config(4).takeover_after, config(4).max_token_lifetime), (Some(seconds_1), Some(seconds_45)));
        assert_eq!((config(4).pending_lifetime, config(4).challenge_lifetime), (seconds_5, seconds_5));
    }

    #[test]
    fn address_that_cannot_be_dialled_is_named() {
        for address in ["0.0.0.0:40000", "[::]:40000", "10.0.0.1:0"] {
            let config = ServerConfig::new(7, 4, &[address.parse().unwrap()]);
            let error = config.check().unwrap_err().to_string();
            assert!(error.starts_with(&alloc::format!("{address} cannot stand in connect tokens")), "{error}");
        }
    }

    /// Selects a budget.
    type Field = fn(&mut Budgets) -> &mut u32;

    #[test]
    fn settings_are_accepted_up_to_their_limits_and_not_beyond() {
        use ServerConfigError as Error;
        let checked = |change: &dyn Fn(&mut ServerConfig)| {
            let mut config = ServerConfig::new(1, 1, &[SocketAddr::from(([192, 0, 2, 1], 40_000))]);
            change(&mut config);
            config.check()
        };
        for (count, expected) in
            [(0, Err(Error::HistoryTokens)), (1, Ok(())), (1 << 24, Ok(())), ((1 << 24) + 1, Err(Error::HistoryTokens))]
        {
            assert_eq!(checked(&|config| config.history_tokens = count), expected, "{count} tokens");
        }
        for (millis, expected) in [(999, Err(Error::TokenLifetime)), (1000, Ok(()))] {
            let lifetime = Some(Duration::from_millis(millis));
            assert_eq!(checked(&|config| config.max_token_lifetime = lifetime), expected, "{millis} ms");
        }
        let keys = MAX_PRIVATE_KEYS as u32;
        let budgets: [(Field, u32); 6] = [
            (|budgets| &mut budgets.strangers_per_turn, 1),
            (|budgets| &mut budgets.responses_per_turn, 1),
            (|budgets| &mut budgets.packets_per_client_and_turn, 1),
            (|budgets| &mut budgets.forgeries_per_turn, 1),
            (|budgets| &mut budgets.decrypts_per_source, keys),
            (|budgets| &mut budgets.decrypts, keys),
        ];
        for (number, (budget, least)) in budgets.into_iter().enumerate() {
            assert_eq!(checked(&|config| *budget(&mut config.budgets) = least), Ok(()), "budget {number}");
            let too_small = checked(&|config| *budget(&mut config.budgets) = least - 1);
            assert_eq!(too_small, Err(Error::Budgets), "budget {number}");
        }
    }
}
