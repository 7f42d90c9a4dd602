//! One server on several threads: a shard on each, with sockets, slots and game of its own, and one port for all.
//!
//! ```text
//!   port ─┬─▶ sockets ─▶ Server 0 ─▶ game on thread 0 ─┐ handshakes and ends alone
//!         ├─▶ sockets ─▶ Server 1 ─▶ game on thread 1 ─┼──▶ register: used tokens, client ids, free slots
//!         └─▶ sockets ─▶ Server 2 ─▶ game on thread 2 ─┘
//! ```
//!
//! What shards share is behind a lock that packets of connected clients never come to; each piece of work under it takes
//! a microsecond, and the sweep of used tokens some tens of them at most. An uplink with a limit has a lock of its own, to
//! which each shard comes once a turn.
//!
//! So has the history file (see `crate::journal`).

use std::sync::{Arc, Mutex};

use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::server::{self as netcode, Config, ConfigError, Lend, MAX_SHARDS, Register, ShardPlace};
use slipgate_netcode::time::Now;
use slipgate_netcode::token::history::Journal;
use slipgate_os::entropy;
use slipgate_session::server as core;
use slipgate_session::session::Memory;
use slipgate_udp::Sockets;

use crate::journal::{FileJournal, lock};
use crate::server::{StartError, fence, storage};
use crate::{HistoryFile, Server, ShardId};

/// The register or the uplink behind a lock.
struct Shared<T>(Arc<Mutex<T>>);

impl<T> Shared<T> {
    fn new(shared: T) -> Self {
        Self(Arc::new(Mutex::new(shared)))
    }

    fn another(&self) -> Box<Self> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl<T: Send> Lend<T> for Shared<T> {
    fn lend(&self, work: &mut dyn FnMut(&mut T)) {
        work(&mut lock(&self.0));
    }
}

impl Server {
    /// The shards of one server, one for each of the sockets that [`Sockets::bind_shards`] has bound, each to be given its
    /// turns on a thread of its own, by times of the same clock. One of them is a server as [`Server::new`] makes it.
    ///
    /// All settings are those of the whole server: it is full when all its slots are used, on whatever shards. Budgets of a
    /// turn are each shard's own, those of decryptions and the rate of the uplink the whole server's.
    ///
    /// Shards end together, as those of a [`Crew`](crate::Crew) and of a [`Hub`](crate::Hub) do. One that is dropped while
    /// others go on says goodbye to its clients, and their slots are free for all. But the kernel chooses a client's socket
    /// among those that are open: with one fewer it sends packets of some of the others' clients to shards that do not know
    /// them. Those players time out, and get in again with new tokens.
    ///
    /// # Errors
    /// See [`StartError`].
    ///
    /// # Examples
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use slipgate_server::{Clock, Config, Crew, Event, Inbox, Server, ShardId, Sockets};
    /// # fn start(config: Config, keys: slipgate_server::KeyRing) -> Result<(), Box<dyn std::error::Error>> {
    ///
    /// let clock = Clock::start();
    /// let sockets = Sockets::bind_shards(&["0.0.0.0:40000".parse()?], 4)?;
    /// let shards = Server::shards(sockets, config, keys, clock.now())?;
    /// // An echo, on four threads.
    /// let crew = Crew::start(shards, clock, Duration::from_millis(16), |_: ShardId| {
    ///     |server: &mut Server, inbox: &mut Inbox| {
    ///         while let Some(event) = inbox.next(server) {
    ///             if let Event::Payload { client, bytes, .. } = event {
    ///                 server.send(client, bytes).unwrap_or_default();
    ///             }
    ///         }
    ///     }
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shards(sockets: Vec<Sockets>, config: Config, keys: KeyRing, now: Now) -> Result<Vec<Self>, StartError> {
        Self::shards_of(sockets, config, keys, now, None)
    }

    /// As [`shards`](Self::shards), with a history file as [`with_history`](Self::with_history) has it, which they share.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn shards_with_history(
        sockets: Vec<Sockets>,
        mut config: Config,
        keys: KeyRing,
        now: Now,
        history: HistoryFile,
    ) -> Result<Vec<Self>, StartError> {
        config.fence = fence(config.fence, &history);
        Self::shards_of(sockets, config, keys, now, Some(history))
    }

    fn shards_of(
        sockets: Vec<Sockets>,
        config: Config,
        keys: KeyRing,
        now: Now,
        history: Option<HistoryFile>,
    ) -> Result<Vec<Self>, StartError> {
        let count = u16::try_from(sockets.len()).ok().filter(|count| (1..=MAX_SHARDS).contains(count));
        let count = count.ok_or(StartError::Config(ConfigError::Shards))?;
        let seed = || entropy::seed().map_err(StartError::Entropy);
        let memory = Memory::default();
        let mut sockets = sockets.into_iter();
        if count == 1
            && let Some(sockets) = sockets.next()
        {
            let netcode = match history {
                None => netcode::Server::new(config, keys, &seed()?, now)?,
                Some(history) => netcode::Server::with_storage(config, keys, &seed()?, now, storage(history)?)?,
            };
            return Ok(vec![Self::around(netcode, sockets, now, memory)?]);
        }
        let kept = history.as_ref().map(HistoryFile::kept);
        let used = kept.as_ref().map(|(names, used)| (names, used.as_slice()));
        let register = Shared::new(Register::new(&config, count, &seed()?, now, used)?);
        let trunk = Shared::new(core::trunk(count));
        let journal = history.map(FileJournal::new).transpose().map_err(StartError::Thread)?;
        (0..count)
            .map(ShardId)
            .zip(sockets)
            .map(|(shard, sockets)| {
                let journal = journal.as_ref().map(|journal| -> Box<dyn Journal> { Box::new(journal.another()) });
                let place = ShardPlace { shard, register: register.another(), journal };
                let netcode = netcode::Server::shard(config.clone(), keys.clone(), &seed()?, now, place)?;
                Ok(Self::around(netcode, sockets, now, memory.clone())?.on_trunk(trunk.another()))
            })
            .collect()
    }
}
