//! The UDP client: sockets around the session client, and the turn of a game loop.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{ClientState, ConnectError, NetcodeClient, TokenName};
use slipgate_netcode::discard::Discards;
use slipgate_netcode::ids::ClientIndex;
use slipgate_netcode::time::{Instant, Now};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_os::clock::TurnTime;
use slipgate_os::pace::Wait;
use slipgate_os::turn_watch::TurnWatch;
use slipgate_session::channel::transfer::{Transfer, TransferId};
use slipgate_session::channel::{ChannelId, SendOptions};
use slipgate_session::client::{ClientSessionEvent, SessionClient};
use slipgate_session::connection::{
    Budget, CloseCode, CloseReason, Connection, ConnectionConfigError, PathStats, ReceivedDatagram, SendError,
    SessionMessage, Traffic,
};
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::{ReceiveBatch, SendBatch, Sockets, Wakeup, poll_coalesced};
use tracing::warn;

use crate::used_tokens;

const SERVER_HAS_CHANNELS: &str = "the server runs channels and this client runs none, so the server's packets arrive \
    as payloads without meaning: give both the same layout (`Client::with_traffic(Traffic::channels(layout))`)";

/// Datagrams that one turn reads at most, so that a flood does not freeze the game.
const MAX_PACKETS_PER_TURN: u32 = 4096;

/// The longest wait while messages wait for the work budget of the server.
const UNDELIVERED_WAIT: Duration = Duration::from_millis(1);

/// Batches that leave at the end of one turn at most.
const MAX_BATCHES_PER_TURN: u32 = 64;

/// A netcode 1.02 client on UDP sockets.
///
/// A turn is [`begin_turn`](Self::begin_turn), events from an [`Inbox`](crate::Inbox), [`send`](Self::send),
/// [`end_turn`](Self::end_turn), and [`wait`](Self::wait) or the game's own frame.
///
/// # Examples
/// ```no_run
/// use slipgate_client::{Client, Clock, ConnectToken};
///
/// # fn join(token: ConnectToken) -> Result<(), Box<dyn std::error::Error>> {
/// let (mut client, clock) = (Client::new()?, Clock::start());
/// client.connect(token, clock.now())?;
/// while client.state().is_active() {
///     client.begin_turn(clock.now());
///     // Take events, send, and then:
///     client.end_turn();
/// }
/// # Ok(())
/// # }
/// ```
pub struct Client {
    core: SessionClient,
    sockets: Sockets,
    outbox: SendBatch,
    turn: TurnTime,
    turn_watch: TurnWatch,
    /// The time of the last read or send in this turn.
    now: Now,
    packets_left: u32,
    /// The sockets were empty after the last read, and the client has not waited since.
    is_drained: bool,
    /// Every datagram that arrived before this time was read.
    drained_at: Instant,
    /// The inbox keeps messages until the server has work budget again.
    has_undelivered: bool,
    /// The last token that was recorded as used.
    recorded_token: Option<TokenName>,
    /// The buffer in which values are encoded; allocated with the first one.
    #[cfg(feature = "typed")]
    pub(crate) typed_buf: Vec<u8>,
}

/// Returns a client that is not connected.
fn session_client(timeouts: TimeoutPolicy) -> SessionClient {
    SessionClient::new(NetcodeClient::new(timeouts), &slipgate_os::entropy::seed_for_numbers())
}

/// The server of a [`Client`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerInfo {
    /// Its address; `None` for a server in the same program.
    pub address: Option<SocketAddr>,
    /// The client's index there, from 0; `None` until it is connected.
    pub client_index: Option<ClientIndex>,
    /// The number of the server's slots; `None` until the client is connected.
    pub max_clients: Option<u32>,
}

impl Client {
    /// Creates a client on ports that the system chooses, for IPv4, and for IPv6 where the system has it.
    ///
    /// # Errors
    /// The error of the system call when no socket can be opened.
    pub fn new() -> io::Result<Self> {
        let v4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let v6 = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let sockets = Sockets::bind(&[v4, v6]).or_else(|_| Sockets::bind(&[v4])).or_else(|_| Sockets::bind(&[v6]))?;
        Ok(Self::with_sockets(sockets))
    }

    /// Creates a client on bound sockets, at most one of each address family.
    #[must_use]
    pub fn with_sockets(sockets: Sockets) -> Self {
        Self {
            core: session_client(TimeoutPolicy::Clamped),
            sockets,
            outbox: SendBatch::default(),
            turn: TurnTime::begin(Now::default()),
            turn_watch: TurnWatch::default(),
            now: Now::default(),
            packets_left: MAX_PACKETS_PER_TURN,
            is_drained: false,
            drained_at: Instant::NEVER,
            has_undelivered: false,
            recorded_token: None,
            #[cfg(feature = "typed")]
            typed_buf: Vec::new(),
        }
    }

    /// Sets the policy for the timeouts in tokens; the default is [`TimeoutPolicy::Clamped`]. Call it before
    /// [`with_traffic`](Self::with_traffic) and [`connect`](Self::connect).
    #[must_use]
    pub fn with_timeouts(mut self, timeouts: TimeoutPolicy) -> Self {
        self.core = session_client(timeouts);
        self
    }

    /// Sets what payloads carry, from the next connection on; the default is [`Traffic::Payloads`]. The server must
    /// carry the same.
    ///
    /// # Errors
    /// - `PayloadBytes`: `max_payload_bytes` is not within 508 to 1,200.
    /// - `SliceBytes`: the slices of a channel's transfers are too large for a payload.
    /// - `Window`: the window of received packets exceeds 2,048, with channels.
    /// - `Endpoint`: a setting of the endpoint is out of its bounds.
    pub fn with_traffic(mut self, traffic: Traffic) -> Result<Self, ConnectionConfigError> {
        self.core.set_traffic(traffic)?;
        Ok(self)
    }

    /// Starts to connect to the first of the token's servers that has a free slot.
    ///
    /// # Errors
    /// - `TokenUsed`: this program has used the token before.
    /// - `NoServer`: the token lists no address of a family for which there is a socket.
    /// - `Busy`: the client is connecting or connected.
    pub fn connect(&mut self, token: ConnectToken, now: Now) -> Result<(), ConnectError> {
        (self.turn, self.now) = (TurnTime::begin(now), now);
        self.connect_with(token)
    }

    fn connect_with(&mut self, token: ConnectToken) -> Result<(), ConnectError> {
        let name = TokenName::from(&token);
        // The core has the tokens of this client's own earlier sessions. Those of other clients are added here.
        if used_tokens::contains(&name) {
            self.core.netcode.remember_used(name);
        }
        self.core.connect(token, self.now.monotonic, |server| self.sockets.can_reach(server))
    }

    /// Connects to a server in the same program, without packets: a player hosts the game. Payloads go through
    /// `loopback_send` and `loopback_receive` of the server's `ClientRef`. It requires [`Traffic::Payloads`]; with
    /// other traffic that player connects by UDP with a token.
    ///
    /// # Errors
    /// - `Busy`: the client is connecting or connected.
    /// - `WrongTraffic`: the client carries packets or channels.
    pub fn connect_loopback(
        &mut self,
        client_index: impl Into<ClientIndex>,
        max_clients: u32,
    ) -> Result<(), ConnectError> {
        let Traffic::Payloads = self.core.traffic() else { return Err(ConnectError::WrongTraffic) };
        self.core.netcode.connect_loopback(client_index, max_clients)
    }

    /// Disconnects at once: the state is `Disconnected`, and ten disconnect packets leave at the end of the turn.
    ///
    /// Messages that are not acknowledged by now may be lost. Put last words into the text of [`leave`](Self::leave),
    /// or wait for a receipt.
    pub fn disconnect(&mut self) {
        self.core.disconnect();
    }

    /// Leaves with a code for the server's program and a text of up to 256 bytes for people; a longer text is cut
    /// between two characters. Both are sent only with [`Traffic::Channels`]: continue with turns until the `Ended`
    /// event, for at most 1 s. It does the same as [`disconnect`](Self::disconnect) with other traffic. Codes of the
    /// application start at [`CloseCode::FIRST_OF_APPLICATION`]; smaller ones are sent as 0.
    pub fn leave(&mut self, code: CloseCode, text: &str) {
        self.core.leave(code, text);
    }

    /// Begins a turn at this time of the program's clock.
    pub fn begin_turn(&mut self, now: Now) {
        // Time must not go back: the previous turn may have ended later than the program's clock says.
        let now = Now { monotonic: now.monotonic.max(self.now.monotonic), ..now };
        (self.turn, self.now) = (TurnTime::begin(now), now);
        self.packets_left = MAX_PACKETS_PER_TURN;
        self.is_drained = false;
    }

    /// Encrypts a payload of 1 to 1200 bytes for the server. It leaves when the batch is full, or at the end of the
    /// turn. It requires [`Traffic::Payloads`].
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `Empty`, `TooLarge`: the payload has no byte, or more than 1200.
    /// - `WrongTraffic`: the client carries packets or channels.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        match self.core.send_payload(payload, self.now.monotonic, &mut self.outbox) {
            // The batch was full. Send it and try once more.
            Err(SendError::Backlogged) => {
                self.sockets.send(&mut self.outbox);
                self.core.send_payload(payload, self.now.monotonic, &mut self.outbox)
            }
            result => result,
        }
    }

    /// Sends an acknowledged packet of 1 byte to 16 KiB, in fragments if it is large, and returns its sequence number.
    /// It leaves when the batch is full, or at the end of the turn. An event reports whether it was acknowledged or
    /// lost. It requires [`Traffic::Packets`].
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `Empty`, `TooLarge`: the packet has no byte, or more than the settings allow.
    /// - `Backlogged`: congestion control allows no more now.
    /// - `WrongTraffic`: the client carries payloads or channels.
    pub fn send_packet(&mut self, packet: &[u8]) -> Result<Sequence, SendError> {
        match self.core.send_packet(packet, self.now.monotonic, &mut self.outbox) {
            // The batch may lack room for all fragments. Send it and try once more.
            Err(SendError::Backlogged) if !self.outbox.is_empty() => {
                self.sockets.send(&mut self.outbox);
                self.core.send_packet(packet, self.now.monotonic, &mut self.outbox)
            }
            result => result,
        }
    }

    /// Queues a message on a channel. The bytes are copied once, and leave at the end of a turn, when congestion
    /// control allows. It requires [`Traffic::Channels`].
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `TooLarge`: the message is larger than the channel's `max_message_bytes`.
    /// - `Backlogged`: the channel's queue is full.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of transfers.
    /// - `WrongTraffic`: the client carries no channels.
    pub fn send_message(&mut self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(channel, message, SendOptions::default())
    }

    /// Queues a message with a deadline, a key by which newer messages replace older ones, or a receipt.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_with(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.core.connection_mut()?.send(channel, message, options, self.now.monotonic)
    }

    /// Starts a transfer on a channel of transfers. The server receives `label` with it. Events report its progress.
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `Backlogged`: as many transfers wait as the channel allows.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of messages.
    /// - `WrongTraffic`: the client carries no channels.
    pub fn send_transfer(
        &mut self,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    ) -> Result<TransferId, SendError> {
        self.core.connection_mut()?.channels.send_transfer(channel, transfer, label)
    }

    /// Returns how much may leave now, and the size and number of messages that suit the path. Ask before composing a
    /// tick. `None` while not connected, and with [`Traffic::Payloads`].
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        self.core.budget(self.now.monotonic)
    }

    /// Returns the state of the path: round-trip time, jitter, loss and bandwidth. `None` while not connected, and with
    /// [`Traffic::Payloads`].
    ///
    /// A loop that sleeps without [`wait`](Self::wait) reads datagrams late. That adds up to one frame to the measured
    /// round-trip time of both sides.
    #[must_use]
    pub fn path(&self) -> Option<PathStats> {
        self.core.path(self.now.monotonic)
    }

    /// Returns the connection with its channels and transfers, with [`Traffic::Channels`] and while connected.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.core.connection()
    }

    /// Returns the connection to accept, refuse, cancel and resume transfers.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.core.connection_mut().ok()
    }

    /// Ends a turn: runs timers and sends what is due.
    pub fn end_turn(&mut self) {
        self.now = self.turn.now();
        self.turn_watch.on_end();
        self.core.tick(self.now.monotonic);
        self.core.drained_at = self.drained_at;
        self.transmit();
    }

    /// Sends what is due without ending the turn. A loop that wakes on every datagram calls it on arrival, and
    /// [`end_turn`](Self::end_turn) once per tick. The budgets of a turn last until it ends.
    pub fn flush(&mut self) {
        self.now = self.turn.now();
        self.turn_watch.on_flush(self.now.monotonic);
        self.transmit();
    }

    /// Sends what is due at `self.now`. The time is not read again, because a later one would count as another tick.
    fn transmit(&mut self) {
        self.core.transmit(self.now.monotonic, &mut self.outbox);
        self.record_used_token();
        self.sockets.send(&mut self.outbox);
        for _ in 0..MAX_BATCHES_PER_TURN {
            if !self.core.has_unsent_packets() {
                break;
            }
            self.core.transmit(self.now.monotonic, &mut self.outbox);
            self.sockets.send(&mut self.outbox);
        }
    }

    /// Sleeps until a datagram arrives, a timer of the client is due, or the time is over.
    ///
    /// # Errors
    /// The error of the system call when the system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.is_drained = false;
        let due = self.core.next_deadline().map(|deadline| deadline.since(self.now.monotonic));
        // No datagram is read before the messages are delivered: one that arrives must not end the wait.
        if self.has_undelivered {
            thread::sleep(due.map_or(timeout, |due| due.min(timeout)).min(UNDELIVERED_WAIT));
            return Ok(());
        }
        if poll_coalesced(&mut self.sockets, due.map_or(timeout, |due| due.min(timeout)))? == Wakeup::Fresh {
            self.drained_at = self.turn.now().monotonic;
        }
        Ok(())
    }

    /// Returns the state of the connection, in the standard's words.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.core.state()
    }

    /// Returns why the last attempt or connection ended, until the next one starts. Its `Display` is a sentence for the
    /// player.
    #[must_use]
    pub const fn close_reason(&self) -> Option<&CloseReason> {
        self.core.close_reason()
    }

    /// Returns the server of the current attempt or connection.
    #[must_use]
    pub fn server(&self) -> Option<ServerInfo> {
        let netcode = &self.core.netcode;
        let (client_index, max_clients) = netcode.slot_info().unzip();
        let address = netcode.server().map(SocketAddr::from);
        (address.is_some() || client_index.is_some()).then_some(ServerInfo { address, client_index, max_clients })
    }

    /// Returns the number of dropped datagrams by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        self.core.netcode.discards()
    }

    /// Returns the sockets: addresses, buffers, DSCP marks and counters.
    #[must_use]
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Records the token as used, for all clients of this program. It happens before the first encrypted packet leaves:
    /// a second session with the same keys would reuse nonces.
    fn record_used_token(&mut self) {
        let used = self.core.netcode.used_token();
        if used.is_some() && used != self.recorded_token {
            self.recorded_token = used;
            used.into_iter().for_each(used_tokens::record);
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<ClientSessionEvent> {
        match self.core.poll_event()? {
            ClientSessionEvent::Redirected { token, reason } => Some(self.follow(token, reason)),
            event => Some(event),
        }
    }

    /// Connects to the servers of a redirect. Where that is not possible, the connection has ended.
    fn follow(&mut self, token: Box<ConnectToken>, reason: CloseReason) -> ClientSessionEvent {
        let is_used = used_tokens::contains(&TokenName::from(&*token));
        let is_reachable = token.facts().servers.iter().any(|server| self.sockets.can_reach((*server).into()));
        // Checked before, because an attempt that fails replaces the reason of the end.
        if is_used || !is_reachable || self.connect_with(*token.clone()).is_err() {
            warn!("the server redirects to servers that this client cannot reach, or with a used token");
            return ClientSessionEvent::Ended { reason };
        }
        ClientSessionEvent::Redirected { token, reason }
    }

    /// Fills the batch. Returns false when the sockets are empty or the turn has read its limit.
    pub(crate) fn receive(&mut self, batch: &mut ReceiveBatch) -> bool {
        // The inbox has handled all datagrams of the previous batch.
        self.core.drained_at = self.drained_at;
        if self.packets_left == 0 || self.is_drained {
            // The inbox must not find the handled datagrams again.
            batch.clear();
            return false;
        }
        let before = self.turn.now().monotonic;
        self.sockets.receive(batch);
        self.now = self.turn.now();
        self.is_drained = self.sockets.is_drained();
        if self.is_drained {
            self.drained_at = before;
        }
        self.packets_left = self.packets_left.saturating_sub(batch.len() as u32);
        !batch.is_empty()
    }

    pub(crate) fn handle(
        &mut self,
        from: Address,
        datagram: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Option<ReceivedDatagram> {
        let received = self.core.handle(from, datagram, scratch, self.now.monotonic).ok().flatten();
        if self.core.take_peer_with_channels() {
            warn!("{SERVER_HAS_CHANNELS}");
        }
        received
    }

    pub(crate) fn may_deliver(&mut self, received: &ReceivedDatagram, in_a_row: u32) -> bool {
        let may_deliver = self.core.may_deliver(received, in_a_row, self.now.monotonic);
        self.has_undelivered = !may_deliver;
        may_deliver
    }

    pub(crate) fn next(
        &mut self,
        datagram: &[u8],
        received: &mut ReceivedDatagram,
        scratch: &mut Vec<u8>,
    ) -> Option<SessionMessage> {
        self.core.next_message(datagram, received, scratch, self.now.monotonic)
    }
}

impl Wait for Client {
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        Self::wait(self, timeout)
    }
}

/// A client that is dropped disconnects, so that its slot is free at once.
impl Drop for Client {
    fn drop(&mut self) {
        self.core.disconnect();
        self.end_turn();
    }
}
