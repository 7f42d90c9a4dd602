//! What no honest peer with the same layout sends.

use core::fmt;

use super::block;
use super::layout::ChannelId;

/// Why the frames of an authentic packet cannot be believed. The peer is broken or lies, and the session ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A frame ends behind the packet's end.
    Truncated,
    /// A number has more bytes than it needs, or than any number may have.
    Number,
    /// Bits or a channel number that are kept for later.
    Reserved,
    /// The layout has no such channel.
    NoChannel(ChannelId),
    /// The frame is not one of this kind of channel.
    WrongFrame(ChannelId),
    /// A message is larger than the layout allows.
    TooLarge(ChannelId),
    /// A slice that is not one of its message: of no piece, of pieces behind the end, or not of whole pieces.
    SliceShape(ChannelId),
    /// Slices of a message disagree about its size.
    SliceDisagrees(ChannelId),
    /// More messages or bytes are under way than the layout allows.
    Overrun(ChannelId),
    /// A frame of a block that no honest peer sends.
    Block(ChannelId, block::Violation),
    /// A control message that is not what its type says, or that stands behind other frames.
    Control,
    /// Packets were acknowledged again and again that were never sent.
    AcksOfUnsent,
    /// Packets arrive, and none of this side's was acknowledged for long.
    AcknowledgesNothing,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (says, channel) = match self {
            Self::Truncated => ("a frame ends behind the packet's end", None),
            Self::Number => ("a number is not in its shortest form", None),
            Self::Reserved => ("a frame has bits that are kept for later", None),
            Self::NoChannel(channel) => ("there is no such channel", Some(channel)),
            Self::WrongFrame(channel) => ("the frame is of another kind of channel", Some(channel)),
            Self::TooLarge(channel) => ("a message is larger than the layout allows", Some(channel)),
            Self::SliceShape(channel) => ("a slice is not one of its message", Some(channel)),
            Self::SliceDisagrees(channel) => ("slices disagree about their message", Some(channel)),
            Self::Overrun(channel) => ("more is under way than the layout allows", Some(channel)),
            Self::Block(channel, violation) => return write!(f, "channel {}: {violation}", channel.0),
            Self::Control => ("a control message is malformed or misplaced", None),
            Self::AcksOfUnsent => ("packets are acknowledged that were never sent", None),
            Self::AcknowledgesNothing => ("nothing is acknowledged", None),
        };
        match channel {
            Some(channel) => write!(f, "channel {}: {says}", channel.0),
            None => f.write_str(says),
        }
    }
}

impl core::error::Error for Violation {}
