//! The window of a reliable channel: messages that were sent and may have to be sent again, from the oldest that is not
//! acked to the newest.

use alloc::collections::VecDeque;

use crate::channel::chunks::ChunkList;
use crate::channel::config::{ChannelConfig, Kind};
use crate::channel::events::DeliveryStatus;
use crate::channel::send::context::{FrameContext, SendContext};
use crate::channel::send::frame_plan::{FramePlan, plan_frame};
use crate::channel::send::frames_in_flight::SentFrame;
use crate::channel::send::key_index::KeyIndex;
use crate::channel::send::queue::QueuedMessage;
use crate::channel::send::receipts::ReceiptId;
use crate::channel::slab::{EntrySlab, entry_index};
use crate::channel::wire::frame_writer::FrameHeader;
use crate::channel::wire::message_id::MessageId;
use crate::channel::wire::pieces::{PIECE_BYTES, PieceSet, pieces_of};
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// A message that has an id.
struct SentMessage {
    chunks: ChunkList,
    bytes: u32,
    deadline: Instant,
    since: Instant,
    key: Option<u64>,
    was_deferred: bool,
    /// The message was superseded: only the receiver's window still waits for it.
    superseded: bool,
    receipt: Option<ReceiptId>,
    state: SendState,
}

/// A number of messages, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct QueueUsage {
    pub(crate) bytes: u32,
    pub(crate) messages: u16,
}

/// The state of a message in the window.
///
/// ```text
///  Whole ──▶ Sliced ──▶ Done
///    │  └───────┼────────▲▲
///    └──────────┴──▶ Withdrawn
/// ```
/// `due`: to be sent, for the first time or again.
#[derive(Clone, Copy)]
enum SendState {
    Whole {
        due: bool,
    },
    /// The index of its [`UnackedPieces`].
    Sliced(PiecesIndex),
    /// Superseded or expired: the receiver must learn that the message will not come.
    Withdrawn {
        due: bool,
    },
    /// Acked. The message waits for those before it.
    Done,
}

entry_index! {
    /// The place of a message's [`UnackedPieces`] among those of its window.
    PiecesIndex
}

/// After this many lost packets with slices of a message, without one that was acked, its slices leave in packets
/// without other messages: a receiver without memory for these refuses the whole packet (§3.7). Independent losses of
/// 10 % reach this number once in a hundred million times.
const MAX_MIXED_LOSSES: u8 = 8;

/// After this many losses the oldest message, or its withdrawal, leaves in a packet without others, unless it is sent
/// in slices: a receiver without memory refuses each packet that holds it together with messages behind other gaps, and
/// acknowledges nothing more until it has arrived.
const MAX_OLDEST_LOSSES: u8 = 2;

/// The pieces of a message that is sent in slices.
struct UnackedPieces {
    due: PieceSet,
    unacked: PieceSet,
    /// Lost packets with slices of the message since one was acked.
    losses: u8,
}

impl UnackedPieces {
    /// Returns the pieces of a message of which none was sent.
    fn of(bytes: u32) -> Self {
        let all = PieceSet::up_to(pieces_of(bytes));
        Self { due: all, unacked: all, losses: 0 }
    }
}

/// The window of one channel. Its ids are consecutive.
pub(crate) struct RetransmitQueue {
    kind: Kind,
    oldest: MessageId,
    window: VecDeque<SentMessage>,
    /// The ids of messages with keys.
    keys: KeyIndex,
    bytes: u32,
    /// The limit of the window (§3.7).
    max: QueueUsage,
    /// The part of the window that was superseded.
    superseded: QueueUsage,
    pieces: EntrySlab<PiecesIndex, UnackedPieces>,
    /// The index of the first message that is due, or the end of the window.
    first_due: usize,
    /// How often the oldest message was lost, or probed by a PTO, since it has been the oldest.
    oldest_losses: u8,
}

impl RetransmitQueue {
    pub(crate) const fn new(config: &ChannelConfig) -> Self {
        Self {
            kind: config.kind,
            oldest: MessageId::new(0),
            window: VecDeque::new(),
            keys: KeyIndex::new(),
            bytes: 0,
            max: QueueUsage { bytes: config.queue_bytes, messages: config.queue_messages },
            superseded: QueueUsage { bytes: 0, messages: 0 },
            pieces: EntrySlab::new(),
            first_due: 0,
            oldest_losses: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.window.len()
    }

    /// Returns the bytes of all messages in the window, acked ones included.
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the part of the window that was superseded. It takes no memory.
    pub(crate) const fn superseded(&self) -> QueueUsage {
        self.superseded
    }

    /// Returns whether the window has room for a message of this many bytes. The receiver counts all messages (§3.7).
    #[inline]
    pub(crate) fn has_room(&self, bytes: u32) -> bool {
        self.window.len() < usize::from(self.max.messages) && bytes <= self.max.bytes.saturating_sub(self.bytes)
    }

    /// Returns an upper bound of the number of messages that are due.
    pub(crate) fn max_due(&self) -> usize {
        self.window.len().saturating_sub(self.first_due)
    }

    /// Returns since when the first message that is due waits.
    #[inline]
    pub(crate) fn due_since(&self) -> Option<Instant> {
        self.window.get(self.first_due).map(|message| message.since)
    }

    /// Returns the id of the next message.
    pub(crate) fn next_id(&self) -> MessageId {
        self.oldest.ahead(self.window.len() as u32)
    }

    #[cfg(test)]
    pub(crate) fn begin_ids_at(&mut self, id: MessageId) {
        self.oldest = id;
    }

    /// Adds a message that leaves whole.
    pub(crate) fn admit_whole(&mut self, message: QueuedMessage) {
        self.admit(message, SendState::Whole { due: true });
    }

    /// Adds a message that leaves in slices.
    pub(crate) fn admit_sliced(&mut self, message: QueuedMessage) {
        // Only sliced messages take memory for their pieces.
        let pieces = self.pieces.insert(UnackedPieces::of(message.bytes));
        self.admit(message, SendState::Sliced(pieces));
    }

    /// Writes the first message that is due, or as many pieces of it as fit. Returns whether anything was written.
    pub(crate) fn write(&mut self, frame: &mut FrameContext<'_, '_>) -> bool {
        // Checked when the message would be sent again: no timer is needed for each message.
        if self.is_expired(self.first_due, frame.now) {
            self.withdraw(self.first_due, DeliveryStatus::Expired, frame.shared);
            frame.stats.expired += 1;
        }
        let id = self.oldest.ahead(self.first_due as u32);
        let leaves_alone = self.first_due == 0 && self.oldest_losses >= MAX_OLDEST_LOSSES;
        let Some(message) = self.window.get_mut(self.first_due) else { return false };
        let written = match &mut message.state {
            SendState::Whole { .. } | SendState::Withdrawn { .. } if leaves_alone && frame.writer.pos() > 0 => {
                frame.shared.waits_for_packet = Some(frame.channel);
                return false;
            }
            SendState::Whole { .. } => {
                match plan_frame(frame.writer, frame.channel, Some(id), message.bytes, message.was_deferred) {
                    FramePlan::Whole => write_whole(message, id, frame),
                    FramePlan::Slices => {
                        // Packets may have become smaller since the message was sent whole.
                        let pieces = self.pieces.insert(UnackedPieces::of(message.bytes));
                        message.state = SendState::Sliced(pieces);
                        write_slice(message, self.pieces.get_mut(pieces), id, frame)
                    }
                    FramePlan::Wait => false,
                }
            }
            SendState::Sliced(pieces) => {
                let pieces = *pieces;
                write_slice(message, self.pieces.get_mut(pieces), id, frame)
            }
            SendState::Withdrawn { due } => {
                *due = !write_withdrawn(id, frame);
                !*due
            }
            SendState::Done => false,
        };
        // A message waits for a whole packet once; then it is sliced.
        message.was_deferred |= !written && frame.writer.is_unlimited();
        if written && leaves_alone {
            frame.writer.close();
        }
        self.skip_not_due();
        written
    }

    /// Handles the arrival of messages that were sent whole, or withdrawn.
    pub(crate) fn on_acked(&mut self, first: MessageId, count: u16, context: &mut SendContext) {
        for ahead in 0..count {
            if let Some(index) = self.index_of(first.ahead(ahead.into())) {
                self.complete(index, context);
            }
        }
        self.pop_done(context);
    }

    /// Handles the arrival of pieces of a message.
    pub(crate) fn on_pieces_acked(&mut self, id: MessageId, first: u16, count: u16, context: &mut SendContext) {
        let Some(index) = self.index_of(id) else { return };
        let Some(pieces) = self.pieces_mut(index) else { return };
        pieces.losses = 0;
        for piece in first..first.saturating_add(count) {
            pieces.due.remove(piece);
            pieces.unacked.remove(piece);
        }
        // Pieces may be acked in any order.
        if pieces.unacked.is_empty() {
            self.complete(index, context);
        }
        self.pop_done(context);
    }

    /// Marks messages of the window that may not have arrived as due again.
    pub(crate) fn queue_again(&mut self, first: MessageId, count: u16) {
        for ahead in 0..count {
            let Some(index) = self.index_of(first.ahead(ahead.into())) else { continue };
            let message = self.window.get_mut(index).must_exist("a message of the window");
            let Some(message) = message else { continue };
            if let SendState::Whole { due } | SendState::Withdrawn { due } = &mut message.state {
                *due = true;
                self.first_due = self.first_due.min(index);
                self.oldest_losses = self.oldest_losses.saturating_add(u8::from(index == 0));
            }
        }
    }

    /// Marks pieces of a message that may not have arrived as due again.
    pub(crate) fn queue_pieces_again(&mut self, id: MessageId, first: u16, count: u16) {
        let Some(index) = self.index_of(id) else { return };
        let Some(pieces) = self.pieces_mut(index) else { return };
        pieces.losses = pieces.losses.saturating_add(1);
        // Pieces may have arrived in a retransmission meanwhile.
        for piece in (first..first.saturating_add(count)).filter(|piece| pieces.unacked.has(*piece)) {
            pieces.due.insert(piece);
        }
        self.first_due = self.first_due.min(index);
        self.skip_not_due();
    }

    /// Replaces the message with this key by a withdrawal. Returns whether there was one.
    ///
    /// A message of which some pieces were sent and others are due is not replaced: otherwise a key that gets large
    /// messages faster than they leave would never deliver one.
    pub(crate) fn supersede(&mut self, key: u64, context: &mut SendContext) -> bool {
        let Some(index) = self.index_of_key(key) else { return false };
        self.withdraw(index, DeliveryStatus::Superseded, context);
        if let Some(message) = self.window.get_mut(index).must_exist("a message of the window") {
            // The window still counts its bytes, because the receiver may hold slices of it.
            message.superseded = true;
            self.superseded.bytes += message.bytes;
            self.superseded.messages += 1;
        }
        true
    }

    /// Returns the bytes of the message with this key that would be withdrawn.
    pub(crate) fn replaceable_bytes(&self, key: u64) -> Option<u32> {
        self.index_of_key(key).and_then(|index| self.window.get(index)).map(|message| message.bytes)
    }

    /// Returns the index of the message with this key, if it can be superseded.
    fn index_of_key(&self, key: u64) -> Option<usize> {
        let index = self.keys.get(key).and_then(|id| self.index_of(MessageId::new(id as u32)))?;
        // An id may be reused after 2 million messages: the key must match as well.
        let message = self.window.get(index).filter(|message| message.key == Some(key))?;
        (!self.is_half_sent(message)).then_some(index)
    }

    fn admit(&mut self, message: QueuedMessage, state: SendState) {
        let QueuedMessage { chunks, bytes, deadline, since, key, receipt, .. } = message;
        self.bytes += bytes;
        if let Some(key) = key {
            self.keys.insert(key, self.next_id().number().into());
        }
        let (was_deferred, superseded) = (false, false);
        let message = SentMessage { chunks, bytes, deadline, since, key, was_deferred, superseded, receipt, state };
        self.window.push_back(message);
    }

    fn is_expired(&self, index: usize, now: Instant) -> bool {
        let message = self.window.get(index);
        message.is_some_and(|message| now >= message.deadline && !matches!(message.state, SendState::Withdrawn { .. }))
    }

    /// Replaces the message by a withdrawal.
    fn withdraw(&mut self, index: usize, status: DeliveryStatus, context: &mut SendContext) {
        self.release(index, SendState::Withdrawn { due: true }, Some(status), context);
        self.first_due = self.first_due.min(index);
    }

    fn complete(&mut self, index: usize, context: &mut SendContext) {
        // The peer's application gets a message of an ordered channel only after all before it.
        let status = (self.kind != Kind::ReliableOrdered).then_some(DeliveryStatus::Arrived);
        self.release(index, SendState::Done, status, context);
        self.skip_not_due();
    }

    /// Frees the message's memory, and reports its delivery status if it is known. Its bytes still count: the receiver
    /// may hold them.
    fn release(&mut self, index: usize, state: SendState, status: Option<DeliveryStatus>, context: &mut SendContext) {
        let message = self.window.get_mut(index).must_exist("a message of the window");
        let Some(message) = message else { return };
        context.pool.release(core::mem::take(&mut message.chunks));
        if let Some(status) = status {
            context.receipts.finish(message.receipt.take(), status);
        }
        if let SendState::Sliced(pieces) = core::mem::replace(&mut message.state, state) {
            self.pieces.remove(pieces);
        }
        self.keys.remove(message.key.take(), self.oldest.ahead(index as u32).number().into());
    }

    /// Moves the window past the acked messages at its start.
    fn pop_done(&mut self, context: &mut SendContext) {
        while self.window.front().is_some_and(|message| matches!(message.state, SendState::Done)) {
            let Some(message) = self.window.pop_front() else { break };
            context.receipts.finish(message.receipt, DeliveryStatus::Arrived);
            self.bytes -= message.bytes;
            // The receiver knows of the withdrawal: its room in the window is free now.
            if message.superseded {
                self.superseded.bytes -= message.bytes;
                self.superseded.messages -= 1;
            }
            self.oldest = self.oldest.ahead(1);
            self.oldest_losses = 0;
            self.first_due = self.first_due.saturating_sub(1);
        }
    }

    fn skip_not_due(&mut self) {
        while self.window.get(self.first_due).is_some_and(|message| !self.is_due(message)) {
            self.first_due += 1;
        }
    }

    /// Returns whether some pieces of the message were sent and others are due.
    fn is_half_sent(&self, message: &SentMessage) -> bool {
        let SendState::Sliced(pieces) = message.state else { return false };
        let all = PieceSet::up_to(pieces_of(message.bytes));
        self.pieces.get(pieces).is_some_and(|pieces| !pieces.due.is_empty() && pieces.due != all)
    }

    fn is_due(&self, message: &SentMessage) -> bool {
        match message.state {
            SendState::Whole { due } | SendState::Withdrawn { due } => due,
            SendState::Sliced(pieces) => self.pieces.get(pieces).is_some_and(|pieces| !pieces.due.is_empty()),
            SendState::Done => false,
        }
    }

    fn index_of(&self, id: MessageId) -> Option<usize> {
        let ahead = id.ahead_of(self.oldest)? as usize;
        (ahead < self.window.len()).then_some(ahead)
    }

    fn pieces_mut(&mut self, index: usize) -> Option<&mut UnackedPieces> {
        match self.window.get(index).must_exist("a message of the window")?.state {
            SendState::Sliced(pieces) => self.pieces.get_mut(pieces),
            _ => None,
        }
    }
}

/// Writes a message whole. The caller has checked that it fits.
fn write_whole(message: &mut SentMessage, id: MessageId, frame: &mut FrameContext<'_, '_>) -> bool {
    let buf = frame.writer.begin(frame.channel, FrameHeader::Whole(Some(id)), message.bytes as usize);
    frame.shared.pool.copy(&message.chunks, 0, buf);
    message.state = SendState::Whole { due: false };
    frame.push(SentFrame::Whole { channel: frame.channel, first: id, count: 1 });
    true
}

/// Writes a run of pieces that are due, if one fits.
fn write_slice(
    message: &SentMessage,
    pieces: Option<&mut UnackedPieces>,
    id: MessageId,
    frame: &mut FrameContext<'_, '_>,
) -> bool {
    let Some(pieces) = pieces else { return false };
    let Some((first, run)) = pieces.due.first_run(u16::MAX) else { return false };
    let leaves_alone = pieces.losses >= MAX_MIXED_LOSSES;
    if leaves_alone && frame.writer.pos() > 0 {
        frame.shared.waits_for_packet = Some(frame.channel);
        return false;
    }
    let header = FrameHeader::Slice { id, bytes: message.bytes, first };
    // The last piece may be shorter than the others.
    let end = message.bytes as usize - usize::from(first) * PIECE_BYTES;
    let available = end.min(usize::from(run) * PIECE_BYTES);
    let bytes = frame.writer.pieces_that_fit(frame.channel, header, available);
    if bytes == 0 {
        return false;
    }
    frame.shared.pool.copy(&message.chunks, first, frame.writer.begin(frame.channel, header, bytes));
    if leaves_alone {
        frame.writer.close();
    }
    let count = pieces_of(bytes as u32);
    for piece in first..first + count {
        pieces.due.remove(piece);
    }
    frame.push(SentFrame::Slice { channel: frame.channel, id, first, count });
    true
}

/// Writes a withdrawal, if it fits.
fn write_withdrawn(id: MessageId, frame: &mut FrameContext<'_, '_>) -> bool {
    let written = frame.writer.withdraw(frame.channel, id);
    if written {
        // Acked like a whole message: both settle the id at the receiver.
        frame.push(SentFrame::Whole { channel: frame.channel, first: id, count: 1 });
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receipt_takes_no_memory_of_a_message_in_flight() {
        struct Before {
            _chunks: ChunkList,
            _bytes: u32,
            _times: [Instant; 2],
            _key: Option<u64>,
            _was_deferred: bool,
            _state: SendState,
        }
        assert_eq!(size_of::<SentMessage>(), size_of::<Before>());
    }
}
