//! A packet on its way through the simulated path.

use slipgate_netcode::time::Instant;
use slipgate_session::wire::reliable::Sequence;

/// A packet in transit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LabPacket {
    /// The index of its flow.
    pub flow: usize,
    /// Its sequence number.
    pub sequence: Sequence,
    /// When it was sent.
    pub sent_at: Instant,
    /// Its size in bytes.
    pub bytes: u32,
}
