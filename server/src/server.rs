//! The server: sockets around the protocol's server, and the turn of a game loop.
//!
//! How it starts stands in `start`, what is known of it in `known`, and how connections end by its will in `leave`.

mod known;
mod leave;
mod start;
#[cfg(test)]
mod tests;

pub use self::start::StartError;
pub(crate) use self::start::{fence, storage};

use std::io;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, UserData};
use slipgate_os::clock::TurnTime;
use slipgate_session::channel::block::{Block, BlockId};
use slipgate_session::channel::{ChannelId, SendOptions};
use slipgate_session::congestion::{BytesPerSecond, Weight};
use slipgate_session::server::{self as core, Message, Received};
use slipgate_session::session::{Connection, SendError, Traffic};
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::{ReceiveBatch, SendBatch, Sockets, Waker, Woke, nap};

use crate::filtering::Filtering;
use crate::loopback_error::LoopbackError;
use crate::reading::Reading;
use crate::report::Reporter;
use crate::unread::Unread;

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
    unread: Unread,
    filtering: Filtering,
    reporter: Reporter,
    /// Where values become messages; taken with the first one.
    pub(crate) typed_room: Vec<u8>,
}

impl Server {
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

    /// A client's share of the uplink compared with others, 1 at first. It is kept as long as the client is connected,
    /// whatever limit the uplink has meanwhile, or none. Answers whether the client is connected.
    pub fn set_weight(&mut self, client: ClientHandle, weight: Weight) -> bool {
        self.core.set_weight(client, weight)
    }

    /// As [`connection`](Self::connection): to accept, refuse, cancel and keep blocks.
    pub fn connection_mut(&mut self, client: ClientHandle) -> Option<&mut Connection> {
        self.core.connection_mut(client)
    }

    /// Ends a turn: what is due happens, and everything that waits leaves.
    pub fn end_turn(&mut self) {
        self.now = self.turn.now();
        if self.unread.tick(self.now.monotonic) {
            self.core.tick(self.now);
        } else {
            self.core.tick_unread(self.now);
        }
        self.core.caught_up(self.unread.caught_up_at());
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

    /// Sleeps until a datagram arrives or the time is over. It does not sleep while some wait, in the sockets or in an inbox
    /// that was not asked until it had no more.
    ///
    /// # Errors
    /// When the system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.read_up = false;
        let timeout = if self.unread.is_in_hand() { Duration::ZERO } else { timeout };
        if nap(&mut self.sockets, timeout)? == Woke::Fresh {
            self.unread.note_sleep(self.turn.now().monotonic);
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
    /// is counted in [`SocketStats::dropped_by_system`](crate::SocketStats::dropped_by_system), and no more in
    /// [`discards`](Self::discards). So is what the receive buffer had no room for: [`Sockets::overflow_at_most`] tells the
    /// two apart.
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
        self.unread.ask();
        self.core.caught_up(self.unread.caught_up_at());
        if self.read_up || !self.reading.goes_on(measured) {
            if self.read_up {
                self.unread.give_nothing();
            } else {
                self.unread.give_no_more(before);
            }
            // What was handled must not be found again.
            batch.clear();
            return false;
        }
        self.sockets.receive(batch);
        self.now = self.turn.now();
        self.read_up = self.sockets.is_drained();
        self.unread.give(batch.len(), self.read_up.then_some(before));
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
