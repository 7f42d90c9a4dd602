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
mod request;
mod response;
mod slots;
mod transmit;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::fmt;

pub use self::config::{Budgets, Config, ConfigError, Fence};
pub use self::loopback::LoopbackError;
pub use self::slots::ClientHandle;

use self::budget::Ledger;
use self::pending::PendingClients;
use self::slots::{Due, Owes, Slots, State};
use super::Payload;
use super::timing::DISCONNECT_PACKETS;
use crate::address::Address;
use crate::crypto::digest::DigestKey;
use crate::crypto::key::{KeyRing, Seed};
use crate::crypto::keyed::HashKey;
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::discard::{Discard, Discards};
use crate::time::Now;
use crate::token::challenge::Challenger;
use crate::token::history::{History, Journal, UsedToken};
use crate::wire::UserData;
use crate::wire::packet::REQUEST_PREFIX;
use crate::wire::token::Servers;

/// Something that happened to a client. The payloads come from [`Server::handle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A client has a slot. Its user data is in [`Server::client`].
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

/// Why a client's connection ended.
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
    history: History,
    journal: Option<Box<dyn Journal>>,
    /// The journal holds a record that is not durable yet.
    unflushed: bool,
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

impl Server {
    /// A server that starts now, with the entropy of this start, without a history of earlier ones.
    ///
    /// # Errors
    /// A setting that no server can run with.
    pub fn new(config: Config, keys: KeyRing, seed: &Seed, now: Now) -> Result<Self, ConfigError> {
        config.check()?;
        let names = DigestKey::new(&seed.derive("token names"));
        let slots = config.slots as usize;
        Ok(Self {
            cipher: PacketCipher::new(config.protocol_id),
            handshake: Lane::handshake(seed),
            challenger: Challenger::new(seed),
            history: History::new(config.history_tokens, names, HashKey::derive(seed, "history")),
            journal: None,
            unflushed: false,
            started: now,
            ledger: Ledger::new(config.budgets, seed),
            pending: PendingClients::new(config.pending_clients, config.addresses_per_token, seed),
            slots: Slots::new(config.slots, seed),
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
        let capacity = config.history_tokens;
        let mut server = Self::new(config, keys, seed, now)?;
        server.history = History::new(capacity, DigestKey::new(&storage.names), HashKey::derive(seed, "history"));
        for used in storage.used {
            server.history.restore(used, now).map_err(|_| ConfigError::JournalTooLarge)?;
        }
        server.journal = Some(storage.journal);
        Ok(server)
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
        match (datagram.first(), self.slots.at_address(&from)) {
            (None, _) => Err(Discard::Empty),
            (Some(&REQUEST_PREFIX), _) => self.request(from, datagram, now).map(|()| None),
            (Some(prefix), Some(slot)) if !response::is_response(*prefix) => {
                self.established(slot, datagram, now.monotonic)
            }
            _ => self.response(from, datagram, now).map(|()| None),
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
        for slot in 0..self.slots.count() {
            match self.slots.due(slot, now.monotonic) {
                Some(Due::Silence) => self.end(slot, DisconnectReason::TimedOut, 0),
                Some(Due::KeepAlive) => self.slots.owe(slot, Owes { keep_alive: true, disconnects: 0 }),
                None => {}
            }
        }
        self.pending.sweep(now.monotonic);
        self.history.sweep(now);
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
        for slot in 0..self.slots.count() {
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
            client_id: profile.client_id,
            address: link.address,
            user_data: &profile.user_data,
            confirmed: link.confirmed,
        })
    }

    /// The handle of a client id, while it is connected.
    #[must_use]
    pub fn find(&self, client_id: u64) -> Option<ClientHandle> {
        self.slots.of_client(client_id).and_then(|slot| self.slots.handle(slot))
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
        self.history.len()
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
        self.events.push_back(Event::Disconnected { client, client_id: profile.client_id, reason });
        self.stats.disconnects += 1;
        let networked = self.slots.link(slot).is_some_and(|link| link.state == State::Connected);
        if disconnects > 0 && networked {
            self.slots.close(slot, disconnects);
        } else {
            self.slots.vacate(slot);
        }
    }
}
