//! Where datagrams arrive, are decrypted, and are handed out as events.
//!
//! The inbox stands beside the server and not in it: an event borrows from the inbox alone, so that the game may answer
//! through the server while it still holds what it answers, without a copy.

use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;
use slipgate_session::channel::block::{BlockId, PartialBlock};
use slipgate_session::channel::{ChannelEvent, ChannelId};
use slipgate_session::reliability;
use slipgate_session::server::{self as core, Message, Received};
use slipgate_session::session::{Place, SendError};
use slipgate_session::wire::reliable::Sequence;
use slipgate_udp::ReceiveBatch;

use crate::{ClientHandle, DisconnectReason, Server};

/// Something that happened since the last event.
#[derive(Debug)]
#[non_exhaustive]
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
    /// An acknowledged packet of a client, where [`Traffic`](crate::Traffic) is `Packets`.
    Packet {
        /// Who sent it.
        client: ClientHandle,
        /// Its number: it tells newer from older.
        sequence: Sequence,
        /// 1 byte to 16 KiB.
        bytes: &'a [u8],
    },
    /// What became of an acknowledged packet that was sent to a client.
    Sent {
        /// To whom.
        client: ClientHandle,
        /// What became of it.
        event: reliability::Event,
    },
    /// A message of a client, where [`Traffic`](crate::Traffic) is `Channels`.
    Message {
        /// Who sent it.
        client: ClientHandle,
        /// Its channel.
        channel: ChannelId,
        /// As many bytes as the channel allows, none among them.
        bytes: &'a [u8],
    },
    /// News of a client's channels: what became of blocks, and of messages that asked for a receipt.
    Channel {
        /// Whose.
        client: ClientHandle,
        /// What happened.
        event: ChannelEvent,
    },
    /// A block that was given to a [`Hub`](crate::Hub) is on its way: what becomes of it is told by this number. Only a hub
    /// tells so.
    Begun {
        /// To whom.
        client: ClientHandle,
        /// On which channel.
        channel: ChannelId,
        /// Its number.
        id: BlockId,
        /// What it was given as.
        label: u64,
    },
    /// A message or block that was given to a [`Hub`](crate::Hub) could not be sent; only a hub tells so.
    Unsent {
        /// To whom.
        client: ClientHandle,
        /// On which channel.
        channel: ChannelId,
        /// The tag of a message's receipt, if it asked for one, or the label of a block; no other event tells of it.
        receipt: Option<u64>,
        /// Why.
        error: SendError,
    },
    /// What had arrived of a block when a client's connection ended, to go on with in its next one. It comes before
    /// `Disconnected`.
    Partial {
        /// Whose it was.
        client: ClientHandle,
        /// The block's channel.
        channel: ChannelId,
        /// What had arrived.
        partial: PartialBlock,
    },
    /// A client's connection has ended; its handle reaches nobody any more. What was said at the end, [`Server::end`] and
    /// [`Hub::end`](crate::Hub::end) tell while this event is looked at.
    Disconnected {
        /// The handle it had.
        client: ClientHandle,
        /// Who it was.
        client_id: u64,
        /// Why.
        reason: DisconnectReason,
    },
}

impl<'a> Event<'a> {
    /// Itself without its bytes, and those, so that the two may go to another thread apart.
    pub(crate) fn take_apart(self) -> (Event<'static>, &'a [u8]) {
        const NONE: &[u8] = &[];
        let whole = match self {
            Self::Payload { client, sequence, bytes } => {
                return (Event::Payload { client, sequence, bytes: NONE }, bytes);
            }
            Self::Packet { client, sequence, bytes } => {
                return (Event::Packet { client, sequence, bytes: NONE }, bytes);
            }
            Self::Message { client, channel, bytes } => {
                return (Event::Message { client, channel, bytes: NONE }, bytes);
            }
            Self::Connected { client, client_id } => Event::Connected { client, client_id },
            Self::Disconnected { client, client_id, reason } => Event::Disconnected { client, client_id, reason },
            Self::Sent { client, event } => Event::Sent { client, event },
            Self::Channel { client, event } => Event::Channel { client, event },
            Self::Partial { client, channel, partial } => Event::Partial { client, channel, partial },
            Self::Begun { client, channel, id, label } => Event::Begun { client, channel, id, label },
            Self::Unsent { client, channel, receipt, error } => Event::Unsent { client, channel, receipt, error },
        };
        (whole, NONE)
    }

    /// The same with its bytes, if it is of a kind that has some.
    pub(crate) fn with_bytes(mut self, body: &'a [u8]) -> Self {
        if let Self::Payload { bytes, .. } | Self::Packet { bytes, .. } | Self::Message { bytes, .. } = &mut self {
            *bytes = body;
        }
        self
    }
}

/// Where datagrams arrive, in buffers that are allocated once.
pub struct Inbox {
    batch: ReceiveBatch,
    next: usize,
    loopback: [u8; MAX_PAYLOAD_BYTES],
    /// For what must be put together from several datagrams.
    scratch: Vec<u8>,
    /// What was brought in and is not taken wholly.
    current: Option<(Home, Received)>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            batch: ReceiveBatch::default(),
            next: 0,
            loopback: [0; MAX_PAYLOAD_BYTES],
            scratch: Vec::new(),
            current: None,
        }
    }
}

/// Where a datagram lies.
#[derive(Clone, Copy)]
enum Home {
    Batch(usize),
    Loopback,
}

/// What was found, and where it lies. Borrowing it at once would hold the inbox for the whole search.
enum Found {
    Event(core::Event),
    Message(Home, Message),
}

impl Inbox {
    /// The next event of this turn, or `None` when nothing waits or the turn has done enough.
    pub fn next(&mut self, server: &mut Server) -> Option<Event<'_>> {
        match self.find(server)? {
            Found::Event(core::Event::Connected { client, client_id }) => Some(Event::Connected { client, client_id }),
            Found::Event(core::Event::Disconnected { client, client_id, reason }) => {
                Some(Event::Disconnected { client, client_id, reason })
            }
            Found::Event(core::Event::Packet { client, event }) => Some(Event::Sent { client, event }),
            Found::Event(core::Event::Channel { client, event }) => Some(Event::Channel { client, event }),
            Found::Event(core::Event::Partial { client, channel, partial }) => {
                Some(Event::Partial { client, channel, partial })
            }
            Found::Message(home, message) => Some(match message {
                Message::Payload { client, sequence, place } => {
                    Event::Payload { client, sequence, bytes: self.bytes(home, &place) }
                }
                Message::Packet { client, sequence, place } => {
                    Event::Packet { client, sequence, bytes: self.bytes(home, &place) }
                }
                Message::Channel { client, channel, place } => {
                    Event::Message { client, channel, bytes: self.bytes(home, &place) }
                }
            }),
        }
    }

    fn find(&mut self, server: &mut Server) -> Option<Found> {
        loop {
            if let Some(event) = server.poll_event() {
                return Some(Found::Event(event));
            }
            if let Some((home, mut received)) = self.current.take() {
                let datagram = match home {
                    Home::Batch(place) => self.batch.bytes(place),
                    Home::Loopback => &self.loopback,
                };
                if let Some(message) = server.next(datagram, &mut received, &mut self.scratch) {
                    self.current = Some((home, received));
                    return Some(Found::Message(home, message));
                }
                continue;
            }
            if let Some(received) = server.poll_loopback(&mut self.loopback, &mut self.scratch) {
                self.current = Some((Home::Loopback, received));
                continue;
            }
            if self.next >= self.batch.len() {
                self.next = 0;
                if !server.receive(&mut self.batch) {
                    return None;
                }
            }
            let place = self.next;
            self.next += 1;
            let Some(arrived) = self.batch.get(place) else { continue };
            let received = server.handle(arrived.from, arrived.datagram, &mut self.scratch);
            self.current = received.map(|received| (Home::Batch(place), received));
        }
    }

    fn bytes(&self, home: Home, place: &Place) -> &[u8] {
        let datagram = match home {
            Home::Batch(number) => self.batch.bytes(number),
            Home::Loopback => &self.loopback,
        };
        place.bytes(datagram, &self.scratch)
    }
}
