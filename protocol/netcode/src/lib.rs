//! netcode 1.02, sans-IO: connect tokens, the handshake, encrypted packets, and the state machines of server and
//! client.
//!
//! ```text
//!   datagrams in                                     datagrams out
//!        │                                                 ▲
//!        ▼                                                 │
//!   handle ──▶ flags of packets due ──── transmit ──▶ an Outbox
//!        │     (a challenge, a keep-alive,   ▲
//!        ▼      a denial, disconnects)       │
//!   payloads, poll_event                   tick, send, disconnect
//! ```
//!
//! There is no queue of replies. A connection stores which packets are due as flags, and
//! [`transmit`](server::NetcodeServer::transmit) seals them. Ten duplicate requests set one flag, so a flood of
//! requests neither grows memory nor is amplified.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod address;
pub mod client;
pub mod crypto;
pub mod discard;
pub mod ids;
pub mod loopback;
pub mod server;
pub mod slab;
pub mod time;
pub mod timing;
pub mod token;
pub mod wire;

use core::fmt;

use crate::address::Address;
use crate::crypto::aead::PacketKey;
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::ids::PacketNumber;
use crate::wire::packet::PacketKind;
use crate::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};

/// A sink for datagrams that leave: the send batch of a socket, or a simulated network.
pub trait Outbox {
    /// Returns how many more datagrams can leave in this turn.
    fn remaining(&self) -> usize;

    /// Returns the buffer for the next datagram, or `None` when no more can leave in this turn.
    fn next_buf(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]>;

    /// Queues the first `bytes` bytes of the buffer that [`next_buf`](Self::next_buf) returned last.
    fn commit(&mut self, to: Address, bytes: usize);
}

/// A received payload. Its bytes borrow the datagram's buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Payload<'d> {
    /// The packet's sequence number. A newer packet of one connection has a higher one.
    pub sequence: PacketNumber,
    /// 1 to 1200 bytes.
    pub bytes: &'d [u8],
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The length instead of the bytes: payloads must not get into logs.
        f.debug_struct("Payload").field("sequence", &self.sequence).field("bytes", &self.bytes.len()).finish()
    }
}

/// Why a payload was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PayloadError {
    /// The connection does not exist, or has ended.
    Gone,
    /// The payload has no bytes. The minimum is 1.
    Empty,
    /// The payload has more than 1200 bytes.
    TooLarge {
        /// The bytes of the payload.
        bytes: usize,
    },
    /// The outbox or queue is full in this turn. Call `transmit`, or drop this payload for a newer one.
    Backlogged,
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the connection does not exist or has ended"),
            Self::Empty => f.write_str("a payload must have at least 1 byte"),
            Self::TooLarge { bytes } => {
                write!(f, "the payload has {bytes} bytes, and at most {MAX_PAYLOAD_BYTES} are allowed")
            }
            Self::Backlogged => f.write_str("no more packets can leave in this turn"),
        }
    }
}

impl core::error::Error for PayloadError {}

/// Checks the size of a payload that the application sends (§1.2): 1 to 1200 bytes.
#[inline]
fn check_payload(payload: &[u8]) -> Result<(), PayloadError> {
    match payload.len() {
        // netcode 1.02 has no empty payload packets (§1.7).
        0 => Err(PayloadError::Empty),
        1..=MAX_PAYLOAD_BYTES => Ok(()),
        bytes => Err(PayloadError::TooLarge { bytes }),
    }
}

/// Why a packet was not sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SealError {
    /// The outbox has no buffer left in this turn.
    OutboxFull,
    /// The lane has no sequence numbers left: the connection must end.
    LaneExhausted,
}

/// The sending half of a connection: key, sequence numbers and destination of its packets.
struct SealHalf<'a, K> {
    cipher: &'a PacketCipher,
    key: &'a K,
    lane: &'a mut Lane,
    to: Address,
}

impl<K: PacketKey> SealHalf<'_, K> {
    /// Seals one packet into the outbox.
    #[inline]
    fn send(&mut self, kind: PacketKind, content: &[u8], outbox: &mut impl Outbox) -> Result<(), SealError> {
        // The buffer comes first: a full outbox must not use up a sequence number.
        let buf = outbox.next_buf().ok_or(SealError::OutboxFull)?;
        let sequence = self.lane.take().ok_or(SealError::LaneExhausted)?;
        let sealed = self.cipher.seal(self.key, kind, sequence, content, buf);
        debug_assert!(sealed.is_some(), "a buffer of an outbox holds the largest packet");
        if let Some(bytes) = sealed {
            outbox.commit(self.to, bytes);
        }
        Ok(())
    }
}
