//! Where datagrams arrive, are decrypted, and are handed out as events.
//!
//! The inbox stands beside the client and not in it: an event borrows from the inbox alone, so that the game may answer
//! through the client while it still holds what it answers, without a copy.

use slipgate_edge::udp::ReceiveBatch;
use slipgate_protocol::netcode::client as core;

use crate::{Client, EndReason};

/// Something that happened since the last event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A server gave the client a slot.
    Connected {
        /// The slot, from 0.
        client_index: u32,
        /// How many slots the server has.
        max_clients: u32,
    },
    /// A payload of the server.
    Payload {
        /// Its packet's sequence number: it tells newer from older.
        sequence: u64,
        /// 1 to 1200 bytes.
        bytes: &'a [u8],
    },
    /// The attempt or the connection has ended.
    Ended {
        /// Why; it has a sentence for the player, and the standard's state.
        reason: EndReason,
    },
}

/// Where datagrams arrive, in buffers that are allocated once.
#[derive(Default)]
pub struct Inbox {
    batch: ReceiveBatch,
    next: usize,
}

/// A payload and where it lies. Borrowing it at once would hold the inbox for the whole search.
enum Found {
    Event(core::Event),
    Payload { sequence: u64, place: usize, start: usize, length: usize },
}

impl Inbox {
    /// The next event of this turn, or `None` when nothing waits or the turn has done enough.
    pub fn next(&mut self, client: &mut Client) -> Option<Event<'_>> {
        match self.find(client)? {
            Found::Event(core::Event::Connected { client_index, max_clients }) => {
                Some(Event::Connected { client_index, max_clients })
            }
            Found::Event(core::Event::Ended { reason }) => Some(Event::Ended { reason }),
            Found::Payload { sequence, place, start, length } => {
                let bytes = self.batch.get(place)?.datagram.get(start..start + length)?;
                Some(Event::Payload { sequence, bytes })
            }
        }
    }

    fn find(&mut self, client: &mut Client) -> Option<Found> {
        loop {
            if let Some(event) = client.poll_event() {
                return Some(Found::Event(event));
            }
            if self.next >= self.batch.len() {
                self.next = 0;
                if !client.receive(&mut self.batch) {
                    return None;
                }
            }
            let place = self.next;
            self.next += 1;
            let Some(received) = self.batch.get(place) else { continue };
            let base = received.datagram.as_ptr().addr();
            if let Some(payload) = client.handle(received.from, received.datagram) {
                let start = payload.bytes.as_ptr().addr().wrapping_sub(base);
                let (sequence, length) = (payload.sequence, payload.bytes.len());
                return Some(Found::Payload { sequence, place, start, length });
            }
        }
    }
}
