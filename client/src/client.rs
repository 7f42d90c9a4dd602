//! The client: sockets around the protocol's client, and the turn of a game loop.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use slipgate_edge::udp::{ReceiveBatch, SendBatch, SocketStats, Sockets};
use slipgate_protocol::address::Address;
use slipgate_protocol::discard::Discards;
use slipgate_protocol::netcode::client::{self as core, ClientState, ConnectError, EndReason};
use slipgate_protocol::netcode::timing::TimeoutPolicy;
use slipgate_protocol::netcode::{Payload, SendError};
use slipgate_protocol::time::Now;
use slipgate_protocol::token::ConnectToken;

use crate::used_tokens;

/// Datagrams that one turn reads at most: a flood must not freeze the game.
const PACKETS_PER_TURN: u32 = 4096;

/// A netcode 1.02 client on UDP sockets.
///
/// A turn: [`begin_turn`](Self::begin_turn), events from an [`Inbox`](crate::Inbox), [`send`](Self::send),
/// [`end_turn`](Self::end_turn), [`wait`](Self::wait) or the game's own frame.
pub struct Client {
    core: core::Client,
    sockets: Sockets,
    outbox: SendBatch,
    now: Now,
    packets_left: u32,
    /// The token of the last session that was noted as used up.
    noted: Option<core::TokenName>,
}

impl Client {
    /// A client that is not connected, on ports that the system chooses, for IPv4 and, where the system has it, IPv6.
    ///
    /// # Errors
    /// When no socket can be opened.
    pub fn new() -> io::Result<Self> {
        Self::with_timeouts(TimeoutPolicy::Clamped)
    }

    /// As [`new`](Self::new), with a given policy for time-outs.
    ///
    /// # Errors
    /// When no socket can be opened.
    pub fn with_timeouts(timeouts: TimeoutPolicy) -> io::Result<Self> {
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let sockets = Sockets::bind(&[v4, v6]).or_else(|_| Sockets::bind(&[v4])).or_else(|_| Sockets::bind(&[v6]))?;
        Ok(Self::on(sockets, timeouts))
    }

    /// A client on given addresses, at most one of each family, and with a given policy for time-outs.
    ///
    /// # Errors
    /// When a socket cannot be opened.
    pub fn bind(addresses: &[SocketAddr], timeouts: TimeoutPolicy) -> io::Result<Self> {
        Ok(Self::on(Sockets::bind(addresses)?, timeouts))
    }

    fn on(sockets: Sockets, timeouts: TimeoutPolicy) -> Self {
        Self {
            core: core::Client::new(timeouts),
            sockets,
            outbox: SendBatch::default(),
            now: Now::default(),
            packets_left: PACKETS_PER_TURN,
            noted: None,
        }
    }

    /// Begins to connect to the first of the token's servers that gives it a slot.
    ///
    /// # Errors
    /// `TokenUsed`, `NoServer`, or `Busy` when connecting or connected.
    pub fn connect(&mut self, token: ConnectToken, now: Now) -> Result<(), ConnectError> {
        self.now = now;
        let name = core::name(&token);
        // A session of this client's own that ended is the core's to refuse, with its state.
        if Some(name) != self.noted && used_tokens::contains(&name) {
            return Err(ConnectError::TokenUsed);
        }
        self.core.connect_where(token, now.monotonic, |server| self.sockets.reaches(server))
    }

    /// Becomes connected without packets, as the client of a server in the same program (host-and-play): its payloads
    /// go through the server's `loopback_send` and `loopback_receive`.
    ///
    /// # Errors
    /// `Busy` when connecting or connected.
    pub fn connect_loopback(&mut self, client_index: u32, max_clients: u32) -> Result<(), ConnectError> {
        self.core.connect_loopback(client_index, max_clients)
    }

    /// Leaves: the state is `Disconnected` at once, and ten disconnect packets leave with the end of the turn.
    pub fn disconnect(&mut self) {
        self.core.disconnect();
    }

    /// Begins a turn: everything until [`end_turn`](Self::end_turn) happens at this moment.
    pub fn begin_turn(&mut self, now: Now) {
        self.now = now;
        self.packets_left = PACKETS_PER_TURN;
    }

    /// Seals a payload of 1 to 1200 bytes for the server; it leaves with a full batch or at the end of the turn.
    ///
    /// # Errors
    /// `Gone` when not connected, `Empty`, or `TooLarge`.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        match self.core.send(payload, self.now.monotonic, &mut self.outbox) {
            Err(SendError::Backlogged) => {
                self.sockets.send(&mut self.outbox);
                self.core.send(payload, self.now.monotonic, &mut self.outbox)
            }
            result => result,
        }
    }

    /// Ends a turn: what is due happens, and everything that waits leaves.
    pub fn end_turn(&mut self) {
        self.core.tick(self.now.monotonic);
        self.core.transmit(self.now.monotonic, &mut self.outbox);
        self.note_used_token();
        self.sockets.send(&mut self.outbox);
        if self.core.owes() {
            self.core.transmit(self.now.monotonic, &mut self.outbox);
            self.sockets.send(&mut self.outbox);
        }
    }

    /// Sleeps until a datagram arrives, the client has something to do of its own, or the time is over.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let due = self.core.next_deadline().map(|deadline| deadline.since(self.now.monotonic));
        self.sockets.wait(due.map_or(timeout, |due| due.min(timeout)))
    }

    /// Where the client stands.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.core.state()
    }

    /// Why the last attempt or connection ended, until the next begins.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.core.end_reason()
    }

    /// The slot that the server gave, from 0, while connected.
    #[must_use]
    pub fn client_index(&self) -> Option<u32> {
        self.core.client_index()
    }

    /// How many slots the server has, while connected.
    #[must_use]
    pub fn max_clients(&self) -> Option<u32> {
        self.core.max_clients()
    }

    /// The server that is tried or connected.
    #[must_use]
    pub fn server(&self) -> Option<SocketAddr> {
        self.core.server().map(SocketAddr::from)
    }

    /// The addresses that are bound, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.local_addresses()
    }

    /// How many datagrams were dropped, by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        self.core.discards()
    }

    /// What the sockets have counted.
    #[must_use]
    pub const fn socket_stats(&self) -> &SocketStats {
        self.sockets.stats()
    }

    /// Before the first sealed packet leaves, every client of this program knows that its token is used up.
    fn note_used_token(&mut self) {
        let used = self.core.used_token();
        if used.is_some() && used != self.noted {
            self.noted = used;
            used.into_iter().for_each(used_tokens::note);
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<core::Event> {
        self.core.poll_event()
    }

    /// Fills the batch; answers false when nothing waits or the turn has read enough.
    pub(crate) fn receive(&mut self, batch: &mut ReceiveBatch) -> bool {
        if self.packets_left == 0 {
            return false;
        }
        self.sockets.receive(batch);
        self.packets_left = self.packets_left.saturating_sub(batch.len() as u32);
        !batch.is_empty()
    }

    pub(crate) fn handle<'d>(&mut self, from: Address, datagram: &'d mut [u8]) -> Option<Payload<'d>> {
        self.core.handle(from, datagram, self.now.monotonic).ok().flatten()
    }
}

/// A client that is dropped says goodbye, so that its slot is free at once.
impl Drop for Client {
    fn drop(&mut self) {
        self.core.disconnect();
        self.end_turn();
    }
}
