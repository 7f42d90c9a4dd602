//! The acknowledged-packet endpoint, wire-compatible with reliable 1.0: who received what, and how the path is.
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
//! A packet is never sent twice; its acknowledgement travels in up to 32 headers. Who wants data to arrive sends it
//! anew, in another packet, when it hears that the first one was lost. That is `channel`'s work, not this module's.
//!
//! There is no queue of acknowledgements: an endpoint *owes* them, each header that leaves pays some, and
//! [`Endpoint::transmit`] pays what headers alone cannot.
//!
//! Section numbers in this module are those of `specs/reliable-1.0.md`.

mod bits;
mod config;
mod endpoint;
mod link;
mod memory;
mod meter;
mod reassembly;
mod received;
mod recent;
mod reference;
mod rtt;
pub mod seed;
mod sent;
mod stats;

use core::fmt;
use core::time::Duration;

pub use self::config::{
    AckPolicy, Config, ConfigError, DEFAULT_ACK_AFTER, DEFAULT_ACK_AFTER_PACKETS, LossDeadline, ReferenceSmoothing,
    Statistics,
};
pub use self::endpoint::Endpoint;
pub use self::memory::MemoryBudget;
pub use self::stats::{BitsPerSecond, Counters, Jitter, RttStats, Stats};

use crate::wire::reliable::{Acks, Sequence};

/// Where an endpoint's datagrams leave: into packets that are sealed, or into a simulated network.
pub trait Sink {
    /// How many more datagrams can leave in this turn.
    fn rooms(&self) -> usize;

    /// Room for one datagram, or `None` when no more can leave in this turn. It must hold a fragment, or the largest
    /// packet that is not cut into fragments.
    fn room(&mut self) -> Option<&mut [u8]>;

    /// Sends the first `bytes` bytes of the room that was given last.
    fn commit(&mut self, bytes: usize);
}

/// A packet that arrived. Its payload lies where the datagram did, or, of a packet in fragments, in the endpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its number: it tells newer from older.
    pub sequence: Sequence,
    /// Empty if the packet carried nothing but acknowledgements.
    pub payload: &'a [u8],
    /// What its header acknowledged; the endpoint has heard of it.
    pub acks: Acks,
}

impl fmt::Debug for Packet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet").field("sequence", &self.sequence).field("bytes", &self.payload.len()).finish()
    }
}

/// What the application says to a packet before it counts as received.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// Take it: it will be acknowledged.
    Take,
    /// Take it, but let no packet leave only to acknowledge it: it carries nothing that its sender waits to hear of.
    TakeUnanswered,
    /// Hear what it says of our packets, but do not acknowledge it: nobody uses its payload, and its sender will hold it for
    /// lost.
    TakeUnacknowledged,
    /// There is no place for it. It is not acknowledged, so its sender will hold it for lost.
    Refuse,
}

/// What became of a packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// It arrived. This can still come after `Lost`, because an acknowledgement may be late.
    Acked {
        /// The packet.
        sequence: Sequence,
        /// From its sending to its acknowledgement, with the time that the peer waited before it acknowledged.
        rtt: Duration,
    },
    /// It was not acknowledged in time.
    Lost {
        /// The packet.
        sequence: Sequence,
    },
}

/// Why a packet was not sent. No sequence number was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// A packet without payload is one of acknowledgements, and the endpoint sends those itself.
    Empty,
    /// More bytes than a packet of this endpoint holds, or than the sink has room for.
    TooLarge,
    /// No more datagrams can leave in this turn.
    Backlogged,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a packet has at least 1 byte of payload",
            Self::TooLarge => "the payload is larger than a packet of this endpoint",
            Self::Backlogged => "no more datagrams can leave in this turn",
        })
    }
}

impl core::error::Error for SendError {}
