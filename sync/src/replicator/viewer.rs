//! What one client was sent, what it is known to have, and how urgent each object is for it.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::encodings::KnownCommits;
use crate::commits::{CommitNumber, Commits};

/// The most messages that wait for a report of their delivery. Older ones count as lost.
const MAX_MESSAGES: usize = 512;
/// Records of messages that are kept, for each object.
const RECORDS_PER_OBJECT: usize = 8;
const MIN_RECORDS: usize = 512;
/// Added to the priority of an object after the loss of its record.
const PRIORITY_AFTER_LOSS: f32 = 50.0;

/// An object for one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewedObject {
    pub(super) priority: f32,
    /// The factor of the priority; 0 if the client must not see the object.
    pub(super) weight: f32,
    /// The newest state that arrived.
    pub(super) known: KnownCommits,
    /// The newest commit that was sent and not reported lost.
    pub(super) sent: CommitNumber,
    /// The newest commit at which a record was written. A client ignores another record of that tick.
    pub(super) written: CommitNumber,
    /// Acknowledgements of this commit and older ones belong to an object that is gone.
    floor: CommitNumber,
    /// Whether the client may show the object.
    pub(super) is_shown: bool,
    /// Whether `sent` is the commit at which the client was informed that the object is gone.
    pub(super) is_gone_sent: bool,
}

impl ViewedObject {
    const NEW: Self = Self {
        priority: 0.0,
        weight: 1.0,
        known: KnownCommits { newest: 0, before: 0 },
        sent: 0,
        written: 0,
        floor: 0,
        is_shown: false,
        is_gone_sent: false,
    };

    /// Returns the commit that the client shows, if nothing got lost; 0 for none.
    pub(super) fn shown(&self) -> CommitNumber {
        self.sent.max(self.known.newest)
    }

    /// Forgets what the client has, so that the object is sent as a whole.
    pub(super) fn forget(&mut self, newest: CommitNumber) {
        (self.known, self.sent, self.floor, self.is_gone_sent) = (KnownCommits::default(), 0, newest, false);
    }

    /// Returns whether a record that was sent is still on its way. It counts as lost when its commit is forgotten.
    pub(super) fn is_in_flight(&self, commits: &Commits) -> bool {
        self.sent > self.known.newest && commits.has(self.sent)
    }
}

/// A record of a message that was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentObject {
    pub(super) object: u16,
    pub(super) is_gone: bool,
    /// The commit on which its fields were coded; 0 for none.
    pub(super) coded_on: CommitNumber,
}

#[derive(Clone, Copy, Debug)]
struct SentStates {
    tag: u64,
    commit: CommitNumber,
    first: u64,
    count: u32,
}

/// All objects for one client, and the messages that wait for a report of their delivery.
#[derive(Debug)]
pub(super) struct Viewer {
    pub(super) objects: Vec<ViewedObject>,
    /// The newest commit that is part of the priorities.
    pub(super) counted: CommitNumber,
    messages: VecDeque<SentStates>,
    records: Vec<SentObject>,
    next_record: u64,
    next_tag: u64,
}

impl Viewer {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            objects: vec![ViewedObject::NEW; objects],
            counted: 0,
            messages: VecDeque::with_capacity(MAX_MESSAGES),
            records: vec![SentObject::default(); (objects * RECORDS_PER_OBJECT).max(MIN_RECORDS)],
            next_record: 0,
            next_tag: 0,
        }
    }

    /// Makes this the state of a new client, in the same memory.
    pub(super) fn reset(&mut self) {
        self.objects.fill(ViewedObject::NEW);
        self.messages.clear();
        self.counted = 0;
    }

    /// Notes that a message with these records was sent. Returns its tag.
    pub(super) fn on_sent(&mut self, commit: CommitNumber, records: impl Iterator<Item = SentObject>) -> u64 {
        let (tag, first) = (self.next_tag, self.next_record);
        self.next_tag += 1;
        let size = self.records.len() as u64;
        for record in records {
            if let Some(place) = self.records.get_mut((self.next_record % size) as usize) {
                *place = record;
            }
            self.next_record += 1;
            if let Some(viewed) = self.objects.get_mut(usize::from(record.object)) {
                viewed.on_sent(commit, record.is_gone);
            }
        }
        // A message without its records is forgotten, as are the oldest of too many.
        let oldest = self.next_record.saturating_sub(size);
        while self.messages.len() == MAX_MESSAGES || self.messages.front().is_some_and(|oldest_| oldest_.first < oldest)
        {
            self.messages.pop_front();
        }
        self.messages.push_back(SentStates { tag, commit, first, count: (self.next_record - first) as u32 });
        tag
    }

    /// Calls `on_record` for each record of a message that is still known.
    fn for_each_record(&mut self, tag: u64, on_record: fn(&mut ViewedObject, CommitNumber, SentObject)) {
        let Some(front) = self.messages.front() else { return };
        let Some(index) = tag.checked_sub(front.tag) else { return };
        let Some(message) = self.messages.get(index as usize).copied() else { return };
        let size = self.records.len() as u64;
        for index in message.first..message.first + u64::from(message.count) {
            let Some(record) = self.records.get((index % size) as usize).copied() else { continue };
            if let Some(viewed) = self.objects.get_mut(usize::from(record.object)) {
                on_record(viewed, message.commit, record);
            }
        }
    }

    pub(super) fn on_acknowledged(&mut self, tag: u64) {
        self.for_each_record(tag, ViewedObject::on_acknowledged);
    }

    pub(super) fn on_lost(&mut self, tag: u64) {
        self.for_each_record(tag, ViewedObject::on_lost);
    }
}

impl ViewedObject {
    fn on_sent(&mut self, commit: CommitNumber, is_gone: bool) {
        (self.sent, self.written, self.priority) = (commit, commit, 0.0);
        if is_gone {
            // The client forgets the object: what arrives of it later is no baseline.
            (self.known, self.floor, self.is_gone_sent) = (KnownCommits::default(), commit, true);
        } else {
            self.is_shown = true;
        }
    }

    fn on_acknowledged(&mut self, commit: CommitNumber, record: SentObject) {
        if record.is_gone {
            if self.is_gone_sent && self.sent == commit {
                (self.is_shown, self.is_gone_sent, self.sent) = (false, false, 0);
            }
        } else if commit > self.floor && commit > self.known.newest {
            self.known = KnownCommits { newest: commit, before: record.coded_on };
        }
    }

    fn on_lost(&mut self, commit: CommitNumber, _: SentObject) {
        if self.sent == commit {
            (self.sent, self.is_gone_sent) = (0, false);
            self.priority += PRIORITY_AFTER_LOSS;
        }
    }
}
