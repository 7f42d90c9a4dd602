//! How a server starts.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use slipgate_netcode::crypto::key::KeyRing;
use slipgate_netcode::server::{NetcodeServer, ServerConfig, ServerConfigError, TokenStorage};
use slipgate_netcode::time::Now;
use slipgate_os::clock::TurnTime;
use slipgate_os::entropy;
use slipgate_os::turn_watch::TurnWatch;
use slipgate_session::connection::{ConnectionConfigError, Memory, Traffic};
use slipgate_session::server::SessionServer;
use slipgate_session::server::UplinkLock;
use slipgate_udp::{SendBatch, Sockets};

use super::Server;
use crate::filter_changes::FilterChanges;
use crate::flood_guard::FloodGuard;
use crate::frequent_clients::FrequentClients;
use crate::history_file::HistoryFile;
use crate::journal::FileJournal;
use crate::kernel_filter::KernelFilter;
use crate::memory_return::MemoryReturn;
use crate::new_clients::NewClients;
use crate::read_budget::ReadBudget;
use crate::receive_lag::ReceiveLag;
use crate::report::Reporter;

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A setting of the server is invalid.
    ServerConfig(ServerConfigError),
    /// A setting of the connections is invalid.
    Connection(ConnectionConfigError),
    /// The operating system did not provide entropy.
    Entropy(io::Error),
    /// The operating system did not provide a thread for the history file.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServerConfig(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::Entropy(error) => write!(f, "the operating system does not provide entropy: {error}"),
            Self::Thread(error) => {
                write!(f, "the operating system does not provide a thread for the history file: {error}")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<ServerConfigError> for StartError {
    fn from(error: ServerConfigError) -> Self {
        Self::ServerConfig(error)
    }
}

/// Returns a history file as the token storage of a server with one shard.
pub(crate) fn storage(history: HistoryFile) -> Result<TokenStorage, StartError> {
    let kept = history.kept();
    let journal = FileJournal::new(history).map_err(StartError::Thread)?;
    Ok(TokenStorage { kept, journal: Box::new(journal) })
}

impl Server {
    /// Starts a server without a history file: it forgets the used tokens when it ends. Therefore it refuses tokens
    /// from before its start; see [`TokenCutoff`](slipgate_netcode::server::TokenCutoff).
    ///
    /// # Errors
    /// - `ServerConfig`: a setting is invalid.
    /// - `Entropy`: the operating system did not provide entropy.
    pub fn new(sockets: Sockets, config: ServerConfig, keys: KeyRing, now: Now) -> Result<Self, StartError> {
        let seed = entropy::seed().map_err(StartError::Entropy)?;
        let netcode = NetcodeServer::new(config, keys, &seed, now)?;
        Self::around(netcode, sockets, now, Memory::default())
    }

    /// Starts a server that writes used tokens to a file, and reads there the tokens that earlier starts used.
    ///
    /// It accepts tokens from before its start, unless they are older than the file.
    ///
    /// # Errors
    /// - `ServerConfig`: a setting is invalid.
    /// - `Entropy`: the operating system did not provide entropy.
    /// - `Thread`: the operating system did not provide a thread for the history file.
    pub fn with_history(
        sockets: Sockets,
        mut config: ServerConfig,
        keys: KeyRing,
        now: Now,
        history: HistoryFile,
    ) -> Result<Self, StartError> {
        let seed = entropy::seed().map_err(StartError::Entropy)?;
        config.token_cutoff = history.token_cutoff(config.token_cutoff);
        let netcode = NetcodeServer::with_storage(config, keys, &seed, now, storage(history)?)?;
        Self::around(netcode, sockets, now, Memory::default())
    }

    pub(crate) fn around(
        netcode: NetcodeServer,
        sockets: Sockets,
        now: Now,
        memory: Memory,
    ) -> Result<Self, StartError> {
        let kernel_filter = KernelFilter::install(&sockets, netcode.config().protocol_id);
        let reporter = Reporter::new(sockets.batching(), now);
        let memory_return = MemoryReturn::new(&memory);
        Ok(Self {
            core: SessionServer::new(netcode, Traffic::Payloads, memory).map_err(StartError::Connection)?,
            sockets,
            outbox: SendBatch::default(),
            turn: TurnTime::begin(now),
            turn_watch: TurnWatch::default(),
            now,
            frequent_clients: FrequentClients::default(),
            read_budget: ReadBudget::default(),
            is_drained: false,
            lag: ReceiveLag::new(now.monotonic),
            kernel_filter,
            flood_guard: FloodGuard::default(),
            filter_changes: FilterChanges::default(),
            flush_at_work: 0,
            read_work: 0,
            max_wait: Duration::MAX,
            is_parked_due: false,
            reporter,
            new_clients: NewClients::default(),
            memory_return,
            has_uplink_limit: Arc::default(),
            #[cfg(feature = "typed")]
            typed_buf: Vec::new(),
        })
    }

    /// Counts connected clients in the log together with other shards from now on.
    pub(crate) fn with_shared_count(mut self, connected: &Arc<AtomicU32>) -> Self {
        self.reporter.count_with(connected);
        self
    }

    /// Shares the uplink with other shards from now on. `has_limit` says whether any of them has limited it.
    pub(crate) fn with_shared_uplink(mut self, uplink: UplinkLock, has_limit: &Arc<AtomicBool>) -> Self {
        self.core.join_uplink(uplink);
        self.has_uplink_limit = Arc::clone(has_limit);
        self
    }

    /// Sets what the payloads of clients carry. Call it before the first turn; the default is [`Traffic::Payloads`].
    ///
    /// # Errors
    /// `Connection`: a setting of the connections is out of its bounds; the error in it names the setting.
    pub fn with_traffic(mut self, traffic: Traffic) -> Result<Self, StartError> {
        self.core.set_traffic(traffic).map_err(StartError::Connection)?;
        Ok(self)
    }

    /// Bounds the memory for fragments, messages out of order and transfers, for all connections together. Call it
    /// before the first turn; the default is 256 MiB for packets and messages, and 512 MiB for transfers. Clones of a
    /// [`Memory`] share it, as shards do by default. Data without memory counts as lost: reliable messages are sent
    /// again, and transfers are refused.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory_return = MemoryReturn::new(&memory);
        self.core.memory = memory;
        self
    }
}
