//! The receiver's half of one channel: which frames become messages.

use alloc::vec::Vec;
use core::ops::Range;

use super::assembly::{Partials, Slice};
use super::frame::Body;
use super::layout::{ChannelConfig, ChannelId, Kind};
use super::message_id::MessageId;
use super::pieces::Store;
use super::violation::Violation;
use super::window::{Ahead, Outcome, Window};
use slipgate_netcode::time::Instant;

/// The receiver's half of one channel.
pub(super) enum Incoming {
    Unreliable {
        partials: Partials,
    },
    Sequenced {
        partials: Partials,
        newest: Option<MessageId>,
    },
    Reliable {
        window: Window,
    },
    /// Frames of blocks go another way.
    Blocks,
}

/// What arrives and what it needs.
pub(super) struct Receipt<'a> {
    pub(super) channel: ChannelId,
    pub(super) config: &'a ChannelConfig,
    pub(super) packet: &'a [u8],
    pub(super) store: &'a mut Store,
    pub(super) scratch: &'a mut Vec<u8>,
    pub(super) now: Instant,
}

impl<'a> Receipt<'a> {
    fn data(&self, range: Range<usize>) -> &'a [u8] {
        self.packet.get(range).unwrap_or(&[])
    }
}

impl Incoming {
    pub(super) const fn new(kind: Kind) -> Self {
        match kind {
            Kind::Unreliable => Self::Unreliable { partials: Partials::new() },
            Kind::Sequenced => Self::Sequenced { partials: Partials::new(), newest: None },
            Kind::ReliableUnordered | Kind::ReliableOrdered => Self::Reliable { window: Window::new() },
            Kind::Blocks => Self::Blocks,
        }
    }

    #[cfg(test)]
    pub(super) fn begin_ids_at(&mut self, id: MessageId) {
        if let Self::Reliable { window } = self {
            window.begin_ids_at(id);
        }
    }

    /// Takes a frame. Answers what became of it, and how many messages were given up for it.
    pub(super) fn take(&mut self, body: Body, receipt: &mut Receipt<'_>) -> Result<(Outcome, u64), Violation> {
        match self {
            Self::Unreliable { partials } => match body {
                Body::Slice { id, bytes, first, data } => Ok(add_once(partials, receipt, (id, bytes, first), data)),
                _ => Ok((Outcome::Deliver, 0)),
            },
            Self::Sequenced { partials, newest } => Ok(take_sequenced(partials, newest, body, receipt)),
            Self::Reliable { window } => take_reliable(window, body, receipt).map(|outcome| (outcome, 0)),
            Self::Blocks => Err(Violation::WrongFrame(receipt.channel)),
        }
    }

    /// Takes the next message that waited for others, if there is one.
    pub(super) fn pop(&mut self, store: &mut Store, scratch: &mut Vec<u8>) -> bool {
        if let Self::Reliable { window } = self { window.pop(store, scratch) } else { false }
    }

    /// Gives up what has waited too long, and answers how many messages that were.
    pub(super) fn tick(&mut self, now: Instant, store: &mut Store) -> u64 {
        match self {
            Self::Unreliable { partials } | Self::Sequenced { partials, .. } => partials.tick(now, store),
            Self::Reliable { .. } | Self::Blocks => 0,
        }
    }

    /// How many pieces a frame takes to keep, at most, if it may not be dropped, behind what `ahead` tells of others.
    pub(super) fn pieces_to_keep(&self, kind: Kind, body: &Body, ahead: &mut Ahead) -> usize {
        if let Self::Reliable { window } = self { window.preview(kind, body, ahead) } else { 0 }
    }
}

fn add_once(
    partials: &mut Partials,
    receipt: &mut Receipt<'_>,
    (id, bytes, first): (MessageId, u32, u16),
    data: Range<usize>,
) -> (Outcome, u64) {
    let slice = Slice { id, bytes, first, data: receipt.data(data) };
    let (complete, given_up) = partials.add(&slice, receipt.config.max_message_bytes, receipt.store, receipt.now);
    let Some(assembly) = complete else { return (Outcome::Kept, given_up) };
    receipt.store.gather(&assembly.chain, assembly.bytes, receipt.scratch);
    receipt.store.release(assembly.chain);
    (Outcome::Gathered, given_up)
}

/// Delivers what is newer than all that was delivered, and gives up what is not any more.
fn take_sequenced(
    partials: &mut Partials,
    newest: &mut Option<MessageId>,
    body: Body,
    receipt: &mut Receipt<'_>,
) -> (Outcome, u64) {
    let is_old = |id: MessageId, newest: MessageId| id.ahead_of(newest.ahead(1)).is_none();
    let (id, (outcome, given_up)) = match body {
        Body::Whole { id, .. } | Body::Slice { id, .. } if newest.is_some_and(|newest| is_old(id, newest)) => {
            return (Outcome::Dropped, 0);
        }
        Body::Whole { id, .. } => (id, (Outcome::Deliver, 0)),
        Body::Slice { id, bytes, first, data } => (id, add_once(partials, receipt, (id, bytes, first), data)),
        Body::Withdrawn { .. } | Body::Block { .. } => return (Outcome::Dropped, 0),
    };
    if outcome == Outcome::Kept {
        return (outcome, given_up);
    }
    *newest = Some(id);
    (outcome, given_up + partials.give_up_if(receipt.store, |other, _| is_old(other, id)))
}

fn take_reliable(window: &mut Window, body: Body, receipt: &mut Receipt<'_>) -> Result<Outcome, Violation> {
    let at = (receipt.channel, receipt.config);
    match body {
        Body::Whole { id, data } => window.whole(at, id, receipt.data(data), receipt.store),
        Body::Slice { id, bytes, first, data } => {
            window.slice(at, (id, bytes, first), receipt.data(data), receipt.store, receipt.scratch)
        }
        Body::Withdrawn { id } => window.withdrawn(at, id, receipt.store),
        Body::Block { .. } => Err(Violation::WrongFrame(receipt.channel)),
    }
}
