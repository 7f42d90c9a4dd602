//! Messages that wait to be sent for the first time, in the order in which they were sent.

use alloc::collections::VecDeque;

use crate::channel::chunks::{ChunkList, Credit};
use crate::channel::events::DeliveryStatus;
use crate::channel::send::context::SendContext;
use crate::channel::send::key_index::KeyIndex;
use crate::channel::send::receipts::{ReceiptId, ReceiptRequest};
use crate::channel::shared::SharedMessage;
use crate::channel::wire::message_id::MessageId;
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// The bytes of a message that is sent.
#[derive(Clone, Copy)]
pub(crate) enum MessageSource<'a> {
    /// Bytes to be copied.
    Copied(&'a [u8]),
    /// Bytes to be referenced.
    Shared(&'a SharedMessage),
}

impl MessageSource<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Self::Copied(bytes) => bytes.len(),
            Self::Shared(message) => message.bytes().len(),
        }
    }
}

/// A message in a queue.
pub(crate) struct QueuedMessage {
    /// The message's number among all that were ever queued here; ascending along the queue.
    number: u64,
    pub(crate) chunks: ChunkList,
    pub(crate) bytes: u32,
    pub(crate) deadline: Instant,
    pub(crate) since: Instant,
    pub(crate) key: Option<u64>,
    /// The id and the number of pieces that were sent, of a message that is sent once and in slices.
    pub(crate) started: Option<(MessageId, u16)>,
    /// A packet was sent that had not enough room for the message.
    pub(crate) was_deferred: bool,
    pub(crate) receipt: Option<ReceiptId>,
}

impl QueuedMessage {
    /// Returns whether the message has no key and nothing of it was sent.
    const fn is_replaceable(&self) -> bool {
        self.key.is_none() && self.started.is_none()
    }

    /// Replaces this message by a newer one, which inherits its position and its age. Returns the old message.
    fn replace(&mut self, new: Self) -> Self {
        let (number, since, was_deferred) = (self.number, self.since, self.was_deferred);
        core::mem::replace(self, Self { number, since, was_deferred, ..new })
    }
}

/// The parameters of a message besides its bytes.
#[derive(Clone, Copy)]
pub(crate) struct SendParams {
    pub(crate) deadline: Instant,
    pub(crate) key: Option<u64>,
    pub(crate) receipt: Option<ReceiptRequest>,
    pub(crate) now: Instant,
}

/// The queue of one channel. Its owner enforces the limits.
pub(crate) struct Queue {
    messages: VecDeque<QueuedMessage>,
    next_number: u64,
    /// The numbers of messages with keys.
    keys: KeyIndex,
    bytes: u32,
    /// A new tick has started since the last message without a key was queued.
    is_new_tick: bool,
    /// No message has a deadline before this.
    earliest_deadline: Instant,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            next_number: 0,
            keys: KeyIndex::new(),
            bytes: 0,
            is_new_tick: false,
            earliest_deadline: Instant::NEVER,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Returns the bytes of the largest message. It searches the queue.
    pub(crate) fn largest_bytes(&self) -> u32 {
        self.messages.iter().map(|message| message.bytes).max().unwrap_or(0)
    }

    pub(crate) fn front(&self) -> Option<&QueuedMessage> {
        self.messages.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut QueuedMessage> {
        self.messages.front_mut()
    }

    pub(crate) fn pop(&mut self) -> Option<QueuedMessage> {
        let message = self.messages.pop_front()?;
        // A key refers to waiting messages only.
        self.keys.remove(message.key, message.number);
        self.bytes -= message.bytes;
        Some(message)
    }

    /// Returns the bytes of the message with this key that would be replaced.
    pub(crate) fn replaceable_bytes(&self, key: u64) -> Option<u32> {
        self.index_of(key).and_then(|index| self.messages.get(index)).map(|message| message.bytes)
    }

    /// Begins a tick.
    pub(crate) const fn begin_tick(&mut self) {
        self.is_new_tick = true;
    }

    /// Returns how many messages and bytes a new message without a key would replace on a channel with `newest_only`:
    /// those without a key of earlier ticks of which nothing was sent.
    pub(crate) fn outdated(&self) -> (usize, u32) {
        // Messages of the same tick are never outdated, so that the queue is searched once in each tick.
        if !self.is_new_tick {
            return (0, 0);
        }
        let outdated = self.messages.iter().filter(|message| message.is_replaceable());
        outdated.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.bytes))
    }

    /// Queues a message without a key at the position of the first message that it outdates, so that it keeps its turn
    /// among those with keys, and discards the outdated messages. Returns how many were discarded.
    pub(crate) fn push_newest(
        &mut self,
        message: MessageSource<'_>,
        params: SendParams,
        context: &mut SendContext,
    ) -> u64 {
        let (discarded, bytes) = self.outdated();
        self.is_new_tick = false;
        if discarded == 0 {
            self.push(message, params, context);
            return 0;
        }
        let first = self.messages.iter().position(QueuedMessage::is_replaceable);
        let Some(first) = first.must_exist("the first outdated message") else { return 0 };
        self.push(message, params, context);
        // `push` has appended it, as it has no key: move it to the front of the outdated ones.
        let Some(new) = self.messages.pop_back().must_exist("the new message") else { return 0 };
        if let Some(old) = self.messages.get_mut(first) {
            let old = old.replace(new);
            context.close(old.chunks, old.receipt, DeliveryStatus::Superseded);
        }
        let mut index = 0;
        self.messages.retain_mut(|message| {
            index += 1;
            if index - 1 <= first || !message.is_replaceable() {
                return true;
            }
            let chunks = core::mem::take(&mut message.chunks);
            context.close(chunks, message.receipt.take(), DeliveryStatus::Superseded);
            false
        });
        self.bytes -= bytes;
        discarded as u64
    }

    /// Queues a message at the end, or at the position of the one with the same key, so that a key which gets a new
    /// message in every tick still gets its turn. Returns whether it replaced one.
    ///
    /// A message of which some pieces were sent is not replaced: otherwise a key that gets large messages faster than
    /// they leave would never deliver one.
    pub(crate) fn push(&mut self, message: MessageSource<'_>, params: SendParams, context: &mut SendContext) -> bool {
        // The senders' pool has no shared budget: the queues bound it, so that storing cannot fail.
        let chunks = match message {
            MessageSource::Copied(bytes) => context.pool.store(bytes, Credit::Checked),
            MessageSource::Shared(message) => context.pool.store_shared(message),
        };
        let new = QueuedMessage {
            number: self.next_number,
            chunks: chunks.unwrap_or_default(),
            bytes: message.len() as u32,
            deadline: params.deadline,
            since: params.now,
            key: params.key,
            started: None,
            was_deferred: false,
            receipt: params.receipt.and_then(|request| context.receipts.open(request)),
        };
        // Both count for a moment; the replaced message is subtracted below.
        self.bytes += new.bytes;
        self.earliest_deadline = self.earliest_deadline.min(new.deadline);
        let same_key = params.key.and_then(|key| self.index_of(key)).and_then(|index| self.messages.get_mut(index));
        let Some(old) = same_key else {
            if let Some(key) = new.key {
                self.keys.insert(key, new.number);
            }
            self.next_number += 1;
            self.messages.push_back(new);
            return false;
        };
        let old = old.replace(new);
        self.bytes -= old.bytes;
        context.close(old.chunks, old.receipt, DeliveryStatus::Superseded);
        true
    }

    /// Discards the messages with a deadline that has passed. Returns how many there were.
    pub(crate) fn expire(&mut self, now: Instant, context: &mut SendContext) -> u64 {
        // Called for each frame: the cached minimum keeps it constant while nothing expires.
        if now < self.earliest_deadline {
            return 0;
        }
        let (before, mut bytes, mut earliest) = (self.messages.len(), 0, Instant::NEVER);
        let keys = &mut self.keys;
        self.messages.retain_mut(|message| {
            if now < message.deadline {
                bytes += message.bytes;
                earliest = earliest.min(message.deadline);
                return true;
            }
            keys.remove(message.key, message.number);
            let chunks = core::mem::take(&mut message.chunks);
            context.close(chunks, message.receipt.take(), DeliveryStatus::Expired);
            false
        });
        (self.bytes, self.earliest_deadline) = (bytes, earliest);
        (before - self.messages.len()) as u64
    }

    /// Returns the index of the message with this key, unless some pieces of it were sent.
    fn index_of(&self, key: u64) -> Option<usize> {
        let number = self.keys.get(key)?;
        let is_match = |index: &usize| self.messages.get(*index).is_some_and(|message| message.number == number);
        // Numbers are consecutive unless messages in between expired: then the search costs log n.
        let first = self.messages.front()?.number;
        let expected = usize::try_from(number.checked_sub(first)?).ok().filter(is_match);
        let search = || Some(self.messages.partition_point(|message| message.number < number)).filter(is_match);
        let index = expected.or_else(search)?;
        self.messages.get(index).filter(|message| message.started.is_none()).map(|_| index)
    }
}
