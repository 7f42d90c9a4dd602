//! Why something could not be sent, for every kind of traffic.

use core::fmt;

use crate::channel_id::ChannelId;
use slipgate_netcode::PayloadError;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// Why a call that sends something was refused. The connection stays open, and nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such connection: it has not started, or it has ended.
    Gone,
    /// The payload or packet is empty: at least 1 byte is required.
    Empty,
    /// The bytes exceed the limit: 1,200 for a payload, `max_packet_bytes` of the endpoint's settings for a packet, the
    /// channel's [`max_message_bytes`](crate::channel::ChannelConfig::max_message_bytes) for a message.
    TooLarge {
        /// The channel of a message; `None` for a payload or a packet.
        channel: Option<ChannelId>,
        /// The bytes that the application gave.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The channel's queue is full, the message requests a receipt and [`MAX_RECEIPTS`](crate::channel::MAX_RECEIPTS)
    /// are open or not polled, or no more can leave in this turn: try again later, or drop the message.
    Backlogged,
    /// The layout has no such channel.
    NoChannel {
        /// The channel that was asked for.
        channel: ChannelId,
        /// The number of channels of the layout. Their ids start with 0.
        channels: usize,
    },
    /// A message was given to a channel of transfers, or a transfer to a channel of messages.
    WrongKind,
    /// The connection carries another [`Traffic`](crate::connection::Traffic): payloads, packets, or messages on
    /// channels.
    WrongTraffic,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge { channel: Some(channel), bytes, limit } => {
                let channel = channel.0;
                return write!(f, "channel {channel}: {bytes} bytes exceed max_message_bytes, which is {limit}");
            }
            Self::TooLarge { channel: None, bytes, limit } => {
                return write!(f, "{bytes} bytes exceed the limit of {limit}");
            }
            Self::NoChannel { channel, channels } => {
                return write!(f, "there is no channel {}: the layout has {channels} channels, from id 0", channel.0);
            }
            Self::Gone => "there is no such connection: it has not started, or it has ended",
            Self::Empty => "payloads and packets have at least 1 byte",
            Self::Backlogged => "the queue is full, or no more can leave in this turn",
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
            PayloadError::TooLarge { bytes } => Self::TooLarge { channel: None, bytes, limit: MAX_PAYLOAD_BYTES },
            PayloadError::Backlogged => Self::Backlogged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn errors_show_the_size_the_limit_and_the_channel() {
        let too_large = SendError::TooLarge { channel: Some(ChannelId(5)), bytes: 20_000, limit: 16_384 }.to_string();
        assert!(["channel 5", "20000", "16384"].iter().all(|part| too_large.contains(part)), "{too_large}");
        let no_channel = SendError::NoChannel { channel: ChannelId(9), channels: 2 }.to_string();
        assert!(no_channel.contains("channel 9") && no_channel.contains("2 channels"), "{no_channel}");
        let payload = SendError::from(PayloadError::TooLarge { bytes: 1201 });
        assert_eq!(payload.to_string(), "1201 bytes exceed the limit of 1200");
    }
}
