//! Where datagrams arrive, are decrypted, and are handed out as events.
//!
//! The inbox stands beside the client and not in it: an event borrows from the inbox alone, so that the game may answer
//! through the client while it still holds what it answers, without a copy.

use slipgate_session::channel::block::PartialBlock;
use slipgate_session::channel::{ChannelEvent, ChannelId};
use slipgate_session::client::{self as core, Message, Received};
use slipgate_session::reliability;
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::ReceiveBatch;

use crate::{Client, EndReason};

/// Something that happened since the last event.
#[derive(Debug)]
#[non_exhaustive]
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
    /// An acknowledged packet of the server, where [`Traffic`](crate::Traffic) is `Packets`.
    Packet {
        /// Its number: it tells newer from older.
        sequence: Sequence,
        /// 1 byte to 16 KiB.
        bytes: &'a [u8],
    },
    /// What became of an acknowledged packet that was sent.
    Sent(reliability::Event),
    /// A message of the server, where [`Traffic`](crate::Traffic) is `Channels`.
    Message {
        /// Its channel.
        channel: ChannelId,
        /// As many bytes as the channel allows, none among them.
        bytes: &'a [u8],
    },
    /// News of the channels: what became of blocks, and of messages that asked for a receipt.
    Channel(ChannelEvent),
    /// What had arrived of a block when the connection ended, to go on with in the next one. It comes before `Ended`.
    Partial {
        /// The block's channel.
        channel: ChannelId,
        /// What had arrived.
        partial: PartialBlock,
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
    /// For what must be put together from several datagrams.
    scratch: Vec<u8>,
    /// What was brought in and is not taken wholly, and its place in the batch.
    current: Option<(usize, Received)>,
}

/// What was found, and where it lies. Borrowing it at once would hold the inbox for the whole search.
enum Found {
    Event(core::Event),
    Message(usize, Message),
}

impl Inbox {
    /// The next event of this turn, or `None` when nothing waits or the turn has done enough.
    pub fn next(&mut self, client: &mut Client) -> Option<Event<'_>> {
        match self.find(client)? {
            Found::Event(core::Event::Connected { client_index, max_clients }) => {
                Some(Event::Connected { client_index, max_clients })
            }
            Found::Event(core::Event::Ended { reason }) => Some(Event::Ended { reason }),
            Found::Event(core::Event::Packet(event)) => Some(Event::Sent(event)),
            Found::Event(core::Event::Channel(event)) => Some(Event::Channel(event)),
            Found::Event(core::Event::Partial { channel, partial }) => Some(Event::Partial { channel, partial }),
            Found::Message(number, message) => {
                let datagram = self.batch.bytes(number);
                Some(match message {
                    Message::Payload { sequence, place } => {
                        Event::Payload { sequence, bytes: place.bytes(datagram, &self.scratch) }
                    }
                    Message::Packet { sequence, place } => {
                        Event::Packet { sequence, bytes: place.bytes(datagram, &self.scratch) }
                    }
                    Message::Channel { channel, place } => {
                        Event::Message { channel, bytes: place.bytes(datagram, &self.scratch) }
                    }
                })
            }
        }
    }

    fn find(&mut self, client: &mut Client) -> Option<Found> {
        loop {
            if let Some(event) = client.poll_event() {
                return Some(Found::Event(event));
            }
            if let Some((number, mut received)) = self.current.take() {
                if let Some(message) = client.next(self.batch.bytes(number), &mut received, &mut self.scratch) {
                    self.current = Some((number, received));
                    return Some(Found::Message(number, message));
                }
                continue;
            }
            if self.next >= self.batch.len() {
                self.next = 0;
                if !client.receive(&mut self.batch) {
                    return None;
                }
            }
            let number = self.next;
            self.next += 1;
            let Some(arrived) = self.batch.get(number) else { continue };
            let received = client.handle(arrived.from, arrived.datagram, &mut self.scratch);
            self.current = received.map(|received| (number, received));
        }
    }
}
