//! The client: tries a token's servers until one gives it a slot, then exchanges payloads with it.
//!
//! ```text
//!             connect              challenge               keep-alive
//!  Disconnected ──▶ SendingRequest ──▶ SendingResponse ──▶ Connected ──▶ Disconnected, TimedOut
//!                        │                   │
//!                        ├── denied, timeout ┤
//!                        ▼                   ▼
//!                  the token's next server; after the last one Denied, RequestTimedOut, ResponseTimedOut
//!                  after the token's lifetime: TokenExpired
//! ```
//!
//! `session` is one use of one token. This file starts and ends sessions.

mod session;
mod state;
mod token_name;

use alloc::boxed::Box;
use core::fmt;

pub use self::state::{ClientState, EndReason};
pub use self::token_name::TokenName;

use self::session::{Handled, TokenSession};
use super::timing::TimeoutPolicy;
use super::{Outbox, Payload, PayloadError, check_payload};
use crate::address::Address;
use crate::discard::{Discard, Discards};
use crate::ids::ClientIndex;
use crate::time::Instant;
use crate::token::ConnectToken;

/// The number of used tokens that a client remembers.
const REMEMBERED_TOKENS: usize = 64;

/// An event of the client. Payloads come from [`NetcodeClient::handle`] instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetcodeClientEvent {
    /// A server gave the client a slot.
    Connected {
        /// The client's index on the server, from 0.
        client_index: ClientIndex,
        /// The number of slots of the server.
        max_clients: u32,
    },
    /// The attempt or the connection has ended.
    Ended {
        /// The reason, with a sentence for the player and the standard's state.
        reason: EndReason,
    },
}

/// Why no attempt was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The client sealed packets with this token before. A second attempt would reuse its keys and sequence numbers.
    TokenUsed,
    /// The token lists no address to which a packet can be sent.
    NoServer,
    /// The client is connecting or connected. Disconnect it first.
    Busy,
    /// The client uses packets or channels, but a connection within one process carries only plain payloads.
    WrongTraffic,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TokenUsed => "this connect token was already used; request a new one from the issuer",
            Self::NoServer => "the connect token lists no address to which a packet can be sent",
            Self::Busy => "the client is connecting or connected; disconnect it first",
            Self::WrongTraffic => {
                "a connection within one process carries only plain payloads, but the client uses packets or channels; \
                 connect over UDP instead"
            }
        })
    }
}

impl core::error::Error for ConnectError {}

enum ClientRole {
    /// Not connected. The reason is that of the last connection, if there was one.
    Idle(Option<EndReason>),
    /// Connecting or connected with a token.
    Active(Box<TokenSession>),
    /// Connected to a server in the same process.
    Loopback { client_index: ClientIndex, max_clients: u32 },
}

/// A netcode 1.02 client without sockets.
///
/// A turn calls [`handle`](Self::handle) for every datagram, then [`tick`](Self::tick), [`send`](Self::send) and
/// [`transmit`](Self::transmit).
pub struct NetcodeClient {
    timeouts: TimeoutPolicy,
    role: ClientRole,
    /// The last session, while its disconnect packets are not sent.
    leaving: Option<Box<TokenSession>>,
    connected: Option<NetcodeClientEvent>,
    ended: Option<NetcodeClientEvent>,
    used: [Option<TokenName>; REMEMBERED_TOKENS],
    next_used: usize,
    discards: Discards,
}

impl NetcodeClient {
    /// Returns a client that is not connected.
    #[must_use]
    pub fn new(timeouts: TimeoutPolicy) -> Self {
        Self {
            timeouts,
            role: ClientRole::Idle(None),
            leaving: None,
            connected: None,
            ended: None,
            used: [None; REMEMBERED_TOKENS],
            next_used: 0,
            discards: Discards::default(),
        }
    }

    /// Starts to connect. The next [`transmit`](Self::transmit) sends the first request.
    ///
    /// It skips the servers for which `is_reachable` returns false: a server of an address family without a socket
    /// would cost a timeout.
    ///
    /// # Errors
    /// - `Busy` when the client is connecting or connected.
    /// - `TokenUsed` when this client sealed packets with the token before. The state becomes `InvalidToken`.
    /// - `NoServer` when the token lists no address that can be dialled, or all are skipped. The state becomes
    ///   `InvalidToken`.
    pub fn connect(
        &mut self,
        token: ConnectToken,
        now: Instant,
        is_reachable: impl Fn(Address) -> bool,
    ) -> Result<(), ConnectError> {
        if self.state().is_active() {
            return Err(ConnectError::Busy);
        }
        // Events of the last connection are obsolete.
        (self.connected, self.ended) = (None, None);
        let session = if self.used.contains(&Some(TokenName::from(&token))) {
            Err(ConnectError::TokenUsed)
        } else {
            TokenSession::start(token, self.timeouts, now, is_reachable).ok_or(ConnectError::NoServer)
        };
        match session {
            Ok(session) => {
                self.role = ClientRole::Active(Box::new(session));
                Ok(())
            }
            Err(error) => {
                self.role = ClientRole::Idle(Some(EndReason::InvalidToken));
                Err(error)
            }
        }
    }

    /// Connects without packets to a server in the same process (host-and-play).
    ///
    /// # Errors
    /// `Busy` when the client is connecting or connected.
    pub fn connect_loopback(
        &mut self,
        client_index: impl Into<ClientIndex>,
        max_clients: u32,
    ) -> Result<(), ConnectError> {
        let client_index = client_index.into();
        if self.state().is_active() {
            return Err(ConnectError::Busy);
        }
        self.ended = None;
        self.connected = Some(NetcodeClientEvent::Connected { client_index, max_clients });
        self.role = ClientRole::Loopback { client_index, max_clients };
        Ok(())
    }

    /// Disconnects at once. The next [`transmit`](Self::transmit) sends ten disconnect packets.
    pub fn disconnect(&mut self) {
        let reason = EndReason::Left;
        match core::mem::replace(&mut self.role, ClientRole::Idle(Some(reason))) {
            // Keep the first reason.
            ClientRole::Idle(reason) => self.role = ClientRole::Idle(reason),
            ClientRole::Loopback { .. } => self.ended = Some(NetcodeClientEvent::Ended { reason }),
            ClientRole::Active(mut session) => {
                // Before the first sealed packet the server has no connection to end, and the token stays unused.
                if session.has_sealed() {
                    // Remembered even before the disconnects are sent: they use the same lane.
                    self.remember_used(session.name());
                    session.leave();
                    self.leaving = Some(session);
                }
                self.ended = Some(NetcodeClientEvent::Ended { reason });
            }
        }
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
        now: Instant,
    ) -> Result<Option<Payload<'d>>, Discard> {
        let result = match &mut self.role {
            ClientRole::Active(session) => session.handle(from, datagram, now),
            _ if datagram.is_empty() => Err(Discard::Empty),
            // Late packets of an earlier connection end here.
            _ => Err(Discard::NotRunning),
        };
        // The session borrows `role`, so its effects are applied after the call.
        match result {
            Ok(Handled::Nothing) => Ok(None),
            Ok(Handled::Payload(payload)) => Ok(Some(payload)),
            Ok(Handled::Connected) => {
                self.on_connected();
                Ok(None)
            }
            Ok(Handled::Ended(reason)) => {
                self.end(reason);
                Ok(None)
            }
            Err(reason) => {
                self.discards += reason;
                Err(reason)
            }
        }
    }

    /// Handles timeouts: tries the next server, or ends the attempt or the connection.
    pub fn tick(&mut self, now: Instant) {
        // A loopback connection has no timeout.
        if let ClientRole::Active(session) = &mut self.role
            && let Some(reason) = session.tick(now)
        {
            self.end(reason);
        }
    }

    /// Seals a payload of 1 to 1200 bytes for the server into the outbox.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected over a network, or its sequence numbers are exhausted.
    /// - `Empty` and `TooLarge` unless the payload has 1 to 1200 bytes.
    /// - `Backlogged` when the outbox is full.
    #[inline]
    pub fn send(&mut self, payload: &[u8], now: Instant, outbox: &mut impl Outbox) -> Result<(), PayloadError> {
        check_payload(payload)?;
        match &mut self.role {
            ClientRole::Active(session) => session.send(payload, now, outbox),
            _ => Err(PayloadError::Gone),
        }
    }

    /// Sends the packets that are due: a request, a response, a keep-alive, or disconnect packets.
    pub fn transmit(&mut self, now: Instant, outbox: &mut impl Outbox) {
        // The last session's disconnects come before the first request of the next one.
        if self.leaving.as_mut().is_some_and(|session| session.transmit_disconnects(outbox)) {
            self.leaving = None;
        }
        if let ClientRole::Active(session) = &mut self.role {
            session.transmit(now, outbox);
        }
    }

    /// Takes the oldest event.
    pub fn poll_event(&mut self) -> Option<NetcodeClientEvent> {
        // An attempt connects and ends at most once, so two fields are the whole queue.
        self.connected.take().or_else(|| self.ended.take())
    }

    /// Returns the client's state.
    #[inline]
    #[must_use]
    pub fn state(&self) -> ClientState {
        match &self.role {
            ClientRole::Idle(reason) => reason.map_or(ClientState::Disconnected, ClientState::from),
            ClientRole::Active(session) => session.state(),
            ClientRole::Loopback { .. } => ClientState::Connected,
        }
    }

    /// Returns why the last attempt or connection ended, until the next one starts.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        match &self.role {
            ClientRole::Idle(reason) => *reason,
            _ => None,
        }
    }

    /// Returns the client's index on the server, from 0, and the server's number of slots, while connected.
    #[must_use]
    pub fn slot_info(&self) -> Option<(ClientIndex, u32)> {
        match &self.role {
            ClientRole::Active(session) => session.slot_info().map(|info| (info.client_index, info.max_clients)),
            ClientRole::Loopback { client_index, max_clients } => Some((*client_index, *max_clients)),
            ClientRole::Idle(_) => None,
        }
    }

    /// Returns the address of the server to which the client is connecting or connected.
    #[must_use]
    pub fn server(&self) -> Option<Address> {
        self.session().map(TokenSession::server)
    }

    /// Returns when the last authentic packet of the server arrived, while connecting or connected over a network.
    #[inline]
    pub fn last_received_at(&self) -> Option<Instant> {
        self.session().map(TokenSession::last_received_at)
    }

    /// Returns the next moment at which `tick` or `transmit` has work to do, even if no datagram arrives.
    #[inline]
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.session().map(TokenSession::next_deadline)
    }

    /// Returns the name of the token with which the session has sealed packets. It must never be used again.
    #[must_use]
    pub fn used_token(&self) -> Option<TokenName> {
        self.session().filter(|session| session.has_sealed()).map(TokenSession::name)
    }

    /// Returns whether disconnect packets are not sent yet.
    #[must_use]
    pub const fn has_unsent_packets(&self) -> bool {
        self.leaving.is_some()
    }

    /// Returns the number of dropped datagrams by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        &self.discards
    }

    /// Returns the session, while connecting or connected over a network.
    #[inline]
    fn session(&self) -> Option<&TokenSession> {
        if let ClientRole::Active(session) = &self.role { Some(session) } else { None }
    }

    fn on_connected(&mut self) {
        self.connected = self
            .slot_info()
            .map(|(client_index, max_clients)| NetcodeClientEvent::Connected { client_index, max_clients });
    }

    fn end(&mut self, reason: EndReason) {
        if let ClientRole::Active(session) = core::mem::replace(&mut self.role, ClientRole::Idle(Some(reason)))
            && session.has_sealed()
        {
            self.remember_used(session.name());
        }
        // Without a sealed packet the token stays usable: only a request with it was sent.
        self.ended = Some(NetcodeClientEvent::Ended { reason });
    }

    /// Stores a token as used, so that [`connect`](Self::connect) refuses it: another client of this process may have
    /// used it.
    pub fn remember_used(&mut self, token: TokenName) {
        if self.used.contains(&Some(token)) {
            return;
        }
        // A ring: the oldest of 64 names is overwritten. Its token has expired by then in any practical use.
        if let Some(entry) = self.used.get_mut(self.next_used) {
            *entry = Some(token);
        }
        self.next_used = (self.next_used + 1) % REMEMBERED_TOKENS;
    }
}
