//! The settings of a connection that each end decides for itself.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use crate::congestion::{self, Congestion, Controller};
use crate::reliability::{self, MemoryBudget};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The fewest bytes of payload that one may configure: what every path carries (RFC 791, section 3.1: 576 bytes with a
/// header of 60), less UDP's 8.
pub const MIN_PAYLOAD: usize = 508;

/// Makes the controllers of new connections.
pub type MakeController = dyn Fn() -> Box<dyn Controller + Send> + Send + Sync;

/// The settings of a connection.
#[derive(Clone)]
pub struct Config {
    /// The most bytes of payload of a datagram, sent by either side, 508 to 1,200: 1,200 by default; 1,186 where
    /// datagrams travel in a browser's data channel; 548 for paths of 576 bytes, 508 for the most careful.
    pub max_payload_bytes: usize,
    /// How congestion is avoided.
    pub congestion: congestion::Config,
    /// Makes a controller of the application's own instead.
    pub controller: Option<Arc<MakeController>>,
    /// The acknowledged-packet endpoint beneath.
    pub endpoint: reliability::Config,
    /// For how long a farewell is repeated until the peer acknowledges it; 1 s by default.
    pub farewell: Duration,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("max_payload_bytes", &self.max_payload_bytes)
            .field("congestion", &self.congestion)
            .field("controller", &self.controller.as_ref().map(|_| "custom"))
            .field("endpoint", &self.endpoint)
            .field("farewell", &self.farewell)
            .finish()
    }
}

impl Default for Config {
    fn default() -> Self {
        // netcode's prefix, sequence number and tag are 18 to 25 bytes; UDP and IPv4 are 28.
        let endpoint = reliability::Config { lower_layer_bytes: 28 + 21, ..reliability::Config::default() };
        Self {
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            congestion: congestion::Config::default(),
            controller: None,
            endpoint,
            farewell: Duration::from_secs(1),
        }
    }
}

impl Config {
    pub(super) fn controller(&self) -> Congestion {
        match &self.controller {
            Some(make) => Congestion::with_controller(make(), self.congestion.shape),
            None => Congestion::new(self.congestion),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(MIN_PAYLOAD..=MAX_PAYLOAD_BYTES).contains(&self.max_payload_bytes) {
            return Err(ConfigError::PayloadBytes);
        }
        Ok(())
    }
}

/// The memory that the connections of a server may take together for what arrives in pieces. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    /// For packets in fragments, and for messages that must be put together or wait for older ones. When it is used up
    /// every connection has [`RESERVE_BYTES`](crate::channel::RESERVE_BYTES) beside it, and as much as the largest message
    /// of each reliable channel takes, so that nobody who holds the rest can stop the others.
    pub messages: MemoryBudget,
    /// For blocks, which must not keep messages waiting until they are whole.
    pub blocks: MemoryBudget,
}

impl Memory {
    /// So many bytes for messages, and so many for blocks.
    #[must_use]
    pub fn new(messages: usize, blocks: usize) -> Self {
        Self { messages: MemoryBudget::new(messages), blocks: MemoryBudget::new(blocks) }
    }
}

impl Default for Memory {
    /// 256 MiB for messages and 512 MiB for blocks.
    fn default() -> Self {
        Self::new(256 << 20, 512 << 20)
    }
}

/// A setting that no connection can run with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not 508 to 1,200 bytes of payload.
    PayloadBytes,
    /// A channel's blocks have slices for which a payload has no room.
    SliceBytes,
    /// The endpoint beneath takes packets that come later than channels allow for, behind 2,048 newer ones.
    Window,
    /// A setting of the endpoint beneath.
    Endpoint(reliability::ConfigError),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PayloadBytes => f.write_str("a datagram has 508 to 1200 bytes of payload"),
            Self::SliceBytes => f.write_str("a block's slices are too large for a datagram's payload"),
            Self::Window => f.write_str("with channels the window of received packets holds at most 2048"),
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConfigError {}

impl From<reliability::ConfigError> for ConfigError {
    fn from(error: reliability::ConfigError) -> Self {
        Self::Endpoint(error)
    }
}
