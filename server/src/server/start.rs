//! How a server starts, and why one does not.

use std::fmt;
use std::io;

use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::server::{self as netcode, Config, ConfigError, Fence, Storage};
use slipgate_netcode::time::Now;
use slipgate_os::clock::TurnTime;
use slipgate_os::entropy;
use slipgate_session::congestion::Trunk;
use slipgate_session::server as core;
use slipgate_session::session::{self, Memory, Traffic};
use slipgate_udp::{SendBatch, Sockets};

use super::Server;
use crate::filtering::Filtering;
use crate::history_file::HistoryFile;
use crate::journal::FileJournal;
use crate::reading::Reading;
use crate::report::Reporter;
use crate::unread::Unread;

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
    /// The operating system had no thread to give, for the history file.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::Entropy(error) => write!(f, "the operating system gives no entropy: {error}"),
            Self::Thread(error) => write!(f, "the operating system gives no thread for the history file: {error}"),
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

/// A history file as what a server of one shard stores used tokens in.
pub(crate) fn storage(history: HistoryFile) -> Result<Storage, StartError> {
    let (names, used) = history.kept();
    let journal = FileJournal::new(history).map_err(StartError::Thread)?;
    Ok(Storage { names, used, journal: Box::new(journal) })
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
        let netcode = netcode::Server::with_storage(config, keys, &seed, now, storage(history)?)?;
        Self::around(netcode, sockets, now, Memory::default())
    }

    pub(crate) fn around(
        netcode: netcode::Server,
        sockets: Sockets,
        now: Now,
        memory: Memory,
    ) -> Result<Self, StartError> {
        let filtering = Filtering::begin(&sockets, netcode.config().protocol_id);
        let reporter = Reporter::new(sockets.batching(), now.monotonic);
        Ok(Self {
            filtering,
            core: core::Server::new(netcode, Traffic::Payloads, memory).map_err(StartError::Connection)?,
            sockets,
            outbox: SendBatch::default(),
            turn: TurnTime::begin(now),
            now,
            reading: Reading::default(),
            read_up: false,
            unread: Unread::new(now.monotonic),
            reporter,
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

    /// Bounds the memory that its connections take together for what arrives in pieces, before there are any; without it
    /// they have 256 MiB for packets and messages, and 512 MiB for blocks. Clones of a [`Memory`] share it: shards that have
    /// clones of one have it together, as they do by default. What finds no room counts as lost: reliable messages come
    /// again, blocks are refused.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.core.set_memory(memory);
        self
    }
}
