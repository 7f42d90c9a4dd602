//! Whether a message leaves whole, in slices, or in the next packet.

use super::layout::ChannelId;
use super::message_id::MessageId;
use super::pen::{Pen, Prefix};
use super::pieces::PIECE_BYTES;

/// How a message leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    Whole,
    Slices,
    /// This packet has no room for it, and the next one may hold it whole.
    Wait,
}

/// Decides for a message of so many bytes.
///
/// What fits is not cut. What would fit into an empty packet waits for the next one, since a message in two packets is
/// lost with either of them; but only once, so that it cannot wait for ever behind others that go first in every packet.
pub(super) fn plan(pen: &Pen<'_>, channel: ChannelId, id: Option<MessageId>, bytes: u32, passed_over: bool) -> Plan {
    let (prefix, bytes) = (Prefix::Whole(id), bytes as usize);
    if pen.fits(channel, prefix, bytes) {
        return Plan::Whole;
    }
    let id = id.unwrap_or_default();
    let slice = Prefix::Slice { id, bytes: bytes as u32, first: 0 };
    let may_cut = passed_over || !pen.would_fit_alone(channel, prefix, bytes);
    let can_cut = bytes > PIECE_BYTES && pen.pieces_that_fit(channel, slice, bytes) > 0;
    if may_cut && can_cut { Plan::Slices } else { Plan::Wait }
}
