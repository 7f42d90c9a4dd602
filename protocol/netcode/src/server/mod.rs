//! The server: it admits holders of valid tokens into slots, and carries their payloads.
//!
//! ```text
//!                        request                response
//!   stranger ──────────────────────▶ pending ─────────────▶ slot
//!     │  length, version, protocol,     │  opens, challenge    │  replay window, cipher
//!     │  expiry, used?, budgets,        │  is this address's,  │
//!     │  decrypt, address list,         │  this token's, fresh │  ├─▶ payloads, keep-alives
//!     │  before start?, connected?      │  still room?         │  └─▶ disconnect, silence
//!     ▼                                 ▼                      ▼
//!   Discard, counted                 challenge, denied       events
//! ```
//!
//! `request` and `response` are the two doors, `established` is the room behind them, `transmit` pays what is owed.

pub mod config;

mod budget;
mod established;
mod loopback;
mod pending;
mod register;
mod request;
mod response;
mod slots;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

pub use self::config::{Budgets, Config, ConfigError, Fence};
pub use self::loopback::LoopbackError;
pub use self::register::{Lend, MAX_SHARDS, Register, ShardId};
pub use self::slots::ClientHandle;

use self::budget::Ledger;
use self::pending::PendingClients;
use self::register::{Common, Question};
use self::slots::{Due, Owes, Slots, State};
use super::Payload;
use super::timing::DISCONNECT_PACKETS;
use crate::address::Address;
use crate::crypto::digest::DigestKey;
use crate::crypto::key::{KeyRing, Seed};
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::discard::{Discard, Discards};
use crate::time::{Instant, Now};
use crate::token::challenge::Challenger;
use crate::token::history::{Journal, UsedToken};
use crate::wire::UserData;
use crate::wire::packet::REQUEST_PREFIX;
use crate::wire::token::Servers;

/// How often what has expired in the register is looked for.
const SWEEP_INTERVAL: Duration = Duration::from_millis(20);

/// Something that happened to a client. The payloads come from [`Server::handle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client has a slot, and with a journal its token is durable, so that it can be sent to. Its user data is in
    /// [`Server::client`].
    Connected {
        /// Its handle from now on.
        client: ClientHandle,
        /// Who it is, by its token.
        client_id: u64,
    },
    /// A client's connection has ended; its handle reaches nobody any more.
    Disconnected {
        /// The handle it had.
        client: ClientHandle,
        /// Who it was.
        client_id: u64,
        /// Why.
        reason: DisconnectReason,
    },
}

/// A client that has a slot, and whose token's record, by its number, may not be durable yet.
struct Unannounced {
    client: ClientHandle,
    record: u64,
}

/// Why a client's connection ended. What the client is told of it stands at
/// [`EndReason`](crate::client::EndReason).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The client said that it leaves.
    Left,
    /// Nothing authentic arrived for the token's time-out.
    TimedOut,
    /// The application disconnected it.
    Kicked,
    /// The server stops.
    ServerStopped,
    /// The same player connected anew, with a newer token, after a silence.
    TakenOver,
    /// A trillion packets were sent and no sequence number is left.
    SequencesUsedUp,
    /// Its channels are not the server's.
    LayoutMismatch,
    /// It speaks another version of the session layer.
    VersionMismatch,
    /// It does not speak the session layer.
    NotASession,
    /// It sent what no honest client sends.
    Violation,
    /// It says that the server sent what no honest server sends.
    Accused,
}

impl DisconnectReason {
    /// The reason as a stable `snake_case` word, for metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::TimedOut => "timed_out",
            Self::Kicked => "kicked",
            Self::ServerStopped => "server_stopped",
            Self::TakenOver => "taken_over",
            Self::SequencesUsedUp => "sequences_used_up",
            Self::LayoutMismatch => "layout_mismatch",
            Self::VersionMismatch => "version_mismatch",
            Self::NotASession => "not_a_session",
            Self::Violation => "violation",
            Self::Accused => "accused",
        }
    }
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the application may know of a connected client.
#[derive(Clone, Copy)]
pub struct ClientInfo<'a> {
    /// Its index in the game, of all clients of all shards: the lowest one that was free. It learns it from its first
    /// keep-alive.
    pub index: u32,
    /// Who it is, by its token.
    pub client_id: u64,
    /// Where its packets come from; `None` for a client in the same program.
    pub address: Option<Address>,
    /// What the backend wrote into its token.
    pub user_data: &'a UserData,
    /// Whether something arrived from it since it got its slot.
    pub confirmed: bool,
}

/// What a server has counted since its start; none of it is ever reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Clients that got a slot.
    pub connects: u64,
    /// Connections that ended, for whatever reason.
    pub disconnects: u64,
    /// Payloads received from connected clients.
    pub payloads_received: u64,
    /// Payloads sealed for connected clients.
    pub payloads_sent: u64,
    /// Challenges sent.
    pub challenges_sent: u64,
    /// Requests and responses answered with a denial.
    pub denials_sent: u64,
    /// Times the journal could not be written or made durable.
    pub journal_failures: u64,
}

impl Stats {
    /// Counts what another shard has counted.
    pub const fn add_all(&mut self, other: &Self) {
        self.connects += other.connects;
        self.disconnects += other.disconnects;
        self.payloads_received += other.payloads_received;
        self.payloads_sent += other.payloads_sent;
        self.challenges_sent += other.challenges_sent;
        self.denials_sent += other.denials_sent;
        self.journal_failures += other.journal_failures;
    }
}

/// A netcode 1.02 server without sockets.
///
/// A turn: [`handle`](Self::handle) for every datagram, taking the events with [`poll_event`](Self::poll_event) before
/// each; then [`tick`](Self::tick); then [`send`](Self::send) and [`transmit`](Self::transmit).
pub struct Server {
    config: Config,
    keys: KeyRing,
    cipher: PacketCipher,
    handshake: Lane,
    challenger: Challenger,
    names: DigestKey,
    shard: ShardId,
    common: Common,
    /// Rung when other shards ask; none where there are no others.
    bell: Option<Arc<AtomicBool>>,
    next_sweep: Instant,
    /// By then not all had been read that had arrived: before it nobody is known to have been silent.
    unread_at: Instant,
    journal: Option<Box<dyn Journal>>,
    /// Records that the journal has taken, and how many of them are durable, the oldest ones first.
    recorded: u64,
    durable: u64,
    /// Newcomers whose tokens may not be durable yet: nobody is told of them, themselves included.
    unannounced: VecDeque<Unannounced>,
    started: Now,
    ledger: Ledger,
    pending: PendingClients,
    slots: Slots,
    events: VecDeque<Event>,
    /// One entry for each payload that a client in the same program sent, oldest first.
    loopbacks: VecDeque<ClientHandle>,
    turn: u64,
    admitting: bool,
    misdirected: Option<Servers>,
    discards: Discards,
    stats: Stats,
}

/// A token history that survives restarts: what it kept, and where to write on.
pub struct Storage {
    /// Where used tokens are written.
    pub journal: Box<dyn Journal>,
    /// The key under which the journal names tokens; it lives as long as the journal does.
    pub names: [u8; 32],
    /// The unexpired tokens that earlier starts used.
    pub used: alloc::vec::Vec<UsedToken>,
}

/// The place of a shard in its server.
pub struct ShardPlace {
    /// Which one it is.
    pub shard: ShardId,
    /// What it shares with the others.
    pub register: Box<dyn Lend>,
    /// Where used tokens are written, if anywhere.
    pub journal: Option<Box<dyn Journal>>,
}

impl Server {
    /// A server that starts now, with the entropy of this start, without a history of earlier ones.
    ///
    /// # Errors
    /// A setting that no server can run with.
    pub fn new(config: Config, keys: KeyRing, seed: &Seed, now: Now) -> Result<Self, ConfigError> {
        let register = Register::new(&config, 1, seed, now, None)?;
        Self::around(config, keys, seed, now, ShardId::default(), Common::Own(Box::new(register)))
    }

    fn around(
        config: Config,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        shard: ShardId,
        common: Common,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let (names, bell) = common.ask((None, None), |register| (Some(register.names().clone()), register.bell(shard)));
        let (names, bell) = (names.ok_or(ConfigError::Shards)?, bell.ok_or(ConfigError::Shards)?);
        let slots = config.slots as usize;
        Ok(Self {
            names,
            shard,
            bell: matches!(common, Common::Shared(_)).then_some(bell),
            common,
            next_sweep: now.monotonic,
            unread_at: now.monotonic,
            cipher: PacketCipher::new(config.protocol_id),
            handshake: Lane::handshake(seed),
            challenger: Challenger::new(seed),
            journal: None,
            recorded: 0,
            durable: 0,
            // Without a journal everybody is told of at once.
            unannounced: VecDeque::with_capacity(1),
            started: now,
            ledger: Ledger::new(config.budgets),
            pending: PendingClients::new(config.pending_clients, config.addresses_per_token, seed),
            slots: Slots::new(config.slots, shard, seed),
            // Admission stops at two events for each slot; two of a takeover and one end of each client may follow.
            events: VecDeque::with_capacity(3 * slots + 2),
            loopbacks: VecDeque::new(),
            turn: 0,
            admitting: true,
            misdirected: None,
            discards: Discards::default(),
            stats: Stats::default(),
            config,
            keys,
        })
    }

    /// A server that remembers which tokens its earlier starts used, and writes down those of this one.
    ///
    /// Set [`Config::fence`] to [`Fence::Since`] with the moment since which the journal has been kept.
    ///
    /// # Errors
    /// A setting that no server can run with.
    pub fn with_storage(
        config: Config,
        keys: KeyRing,
        seed: &Seed,
        now: Now,
        storage: Storage,
    ) -> Result<Self, ConfigError> {
        let register = Register::new(&config, 1, seed, now, Some((&storage.names, &storage.used)))?;
        let mut server = Self::around(config, keys, seed, now, ShardId::default(), Common::Own(Box::new(register)))?;
        server.write_to(storage.journal);
        Ok(server)
    }

    /// One of the shards of a server, which share a register; each has datagrams of its own, a clock in common with the
    /// others, and entropy that no other has. A journal is written by all of them.
    ///
    /// The shard holds as many slots as the whole server, and touches the memory of those that are used. When it is
    /// dropped, what it held in the register is free.
    ///
    /// # Errors
    /// A setting that no server can run with, or a shard that the register does not have.
    pub fn shard(config: Config, keys: KeyRing, seed: &Seed, now: Now, place: ShardPlace) -> Result<Self, ConfigError> {
        let ShardPlace { shard, register, journal } = place;
        let mut server = Self::around(config, keys, seed, now, shard, Common::Shared(register))?;
        if let Some(journal) = journal {
            server.write_to(journal);
        }
        Ok(server)
    }

    fn write_to(&mut self, journal: Box<dyn Journal>) {
        self.journal = Some(journal);
        // Everybody may come while the disk is at it; who leaves meanwhile, and comes again, asks for memory, once.
        self.unannounced.reserve(self.slots.count() as usize);
    }

    /// Which shard this is: the first one, where there is but one.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        self.shard
    }

    /// Brings a datagram in. It is decrypted where it lies; a payload is handed out from there.
    ///
    /// # Errors
    /// Why it was dropped; it has been counted in [`discards`](Self::discards).
    pub fn handle<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Now,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let result = self.route(from, datagram, now);
        if let Err(reason) = result {
            self.discards.add(reason);
        }
        result
    }

    fn route<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Now,
    ) -> Result<Option<(ClientHandle, Payload<'d>)>, Discard> {
        let Some(prefix) = datagram.first().copied() else { return Err(Discard::Empty) };
        if prefix == REQUEST_PREFIX {
            return self.request(from, datagram, now).map(|()| None);
        }
        match self.slots.at_address(&from) {
            Some(slot) if !response::is_response(prefix) => self.established(slot, datagram, now.monotonic),
            slot => self.response(from, slot.is_some(), datagram, now).map(|()| None),
        }
    }

    /// The oldest event that was not taken yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// A turn has passed: ends what was silent for too long, owes keep-alives, forgets what has expired, and gives
    /// everyone their budgets anew.
    pub fn tick(&mut self, now: Now) {
        self.turn += 1;
        self.ledger.begin_turn();
        self.answer_other_shards(now.monotonic);
        for slot in 0..self.slots.used() {
            match self.slots.due(slot, now.monotonic) {
                Some(Due::Silence) => self.end(slot, DisconnectReason::TimedOut, 0),
                Some(Due::KeepAlive) => self.slots.owe(slot, Owes { keep_alive: true, disconnects: 0 }),
                None => {}
            }
        }
        self.pending.sweep(now.monotonic);
        // A lock is not worth a look at every turn.
        if self.bell.is_none() || now.monotonic >= self.next_sweep {
            self.next_sweep = now.monotonic.after(SWEEP_INTERVAL);
            self.common.with((), |register| register.sweep(now));
        }
    }

    /// As [`tick`](Self::tick), after a turn that has left unread what had arrived: nobody is taken for silent whose packets
    /// may lie there, and everybody has the time-out anew.
    pub fn tick_unread(&mut self, now: Now) {
        self.unread_at = now.monotonic;
        (0..self.slots.used()).for_each(|slot| self.slots.bear_with(slot, now.monotonic));
        self.tick(now);
    }

    /// Tells other shards what they ask of this one's clients: one look at a flag a turn, when nobody asks.
    fn answer_other_shards(&mut self, now: Instant) {
        let rung = |bell: &Arc<AtomicBool>| bell.load(Ordering::Relaxed) && bell.swap(false, Ordering::Acquire);
        if !self.bell.as_ref().is_some_and(rung) {
            return;
        }
        let shard = self.shard;
        while let Some((client_id, question)) = self.common.with(None, |register| register.next_question(shard)) {
            let Some(slot) = self.slots.of_client(client_id) else { continue };
            let Some(last) = self.slots.link(slot).map(|link| link.last_receive) else { continue };
            let last = last.max(self.unread_at);
            let is_silent = self.config.takeover_after.is_some_and(|grace| now.reached(last, grace));
            // One whose end could not be told stays until it can.
            if question == Question::MayItGo && is_silent && self.has_room_for_events() {
                self.common.with((), |register| register.keep(client_id, now));
                self.end(slot, DisconnectReason::TakenOver, 0);
            } else {
                self.common.with((), |register| register.tell_heard(client_id, last));
            }
        }
    }

    /// Disconnects a client: ten disconnect packets are owed to it, and its event comes.
    ///
    /// Answers whether the client was connected.
    pub fn disconnect(&mut self, client: ClientHandle) -> bool {
        self.disconnect_for(client, DisconnectReason::Kicked)
    }

    /// As [`disconnect`](Self::disconnect), for a reason that a layer above found.
    pub fn disconnect_for(&mut self, client: ClientHandle, reason: DisconnectReason) -> bool {
        let Some((slot, _)) = self.slots.live(client) else { return false };
        self.end(slot, reason, DISCONNECT_PACKETS);
        true
    }

    /// Disconnects everyone and admits nobody any more.
    pub fn stop(&mut self) {
        self.admitting = false;
        for slot in 0..self.slots.used() {
            if let Some(client) = self.slots.handle(slot)
                && self.slots.live(client).is_some()
            {
                self.end(slot, DisconnectReason::ServerStopped, DISCONNECT_PACKETS);
            }
        }
    }

    /// Whether new clients are admitted (at first they are). While not, they are answered as if the server were full,
    /// so that they try the next server of their token at once.
    pub fn set_admitting(&mut self, admitting: bool) {
        self.admitting = admitting;
    }

    /// Replaces the private keys, newest first. Nobody connected is concerned: sessions have keys of their own.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.keys = keys;
    }

    /// What the application may know of a client, while it is connected.
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<ClientInfo<'_>> {
        let (slot, link) = self.slots.live(client)?;
        let profile = self.slots.profile(slot)?;
        Some(ClientInfo {
            index: link.index,
            client_id: profile.client_id,
            address: link.address,
            user_data: &profile.user_data,
            confirmed: link.confirmed,
        })
    }

    /// When something authentic of a client arrived last, while it is connected.
    pub fn heard_at(&mut self, client: ClientHandle) -> Option<Instant> {
        let slot = client.slot();
        (self.slots.handle(slot) == Some(client)).then(|| self.slots.link(slot).map(|link| link.last_receive))?
    }

    /// The handle of a client id, while it is connected.
    #[must_use]
    pub fn find(&self, client_id: u64) -> Option<ClientHandle> {
        self.slots.of_client(client_id).and_then(|slot| self.slots.handle(slot))
    }

    /// Whether a connected client was told of by an event: with a journal, as soon as its used token is durable. Until then
    /// nothing can be sent to it, and should its connection end, no event tells of that either.
    #[must_use]
    pub fn is_announced(&self, client: ClientHandle) -> bool {
        self.slots.live(client).is_some_and(|(_, link)| link.announced)
    }

    /// Every connected client, in the order of the slots.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        self.slots.iter()
    }

    /// How many clients are connected.
    #[must_use]
    pub fn connected(&self) -> u32 {
        self.slots.connected()
    }

    /// How many clients are pending.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// How many used, unexpired tokens are remembered.
    #[must_use]
    pub fn remembered_tokens(&self) -> usize {
        self.common.ask(0, Register::remembered_tokens)
    }

    /// Whether someone is still owed a packet: a stopped server transmits until this is false.
    #[must_use]
    pub fn owes(&self) -> bool {
        self.slots.has_debts()
    }

    /// How many datagrams were dropped, by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        &self.discards
    }

    /// What else was counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The address list of the last valid token that was refused because none of our addresses stands in it: almost
    /// always a wrong advertised address, and the reason why nobody can connect.
    #[must_use]
    pub const fn misdirected(&self) -> Option<&Servers> {
        self.misdirected.as_ref()
    }

    /// Ends a connection: its event, and its slot free at once or after `disconnects` packets.
    fn end(&mut self, slot: u32, reason: DisconnectReason, disconnects: u8) {
        let (Some(client), Some(profile)) = (self.slots.handle(slot), self.slots.profile(slot)) else { return };
        let (shard, client_id) = (self.shard, profile.client_id);
        let was_announced = self.slots.is_announced(slot);
        self.tell_end(client, client_id, reason);
        self.common.with((), |register| register.leave(shard, client_id));
        let networked = self.slots.link(slot).is_some_and(|link| link.state == State::Connected);
        if disconnects > 0 && networked && was_announced {
            self.slots.close(slot, disconnects);
        } else {
            self.vacate(slot);
        }
    }

    /// Tells of an end, unless nothing was told of the beginning.
    fn tell_end(&mut self, client: ClientHandle, client_id: u64, reason: DisconnectReason) {
        self.stats.disconnects += 1;
        if self.slots.is_announced(client.slot()) {
            self.events.push_back(Event::Disconnected { client, client_id, reason });
        }
    }

    /// Tells of those newcomers whose tokens are durable by now, and owes them what tells themselves. Those who have gone
    /// meanwhile were never here.
    fn announce(&mut self) {
        while let Some(newcomer) = self.unannounced.pop_front_if(|newcomer| newcomer.record <= self.durable) {
            let (client, slot) = (newcomer.client, newcomer.client.slot());
            if self.slots.live(client).is_none() {
                continue;
            }
            let Some(client_id) = self.slots.profile(slot).map(|profile| profile.client_id) else { continue };
            self.slots.announce(slot);
            self.events.push_back(Event::Connected { client, client_id });
            self.slots.owe(slot, Owes { keep_alive: true, disconnects: 0 });
        }
    }

    /// Whether what a turn brings can be told of: events that were not taken are kept, and so they are bounded.
    fn has_room_for_events(&self) -> bool {
        self.events.len() + self.unannounced.len() < 2 * self.slots.count() as usize
    }

    /// A slot, and its client's index, are free.
    fn vacate(&mut self, slot: u32) {
        let (shard, index) = (self.shard, self.slots.link(slot).map(|link| link.index));
        self.slots.vacate(slot);
        if let Some(index) = index {
            self.common.with((), |register| register.release(shard, index));
        }
    }
}

impl Drop for Server {
    /// A shard that is gone, in order or by a panic, keeps nobody from coming in elsewhere.
    fn drop(&mut self) {
        let shard = self.shard;
        if let Common::Shared(_) = &self.common {
            self.common.with((), |register| register.leave_all(shard));
        }
    }
}
