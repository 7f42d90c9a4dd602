//! Events and messages of a client.

use alloc::boxed::Box;
use core::ops::Range;

use crate::channel::transfer::PartialTransfer;
use crate::channel::{ChannelEvent, ChannelId};
use crate::connection::{ChannelMessage, CloseReason, MessageCursor, PacketTimes};
use crate::reliability::PacketEvent;
use crate::wire::PayloadSpan;
use crate::wire::reliable::Sequence;
use slipgate_netcode::ids::{ClientIndex, PacketNumber};
use slipgate_netcode::token::ConnectToken;

/// Something that happened. The server's messages come from
/// [`SessionClient::next_message`](super::SessionClient::next_message).
#[derive(Debug)]
pub enum ClientSessionEvent {
    /// A server gave the client a slot.
    Connected {
        /// The slot, from 0.
        client_index: ClientIndex,
        /// The number of the server's slots.
        max_clients: u32,
    },
    /// An acknowledged packet arrived at the server, or was lost.
    Packet(PacketEvent),
    /// An event of the channels.
    Channel(ChannelEvent),
    /// The part of a transfer that had arrived when the connection ended, to resume it in the next one. It comes before
    /// `Ended`.
    Partial {
        /// The transfer's channel.
        channel: ChannelId,
        /// The part that had arrived.
        partial: PartialTransfer,
    },
    /// The server has ended the connection, and sends the client to another one. Connect with the token, or handle it
    /// like `Ended`. The token is of the same game, and names no network that the first one did not.
    Redirected {
        /// A token for other servers.
        token: Box<ConnectToken>,
        /// The reason for a player who does not follow.
        reason: CloseReason,
    },
    /// The attempt or the connection has ended.
    Ended {
        /// The cause, the side that ended it, and its code and text.
        reason: CloseReason,
    },
}

/// A processed datagram with messages that are still to be taken.
#[derive(Clone, Debug)]
pub enum ClientReceivedDatagram {
    /// One message, until it is taken.
    Message(Option<ClientSessionMessage>),
    /// Messages in frames, one behind the other.
    Frames {
        /// The range of the payload in the datagram.
        payload: Range<usize>,
        /// The position of the next message.
        cursor: MessageCursor,
    },
}

/// A message of the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientSessionMessage {
    /// A plain payload.
    Payload {
        /// Its packet's sequence number, which orders payloads.
        sequence: PacketNumber,
        /// The position of its bytes.
        span: PayloadSpan,
        /// When it arrived; plain payloads have no sending time.
        times: PacketTimes,
    },
    /// An acknowledged packet.
    Packet {
        /// Its number, which orders packets.
        sequence: Sequence,
        /// The position of its payload.
        span: PayloadSpan,
        /// When it arrived; acknowledged packets have no sending time.
        times: PacketTimes,
    },
    /// A message on a channel.
    Channel {
        /// The channel.
        channel: ChannelId,
        /// The position of its bytes.
        span: PayloadSpan,
        /// When it arrived, and when the server sent it.
        times: PacketTimes,
    },
}

impl ClientSessionMessage {
    /// Returns a message on a channel. Its payload begins at `start` in the datagram.
    pub(super) fn from_channel(message: ChannelMessage, start: usize) -> Self {
        let ChannelMessage { channel, span, times } = message;
        Self::Channel { channel, span: span.shifted(start), times }
    }
}
