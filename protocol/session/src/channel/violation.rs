//! Violations of the protocol: frames that no conforming peer with the same layout sends.

use core::fmt;

use crate::channel::config::ChannelId;
use crate::channel::transfer::TransferViolation;

/// Why the frames of an authentic packet are invalid. The connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum ChannelViolation {
    /// A frame extends beyond the packet.
    Truncated,
    /// A number has more bytes than it needs, or than any number may have (§3.1).
    Number,
    /// Reserved bits or a reserved channel number.
    Reserved,
    /// The layout has no such channel.
    NoChannel(ChannelId),
    /// The frame belongs to another kind of channel.
    WrongFrame(ChannelId),
    /// A message is larger than the layout allows.
    TooLarge(ChannelId),
    /// A slice has no piece, a piece beyond the message's end, or an incomplete piece (§3.4).
    SliceShape(ChannelId),
    /// Slices of a message have different message sizes.
    SliceDisagrees(ChannelId),
    /// More messages or bytes are in flight than the layout allows.
    Overrun(ChannelId),
    /// A frame of a transfer is invalid.
    Transfer(ChannelId, TransferViolation),
    /// A control message is malformed, or stands behind other frames.
    Control,
    /// Packets that were never sent were acked repeatedly, or one that did not arrive was acked.
    AcksOfUnsent,
    /// The peer sent far more than may be processed, for 2 s.
    Flood,
    /// Packets arrive, and the peer has not acked any of this end's packets for long.
    AcknowledgesNothing,
}

impl fmt::Display for ChannelViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text names the channel, because a layout mismatch usually shows on one of them.
        let (text, channel) = match self {
            Self::Truncated => ("a frame extends beyond the packet", None),
            Self::Number => ("a number is not in its shortest form", None),
            Self::Reserved => ("a frame has reserved bits set", None),
            Self::NoChannel(channel) => ("there is no such channel", Some(channel)),
            Self::WrongFrame(channel) => ("the frame belongs to another kind of channel", Some(channel)),
            Self::TooLarge(channel) => ("a message is larger than the layout allows", Some(channel)),
            Self::SliceShape(channel) => ("a slice does not fit its message", Some(channel)),
            Self::SliceDisagrees(channel) => ("slices of a message have different message sizes", Some(channel)),
            Self::Overrun(channel) => ("more is in flight than the layout allows", Some(channel)),
            Self::Transfer(channel, violation) => return write!(f, "channel {}: {violation}", channel.0),
            Self::Control => ("a control message is malformed or misplaced", None),
            Self::AcksOfUnsent => ("packets that were never sent or did not arrive are acked", None),
            Self::Flood => ("the peer sends far more than may be processed", None),
            Self::AcknowledgesNothing => ("the peer acks nothing", None),
        };
        match channel {
            Some(channel) => write!(f, "channel {}: {text}", channel.0),
            None => f.write_str(text),
        }
    }
}

impl core::error::Error for ChannelViolation {}
