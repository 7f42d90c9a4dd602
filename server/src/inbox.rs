//! Where datagrams arrive, are decrypted, and are handed out as events.
//!
//! The inbox stands beside the server and not in it: an event borrows from the inbox alone, so that the game may answer
//! through the server while it still holds what it answers, without a copy.

use slipgate_edge::udp::ReceiveBatch;
use slipgate_protocol::netcode::server as core;
use slipgate_protocol::wire::MAX_PAYLOAD_BYTES;

use crate::{ClientHandle, DisconnectReason, Server};

/// Something that happened since the last event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A client has a slot. What its token said of it is in [`Server::client`].
    Connected {
        /// Its handle from now on.
        client: ClientHandle,
        /// Who it is, by its token.
        client_id: u64,
    },
    /// A payload of a client.
    Payload {
        /// Who sent it.
        client: ClientHandle,
        /// Its packet's sequence number: it tells newer from older. 0 for clients in the same program.
        sequence: u64,
        /// 1 to 1200 bytes.
        bytes: &'a [u8],
    },
    /// A client's connection has ended; its handle reaches nobody any more.
    Disconnected {
        /// The handle it had.
        client: ClientHandle,
        /// Who it was.
        client_id: u64,
        /// Why.
        reason: DisconnectReason,
    },
}

/// Where datagrams arrive, in buffers that are allocated once.
pub struct Inbox {
    batch: ReceiveBatch,
    next: usize,
    loopback: [u8; MAX_PAYLOAD_BYTES],
}

impl Default for Inbox {
    fn default() -> Self {
        Self { batch: ReceiveBatch::default(), next: 0, loopback: [0; MAX_PAYLOAD_BYTES] }
    }
}

/// A payload and where it lies. Borrowing it at once would hold the inbox for the whole search.
enum Found {
    Event(core::Event),
    InBatch { client: ClientHandle, sequence: u64, place: usize, start: usize, length: usize },
    InLoopback { client: ClientHandle, length: usize },
}

impl Inbox {
    /// The next event of this turn, or `None` when nothing waits or the turn has done enough.
    pub fn next(&mut self, server: &mut Server) -> Option<Event<'_>> {
        match self.find(server)? {
            Found::Event(core::Event::Connected { client, client_id }) => Some(Event::Connected { client, client_id }),
            Found::Event(core::Event::Disconnected { client, client_id, reason }) => {
                Some(Event::Disconnected { client, client_id, reason })
            }
            Found::InBatch { client, sequence, place, start, length } => {
                let bytes = self.batch.get(place)?.datagram.get(start..start + length)?;
                Some(Event::Payload { client, sequence, bytes })
            }
            Found::InLoopback { client, length } => {
                Some(Event::Payload { client, sequence: 0, bytes: self.loopback.get(..length)? })
            }
        }
    }

    fn find(&mut self, server: &mut Server) -> Option<Found> {
        loop {
            if let Some(event) = server.poll_event() {
                return Some(Found::Event(event));
            }
            if let Some((client, length)) = server.poll_loopback(&mut self.loopback) {
                return Some(Found::InLoopback { client, length });
            }
            if self.next >= self.batch.len() {
                self.next = 0;
                if !server.receive(&mut self.batch) {
                    return None;
                }
            }
            let place = self.next;
            self.next += 1;
            let Some(received) = self.batch.get(place) else { continue };
            let base = received.datagram.as_ptr().addr();
            if let Some((client, payload)) = server.handle(received.from, received.datagram) {
                let start = payload.bytes.as_ptr().addr().wrapping_sub(base);
                let (sequence, length) = (payload.sequence, payload.bytes.len());
                return Some(Found::InBatch { client, sequence, place, start, length });
            }
        }
    }
}
