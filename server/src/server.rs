//! The server: sockets around the protocol's server, and the turn of a game loop.

use std::fmt;
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::thread;
use std::time::Duration;

use slipgate_edge::clock::TurnTime;
use slipgate_edge::entropy;
use slipgate_edge::udp::{ReceiveBatch, SendBatch, SocketStats, Sockets, Waker, Woke, nap};
use slipgate_protocol::address::Address;
use slipgate_protocol::channel::block::{Block, BlockId, Blocks, Progress};
use slipgate_protocol::channel::control::ByeCode;
use slipgate_protocol::channel::{ChannelId, Free, SendOptions};
use slipgate_protocol::congestion::{BytesPerSecond, Trunk, Weight};
use slipgate_protocol::crypto::key::KeyRing;
use slipgate_protocol::discard::Discards;
use slipgate_protocol::netcode::server::{
    self as netcode, ClientHandle, ClientInfo, Config, ConfigError, Fence, ShardId, Stats,
};
use slipgate_protocol::server::{self as core, Message, Received};
use slipgate_protocol::session::{self, Budget, Connection, End, Memory, PathStats, SendError, Traffic};
use slipgate_protocol::time::{Instant, Now};
use slipgate_protocol::wire::reliable::Sequence;
use slipgate_protocol::wire::{MAX_PAYLOAD_BYTES, UserData};

use crate::filtering::Filtering;
use crate::history_file::HistoryFile;
use crate::loopback_error::LoopbackError;
use crate::reading::Reading;
use crate::report::Reporter;

/// A netcode 1.02 server on UDP sockets.
///
/// A turn: [`begin_turn`](Self::begin_turn), events from an [`Inbox`](crate::Inbox), [`send`](Self::send),
/// [`end_turn`](Self::end_turn), [`wait`](Self::wait). It logs the lives of clients by `tracing`, and of junk nothing
/// but a summary now and then.
pub struct Server {
    core: core::Server,
    sockets: Sockets,
    outbox: SendBatch,
    turn: TurnTime,
    /// The time in the turn when something was last read, or was about to leave.
    now: Now,
    reading: Reading,
    /// The sockets were read to their end since the turn began, or since the last wait.
    read_up: bool,
    /// Nothing that had arrived by then is unread.
    empty_at: Instant,
    filtering: Filtering,
    reporter: Reporter,
    /// Where values become messages; taken with the first one.
    pub(crate) typed_room: Vec<u8>,
}

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A setting that no server can run with.
    Config(ConfigError),
    /// A setting that no connection can run with.
    Connection(session::ConfigError),
    /// The operating system had no entropy to give.
    Entropy(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::Entropy(error) => write!(f, "the operating system gives no entropy: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl From<ConfigError> for StartError {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

/// Where the fence stands that a history moves back.
pub(crate) fn fence(configured: Fence, history: &HistoryFile) -> Fence {
    let moves = !history.is_new() && configured == Fence::Closed;
    if moves { Fence::Since(history.since().into()) } else { configured }
}

impl Server {
    /// A server that starts now, with fresh entropy, and forgets which tokens were used when it ends: tokens from
    /// before its start are refused (see [`Fence`]).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn new(sockets: Sockets, config: Config, keys: KeyRing, now: Now) -> Result<Self, StartError> {
        let seed = entropy::seed().map_err(StartError::Entropy)?;
        let netcode = netcode::Server::new(config, keys, &seed, now)?;
        Self::around(netcode, sockets, now, Memory::default())
    }

    /// A server that writes used tokens to a file and reads there which ones its earlier starts used.
    ///
    /// A file that was there before moves the fence back to when it was made. Whatever was used before it existed is
    /// not in it.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn with_history(
        sockets: Sockets,
        mut config: Config,
        keys: KeyRing,
        now: Now,
        history: HistoryFile,
    ) -> Result<Self, StartError> {
        let seed = entropy::seed().map_err(StartError::Entropy)?;
        config.fence = fence(config.fence, &history);
        let netcode = netcode::Server::with_storage(config, keys, &seed, now, history.into_storage())?;
        Self::around(netcode, sockets, now, Memory::default())
    }

    pub(crate) fn around(
        netcode: netcode::Server,
        sockets: Sockets,
        now: Now,
        memory: Memory,
    ) -> Result<Self, StartError> {
        let filtering = Filtering::begin(&sockets, netcode.config().protocol_id);
        Ok(Self {
            filtering,
            core: core::Server::new(netcode, Traffic::Payloads, memory).map_err(StartError::Connection)?,
            sockets,
            outbox: SendBatch::default(),
            turn: TurnTime::begin(now),
            now,
            reading: Reading::default(),
            read_up: false,
            empty_at: Instant::NEVER,
            reporter: Reporter::new(now.monotonic),
            typed_room: Vec::new(),
        })
    }

    /// From now on it shares its uplink with other shards.
    pub(crate) fn on_trunk(mut self, trunk: Box<dyn netcode::Lend<Trunk>>) -> Self {
        self.core.join_trunk(trunk);
        self
    }

    /// Says what the payloads of clients carry, before there are any; without it they are handed out as they are.
    ///
    /// # Errors
    /// `Connection`: a setting that no connection can run with.
    pub fn carrying(mut self, traffic: Traffic) -> Result<Self, StartError> {
        self.core.set_traffic(traffic).map_err(StartError::Connection)?;
        Ok(self)
    }

    /// Begins a turn, at this moment of the program's clock.
    pub fn begin_turn(&mut self, now: Now) {
        self.begin(now, TurnTime::begin);
    }

    /// Begins a turn in which the program's time stands still: all of it happens at this moment, however long it takes. For
    /// programs that live in a time of their own, as replays and measurements do. Their clients must live in the same, or
    /// take the difference for a path that grows slower. [`set_time_per_turn`](Self::set_time_per_turn) holds by the
    /// machine's clock, here too.
    pub fn begin_still_turn(&mut self, now: Now) {
        self.begin(now, TurnTime::still);
    }

    fn begin(&mut self, now: Now, turn: impl FnOnce(Now) -> TurnTime) {
        // The time that has passed in the turn before does not come back, whatever the program's clock says.
        let now = Now { monotonic: now.monotonic.max(self.now.monotonic), ..now };
        (self.turn, self.now) = (turn(now), now);
        self.reading.begin_turn();
        self.read_up = false;
    }

    /// Seals a payload of 1 to 1200 bytes for a client; it leaves with a full batch or at the end of the turn. Only where
    /// [`Traffic`] is `Payloads`.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged` (in the same program: 256 payloads wait), or `WrongTraffic`.
    pub fn send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), SendError> {
        match self.core.send_payload(client, payload, self.now, &mut self.outbox) {
            Err(SendError::Backlogged) if !self.outbox.is_empty() => {
                self.sockets.send(&mut self.outbox);
                self.core.send_payload(client, payload, self.now, &mut self.outbox)
            }
            result => result,
        }
    }

    /// Sends an acknowledged packet of 1 byte to 16 KiB, in fragments if it is large, and answers its number. What becomes
    /// of it comes as an event. Only where [`Traffic`] is `Packets`.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, `Backlogged` (the path should carry no more now), or `WrongTraffic`.
    pub fn send_packet(&mut self, client: ClientHandle, payload: &[u8]) -> Result<Sequence, SendError> {
        // All fragments of the largest packet need room.
        self.sockets.send(&mut self.outbox);
        self.core.send_packet(client, payload, self.now, &mut self.outbox)
    }

    /// Puts a message into a client's channel; it is copied once, and leaves at the end of a turn, when the path allows.
    /// Only where [`Traffic`] is `Channels`.
    ///
    /// # Errors
    /// `Gone`, `TooLarge`, `Backlogged` (the channel's queue is full), `NoChannel`, `WrongKind`, or `WrongTraffic`.
    pub fn send_message(&mut self, client: ClientHandle, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(client, channel, message, SendOptions::default())
    }

    /// As [`send_message`](Self::send_message), with a deadline, a key by which newer messages replace older ones, or a
    /// receipt, by which the game hears what became of it.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub fn send_message_with(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        message: &[u8],
        options: SendOptions,
    ) -> Result<(), SendError> {
        self.core.send_message(client, channel, message, options, self.now)
    }

    /// Begins to send a block to a client on a channel of blocks; `label` tells it what the block is. What becomes of it
    /// comes as events.
    ///
    /// # Errors
    /// `Gone`, `Backlogged` (as many blocks wait as the channel allows), `NoChannel`, `WrongKind`, or `WrongTraffic`.
    pub fn send_block(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        block: Block,
        label: u64,
    ) -> Result<BlockId, SendError> {
        self.core.send_block(client, channel, block, label)
    }

    /// Shares an uplink of this rate over all clients, by their weights: what one does not need, others have, and nobody's
    /// burst delays the rest. `None`, at first: the uplink has no limit. With [shards](Self::shards) it is the rate of the whole
    /// server, whichever of them is told; each client has at least the part that its weight gives it among those of all
    /// shards, and what others leave of theirs goes to clients of the same shard first.
    ///
    /// Messages on channels are held to it. What else leaves for clients (payloads as they are, acknowledged packets, and
    /// acknowledgements) cannot be held back without loss: it leaves, and the messages share the rest. So of a server without
    /// channels nothing is held back.
    pub fn set_uplink(&mut self, rate: Option<BytesPerSecond>) {
        self.core.set_uplink(rate);
    }

    /// A client's share of the uplink compared with others, 1 at first. Answers whether the client is connected, and the
    /// uplink shared.
    pub fn set_weight(&mut self, client: ClientHandle, weight: Weight) -> bool {
        self.core.set_weight(client, weight)
    }

    /// What a client's channel can still take; nothing where there is none.
    #[must_use]
    pub fn free(&self, client: ClientHandle, channel: ChannelId) -> Free {
        self.connection(client).map_or_else(Free::default, |connection| connection.channels().free(channel))
    }

    /// How far the blocks are that are sent to a client on a channel, those that wait included. None where there are none.
    pub fn sending(&self, client: ClientHandle, channel: ChannelId) -> impl Iterator<Item = (BlockId, Progress)> + '_ {
        let blocks = self.connection(client).and_then(|connection| connection.channels().blocks(channel));
        blocks.into_iter().flat_map(Blocks::sending)
    }

    /// How far a client's blocks are on a channel; what they are, [`Blocks::label`] tells. None where there are none.
    pub fn receiving(
        &self,
        client: ClientHandle,
        channel: ChannelId,
    ) -> impl Iterator<Item = (BlockId, Progress)> + '_ {
        let blocks = self.connection(client).and_then(|connection| connection.channels().blocks(channel));
        blocks.into_iter().flat_map(Blocks::receiving)
    }

    /// What may leave for a client now, and how a game had best send it: ask before composing a tick. `None` where
    /// [`Traffic`] is `Payloads`, and for one that is leaving.
    #[must_use]
    pub fn budget(&self, client: ClientHandle) -> Option<Budget> {
        self.core.budget(client, self.now)
    }

    /// How a client's path is: round-trip time, jitter, loss, bandwidths. `None` where [`Traffic`] is `Payloads`.
    ///
    /// What arrives while a loop sleeps without [`wait`](Self::wait) is read when it wakes: it adds up to a turn of its own to
    /// the round trip that it measures, and to that of the other side.
    #[must_use]
    pub fn path(&self, client: ClientHandle) -> Option<PathStats> {
        self.core.path(client, self.now)
    }

    /// A client's connection, where [`Traffic`] is `Channels`.
    #[must_use]
    pub fn connection(&self, client: ClientHandle) -> Option<&Connection> {
        self.core.connection(client)
    }

    /// What was said at the end of a client's connection, by either side, where [`Traffic`] is `Channels`: code and text are
    /// in it. For the time of its event; `None` where nothing was said.
    #[must_use]
    pub fn end(&self, client: ClientHandle) -> Option<&End> {
        self.core.end(client)
    }

    /// As [`connection`](Self::connection): to accept, refuse, cancel and keep blocks.
    pub fn connection_mut(&mut self, client: ClientHandle) -> Option<&mut Connection> {
        self.core.connection_mut(client)
    }

    /// Ends a turn: what is due happens, and everything that waits leaves.
    pub fn end_turn(&mut self) {
        self.now = self.turn.now();
        self.core.tick(self.now);
        self.core.caught_up(self.empty_at);
        self.transmit();
        self.filtering.tighten(&self.sockets, self.core.netcode().discards());
        self.reporter.report(self.core.netcode(), &self.sockets, self.reading.cut_short(), self.now.monotonic);
    }

    /// Lets everything that waits leave, without ending the turn: a loop that wakes for every arrival answers by it at
    /// once, and ends its turns at its own pace. Budgets of a turn last until it ends.
    pub fn flush(&mut self) {
        self.now = self.turn.now();
        self.transmit();
    }

    /// Sends all that is due at the time that was read last: that of the tick, or it would be one of its own.
    fn transmit(&mut self) {
        loop {
            self.core.transmit(self.now, &mut self.outbox);
            let was_full = self.outbox.is_full();
            self.sockets.send(&mut self.outbox);
            if !was_full {
                break;
            }
        }
    }

    /// Says in the log what was counted since the start: for the end of a program.
    pub fn log_totals(&self) {
        self.reporter.totals(self.core.netcode(), &self.sockets, self.reading.cut_short());
    }

    /// Sleeps until a datagram arrives or the time is over.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_up = false;
        if nap(&mut self.sockets, timeout)? == Woke::Fresh {
            self.empty_at = self.turn.now().monotonic;
        }
        Ok(())
    }

    /// What ends a [`wait`](Self::wait) from another thread.
    ///
    /// # Errors
    /// When the system has no handle left for it.
    pub fn waker(&mut self) -> io::Result<Waker> {
        self.sockets.waker()
    }

    /// What the payloads of clients carry.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        self.core.traffic()
    }

    /// Which shard of a server this is: the first one, where there is but one.
    #[must_use]
    pub const fn shard_id(&self) -> ShardId {
        self.core.netcode().shard_id()
    }

    /// Disconnects a client with a text for people, of up to 256 bytes, which it hears before it goes; a longer one is cut,
    /// between two characters. Its event comes now. Where [`Traffic`] is not `Channels` the text is not sent. Answers whether
    /// it was connected.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn kick(&mut self, client: ClientHandle, text: &str) -> bool {
        self.core.kick(client, ByeCode::KICKED, text)
    }

    /// As [`kick`](Self::kick), with a reason for programs: the application's own are those from
    /// [`ByeCode::FIRST_OF_APPLICATION`] on, and smaller ones count as 0, but for [`ByeCode::SHUTDOWN`], which tells both
    /// sides of a stop.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn kick_with(&mut self, client: ClientHandle, code: ByeCode, text: &str) -> bool {
        self.core.kick(client, code, text)
    }

    /// Disconnects a client; answers whether it was connected. Its event comes, and its packets leave with this turn.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text of [`kick`](Self::kick), or wait for the
    /// receipt.
    pub fn disconnect(&mut self, client: ClientHandle) -> bool {
        self.core.disconnect(client)
    }

    /// Disconnects everyone and admits nobody any more. The packets leave at the end of the turn; clients with channels hear
    /// that the server shuts down.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text of [`stop_with`](Self::stop_with), or wait
    /// for the receipt.
    pub fn stop(&mut self) {
        self.core.stop();
    }

    /// As [`stop`](Self::stop), with a text of its own for people, of up to 256 bytes; a longer one is cut, between two
    /// characters. The code is always [`ByeCode::SHUTDOWN`], by which clients know a stop from a kick.
    ///
    /// What is not acknowledged by now may not arrive: put last words into the text, or wait for the receipt.
    pub fn stop_with(&mut self, text: &str) {
        self.core.stop_with(text);
    }

    /// Whether new clients are admitted. While not, they are told that the server is full, and try the next one.
    pub fn set_admitting(&mut self, admitting: bool) {
        self.core.netcode_mut().set_admitting(admitting);
    }

    /// Replaces the private keys, newest first, without dropping anyone.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.core.netcode_mut().set_keys(keys);
    }

    /// Lets the kernel drop junk before it wakes the server, or no more: what no server would heed, by its length, its
    /// type, or its version and protocol id. It does from the start on, where it can, which is on Linux. What it drops
    /// is counted in [`SocketStats::dropped_by_system`], and no more in [`discards`](Self::discards). So is what the
    /// receive buffer had no room for: [`Sockets::overflow_at_most`] tells the two apart.
    ///
    /// # Errors
    /// `Unsupported` where systems have no such filter; when the system refuses the change. Then the filter is as it was:
    /// [`has_kernel_filter`](Self::has_kernel_filter) tells.
    pub fn set_kernel_filter(&mut self, on: bool) -> io::Result<()> {
        let protocol_id = self.config().protocol_id;
        if on { self.filtering.switch_on(&self.sockets, protocol_id) } else { self.filtering.switch_off(&self.sockets) }
    }

    /// Whether the kernel drops junk before it wakes the server.
    #[must_use]
    pub fn has_kernel_filter(&self) -> bool {
        self.sockets.filter().is_some()
    }

    /// Sets how many datagrams one turn reads at most; at least 64.
    pub fn set_packets_per_turn(&mut self, packets: u32) {
        self.reading.set_packets(packets.max(64));
    }

    /// Sets how long one turn reads at most, from its first read on, with what the game does about events meanwhile; 8 ms
    /// at first. A turn reads one batch at least. What it leaves waits in the sockets, and the next wait ends at once.
    pub fn set_time_per_turn(&mut self, time: Duration) {
        self.reading.set_time(time);
    }

    /// How many turns have ended before all was read that waited, by the limits on a turn's packets and time. When it
    /// grows, more arrives than the server or its game can bear.
    #[must_use]
    pub const fn turns_cut_short(&self) -> u64 {
        self.reading.cut_short()
    }

    /// What may be known of a client, while it is connected: its id, address and user data.
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<ClientInfo<'_>> {
        self.core.netcode().client(client)
    }

    /// The handle of a client id, while it is connected to this shard.
    #[must_use]
    pub fn find(&self, client_id: u64) -> Option<ClientHandle> {
        self.core.netcode().find(client_id)
    }

    /// Every client of this shard of whose end no event has told, in the order of the slots. One that is kicked keeps its
    /// slot until it has heard why, and is not among them.
    pub fn clients(&self) -> impl Iterator<Item = ClientHandle> + '_ {
        self.core.clients()
    }

    /// How many clients have a slot of this shard. Those who were kicked, or whom a stop concerns, have theirs until they have
    /// heard why, so they are counted here, and are not among [`clients`](Self::clients) any more.
    #[must_use]
    pub fn connected(&self) -> u32 {
        self.core.netcode().connected()
    }

    /// The addresses that are bound, with the ports that the system chose.
    #[must_use]
    pub fn local_addresses(&self) -> Vec<std::net::SocketAddr> {
        self.sockets.local_addresses()
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        self.core.netcode().config()
    }

    /// How many datagrams were dropped, by reason.
    #[must_use]
    pub const fn discards(&self) -> &Discards {
        self.core.netcode().discards()
    }

    /// What the protocol has counted.
    #[must_use]
    pub const fn stats(&self) -> &Stats {
        self.core.netcode().stats()
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

    /// Gives a client in the same program a slot (host-and-play). Only where [`Traffic`] is `Payloads`; elsewhere the player
    /// who hosts connects by UDP as all others do, with a token.
    ///
    /// # Errors
    /// No slot is free, the client id is connected, or `WrongTraffic`.
    pub fn connect_loopback(&mut self, client_id: u64, user_data: UserData) -> Result<ClientHandle, LoopbackError> {
        let Traffic::Payloads = self.traffic() else { return Err(LoopbackError::WrongTraffic) };
        Ok(self.core.netcode_mut().connect_loopback(client_id, user_data, self.now)?)
    }

    /// The client's side in the same program: sends a payload to the game.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, or `Backlogged` when 256 payloads wait.
    pub fn loopback_send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), SendError> {
        Ok(self.core.netcode_mut().loopback_send(client, payload)?)
    }

    /// The client's side in the same program: takes the next payload of the game, and answers its length.
    pub fn loopback_receive(&mut self, client: ClientHandle, buffer: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        self.core.netcode_mut().loopback_receive(client, buffer)
    }

    pub(crate) fn poll_event(&mut self) -> Option<core::Event> {
        let event = self.core.poll_event()?;
        self.reporter.note(&event, &self.core);
        Some(event)
    }

    /// A payload that a client in the same program sent.
    pub(crate) fn poll_loopback(
        &mut self,
        buffer: &mut [u8; MAX_PAYLOAD_BYTES],
        scratch: &mut Vec<u8>,
    ) -> Option<Received> {
        loop {
            let (client, length) = self.core.netcode_mut().poll_loopback(buffer)?;
            let payload = buffer.get(..length).unwrap_or_default();
            if let Some(received) = self.core.handle_loopback(client, payload, scratch, self.now) {
                return Some(received);
            }
        }
    }

    /// Fills the batch; answers false when nothing waits or the turn has read enough.
    pub(crate) fn receive(&mut self, batch: &mut ReceiveBatch) -> bool {
        let (before, measured) = (self.turn.now().monotonic, self.turn.measured().monotonic);
        // Whatever was read before has been handled.
        self.core.caught_up(self.empty_at);
        if self.read_up || !self.reading.goes_on(measured) {
            // What was handled must not be found again.
            batch.clear();
            return false;
        }
        self.sockets.receive(batch);
        self.now = self.turn.now();
        self.read_up = self.sockets.is_drained();
        if self.read_up {
            self.empty_at = before;
        }
        self.reading.note(batch.len());
        !batch.is_empty()
    }

    pub(crate) fn handle(&mut self, from: Address, datagram: &mut [u8], scratch: &mut Vec<u8>) -> Option<Received> {
        self.core.handle(from, datagram, scratch, self.now).ok().flatten()
    }

    pub(crate) fn next(&mut self, datagram: &[u8], received: &mut Received, scratch: &mut Vec<u8>) -> Option<Message> {
        self.core.next(datagram, received, scratch, self.now)
    }
}

/// A server that is dropped, in order or by a panic of its game, says goodbye as one that is [stopped](Server::stop):
/// its clients hear of the end, and need not wait for their time-outs.
///
/// Where that panics as well, while a panic of the game unwinds already, the goodbye is left: a second panic would end the
/// process, and all other shards with it.
impl Drop for Server {
    fn drop(&mut self) {
        let mut goodbye = || {
            if self.clients().next().is_some() {
                self.stop();
            }
            self.end_turn();
        };
        if thread::panicking() {
            let _ = panic::catch_unwind(AssertUnwindSafe(goodbye));
        } else {
            goodbye();
        }
    }
}

#[cfg(test)]
mod tests;
