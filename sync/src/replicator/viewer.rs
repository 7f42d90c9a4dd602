//! What one client was sent, what it is known to have, and how urgent each object is for it.

use alloc::vec;
use alloc::vec::Vec;

use super::encodings::KnownCommits;
use super::interest::{Grid, Look};
use super::sent_log::{SentLog, SentObject};
use crate::commits::{CommitNumber, Commits};
use crate::header::HeaderRecord;
use crate::inputs::InputReport;
use crate::object_set::ObjectSet;
use crate::resync::ResyncRequest;

/// Added to the priority of an object after the loss of its record.
const PRIORITY_AFTER_LOSS: f32 = 50.0;
/// How often an id can be used again before the client must know that the object is gone: it can distinguish 16
/// generations (§6.3).
const MAX_UNSEEN_SPAWNS: u8 = 15;
/// Ticks without an acknowledged message after which a message has all bits of its tick: half of what 16 bits tell
/// apart is far enough from any mistake.
const MAX_NARROW_TICKS: u32 = 1 << 14;
/// The least number of seconds from a resync to the next one, and to one for a request that was made before it.
const SECONDS_BETWEEN_RESYNCS: u32 = 1;
const SECONDS_OF_OLD_REQUESTS: u32 = 5;

/// An object for one client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ViewedObject {
    pub(super) priority: f32,
    /// The factor of the priority; 0 if the client must not see the object.
    pub(super) weight: f32,
    /// The newest state that arrived.
    pub(super) known: KnownCommits,
    /// The newest commit that was sent and not reported lost.
    sent: CommitNumber,
    /// The newest commit at which a record was written. A client ignores another record of that tick.
    pub(super) written: CommitNumber,
    /// Acknowledgements of this commit and older ones belong to an object that is gone.
    floor: CommitNumber,
    /// How often the id was used again since the object that the client may show.
    spawns: u8,
    /// Whether the client may show the object.
    is_shown: bool,
    /// Whether the client may ever have shown an object with this id.
    was_shown: bool,
    /// Whether `sent` is the commit at which the client was informed that the object is gone.
    is_gone_sent: bool,
}

impl ViewedObject {
    const NEW: Self = Self {
        priority: 0.0,
        weight: 1.0,
        known: KnownCommits { newest: 0, before: 0 },
        sent: 0,
        written: 0,
        floor: 0,
        spawns: 0,
        is_shown: false,
        was_shown: false,
        is_gone_sent: false,
    };

    /// Returns the commit that the client shows, if nothing got lost; 0 for none.
    pub(super) fn shown(&self) -> CommitNumber {
        self.sent.max(self.known.newest)
    }

    /// Returns whether the state of this commit must be sent: the client does not have it, and it is not on its way.
    pub(super) fn needs(&self, changed: CommitNumber, commits: &Commits) -> bool {
        let has_it = self.known.newest > 0 && changed <= self.known.newest;
        let is_on_its_way = changed <= self.sent && self.is_in_flight(commits);
        !(has_it || is_on_its_way)
    }

    /// Returns whether the client must be informed that the object is gone.
    pub(super) fn needs_removal(&self, commits: &Commits) -> bool {
        self.is_shown && !(self.is_gone_sent && self.is_in_flight(commits))
    }

    /// Returns whether the client could take a new object for the one that it shows.
    pub(super) const fn must_be_removed_first(&self) -> bool {
        self.spawns >= MAX_UNSEEN_SPAWNS
    }

    /// Forgets what the client has, so that the object is sent as a whole.
    fn forget(&mut self) {
        (self.known, self.sent, self.floor, self.is_gone_sent) = (KnownCommits::default(), 0, self.written, false);
    }

    /// Returns whether a record that was sent is still on its way. It counts as lost when its commit is too old.
    fn is_in_flight(&self, commits: &Commits) -> bool {
        self.sent > self.known.newest && commits.age(self.sent).is_some()
    }

    fn on_sent(&mut self, commit: CommitNumber, is_gone: bool) {
        (self.sent, self.written, self.priority) = (commit, commit, 0.0);
        if is_gone {
            // The client forgets the object: what arrives of it later is no baseline.
            (self.known, self.floor, self.is_gone_sent) = (KnownCommits::default(), commit, true);
        } else {
            (self.is_shown, self.was_shown) = (true, true);
        }
    }

    /// Returns whether the object is due again: the client knows now that the one before is gone.
    fn on_acknowledged(&mut self, commit: CommitNumber, record: SentObject) -> bool {
        if record.is_gone() {
            let is_newest = self.is_gone_sent && self.sent == commit;
            if is_newest {
                (self.is_shown, self.is_gone_sent, self.sent, self.spawns) = (false, false, 0, 0);
            }
            return is_newest;
        }
        if commit > self.floor && commit > self.known.newest {
            self.known = KnownCommits { newest: commit, before: record.coded_on(commit) };
            self.spawns = 0;
        }
        false
    }

    /// Returns whether the object is due again.
    fn on_lost(&mut self, commit: CommitNumber) -> bool {
        let is_newest = self.sent == commit;
        if is_newest {
            (self.sent, self.is_gone_sent) = (0, false);
            self.priority += PRIORITY_AFTER_LOSS;
        }
        is_newest
    }
}

/// All objects for one client, and the messages that wait for a report of their delivery.
#[derive(Debug)]
pub(super) struct Viewer {
    pub(super) objects: Vec<ViewedObject>,
    /// The objects to look at for the next message. All others need none.
    pub(super) due: ObjectSet,
    /// The largest error of the objects that the client has, at the last turn in which priorities grew.
    pub(super) worst_error: f32,
    /// The mean bits of a record of the newest choice; 0 before the first one.
    pub(super) record_bits: usize,
    /// The group of 64 ids at which the next turn goes on, if more objects are due than it can look at.
    pub(super) next_group: usize,
    /// The objects that are in sight: all without [`Look`].
    pub(super) seen: ObjectSet,
    pub(super) look: Option<Look>,
    /// The commit at which `seen` was brought up to date; 0 for none.
    pub(super) looked: CommitNumber,
    /// The newest tick that is part of the priorities.
    pub(super) counted: u32,
    /// The newest tick of a message that arrived.
    pub(super) acknowledged: Option<u32>,
    /// The tick of the last resync, and how many there were, modulo 16.
    resynced: Option<u32>,
    resyncs: u8,
    /// The commit of the last resync: what arrives of it and older ones says nothing of the tick's bits.
    floor: CommitNumber,
    /// The report that the next message has.
    pub(super) report: Option<InputReport>,
    /// The commit of the newest message.
    written: CommitNumber,
    /// Messages of the last 255 ticks.
    sent: SentLog,
}

impl Viewer {
    pub(super) fn new(objects: usize) -> Self {
        Self {
            objects: vec![ViewedObject::NEW; objects],
            due: ObjectSet::new(objects),
            worst_error: 0.0,
            record_bits: 0,
            next_group: 0,
            seen: ObjectSet::new(objects),
            look: None,
            looked: 0,
            counted: 0,
            acknowledged: None,
            resynced: None,
            resyncs: 0,
            floor: 0,
            report: None,
            written: 0,
            sent: SentLog::new(objects),
        }
    }

    /// Makes this the state of a new client, in the same memory.
    pub(super) fn reset(&mut self) {
        self.objects.fill(ViewedObject::NEW);
        self.sent.clear();
        (self.counted, self.acknowledged, self.resynced, self.resyncs) = (0, None, None, 0);
        (self.report, self.written, self.floor, self.worst_error) = (None, 0, 0, 0.0);
        (self.look, self.record_bits) = (None, 0);
        self.seen.insert_below(self.objects.len());
    }

    /// Notes that an object with this id was added or removed.
    pub(super) fn on_replaced(&mut self, object: usize, is_spawn: bool) {
        let Some(viewed) = self.objects.get_mut(object) else { return };
        if is_spawn {
            viewed.forget();
            viewed.weight = 1.0;
            viewed.spawns = if viewed.is_shown { viewed.spawns.saturating_add(1) } else { 0 };
        }
        self.due.insert(object);
    }

    /// Notes which objects changed at a commit.
    pub(super) fn notice(&mut self, changed: &ObjectSet) {
        self.due.add_common(changed, &self.seen);
    }

    /// Returns whether the client may have this object.
    pub(super) fn sees(&self, object: usize) -> bool {
        self.seen.contains(object) && self.objects.get(object).is_some_and(|viewed| viewed.weight > 0.0)
    }

    /// Sets what the client sees. Without a look it sees all objects again.
    pub(super) fn set_look(&mut self, look: Option<Look>) {
        if self.look.is_some() && look.is_none() {
            for object in 0..self.objects.len() {
                if !self.seen.contains(object) {
                    self.seen.insert(object);
                    self.on_sight(object);
                }
            }
        }
        (self.look, self.looked) = (look, 0);
    }

    /// Brings the objects in sight up to date with a commit.
    pub(super) fn update_seen(&mut self, grid: &Grid, newest: CommitNumber) {
        let Some(look) = self.look.filter(|_| self.looked != newest) else { return };
        self.looked = newest;
        let (objects, due) = (&mut self.objects, &mut self.due);
        grid.update(&look, &mut self.seen, |object| {
            due.insert(object);
            if let Some(viewed) = objects.get_mut(object) {
                viewed.forget();
            }
        });
    }

    /// Notes that an object came into sight or left it.
    fn on_sight(&mut self, object: usize) {
        self.due.insert(object);
        if let Some(viewed) = self.objects.get_mut(object) {
            viewed.forget();
        }
    }

    pub(super) fn set_weight(&mut self, object: usize, weight: f32) {
        let Some(viewed) = self.objects.get_mut(object) else { return };
        let is_change = (viewed.weight > 0.0) != (weight > 0.0);
        viewed.weight = weight;
        if is_change {
            self.on_sight(object);
        }
    }

    /// Returns the header of the next message, which describes this commit.
    pub(super) fn header(&self, tick: u32, commit: CommitNumber) -> HeaderRecord {
        let is_narrow = self.acknowledged.is_some_and(|known| tick.saturating_sub(known) < MAX_NARROW_TICKS);
        let wide = (!is_narrow).then_some(self.resyncs);
        HeaderRecord { tick, wide, report: self.report, is_first: !self.has_written(commit) }
    }

    /// Returns whether a message of this commit was written.
    pub(super) fn has_written(&self, commit: CommitNumber) -> bool {
        self.written == commit
    }

    /// Forgets what the client has, unless that was done a short time ago. Returns whether it was.
    pub(super) fn resync(&mut self, request: ResyncRequest, commits: &Commits, ticks_per_second: u32) -> bool {
        let (newest, is_old) = (commits.newest(), request.0 != self.resyncs);
        let seconds = if is_old { SECONDS_OF_OLD_REQUESTS } else { SECONDS_BETWEEN_RESYNCS };
        let now = commits.tick(newest).unwrap_or(0);
        let is_due = self.resynced.is_none_or(|last| now - last >= seconds.saturating_mul(ticks_per_second));
        if is_due {
            (self.resynced, self.resyncs) = (Some(now), (self.resyncs + 1) % 16);
            self.forget_all(newest);
        }
        is_due
    }

    /// Forgets what the client has: it may show any object that it was ever sent.
    fn forget_all(&mut self, newest: CommitNumber) {
        for (index, viewed) in self.objects.iter_mut().enumerate() {
            viewed.forget();
            viewed.is_shown = viewed.was_shown;
            self.due.insert(index);
        }
        (self.acknowledged, self.floor) = (None, newest);
    }

    /// Notes that a message with these records was sent. Returns its tag.
    pub(super) fn on_sent(&mut self, commits: &Commits, records: impl ExactSizeIterator<Item = SentObject>) -> u64 {
        let commit = commits.newest();
        (self.written, self.report) = (commit, None);
        let (objects, due) = (&mut self.objects, &mut self.due);
        let records = records.inspect(|record| {
            due.remove(record.object());
            if let Some(viewed) = objects.get_mut(record.object()) {
                viewed.on_sent(commit, record.is_gone());
            }
        });
        self.sent.push(commit, records)
    }

    /// Forgets the messages that are too old for a baseline. Objects of those without a report are due again.
    pub(super) fn forget_old(&mut self, commits: &Commits) {
        let (objects, due) = (&self.objects, &mut self.due);
        while let Some(commit) = self.sent.oldest().filter(|commit| commits.age(*commit).is_none()) {
            let is_unreported = |viewed: &ViewedObject| viewed.sent == commit && viewed.known.newest < viewed.sent;
            self.sent.pop_front(|record| {
                if objects.get(record.object()).is_some_and(is_unreported) {
                    due.insert(record.object());
                }
            });
        }
    }

    /// Notes that a message arrived. One of more than 255 ticks ago may have come too late for the client.
    pub(super) fn on_acknowledged(&mut self, tag: u64, commits: &Commits) {
        let Some((commit, records)) = self.sent.on_report(tag) else { return };
        if commits.age(commit).is_none() {
            return;
        }
        if commit > self.floor {
            self.acknowledged = self.acknowledged.max(commits.tick(commit));
        }
        for record in records {
            let Some(viewed) = self.objects.get_mut(record.object()) else { continue };
            if viewed.on_acknowledged(commit, record) {
                self.due.insert(record.object());
            }
        }
    }

    pub(super) fn on_lost(&mut self, tag: u64) {
        let Some((commit, records)) = self.sent.on_report(tag) else { return };
        for record in records {
            let Some(viewed) = self.objects.get_mut(record.object()) else { continue };
            if viewed.on_lost(commit) {
                self.due.insert(record.object());
            }
        }
    }
}
