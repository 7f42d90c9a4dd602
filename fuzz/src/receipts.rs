//! What is known of the receipts for which one end has asked: each has one fate, and that is told once.

use std::collections::{BTreeMap, BTreeSet};

use slipgate_session::channel::{ChannelId, Fate, MAX_RECEIPTS};

/// A message of a channel, by its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Numbered {
    /// The channel, by its place in the layout.
    pub channel: u8,
    /// How many messages the channel had taken before.
    pub number: u32,
}

impl Numbered {
    /// The tag by which this message's receipt is known.
    #[must_use]
    pub const fn tag(self) -> u64 {
        (self.channel as u64) << 32 | self.number as u64
    }

    fn of(channel: ChannelId, tag: u64) -> Self {
        let numbered = Self { channel: (tag >> 32) as u8, number: tag as u32 };
        assert_eq!((numbered.channel, numbered.tag()), (channel.0, tag), "a tag comes back as it was given");
        numbered
    }
}

/// The receipts of one end.
#[derive(Default, Debug)]
pub struct Receipts {
    awaited: BTreeSet<Numbered>,
    told: BTreeMap<Numbered, Fate>,
    /// Messages that are said to have arrived, since anybody looked.
    arrived: Vec<Numbered>,
}

impl Receipts {
    /// A message was taken that asks for a receipt.
    pub fn ask(&mut self, message: Numbered) {
        assert!(
            !self.told.contains_key(&message) && self.awaited.insert(message),
            "{message:?} has a number of its own"
        );
        assert!(self.awaited.len() <= usize::from(MAX_RECEIPTS), "more are awaited than may be");
    }

    /// A fate was told.
    pub fn tell(&mut self, channel: ChannelId, tag: u64, fate: Fate) {
        let message = Numbered::of(channel, tag);
        let before = self.told.insert(message, fate);
        assert!(self.awaited.remove(&message), "{message:?}: {fate:?} was not awaited, and {before:?} was told before");
        if fate == Fate::Arrived {
            self.arrived.push(message);
        }
    }

    /// What the end says of how many may still be asked for is so.
    pub fn check_free(&self, free: u16) {
        assert_eq!(usize::from(free) + self.awaited.len(), usize::from(MAX_RECEIPTS));
    }

    /// Messages that are said to have arrived, each once.
    pub fn take_arrived(&mut self) -> Vec<Numbered> {
        std::mem::take(&mut self.arrived)
    }

    /// Whether every fate was told.
    #[must_use]
    pub fn all_told(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Fates that were told.
    pub fn fates(&self) -> impl Iterator<Item = (Numbered, Fate)> + '_ {
        self.told.iter().map(|(message, fate)| (*message, *fate))
    }
}
