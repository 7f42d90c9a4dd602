//! The client: it tries a token's servers until one gives it a slot, and carries its payloads.
//!
//! ```text
//!             connect              challenge               keep-alive
//!  Disconnected ──▶ SendingRequest ──▶ SendingResponse ──▶ Connected ──▶ Disconnected, TimedOut
//!                        │                   │
//!                        ├── denied, silence ┤
//!                        ▼                   ▼
//!                  the token's next server; after the last one Denied, RequestTimedOut, ResponseTimedOut
//!                  the token's lifetime over: TokenExpired
//! ```
//!
//! `session` is one use of one token; this file decides when there is one.

mod session;
mod state;

use alloc::boxed::Box;
use core::fmt;

pub use self::state::{ClientState, EndReason};

use self::session::{Heard, Session};
use super::timing::TimeoutPolicy;
use super::{Outbox, Payload, PayloadError, check_payload};
use crate::address::Address;
use crate::discard::{Discard, Discards};
use crate::time::Instant;
use crate::token::ConnectToken;
use crate::wire::TAG_BYTES;

/// How many used tokens a client remembers.
const REMEMBERED_TOKENS: usize = 64;

/// Something that happened to the client. The payloads come from [`Client::handle`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A server gave the client a slot.
    Connected {
        /// The slot, from 0.
        client_index: u32,
        /// How many slots the server has.
        max_clients: u32,
    },
    /// The attempt or the connection has ended.
    Ended {
        /// Why; it has a sentence for the player, and the standard's state.
        reason: EndReason,
    },
}

/// Why no attempt was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// Packets were sealed with this token already: a second attempt would repeat its keys and sequence numbers.
    TokenUsed,
    /// The token lists no address to which a packet could be sent.
    NoServer,
    /// The client is on its way or connected: disconnect first.
    Busy,
    /// The client carries packets or channels, and a connection within the same program bare payloads alone.
    WrongTraffic,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenUsed => "this connect token was used already; ask the issuer for a new one",
            Self::NoServer => "the connect token lists no address to which a packet could be sent",
            Self::Busy => "the client is connecting or connected; disconnect it first",
            Self::WrongTraffic => {
                "the client carries packets or channels, and a connection within the same program bare payloads alone; \
                 connect by UDP"
            }
        })
    }
}

impl core::error::Error for ConnectError {}

enum Role {
    /// No connection, and why the last one ended, if there was one.
    Idle(Option<EndReason>),
    /// A token is in use.
    Active(Box<Session>),
    /// In the same program as the server.
    Loopback { client_index: u32, max_clients: u32 },
}

/// A netcode 1.02 client without sockets.
///
/// A turn: [`handle`](Self::handle) for every datagram, [`tick`](Self::tick), [`send`](Self::send),
/// [`transmit`](Self::transmit).
pub struct Client {
    timeouts: TimeoutPolicy,
    role: Role,
    /// The session that still owes its disconnect packets.
    leaving: Option<Box<Session>>,
    connected: Option<Event>,
    ended: Option<Event>,
    used: [Option<TokenName>; REMEMBERED_TOKENS],
    next_used: usize,
    discards: Discards,
}

impl Client {
    /// A client that is not connected.
    #[must_use]
    pub fn new(timeouts: TimeoutPolicy) -> Self {
        Self {
            timeouts,
            role: Role::Idle(None),
            leaving: None,
            connected: None,
            ended: None,
            used: [None; REMEMBERED_TOKENS],
            next_used: 0,
            discards: Discards::default(),
        }
    }

    /// Begins to connect: the first request leaves with the next [`transmit`](Self::transmit).
    ///
    /// # Errors
    /// See [`ConnectError`]. Where the token is to blame the state becomes `InvalidToken`.
    pub fn connect(&mut self, token: ConnectToken, now: Instant) -> Result<(), ConnectError> {
        self.connect_where(token, now, |_| true)
    }

    /// As [`connect`](Self::connect), passing over the servers that `reaches` denies: those of a family for which there
    /// is no socket would cost a time-out each.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect_where(
        &mut self,
        token: ConnectToken,
        now: Instant,
        reaches: impl Fn(Address) -> bool,
    ) -> Result<(), ConnectError> {
        if self.state().is_active() {
            return Err(ConnectError::Busy);
        }
        (self.connected, self.ended) = (None, None);
        let began = if self.used.contains(&Some(name(&token))) {
            Err(ConnectError::TokenUsed)
        } else {
            Session::begin(token, self.timeouts, now, reaches).ok_or(ConnectError::NoServer)
        };
        match began {
            Ok(session) => {
                self.role = Role::Active(Box::new(session));
                Ok(())
            }
            Err(error) => {
                self.role = Role::Idle(Some(EndReason::InvalidToken));
                Err(error)
            }
        }
    }

    /// Refuses a token that another client of this program has used, as if this one had; answers how.
    pub fn refuse_used_token(&mut self) -> ConnectError {
        if self.state().is_active() {
            return ConnectError::Busy;
        }
        (self.connected, self.ended) = (None, None);
        self.role = Role::Idle(Some(EndReason::InvalidToken));
        ConnectError::TokenUsed
    }

    /// Becomes connected without packets, as the client of a server in the same program (host-and-play).
    ///
    /// # Errors
    /// `Busy`.
    pub fn connect_loopback(&mut self, client_index: u32, max_clients: u32) -> Result<(), ConnectError> {
        if self.state().is_active() {
            return Err(ConnectError::Busy);
        }
        self.ended = None;
        self.connected = Some(Event::Connected { client_index, max_clients });
        self.role = Role::Loopback { client_index, max_clients };
        Ok(())
    }

    /// Leaves at once; ten disconnect packets go out with the next [`transmit`](Self::transmit).
    pub fn disconnect(&mut self) {
        self.disconnect_for(EndReason::Left);
    }

    /// As [`disconnect`](Self::disconnect), for a reason that a layer above found.
    pub fn disconnect_for(&mut self, reason: EndReason) {
        match core::mem::replace(&mut self.role, Role::Idle(Some(reason))) {
            Role::Idle(reason) => self.role = Role::Idle(reason),
            Role::Loopback { .. } => self.ended = Some(Event::Ended { reason }),
            Role::Active(mut session) => {
                // A server that has seen nothing sealed knows nothing to end, and the token stays unused.
                if session.has_sealed() {
                    self.remember(session.name());
                    session.leave();
                    self.leaving = Some(session);
                }
                self.ended = Some(Event::Ended { reason });
            }
        }
    }

    /// A layer above knows better why the last connection ended.
    pub fn amend_end(&mut self, reason: EndReason) {
        if let Role::Idle(Some(known)) = &mut self.role {
            *known = reason;
        }
    }

    /// Brings a datagram in. It is decrypted where it lies; a payload is handed out from there.
    ///
    /// # Errors
    /// Why it was dropped; it has been counted in [`discards`](Self::discards).
    pub fn handle<'d>(
        &mut self,
        from: Address,
        datagram: &'d mut [u8],
        now: Instant,
    ) -> Result<Option<Payload<'d>>, Discard> {
        let result = match &mut self.role {
            Role::Active(session) => session.handle(from, datagram, now),
            _ if datagram.is_empty() => Err(Discard::Empty),
            _ => Err(Discard::NotRunning),
        };
        match result {
            Ok(Heard::Nothing) => Ok(None),
            Ok(Heard::Payload(payload)) => Ok(Some(payload)),
            Ok(Heard::Connected) => {
                self.note_connected();
                Ok(None)
            }
            Ok(Heard::Ended(reason)) => {
                self.end(reason);
                Ok(None)
            }
            Err(reason) => {
                self.discards.add(reason);
                Err(reason)
            }
        }
    }

    /// Time has passed: tries the next server, or ends the attempt or the connection, if nothing came.
    pub fn tick(&mut self, now: Instant) {
        if let Role::Active(session) = &mut self.role
            && let Some(reason) = session.tick(now)
        {
            self.end(reason);
        }
    }

    /// Seals a payload of 1 to 1200 bytes for the server, into the outbox.
    ///
    /// # Errors
    /// `Gone` when not connected (or in the same program, where no packets are needed), `Empty`, `TooLarge`, or
    /// `Backlogged` when the outbox is full.
    pub fn send(&mut self, payload: &[u8], now: Instant, outbox: &mut impl Outbox) -> Result<(), PayloadError> {
        check_payload(payload)?;
        match &mut self.role {
            Role::Active(session) => session.send(payload, now, outbox),
            _ => Err(PayloadError::Gone),
        }
    }

    /// Sends what is due: a request, a response, a keep-alive, or the last disconnect packets.
    pub fn transmit(&mut self, now: Instant, outbox: &mut impl Outbox) {
        if self.leaving.as_mut().is_some_and(|session| session.transmit_farewell(outbox)) {
            self.leaving = None;
        }
        if let Role::Active(session) = &mut self.role {
            session.transmit(now, outbox);
        }
    }

    /// The oldest event that was not taken yet.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.connected.take().or_else(|| self.ended.take())
    }

    /// Where the client stands.
    #[must_use]
    pub fn state(&self) -> ClientState {
        match &self.role {
            Role::Idle(reason) => reason.map_or(ClientState::Disconnected, EndReason::state),
            Role::Active(session) => session.state(),
            Role::Loopback { .. } => ClientState::Connected,
        }
    }

    /// Why the last attempt or connection ended, until the next begins.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        match &self.role {
            Role::Idle(reason) => *reason,
            _ => None,
        }
    }

    /// The slot that the server gave, from 0, while connected.
    #[must_use]
    pub fn client_index(&self) -> Option<u32> {
        self.seat().map(|(client_index, _)| client_index)
    }

    /// How many slots the server has, while connected.
    #[must_use]
    pub fn max_clients(&self) -> Option<u32> {
        self.seat().map(|(_, max_clients)| max_clients)
    }

    /// The server that is tried or connected.
    #[must_use]
    pub fn server(&self) -> Option<Address> {
        match &self.role {
            Role::Active(session) => Some(session.server()),
            _ => None,
        }
    }

    /// When something authentic of the server arrived last, where one is tried or connected over a network.
    pub fn heard_at(&self) -> Option<Instant> {
        match &self.role {
            Role::Active(session) => Some(session.heard_at()),
            _ => None,
        }
    }

    /// When the client next has something to do of its own, if nothing arrives: wake up then.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        match &self.role {
            Role::Active(session) => Some(session.next_deadline()),
            _ => None,
        }
    }

    /// The name of the token under which this session has sealed something: it must not be used again, by nobody.
    #[must_use]
    pub fn used_token(&self) -> Option<TokenName> {
        match &self.role {
            Role::Active(session) if session.has_sealed() => Some(session.name()),
            _ => None,
        }
    }

    /// Whether disconnect packets still wait to leave.
    #[must_use]
    pub const fn owes(&self) -> bool {
        self.leaving.is_some()
    }

    /// How many datagrams were dropped, by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        &self.discards
    }

    fn seat(&self) -> Option<(u32, u32)> {
        match &self.role {
            Role::Active(session) => session.seat().map(|seat| (seat.client_index, seat.max_clients)),
            Role::Loopback { client_index, max_clients } => Some((*client_index, *max_clients)),
            Role::Idle(_) => None,
        }
    }

    fn note_connected(&mut self) {
        self.connected = self.seat().map(|(client_index, max_clients)| Event::Connected { client_index, max_clients });
    }

    fn end(&mut self, reason: EndReason) {
        if let Role::Active(session) = core::mem::replace(&mut self.role, Role::Idle(Some(reason)))
            && session.has_sealed()
        {
            self.remember(session.name());
        }
        self.ended = Some(Event::Ended { reason });
    }

    /// From now on this token is refused.
    fn remember(&mut self, token: TokenName) {
        if let Some(home) = self.used.get_mut(self.next_used) {
            *home = Some(token);
        }
        self.next_used = (self.next_used + 1) % REMEMBERED_TOKENS;
    }
}

/// What tells one token from every other: the tag of its private part.
pub type TokenName = [u8; TAG_BYTES];

/// The name of a token.
#[must_use]
pub fn name(token: &ConnectToken) -> TokenName {
    token.sealed_private_part().last_chunk().copied().unwrap_or_default()
}
