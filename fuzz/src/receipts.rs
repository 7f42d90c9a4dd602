//! The receipts that one end requested: each reports one delivery status, once.

use std::collections::{BTreeMap, BTreeSet};

use slipgate_session::channel::{ChannelId, DeliveryStatus, MAX_RECEIPTS};

/// A message, identified by its channel and its number there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Numbered {
    /// The index of the channel in the layout.
    pub channel: u8,
    /// The number of messages that the channel took before.
    pub number: u32,
}

impl Numbered {
    /// Returns the tag of this message's receipt.
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
    reported: BTreeMap<Numbered, DeliveryStatus>,
    /// Messages reported as delivered since the last check.
    arrived: Vec<Numbered>,
}

impl Receipts {
    /// Records a message that was queued with a receipt.
    pub fn ask(&mut self, message: Numbered) {
        assert!(
            !self.reported.contains_key(&message) && self.awaited.insert(message),
            "{message:?} has a number of its own"
        );
        assert!(self.awaited.len() <= usize::from(MAX_RECEIPTS), "more are awaited than may be");
    }

    /// Records a reported status, and checks that it was requested and is reported once.
    pub fn report(&mut self, channel: ChannelId, tag: u64, status: DeliveryStatus) {
        let message = Numbered::of(channel, tag);
        let before = self.reported.insert(message, status);
        if status == DeliveryStatus::ArrivedLate {
            return assert_eq!(before, Some(DeliveryStatus::Lost), "{message:?} arrived late without being lost");
        }
        assert!(
            self.awaited.remove(&message),
            "{message:?}: {status:?} was not awaited, and {before:?} was reported before"
        );
        if status == DeliveryStatus::Arrived {
            self.arrived.push(message);
        }
    }

    /// Checks the number of receipts that the end says can still be requested.
    pub fn check_free(&self, free: u16) {
        assert_eq!(usize::from(free) + self.awaited.len(), usize::from(MAX_RECEIPTS));
    }

    /// Takes the messages reported as delivered since the last call.
    pub fn take_arrived(&mut self) -> Vec<Numbered> {
        std::mem::take(&mut self.arrived)
    }

    /// Returns whether every requested receipt was reported.
    #[must_use]
    pub fn all_reported(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Returns the number of reported receipts.
    pub fn statuses(&self) -> impl Iterator<Item = (Numbered, DeliveryStatus)> + '_ {
        self.reported.iter().map(|(message, status)| (*message, *status))
    }
}
