//! The number of a channel, which the frames of messages and the errors of sending name.

use slipgate_netcode::slab::SlabIndex;

/// A channel: its index in the layout, 0 to 61.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct ChannelId(pub u8);

impl SlabIndex for ChannelId {
    #[inline]
    fn from_usize(index: usize) -> Self {
        // A layout has at most 62 channels.
        Self(index as u8)
    }

    #[inline]
    fn to_usize(self) -> usize {
        self.0.into()
    }
}
