//! The receiver of one channel: which frames become messages (§3.8).

use alloc::vec::Vec;
use core::ops::Range;

use crate::channel::chunks::ChunkPool;
use crate::channel::config::{ChannelConfig, ChannelId, Kind};
use crate::channel::recv::assembly::{MessageSlice, PartialMessages};
use crate::channel::recv::window::{FrameOutcome, MessageWindow, WindowPreview};
use crate::channel::stats::ChannelStats;
use crate::channel::violation::ChannelViolation;
use crate::channel::wire::frame::FrameBody;
use crate::channel::wire::message_id::MessageId;
use slipgate_netcode::time::Instant;

/// The receiver of one channel, by its kind.
pub(crate) enum ChannelReceiver {
    Unreliable {
        partials: PartialMessages,
    },
    Sequenced {
        partials: PartialMessages,
        newest: Option<MessageId>,
    },
    Reliable {
        window: MessageWindow,
    },
    /// Frames of transfers are handled elsewhere.
    Transfers,
}

/// A frame that arrives, and what its channel needs to store or assemble it.
pub(crate) struct ReceiveContext<'a> {
    pub(crate) channel: ChannelId,
    pub(crate) config: &'a ChannelConfig,
    pub(crate) packet: &'a [u8],
    pub(crate) pool: &'a mut ChunkPool,
    pub(crate) scratch: &'a mut Vec<u8>,
    pub(crate) stats: &'a mut ChannelStats,
    pub(crate) now: Instant,
}

impl<'a> ReceiveContext<'a> {
    fn data(&self, range: Range<usize>) -> &'a [u8] {
        self.packet.get(range).unwrap_or(&[])
    }
}

impl ChannelReceiver {
    pub(crate) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Unreliable => Self::Unreliable { partials: PartialMessages::new() },
            Kind::Sequenced => Self::Sequenced { partials: PartialMessages::new(), newest: None },
            Kind::ReliableUnordered | Kind::ReliableOrdered => Self::Reliable { window: MessageWindow::new() },
            Kind::Transfers => Self::Transfers,
        }
    }

    #[cfg(test)]
    pub(crate) fn begin_ids_at(&mut self, id: MessageId) {
        if let Self::Reliable { window } = self {
            window.begin_ids_at(id);
        }
    }

    /// Handles a frame and counts its outcome.
    ///
    /// # Errors
    /// The [`ChannelViolation`] of a frame that no conforming peer sends.
    pub(crate) fn take(
        &mut self,
        body: FrameBody,
        context: &mut ReceiveContext<'_>,
    ) -> Result<FrameOutcome, ChannelViolation> {
        // A violation is not counted: the connection ends.
        let (outcome, discarded) = match self {
            Self::Unreliable { partials } => match body {
                FrameBody::Slice { id, bytes, first, data } => add_slice(partials, context, (id, bytes, first), data),
                // Withdrawals were refused by the parser on this kind.
                _ => (FrameOutcome::Deliver, 0),
            },
            Self::Sequenced { partials, newest } => take_sequenced(partials, newest, body, context),
            Self::Reliable { window } => (take_reliable(window, body, context)?, 0),
            Self::Transfers => return Err(ChannelViolation::WrongFrame(context.channel)),
        };
        context.stats.dropped += discarded + u64::from(outcome == FrameOutcome::Dropped);
        let is_delivered = matches!(outcome, FrameOutcome::Deliver | FrameOutcome::Assembled);
        context.stats.delivered += u64::from(is_delivered);
        Ok(outcome)
    }

    /// Assembles the next message that waited for older ones. Returns whether there was one.
    pub(crate) fn pop(&mut self, pool: &mut ChunkPool, scratch: &mut Vec<u8>, stats: &mut ChannelStats) -> bool {
        let Self::Reliable { window } = self else { return false };
        let popped = window.pop(pool, scratch);
        stats.delivered += u64::from(popped);
        popped
    }

    /// Discards messages that are incomplete for too long. Returns how many there were.
    pub(crate) fn tick(&mut self, now: Instant, pool: &mut ChunkPool) -> u64 {
        match self {
            Self::Unreliable { partials } | Self::Sequenced { partials, .. } => return partials.tick(now, pool),
            Self::Reliable { window } => window.tick(now, pool),
            Self::Transfers => {}
        }
        0
    }

    /// Returns an upper bound of the bytes by which the lists grow for a previewed packet.
    pub(crate) fn list_bytes_needed(&self, config: &ChannelConfig, preview: &WindowPreview) -> usize {
        if let Self::Reliable { window } = self { window.list_bytes_needed(config, preview) } else { 0 }
    }

    /// Returns an upper bound of the chunks that a frame stores, if it may not be dropped. `preview` reflects the
    /// frames before it in the packet.
    pub(crate) fn chunks_needed(
        &self,
        kind: Kind,
        body: &FrameBody,
        preview: &mut WindowPreview,
        overdraft: &mut usize,
    ) -> usize {
        // Unreliable messages may be dropped when memory is scarce.
        if let Self::Reliable { window } = self { window.preview(kind, body, preview, overdraft) } else { 0 }
    }
}

fn add_slice(
    partials: &mut PartialMessages,
    context: &mut ReceiveContext<'_>,
    (id, bytes, first): (MessageId, u32, u16),
    data: Range<usize>,
) -> (FrameOutcome, u64) {
    let slice = MessageSlice { id, bytes, first, data: context.data(data) };
    // Unreliable messages never overdraw the shared budget.
    let (complete, discarded) = partials.add(&slice, context.config.max_message_bytes, context.pool, context.now);
    let Some(assembly) = complete else { return (FrameOutcome::Kept, discarded) };
    context.pool.assemble(&assembly.chunks, assembly.bytes, context.scratch);
    context.pool.release(assembly.chunks);
    (FrameOutcome::Assembled, discarded)
}

/// Delivers a message that is newer than all that were delivered, and discards incomplete messages that are older.
fn take_sequenced(
    partials: &mut PartialMessages,
    newest: &mut Option<MessageId>,
    body: FrameBody,
    context: &mut ReceiveContext<'_>,
) -> (FrameOutcome, u64) {
    let is_old = |id: MessageId, newest: MessageId| id.ahead_of(newest.ahead(1)).is_none();
    let (id, (outcome, discarded)) = match body {
        FrameBody::Whole { id, .. } | FrameBody::Slice { id, .. }
            if newest.is_some_and(|newest| is_old(id, newest)) =>
        {
            return (FrameOutcome::Dropped, 0);
        }
        FrameBody::Whole { id, .. } => (id, (FrameOutcome::Deliver, 0)),
        FrameBody::Slice { id, bytes, first, data } => (id, add_slice(partials, context, (id, bytes, first), data)),
        FrameBody::Withdrawn { .. } | FrameBody::Transfer { .. } => return (FrameOutcome::Dropped, 0),
    };
    // An incomplete message does not outdate older ones yet.
    if outcome == FrameOutcome::Kept {
        return (outcome, discarded);
    }
    *newest = Some(id);
    (outcome, discarded + partials.discard_if(context.pool, |other, _| is_old(other, id)))
}

fn take_reliable(
    window: &mut MessageWindow,
    body: FrameBody,
    context: &mut ReceiveContext<'_>,
) -> Result<FrameOutcome, ChannelViolation> {
    let channel = (context.channel, context.config);
    match body {
        FrameBody::Whole { id, data } => window.whole(channel, id, context.data(data), context.pool),
        FrameBody::Slice { id, bytes, first, data } => {
            window.slice(channel, (id, bytes, first), context.data(data), context.pool, context.scratch)
        }
        FrameBody::Withdrawn { id } => window.withdrawn(channel, id, context.pool),
        FrameBody::Transfer { .. } => Err(ChannelViolation::WrongFrame(context.channel)),
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Takes frames of a kind of channel. Returns the messages that were delivered and dropped a second later.
    fn counts(kind: Kind, frames: &[FrameBody]) -> (u64, u64) {
        let (mut receiver, config) = (ChannelReceiver::new(kind), ChannelConfig::from(kind));
        let (mut pool, mut scratch, mut stats) = (ChunkPool::new(None), Vec::new(), ChannelStats::default());
        for body in frames {
            let context = &mut ReceiveContext {
                channel: ChannelId(0),
                config: &config,
                packet: &[7; 200],
                pool: &mut pool,
                scratch: &mut scratch,
                stats: &mut stats,
                now: at(0),
            };
            receiver.take(body.clone(), context).unwrap();
            while receiver.pop(&mut pool, &mut scratch, &mut stats) {}
        }
        stats.dropped += receiver.tick(at(1000), &mut pool);
        (stats.delivered, stats.dropped)
    }

    #[test]
    fn each_message_is_counted_as_delivered_or_dropped() {
        let whole = |id| FrameBody::Whole { id: MessageId::new(id), data: 0..9 };
        let slice = |id, first| FrameBody::Slice { id: MessageId::new(id), bytes: 200, first, data: 0..72 };
        let part = |id| FrameBody::Slice { id: MessageId::new(id), bytes: 200, first: 0, data: 0..128 };
        for (kind, frames, expected) in [
            (Kind::Unreliable, alloc::vec![whole(0), whole(1), whole(2)], (3, 0)),
            (Kind::Unreliable, alloc::vec![part(0), slice(0, 1), part(1), part(2)], (1, 2)),
            (Kind::Sequenced, alloc::vec![whole(5), whole(4), whole(6), whole(6)], (2, 2)),
            (Kind::Sequenced, alloc::vec![part(1), part(2), whole(3), part(9), part(8)], (1, 4)),
            (Kind::ReliableUnordered, alloc::vec![whole(1), whole(1), whole(0)], (2, 1)),
            (Kind::ReliableOrdered, alloc::vec![whole(2), whole(1), whole(0), whole(0)], (3, 1)),
        ] {
            assert_eq!(counts(kind, &frames), expected, "{kind:?}: {frames:?}");
        }
    }
}
