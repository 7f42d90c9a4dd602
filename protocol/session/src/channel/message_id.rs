//! Message ids: 21 bits, which wrap, counted by each channel for itself.

use super::layout::ChannelId;

/// The number of a message on its channel. After 2,097,151 comes 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub(super) struct MessageId(u32);

/// As many bits as the numbers of frames have (§3.1).
const BITS: u32 = 21;
const MASK: u32 = (1 << BITS) - 1;

/// An id that lies no further behind than this is old; any other one is new.
///
/// A packet is of no use any more when 2,048 newer ones have come, and each of these brings fewer than 450 ids of a channel
/// (a payload of 1,200 bytes, three for the smallest frame): none that is old lies further behind.
const BEHIND: u32 = 1 << 20;

impl MessageId {
    pub(super) const fn new(number: u32) -> Self {
        Self(number & MASK)
    }

    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// The id `count` behind this one.
    pub(super) const fn ahead(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// How many ids one counts up from `base` to this one; `None` if it is older than `base`.
    pub(super) const fn ahead_of(self, base: Self) -> Option<u32> {
        let distance = self.distance(base);
        if distance <= MASK - BEHIND { Some(distance) } else { None }
    }

    /// How many ids one counts up from `base` to this one, be it around the wrap.
    const fn distance(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) & MASK
    }
}

/// The last id in the frames of a packet, and whose it is: the next id of that channel is told by its distance (§3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct IdRun(Option<(ChannelId, MessageId)>);

impl IdRun {
    /// The number that stands for this id in the next frame.
    pub(super) fn told(self, channel: ChannelId, id: MessageId) -> u32 {
        id.distance(self.base(channel))
    }

    /// The id that this number stands for.
    pub(super) fn meant(self, channel: ChannelId, number: u32) -> MessageId {
        self.base(channel).ahead(number)
    }

    pub(super) fn note(&mut self, channel: ChannelId, id: MessageId) {
        self.0 = Some((channel, id));
    }

    fn base(self, channel: ChannelId) -> MessageId {
        self.0.filter(|(of, _)| *of == channel).map_or(MessageId(0), |(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_compared_around_the_wrap() {
        let last = (1 << 21) - 1;
        for (id, base, ahead) in [
            (0, 0, Some(0)),
            (5, 3, Some(2)),
            (3, 5, None),
            (0, last, Some(1)),
            (last, 0, None),
            (1_048_575, 0, Some(1_048_575)),
            (1_048_576, 0, None),
            (1_048_574, last, Some(1_048_575)),
        ] {
            assert_eq!(MessageId::new(id).ahead_of(MessageId::new(base)), ahead, "{id} and {base}");
        }
    }

    #[test]
    fn nothing_that_is_old_lies_so_far_behind_that_it_would_pass_for_new() {
        let most_ids = (slipgate_netcode::wire::MAX_PAYLOAD_BYTES / 3 + 50) * usize::from(crate::channel::MAX_PACKETS);
        assert!(most_ids + usize::from(crate::channel::MAX_QUEUE_MESSAGES) < BEHIND as usize);
    }

    #[test]
    fn an_id_is_told_by_its_distance_from_the_one_before_of_its_channel() {
        let (here, there) = (ChannelId(1), ChannelId(2));
        let mut run = IdRun::default();
        assert_eq!(run.told(here, MessageId::new(70_000)), 70_000);
        run.note(here, MessageId::new(70_000));
        for (channel, id, told) in
            [(here, 70_001, 1), (here, 70_000, 0), (here, 69_999, (1 << 21) - 1), (here, 0, 2_027_152), (there, 9, 9)]
        {
            let id = MessageId::new(id);
            assert_eq!(run.told(channel, id), told);
            assert_eq!(run.meant(channel, told), id);
        }
    }
}
