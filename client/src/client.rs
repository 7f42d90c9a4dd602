//! The client: sockets around the protocol's client, and the turn of a game loop.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::client::{self as netcode, ClientState, ConnectError, EndReason};
use slipgate_netcode::discard::Discards;
use slipgate_netcode::time::{Instant, Now};
use slipgate_netcode::timing::TimeoutPolicy;
use slipgate_netcode::token::ConnectToken;
use slipgate_os::clock::TurnTime;
use slipgate_session::channel::block::{Block, BlockId, Blocks, Progress};
use slipgate_session::channel::control::ByeCode;
use slipgate_session::channel::{ChannelId, Free, SendOptions};
use slipgate_session::client::{self as core, Message, Received};
use slipgate_session::session::{Budget, ConfigError, Connection, End, PathStats, SendError, Traffic};
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::{ReceiveBatch, SendBatch, SocketStats, Sockets, Woke, nap};

use crate::used_tokens;

/// Datagrams that one turn reads at most: a flood must not freeze the game.
const PACKETS_PER_TURN: u32 = 4096;

/// Batches that leave at the end of one turn at most.
const MOST_BATCHES: u32 = 64;

/// A netcode 1.02 client on UDP sockets.
///
/// A turn: [`begin_turn`](Self::begin_turn), events from an [`Inbox`](crate::Inbox), [`send`](Self::send),
/// [`end_turn`](Self::end_turn), [`wait`](Self::wait) or the game's own frame.
pub struct Client {
    core: core::Client,
    sockets: Sockets,
    outbox: SendBatch,
    turn: TurnTime,
    /// The time in the turn when something was last read, or was about to leave.
    now: Now,
    packets_left: u32,
    /// The sockets were read to their end since the turn began, or since the last wait.
    read_up: bool,
    /// Nothing that had arrived by then is unread.
    empty_at: Instant,
    /// The token of the last session that was noted as used up.
    noted: Option<netcode::TokenName>,
    /// Where values become messages; taken with the first one.
    pub(crate) typed_room: Vec<u8>,
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

    /// A client on sockets that are bound, and with a given policy for time-outs.
    #[must_use]
    pub fn on(sockets: Sockets, timeouts: TimeoutPolicy) -> Self {
        Self {
            core: core::Client::new(netcode::Client::new(timeouts)),
            sockets,
            outbox: SendBatch::default(),
            turn: TurnTime::begin(Now::default()),
            now: Now::default(),
            packets_left: PACKETS_PER_TURN,
            read_up: false,
            empty_at: Instant::NEVER,
            noted: None,
            typed_room: Vec::new(),
        }
    }

    /// Says what payloads carry, from the next connection on; without it they are handed out as they are. The server must
    /// carry the same.
    ///
    /// # Errors
    /// A setting that no connection can run with.
    pub fn carrying(mut self, traffic: Traffic) -> Result<Self, ConfigError> {
        self.core.set_traffic(traffic)?;
        Ok(self)
    }

    /// Begins to connect to the first of the token's servers that gives it a slot.
    ///
    /// # Errors
    /// `TokenUsed`, `NoServer`, or `Busy` when connecting or connected.
    pub fn connect(&mut self, token: ConnectToken, now: Now) -> Result<(), ConnectError> {
        (self.turn, self.now) = (TurnTime::begin(now), now);
        let name = netcode::name(&token);
        // A session of this client's own that ended is the core's to refuse, with its state.
        if Some(name) != self.noted && used_tokens::contains(&name) {
            return Err(self.core.refuse_used_token());
        }
        self.core.connect(token, now.monotonic, |server| self.sockets.reaches(server))
    }

    /// Becomes connected without packets, as the client of a server in the same program (host-and-play): its payloads
    /// go through the server's `loopback_send` and `loopback_receive`. Only where [`Traffic`] is `Payloads`; elsewhere the
    /// player who hosts connects by UDP as all others do, with a token.
    ///
    /// # Errors
    /// `Busy` when connecting or connected, or `WrongTraffic`.
    pub fn connect_loopback(&mut self, client_index: u32, max_clients: u32) -> Result<(), ConnectError> {
        let Traffic::Payloads = self.core.traffic() else { return Err(ConnectError::WrongTraffic) };
        self.core.netcode_mut().connect_loopback(client_index, max_clients)
    }

    /// Leaves: the state is `Disconnected` at once, and ten disconnect packets leave with the end of the turn.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text of [`leave`](Self::leave), or wait for the
    /// receipt.
    pub fn disconnect(&mut self) {
        self.core.disconnect();
    }

    /// Leaves for a reason, with a text of up to 256 bytes for people; a longer one is cut, between two characters. Where
    /// [`Traffic`] is `Channels`, go on with turns until the end comes as an event, at most a second later. Elsewhere the text
    /// is not sent, and this is [`disconnect`](Self::disconnect). The application's own reasons are those from
    /// [`ByeCode::FIRST_OF_APPLICATION`] on; smaller ones count as 0.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn leave(&mut self, code: ByeCode, text: &str) {
        self.core.leave(code, text);
    }

    /// Begins a turn, at this moment of the program's clock.
    pub fn begin_turn(&mut self, now: Now) {
        // The time that has passed in the turn before does not come back, whatever the program's clock says.
        let now = Now { monotonic: now.monotonic.max(self.now.monotonic), ..now };
        (self.turn, self.now) = (TurnTime::begin(now), now);
        self.packets_left = PACKETS_PER_TURN;
        self.read_up = false;
    }

    /// Seals a payload of 1 to 1200 bytes for the server; it leaves with a full batch or at the end of the turn. Only where
    /// [`Traffic`] is `Payloads`.
    ///
    /// # Errors
    /// `Gone` when not connected, `Empty`, `TooLarge`, or `WrongTraffic`.
    pub fn send(&mut self, payload: &[u8]) -> Result<(), SendError> {
        match self.core.send_payload(payload, self.now.monotonic, &mut self.outbox) {
            Err(SendError::Backlogged) => {
                self.sockets.send(&mut self.outbox);
                self.core.send_payload(payload, self.now.monotonic, &mut self.outbox)
            }
            result => result,
        }
    }

    /// Sends an acknowledged packet of 1 byte to 16 KiB, in fragments if it is large, and answers its number. What becomes
    /// of it comes as an event. Only where [`Traffic`] is `Packets`.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged` (the path should carry no more now), or `WrongTraffic`.
    pub fn send_packet(&mut self, payload: &[u8]) -> Result<Sequence, SendError> {
        // All fragments of the largest packet need room.
        self.sockets.send(&mut self.outbox);
        self.core.send_packet(payload, self.now.monotonic, &mut self.outbox)
    }

    /// Puts a message into a channel; it is copied once, and leaves at the end of a turn, when the path allows. Only where
    /// [`Traffic`] is `Channels`.
    ///
    /// # Errors
    /// `Gone`, `TooLarge`, `Backlogged` (the channel's queue is full), `NoChannel`, `WrongKind`, or `WrongTraffic`.
    pub fn send_message(&mut self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(channel, message, SendOptions::default())
    }

    /// As [`send_message`](Self::send_message), with a deadline, a key by which newer messages replace older ones, or a
    /// receipt, by which the game hears what became of it.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_with(
        &mut self,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.core.send_message(channel, message, options, self.now.monotonic)
    }

    /// Begins to send a block on a channel of blocks; `label` tells the server what it is. What becomes of it comes as
    /// events.
    ///
    /// # Errors
    /// `Gone`, `Backlogged` (as many blocks wait as the channel allows), `NoChannel`, `WrongKind`, or `WrongTraffic`.
    pub fn send_block(&mut self, channel: ChannelId, block: Block, label: u64) -> Result<BlockId, SendError> {
        self.core.send_block(channel, block, label)
    }

    /// What a channel can still take; nothing while there is no connection.
    #[must_use]
    pub fn free(&self, channel: ChannelId) -> Free {
        self.connection().map_or_else(Free::default, |connection| connection.channels().free(channel))
    }

    /// How far the blocks are that are sent on a channel, those that wait included. None where there are none.
    pub fn sending(&self, channel: ChannelId) -> impl Iterator<Item = (BlockId, Progress)> + '_ {
        let blocks = self.connection().and_then(|connection| connection.channels().blocks(channel));
        blocks.into_iter().flat_map(Blocks::sending)
    }

    /// How far the server's blocks are on a channel; what they are, [`Blocks::label`] tells. None where there are none.
    pub fn receiving(&self, channel: ChannelId) -> impl Iterator<Item = (BlockId, Progress)> + '_ {
        let blocks = self.connection().and_then(|connection| connection.channels().blocks(channel));
        blocks.into_iter().flat_map(Blocks::receiving)
    }

    /// What may leave now, and how a game had best send it: ask before composing a tick. `None` while there is no
    /// connection, and where [`Traffic`] is `Payloads`.
    #[must_use]
    pub fn budget(&self) -> Option<Budget> {
        self.core.budget(self.now.monotonic)
    }

    /// How the path is: round-trip time, jitter, loss, bandwidths. `None` as for [`budget`](Self::budget).
    ///
    /// What arrives while a loop sleeps without [`wait`](Self::wait) is read when it wakes: it adds up to a frame of its own to
    /// the round trip that it measures, and to that of the other side.
    #[must_use]
    pub fn path(&self) -> Option<PathStats> {
        self.core.path(self.now.monotonic)
    }

    /// The connection, where [`Traffic`] is `Channels`, while there is one.
    #[must_use]
    pub fn connection(&self) -> Option<&Connection> {
        self.core.connection()
    }

    /// As [`connection`](Self::connection): to accept, refuse, cancel and keep blocks.
    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.core.connection_mut()
    }

    /// What the server said to this player when it ended the last connection, if it said something.
    #[must_use]
    pub fn farewell(&self) -> Option<&str> {
        self.core.farewell()
    }

    /// What was said at the end of the last connection, by either side, where [`Traffic`] is `Channels`: code and text are in
    /// it. `None` where nothing was said.
    #[must_use]
    pub const fn end(&self) -> Option<&End> {
        self.core.end()
    }

    /// Ends a turn: what is due happens, and everything that waits leaves.
    pub fn end_turn(&mut self) {
        self.now = self.turn.now();
        self.core.tick(self.now.monotonic);
        self.core.caught_up(self.empty_at);
        self.transmit();
    }

    /// Lets everything that waits leave, without ending the turn: a loop that wakes for every arrival answers by it at
    /// once, and ends its turns at its own pace. Budgets of a turn last until it ends.
    pub fn flush(&mut self) {
        self.now = self.turn.now();
        self.transmit();
    }

    /// Sends all that is due at the time that was read last: that of the tick, or it would be one of its own.
    fn transmit(&mut self) {
        self.core.transmit(self.now.monotonic, &mut self.outbox);
        self.note_used_token();
        self.sockets.send(&mut self.outbox);
        for _ in 0..MOST_BATCHES {
            if !self.core.owes() {
                break;
            }
            self.core.transmit(self.now.monotonic, &mut self.outbox);
            self.sockets.send(&mut self.outbox);
        }
    }

    /// Sleeps until a datagram arrives, the client has something to do of its own, or the time is over.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_up = false;
        let due = self.core.next_deadline().map(|deadline| deadline.since(self.now.monotonic));
        if nap(&mut self.sockets, due.map_or(timeout, |due| due.min(timeout)))? == Woke::Fresh {
            self.empty_at = self.turn.now().monotonic;
        }
        Ok(())
    }

    /// Where the client stands.
    #[must_use]
    pub fn state(&self) -> ClientState {
        self.core.netcode().state()
    }

    /// Why the last attempt or connection ended, until the next begins.
    #[must_use]
    pub fn end_reason(&self) -> Option<EndReason> {
        self.core.netcode().end_reason()
    }

    /// The slot that the server gave, from 0, while connected.
    #[must_use]
    pub fn client_index(&self) -> Option<u32> {
        self.core.netcode().client_index()
    }

    /// How many slots the server has, while connected.
    #[must_use]
    pub fn max_clients(&self) -> Option<u32> {
        self.core.netcode().max_clients()
    }

    /// The server that is tried or connected.
    #[must_use]
    pub fn server(&self) -> Option<SocketAddr> {
        self.core.netcode().server().map(SocketAddr::from)
    }

    /// The addresses that are bound, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<SocketAddr> {
        self.sockets.local_addresses()
    }

    /// How many datagrams were dropped, by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        self.core.netcode().discards()
    }

    /// What the sockets have counted. Where the system counts as well, this asks it.
    #[must_use]
    pub fn socket_stats(&self) -> SocketStats {
        self.sockets.stats()
    }

    /// The sockets: their addresses, buffers and marks.
    #[must_use]
    pub const fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Before the first sealed packet leaves, every client of this program knows that its token is used up.
    fn note_used_token(&mut self) {
        let used = self.core.netcode().used_token();
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
        // Whatever was read before has been handled.
        self.core.caught_up(self.empty_at);
        if self.packets_left == 0 || self.read_up {
            // What was handled must not be found again.
            batch.clear();
            return false;
        }
        let before = self.turn.now().monotonic;
        self.sockets.receive(batch);
        self.now = self.turn.now();
        self.read_up = self.sockets.is_drained();
        if self.read_up {
            self.empty_at = before;
        }
        self.packets_left = self.packets_left.saturating_sub(batch.len() as u32);
        !batch.is_empty()
    }

    pub(crate) fn handle(&mut self, from: Address, datagram: &mut [u8], scratch: &mut Vec<u8>) -> Option<Received> {
        self.core.handle(from, datagram, scratch, self.now.monotonic).ok().flatten()
    }

    pub(crate) fn next(&mut self, datagram: &[u8], received: &mut Received, scratch: &mut Vec<u8>) -> Option<Message> {
        self.core.next(datagram, received, scratch, self.now.monotonic)
    }
}

/// A client that is dropped says goodbye, so that its slot is free at once.
impl Drop for Client {
    fn drop(&mut self) {
        self.core.disconnect();
        self.end_turn();
    }
}
