//! The server: admits clients with valid tokens into slots, and exchanges payloads with them.
//!
//! ```text
//!                        request                response
//!   unknown ───────────────────────▶ pending ─────────────▶ slot
//!     │  length, version, protocol,     │  authentic, bound to │  replay window, cipher
//!     │  expiry, used?, budgets,        │  address and token,  │
//!     │  decrypt, address list,         │  fresh, unused,      │  ├─▶ payloads, keep-alives
//!     │  cutoff, connected?             │  a slot is free?     │  └─▶ disconnect, timeout
//!     ▼                                 ▼                      ▼
//!   Discard, counted                 challenge, denied       events
//! ```
//!
//! This file holds the state. `start` sets a server up, and `turn` handles datagrams and ticks. `request` and
//! `response` are the handshake, `established` handles packets of connected clients, `transmit` sends the packets that
//! are due, `disconnect` ends connections, and `report` is what the application reads.

mod config;
pub mod handshake;

mod disconnect;
mod ended_addresses;
mod established;
mod log_opens;
mod loopback;
mod pending;
mod registry;
mod report;
mod request;
mod response;
mod slots;
mod start;
mod transmit;
mod turn;
mod turn_budgets;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;

pub use self::config::{
    Budgets, DEFAULT_HISTORY_TOKENS, DEFAULT_MAX_TOKEN_LIFETIME, DEFAULT_PENDING_CLIENTS, DEFAULT_PENDING_LIFETIME,
    DEFAULT_TAKEOVER_AFTER, DEFAULT_TOKENS_PER_CLIENT_ID, MAX_ADDRESSES_PER_TOKEN, MAX_PENDING_LIFETIME, MAX_SLOTS,
    MIN_PENDING_LIFETIME, ServerConfig, ServerConfigError, TokenCutoff,
};
pub use self::loopback::LoopbackSlotError;
#[cfg(feature = "std")]
pub use self::registry::SharedRegistry;
pub use self::registry::{ClientRegistry, MAX_SHARDS, ShardId};
pub use self::report::{ClientInfo, DisconnectReason, NetcodeEvent, NetcodeStats, TableUsage};
pub use self::slots::ClientHandle;
#[cfg(feature = "std")]
pub use self::start::ShardSetup;
pub use self::start::TokenStorage;

use self::ended_addresses::EndedAddresses;
use self::handshake::{HandshakeLog, HandshakeStep};
use self::log_opens::LogOpens;
use self::pending::PendingClients;
use self::registry::RegistryRef;
use self::slots::{DuePackets, Slots};
use self::turn_budgets::TurnBudgets;
use crate::address::Address;
use crate::crypto::digest::DigestKey;
use crate::crypto::key::{KeyRing, Seed};
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::discard::Discards;
use crate::ids::ClientId;
use crate::time::{Instant, Now};
use crate::token::challenge::Challenger;
use crate::token::history::Journal;
use crate::wire::token::Servers;

/// A client that has a slot, but no durable token record yet.
struct AwaitingDurability {
    client: ClientHandle,
    /// The number of the record in the journal.
    record: u64,
}

/// A netcode 1.02 server without sockets.
///
/// A turn calls [`handle`](Self::handle) for every datagram, with [`poll_event`](Self::poll_event) before each, then
/// [`tick`](Self::tick), then [`send`](Self::send) and [`transmit`](Self::transmit).
pub struct NetcodeServer {
    config: ServerConfig,
    /// `config.advertised`, as tokens write addresses.
    advertised: Vec<Address>,
    keys: KeyRing,
    cipher: PacketCipher,
    handshake: Lane,
    challenger: Challenger,
    session_seed: Seed,
    names: DigestKey,
    shard: ShardId,
    registry: RegistryRef,
    /// Set while other shards have queries, `None` without other shards.
    has_queries: Option<Arc<AtomicBool>>,
    next_sweep: Instant,
    /// The last moment at which unread packets were waiting. Silence before it proves nothing.
    backlog_until: Instant,
    /// The time of the last tick.
    last_tick: Instant,
    /// The last tick before the server was asleep, until it has read all packets that waited meanwhile. Such a packet
    /// counts as received then, because it may have waited since.
    asleep_since: Option<Instant>,
    /// The addresses of connections that ended a moment ago.
    ended: EndedAddresses,
    journal: Option<Box<dyn Journal>>,
    /// The number of records in the journal, and the number of durable ones, counted from the oldest.
    recorded: u64,
    durable: u64,
    /// Clients without a durable token record. No event and no packet reveals their connection.
    awaiting_durability: VecDeque<AwaitingDurability>,
    started: Now,
    turn_budgets: TurnBudgets,
    pending: PendingClients,
    slots: Slots,
    events: VecDeque<NetcodeEvent>,
    /// One entry for each payload from a client in the same process, oldest first.
    loopbacks: VecDeque<ClientHandle>,
    turn: u64,
    accepts_clients: bool,
    misdirected: Option<Servers>,
    handshakes: HandshakeLog,
    log_opens: LogOpens,
    discards: Discards,
    stats: NetcodeStats,
}

impl NetcodeServer {
    /// Returns the number of this shard, 0 for a server without shards.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        self.shard
    }

    /// Takes the oldest event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<NetcodeEvent> {
        self.events.pop_front()
    }

    /// Takes the oldest of the latest steps of handshakes, those of opened tokens first. Take them once per turn: at
    /// most 80 are kept.
    pub fn poll_handshake(&mut self) -> Option<HandshakeStep> {
        self.handshakes.poll()
    }

    /// Sets whether new clients are admitted, initially true. Otherwise new clients are denied, as if the server were
    /// full, and try the next server of their token at once.
    pub fn accept_new_clients(&mut self, accept: bool) {
        self.accepts_clients = accept;
    }

    /// Replaces the private keys, newest first. Connected clients are not affected, because each connection has its own
    /// keys.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.keys = keys;
    }

    /// Returns the data of a client while it has a slot, also before its token's record is durable
    /// ([`ClientInfo::durable`]).
    #[inline]
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<ClientInfo<'_>> {
        let (slot, link) = self.slots.get(client)?;
        let profile = self.slots.profile(slot);
        Some(ClientInfo {
            index: link.index,
            client_id: profile.client_id,
            address: link.address,
            user_data: &profile.user_data,
            confirmed: link.confirmed,
            durable: link.durable,
            next_sequence: link.window.newest().map_or(0, |newest| newest.saturating_add(1)),
        })
    }

    /// Returns when the last authentic packet of a client arrived, while its slot is not reused.
    #[inline]
    #[must_use]
    pub fn last_received_at(&self, client: ClientHandle) -> Option<Instant> {
        self.slots.last_receive(client)
    }

    /// Returns the handle of a client id while it has a slot of this shard, also before its token's record is durable.
    #[must_use]
    pub fn find(&self, client_id: impl Into<ClientId>) -> Option<ClientHandle> {
        self.slots.of_client(client_id.into()).map(|slot| self.slots.handle_for(slot))
    }

    /// Returns the handle of the client with a slot at an address, also before its token's record is durable, without a
    /// scan of the slots.
    #[must_use]
    pub fn find_at(&self, address: Address) -> Option<ClientHandle> {
        self.slots.at_address(&address).map(|slot| self.slots.handle_for(slot))
    }

    /// Returns every client with a slot in the order of the slots, also those whose token's record is not durable
    /// ([`ClientInfo::durable`]).
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        self.slots.iter()
    }

    /// Returns the number of connected clients with a durable record of their token.
    #[must_use]
    pub fn connected_count(&self) -> u32 {
        self.slots.connected()
    }

    /// Returns the number of entries in the tables that strangers can fill, and of clients with due packets.
    #[must_use]
    pub fn table_usage(&self) -> TableUsage {
        let used_tokens = self.registry.read(ClientRegistry::remembered_tokens);
        TableUsage {
            pending: self.pending.len(),
            used_tokens,
            has_due_packets: self.slots.has_due(),
            is_journal_busy: self.is_journal_busy(),
        }
    }

    /// Returns whether the journal takes no records now.
    fn is_journal_busy(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.is_busy())
    }

    /// Returns the number of dropped datagrams by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        &self.discards
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> &NetcodeStats {
        &self.stats
    }

    /// Returns the settings.
    #[inline]
    #[must_use]
    pub const fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// Returns the seed for what is built upon this server. It is independent of all secrets of the server itself.
    #[must_use]
    pub const fn session_seed(&self) -> &Seed {
        &self.session_seed
    }

    /// Returns the address list of the last valid token that names none of the advertised addresses. This almost always
    /// means that the advertised addresses are wrong, so that no client can connect.
    #[must_use]
    pub const fn misdirected(&self) -> Option<&Servers> {
        self.misdirected.as_ref()
    }

    /// Queues a `Connected` event and a keep-alive for each client with a durable record. A client that has
    /// gone meanwhile gets neither.
    fn on_durable(&mut self) {
        // Records become durable in order, so the queue needs no search.
        while let Some(waiting) = self.awaiting_durability.pop_front_if(|waiting| waiting.record <= self.durable) {
            let client = waiting.client;
            let Some((slot, _)) = self.slots.get(client) else { continue };
            let client_id = self.slots.profile(slot).client_id;
            self.slots.set_durable(slot);
            self.stats.connects += 1;
            self.events.push_back(NetcodeEvent::Connected { client, client_id });
            self.slots.add_due(slot, DuePackets::KEEP_ALIVE);
        }
    }

    /// Returns whether the event queue has capacity for another client. Untaken events stay queued, so admission must
    /// stop.
    fn has_event_capacity(&self) -> bool {
        self.events.len() + self.awaiting_durability.len() < 2 * self.slots.count() as usize
    }
}
