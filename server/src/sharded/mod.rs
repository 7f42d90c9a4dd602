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
//! | to the game | messages of a client that has an eighth of the queue | its packets are refused, and sent again |
//! | to the game | connects, disconnects, messages on channels | stay in the shard, which stops reading |
//! | to the game | payloads | are dropped and counted |
//! | to the clients | anything | is refused: `Backlogged` |
//!
//! Path statistics do not use the queues: each shard writes a table once a tick, and the game reads the newest.

mod bridge;
mod config;
mod link;
mod path_table;
mod queue_shares;
mod send;
mod spsc;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::ids::ClientId;
use slipgate_netcode::wire::{USER_DATA_BYTES, UserData};
use slipgate_os::clock::Clock;
use slipgate_session::channel::{ChannelId, Remaining};
use slipgate_session::connection::{Budget, PathStats, SendError, Traffic};

use self::bridge::{BridgeCounters, ClientFacts, Command, ShardBridge, ShardEvent};
pub use self::config::{ShardedServerConfig, ShardedServerError};
use self::config::{is_same, max_command_bytes};
use self::link::{ClientEntry, ShardLink};
pub use self::link::{ShardClient, ShardCounts};
use self::path_table::path_table;
use self::spsc::queue;
use crate::new_clients::{NewClients, TakeNewClients};
pub use crate::shard_threads::{AppPanic, ShardApp, ShardThreads, ShardsReport};
use crate::{ClientHandle, Event, Server, ServerTotals};
pub use slipgate_netcode::server::{MAX_SHARDS, ShardId};

/// Events taken from one shard before the next one has its turn.
const MAX_EVENTS_IN_A_ROW: u32 = 256;

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
    new_clients: NewClients,
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
        let traffic = common_traffic(&shards)?;
        let max_bytes = max_command_bytes(&traffic).ok_or(ShardedServerError::Packets)?;
        if config.entries < 64 || config.bytes < (2 * max_bytes).max(16 << 10) {
            return Err(ShardedServerError::Config);
        }
        let (bridges, links): (Vec<_>, _) = shards.iter().map(|_| linked_bridge(&traffic, &config)).unzip();
        let pairs = shards.into_iter().zip(bridges).collect();
        Ok(Self {
            links,
            threads: ShardThreads::start_each(pairs, clock, tick)?,
            traffic,
            current_shard: 0,
            events_in_a_row: 0,
            connected: 0,
            new_clients: NewClients::default(),
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
                    self.new_clients.add(*client, *client_id);
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

    // State and shutdown --------------------------------------------------------------------------------------------

    /// Returns a client, from its `Connected` to its `Disconnected` event.
    #[must_use]
    pub fn client(&self, client: ClientHandle) -> Option<&ShardClient> {
        self.links.get(usize::from(client.shard().0))?.client(client)
    }

    /// Returns what the shards carry for each client.
    #[must_use]
    pub const fn traffic(&self) -> &Traffic {
        &self.traffic
    }

    /// Returns all clients, each from its `Connected` to its `Disconnected` event, also while it is being disconnected.
    pub fn clients(&self) -> impl Iterator<Item = &ShardClient> {
        self.links.iter().flat_map(|link| link.clients.iter().flatten().map(|entry| &entry.info))
    }

    /// Returns the number of [`clients`](Self::clients).
    #[must_use]
    pub const fn connected_count(&self) -> u32 {
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
            clients_refused: counters.clients_refused.load(Ordering::Relaxed),
            events_lost: counters.events_lost.load(Ordering::Relaxed),
            commands_lost: counters.commands_lost.load(Ordering::Relaxed),
        }
    }

    /// Returns the counters of each shard as of its last tick.
    #[must_use]
    pub fn totals(&self) -> Vec<ServerTotals> {
        self.threads.totals()
    }

    /// Returns whether no client is left, and none gets a slot any more; see [`ShardThreads::is_drained`].
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.threads.is_drained()
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

impl TakeNewClients for ShardedServer {
    fn take_new_clients(&mut self) -> impl Iterator<Item = (ClientHandle, ClientId)> {
        self.new_clients.take()
    }
}

/// Returns the traffic of all shards.
fn common_traffic(shards: &[Server]) -> Result<Traffic, ShardedServerError> {
    let traffic = shards.first().ok_or(ShardedServerError::NoShard)?.traffic();
    let is_common = shards.iter().all(|shard| is_same(shard.traffic(), traffic));
    is_common.then(|| traffic.clone()).ok_or(ShardedServerError::Mixed)
}

/// Returns the two ends of the queues between a shard and the game: the bridge is for the shard's thread.
fn linked_bridge(traffic: &Traffic, config: &ShardedServerConfig) -> (ShardBridge, ShardLink) {
    let (event_producer, events) = queue(config.entries, config.bytes);
    let (commands, command_consumer) = queue(config.entries, config.bytes);
    let counters = Arc::<BridgeCounters>::default();
    let (writer, paths) = path_table(traffic, config.paths_interval);
    let bridge = ShardBridge::new(event_producer, command_consumer, writer, traffic, Arc::clone(&counters));
    let clients = Vec::new();
    let max_broadcast_bytes = config.bytes;
    (bridge, ShardLink { events, commands, paths, counters, clients, max_broadcast_bytes, needs_wake: false })
}
