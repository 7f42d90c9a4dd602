//! A server on several threads: threads that run the shards, and a server for a game loop on a thread of its own.
//!
//! [`ShardThreads`] run one game on each shard. [`ShardedServer`] passes the events of all shards to one game loop:
//! ```text
//!                                 ┌─ events ────◀ thread "shard-0": ShardBridge ─ Server
//!   game's thread ─ ShardedServer ┤  commands ──▶
//!                                 ├─ events ────◀ thread "shard-1": ShardBridge ─ Server
//!                                 └─ commands ──▶
//! ```
//!
//! The queues are bounded and allocated once; a payload takes no lock and allocates nothing. When a queue is full:
//!
//! | direction | content | result |
//! | --- | --- | --- |
//! | to the game | connects, disconnects, messages on channels | stay in the shard, which stops reading |
//! | to the game | payloads | are dropped and counted |
//! | to the clients | anything | is refused: `Backlogged` |
//!
//! Path statistics do not use the queues: each shard writes a table once a tick, and the game reads the newest.

mod bridge;
mod path_table;
mod spsc;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use slipgate_netcode::address::Address;
use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::ids::{ClientId, ClientIndex};
use slipgate_netcode::wire::{MAX_PAYLOAD_BYTES, USER_DATA_BYTES, UserData};
use slipgate_os::clock::Clock;
use slipgate_session::channel::transfer::Transfer;
use slipgate_session::channel::{ChannelId, Kind, Remaining, SendOptions, SharedMessage};
use slipgate_session::connection::{Budget, CloseCode, PathStats, SendError, Traffic};

use self::bridge::{BridgeCounters, ClientFacts, Command, ShardBridge, ShardEvent};
use self::path_table::{PathReader, path_table};
use self::spsc::{QueueConsumer, QueueProducer, queue};
pub use crate::shard_threads::{AppPanic, ShardApp, ShardThreads, ShardsReport};
use crate::{BroadcastReport, ClientHandle, Event, Server, ServerTotals};
pub use slipgate_netcode::server::{MAX_SHARDS, ShardId};

/// The maximum bytes of the text for a kicked player.
const MAX_TEXT_BYTES: usize = 256;
/// Events taken from one shard before the next one has its turn.
const MAX_EVENTS_IN_A_ROW: u32 = 256;

/// The sizes of the queues between the game and each shard. Each direction has one of each size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardedServerConfig {
    /// Queued events, payloads and messages: 16,384, at least 64.
    pub entries: usize,
    /// Queued bytes of payloads and messages: 4 MiB, at least 16 KiB and two of the largest messages.
    pub bytes: usize,
    /// How often shards write path statistics, which they do with channels only. 0, the default, is once a tick.
    /// Writing takes time for each client, so a game with thousands of clients that does not read them sets a longer
    /// interval.
    pub paths_interval: Duration,
}

impl Default for ShardedServerConfig {
    fn default() -> Self {
        Self { entries: 1 << 14, bytes: 4 << 20, paths_interval: Duration::ZERO }
    }
}

/// Why a sharded server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShardedServerError {
    /// A queue is too small; see [`ShardedServerConfig`].
    Config,
    /// The shards carry acknowledged packets, which need [`ShardThreads`]: a packet's sequence number is known on its
    /// shard.
    Packets,
    /// The list of shards is empty.
    NoShard,
    /// The shards carry different traffic or layouts.
    Mixed,
    /// The system has no thread left, or no handle for a waker.
    Io(io::Error),
}

impl fmt::Display for ShardedServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str("the queues are too small for the largest message"),
            Self::Packets => f.write_str("a sharded server carries payloads or channels, not acknowledged packets"),
            Self::NoShard => f.write_str("a sharded server needs at least one shard"),
            Self::Mixed => f.write_str("all shards must carry payloads, or the same channels"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ShardedServerError {}

impl From<io::Error> for ShardedServerError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A connected client, as the game's thread knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardClient {
    /// Its handle, which names its shard.
    pub client: ClientHandle,
    /// The client id of its token.
    pub client_id: ClientId,
    /// Its index among the clients of all shards, from 0.
    pub index: ClientIndex,
    /// The address of its packets; `None` for a client in the same program.
    pub address: Option<Address>,
    /// The 256 bytes that the backend wrote into its token.
    pub user_data: UserData,
}

/// The losses of a shard since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ShardCounts {
    /// Payloads of clients that found the queue to the game full.
    pub payloads_dropped: u64,
    /// Payloads of the game that the shard could not send, for example because the client had left.
    pub payloads_not_sent: u64,
    /// Messages of broadcasts that the shard could not queue, because the client's queue was full. Each client counts.
    pub broadcasts_not_sent: u64,
    /// How often the shard stopped reading because the queue to the game was full.
    pub pauses: u64,
    /// Events that the game did not take within 5 s of the shard's end.
    pub events_lost: u64,
    /// Commands that a shard did not execute at its end, because the game did not take its events within 5 s.
    pub commands_lost: u64,
}

/// A client on the game's thread.
struct ClientEntry {
    info: ShardClient,
    /// The game has disconnected it: the only events that follow are its partial transfers and its end.
    is_closing: bool,
}

/// The game's end of one shard.
struct ShardLink {
    events: QueueConsumer<ShardEvent>,
    commands: QueueProducer<Command>,
    paths: PathReader,
    counters: Arc<BridgeCounters>,
    /// Indexed by the slot on the shard.
    clients: Vec<Option<ClientEntry>>,
    /// The maximum bytes of queued broadcasts, which are not in the queue's ring of bytes.
    max_broadcast_bytes: usize,
    /// Commands were queued since the shard was woken.
    needs_wake: bool,
}

/// All shards of a server, for a game loop on a thread of its own. Dropping it without [`stop`](Self::stop) stops the
/// shards as well: they execute the commands that are queued, and the last events are lost.
///
/// A tick is events from [`next_event`](Self::next_event), [`send`](Self::send), and [`flush`](Self::flush).
///
/// # Examples
/// ```no_run
/// use std::time::Duration;
///
/// use slipgate_server::sharded::{ShardedServer, ShardedServerConfig, ShardedServerError};
/// use slipgate_server::{Clock, Event, Server};
///
/// # fn run(shards: Vec<Server>, clock: Clock) -> Result<(), ShardedServerError> {
/// let tick = Duration::from_millis(16);
/// let mut server = ShardedServer::start(shards, clock, tick, ShardedServerConfig::default())?;
/// let mut players = Vec::new();
/// while server.is_running() {
///     while let Some(event) = server.next_event() {
///         match event {
///             Event::Connected { client, .. } => players.push(client),
///             Event::Payload { client, bytes, .. } => println!("{} bytes of {client:?}", bytes.len()),
///             Event::Disconnected { client, .. } => players.retain(|player| *player != client),
///             _ => {}
///         }
///     }
///     for player in &players {
///         // `Backlogged` if the shard is behind: the next tick has newer state.
///         let _ = server.send(*player, b"the state of the world");
///     }
///     server.flush();
///     std::thread::sleep(tick);
/// }
/// # Ok(())
/// # }
/// ```
pub struct ShardedServer {
    /// Dropped before the threads, so that a shard that ends does not wait for the game.
    links: Vec<ShardLink>,
    threads: ShardThreads,
    traffic: Traffic,
    current_shard: usize,
    events_in_a_row: u32,
    connected: u32,
    /// The buffer in which values are encoded; allocated with the first one.
    #[cfg(feature = "typed")]
    pub(crate) typed_buf: Vec<u8>,
}

impl ShardedServer {
    /// Starts one thread for each shard, as [`ShardThreads::start`] does.
    ///
    /// # Errors
    /// - `NoShard`, `Mixed`, `Packets`: `shards` is empty, carries different traffic, or carries packets.
    /// - `Config`: a queue is too small.
    /// - `Io`: the system has no thread or waker left.
    pub fn start(
        shards: Vec<Server>,
        clock: Clock,
        tick: Duration,
        config: ShardedServerConfig,
    ) -> Result<Self, ShardedServerError> {
        let traffic = shards.first().ok_or(ShardedServerError::NoShard)?.traffic().clone();
        if !shards.iter().all(|shard| is_same(shard.traffic(), &traffic)) {
            return Err(ShardedServerError::Mixed);
        }
        let max_bytes = max_command_bytes(&traffic).ok_or(ShardedServerError::Packets)?;
        if config.entries < 64 || config.bytes < (2 * max_bytes).max(16 << 10) {
            return Err(ShardedServerError::Config);
        }
        let mut links = Vec::with_capacity(shards.len());
        let mut pairs = Vec::with_capacity(shards.len());
        for shard in shards {
            let (event_producer, events) = queue(config.entries, config.bytes);
            let (commands, command_consumer) = queue(config.entries, config.bytes);
            let counters = Arc::<BridgeCounters>::default();
            let (writer, paths) = path_table(&traffic, config.paths_interval);
            let bridge = ShardBridge::new(event_producer, command_consumer, writer, &traffic, Arc::clone(&counters));
            pairs.push((shard, bridge));
            links.push(ShardLink {
                events,
                commands,
                paths,
                counters,
                clients: Vec::new(),
                max_broadcast_bytes: config.bytes,
                needs_wake: false,
            });
        }
        Ok(Self {
            links,
            threads: ShardThreads::start_each(pairs, clock, tick)?,
            traffic,
            current_shard: 0,
            events_in_a_row: 0,
            connected: 0,
            #[cfg(feature = "typed")]
            typed_buf: Vec::new(),
        })
    }

    /// Returns the next event of any shard, `None` when there is none. The events of one client are in order. Once the
    /// game has disconnected a client, only its partial transfers and its `Disconnected` follow.
    pub fn next_event(&mut self) -> Option<Event<'_>> {
        let event = self.pop_event();
        if event.is_none() {
            // The game composes its tick next, and needs the newest paths for it.
            self.links.iter_mut().for_each(|link| link.paths.refresh());
        }
        self.receive(event?)
    }

    /// Pops the next event that the game receives.
    fn pop_event(&mut self) -> Option<ShardEvent> {
        for _ in 0..=self.links.len() {
            let link = self.links.get_mut(self.current_shard)?;
            while self.events_in_a_row < MAX_EVENTS_IN_A_ROW
                && let Some(event) = link.events.pop()
            {
                self.events_in_a_row += 1;
                if !link.drops(&event.event) {
                    return Some(event);
                }
            }
            self.events_in_a_row = 0;
            self.current_shard = (self.current_shard + 1) % self.links.len();
        }
        None
    }

    fn receive(&mut self, event: ShardEvent) -> Option<Event<'_>> {
        let link = self.links.get_mut(self.current_shard)?;
        let bytes = link.events.body();
        match (&event.event, event.info) {
            (Event::Connected { client, client_id }, Some(ClientFacts { index, address })) => {
                let user_data: UserData = bytes.try_into().unwrap_or([0; USER_DATA_BYTES]);
                let info = ShardClient { client: *client, client_id: *client_id, index, address, user_data };
                let slot = client.slot().0 as usize;
                if slot >= link.clients.len() {
                    link.clients.resize_with(slot + 1, || None);
                }
                if let Some(entry) = link.clients.get_mut(slot) {
                    *entry = Some(ClientEntry { info, is_closing: false });
                    self.connected += 1;
                }
            }
            (Event::Disconnected { client, .. }, _) => {
                let entry = link.clients.get_mut(client.slot().0 as usize);
                if entry.and_then(|entry| entry.take_if(|entry| entry.info.client == *client)).is_some() {
                    self.connected -= 1;
                }
            }
            _ => {}
        }
        Some(event.event.with_bytes(bytes))
    }

    // Sending -------------------------------------------------------------------------------------------------------

    /// Passes a payload of 1 to 1200 bytes to its client's shard, which sends it after [`flush`](Self::flush). It
    /// requires [`Traffic::Payloads`].
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `Empty`, `TooLarge`: the payload has no byte, or more than 1200.
    /// - `Backlogged`: the queue to the shard is full.
    /// - `WrongTraffic`: the shards carry channels.
    pub fn send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), SendError> {
        let Traffic::Payloads = self.traffic else { return Err(SendError::WrongTraffic) };
        match payload.len() {
            0 => Err(SendError::Empty),
            byte_count @ 1..=MAX_PAYLOAD_BYTES => self.push(client, Command::Payload { client, byte_count }, payload),
            _ => Err(SendError::TooLarge),
        }
    }

    /// Passes a message to its client's shard, which queues it on a channel. It requires [`Traffic::Channels`]. If the
    /// channel's queue is full there, or the client has left, [`Event::NotSent`] reports it.
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `TooLarge`: the message is larger than the channel's `max_message_bytes`.
    /// - `Backlogged`: the queue to the shard is full.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of transfers.
    /// - `WrongTraffic`: the shards carry payloads.
    pub fn send_message(&mut self, client: ClientHandle, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        self.send_message_with(client, channel, message, SendOptions::default())
    }

    /// Passes a message with a deadline, a key by which newer messages replace older ones, or a receipt. A receipt
    /// reports nothing if [`Event::NotSent`] does.
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
        self.check_message(channel, message)?;
        self.push(client, Command::Message { client, channel, options, byte_count: message.len() }, message)
    }

    fn check_message(&self, channel: ChannelId, message: &[u8]) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        let settings = layout.channel(channel).ok_or(SendError::NoChannel)?;
        if settings.kind == Kind::Transfers {
            return Err(SendError::WrongKind);
        }
        if message.len() > settings.max_message_bytes as usize { Err(SendError::TooLarge) } else { Ok(()) }
    }

    /// Passes a message to every shard, which queues it for all its clients. The bytes are stored once for all of them.
    /// Clients with a `Connected` event that the game has not taken yet receive it too.
    ///
    /// The report counts the clients that the game knows, at the time of the call: `queued` on shards that accepted the
    /// command, `refused` on shards with a full queue of commands. A client whose own queue is full when its shard
    /// executes the command is counted in [`broadcasts_not_sent`](ShardCounts::broadcasts_not_sent), not here. A game
    /// that must know which client it was uses [`send_message`](Self::send_message) for each.
    ///
    /// # Errors
    /// `TooLarge`, `NoChannel`, `WrongKind` or `WrongTraffic`, as [`send_message`](Self::send_message).
    pub fn broadcast(&mut self, channel: ChannelId, message: &[u8]) -> Result<BroadcastReport, SendError> {
        self.broadcast_to(None, channel, message)
    }

    /// Does the same as [`broadcast`](Self::broadcast) for every client but one.
    ///
    /// # Errors
    /// As [`broadcast`](Self::broadcast).
    pub fn broadcast_except(
        &mut self,
        channel: ChannelId,
        except: ClientHandle,
        message: &[u8],
    ) -> Result<BroadcastReport, SendError> {
        self.broadcast_to(Some(except), channel, message)
    }

    fn broadcast_to(
        &mut self,
        except: Option<ClientHandle>,
        channel: ChannelId,
        message: &[u8],
    ) -> Result<BroadcastReport, SendError> {
        self.check_message(channel, message)?;
        let (message_bytes, message) = (message.len(), SharedMessage::from(message));
        let mut report = BroadcastReport::default();
        for link in &mut self.links {
            let open = link.clients.iter().flatten().filter(|entry| !entry.is_closing);
            let count = open.filter(|entry| Some(entry.info.client) != except).count() as u32;
            let command = Command::Broadcast { channel, message: message.clone(), message_bytes, except };
            match link.push_broadcast(command, message_bytes) {
                Ok(()) => report.queued += count,
                Err(_) => report.refused += count,
            }
        }
        Ok(report)
    }

    /// Passes a transfer to its client's shard, which starts it on a channel of transfers. The client receives `label`
    /// with it. The content is shared, not copied, so that one transfer may go to every client. [`Event::Started`]
    /// reports the id, or [`Event::NotSent`] the label if too many transfers wait or the client has left.
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `Backlogged`: the queue to the shard is full.
    /// - `NoChannel`, `WrongKind`: the layout has no such channel, or it is a channel of messages.
    /// - `WrongTraffic`: the shards carry payloads.
    pub fn send_transfer(
        &mut self,
        client: ClientHandle,
        channel: ChannelId,
        transfer: Transfer,
        label: u64,
    ) -> Result<(), SendError> {
        let Traffic::Channels(layout, _) = &self.traffic else { return Err(SendError::WrongTraffic) };
        if layout.channel(channel).ok_or(SendError::NoChannel)?.kind != Kind::Transfers {
            return Err(SendError::WrongKind);
        }
        self.push(client, Command::Transfer { client, channel, transfer, label }, &[])
    }

    /// Disconnects a client at once, without a text. The only events that follow are its partial transfers and its
    /// `Disconnected`. It also frees the slot of a client that was kicked before.
    ///
    /// # Errors
    /// - `Gone`: the client's `Disconnected` event was taken.
    /// - `Backlogged`: the queue to the shard is full.
    pub fn disconnect(&mut self, client: ClientHandle) -> Result<(), SendError> {
        let link = self.links.get_mut(usize::from(client.shard().0)).ok_or(SendError::Gone)?;
        link.entry_mut(client).ok_or(SendError::Gone)?;
        link.push_close(client, Command::Disconnect { client }, &[])
    }

    /// Disconnects a client with a text of up to 256 bytes for the player; see [`Server::kick`]. The only events that
    /// follow are its partial transfers and its `Disconnected`.
    ///
    /// # Errors
    /// - `Gone`: the game has disconnected the client, or its `Disconnected` event was taken.
    /// - `TooLarge`: the text has more than 256 bytes.
    /// - `Backlogged`: the queue to the shard is full.
    pub fn kick(&mut self, client: ClientHandle, text: &str) -> Result<(), SendError> {
        self.kick_with(client, CloseCode::KICKED, text)
    }

    /// Disconnects a client with a code for its program and a text; see
    /// [`ClientRef::kick_with`](crate::ClientRef::kick_with).
    ///
    /// # Errors
    /// As [`kick`](Self::kick).
    pub fn kick_with(&mut self, client: ClientHandle, code: CloseCode, text: &str) -> Result<(), SendError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(SendError::TooLarge);
        }
        let link = self.open_link(client)?;
        link.push_close(client, Command::Kick { client, code, byte_count: text.len() }, text.as_bytes())
    }

    /// Runs a closure on a shard's thread with its [`Server`], for what this type does not offer: weights, the progress
    /// of transfers. It runs after what was sent before, also if [`stop`](Self::stop) follows at once. It allocates, so
    /// it is not for single messages.
    ///
    /// # Errors
    /// - `Backlogged`: the queue to the shard is full.
    /// - `Gone`: there is no such shard.
    pub fn on_shard(
        &mut self,
        shard: ShardId,
        work: impl FnOnce(&mut Server) + Send + 'static,
    ) -> Result<(), SendError> {
        let link = self.links.get_mut(usize::from(shard.0)).ok_or(SendError::Gone)?;
        link.push(Command::Run(Box::new(work)), &[])
    }

    fn push(&mut self, client: ClientHandle, command: Command, body: &[u8]) -> Result<(), SendError> {
        self.open_link(client)?.push(command, body)
    }

    /// Returns the shard of a client that the game has not disconnected.
    fn open_link(&mut self, client: ClientHandle) -> Result<&mut ShardLink, SendError> {
        let link = self.links.get_mut(usize::from(client.shard().0)).ok_or(SendError::Gone)?;
        let entry = link.entry_mut(client).ok_or(SendError::Gone)?;
        if entry.is_closing { Err(SendError::Gone) } else { Ok(link) }
    }

    /// Wakes the shards with queued commands, once a tick, because it is a system call for each of them. Otherwise a
    /// shard executes them at its next tick.
    pub fn flush(&mut self) {
        for (shard, link) in (0..).zip(&mut self.links) {
            if std::mem::take(&mut link.needs_wake) {
                self.threads.wake(ShardId(shard));
            }
        }
    }

    // State and shutdown --------------------------------------------------------------------------------------------

    /// Returns a client, from its `Connected` to its `Disconnected` event.
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<&ShardClient> {
        self.links.get(usize::from(client.shard().0))?.client(client)
    }

    /// Returns all clients, each from its `Connected` to its `Disconnected` event, also while it is being disconnected.
    pub fn clients(&self) -> impl Iterator<Item = &ShardClient> {
        self.links.iter().flat_map(|link| link.clients.iter().flatten().map(|entry| &entry.info))
    }

    /// Returns the number of [`clients`](Self::clients).
    #[must_use]
    pub const fn connected(&self) -> u32 {
        self.connected
    }

    /// Returns the state of a client's path; see [`ClientRef::path`](crate::ClientRef::path). It is as old as the last
    /// table of the shard when [`next_event`](Self::next_event) returned `None`: one tick, or
    /// [`paths_interval`](ShardedServerConfig::paths_interval). `None` with [`Traffic::Payloads`], and for a client
    /// that has just connected.
    #[must_use]
    pub fn path(&self, client: ClientHandle) -> Option<PathStats> {
        Some(self.link_of(client)?.paths.row(client)?.path)
    }

    /// Returns how much may leave for a client in a tick; see [`ClientRef::budget`](crate::ClientRef::budget). It is as
    /// old as [`path`](Self::path), and does not count what was sent since then.
    #[must_use]
    pub fn budget(&self, client: ClientHandle) -> Option<Budget> {
        Some(self.link_of(client)?.paths.row(client)?.budget)
    }

    /// Returns what a client's channel still takes; nothing if that is unknown. It is as old as [`path`](Self::path),
    /// and does not count what was sent since then.
    #[must_use]
    pub fn remaining(&self, client: ClientHandle, channel: ChannelId) -> Remaining {
        let link = self.link_of(client);
        link.and_then(|link| link.paths.remaining(client, channel)).unwrap_or_default()
    }

    fn link_of(&self, client: ClientHandle) -> Option<&ShardLink> {
        self.links.get(usize::from(client.shard().0)).filter(|link| link.client(client).is_some())
    }

    /// Returns what a shard lost; nothing for a shard that does not exist.
    #[must_use]
    pub fn counts(&self, shard: ShardId) -> ShardCounts {
        let Some(link) = self.links.get(usize::from(shard.0)) else { return ShardCounts::default() };
        let counters = &link.counters;
        ShardCounts {
            payloads_dropped: counters.payloads_dropped.load(Ordering::Relaxed),
            payloads_not_sent: counters.payloads_not_sent.load(Ordering::Relaxed),
            broadcasts_not_sent: counters.broadcasts_not_sent.load(Ordering::Relaxed),
            pauses: counters.pauses.load(Ordering::Relaxed),
            events_lost: counters.events_lost.load(Ordering::Relaxed),
            commands_lost: counters.commands_lost.load(Ordering::Relaxed),
        }
    }

    /// Returns the counters of each shard as of its last tick.
    #[must_use]
    pub fn totals(&self) -> Vec<ServerTotals> {
        self.threads.totals()
    }

    /// Returns whether all shards are running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.threads.is_running()
    }

    /// Sets whether new clients get a slot; see [`Server::accept_new_clients`].
    pub fn accept_new_clients(&self, accept: bool) {
        self.threads.accept_new_clients(accept);
    }

    /// Replaces the private keys on all shards; see [`Server::set_keys`].
    pub fn set_keys(&self, keys: &KeyRing) {
        self.threads.set_keys(keys);
    }

    /// Disconnects all clients with a text for the players, passes the last events to `on_event`, and waits for the
    /// threads; see [`Server::stop`] for the text. A shard with a full queue sends the default text. Commands that
    /// were queued before are executed first, unless `on_event` keeps a shard waiting for more than 5 s.
    pub fn stop(mut self, text: &str, mut on_event: impl FnMut(Event<'_>)) -> ShardsReport {
        if !text.is_empty() {
            for shard in (0..).map(ShardId).take(self.links.len()) {
                let text = text.to_owned();
                // If the queue is full, the stop below follows with the default text.
                let _ = self.on_shard(shard, move |server| server.stop(&text));
            }
        }
        self.threads.request_stop();
        loop {
            // Read before the events: a thread may push its last events right before it ends.
            let has_ended = self.threads.has_ended();
            while let Some(event) = self.next_event() {
                on_event(event);
            }
            if has_ended {
                return self.threads.stop();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl ShardLink {
    fn entry(&self, client: ClientHandle) -> Option<&ClientEntry> {
        self.clients.get(client.slot().0 as usize)?.as_ref().filter(|entry| entry.info.client == client)
    }

    fn entry_mut(&mut self, client: ClientHandle) -> Option<&mut ClientEntry> {
        self.clients.get_mut(client.slot().0 as usize)?.as_mut().filter(|entry| entry.info.client == client)
    }

    fn client(&self, client: ClientHandle) -> Option<&ShardClient> {
        self.entry(client).map(|entry| &entry.info)
    }

    /// Returns whether an event was on its way when the game disconnected its client.
    fn drops(&self, event: &Event<'_>) -> bool {
        // The shard queued these events before it executed the command.
        !matches!(event, Event::Partial { .. } | Event::Disconnected { .. })
            && self.entry(event.client()).is_some_and(|entry| entry.is_closing)
    }

    fn push(&mut self, command: Command, body: &[u8]) -> Result<(), SendError> {
        if !self.commands.push(command, body) {
            return Err(SendError::Backlogged);
        }
        self.needs_wake = true;
        Ok(())
    }

    /// Queues the command that disconnects a client, which is closing from now on.
    fn push_close(&mut self, client: ClientHandle, command: Command, body: &[u8]) -> Result<(), SendError> {
        self.push(command, body)?;
        if let Some(entry) = self.entry_mut(client) {
            entry.is_closing = true;
        }
        Ok(())
    }

    /// Queues a broadcast. The limit of bytes keeps the memory bounded when the shard is behind.
    fn push_broadcast(&mut self, command: Command, message_bytes: usize) -> Result<(), SendError> {
        let queued = &self.counters.broadcast_bytes;
        // The shard only subtracts meanwhile, so the sum cannot exceed the limit.
        if queued.load(Ordering::Relaxed) + message_bytes > self.max_broadcast_bytes {
            return Err(SendError::Backlogged);
        }
        // The bytes count before the shard can subtract them.
        queued.fetch_add(message_bytes, Ordering::Relaxed);
        let pushed = self.push(command, &[]);
        if pushed.is_err() {
            self.counters.broadcast_bytes.fetch_sub(message_bytes, Ordering::Relaxed);
        }
        pushed
    }
}

/// Returns the largest command with this traffic in bytes, `None` for packets, which a sharded server does not carry.
fn max_command_bytes(traffic: &Traffic) -> Option<usize> {
    match traffic {
        Traffic::Packets(_) => None,
        Traffic::Payloads => Some(MAX_PAYLOAD_BYTES),
        Traffic::Channels(layout, _) => {
            Some(layout.channels().map(|channel| channel.max_message_bytes as usize).max().unwrap_or(0))
        }
    }
}

/// Returns whether two shards carry the same traffic.
fn is_same(one: &Traffic, other: &Traffic) -> bool {
    match (one, other) {
        (Traffic::Payloads, Traffic::Payloads) | (Traffic::Packets(_), Traffic::Packets(_)) => true,
        (Traffic::Channels(one, _), Traffic::Channels(other, _)) => one.hash() == other.hash(),
        _ => false,
    }
}
