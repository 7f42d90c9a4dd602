//! Why something was not sent on a connection, whatever it carries.

use core::fmt;

use crate::channel::SendError as ChannelRefusal;
use crate::reliability::SendError as PacketRefusal;

/// Why something was not sent. The connection lives on, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such connection (any more).
    Gone,
    /// Payloads and packets have at least 1 byte.
    Empty,
    /// It is larger than a payload (1,200 bytes), a packet (`max_packet_bytes` of the endpoint's settings) or a message of
    /// this channel ([`max_message_bytes`](crate::channel::ChannelConfig::max_message_bytes)) may be.
    TooLarge,
    /// The channel's queue is full, or no more can leave in this turn: wait, or drop it for something newer.
    Backlogged,
    /// The layout has no such channel.
    NoChannel,
    /// A message for a channel of blocks, or a block for one of messages.
    WrongKind,
    /// The connection carries something else: payloads, packets, or messages on channels.
    WrongTraffic,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the connection does not exist any more",
            Self::Empty => "payloads and packets have at least 1 byte",
            Self::TooLarge => "it is larger than a payload, a packet or the channel's max_message_bytes",
            Self::Backlogged => "the queue is full, or no more can leave in this turn",
            Self::NoChannel => "the layout has no such channel",
            Self::WrongKind => "the channel is of another kind",
            Self::WrongTraffic => "the connection carries something else",
        })
    }
}

impl core::error::Error for SendError {}

impl From<PacketRefusal> for SendError {
    fn from(error: PacketRefusal) -> Self {
        match error {
            PacketRefusal::Empty => Self::Empty,
            PacketRefusal::TooLarge => Self::TooLarge,
            PacketRefusal::Backlogged => Self::Backlogged,
        }
    }
}

impl From<ChannelRefusal> for SendError {
    fn from(error: ChannelRefusal) -> Self {
        match error {
            ChannelRefusal::Backlogged => Self::Backlogged,
            ChannelRefusal::TooLarge => Self::TooLarge,
            ChannelRefusal::NoChannel => Self::NoChannel,
            ChannelRefusal::WrongKind => Self::WrongKind,
        }
    }
}
