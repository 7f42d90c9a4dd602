//! The server: netcode's server, and for each client the protocol that its payloads carry.
//!
//! ```text
//!  datagrams ──▶ netcode ──▶ payloads ──▶ session of the slot ──▶ messages, packets, payloads
//!                  ▲                          │ deadlines, one flat list
//!                  └──── sealed ◀─────────────┘
//! ```
//!
//! A tick costs what happened: a session is visited when something arrived for it, when something was sent on it, or
//! when its deadline has passed.

mod client_session;
mod client_sink;
mod close;
mod event;
mod event_queue;
mod hashing;
mod receive;
pub mod scheduling;
mod send;
mod server_uplink;
#[cfg(test)]
mod tests;
mod transmit;
mod uplink_lock;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use self::close::{STOP_TEXT, StopMode};
pub use self::event::{ClientDatagram, ConnectionStats, ConnectionTotals, SessionEvent};
pub use self::hashing::HASHED_BYTES_PER_TICK;
pub use self::send::BroadcastReport;
#[cfg(feature = "std")]
pub use self::server_uplink::shared_uplink;
#[cfg(feature = "std")]
pub use self::uplink_lock::UplinkLock;

use self::client_session::ClientSession;
use self::hashing::HashingQueue;
use self::scheduling::Weight;
use self::server_uplink::ServerUplink;
use crate::congestion::BytesPerSecond;
use crate::connection::{Budget, Connection, ConnectionConfigError, Memory, SendError, Traffic};
use crate::reliability::NumberSkips;
use slipgate_netcode::crypto::keyed::HashKey;
use slipgate_netcode::ids::SlotIndex;
use slipgate_netcode::server::{ClientHandle, NetcodeServer};
use slipgate_netcode::time::{Instant, Now};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The counters of a server since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionServerStats {
    /// Packets of all clients that were refused because they exceeded the work budget of their sender.
    pub packets_over_budget: u64,
    /// Bytes of clients' transfers that were hashed.
    pub hashed_bytes: u64,
    /// Clients with channels that met this server without channels: it hands their packets out as payloads.
    pub peers_with_channels: u64,
    /// Packets of all clients that were refused because the program takes no more, by
    /// [`set_intake`](SessionServer::set_intake).
    pub packets_not_taken: u64,
    /// The estimated work of all packets and messages, in nanoseconds of a core. A program that reads many datagrams in
    /// a turn uses it to decide when to send between two reads.
    pub work_done: u64,
}

/// A server with clients that carry a [`Traffic`] in their payloads.
pub struct SessionServer {
    /// Netcode's server: clients by handle or id, statistics, discards, admission, keys, clients in the same program.
    pub netcode: NetcodeServer,
    /// The memory of clients that connect from now on.
    pub memory: Memory,
    /// Every datagram that had arrived by then was processed: later ones cannot have waited longer. A program that
    /// sleeps until a datagram arrives sets it when it wakes; for all others [`tick`](Self::tick) is enough.
    pub drained_at: Instant,
    packets_over_budget: u64,
    peers_with_channels: u64,
    packets_not_taken: u64,
    work_done: u64,
    traffic: Traffic,
    /// The key by which the packet numbers of connections are skipped, and how many connections there were.
    numbers: HashKey,
    connections: u64,
    /// One for each slot that was ever used. Memory for the other slots is reserved but not touched.
    sessions: Vec<Option<ClientSession>>,
    /// When each slot's session is visited next. They are apart from the sessions because every tick reads all of them.
    deadlines: Vec<Instant>,
    /// The lower bound of all deadlines: until then no tick reads them.
    earliest_deadline: Instant,
    /// The slot at which the next tick begins, so that no slot is always last.
    first_slot: SlotIndex,
    uplink: ServerUplink,
    hashing: HashingQueue,
    events: VecDeque<SessionEvent>,
    /// Slots of sessions that may have events; each is queued at most once.
    slots_with_events: VecDeque<SlotIndex>,
    buf: Box<[u8; MAX_PAYLOAD_BYTES]>,
    /// Whether the next transmit informs all clients and frees all slots.
    is_ending: bool,
}

impl SessionServer {
    /// Creates a server upon netcode's server, which must not have clients yet.
    ///
    /// # Errors
    /// - `PayloadBytes`: `max_payload_bytes` is not within 508 to 1,200.
    /// - `SliceBytes`: the slices of a channel's transfers are too large for a payload.
    /// - `Window`: the window of received packets exceeds 2,048, with channels.
    /// - `Endpoint`: a setting of the endpoint is out of its bounds.
    pub fn new(netcode: NetcodeServer, traffic: Traffic, memory: Memory) -> Result<Self, ConnectionConfigError> {
        traffic.check()?;
        let slots = netcode.config().slots as usize;
        Ok(Self {
            numbers: NumberSkips::key(netcode.session_seed()),
            connections: 0,
            netcode,
            traffic,
            memory,
            sessions: Vec::with_capacity(slots),
            deadlines: Vec::with_capacity(slots),
            earliest_deadline: Instant::NEVER,
            drained_at: Instant::NEVER,
            first_slot: SlotIndex(0),
            uplink: ServerUplink::new(slots),
            hashing: HashingQueue::new(slots),
            // All clients may come or go between two polls. If all of them do both, the queue grows once.
            events: VecDeque::with_capacity(slots + 2),
            slots_with_events: VecDeque::with_capacity(slots),
            buf: Box::new([0; MAX_PAYLOAD_BYTES]),
            packets_over_budget: 0,
            peers_with_channels: 0,
            packets_not_taken: 0,
            work_done: 0,
            is_ending: false,
        })
    }

    // Settings ------------------------------------------------------------------------------------------------------

    /// Returns the traffic of new clients.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Sets the traffic of clients that connect from now on.
    ///
    /// # Errors
    /// - `PayloadBytes`: `max_payload_bytes` is not within 508 to 1,200.
    /// - `SliceBytes`: the slices of a channel's transfers are too large for a payload.
    /// - `Window`: the window of received packets exceeds 2,048, with channels.
    /// - `Endpoint`: a setting of the endpoint is out of its bounds.
    pub fn set_traffic(&mut self, traffic: Traffic) -> Result<(), ConnectionConfigError> {
        traffic.check()?;
        self.traffic = traffic;
        Ok(())
    }

    /// Sets the rate of the uplink that all clients share by their weights; `None`, the default, sets no limit. The
    /// other clients share what one client does not need, and no client's burst delays the rest. On a shard it sets the
    /// rate of the whole server.
    ///
    /// The limit holds back messages on channels. Plain payloads, acknowledged packets and acknowledgements cannot be
    /// held back without loss: they leave at once, and messages share the rest.
    pub fn set_uplink(&mut self, rate: Option<BytesPerSecond>) {
        self.uplink.set_rate(rate);
    }

    /// Joins the uplink of a server of several shards, of which this is one.
    #[cfg(feature = "std")]
    pub fn join_uplink(&mut self, uplink: UplinkLock) {
        self.uplink.join(self.netcode.shard_id(), uplink);
    }

    /// Sets a client's share of the uplink relative to other clients, 1 by default. It holds as long as the client is
    /// connected, also while the uplink has no limit.
    ///
    /// # Errors
    /// `Gone` when the client is not connected.
    pub fn set_weight(&mut self, client: ClientHandle, weight: Weight) -> Result<(), SendError> {
        self.session(client).ok_or(SendError::Gone)?;
        self.uplink.set_weight(client.slot(), weight);
        Ok(())
    }

    // State ---------------------------------------------------------------------------------------------------------

    /// Returns a client's connection, where traffic is on channels.
    #[must_use]
    #[inline]
    pub fn connection(&self, client: ClientHandle) -> Option<&Connection> {
        self.session(client)?.protocol.connection()
    }

    /// Returns a client's connection to send messages and transfers, and visits it in this tick. They leave with the
    /// next [`transmit`](Self::transmit) that the path allows.
    ///
    /// # Errors
    /// - `Gone` when the client is not connected, or its connection is closed or closing.
    /// - `WrongTraffic` unless the traffic is on channels.
    #[inline]
    pub fn connection_mut(&mut self, client: ClientHandle) -> Result<&mut Connection, SendError> {
        let connection = self.wake_client(client)?.protocol.connection_mut().ok_or(SendError::WrongTraffic)?;
        if connection.close_reason().is_some() { Err(SendError::Gone) } else { Ok(connection) }
    }

    /// Returns the first connected client behind `after` in the order of slots, or the first of all. It borrows
    /// nothing, so the server can send between two calls. A walk over all clients costs one step per slot.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn greet_all(server: &mut slipgate_session::server::SessionServer) {
    /// let mut next = server.next_client(None);
    /// while let Some(client) = next {
    ///     // server.connection_mut(client)?.send(...)
    ///     next = server.next_client(Some(client));
    /// }
    /// # }
    /// ```
    #[must_use]
    #[inline]
    pub fn next_client(&self, after: Option<ClientHandle>) -> Option<ClientHandle> {
        // Slots are stable while the application sends, so the walk misses no client.
        let first = after.map_or(0, |after| after.slot().0 as usize + 1);
        let mut sessions = self.sessions.get(first..)?.iter().flatten();
        sessions.find(|session| !session.is_closing()).map(ClientSession::client)
    }

    /// Iterates over the connected clients in the order of slots. It skips a client with an end that is about to be
    /// reported.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        core::iter::successors(self.next_client(None), |client| self.next_client(Some(*client)))
    }

    /// Returns whether a client is connected, and its end is not about to be reported.
    #[must_use]
    pub fn is_connected(&self, client: ClientHandle) -> bool {
        self.session(client).is_some_and(|session| !session.is_closing())
    }

    /// Returns what may leave for a client now, by its path and its share of the uplink; ask before composing a tick.
    /// `None` for plain payloads, and for a client that is not connected.
    #[must_use]
    pub fn budget(&self, client: ClientHandle, now: Now) -> Option<Budget> {
        let budget = self.session(client).filter(|session| !session.is_closing())?.budget(now.monotonic)?;
        let expected = self.uplink.expected_bytes(client.slot());
        // The smaller of both limits counts: the path's and the uplink's.
        Some(expected.map_or(budget, |expected| budget.within(expected)))
    }

    /// Returns what a client's connection has carried so far, and the measurements of its path. `None` for a client
    /// that is not connected.
    #[must_use]
    pub fn connection_stats(&self, client: ClientHandle, now: Now) -> Option<ConnectionStats> {
        let session = self.session(client)?;
        Some(ConnectionStats { totals: session.totals, path: session.path(now.monotonic) })
    }

    /// Returns the counters.
    #[must_use]
    pub const fn stats(&self) -> SessionServerStats {
        SessionServerStats {
            packets_over_budget: self.packets_over_budget,
            hashed_bytes: self.hashing.hashed(),
            peers_with_channels: self.peers_with_channels,
            packets_not_taken: self.packets_not_taken,
            work_done: self.work_done,
        }
    }

    // Sessions ------------------------------------------------------------------------------------------------------

    #[inline]
    fn session(&self, client: ClientHandle) -> Option<&ClientSession> {
        // A handle of an earlier client of the slot must not reach the present one.
        self.sessions.get(client.slot().0 as usize)?.as_ref().filter(|session| session.is(client))
    }

    #[inline]
    fn session_mut(&mut self, client: ClientHandle) -> Result<&mut ClientSession, SendError> {
        self.session_at(client.slot()).filter(|session| session.is(client)).ok_or(SendError::Gone)
    }

    #[inline]
    fn session_at(&mut self, slot: SlotIndex) -> Option<&mut ClientSession> {
        self.sessions.get_mut(slot.0 as usize)?.as_mut()
    }

    /// Returns a client's session like [`wake`](Self::wake).
    #[inline]
    fn wake_client(&mut self, client: ClientHandle) -> Result<&mut ClientSession, SendError> {
        self.wake(client.slot()).filter(|session| session.is(client)).ok_or(SendError::Gone)
    }

    /// Returns a slot's session, visits it in this tick and polls its events, because something happens on it.
    #[inline]
    fn wake(&mut self, slot: SlotIndex) -> Option<&mut ClientSession> {
        let Self { sessions, deadlines, earliest_deadline, slots_with_events, .. } = self;
        let session = sessions.get_mut(slot.0 as usize)?.as_mut()?;
        if session.has_deadlines() {
            if !core::mem::replace(&mut session.has_events, true) {
                slots_with_events.push_back(slot);
            }
            if let Some(deadline) = deadlines.get_mut(slot.0 as usize) {
                (*deadline, *earliest_deadline) = (Instant::default(), Instant::default());
            }
        }
        Some(session)
    }

    #[inline]
    fn set_deadline(&mut self, slot: SlotIndex, at: Instant) {
        debug_assert!((slot.0 as usize) < self.deadlines.len(), "only slots that were used have deadlines");
        if let Some(deadline) = self.deadlines.get_mut(slot.0 as usize) {
            *deadline = at;
            self.earliest_deadline = self.earliest_deadline.min(at);
        }
    }
}
