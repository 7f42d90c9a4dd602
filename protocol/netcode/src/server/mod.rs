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
//! `request` and `response` are the handshake, `established` handles packets of connected clients, and `transmit` sends
//! the packets that are due.

pub mod config;

mod budget;
mod established;
mod loopback;
mod pending;
mod registry;
mod request;
mod response;
mod slab;
mod slots;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;
use core::ops::AddAssign;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

pub use self::config::{Budgets, ServerConfig, ServerConfigError, TokenCutoff};
pub use self::loopback::LoopbackSlotError;
#[cfg(feature = "std")]
pub use self::registry::SharedRegistry;
pub use self::registry::{ClientRegistry, MAX_SHARDS, ShardId};
pub use self::slots::ClientHandle;

use self::budget::TurnBudgets;
use self::pending::PendingClients;
use self::registry::{OwnerQuery, RegistryRef};
use self::slots::{DuePackets, SlotDeadline, SlotState, Slots};
use super::Payload;
use super::timing::DISCONNECT_PACKETS;
use crate::address::Address;
use crate::crypto::digest::DigestKey;
use crate::crypto::key::{KeyRing, Seed};
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::discard::{Discard, Discards};
use crate::ids::{ClientId, ClientIndex, SlotIndex};
use crate::time::{Instant, Now};
use crate::token::challenge::Challenger;
use crate::token::history::{Journal, UsedToken};
use crate::wire::UserData;
use crate::wire::packet::REQUEST_PREFIX;
use crate::wire::token::Servers;

/// The interval of sweeps of a shared registry.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// An event of a client. Payloads come from [`NetcodeServer::handle`] instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetcodeEvent {
    /// A client has a slot, and with a journal its token's record is durable. [`NetcodeServer::client`] has its user
    /// data.
    Connected {
        /// The handle of the connection.
        client: ClientHandle,
        /// The client id in its token.
        client_id: ClientId,
    },
    /// A client's connection has ended. Its handle is invalid.
    Disconnected {
        /// The handle that the connection had.
        client: ClientHandle,
        /// The client id in its token.
        client_id: ClientId,
        /// The reason of the end.
        reason: DisconnectReason,
    },
}

/// A client that has a slot, but no durable token record yet.
struct AwaitingDurability {
    client: ClientHandle,
    /// The number of the record in the journal.
    record: u64,
}

/// Why a client's connection ended. [`EndReason`](crate::client::EndReason) lists the reasons at the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The client disconnected.
    Left,
    /// No authentic packet arrived for the token's timeout.
    TimedOut,
    /// The application disconnected the client.
    Kicked,
    /// The server stopped.
    ServerStopped,
    /// The same player connected again with a newer token, after a silence.
    TakenOver,
    /// All 2^40 sequence numbers of the connection are used.
    SequencesUsedUp,
}

impl fmt::Display for DisconnectReason {
    /// Writes the reason as a stable `snake_case` word, for metrics and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Left => "left",
            Self::TimedOut => "timed_out",
            Self::Kicked => "kicked",
            Self::ServerStopped => "server_stopped",
            Self::TakenOver => "taken_over",
            Self::SequencesUsedUp => "sequences_used_up",
        })
    }
}

/// The data of a connected client.
#[derive(Clone, Copy)]
pub struct ClientInfo<'a> {
    /// The client's index over all shards, which the client learns from its first keep-alive.
    pub index: ClientIndex,
    /// The client id in its token.
    pub client_id: ClientId,
    /// The client's address, `None` for a client in the same process.
    pub address: Option<Address>,
    /// The backend's data in its token.
    pub user_data: &'a UserData,
    /// Whether an authentic packet arrived from the client in its slot.
    pub confirmed: bool,
    /// Whether the client's `Connected` event was queued. A journal delays the event until the token's record is
    /// durable. Before that, payloads cannot be sent to the client, and no event reports its end.
    pub durable: bool,
}

/// The counters of a server since its start. They are never reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetcodeStats {
    /// Clients that got a slot.
    pub connects: u64,
    /// Connections that ended for any reason.
    pub disconnects: u64,
    /// Payloads received from connected clients.
    pub payloads_received: u64,
    /// Payloads sealed for connected clients.
    pub payloads_sent: u64,
    /// Challenges sent.
    pub challenges_sent: u64,
    /// Denials sent.
    pub denials_sent: u64,
    /// Failed writes and flushes of the journal.
    pub journal_failures: u64,
}

impl AddAssign<&Self> for NetcodeStats {
    /// Adds the counters of another shard.
    fn add_assign(&mut self, other: &Self) {
        self.connects += other.connects;
        self.disconnects += other.disconnects;
        self.payloads_received += other.payloads_received;
        self.payloads_sent += other.payloads_sent;
        self.challenges_sent += other.challenges_sent;
        self.denials_sent += other.denials_sent;
        self.journal_failures += other.journal_failures;
    }
}

/// The number of entries in the tables of handshakes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableUsage {
    /// Pending clients of this shard.
    pub pending: usize,
    /// Used, unexpired tokens in the history of all shards.
    pub used_tokens: usize,
}

/// A netcode 1.02 server without sockets.
///
/// A turn calls [`handle`](Self::handle) for every datagram, with [`poll_event`](Self::poll_event) before each, then
/// [`tick`](Self::tick), then [`send`](Self::send) and [`transmit`](Self::transmit).
pub struct NetcodeServer {
    config: ServerConfig,
    keys: KeyRing,
    cipher: PacketCipher,
    handshake: Lane,
    challenger: Challenger,
    names: DigestKey,
    shard: ShardId,
    registry: RegistryRef,
    /// Set while other shards have queries, `None` without other shards.
    has_queries: Option<Arc<AtomicBool>>,
    next_sweep: Instant,
    /// The last moment at which unread packets were waiting. Silence before it proves nothing.
    backlog_until: Instant,
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
    discards: Discards,
    stats: NetcodeStats,
}

/// The storage of a token history that survives restarts: restored tokens, and a journal for new ones.
pub struct TokenStorage {
    /// The journal for used tokens.
    pub journal: Box<dyn Journal>,
    /// The key of the token names in the journal. It lives as long as the journal.
    pub names: [u8; 32],
    /// The unexpired tokens that earlier starts used.
    pub used: alloc::vec::Vec<UsedToken>,
}

/// The setup of one shard of a server.
#[cfg(feature = "std")]
pub struct ShardSetup {
    /// The shard's number.
    pub shard: ShardId,
    /// The registry that all shards share.
    pub registry: SharedRegistry,
    /// The journal for used tokens, if there is one.
    pub journal: Option<Box<dyn Journal>>,
}

impl NetcodeServer {
    /// Returns a server that starts now, with the entropy of this start, and without a history of earlier starts.
    ///
    /// # Errors
    /// Any error of [`ServerConfig::check`].
    pub fn new(config: ServerConfig, keys: KeyRing, seed: &Seed, now: Now) -> Result<Self, ServerConfigError> {
        let registry = ClientRegistry::new(&config, 1, seed, now, None)?;
        Self::with_registry(config, keys, seed, now, ShardId::default(), RegistryRef::Own(Box::new(registry)))
    }

    fn with_registry(
        config: ServerConfig,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        shard: ShardId,
        registry: RegistryRef,
    ) -> Result<Self, ServerConfigError> {
        config.check()?;
        let (names, flag) = registry.read(|registry| (registry.names().clone(), registry.has_queries(shard)));
        // Each shard of the registry has a flag, so a missing one means a shard id out of range.
        let flag = flag.ok_or(ServerConfigError::Shards)?;
        let slots = config.slots as usize;
        Ok(Self {
            names,
            shard,
            has_queries: registry.is_shared().then_some(flag),
            registry,
            next_sweep: now.monotonic,
            backlog_until: now.monotonic,
            cipher: PacketCipher::new(config.protocol_id),
            handshake: Lane::handshake(seed),
            challenger: Challenger::new(seed),
            journal: None,
            recorded: 0,
            durable: 0,
            // Without a journal a client waits here only within one call.
            awaiting_durability: VecDeque::with_capacity(1),
            started: now,
            turn_budgets: TurnBudgets::new(config.budgets),
            pending: PendingClients::new(config.pending_clients, config.addresses_per_token, seed),
            slots: Slots::new(config.slots, shard, seed),
            // Admission stops at two events for each slot. A takeover (two events) and the end of each client may
            // follow.
            events: VecDeque::with_capacity(3 * slots + 2),
            loopbacks: VecDeque::new(),
            turn: 0,
            accepts_clients: true,
            misdirected: None,
            discards: Discards::default(),
            stats: NetcodeStats::default(),
            config,
            keys,
        })
    }

    /// Returns a server that restores the used tokens of earlier starts, and records those of this start.
    ///
    /// Set [`ServerConfig::token_cutoff`] to [`TokenCutoff::At`] the moment at which the journal began.
    ///
    /// # Errors
    /// - `JournalTooLarge` when the storage holds more tokens than the history.
    /// - Any error of [`ServerConfig::check`].
    pub fn with_storage(
        config: ServerConfig,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        storage: TokenStorage,
    ) -> Result<Self, ServerConfigError> {
        let registry = ClientRegistry::new(&config, 1, seed, now, Some((&storage.names, &storage.used)))?;
        let registry = RegistryRef::Own(Box::new(registry));
        let mut server = Self::with_registry(config, keys, seed, now, ShardId::default(), registry)?;
        server.set_journal(storage.journal);
        Ok(server)
    }

    /// Returns one shard of a server. All shards share a registry, a clock and a journal. Each has its own datagrams
    /// and its own entropy.
    ///
    /// A shard has as many slots as the whole server, but touches the memory only of used ones. Dropping a shard frees
    /// its client ids and indices.
    ///
    /// # Errors
    /// - `Shards` when the registry does not have this shard.
    /// - Any error of [`ServerConfig::check`].
    #[cfg(feature = "std")]
    pub fn shard(
        config: ServerConfig,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        setup: ShardSetup,
    ) -> Result<Self, ServerConfigError> {
        let ShardSetup { shard, registry, journal } = setup;
        let mut server = Self::with_registry(config, keys, seed, now, shard, RegistryRef::Shared(registry))?;
        if let Some(journal) = journal {
            server.set_journal(journal);
        }
        Ok(server)
    }

    fn set_journal(&mut self, journal: Box<dyn Journal>) {
        self.journal = Some(journal);
        // All clients may connect during one flush. More entries, by clients that reconnect meanwhile, allocate once.
        self.awaiting_durability.reserve(self.slots.count() as usize);
    }

    /// Returns the number of this shard, 0 for a server without shards.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        self.shard
    }

    /// Handles a received datagram. It is decrypted in place, and a returned payload borrows it.
    ///
    /// # Errors
    /// The [`Discard`] reason when the datagram was dropped. [`discards`](Self::discards) has counted it.
    #[inline]
    pub fn handle<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Now,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let result = self.dispatch(from, datagram, now);
        // The only place that counts, so that each datagram is counted at most once.
        if let Err(reason) = result {
            self.discards.add(reason);
        }
        result
    }

    #[inline]
    fn dispatch<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Now,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let Some(prefix) = datagram.first().copied() else { return Err(Discard::Empty) };
        // Requests are unencrypted, so their prefix is checked before any lookup.
        if prefix == REQUEST_PREFIX {
            return self.on_request(from, datagram, now).map(|()| None);
        }
        match self.slots.at_address(&from) {
            // A response from a slot's address may belong to a takeover by the same player.
            Some(slot) if !response::is_response(prefix) => self.on_established(slot, datagram, now.monotonic),
            slot => self.on_response(from, slot.is_some(), datagram, now).map(|()| None),
        }
    }

    /// Takes the oldest event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<NetcodeEvent> {
        self.events.pop_front()
    }

    /// Ends a turn: disconnects clients that timed out, schedules keep-alives, forgets expired entries and restores the
    /// budgets of a turn.
    pub fn tick(&mut self, now: Now) {
        // Each slot compares this number with its own, which restores the slots' budgets without a loop.
        self.turn += 1;
        self.turn_budgets.start_turn();
        self.reply_to_queries(now.monotonic);
        for slot in self.slots.used() {
            match self.slots.expired_deadline(slot, now.monotonic) {
                // No disconnect packets: a client that is silent has most likely gone.
                Some(SlotDeadline::Timeout) => self.end(slot, DisconnectReason::TimedOut, 0),
                Some(SlotDeadline::KeepAlive) => self.slots.add_due(slot, DuePackets::KEEP_ALIVE),
                None => {}
            }
        }
        self.pending.sweep(now.monotonic);
        // A shared registry is swept every 20 ms: a lock in every turn of every shard would cost more than the sweep.
        if self.has_queries.is_none() || now.monotonic >= self.next_sweep {
            self.next_sweep = now.monotonic.after(SWEEP_INTERVAL);
            self.registry.lock().sweep(now);
        }
    }

    /// Ends a turn like [`tick`](Self::tick) when received packets are still unread. Every client's timeout restarts,
    /// because its packets may be among them.
    pub fn tick_with_backlog(&mut self, now: Now) {
        self.backlog_until = now.monotonic;
        // This precedes `tick`, which would disconnect clients with packets in the socket's buffer.
        self.slots.used().for_each(|slot| self.slots.extend_timeout(slot, now.monotonic));
        self.tick(now);
    }

    /// Replies to the queries of other shards about this shard's clients.
    fn reply_to_queries(&mut self, now: Instant) {
        // One relaxed load per turn while there are no queries.
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Acquire);
        if !self.has_queries.as_ref().is_some_and(is_set) {
            return;
        }
        let shard = self.shard;
        // Each guard is dropped at the end of its statement: `end` locks the registry again.
        loop {
            let query = self.registry.lock().next_query(shard);
            let Some((client_id, query)) = query else { return };
            let Some(slot) = self.slots.of_client(client_id) else { continue };
            // Unread packets count as received, because they may be from this client.
            let last = self.slots.link(slot).last_receive.max(self.backlog_until);
            let is_silent = self.config.takeover_after.is_some_and(|after| now.reached(last, after));
            // Without capacity for the `Disconnected` event, the client stays connected until the next query.
            if query == OwnerQuery::Takeover && is_silent && self.has_event_capacity() {
                // The reservation comes first: `end` would otherwise remove the id, and another token could claim it.
                self.registry.lock().reserve(client_id, now);
                self.end(slot, DisconnectReason::TakenOver, 0);
            } else {
                self.registry.lock().report_last_receive(client_id, last);
            }
        }
    }

    /// Disconnects a client, queues its event, and makes ten disconnect packets due. Returns whether it was connected.
    pub fn disconnect(&mut self, client: ClientHandle) -> bool {
        self.disconnect_for(client, DisconnectReason::Kicked)
    }

    /// Disconnects a client like [`disconnect`](Self::disconnect), with a reason from a higher layer.
    pub fn disconnect_for(&mut self, client: ClientHandle, reason: DisconnectReason) -> bool {
        let Some((slot, _)) = self.slots.get(client) else { return false };
        // Ten packets, because UDP may lose some and none is acknowledged (§1.2).
        self.end(slot, reason, DISCONNECT_PACKETS);
        true
    }

    /// Disconnects all clients and stops admitting new ones.
    pub fn stop(&mut self) {
        self.accepts_clients = false;
        // Closing and free slots are skipped: their connections have ended.
        for slot in self.slots.used() {
            if self.slots.get(self.slots.handle_for(slot)).is_some() {
                self.end(slot, DisconnectReason::ServerStopped, DISCONNECT_PACKETS);
            }
        }
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

    /// Returns the data of a client while it is connected.
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
        })
    }

    /// Returns when the last authentic packet of a client arrived, while its slot is not reused.
    #[inline]
    #[must_use]
    pub fn last_received_at(&self, client: ClientHandle) -> Option<Instant> {
        self.slots.last_receive(client)
    }

    /// Returns the handle of a client id while it is connected to this shard.
    #[must_use]
    pub fn find(&self, client_id: impl Into<ClientId>) -> Option<ClientHandle> {
        self.slots.of_client(client_id.into()).map(|slot| self.slots.handle_for(slot))
    }

    /// Returns every connected client in the order of the slots.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        self.slots.iter()
    }

    /// Returns the number of connected clients.
    #[must_use]
    pub fn connected(&self) -> u32 {
        self.slots.connected()
    }

    /// Returns the number of entries in the tables that strangers can fill.
    #[must_use]
    pub fn table_usage(&self) -> TableUsage {
        let used_tokens = self.registry.read(ClientRegistry::remembered_tokens);
        TableUsage { pending: self.pending.len(), used_tokens }
    }

    /// Returns whether packets are due. A stopped server should call `transmit` until this is false.
    #[must_use]
    pub fn has_unsent_packets(&self) -> bool {
        self.slots.has_due()
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

    /// Returns the address list of the last valid token that names none of the advertised addresses. This almost always
    /// means that the advertised addresses are wrong, so that no client can connect.
    #[must_use]
    pub const fn misdirected(&self) -> Option<&Servers> {
        self.misdirected.as_ref()
    }

    /// Ends a connection and queues its event. The slot is free at once, or after `disconnects` packets.
    fn end(&mut self, slot: SlotIndex, reason: DisconnectReason, disconnects: u8) {
        let (client, client_id) = (self.slots.handle_for(slot), self.slots.profile(slot).client_id);
        let was_durable = self.slots.is_durable(slot);
        // The event comes first, because it needs the slot's present generation.
        self.emit_disconnected(client, client_id, reason);
        self.registry.lock().leave(self.shard, client_id);
        let has_network = self.slots.link(slot).state == SlotState::Connected;
        // Without a durable record the client does not know of its slot, so there is nothing to disconnect.
        if disconnects > 0 && has_network && was_durable {
            self.slots.close(slot, disconnects);
        } else {
            self.vacate(slot);
        }
    }

    /// Queues the `Disconnected` event of a client, if its `Connected` event was queued.
    fn emit_disconnected(&mut self, client: ClientHandle, client_id: ClientId, reason: DisconnectReason) {
        self.stats.disconnects += 1;
        if self.slots.is_durable(client.slot()) {
            self.events.push_back(NetcodeEvent::Disconnected { client, client_id, reason });
        }
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
            self.events.push_back(NetcodeEvent::Connected { client, client_id });
            self.slots.add_due(slot, DuePackets::KEEP_ALIVE);
        }
    }

    /// Returns whether the event queue has capacity for another client. Untaken events stay queued, so admission must
    /// stop.
    fn has_event_capacity(&self) -> bool {
        self.events.len() + self.awaiting_durability.len() < 2 * self.slots.count() as usize
    }

    /// Frees a slot and its client's index.
    fn vacate(&mut self, slot: SlotIndex) {
        // Read before the slot is reset. The index is free for other shards only after the slot is.
        let index = self.slots.link(slot).index;
        self.slots.vacate(slot);
        self.registry.lock().release(self.shard, index);
    }
}

impl Drop for NetcodeServer {
    /// Frees the client ids and indices of a shard that ends, even by a panic.
    fn drop(&mut self) {
        if self.registry.is_shared() {
            self.registry.lock().leave_all(self.shard);
        }
    }
}
