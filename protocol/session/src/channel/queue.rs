//! Messages that wait to be sent for the first time, in the order in which they were given.

use alloc::collections::VecDeque;

use super::key_index::KeyIndex;
use super::message_id::MessageId;
use super::pieces::{Chain, Credit};
use super::receipts::{Asked, Fate, Ticket};
use super::sending::Sending;
use slipgate_netcode::time::Instant;

/// A message in a queue.
pub(super) struct Waiting {
    /// Its number among all that were ever put here; ascending along the queue.
    number: u64,
    pub(super) chain: Chain,
    pub(super) bytes: u32,
    pub(super) deadline: Instant,
    pub(super) since: Instant,
    pub(super) key: Option<u64>,
    /// The id and the pieces that have left, of a message that is sent once, in slices.
    pub(super) begun: Option<(MessageId, u16)>,
    /// A packet left in which there was not enough room for it.
    pub(super) passed_over: bool,
    pub(super) receipt: Option<Ticket>,
}

impl Waiting {
    /// Whether it has no key, and nothing of it has left.
    const fn is_alike(&self) -> bool {
        self.key.is_none() && self.begun.is_none()
    }
}

/// What a message is besides its bytes.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) deadline: Instant,
    pub(super) key: Option<u64>,
    pub(super) receipt: Option<Asked>,
    pub(super) now: Instant,
}

/// The queue of one channel. How much it holds is its owner's affair.
#[derive(Default)]
pub(super) struct Queue {
    messages: VecDeque<Waiting>,
    next_number: u64,
    /// The numbers of messages under keys.
    keys: KeyIndex,
    bytes: u32,
    /// A tick has begun since the last message without a key was put here.
    aged: bool,
    /// No message's deadline is before this.
    first_deadline: Option<Instant>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) const fn bytes(&self) -> u32 {
        self.bytes
    }

    pub(super) fn front(&self) -> Option<&Waiting> {
        self.messages.front()
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut Waiting> {
        self.messages.front_mut()
    }

    pub(super) fn pop(&mut self) -> Option<Waiting> {
        let message = self.messages.pop_front()?;
        self.keys.forget(message.key, message.number);
        self.bytes -= message.bytes;
        Some(message)
    }

    /// Bytes of the message under this key that would be replaced.
    pub(super) fn bytes_under(&self, key: Option<u64>) -> Option<u32> {
        self.place_of(key).and_then(|at| self.messages.get(at)).map(|message| message.bytes)
    }

    /// A tick begins.
    pub(super) const fn begin_tick(&mut self) {
        self.aged = true;
    }

    /// What a new message without a key makes useless, where only the newest counts: those without a key of earlier ticks
    /// of which nothing has left. Answers how many messages and bytes.
    pub(super) fn outdated(&self) -> (usize, u32) {
        // Within a tick there are none: the queue is looked through once in each.
        if !self.aged {
            return (0, 0);
        }
        let outdated = self.messages.iter().filter(|message| message.is_alike());
        outdated.fold((0, 0), |(count, bytes), message| (count + 1, bytes + message.bytes))
    }

    /// Puts a message without a key in the place of the first one that it makes useless, so that it has its turn among
    /// those with keys, and drops these; answers how many.
    pub(super) fn push_newest(&mut self, message: &[u8], terms: Terms, sending: &mut Sending) -> u64 {
        let (dropped, bytes) = self.outdated();
        self.aged = false;
        if dropped == 0 {
            self.push(message, terms, sending);
            return 0;
        }
        let Some(place) = self.messages.iter().position(Waiting::is_alike) else { return 0 };
        self.push(message, terms, sending);
        let Some(new) = self.messages.pop_back() else { return 0 };
        if let Some(old) = self.messages.get_mut(place) {
            let (number, since, passed_over) = (old.number, old.since, old.passed_over);
            let old = core::mem::replace(old, Waiting { number, since, passed_over, ..new });
            sending.close(old.chain, old.receipt, Fate::Superseded);
        }
        let mut at = 0;
        self.messages.retain_mut(|message| {
            at += 1;
            if at - 1 <= place || !message.is_alike() {
                return true;
            }
            sending.close(core::mem::take(&mut message.chain), message.receipt.take(), Fate::Superseded);
            false
        });
        self.bytes -= bytes;
        dropped as u64
    }

    /// Puts a message behind all others, or in the place of the one with the same key: so that a key which gets a new
    /// message in every tick still has its turn. One of which some pieces have left goes on leaving: if it were replaced,
    /// a key that gets large messages faster than they leave would never get one across. Answers whether it replaced one.
    pub(super) fn push(&mut self, message: &[u8], terms: Terms, sending: &mut Sending) -> bool {
        // The senders' store has no shared budget: it is bounded by the queues.
        let chain = sending.store.store(message, Credit::Overdraft).unwrap_or_default();
        let new = Waiting {
            number: self.next_number,
            chain,
            bytes: message.len() as u32,
            deadline: terms.deadline,
            since: terms.now,
            key: terms.key,
            begun: None,
            passed_over: false,
            receipt: terms.receipt.and_then(|asked| sending.receipts.ask(asked)),
        };
        self.bytes += new.bytes;
        self.first_deadline = Some(self.first_deadline.map_or(new.deadline, |first| first.min(new.deadline)));
        let same_key = self.place_of(terms.key).and_then(|at| self.messages.get_mut(at));
        let Some(old) = same_key else {
            if let Some(key) = new.key {
                self.keys.note(key, new.number);
            }
            self.next_number += 1;
            self.messages.push_back(new);
            return false;
        };
        let (number, since, passed_over) = (old.number, old.since, old.passed_over);
        let old = core::mem::replace(old, Waiting { number, since, passed_over, ..new });
        self.bytes -= old.bytes;
        sending.close(old.chain, old.receipt, Fate::Superseded);
        true
    }

    /// Drops the messages whose deadline has come, and answers how many there were.
    pub(super) fn expire(&mut self, now: Instant, sending: &mut Sending) -> u64 {
        if self.first_deadline.is_none_or(|first| now < first) {
            return 0;
        }
        let (before, mut bytes, mut first_deadline) = (self.messages.len(), 0, Instant::NEVER);
        let keys = &mut self.keys;
        self.messages.retain_mut(|message| {
            if now < message.deadline {
                bytes += message.bytes;
                first_deadline = first_deadline.min(message.deadline);
                return true;
            }
            keys.forget(message.key, message.number);
            sending.close(core::mem::take(&mut message.chain), message.receipt.take(), Fate::Expired);
            false
        });
        (self.bytes, self.first_deadline) = (bytes, Some(first_deadline));
        (before - self.messages.len()) as u64
    }

    fn place_of(&self, key: Option<u64>) -> Option<usize> {
        let number = self.keys.place(key?)?;
        let is_it = |place: &usize| self.messages.get(*place).is_some_and(|message| message.number == number);
        // Numbers are left out where messages were too late.
        let first = self.messages.front()?.number;
        let expected = usize::try_from(number.checked_sub(first)?).ok().filter(is_it);
        let search = || Some(self.messages.partition_point(|message| message.number < number)).filter(is_it);
        let place = expected.or_else(search)?;
        self.messages.get(place).filter(|message| message.begun.is_none()).map(|_| place)
    }
}
