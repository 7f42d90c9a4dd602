//! The sizes of a sharded server, and which shards go together.

use std::fmt;
use std::io;
use std::time::Duration;

use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::connection::Traffic;

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
    /// The shards carry acknowledged packets, which need [`ShardThreads`](super::ShardThreads): a packet's sequence
    /// number is known on its shard.
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

/// Returns the largest command with this traffic in bytes, `None` for packets, which a sharded server does not carry.
pub(super) fn max_command_bytes(traffic: &Traffic) -> Option<usize> {
    match traffic {
        Traffic::Packets(_) => None,
        Traffic::Payloads => Some(MAX_PAYLOAD_BYTES),
        Traffic::Channels(layout, _) => {
            Some(layout.channels().map(|channel| channel.max_message_bytes as usize).max().unwrap_or(0))
        }
    }
}

/// Returns whether two shards carry the same traffic.
pub(super) fn is_same(one: &Traffic, other: &Traffic) -> bool {
    match (one, other) {
        (Traffic::Payloads, Traffic::Payloads) | (Traffic::Packets(_), Traffic::Packets(_)) => true,
        (Traffic::Channels(one, _), Traffic::Channels(other, _)) => one.hash() == other.hash(),
        _ => false,
    }
}
