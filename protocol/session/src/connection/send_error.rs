//! Why something could not be sent, for every kind of traffic.

use core::fmt;

use crate::channel::ChannelSendError;
use crate::reliability::PacketSendError;
use slipgate_netcode::PayloadError;

/// Why a call that sends something was refused. The connection stays open, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such connection, or it has ended.
    Gone,
    /// The payload or packet is empty: at least 1 byte is required.
    Empty,
    /// The bytes exceed the limit: 1,200 for a payload, `max_packet_bytes` of the endpoint's settings for a packet, the
    /// channel's [`max_message_bytes`](crate::channel::ChannelConfig::max_message_bytes) for a message.
    TooLarge,
    /// The channel's queue is full, or no more can leave in this tick: try again later, or drop the message.
    Backlogged,
    /// The layout has no such channel.
    NoChannel,
    /// A message was given to a channel of transfers, or a transfer to a channel of messages.
    WrongKind,
    /// The connection carries another [`Traffic`](super::Traffic): payloads, packets, or messages on channels.
    WrongTraffic,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "there is no such connection: it has not begun, or it has ended",
            Self::Empty => "payloads and packets have at least 1 byte",
            Self::TooLarge => "the bytes exceed the limit of a payload, a packet or the channel's max_message_bytes",
            Self::Backlogged => "the queue is full, or no more can leave in this tick",
            Self::NoChannel => "the layout has no such channel",
            Self::WrongKind => "a channel of transfers takes no messages, and a channel of messages no transfers",
            Self::WrongTraffic => {
                "the connection carries another traffic: payloads, packets or channels, as set by with_traffic"
            }
        })
    }
}

impl core::error::Error for SendError {}

impl From<PayloadError> for SendError {
    fn from(error: PayloadError) -> Self {
        match error {
            PayloadError::Gone => Self::Gone,
            PayloadError::Empty => Self::Empty,
            PayloadError::TooLarge => Self::TooLarge,
            PayloadError::Backlogged => Self::Backlogged,
        }
    }
}

impl From<PacketSendError> for SendError {
    fn from(error: PacketSendError) -> Self {
        match error {
            PacketSendError::Empty => Self::Empty,
            PacketSendError::TooLarge => Self::TooLarge,
            PacketSendError::Backlogged => Self::Backlogged,
        }
    }
}

impl From<ChannelSendError> for SendError {
    fn from(error: ChannelSendError) -> Self {
        match error {
            ChannelSendError::Backlogged => Self::Backlogged,
            ChannelSendError::TooLarge => Self::TooLarge,
            ChannelSendError::NoChannel => Self::NoChannel,
            ChannelSendError::WrongKind => Self::WrongKind,
        }
    }
}
