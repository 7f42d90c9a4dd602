//! The settings of a connection that each end decides for itself.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::time::Duration;

use super::WorkLimits;
use crate::congestion::{CongestionConfig, CongestionState, Controller};
use crate::reliability::{EndpointConfig, EndpointConfigError, MemoryBudget};
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// The smallest payload limit that can be configured, in bytes: every path carries datagrams of 576 bytes (RFC 791,
/// section 3.1), of which up to 60 are the IP header and 8 are UDP's.
pub const MIN_PAYLOAD: usize = 508;

/// Makes the controllers of new connections.
pub type MakeController = dyn Fn() -> Box<dyn Controller + Send> + Send + Sync;

/// The settings of a connection.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use slipgate_session::channel::{Channel, Layout};
/// use slipgate_session::connection::{ConnectionConfig, Traffic};
///
/// let mut layout = Layout::builder();
/// layout.add(Channel::reliable_ordered("chat"));
/// // For paths that carry 576 bytes.
/// let config = ConnectionConfig { max_payload_bytes: 508, ..ConnectionConfig::default() };
/// let traffic = Traffic::Channels(Arc::new(layout.build().expect("one channel")), config);
/// ```
#[derive(Clone)]
pub struct ConnectionConfig {
    /// The maximum payload of a datagram in bytes, in both directions: 508 to 1,200, by default 1,200. Use 1,186 where
    /// datagrams travel in a browser's data channel, and 548 or 508 for paths of 576 bytes.
    pub max_payload_bytes: usize,
    /// The congestion avoidance.
    pub congestion: CongestionConfig,
    /// Makes a controller of the application's own, which replaces the one of `congestion`.
    pub controller: Option<Arc<MakeController>>,
    /// The endpoint that numbers and acknowledges packets.
    pub endpoint: EndpointConfig,
    /// How long the close message is repeated until the peer acknowledges it; 1 s by default.
    pub close_timeout: Duration,
    /// How much work the peer may cause on channels.
    pub work: WorkLimits,
}

impl fmt::Debug for ConnectionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionConfig")
            .field("max_payload_bytes", &self.max_payload_bytes)
            .field("congestion", &self.congestion)
            .field("controller", &self.controller.as_ref().map(|_| "custom"))
            .field("endpoint", &self.endpoint)
            .field("close_timeout", &self.close_timeout)
            .field("work", &self.work)
            .finish()
    }
}

impl Default for ConnectionConfig {
    fn default() -> Self {
        // IPv4 and UDP take 28 bytes; netcode's prefix, sequence number and tag take 18 to 25.
        // The latest 64 round trips show the jitter of the last seconds, in an eighth of the reference's memory.
        let endpoint = EndpointConfig { lower_layer_bytes: 28 + 21, rtt_history: 64, ..EndpointConfig::default() };
        Self {
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            congestion: CongestionConfig::default(),
            controller: None,
            endpoint,
            close_timeout: Duration::from_secs(1),
            work: WorkLimits::default(),
        }
    }
}

impl ConnectionConfig {
    pub(super) fn controller(&self) -> CongestionState {
        match &self.controller {
            // The shape of packets stays configurable beside a custom controller.
            Some(make) => CongestionState::new(make(), self.congestion.shape),
            None => CongestionState::from(self.congestion),
        }
    }

    pub(super) fn check(&self) -> Result<(), ConnectionConfigError> {
        if !(MIN_PAYLOAD..=MAX_PAYLOAD_BYTES).contains(&self.max_payload_bytes) {
            return Err(ConnectionConfigError::PayloadBytes);
        }
        Ok(())
    }
}

/// The memory that all connections of a server may use for data that arrives in pieces. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Memory for fragmented packets, for messages in slices, and for messages that wait for older ones.
    ///
    /// When it is used up, each connection still has [`RESERVE_BYTES`](crate::channel::RESERVE_BYTES), and memory for
    /// the largest message, in which its channels receive one after the other: one client that holds the rest cannot
    /// stop the others.
    pub messages: MemoryBudget,
    /// Memory for transfers, which must not delay messages while they are incomplete. A transfer never holds more than
    /// is left for the others: a budget of twice the largest transfer takes one of them.
    pub transfers: MemoryBudget,
}

impl Memory {
    /// Returns budgets of this many bytes for messages and for transfers.
    #[must_use]
    pub fn new(messages: usize, transfers: usize) -> Self {
        Self { messages: MemoryBudget::new(messages), transfers: MemoryBudget::new(transfers) }
    }
}

impl Default for Memory {
    /// Returns 256 MiB for messages and 512 MiB for transfers.
    fn default() -> Self {
        Self::new(256 << 20, 512 << 20)
    }
}

/// A setting with which no connection can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectionConfigError {
    /// `max_payload_bytes` is not within 508 to 1,200.
    PayloadBytes,
    /// A channel's transfers have slices that are too large for a payload.
    SliceBytes,
    /// The endpoint's window of received packets exceeds 2,048, which is too many with channels.
    Window,
    /// A setting of the endpoint is invalid.
    Endpoint(EndpointConfigError),
}

impl fmt::Display for ConnectionConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PayloadBytes => f.write_str("max_payload_bytes must be 508 to 1200"),
            Self::SliceBytes => f.write_str("the slices of a transfer are too large for a datagram's payload"),
            Self::Window => f.write_str("the window of received packets must not exceed 2048 with channels"),
            Self::Endpoint(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ConnectionConfigError {}

impl From<EndpointConfigError> for ConnectionConfigError {
    fn from(error: EndpointConfigError) -> Self {
        Self::Endpoint(error)
    }
}
