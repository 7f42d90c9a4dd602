//! The state that all shards of a server share: used tokens, connected client ids, free client indices, and the budget
//! of token decryptions.
//!
//! ```text
//!   shard 0 ──┐ handshakes and ends only    ┌── used tokens
//!   shard 1 ──┼──────▶ ClientRegistry ──────┼── client id ─▶ shard, index, token's age
//!   shard 2 ──┘  behind one lock            ├── free client indices
//!                                           └── budget of decryptions
//! ```
//!
//! A server of one shard owns its registry without a lock. Packets of connected clients never use the registry.
//!
//! A client id is unique over all shards, but only its owner, the shard that has the client, knows how long the client
//! has been silent. A newer token on another shard therefore takes over in steps, at the rate at which clients repeat
//! packets:
//!
//! ```text
//!   new client's shard           registry                       owner, once per turn
//!   request: connected there  ─▶ query queued ─────▶ flag ────▶ reports when it last received from the client
//!   request: silent by now, gets a challenge
//!   response: address proven  ─▶ takeover requested ▶ flag ───▶ still silent? ends it, index is reserved for the token
//!   response again: the token gets the reserved index
//! ```

mod claims;
mod lock;
mod takeover;
mod tokens;

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::sync::atomic::AtomicBool;

pub(super) use self::lock::RegistryRef;
#[cfg(feature = "std")]
pub use self::lock::SharedRegistry;
pub(super) use self::takeover::{OwnerQuery, Presence};

use super::config::{ServerConfig, ServerConfigError, TokenCutoff};
use super::turn_budgets::DecryptLimiter;
use crate::crypto::digest::{Digest, DigestKey};
use crate::crypto::key::Seed;
use crate::crypto::keyed::{HashKey, KeyedMap, map_with_capacity};
use crate::discard::Discard;
use crate::ids::{ClientId, ClientIndex};
use crate::slab::{MustExist, Slab, slab_index};
use crate::time::{Instant, Now};
use crate::token::history::{HistoryLimits, KeptTokens, TokenHistory, TokenTag, UsedToken};
use crate::token::redeem::TokenAge;

/// The maximum of shards of one server.
pub const MAX_SHARDS: u16 = 256;

/// The number of used tokens for which memory is allocated at the start, unless there are more slots.
const INITIAL_HISTORY_TOKENS: usize = 2048;

/// The number of a shard of a server, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct ShardId(pub u16);

slab_index!(ShardId, u16);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state that all shards of a server share.
pub struct ClientRegistry {
    history: TokenHistory,
    names: DigestKey,
    decrypts: DecryptLimiter,
    /// The client index of each client id that is connected or has a reserved index.
    ids: KeyedMap<ClientId, ClientIndex>,
    /// The owner of each client index that was ever used.
    owners: Slab<ClientIndex, Option<IndexOwner>>,
    free: BinaryHeap<Reverse<ClientIndex>>,
    /// The shard that uses each client index, `None` while it is free or reserved.
    shards: Slab<ClientIndex, Option<ShardId>>,
    /// The client ids with reserved indices.
    reserved: Vec<ClientId>,
    mailboxes: Slab<ShardId, ShardMailbox>,
}

/// The queries for one shard. It allocates with its first query, so servers without takeovers never pay for it.
#[derive(Default)]
struct ShardMailbox {
    has_queries: Arc<AtomicBool>,
    queries: VecDeque<ClientId>,
}

/// The owner of a client index.
enum IndexOwner {
    Connected {
        client_id: ClientId,
        shard: ShardId,
        /// The age of its token. A client in the same process has none, and is never taken over.
        age: Option<TokenAge>,
        /// The last receive time that its shard reported.
        last_receive: Option<Instant>,
        /// The proven token that requests a takeover.
        takeover_by: Option<Digest>,
        /// Whether a query is queued for its shard.
        queried: bool,
    },
    /// The client was taken over, and its index is reserved for the token of the takeover.
    Reserved { token: Digest, until: Instant },
}

/// A token that is about to be used.
#[derive(Clone, Copy)]
pub(super) struct TokenUse {
    pub(super) tag: TokenTag,
    pub(super) used: UsedToken,
}

/// The request of a shard for a client index.
#[derive(Clone, Copy)]
pub(super) struct IndexClaim {
    pub(super) shard: ShardId,
    pub(super) client_id: ClientId,
    pub(super) age: Option<TokenAge>,
    pub(super) token: Option<TokenUse>,
}

/// Why a claim was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ClaimError {
    Discard(Discard),
    /// All slots of the server are used.
    Full,
}

impl ClientRegistry {
    /// Returns the registry of a server of `shards` shards that starts now. `kept` has the used tokens of earlier
    /// starts.
    ///
    /// # Errors
    /// - `Shards` unless there are 1 to 256 shards.
    /// - `JournalTooLarge` when `kept` has more tokens than the history.
    /// - Any error of [`ServerConfig::check`].
    pub fn new(
        config: &ServerConfig,
        shards: u16,
        seed: &Seed,
        now: Now,
        kept: Option<&KeptTokens>,
    ) -> Result<Self, ServerConfigError> {
        config.check()?;
        if !(1..=MAX_SHARDS).contains(&shards) {
            return Err(ServerConfigError::Shards);
        }
        // The names in a journal must not change at a restart. Without a journal each start may use its own key.
        let names = match kept {
            Some(kept) => DigestKey::from(&kept.names),
            None => DigestKey::from(&seed.derive("token names")),
        };
        let limits = HistoryLimits {
            tokens: config.history_tokens,
            tokens_per_client: config.tokens_per_client_id,
            initial: (config.slots as usize).max(INITIAL_HISTORY_TOKENS),
        };
        let mut history = TokenHistory::new(limits, names.clone(), HashKey::derive(seed, "history"));
        match kept {
            // Not until now: if this start falls into a glitch of the clock, fresh tokens expire before it.
            Some(kept) => history.forget_until(kept.dropped_until),
            // Earlier starts may have used and forgotten tokens that expired before this one.
            None if matches!(config.token_cutoff, TokenCutoff::At(_)) => history.forget_until(now.unix.into()),
            // No earlier start can have used a token that was minted after this one.
            None => {}
        }
        for used in kept.map_or(&[][..], |kept| &kept.used) {
            history.restore(*used, now).map_err(|_| ServerConfigError::JournalTooLarge)?;
        }
        let slots = config.slots as usize;
        Ok(Self {
            history,
            names,
            decrypts: DecryptLimiter::new(&config.budgets, seed),
            ids: map_with_capacity(slots, HashKey::derive(seed, "holders")),
            owners: Slab::with_capacity(slots, None),
            // A min-heap, so that the lowest free index is given first (§1.12).
            free: (0..config.slots).map(|index| Reverse(ClientIndex(index))).collect(),
            shards: (0..slots).map(|_| None).collect(),
            reserved: Vec::new(),
            mailboxes: (0..shards).map(|_| ShardMailbox::default()).collect(),
        })
    }

    /// Returns the number of free client indices.
    #[cfg(test)]
    pub(crate) fn free_slots(&self) -> u32 {
        self.free.len() as u32
    }

    /// Returns the number of connected client ids on all shards.
    #[cfg(test)]
    pub(crate) fn connected(&self) -> u32 {
        (self.ids.len() - self.reserved.len()) as u32
    }

    /// Returns the shard to which a client id is connected.
    #[cfg(test)]
    pub(crate) fn shard_of(&self, client_id: ClientId) -> Option<ShardId> {
        match self.owner(client_id)? {
            IndexOwner::Connected { shard, .. } => Some(*shard),
            IndexOwner::Reserved { .. } => None,
        }
    }

    fn owner(&self, client_id: ClientId) -> Option<&IndexOwner> {
        self.owners[*self.ids.get(&client_id)?].as_ref().must_exist("the owner of a client id")
    }

    fn owner_mut(&mut self, client_id: ClientId) -> Option<&mut IndexOwner> {
        self.owners[*self.ids.get(&client_id)?].as_mut().must_exist("the owner of a client id")
    }

    /// Returns the number of used, unexpired tokens that are stored.
    #[must_use]
    pub(super) fn remembered_tokens(&self) -> usize {
        self.history.len()
    }

    pub(super) const fn names(&self) -> &DigestKey {
        &self.names
    }

    /// Returns the flag that is set while queries for a shard are queued, or `None` for a shard that does not exist.
    pub(super) fn has_queries(&self, shard: ShardId) -> Option<Arc<AtomicBool>> {
        self.mailboxes.lookup(shard).map(|mailbox| Arc::clone(&mailbox.has_queries))
    }
}

#[cfg(test)]
mod tests;
