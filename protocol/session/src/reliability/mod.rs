//! The acknowledged-packet endpoint, wire-compatible with reliable 1.0: acknowledgements, fragments, and what they
//! measure of the path.
//!
//! ```text
//!  datagrams in                                               datagrams out
//!       │                                                           ▲
//!       ▼                                                           │
//!    handle ──▶ received ──▶ which packets the next header acks ─▶ send, transmit
//!       │          ▲                                                │
//!       ├──▶ reassembly (fragments become packets)                  ▼
//!       │                                                         sent ──▶ poll_event: Acked, Lost
//!       └──▶ a header's acks ────────────────────────────────────▶  │
//!                                                                   ▼
//!                                                        rtt, meter ──▶ stats
//! ```
//!
//! A packet is never sent twice; its acknowledgement travels in up to 32 headers. This layer retransmits
//! nothing. Sent packets are in `congestion::SentPackets`. An [`Endpoint`] that is used alone reports an unacknowledged
//! packet as lost after one second. A connection detects losses earlier, and `channel` sends the messages again.
//!
//! There is no queue of acknowledgements. Each arrival requires one; a header that is sent reports up to 32 of them,
//! and [`Endpoint::transmit`] sends ack-only packets for the rest.
//!
//! Section numbers in this module are those of `specs/reliable-1.0.md`.

mod config;
pub mod constants;
mod endpoint;
mod fragment_pool;
mod nonce_draws;
mod nonce_sum;
mod number_skips;
mod packet_events;
mod packet_tracker;
mod reassembly;
mod receive_window;
mod rtt;
mod sliding_sum;
mod stats;
mod traffic_meter;

use core::fmt;
use core::time::Duration;

pub use self::config::{AckPolicy, DEFAULT_ACK_AFTER, DEFAULT_ACK_AFTER_PACKETS, EndpointConfig, EndpointConfigError};
pub use self::endpoint::Endpoint;
pub(crate) use self::endpoint::{EndpointCore, ParsedPacket};
pub use self::fragment_pool::MemoryBudget;
pub(crate) use self::number_skips::NumberSkips;
pub(crate) use self::packet_events::{PacketEvents, PacketOutcomes};
pub use self::stats::{BitsPerSecond, EndpointCounters, EndpointStats, Jitter, RttStats};

use crate::wire::reliable::{Acks, Sequence};

/// The destination of an endpoint's datagrams: packets that are sealed, or a simulated network.
pub trait Sink {
    /// Returns how many more datagrams can be sent in this turn.
    fn remaining(&self) -> usize;

    /// Returns the buffer of the next datagram, or `None` if no more can be sent in this turn. It must hold a
    /// fragment, and the largest packet that is sent without fragments.
    fn next_buf(&mut self) -> Option<&mut [u8]>;

    /// Sends the first `bytes` bytes of the buffer that was returned last.
    fn commit(&mut self, bytes: usize);
}

/// A packet that arrived. Its payload borrows from the datagram, or from the endpoint if it came in fragments.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ReceivedPacket<'a> {
    /// Its sequence number, which orders packets.
    pub sequence: Sequence,
    /// Empty if the packet carried nothing but acknowledgements.
    pub payload: &'a [u8],
    /// The acknowledgements of its header; the endpoint has processed them already.
    pub acks: Acks,
}

impl fmt::Debug for ReceivedPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedPacket").field("sequence", &self.sequence).field("bytes", &self.payload.len()).finish()
    }
}

/// The application's decision on a packet before it counts as received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// Accept the packet and acknowledge it.
    Take,
    /// Accept the packet as an ack-only one: later packets acknowledge it, but none is sent for that.
    TakeAckOnly,
    /// Process the acknowledgements of the packet, but do not acknowledge it: the payload is not used, and the sender
    /// will declare it lost.
    TakeUnacknowledged,
    /// Refuse the packet, for example for lack of memory. It is not acknowledged, so its sender will declare it lost.
    Refuse,
}

/// The outcome of a packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketEvent {
    /// It arrived. This can still follow `Lost` if the acknowledgement is late.
    Acked {
        /// The packet.
        sequence: Sequence,
        /// The time from sending to acknowledgement, including the time that the peer held the acknowledgement.
        rtt: Duration,
    },
    /// It was not acknowledged in time.
    Lost {
        /// The packet.
        sequence: Sequence,
    },
}
