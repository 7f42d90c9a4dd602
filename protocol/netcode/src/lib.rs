//! netcode 1.02 complete by itself: the server's and the client's state machine.
//!
//! ```text
//!   datagrams in                                     datagrams out
//!        │                                                 ▲
//!        ▼                                                 │
//!   handle ──▶ what is owed ─────────── transmit ──▶ an Outbox
//!        │     (a challenge, a keep-alive,   ▲
//!        ▼      a denial, a farewell)        │
//!   payloads, poll_event                   tick, send, disconnect
//! ```
//!
//! There is no queue of replies: a connection *owes*, and [`transmit`](server::Server::transmit) pays. Ten duplicate
//! requests make one debt, so a flood neither grows memory nor is it amplified.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod address;
pub mod client;
pub mod crypto;
pub mod discard;
pub mod loopback;
pub mod server;
pub mod time;
pub mod timing;
pub mod token;
pub mod wire;

use core::fmt;

use crate::address::Address;
use crate::crypto::aead::PacketKey;
use crate::crypto::lane::Lane;
use crate::crypto::packet::PacketCipher;
use crate::wire::packet::PacketKind;
use crate::wire::{MAX_DATAGRAM_BYTES, MAX_PAYLOAD_BYTES};

/// Where datagrams leave: a batch of a socket, or a simulated network.
pub trait Outbox {
    /// How many more datagrams can leave in this turn.
    fn rooms(&self) -> usize;

    /// Room for one datagram, or `None` when no more can leave in this turn.
    fn room(&mut self) -> Option<&mut [u8; MAX_DATAGRAM_BYTES]>;

    /// Sends the first `bytes` bytes of the room that was given last.
    fn commit(&mut self, to: Address, bytes: usize);
}

/// A payload that arrived; its bytes lie where the datagram did.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Payload<'d> {
    /// The packet's sequence number: it tells newer from older.
    pub sequence: u64,
    /// 1 to 1200 bytes.
    pub bytes: &'d [u8],
}

impl fmt::Debug for Payload<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payload").field("sequence", &self.sequence).field("bytes", &self.bytes.len()).finish()
    }
}

/// Why a payload was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum PayloadError {
    /// There is no such connection (any more).
    Gone,
    /// A payload has at least 1 byte.
    Empty,
    /// A payload has at most 1200 bytes.
    TooLarge,
    /// No more can leave in this turn: transmit, or drop this payload for a newer one.
    Backlogged,
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the connection does not exist any more",
            Self::Empty => "a payload has at least 1 byte",
            Self::TooLarge => "a payload has at most 1200 bytes",
            Self::Backlogged => "no more packets can leave in this turn",
        })
    }
}

impl core::error::Error for PayloadError {}

/// Checks the size of a payload that the application wants to send (§1.2).
fn check_payload(payload: &[u8]) -> Result<(), PayloadError> {
    match payload.len() {
        0 => Err(PayloadError::Empty),
        1..=MAX_PAYLOAD_BYTES => Ok(()),
        _ => Err(PayloadError::TooLarge),
    }
}

/// Why a packet did not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unsent {
    /// The outbox has no room.
    NoRoom,
    /// The lane has no sequence numbers left: the connection must end.
    LaneUsedUp,
}

/// One direction of a connection: everything that a packet is sealed with.
struct SealHalf<'a, K> {
    cipher: &'a PacketCipher,
    key: &'a K,
    lane: &'a mut Lane,
    to: Address,
}

impl<K: PacketKey> SealHalf<'_, K> {
    /// Seals one packet into the outbox. A sequence number is taken only when there is room for its packet.
    fn send(&mut self, kind: PacketKind, content: &[u8], outbox: &mut impl Outbox) -> Result<(), Unsent> {
        let room = outbox.room().ok_or(Unsent::NoRoom)?;
        let sequence = self.lane.take().ok_or(Unsent::LaneUsedUp)?;
        let sealed = self.cipher.seal(self.key, kind, sequence, content, room);
        debug_assert!(sealed.is_some(), "a room holds the largest packet");
        if let Some(bytes) = sealed {
            outbox.commit(self.to, bytes);
        }
        Ok(())
    }
}
