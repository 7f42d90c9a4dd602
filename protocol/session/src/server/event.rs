//! What the server tells: who comes and goes, what arrives, and what became of what was sent.

use core::ops::Range;

use crate::channel::block::PartialBlock;
use crate::channel::{self, Arrival, ChannelEvent, ChannelId};
use crate::reliability;
use crate::session::{Incoming, Place};
use crate::wire::reliable::Sequence;
use slipgate_netcode::server::{ClientHandle, DisconnectReason};

/// Something that happened to a client. What it sent comes from [`Server::next`](super::Server::next).
#[derive(Debug)]
pub enum Event {
    /// A client has a slot; where used tokens are written down, its own is durable. It can be sent to, unless its end is
    /// told behind this.
    Connected {
        /// Its handle from now on.
        client: ClientHandle,
        /// Who it is, by its token.
        client_id: u64,
    },
    /// What became of an acknowledged packet.
    Packet {
        /// To whom it was sent.
        client: ClientHandle,
        /// What became of it.
        event: reliability::Event,
    },
    /// News of a client's channels.
    Channel {
        /// Whose.
        client: ClientHandle,
        /// What happened.
        event: ChannelEvent,
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

/// A datagram that was brought in, of which the messages are still to be taken.
#[derive(Clone, Debug)]
pub enum Received {
    /// One message, until it is taken.
    Message(Option<Message>),
    /// Messages in frames, one behind the other.
    Frames {
        /// Who sent them.
        client: ClientHandle,
        /// Where the payload lies in the datagram.
        payload: Range<usize>,
        /// How far they were taken.
        incoming: Incoming,
    },
}

/// Something that a client sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A payload as it is.
    Payload {
        /// Who sent it.
        client: ClientHandle,
        /// Its packet's sequence number: it tells newer from older. 0 for clients in the same program.
        sequence: u64,
        /// Where it lies.
        place: Place,
    },
    /// An acknowledged packet.
    Packet {
        /// Who sent it.
        client: ClientHandle,
        /// Its number: it tells newer from older.
        sequence: Sequence,
        /// Where its payload lies.
        place: Place,
    },
    /// A message on a channel.
    Channel {
        /// Who sent it.
        client: ClientHandle,
        /// Its channel.
        channel: ChannelId,
        /// Where it lies.
        place: Place,
    },
}

impl Message {
    /// A message that a connection handed out; its frames begin at `origin` in the datagram.
    pub(super) fn arrived(client: ClientHandle, arrival: Arrival, origin: usize) -> Self {
        match arrival {
            Arrival::Message { channel, place } => {
                let place = match place {
                    channel::Place::Frames(range) => Place::Datagram(range).shifted(origin),
                    channel::Place::Scratch => Place::Scratch,
                };
                Self::Channel { client, channel, place }
            }
        }
    }
}
