//! The UDP server: sockets around the session server, and the turn of a game loop.
//!
//! `start` creates servers, `accessors` reads their state, `shutdown` ends connections, and `client_ref` has everything
//! that concerns one client.

mod accessors;
mod client_ref;
mod shutdown;
mod start;
#[cfg(test)]
pub(crate) mod tests;

pub use self::client_ref::{ClientActivity, ClientRef, QueuedMessages};
pub use self::start::StartError;
pub(crate) use self::start::storage;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::discard::Discard;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, UserData};
use slipgate_os::clock::TurnTime;
use slipgate_os::pace::Wait;
use slipgate_os::turn_watch::TurnWatch;
use slipgate_session::channel::{ChannelId, SendOptions, SharedMessage};
use slipgate_session::congestion::BytesPerSecond;
use slipgate_session::connection::{CloseKind, Intake, SendError, SessionMessage, Traffic};
use slipgate_session::server::{BroadcastReport, ClientDatagram, SessionEvent, SessionServer};
use slipgate_udp::{
    BlockResults, BlockedSender, ReceiveBatch, SendBatch, Sockets, Waker, Wakeup, poll_coalesced, shorten_time_slice,
};

use crate::ReadLimits;
use crate::filter_changes::FilterChanges;
use crate::flood_guard::{DatagramResult, Excess, FloodAction, FloodGuard, ONE_IN, Screening};
use crate::frequent_clients::FrequentClients;
use crate::kernel_filter::KernelFilter;
use crate::loopback_error::LoopbackError;
use crate::memory_return::MemoryReturn;
use crate::new_clients::NewClients;
use crate::read_budget::ReadBudget;
use crate::receive_lag::ReceiveLag;
use crate::report::{Reporter, TurnCounters};

/// The estimated work of a turn, in nanoseconds, after which the replies so far leave: one client's work must not delay
/// the replies to all others.
const MAX_WORK_BEFORE_FLUSH: u64 = 250_000;
/// The blocked senders of an address family that each kernel has memory for.
const MIN_KERNEL_SENDERS: usize = 16;
/// The work of reading a datagram, in nanoseconds, which is all that many of a flood cause.
const READ_WORK: u64 = 700;

/// A netcode 1.02 server on UDP sockets.
///
/// A turn is [`begin_turn`](Self::begin_turn), events from an [`Inbox`](crate::Inbox), [`send`](Self::send),
/// [`end_turn`](Self::end_turn) and [`wait`](Self::wait). [`client`](Self::client) returns a [`ClientRef`] for
/// everything that concerns one client. The server logs connects and disconnects by `tracing`, and junk only as a
/// summary once a minute.
///
/// # Examples
/// ```no_run
/// use slipgate_server::keys::read_key_file;
/// use slipgate_server::{Clock, Server, ServerConfig, Sockets};
///
/// # fn start() -> Result<Server, Box<dyn std::error::Error>> {
/// let sockets = Sockets::bind(&["0.0.0.0:40000".parse()?])?;
/// let config = ServerConfig::new(0x1122_3344, 32, &["192.0.2.1:40000".parse()?]);
/// let server = Server::new(sockets, config, read_key_file("private.key")?, Clock::start().now())?;
/// # Ok(server)
/// # }
/// ```
pub struct Server {
    core: SessionServer,
    sockets: Sockets,
    outbox: SendBatch,
    turn: TurnTime,
    turn_watch: TurnWatch,
    /// The time of the last read or send in this turn.
    now: Now,
    frequent_clients: FrequentClients,
    read_budget: ReadBudget,
    /// The sockets were empty after the last read, and the server has not waited since.
    is_drained: bool,
    lag: ReceiveLag,
    kernel_filter: KernelFilter,
    flood_guard: FloodGuard,
    filter_changes: FilterChanges,
    /// The estimated work after which replies leave before more is read, and the work so far of reading datagrams.
    flush_at_work: u64,
    read_work: u64,
    /// The maximum of the next wait: messages may wait in the inbox.
    max_wait: Duration,
    /// This turn has not continued with such messages yet.
    is_parked_due: bool,
    reporter: Reporter,
    new_clients: NewClients,
    memory_return: MemoryReturn,
    /// Whether the uplink has a limit, on this shard or on another one of the same server.
    has_uplink_limit: Arc<AtomicBool>,
    /// The buffer in which values are encoded; allocated with the first one.
    #[cfg(feature = "typed")]
    pub(crate) typed_buf: Vec<u8>,
}

impl Server {
    /// Begins a turn at this time of the program's clock.
    pub fn begin_turn(&mut self, now: Now) {
        self.begin(now, TurnTime::begin);
        self.reporter.on_turn(self.now.monotonic);
    }

    /// Begins a turn in which the program's time stands still: everything in it happens at `now`, however long it
    /// takes. It is for programs with a virtual clock, such as replays and measurements. Their clients must use the
    /// same clock, or they measure the difference as a growing round-trip time. [`ReadLimits::max_time`] still uses the
    /// machine's clock.
    pub fn begin_still_turn(&mut self, now: Now) {
        self.begin(now, TurnTime::frozen);
    }

    fn begin(&mut self, now: Now, turn: impl FnOnce(Now) -> TurnTime) {
        // Time must not go back: the previous turn may have ended later than the program's clock says.
        let now = Now { monotonic: now.monotonic.max(self.now.monotonic), ..now };
        (self.turn, self.now) = (turn(now), now);
        self.read_budget.begin_turn();
        self.is_drained = false;
        self.is_parked_due = true;
    }

    fn turn_counters(&self) -> TurnCounters {
        let stats = self.core.stats();
        TurnCounters {
            turns_cut_short: self.read_budget.turns_cut_short(),
            packets_over_budget: stats.packets_over_budget + self.flood_guard.dropped(),
            packets_not_taken: stats.packets_not_taken,
        }
    }

    /// Encrypts a payload of 1 to 1200 bytes for a client. It leaves when the batch is full, or at the end of the turn.
    /// It requires [`Traffic::Payloads`].
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `Empty`, `TooLarge`: the payload has no byte, or more than 1200.
    /// - `Backlogged`: 256 payloads wait for a client in the same program.
    /// - `WrongTraffic`: the server carries packets or channels.
    pub fn send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), SendError> {
        match self.core.send_payload(client, payload, self.now, &mut self.outbox) {
            // The batch was full. Send it and try once more.
            Err(SendError::Backlogged) if !self.outbox.is_empty() => {
                self.sockets.send(&mut self.outbox);
                self.core.send_payload(client, payload, self.now, &mut self.outbox)
            }
            result => result,
        }
    }

    /// Queues a message on a client's channel. The bytes are copied once, and leave at the end of a turn, when
    /// congestion control allows. It requires [`Traffic::Channels`]. [`ClientRef::send_message_with`] takes options.
    ///
    /// # Errors
    /// - `Gone`: the client is not connected.
    /// - `TooLarge`: the message is larger than the channel's `max_message_bytes`.
    /// - `Backlogged`: the channel's queue is full.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of transfers.
    /// - `WrongTraffic`: the server carries no channels.
    pub fn send_message(&mut self, client: ClientHandle, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.core.connection_mut(client)?.send(channel, message, SendOptions::default(), self.now.monotonic)
    }

    /// Queues a message on this channel of every client. The bytes are stored once for all. A client with a full queue
    /// does not get the message, and the report counts it as refused; with [`for_each_client`](Self::for_each_client)
    /// the game sees each refusal.
    ///
    /// # Errors
    /// - `TooLarge`: the message is larger than the channel's `max_message_bytes`.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of transfers.
    /// - `WrongTraffic`: the server carries no channels.
    pub fn broadcast(&mut self, channel: ChannelId, message: &[u8]) -> Result<BroadcastReport, SendError> {
        self.core.broadcast(channel, message, None, SendOptions::default(), self.now)
    }

    /// Does the same as [`broadcast`](Self::broadcast) for every client but one, for example the author of a chat line.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_except(
        &mut self,
        channel: ChannelId,
        except: ClientHandle,
        message: &[u8],
    ) -> Result<BroadcastReport, SendError> {
        self.core.broadcast(channel, message, Some(except), SendOptions::default(), self.now)
    }

    /// Does the same as [`broadcast`](Self::broadcast) with bytes that other shards use too.
    pub(crate) fn broadcast_shared(
        &mut self,
        channel: ChannelId,
        message: SharedMessage,
        except: Option<ClientHandle>,
    ) -> Result<BroadcastReport, SendError> {
        self.core.broadcast(channel, message, except, SendOptions::default(), self.now)
    }

    /// Ends a turn: runs timers, sends what is due, and counts timeouts.
    pub fn end_turn(&mut self) {
        self.now = self.turn.now();
        self.flood_guard.on_tick(self.now.monotonic);
        self.turn_watch.on_end();
        // A client is silent only if everything that had arrived was handled.
        if self.lag.on_tick(self.now.monotonic) {
            self.core.tick(self.now);
        } else {
            self.core.tick_with_backlog(self.now);
        }
        self.core.drained_at = self.lag.drained_at();
        self.transmit();
        let turns = self.turn_counters();
        self.reporter.report(&mut self.core, &self.sockets, turns, self.now);
        if self.kernel_filter.adjust(&self.sockets, self.reporter.has_other_protocol(), self.now.monotonic) {
            self.block_senders();
        }
        self.memory_return.watch(&self.core.memory);
    }

    /// Sends what is due without ending the turn. A loop that wakes on every datagram calls it on arrival, and
    /// [`end_turn`](Self::end_turn) once per tick; [`Pace`](crate::Pace) says when a tick is due. The budgets of a turn
    /// last until it ends.
    pub fn flush(&mut self) {
        self.now = self.turn.now();
        self.turn_watch.on_flush(self.now.monotonic);
        self.transmit();
    }

    /// Sends what is due at `self.now`. The time is not read again, because a later one would count as another tick.
    fn transmit(&mut self) {
        self.flush_at_work = self.core.stats().work_done + self.read_work + MAX_WORK_BEFORE_FLUSH;
        loop {
            self.core.transmit(self.now, &mut self.outbox);
            let was_full = self.outbox.is_full();
            self.sockets.send(&mut self.outbox);
            if !was_full {
                break;
            }
        }
    }

    /// Sleeps until a datagram arrives or the time is over. It returns at once while datagrams wait in the sockets, or
    /// in an inbox that was not emptied. On Linux the first wait of a thread requests time slices of 0.25 ms for it
    /// ([`shorten_time_slice`]), so that a busy machine lets it run soon after a datagram has arrived.
    ///
    /// # Errors
    /// The error of the system call when the system cannot wait.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        shorten_time_slice();
        self.is_drained = false;
        let timeout = if self.lag.has_batch() { Duration::ZERO } else { timeout.min(self.max_wait) };
        if poll_coalesced(&mut self.sockets, timeout)? == Wakeup::Fresh {
            self.lag.on_wake(self.turn.now().monotonic);
        }
        Ok(())
    }

    /// Returns a handle that ends a [`wait`](Self::wait) from another thread.
    ///
    /// # Errors
    /// The error of the system call when the system has no handle left.
    pub fn waker(&mut self) -> io::Result<Waker> {
        self.sockets.waker()
    }

    /// Sets whether new clients get a slot; at first they do. Otherwise they are denied as on a full server, and try
    /// the next server of their token.
    pub fn accept_new_clients(&mut self, accept: bool) {
        self.core.netcode.accept_new_clients(accept);
    }

    /// Replaces the private keys, newest first. Connected clients are not affected.
    pub fn set_keys(&mut self, keys: KeyRing) {
        self.core.netcode.set_keys(keys);
        self.reporter.on_new_keys();
    }

    /// Shares an uplink of this rate among all clients by their [weights](ClientRef::set_weight); `None`, the default,
    /// sets no limit. A client gets at least its share, and others get what it does not use. The rate is that of the
    /// whole server if there are [shards](Self::shards), and any shard may set it. Unused shares go to clients of the
    /// same shard first.
    ///
    /// The limit holds back messages on channels only. Payloads, acknowledged packets and acknowledgements leave at
    /// once, and the messages share what they leave.
    pub fn set_uplink(&mut self, rate: Option<BytesPerSecond>) {
        self.has_uplink_limit.store(rate.is_some(), Ordering::Relaxed);
        self.core.set_uplink(rate);
    }

    /// Sets how much one turn reads at most.
    pub fn set_read_limits(&mut self, limits: ReadLimits) {
        self.read_budget.set_limits(limits);
    }

    /// Switches the kernel's packet filter on or off. It is on from the start where the system supports it, which is
    /// Linux. The filter drops datagrams of the wrong length, type, version or protocol id before they wake the server.
    /// Requests for another protocol id pass until the log has warned of them, and again after 5 minutes. Dropped ones
    /// count as [`dropped_by_system`](crate::sockets::SocketStats::dropped_by_system) and no longer as
    /// [`discards`](Self::discards).
    ///
    /// # Errors
    /// `Unsupported` on systems without filters, otherwise the error of the system call. The filter is then as it was:
    /// `sockets().filter()` returns it.
    pub fn set_kernel_filter(&mut self, on: bool) -> io::Result<()> {
        let protocol_id = self.core.netcode.config().protocol_id;
        if !on {
            return self.kernel_filter.switch_off(&self.sockets);
        }
        self.kernel_filter.switch_on(&self.sockets, protocol_id)?;
        // Another filter ends all blocks.
        self.block_senders();
        Ok(())
    }

    /// Gives a client in the same program a slot: a player hosts the game. It requires [`Traffic::Payloads`];
    /// with other traffic that player connects by UDP with a token. [`ClientRef::loopback_send`] and
    /// [`ClientRef::loopback_receive`] are the client's end.
    ///
    /// # Errors
    /// `Full`, `ClientIdConnected` or `WrongTraffic`.
    pub fn connect_loopback(
        &mut self,
        client_id: impl Into<ClientId>,
        user_data: UserData,
    ) -> Result<ClientHandle, LoopbackError> {
        let Traffic::Payloads = self.core.traffic() else { return Err(LoopbackError::WrongTraffic) };
        Ok(self.core.connect_loopback(client_id.into(), user_data, self.now)?)
    }

    /// Sets whether the packets of a client are refused, where traffic is on channels.
    pub(crate) fn set_intake(&mut self, client: ClientHandle, intake: Intake) {
        self.core.set_intake(client, intake);
    }

    pub(crate) const fn count_event(&mut self) {
        self.read_budget.on_event();
    }

    pub(crate) fn poll_event(&mut self) -> Option<SessionEvent> {
        let event = self.core.poll_event()?;
        if let SessionEvent::Disconnected { client, reason, .. } = &event
            && matches!(reason.kind, CloseKind::Violation(_) | CloseKind::NotASession)
            // The session waits for an acknowledgement of its end, so netcode still has the client.
            && let Some(from) = self.core.netcode.client(*client).and_then(|info| info.address)
        {
            self.flood_guard.on_violation(from, self.now.monotonic);
        }
        if let SessionEvent::Connected { client, client_id } = &event {
            self.new_clients.add(*client, *client_id);
        }
        self.reporter.on_event(&event, &mut self.core, self.now);
        Some(event)
    }

    /// Takes the next payload of a client in the same program.
    pub(crate) fn poll_loopback(
        &mut self,
        buf: &mut [u8; MAX_PAYLOAD_BYTES],
        scratch: &mut Vec<u8>,
    ) -> Option<ClientDatagram> {
        loop {
            let (client, length) = self.core.netcode.poll_loopback(buf)?;
            let payload = buf.get(..length).unwrap_or_default();
            if let Some(received) = self.core.handle_loopback(client, payload, scratch, self.now) {
                return Some(received);
            }
        }
    }

    /// Fills the batch. Returns false when the sockets are empty or the turn has read its limit.
    pub(crate) fn receive(&mut self, batch: &mut ReceiveBatch) -> bool {
        let (before, measured) = (self.turn.now().monotonic, self.turn.measured().monotonic);
        self.lag.on_request();
        self.core.drained_at = self.lag.drained_at();
        if self.is_drained || !self.read_budget.may_read(measured) {
            if self.is_drained {
                self.lag.on_sockets_empty();
            } else {
                self.lag.on_limit_reached(before);
            }
            // The inbox must not find the handled datagrams again.
            batch.clear();
            return false;
        }
        self.sockets.receive(batch);
        self.now = self.turn.now();
        self.flood_guard.on_read(self.now.monotonic);
        if self.flood_guard.end_blocks(self.now.monotonic) || self.filter_changes.is_due() {
            self.block_senders();
        }
        self.is_drained = self.sockets.is_drained();
        self.lag.on_batch(batch.len(), self.is_drained.then_some(before));
        self.read_budget.on_read(batch.len());
        self.read_work += batch.len() as u64 * READ_WORK;
        self.flush_after_work();
        !batch.is_empty()
    }

    /// Sends the replies so far if the turn has done much work since the last time.
    #[inline]
    fn flush_after_work(&mut self) {
        if self.core.stats().work_done + self.read_work >= self.flush_at_work {
            self.transmit();
        }
    }

    /// Returns whether messages that were set aside may be taken now. The replies so far leave before, and what has
    /// arrived is read after some of them.
    pub(crate) fn begin_parked(&mut self) -> bool {
        let may_go_on = self.read_budget.may_read(self.turn.measured().monotonic);
        if may_go_on {
            self.flush();
            self.is_drained = false;
        }
        may_go_on
    }

    /// Returns whether this turn has not continued yet with datagrams that were set aside. It does so however much
    /// arrives.
    pub(crate) const fn is_parked_due(&self) -> bool {
        self.is_parked_due
    }

    /// Records that this turn has continued with them.
    pub(crate) const fn end_parked_due(&mut self) {
        self.is_parked_due = false;
    }

    /// Sets the maximum of the next wait, because messages wait in the inbox.
    pub(crate) const fn set_max_wait(&mut self, max_wait: Duration) {
        self.max_wait = max_wait;
    }

    pub(crate) fn handle(
        &mut self,
        from: Address,
        datagram: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Option<ClientDatagram> {
        let one_in = if self.kernel_filter == KernelFilter::Off { 1 } else { ONE_IN };
        match self.flood_guard.screen(from, datagram, one_in, self.now.monotonic) {
            Screening::Passes => {}
            Screening::Dropped => {
                self.sockets.count_dropped(1);
                return None;
            }
            Screening::Blocks => {
                self.sockets.count_dropped(1);
                self.block_senders();
                return None;
            }
        }
        let refused_before = self.core.stats().packets_over_budget;
        let handled = self.core.handle(from, datagram, scratch, self.now);
        let outcome = match &handled {
            Err(Discard::ClientBudget) => DatagramResult::Excess(Excess::Client),
            // A closing handshake takes ten packets, and the guard lets 256 of a leaving client pass in 16 ms.
            Err(Discard::UnknownSender | Discard::ConnectionEnded) => DatagramResult::Excess(Excess::Stranger),
            Err(_) => DatagramResult::Junk,
            Ok(_) if self.core.stats().packets_over_budget > refused_before => DatagramResult::Excess(Excess::Client),
            Ok(_) => DatagramResult::Accepted,
        };
        if outcome != DatagramResult::Accepted {
            self.sockets.count_dropped(1);
        } else if self.is_frequent(from) {
            self.sockets.exclude_from_rate(1);
        }
        self.on_handled(from, datagram, outcome);
        handled.ok().flatten()
    }

    /// Counts a datagram that was accepted. Returns whether its client sends so often that it would delay the wakeups
    /// for all.
    #[inline]
    fn is_frequent(&mut self, from: Address) -> bool {
        let Some(client) = self.core.netcode.find_at(from) else { return false };
        self.frequent_clients.add(client.slot(), self.now.monotonic)
    }

    #[inline]
    fn on_handled(&mut self, from: Address, datagram: &[u8], outcome: DatagramResult) {
        let netcode = &self.core.netcode;
        let next = || Some(netcode.client(netcode.find_at(from)?)?.next_sequence);
        let action = self.flood_guard.on_handled(from, datagram, outcome, next, self.now.monotonic);
        if action == FloodAction::End
            && let Some(client) = self.core.netcode.find_at(from)
        {
            self.core.set_intake(client, Intake::Flooded);
        }
        if action != FloodAction::Nothing {
            self.block_senders();
        }
    }

    /// Lets the kernel drop the datagrams of the senders that are blocked now. A change that would come too soon is
    /// made before a later read; until then the server drops these datagrams itself.
    fn block_senders(&mut self) {
        if !self.filter_changes.take(self.now.monotonic) {
            return;
        }
        let senders = self.flood_guard.blocked();
        let refused = block_in_kernel(&senders, |senders| self.sockets.block_senders(senders));
        self.flood_guard.set_refused(&refused);
    }

    pub(crate) fn may_deliver(&mut self, received: &ClientDatagram, in_a_row: u32) -> bool {
        self.core.may_deliver(received, in_a_row, self.now)
    }

    pub(crate) fn next(
        &mut self,
        datagram: &[u8],
        received: &mut ClientDatagram,
        scratch: &mut Vec<u8>,
    ) -> Option<SessionMessage> {
        self.flush_after_work();
        self.core.next_message(datagram, received, scratch, self.now)
    }
}

/// Blocks these senders in the kernel, or the first 16 of an address family of which the kernel refuses all. Older
/// kernels have memory for about 16 IPv6 senders. Returns the others: the server drops their datagrams.
fn block_in_kernel(
    senders: &[BlockedSender],
    mut block: impl FnMut(&[BlockedSender]) -> BlockResults,
) -> Vec<BlockedSender> {
    let first = block(senders);
    if first.v4.is_ok() && first.v6.is_ok() {
        return Vec::new();
    }
    let (mut v4, mut v6) = (0, 0);
    let (fewer, others): (Vec<_>, Vec<_>) = senders.iter().copied().partition(|sender| {
        let (result, count) = if sender.address.is_ipv4() { (&first.v4, &mut v4) } else { (&first.v6, &mut v6) };
        *count += 1;
        result.is_ok() || *count <= MIN_KERNEL_SENDERS
    });
    let second = block(&fewer);
    let is_unknown = |sender: &BlockedSender| {
        let (first, second) = if sender.address.is_ipv4() { (&first.v4, &second.v4) } else { (&first.v6, &second.v6) };
        // After a second refusal it is unknown which senders of the family the kernel drops.
        first.is_err() && second.is_err()
    };
    others.into_iter().chain(fewer.into_iter().filter(is_unknown)).collect()
}

impl Wait for Server {
    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        Self::wait(self, timeout)
    }
}
