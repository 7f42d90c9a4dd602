//! Whether a message leaves whole, in slices, or in the next packet.

use crate::channel::config::ChannelId;
use crate::channel::wire::frame_writer::{FrameHeader, FrameWriter};
use crate::channel::wire::message_id::MessageId;
use crate::channel::wire::pieces::PIECE_BYTES;

/// How a message leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FramePlan {
    Whole,
    Slices,
    /// The message does not fit into this packet and may fit into the next one whole.
    Wait,
}

/// Decides how a message of this many bytes leaves.
///
/// A message that fits is not sliced. One that would fit into an empty packet waits for the next packet, because a
/// message in two packets is lost with either of them. It waits only once, so that frames which come first in every
/// packet cannot delay it forever.
pub(crate) fn plan_frame(
    writer: &FrameWriter<'_>,
    channel: ChannelId,
    id: Option<MessageId>,
    bytes: u32,
    was_deferred: bool,
) -> FramePlan {
    let (header, bytes) = (FrameHeader::Whole(id), bytes as usize);
    if writer.fits(channel, header, bytes) {
        return FramePlan::Whole;
    }
    let id = id.unwrap_or_default();
    let slice = FrameHeader::Slice { id, bytes: bytes as u32, first: 0 };
    let may_slice = was_deferred || !writer.would_fit_alone(channel, header, bytes);
    // A message of one piece is never sliced (§3.4).
    let can_slice = bytes > PIECE_BYTES && writer.pieces_that_fit(channel, slice, bytes) > 0;
    if may_slice && can_slice { FramePlan::Slices } else { FramePlan::Wait }
}
