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
//! `start` sets a server up. `request` and `response` are the handshake, `established` handles packets of connected
//! clients, `transmit` sends the packets that are due, `ends` ends connections, and `report` is what the application
//! reads.

pub mod config;
pub mod handshake;

mod budget;
mod ended;
mod ends;
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

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

pub use self::config::{Budgets, ServerConfig, ServerConfigError, TokenCutoff};
pub use self::loopback::LoopbackSlotError;
#[cfg(feature = "std")]
pub use self::registry::SharedRegistry;
pub use self::registry::{ClientRegistry, MAX_SHARDS, ShardId};
pub use self::report::{ClientInfo, DisconnectReason, NetcodeEvent, NetcodeStats, TableUsage};
pub use self::slots::ClientHandle;
#[cfg(feature = "std")]
pub use self::start::ShardSetup;
pub use self::start::TokenStorage;

use self::budget::TurnBudgets;
use self::ended::EndedAddresses;
use self::handshake::{HandshakeLog, HandshakeStep};
use self::log_opens::LogOpens;
use self::pending::PendingClients;
use self::registry::RegistryRef;
use self::slots::{DuePackets, SlotDeadline, Slots};
use super::Payload;
use crate::address::Address;
use crate::crypto::digest::DigestKey;
use crate::crypto::key::{KeyRing, Seed};
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::discard::{Discard, Discards};
use crate::ids::ClientId;
use crate::time::{Instant, Now};
use crate::timing::{DISCONNECT_PACKETS, MAX_TIMEOUT};
use crate::token::challenge::Challenger;
use crate::token::history::Journal;
use crate::wire::packet::REQUEST_PREFIX;
use crate::wire::token::Servers;

/// The time between two ticks after which the server was asleep: stopped, or starved by other programs.
const ASLEEP: Duration = Duration::from_secs(1);

/// The time that a client has after the server's own sleep until a packet of it must arrive: ten of its keep-alives.
const GRACE_AFTER_SLEEP: Duration = Duration::from_secs(1);

/// The interval of sweeps of a shared registry.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

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
        self.notice_sleep(now.monotonic);
        let Some(prefix) = datagram.first().copied() else { return Err(Discard::Empty) };
        // Requests are unencrypted, so their prefix is checked before any lookup.
        if prefix == REQUEST_PREFIX {
            return self.on_request(from, datagram, now).map(|()| None);
        }
        match self.slots.at_address(&from) {
            // A response from a slot's address may belong to a takeover by the same player.
            Some(slot) if !response::is_response(prefix) => self.on_established(slot, datagram, now.monotonic),
            slot => {
                let unknown = if slot.is_some() { Discard::AddressConnected } else { Discard::UnknownSender };
                match self.on_response(from, unknown, datagram, now) {
                    Ok(()) => Ok(None),
                    Err(Discard::UnknownSender) if self.ended.contains(&from, now.monotonic) => {
                        Err(Discard::ConnectionEnded)
                    }
                    Err(reason) => Err(reason),
                }
            }
        }
    }

    /// Records that the server was asleep, if the last tick is long ago. Silence in that time proves nothing.
    #[inline]
    fn notice_sleep(&mut self, now: Instant) {
        if self.asleep_since.is_none() && now.since(self.last_tick) > ASLEEP {
            self.asleep_since = Some(self.last_tick);
            self.backlog_until = now;
        }
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

    /// Ends a turn: disconnects clients that timed out, schedules keep-alives, forgets expired entries and restores the
    /// budgets of a turn.
    ///
    /// If the last tick was more than a second ago, the server itself was asleep: it waits another second for packets
    /// of its clients. A program that ticks less than once per second therefore times no client out.
    pub fn tick(&mut self, now: Now) {
        self.notice_sleep(now.monotonic);
        if self.asleep_since.take().is_some() {
            self.slots.used().for_each(|slot| self.slots.extend_timeout(slot, now.monotonic, GRACE_AFTER_SLEEP));
        }
        self.end_turn(now);
    }

    fn end_turn(&mut self, now: Now) {
        self.last_tick = now.monotonic;
        // Each slot compares this number with its own, which restores the slots' budgets without a loop.
        self.turn += 1;
        self.turn_budgets.start_turn();
        self.reply_to_queries(now.monotonic);
        for slot in self.slots.used() {
            match self.slots.expired_deadline(slot, now.monotonic) {
                // The client may be alive behind a path that is broken in one direction, or stopped for a while. It
                // learns of the end by the disconnect packets.
                Some(SlotDeadline::Timeout) => self.end(slot, DisconnectReason::TimedOut, DISCONNECT_PACKETS),
                Some(SlotDeadline::KeepAlive) => self.slots.add_due(slot, DuePackets::KEEP_ALIVE),
                None => {}
            }
        }
        self.pending.sweep(now.monotonic);
        self.ended.sweep(now.monotonic);
        // A shared registry is swept every 20 ms: a lock in every turn of every shard would cost more than the sweep.
        if self.has_queries.is_none() || now.monotonic >= self.next_sweep {
            self.next_sweep = now.monotonic.after(SWEEP_INTERVAL);
            self.registry.lock().sweep(now);
        }
    }

    /// Ends a turn like [`tick`](Self::tick) when received packets are still unread. Every client's timeout restarts,
    /// because its packets may be among them. After a sleep of the server, every client has at least another second.
    pub fn tick_with_backlog(&mut self, now: Now) {
        self.notice_sleep(now.monotonic);
        self.backlog_until = now.monotonic;
        let extension = if self.asleep_since.is_some() { GRACE_AFTER_SLEEP } else { MAX_TIMEOUT };
        // This precedes `end_turn`, which would disconnect clients with packets in the socket's buffer.
        self.slots.used().for_each(|slot| self.slots.extend_timeout(slot, now.monotonic, extension));
        self.end_turn(now);
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

    /// Returns the number of entries in the tables that strangers can fill, and of clients with due packets.
    #[must_use]
    pub fn table_usage(&self) -> TableUsage {
        let used_tokens = self.registry.read(ClientRegistry::remembered_tokens);
        TableUsage { pending: self.pending.len(), used_tokens, has_due_packets: self.slots.has_due() }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::key::Key;
    use crate::time::UnixMillis;

    #[test]
    fn server_with_a_tick_after_exactly_a_second_was_awake() {
        let at = |time| Now { monotonic: Instant::from_start(time), unix: UnixMillis(1_000_000) };
        let config = ServerConfig::new(1, 1, &[core::net::SocketAddr::from(([192, 0, 2, 1], 40_000))]);
        let (keys, seed) = (Key::from([1; 32]).into(), Seed::from([2; 32]));
        let mut server = NetcodeServer::new(config, keys, &seed, at(Duration::ZERO)).unwrap();
        server.tick(at(Duration::ZERO));
        server.notice_sleep(at(ASLEEP).monotonic);
        assert_eq!(server.asleep_since, None);
        server.notice_sleep(at(ASLEEP + Duration::from_nanos(1)).monotonic);
        assert_eq!(server.asleep_since, Some(Instant::default()));
    }
}
