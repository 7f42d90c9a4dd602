//! The sender of one channel: which messages wait, and how they leave.

use crate::channel::config::{ChannelConfig, Kind};
use crate::channel::options::Remaining;
use crate::channel::scheduling::send_budget::FRAME_OVERHEAD_BYTES;
use crate::channel::send::context::{FrameContext, SendContext};
use crate::channel::send::frame_plan::{FramePlan, plan_frame};
use crate::channel::send::frames_in_flight::SentFrame;
use crate::channel::send::queue::{MessageSource, Queue, QueuedMessage, SendParams};
use crate::channel::send::retransmit_queue::RetransmitQueue;
use crate::channel::wire::frame_writer::FrameHeader;
use crate::channel::wire::message_id::MessageId;
use crate::channel::wire::pieces::{PIECE_BYTES, pieces_of};
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// The sender of one channel.
pub(crate) struct ChannelSender {
    queue: Queue,
    retransmits: RetransmitQueue,
    /// The next id of messages that are sent once.
    next_id: MessageId,
}

impl ChannelSender {
    pub(crate) fn new(config: &ChannelConfig) -> Self {
        Self { queue: Queue::new(), retransmits: RetransmitQueue::new(config), next_id: MessageId::default() }
    }

    /// Starts with this id instead of 0.
    #[cfg(test)]
    pub(crate) fn begin_ids_at(&mut self, id: MessageId) {
        self.next_id = id;
        self.retransmits.begin_ids_at(id);
    }

    /// Returns what the channel can still take of messages without keys.
    pub(crate) fn remaining(&self, config: &ChannelConfig, context: &SendContext) -> Remaining {
        // A message without a key replaces these, so their room counts as free.
        let outdated = if config.replaces_older() { self.queue.outdated() } else { (0, 0) };
        self.remaining_without(outdated, config, context)
    }

    /// Returns what the channel can take when this many waiting messages, and their bytes, are discarded.
    fn remaining_without(&self, discarded: (usize, u32), config: &ChannelConfig, context: &SendContext) -> Remaining {
        // Superseded messages in the window take no memory here, only a place in the receiver's window (§3.7).
        let superseded = self.retransmits.superseded();
        let bytes = self.queue.bytes() - discarded.1 + self.retransmits.bytes() - superseded.bytes;
        let messages = self.queue.len() - discarded.0 + self.retransmits.len() - usize::from(superseded.messages);
        Remaining {
            bytes: config.queue_bytes.saturating_sub(bytes),
            messages: config.queue_messages.saturating_sub(messages as u16),
            receipts: context.receipts.remaining(),
        }
    }

    /// Queues a message. Returns how many others it supersedes, or `None` if the queue has no room for it.
    #[inline]
    pub(crate) fn push(
        &mut self,
        config: &ChannelConfig,
        message: MessageSource<'_>,
        params: SendParams,
        context: &mut SendContext,
    ) -> Option<u64> {
        let replaced = match params.key {
            Some(key) => [self.queue.replaceable_bytes(key), self.retransmits.replaceable_bytes(key)],
            None => [None; 2],
        };
        let is_newest_only = config.replaces_older() && params.key.is_none();
        let outdated = if is_newest_only { self.queue.outdated() } else { (0, 0) };
        let remaining = self.remaining_without(outdated, config, context);
        let available = replaced.iter().flatten().fold(u64::from(remaining.bytes), |sum, old| sum + u64::from(*old));
        let is_replacement = replaced != [None; 2];
        if message.len() as u64 > available || (!is_replacement && remaining.messages == 0) {
            return None;
        }
        if is_newest_only {
            return Some(self.queue.push_newest(message, params, context));
        }
        // Both may exist: one in flight, and a newer one that waits.
        let was_in_flight = params.key.is_some_and(|key| self.retransmits.supersede(key, context));
        let was_waiting = self.queue.push(message, params, context);
        Some(u64::from(was_in_flight) + u64::from(was_waiting))
    }

    /// Begins a tick: discards messages that expired before they were sent for the first time. Returns how many there
    /// were.
    #[inline]
    pub(crate) fn begin_tick(&mut self, now: Instant, context: &mut SendContext) -> u64 {
        self.queue.begin_tick();
        self.queue.expire(now, context)
    }

    /// Returns the bytes of messages that wait. If any sent message is due again, all bytes in the window count.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        // An estimate: counting the due messages exactly would search the window.
        let again = if self.retransmits.due_since().is_some() { self.retransmits.bytes() } else { 0 };
        let first_time = if self.first_to_leave().is_some() { self.queue.bytes() } else { 0 };
        u64::from(first_time) + u64::from(again)
    }

    /// Returns about how many bytes of frames wait, with the header of each.
    pub(crate) fn waiting_frame_bytes(&self) -> u64 {
        let first_time = if self.first_to_leave().is_some() { self.queue.len() } else { 0 };
        self.waiting_bytes() + FRAME_OVERHEAD_BYTES * (first_time + self.retransmits.max_due()) as u64
    }

    /// Returns about how many bytes the largest frame of the queue has.
    pub(crate) fn largest_frame_bytes(&self) -> u64 {
        u64::from(self.queue.largest_bytes()) + FRAME_OVERHEAD_BYTES
    }

    /// Returns since when the message that leaves next has waited.
    #[inline]
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.retransmits.due_since().or_else(|| self.first_to_leave().map(|message| message.since))
    }

    /// Returns the first message of the queue, unless the window has no room for it. A superseded message makes room in
    /// the queue at once, and in the window when the receiver knows of it (§3.7).
    #[inline]
    fn first_to_leave(&self) -> Option<&QueuedMessage> {
        self.queue.front().filter(|message| self.retransmits.has_room(message.bytes))
    }

    /// Writes one frame. Returns whether there was room for it.
    #[inline]
    pub(crate) fn write(&mut self, kind: Kind, frame: &mut FrameContext<'_, '_>) -> bool {
        frame.stats.expired += self.queue.expire(frame.now, frame.shared);
        // The last frame of a packet has no length (§3.2): in the usual case of one message this is known beforehand.
        frame.writer.is_last &= self.queue.len() + self.retransmits.max_due() == 1;
        let Self { queue, retransmits, next_id } = self;
        if kind.is_reliable() {
            // Retransmissions first: the peer can deliver nothing behind a gap on an ordered channel.
            retransmits.write(frame)
                || (retransmits.due_since().is_none() && write_first_time(queue, retransmits, frame))
        } else {
            write_once(queue, next_id, kind, frame)
        }
    }

    /// Handles the arrival of a frame of this channel.
    pub(crate) fn on_acked(&mut self, frame: SentFrame, context: &mut SendContext) {
        match frame {
            SentFrame::Whole { first, count, .. } => self.retransmits.on_acked(first, count, context),
            SentFrame::Slice { id, first, count, .. } => {
                self.retransmits.on_pieces_acked(id, first, count, context);
            }
            SentFrame::Once { part, .. } => context.receipts.on_acked(part),
            SentFrame::Transfer { .. } => debug_assert!(false, "a frame of a transfer on a channel of messages"),
        }
    }

    /// Queues the content of a frame again that may not have arrived.
    pub(crate) fn queue_again(&mut self, frame: SentFrame) {
        match frame {
            SentFrame::Whole { first, count, .. } => self.retransmits.queue_again(first, count),
            SentFrame::Slice { id, first, count, .. } => self.retransmits.queue_pieces_again(id, first, count),
            SentFrame::Once { .. } => {}
            SentFrame::Transfer { .. } => debug_assert!(false, "a frame of a transfer on a channel of messages"),
        }
    }
}

/// Writes the first message of the queue, which is in the window from then on until it is acked.
fn write_first_time(queue: &mut Queue, retransmits: &mut RetransmitQueue, frame: &mut FrameContext<'_, '_>) -> bool {
    let id = retransmits.next_id();
    let Some(message) = queue.front_mut().filter(|message| retransmits.has_room(message.bytes)) else { return false };
    let plan = plan_frame(frame.writer, frame.channel, Some(id), message.bytes, message.was_deferred);
    if plan == FramePlan::Wait {
        // A packet limited by the scheduler says nothing about the message's size.
        message.was_deferred |= frame.writer.is_unlimited();
        return false;
    }
    if let Some(message) = queue.pop().must_exist("the first message of the queue") {
        match plan {
            FramePlan::Slices => retransmits.admit_sliced(message),
            _ => retransmits.admit_whole(message),
        }
    }
    retransmits.write(frame)
}

/// Writes the first message of a queue without retransmission, or a slice of it.
fn write_once(queue: &mut Queue, next_id: &mut MessageId, kind: Kind, frame: &mut FrameContext<'_, '_>) -> bool {
    let Some(message) = queue.front_mut() else { return false };
    // Whole unreliable messages have no id on the wire (§3.3).
    let id = (kind == Kind::Sequenced).then_some(*next_id);
    let plan = match message.started {
        Some(_) => FramePlan::Slices,
        None => plan_frame(frame.writer, frame.channel, id, message.bytes, message.was_deferred),
    };
    match plan {
        FramePlan::Wait => {
            message.was_deferred |= frame.writer.is_unlimited();
            false
        }
        FramePlan::Whole => {
            let buf = frame.writer.begin(frame.channel, FrameHeader::Whole(id), message.bytes as usize);
            frame.shared.pool.copy(&message.chunks, 0, buf);
            if id.is_some() {
                *next_id = next_id.ahead(1);
            }
            frame.add_receipt_part(message.receipt);
            finish_first(queue, frame.shared);
            true
        }
        FramePlan::Slices => {
            let started = message.started.unwrap_or((*next_id, 0));
            if message.started.is_none() {
                *next_id = next_id.ahead(1);
            }
            write_next_slice(queue, started, frame)
        }
    }
}

/// Writes the next pieces of the first message of a queue, if any fit.
fn write_next_slice(queue: &mut Queue, (id, first): (MessageId, u16), frame: &mut FrameContext<'_, '_>) -> bool {
    let Some(message) = queue.front_mut().must_exist("the message of the slice") else { return false };
    // The id is consumed even if nothing fits now: the message keeps it for the next packet.
    message.started = Some((id, first));
    let header = FrameHeader::Slice { id, bytes: message.bytes, first };
    // The last piece of a message may be shorter than the others.
    let left = message.bytes as usize - usize::from(first) * PIECE_BYTES;
    let bytes = frame.writer.pieces_that_fit(frame.channel, header, left);
    if bytes == 0 {
        return false;
    }
    frame.shared.pool.copy(&message.chunks, first, frame.writer.begin(frame.channel, header, bytes));
    message.started = Some((id, first + pieces_of(bytes as u32)));
    frame.add_receipt_part(message.receipt);
    if bytes == left {
        finish_first(queue, frame.shared);
    }
    true
}

/// Removes the first message of a queue, of which all was sent and nothing is sent again.
fn finish_first(queue: &mut Queue, context: &mut SendContext) {
    if let Some(message) = queue.pop().must_exist("the message that was sent") {
        context.pool.release(message.chunks);
        context.receipts.on_all_sent(message.receipt);
    }
}
