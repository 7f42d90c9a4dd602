//! A processed datagram, and the messages in it.

use core::ops::Range;

use super::{ChannelMessage, MessageCursor, PacketTimes};
use crate::channel::ChannelId;
use crate::wire::PayloadSpan;
use crate::wire::reliable::Sequence;
use slipgate_netcode::ids::PacketNumber;

/// A processed datagram with messages that are still to be taken.
#[derive(Clone, Debug)]
pub enum ReceivedDatagram {
    /// One message, until it is taken.
    Message(Option<SessionMessage>),
    /// Messages in frames, one behind the other.
    Frames {
        /// The range of the payload in the datagram.
        payload: Range<usize>,
        /// The position of the next message.
        cursor: MessageCursor,
    },
}

/// A message of the peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionMessage {
    /// A plain payload.
    Payload {
        /// Its packet's sequence number, which orders payloads. 0 for clients in the same program.
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
        /// When it arrived, and when the peer sent it.
        times: PacketTimes,
    },
}

impl SessionMessage {
    /// Returns a message on a channel. Its payload begins at `start` in the datagram.
    #[inline]
    pub(crate) fn from_channel(message: ChannelMessage, start: usize) -> Self {
        let ChannelMessage { channel, span, times } = message;
        Self::Channel { channel, span: span.shifted(start), times }
    }
}
