//! What the client tells: how its attempt and its connection go, what arrives, and what became of what was sent.

use core::ops::Range;

use crate::channel::block::PartialBlock;
use crate::channel::{self, Arrival, ChannelEvent, ChannelId};
use crate::reliability;
use crate::session::{Incoming, Place};
use crate::wire::reliable::Sequence;
use slipgate_netcode::client::EndReason;

/// Something that happened. What the server sent comes from [`Client::next`](super::Client::next).
#[derive(Debug)]
pub enum Event {
    /// A server gave the client a slot.
    Connected {
        /// The slot, from 0.
        client_index: u32,
        /// How many slots the server has.
        max_clients: u32,
    },
    /// What became of an acknowledged packet.
    Packet(reliability::Event),
    /// News of the channels.
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
        /// Why.
        reason: EndReason,
    },
}

/// A datagram that was brought in, of which the messages are still to be taken.
#[derive(Clone, Debug)]
pub enum Received {
    /// One message, until it is taken.
    Message(Option<Message>),
    /// Messages in frames, one behind the other.
    Frames {
        /// Where the payload lies in the datagram.
        payload: Range<usize>,
        /// How far they were taken.
        incoming: Incoming,
    },
}

/// Something that the server sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A payload as it is.
    Payload {
        /// Its packet's sequence number: it tells newer from older.
        sequence: u64,
        /// Where it lies.
        place: Place,
    },
    /// An acknowledged packet.
    Packet {
        /// Its number: it tells newer from older.
        sequence: Sequence,
        /// Where its payload lies.
        place: Place,
    },
    /// A message on a channel.
    Channel {
        /// Its channel.
        channel: ChannelId,
        /// Where it lies.
        place: Place,
    },
}

impl Message {
    /// A message that the connection handed out; its frames begin at `origin` in the datagram.
    pub(super) fn arrived(arrival: Arrival, origin: usize) -> Self {
        match arrival {
            Arrival::Message { channel, place } => {
                let place = match place {
                    channel::Place::Frames(range) => Place::Datagram(range).shifted(origin),
                    channel::Place::Scratch => Place::Scratch,
                };
                Self::Channel { channel, place }
            }
        }
    }
}
