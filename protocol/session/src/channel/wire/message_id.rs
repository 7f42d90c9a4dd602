//! Message ids: 21 bits, wrapping, counted for each channel.

use crate::channel::config::ChannelId;

/// The number of a message on its channel. 0 follows 2,097,151.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub(crate) struct MessageId(u32);

/// The bits of an id: those of a number on the wire (§3.1).
const BITS: u32 = 21;
const MASK: u32 = (1 << BITS) - 1;

/// How far behind an old id lies at most. Any other id is new.
///
/// A packet is outside of the receive window when 2,048 newer ones have arrived, and each of these carries fewer than
/// 450 ids of a channel (1,200 bytes of payload, at least three for a frame). No old id lies further behind.
const BEHIND: u32 = 1 << 20;

impl MessageId {
    pub(crate) const fn new(number: u32) -> Self {
        Self(number & MASK)
    }

    pub(crate) const fn number(self) -> u32 {
        self.0
    }

    /// Returns the id `count` after this one.
    pub(crate) const fn ahead(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// Returns how many ids this one is ahead of `base`. `None` if it is older than `base`.
    pub(crate) const fn ahead_of(self, base: Self) -> Option<u32> {
        let distance = self.distance(base);
        // Distances in the upper half of the circle are old ids.
        if distance <= MASK - BEHIND { Some(distance) } else { None }
    }

    /// Returns the distance from `base` up to this id, across the wrap if needed.
    const fn distance(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) & MASK
    }
}

/// The last id in the frames of a packet, and its channel: the next id of that channel is coded as its distance (§3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IdRun(Option<(ChannelId, MessageId)>);

impl IdRun {
    /// Returns the number that codes this id in the next frame.
    pub(crate) fn delta(self, channel: ChannelId, id: MessageId) -> u32 {
        id.distance(self.base(channel))
    }

    /// Returns the id that this number codes.
    pub(crate) fn id_at(self, channel: ChannelId, number: u32) -> MessageId {
        self.base(channel).ahead(number)
    }

    pub(crate) fn set_last(&mut self, channel: ChannelId, id: MessageId) {
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
    fn no_old_id_lies_so_far_behind_that_it_counts_as_new() {
        let max_ids = (slipgate_netcode::wire::MAX_PAYLOAD_BYTES / 3 + 50) * usize::from(crate::channel::MAX_PACKETS);
        assert!(max_ids + usize::from(crate::channel::MAX_QUEUE_MESSAGES) < BEHIND as usize);
    }

    #[test]
    fn id_is_coded_by_its_distance_from_the_last_of_its_channel() {
        let (here, there) = (ChannelId(1), ChannelId(2));
        let mut run = IdRun::default();
        assert_eq!(run.delta(here, MessageId::new(70_000)), 70_000);
        run.set_last(here, MessageId::new(70_000));
        for (channel, id, delta) in
            [(here, 70_001, 1), (here, 70_000, 0), (here, 69_999, (1 << 21) - 1), (here, 0, 2_027_152), (there, 9, 9)]
        {
            let id = MessageId::new(id);
            assert_eq!(run.delta(channel, id), delta);
            assert_eq!(run.id_at(channel, delta), id);
        }
    }
}
