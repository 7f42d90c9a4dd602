//! One message for one client: collects the objects that it needs, and writes those that were chosen.

use core::ops::Range;

use super::encodings::{BaselineAges, EncodedBody, Encodings, encode};
use super::replicated::{GENERATIONS, ReplicatedObject};
use super::selection::{PlannedRecord, RecordForm, Room, Selection};
use super::sent_log::SentObject;
use super::viewer::{ViewedObject, Viewer};
use crate::bits::{BitWriter, number_bits};
use crate::commits::{CommitNumber, Commits};
use crate::header::HeaderRecord;
use crate::object_set::ObjectSet;
use crate::priority::Priorities;
use crate::record::{self, ErrorScale, GAP_ORDER, KnownState};
use crate::schema::Schema;

/// Commits without a change after which an object counts as at rest.
const REST_COMMITS: u32 = 10;
/// The interval to which priorities refer: 50 ms.
const INTERVALS_PER_SECOND: f32 = 20.0;
/// The least error of an object if its state at a client is not known, in metres.
const UNKNOWN_ERROR: f32 = 1.0;
/// Marks such an object in the table of errors.
const UNKNOWN: f32 = f32::INFINITY;

/// How far a client moves an object on that it has no newer state of: 100 ms.
const EXTRAPOLATED_MILLIS: u32 = 100;

/// The most objects that a turn looks at for a client, without those that changed at the newest commit. A client that
/// has just joined a large world needs many turns of messages anyway.
const MAX_WAITING: usize = 4096;

/// What writing a message uses.
pub(super) struct Turn<'r> {
    pub(super) schema: &'r Schema,
    pub(super) priorities: Priorities,
    pub(super) objects: &'r [ReplicatedObject],
    /// The objects that changed at the newest commit.
    pub(super) changed: &'r ObjectSet,
    pub(super) commits: &'r Commits,
    pub(super) ticks_per_second: u32,
}

impl Turn<'_> {
    /// Chooses objects for these messages: of those that the client needs, or of those that were not chosen before.
    pub(super) fn plan(
        &self,
        viewer: &mut Viewer,
        encodings: &mut Encodings,
        selection: &mut Selection,
        room: Room,
        is_collected: bool,
    ) {
        if !is_collected {
            let turns = self.collect(viewer, encodings, selection);
            selection.set_base();
            let ticks = self.now().saturating_sub(viewer.counted);
            viewer.counted = self.now();
            if selection.all_fit(room, &mut |object, record| self.encoded(object, record, room, encodings)) {
                selection.choose_all();
                viewer.record_bits = selection.record_bits();
                return;
            }
            self.raise_priorities(viewer, encodings, selection, ticks, turns);
        }
        selection.choose(room, &mut |object, record| self.encoded(object, record, room, encodings));
        viewer.record_bits = selection.record_bits();
    }

    /// Returns a record with its encoded fields. Encodes them, if no client needed them before. A difference for which
    /// no message has room, and that is longer than the whole state, is replaced by the whole state: that of an object
    /// that jumped. Elsewhere the longer difference is cheaper, because the next one can use the object's motion.
    fn encoded(&self, object: u16, record: PlannedRecord, room: Room, encodings: &mut Encodings) -> PlannedRecord {
        let index = usize::from(object);
        let layout = self.objects.get(index).and_then(|object| self.schema.layout(object.kind));
        let Some(layout) = layout else { return PlannedRecord { body: Some(EncodedBody::default()), ..record } };
        let body = encodings.body(self.commits, layout, index, record.baseline);
        let is_short = room.fits_alone(body.bits) || u32::from(body.bits) <= layout.bits();
        if record.form == RecordForm::Whole || is_short {
            return PlannedRecord { body: Some(body), ..record };
        }
        let baseline = BaselineAges::default();
        let body = encodings.body(self.commits, layout, index, baseline);
        PlannedRecord { form: RecordForm::Whole, baseline, body: Some(body) }
    }

    /// Raises the priorities of all candidates. Those that did not change are candidates once in this number of turns.
    fn raise_priorities(
        &self,
        viewer: &mut Viewer,
        encodings: &mut Encodings,
        selection: &mut Selection,
        ticks: u32,
        turns: f32,
    ) {
        let intervals = ticks as f32 * INTERVALS_PER_SECOND / self.ticks_per_second as f32;
        // New objects must not starve beside those that are wrong by more, whatever the units of the game.
        let unknown = viewer.worst_error.max(UNKNOWN_ERROR);
        let (objects, worst) = (&mut viewer.objects, &mut viewer.worst_error);
        *worst = 0.0;
        selection.raise(|object| {
            let Some(viewed) = objects.get_mut(usize::from(object)) else { return 0.0 };
            let mut error = self.error(object, viewed, encodings);
            if error == UNKNOWN {
                error = unknown;
            } else {
                *worst = worst.max(error);
            }
            let growth = viewed.weight * self.growth(object, error, turns) * intervals;
            viewed.priority += growth;
            growth
        });
    }

    /// Returns the header of a client's next message, and that of the others of this commit.
    pub(super) fn headers(&self, viewer: &Viewer) -> (HeaderRecord, HeaderRecord) {
        let next = viewer.header(self.now(), self.commits.newest());
        (next, HeaderRecord { is_first: false, report: None, ..next })
    }

    pub(super) fn now(&self) -> u32 {
        self.commits.tick(self.commits.newest()).unwrap_or(0)
    }

    /// Looks at the objects that are due: at all that changed, and at some of the others, if there are very many.
    /// Returns in how many turns all of them are looked at.
    fn collect(&self, viewer: &mut Viewer, encodings: &mut Encodings, selection: &mut Selection) -> f32 {
        selection.clear();
        encodings.forget_own();
        let (open, turns) = self.next_groups(viewer);
        let groups = viewer.due.groups();
        for group in 0..groups {
            if open.contains(&group) || open.contains(&(group + groups)) {
                viewer.due.group(group).for_each(|object| self.collect_one(object, viewer, encodings, selection));
            } else {
                let changed = viewer.due.common_group(self.changed, group);
                changed.for_each(|object| self.collect_one(object, viewer, encodings, selection));
            }
        }
        turns
    }

    /// Returns the groups of ids to look at, of which those behind the last one are the first ones. Also returns in how
    /// many turns all groups are looked at.
    fn next_groups(&self, viewer: &mut Viewer) -> (Range<usize>, f32) {
        let groups = viewer.due.groups();
        let waiting = |group| viewer.due.count_without(self.changed, group);
        let all: usize = (0..groups).map(waiting).sum();
        if all <= MAX_WAITING {
            return (0..groups, 1.0);
        }
        let first = viewer.next_group;
        let (mut count, mut end) = (0, first);
        while end < first + groups && count < MAX_WAITING {
            count += waiting(end % groups);
            end += 1;
        }
        viewer.next_group = end % groups;
        (first..end, all as f32 / count.max(1) as f32)
    }

    fn collect_one(&self, index: usize, viewer: &mut Viewer, encodings: &Encodings, selection: &mut Selection) {
        let newest = self.commits.newest();
        let (Some(object), Some(viewed)) = (self.objects.get(index), viewer.objects.get(index)) else { return };
        // A client ignores another record of this tick: the object stays due.
        if viewed.written == newest {
            return;
        }
        let is_seen = object.is_live && viewer.sees(index);
        if !is_seen || viewed.must_be_removed_first() {
            if viewed.needs_removal(self.commits) {
                let form = RecordForm::Gone { is_despawned: !object.is_live || is_seen };
                // It takes four bits and what the client shows is wrong: it goes before any state.
                selection.add(index as u16, f32::MAX, PlannedRecord { form, ..PlannedRecord::default() });
            } else {
                viewer.due.remove(index);
            }
            return;
        }
        // An object has no state before its first commit.
        let needs = self.priorities.repeats_known || viewed.needs(object.changed, self.commits);
        if object.changed == 0 || !needs {
            viewer.due.remove(index);
            return;
        }
        let baseline = encodings.baseline(viewed.known, newest);
        let age = encodings.age(baseline);
        let form = if age > 0 { RecordForm::Delta { age } } else { RecordForm::Whole };
        selection.add(index as u16, viewed.priority, PlannedRecord { form, baseline, body: None });
    }

    /// Returns how much the priority of an object with this error grows in 50 ms. One that did not change is looked at
    /// once in this number of turns.
    fn growth(&self, object: u16, error: f32, turns: f32) -> f32 {
        let Some(object) = self.objects.get(usize::from(object)) else { return 0.0 };
        let (base, turns) = match self.commits.newest() - object.changed {
            0 => (self.priorities.moving, 1.0),
            1..REST_COMMITS => (self.priorities.still, turns),
            _ => (self.priorities.at_rest, turns),
        };
        turns * (base + self.priorities.per_metre_of_error * error)
    }

    /// Returns the error of an object at a client in metres, or `UNKNOWN`; 0 if the priorities do not depend on it.
    fn error(&self, object: u16, viewed: &ViewedObject, encodings: &mut Encodings) -> f32 {
        let (index, shown) = (usize::from(object), viewed.shown());
        let Some(object) = self.objects.get(index).filter(|_| self.priorities.per_metre_of_error > 0.0) else {
            return 0.0;
        };
        encodings.error(index, shown, self.commits.newest(), || self.measure_error(index, *object, shown))
    }

    /// Returns the error of a client that shows the state of this commit.
    fn measure_error(&self, index: usize, object: ReplicatedObject, shown: CommitNumber) -> f32 {
        let state = |commit| Some((self.commits.words(commit, index)?, self.commits.tick(commit)?));
        let (Some(layout), Some((words, tick)), Some((now, now_tick))) =
            (self.schema.layout(object.kind), state(shown), state(self.commits.newest()))
        else {
            return UNKNOWN;
        };
        let known = KnownState { words, tick, before: shown.checked_sub(1).and_then(state) };
        let scale = ErrorScale {
            metres_per_unit: self.priorities.units_per_metre.recip(),
            max_moved_ticks: (self.ticks_per_second.saturating_mul(EXTRAPOLATED_MILLIS) / 1000).max(1),
        };
        record::error_between(layout, now, known, now_tick, scale).min(f32::MAX)
    }

    /// Writes the chosen records that are not written yet, as many as fit. Returns the bits of the message and the
    /// number of its objects.
    pub(super) fn emit(
        &self,
        buf: &mut [u8],
        encodings: &Encodings,
        selection: &Selection,
        viewer: &Viewer,
    ) -> (usize, usize) {
        let (max_bits, base) = (buf.len() * 8, selection.base());
        let mut writer = BitWriter::new(buf);
        self.headers(viewer).0.write(&mut writer);
        writer.write(u32::from(base), 8);
        let (mut next, mut count) = (0, 0);
        for object in selection.unwritten().iter().take(usize::from(self.priorities.max_objects)) {
            let (record, gap) = (selection.record(*object), u32::from(*object) - next);
            let bits = number_bits(gap, GAP_ORDER) as usize + record.bits(base);
            if writer.bits() + bits > max_bits {
                break;
            }
            writer.write_number(gap, GAP_ORDER);
            self.emit_record(&mut writer, usize::from(*object), record, base, encodings);
            (next, count) = (u32::from(*object) + 1, count + 1);
        }
        (writer.finish(), count)
    }

    fn emit_record(
        &self,
        writer: &mut BitWriter<'_>,
        index: usize,
        record: PlannedRecord,
        base: u8,
        encodings: &Encodings,
    ) {
        let Some(object) = self.objects.get(index) else { return };
        match record.form {
            RecordForm::Delta { age } if age == base => writer.write(0, 1),
            RecordForm::Delta { age } => writer.write(0b01 | u32::from(age) << 2, 10),
            RecordForm::Whole => {
                let generation = u32::from(object.generation % GENERATIONS);
                writer.write(0b011 | u32::from(object.kind.0) << 3 | generation << 7, 11);
            }
            RecordForm::Gone { is_despawned } => return writer.write(0b111 | u32::from(is_despawned) << 3, 4),
        }
        let body = record.body.unwrap_or_default();
        match (encodings.bytes(body), self.schema.layout(object.kind)) {
            (Some(bytes), _) => writer.copy(bytes, usize::from(body.bits)),
            (None, Some(layout)) => encode(writer, self.commits, layout, index, record.baseline),
            (None, None) => debug_assert!(false, "an object has a kind of this schema"),
        }
    }
}

/// Returns what is kept of a record that is sent.
pub(super) fn sent_record(selection: &Selection, object: u16) -> SentObject {
    let record = selection.record(object);
    match record.form {
        RecordForm::Gone { .. } => SentObject::gone(object),
        RecordForm::Delta { .. } | RecordForm::Whole => SentObject::state(object, record.baseline.newest),
    }
}
