//! The messages to one client that wait for a report of their delivery, and their records.

use alloc::collections::VecDeque;

use crate::commits::CommitNumber;

/// How many records of each object have memory from the start: more than the states of a round trip of 300 ms at 20
/// states a second.
const RECORDS_PER_OBJECT: usize = 8;
/// The least and the most records that have memory from the start. Of a very large world, a client gets a part.
const MIN_RECORDS: usize = 1 << 10;
const MAX_RECORDS: usize = 1 << 15;
/// How many messages have memory from the start.
const MESSAGES: usize = 512;

/// A record of a message that was sent, in 25 bits: the object, how many commits ago its baseline was, and whether it
/// is gone.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentObject(u32);

impl SentObject {
    pub(super) const fn state(object: u16, age: u8) -> Self {
        Self(object as u32 | (age as u32) << 16)
    }

    pub(super) const fn gone(object: u16) -> Self {
        Self(object as u32 | 1 << 24)
    }

    pub(super) const fn object(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    pub(super) const fn is_gone(self) -> bool {
        self.0 >> 24 == 1
    }

    /// Returns the commit on which its fields were coded; 0 for none.
    pub(super) const fn coded_on(self, commit: CommitNumber) -> CommitNumber {
        match (self.0 >> 16) & 0xff {
            0 => 0,
            age => commit.saturating_sub(age),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct SentStates {
    commit: CommitNumber,
    records: u32,
    /// The number of its first record, counted from the first one that was ever sent.
    first: u64,
    /// Whether its delivery or its loss was reported.
    is_reported: bool,
}

/// The newest messages, in the order of their tags. Allocates only if more of them have no report than have memory
/// from the start: before that, it forgets the oldest messages that have one.
#[derive(Debug)]
pub(super) struct SentLog {
    messages: VecDeque<SentStates>,
    records: VecDeque<SentObject>,
    /// The tag of the first message that is known.
    first_tag: u64,
    /// The number of the first record that is known.
    first_record: u64,
}

impl SentLog {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            messages: VecDeque::with_capacity(MESSAGES),
            records: VecDeque::with_capacity((objects * RECORDS_PER_OBJECT).clamp(MIN_RECORDS, MAX_RECORDS)),
            first_tag: 0,
            first_record: 0,
        }
    }

    /// Forgets all messages. Their tags are not used again.
    pub(super) fn clear(&mut self) {
        self.first_tag += self.messages.len() as u64;
        self.first_record += self.records.len() as u64;
        self.messages.clear();
        self.records.clear();
    }

    /// Adds a message with these records. Returns its tag.
    pub(super) fn push(&mut self, commit: CommitNumber, records: impl ExactSizeIterator<Item = SentObject>) -> u64 {
        while self.is_full_for(records.len()) && self.messages.front().is_some_and(|oldest| oldest.is_reported) {
            self.pop_front(|_| {});
        }
        let before = self.records.len();
        self.records.extend(records);
        self.messages.push_back(SentStates {
            commit,
            records: (self.records.len() - before) as u32,
            first: self.first_record + before as u64,
            is_reported: false,
        });
        self.first_tag + self.messages.len() as u64 - 1
    }

    /// Returns whether a message with this number of records finds no free memory.
    fn is_full_for(&self, records: usize) -> bool {
        self.messages.len() == self.messages.capacity() || self.records.len() + records > self.records.capacity()
    }

    /// Returns the commit of the oldest message.
    pub(super) fn oldest(&self) -> Option<CommitNumber> {
        self.messages.front().map(|oldest| oldest.commit)
    }

    /// Forgets the oldest message. Calls `on_record` for each of its records.
    pub(super) fn pop_front(&mut self, on_record: impl FnMut(SentObject)) {
        let Some(oldest) = self.messages.pop_front() else { return };
        self.records.drain(..(oldest.records as usize).min(self.records.len())).for_each(on_record);
        self.first_record += u64::from(oldest.records);
        self.first_tag += 1;
    }

    /// Notes that a message is reported. Returns its commit and its records, unless it was forgotten.
    pub(super) fn on_report(&mut self, tag: u64) -> Option<(CommitNumber, impl Iterator<Item = SentObject>)> {
        let message = self.messages.get_mut(usize::try_from(tag.checked_sub(self.first_tag)?).ok()?)?;
        message.is_reported = true;
        let start = (message.first - self.first_record) as usize;
        Some((message.commit, self.records.range(start..start + message.records as usize).copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(log: &mut SentLog, commit: CommitNumber) -> u64 {
        log.push(commit, (0..100).map(|object| SentObject::state(object, 1)))
    }

    /// Returns the tags that the log knows, and marks them as reported.
    fn known(log: &mut SentLog, tags: core::ops::Range<u64>) -> alloc::vec::Vec<u64> {
        tags.filter(|tag| log.on_report(*tag).is_some()).collect()
    }

    #[test]
    fn oldest_reported_messages_make_room() {
        let mut log = SentLog::new(10);
        for commit in 1..=10 {
            assert_eq!(push(&mut log, commit), u64::from(commit) - 1);
        }
        // Ten messages fit, of which these are reported: both oldest ones are forgotten, one at a time.
        assert_eq!(known(&mut log, 0..2), [0, 1]);
        let memory = log.records.capacity();
        push(&mut log, 11);
        assert!(log.on_report(0).is_none() && log.on_report(1).is_some());
        push(&mut log, 12);
        assert!(log.on_report(1).is_none());
        assert_eq!(log.records.capacity(), memory);
        let (commit, records) = log.on_report(11).unwrap();
        assert_eq!((commit, records.map(SentObject::object).sum::<usize>()), (12, 4950));
    }

    #[test]
    fn messages_without_a_report_are_kept() {
        let mut log = SentLog::new(10);
        (1..=100).for_each(|commit| _ = push(&mut log, commit));
        assert_eq!(known(&mut log, 0..100).len(), 100);
    }

    #[test]
    fn many_messages_without_records_take_no_more_memory() {
        let mut log = SentLog::new(10);
        for commit in 1..=10_000 {
            let tag = log.push(commit, core::iter::empty());
            assert!(log.on_report(tag).is_some());
        }
        assert_eq!(log.messages.capacity(), MESSAGES);
    }
}
