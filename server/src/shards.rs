//! One server on several threads: each shard has its own sockets, slots and game, and all share one port.
//!
//! ```text
//!   port ─┬─▶ sockets ─▶ Server 0 ─▶ game on thread 0 ─┐ handshakes and disconnects
//!         ├─▶ sockets ─▶ Server 1 ─▶ game on thread 1 ─┼──▶ registry: used tokens, client ids, free slots
//!         └─▶ sockets ─▶ Server 2 ─▶ game on thread 2 ─┘
//! ```
//!
//! The shards share the registry behind a lock. Packets of connected clients never take it. It is held for about 1 µs,
//! and for some tens of µs when expired tokens are removed. A limited uplink has a lock of its own, taken once a turn,
//! and so has the history file (see `journal`).

use std::sync::Arc;

use slipgate_netcode::crypto::key::{KeyRing, Seed};
use slipgate_netcode::server::{
    ClientRegistry, MAX_SHARDS, NetcodeServer, ServerConfig, ServerConfigError, ShardId, ShardSetup, SharedRegistry,
};
use slipgate_netcode::time::Now;
use slipgate_netcode::token::history::Journal;
use slipgate_os::entropy;
use slipgate_session::connection::Memory;
use slipgate_session::server::shared_uplink;
use slipgate_udp::Sockets;

use crate::Server;
use crate::history_file::HistoryFile;
use crate::journal::FileJournal;
use crate::server::{StartError, storage};

impl Server {
    /// Starts the shards of one server, one for each of the sockets from [`Sockets::bind_shards`]. Each one gets its
    /// turns on a thread of its own, with times of the same clock. They share the history file, if there is one; see
    /// [`with_history`](Self::with_history). One shard is a server as [`new`](Self::new) starts it.
    ///
    /// The settings are those of the whole server: it is full when all slots are used, on whatever shards. Budgets of a
    /// turn are those of each shard; the budget of token decryptions and the uplink are those of the whole server.
    ///
    /// Shards must end together, as those of [`ShardThreads`](crate::sharded::ShardThreads) and
    /// [`ShardedServer`](crate::sharded::ShardedServer) do. The kernel chooses the socket of a client among the open
    /// ones: when one is closed, it sends packets of other clients to shards that do not know them, and those clients
    /// time out.
    ///
    /// # Errors
    /// - `ServerConfig`: a setting is invalid, or there are no sockets or more than 256.
    /// - `Entropy`: the operating system did not provide entropy.
    /// - `Thread`: the operating system did not provide a thread for the history file.
    ///
    /// # Examples
    /// An echo server on four threads:
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use slipgate_server::sharded::{ShardId, ShardThreads};
    /// use slipgate_server::{Clock, Event, Inbox, Server, ServerConfig, Sockets};
    /// # use slipgate_server::keys::KeyRing;
    /// # fn start(config: ServerConfig, keys: KeyRing) -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let clock = Clock::start();
    /// let sockets = Sockets::bind_shards(&["0.0.0.0:40000".parse()?], 4)?;
    /// let shards = Server::shards(sockets, config, keys, clock.now(), None)?;
    /// let threads = ShardThreads::start(shards, clock, Duration::from_millis(16), |_: ShardId| {
    ///     |server: &mut Server, inbox: &mut Inbox| {
    ///         while let Some(event) = inbox.next(server) {
    ///             if let Event::Payload { client, bytes, .. } = event {
    ///                 let _ = server.send(client, bytes);
    ///             }
    ///         }
    ///     }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shards(
        sockets: Vec<Sockets>,
        mut config: ServerConfig,
        keys: KeyRing,
        now: Now,
        history: Option<HistoryFile>,
    ) -> Result<Vec<Self>, StartError> {
        if let Some(history) = &history {
            config.token_cutoff = history.token_cutoff(config.token_cutoff);
        }
        let count = u16::try_from(sockets.len()).ok().filter(|count| (1..=MAX_SHARDS).contains(count));
        let count = count.ok_or(StartError::ServerConfig(ServerConfigError::Shards))?;
        if count > 1 {
            return Self::several(sockets, count, &config, &keys, now, history);
        }
        // One shard needs no lock.
        let netcode = match history {
            None => NetcodeServer::new(config, keys, &seed()?, now)?,
            Some(history) => NetcodeServer::with_storage(config, keys, &seed()?, now, storage(history)?)?,
        };
        let sockets = sockets.into_iter().next().ok_or(StartError::ServerConfig(ServerConfigError::Shards))?;
        Ok(vec![Self::around(netcode, sockets, now, Memory::default())?])
    }

    fn several(
        sockets: Vec<Sockets>,
        count: u16,
        config: &ServerConfig,
        keys: &KeyRing,
        now: Now,
        history: Option<HistoryFile>,
    ) -> Result<Vec<Self>, StartError> {
        let memory = Memory::default();
        let kept = history.as_ref().map(HistoryFile::kept);
        let registry = SharedRegistry::from(ClientRegistry::new(config, count, &seed()?, now, kept.as_ref())?);
        let (uplink, has_uplink_limit, connected) = (shared_uplink(count), Arc::default(), Arc::default());
        let journal = history.map(FileJournal::new).transpose().map_err(StartError::Thread)?;
        (0..count)
            .map(ShardId)
            .zip(sockets)
            .map(|(shard, sockets)| {
                let journal =
                    journal.as_ref().map(|journal| -> Box<dyn Journal> { Box::new(journal.for_another_shard()) });
                let setup = ShardSetup { shard, registry: registry.clone(), journal };
                let netcode = NetcodeServer::shard(config.clone(), keys.clone(), &seed()?, now, setup)?;
                Ok(Self::around(netcode, sockets, now, memory.clone())?
                    .with_shared_uplink(uplink.clone(), &has_uplink_limit)
                    .with_shared_count(&connected))
            })
            .collect()
    }
}

fn seed() -> Result<Seed, StartError> {
    entropy::seed().map_err(StartError::Entropy)
}
