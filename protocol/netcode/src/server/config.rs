//! The settings of a server: every limit, with its default and the reason for it.

use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::address::{Address, is_dialable};
use crate::crypto::key::MAX_PRIVATE_KEYS;
use crate::time::UnixMillis;
use crate::timing::TimeoutPolicy;

/// The most client slots of one server.
pub const MAX_SLOTS: u32 = 65_536;
/// The most addresses at which one token may be pending at a time.
pub const MAX_ADDRESSES_PER_TOKEN: u8 = 8;

/// The settings of a server.
///
/// [`Config::new`] gives the defaults, which admit clients of any netcode 1.02 library; each field says when one would
/// change it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The game: tokens and packets of another are refused.
    pub protocol_id: u64,
    /// How many clients there is room for, 1 to 65,536.
    pub slots: u32,
    /// The addresses under which clients know this server, as they stand in connect tokens: at least one.
    pub advertised: Vec<Address>,
    /// Tokens that expire further off are refused, and tokens without a mint time are judged by it after a start.
    /// 45 s by default; `None` accepts any expiry, as the reference does. Then a start without a history refuses
    /// every token without a mint time, because it could be of any age.
    pub max_token_lifetime: Option<Duration>,
    /// Whether tokens from before this start are refused.
    pub fence: Fence,
    /// What is done with the time-out that a token asks for.
    pub timeouts: TimeoutPolicy,
    /// After how much silence a newer token for a connected client id may take its slot over. `None`, the default:
    /// never, as in the reference, where a player whose game crashed waits for the time-out.
    pub takeover_after: Option<Duration>,
    /// At how many addresses one token may be pending at a time, 1 to 8; 4 by default. With 1, as in the reference,
    /// whoever presents a sniffed token first locks its owner out.
    pub addresses_per_token: u8,
    /// How many clients may be pending at a time; by default as many as there are slots, at least 1,024.
    pub pending_clients: u32,
    /// How long a client may be pending, 5 s by default; a token's shorter time-out shortens it.
    pub pending_lifetime: Duration,
    /// How old a challenge may be when it comes back: 5 s by default.
    pub challenge_lifetime: Duration,
    /// How many unexpired tokens are remembered; by default sixteen for each slot, at least 4,096. A full history
    /// refuses new tokens.
    pub history_tokens: usize,
    /// How much work others may cause.
    pub budgets: Budgets,
}

/// Whether tokens from before the start of this server are refused.
///
/// A server that starts anew has forgotten which tokens were used; one that was used before the start would be admitted
/// again, under the same keys and sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fence {
    /// Refuse a token that was, or may have been, minted before this start. The default.
    #[default]
    Closed,
    /// Refuse a token that was, or may have been, minted before this moment: since then a journal has been kept, which
    /// knows every token used.
    Since(UnixMillis),
    /// Nothing to fear: this is the first start of this instance (a fresh address, or longer away than any token
    /// lives), or a journal brings back what was used since that one.
    Open,
}

/// How much work others may cause.
///
/// Those of a turn come back with each [`tick`](super::Server::tick), whatever time has passed: the defaults are made for
/// 60 ticks a second, and a server with 10 looks at a sixth of it in a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budgets {
    /// Requests of strangers that one turn looks at; 1,024. What is beyond is dropped unseen, and
    /// connected clients are not affected.
    pub strangers_per_turn: u32,
    /// Responses from the addresses of pending clients that one turn opens; 1,024. A flood of strangers takes nothing from
    /// it. From each pending client's address a turn opens 64, and half of all are kept for the first of each.
    pub responses_per_turn: u32,
    /// Authentic packets of one connected client that one turn opens, those of a wrong size among them; 256.
    pub packets_per_client_and_turn: u32,
    /// Packets under the addresses of connected clients that one turn opens in vain; 16,384, and 1,024 of them under one
    /// address. They cost about 0.3 us each, and are not charged to the client in whose name they come. Once they are
    /// spent, clients under whose address fewer than 4 came still have theirs opened.
    pub forgeries_per_turn: u32,
    /// Tokens that are decrypted for one source (IPv4 /32, IPv6 /64) in a second, and at once; 1,000. A token costs
    /// about 1 us.
    pub decrypts_per_source: u32,
    /// Tokens that are decrypted for all sources together in a second, and at once; 20,000: about 2 % of a core.
    pub decrypts: u32,
}

impl Budgets {
    /// A request is charged a decryption for each private key, and a rotation must not lock everybody out.
    fn check(&self) -> Result<(), ConfigError> {
        let keys = MAX_PRIVATE_KEYS as u32;
        let suffice = self.strangers_per_turn > 0
            && self.responses_per_turn > 0
            && self.packets_per_client_and_turn > 0
            && self.forgeries_per_turn > 0
            && self.decrypts_per_source >= keys
            && self.decrypts >= keys;
        if suffice { Ok(()) } else { Err(ConfigError::Budgets) }
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

/// The default of [`Config::max_token_lifetime`].
pub const DEFAULT_MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(45);
/// The default of [`Config::pending_lifetime`] and of [`Config::challenge_lifetime`].
pub const DEFAULT_PENDING_LIFETIME: Duration = Duration::from_secs(5);

/// The shortest life of a pending client and of a challenge: a round trip must fit into it.
pub const MIN_PENDING_LIFETIME: Duration = Duration::from_millis(100);
/// The longest life of a pending client and of a challenge.
pub const MAX_PENDING_LIFETIME: Duration = Duration::from_secs(60);

impl Config {
    /// The defaults for a game, a number of slots and the addresses under which clients know the server.
    #[must_use]
    pub fn new(protocol_id: u64, slots: u32, advertised: Vec<Address>) -> Self {
        Self {
            protocol_id,
            slots,
            advertised,
            max_token_lifetime: Some(DEFAULT_MAX_TOKEN_LIFETIME),
            fence: Fence::Closed,
            timeouts: TimeoutPolicy::Clamped,
            takeover_after: None,
            addresses_per_token: 4,
            pending_clients: slots.clamp(1024, MAX_SLOTS),
            pending_lifetime: DEFAULT_PENDING_LIFETIME,
            challenge_lifetime: DEFAULT_PENDING_LIFETIME,
            history_tokens: (slots as usize).saturating_mul(16).max(4096),
            budgets: Budgets::default(),
        }
    }

    /// Checks the settings, as every start of a server does.
    ///
    /// # Errors
    /// The first setting that no server can run with.
    pub fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            return Err(ConfigError::Slots);
        }
        if self.advertised.is_empty() || !self.advertised.iter().all(|address| is_dialable(address.socket_addr())) {
            return Err(ConfigError::Advertised);
        }
        if !(1..=MAX_ADDRESSES_PER_TOKEN).contains(&self.addresses_per_token) {
            return Err(ConfigError::AddressesPerToken);
        }
        if !(1..=MAX_SLOTS).contains(&self.pending_clients) {
            return Err(ConfigError::PendingClients);
        }
        if self.history_tokens == 0 || self.history_tokens > 1 << 24 {
            return Err(ConfigError::HistoryTokens);
        }
        let lifetimes = MIN_PENDING_LIFETIME..=MAX_PENDING_LIFETIME;
        if !lifetimes.contains(&self.pending_lifetime) || !lifetimes.contains(&self.challenge_lifetime) {
            return Err(ConfigError::PendingLifetime);
        }
        if self.max_token_lifetime.is_some_and(|most| most < Duration::from_secs(1)) {
            return Err(ConfigError::TokenLifetime);
        }
        self.budgets.check()
    }
}

/// A setting that no server can run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not 1 to 65,536 slots.
    Slots,
    /// No advertised address.
    Advertised,
    /// Not 1 to 8 addresses per token.
    AddressesPerToken,
    /// Not 1 to 65,536 pending clients.
    PendingClients,
    /// Not 1 to 16,777,216 tokens in the history.
    HistoryTokens,
    /// A pending client or a challenge lives shorter than 100 ms or longer than 60 s.
    PendingLifetime,
    /// Tokens live shorter than a second.
    TokenLifetime,
    /// A budget under which nobody could connect: 0, or fewer than three decryptions a second.
    Budgets,
    /// Not 1 to 256 shards.
    Shards,
    /// The journal holds more unexpired tokens than the history has room for.
    JournalTooLarge,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slots => "a server has 1 to 65536 slots",
            Self::Advertised => {
                "a server needs at least one advertised address, as it stands in connect tokens, and each must be one to \
                 which packets can be sent"
            }
            Self::AddressesPerToken => "one token may be pending at 1 to 8 addresses",
            Self::PendingClients => "a server has room for 1 to 65536 pending clients",
            Self::HistoryTokens => "the token history has room for 1 to 16777216 tokens",
            Self::PendingLifetime => "pending clients and challenges live 100 ms to 60 s",
            Self::TokenLifetime => "tokens live at least a second",
            Self::Budgets => "every budget is at least 1, and those of decryptions at least 3 a second, one for each key",
            Self::Shards => "a server has 1 to 256 shards",
            Self::JournalTooLarge => "the history file holds more unexpired tokens than the history has room for",
        })
    }
}

impl core::error::Error for ConfigError {}
