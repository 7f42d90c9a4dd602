//! The server's side: takes the states of objects and writes messages for each client.

mod encodings;
mod selection;
mod viewer;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use self::encodings::{EncodedBody, Encodings, KnownCommits};
use self::selection::{GAP_ORDER, PlannedRecord, RecordForm, Selection};
use self::viewer::{SentObject, ViewedObject, Viewer};
use crate::bits::BitWriter;
use crate::commits::{CommitNumber, Commits};
use crate::object::{ObjectId, ObjectMut};
use crate::priority::Priorities;
use crate::schema::{ObjectKind, Schema};

/// The oldest baseline that a record can name, in ticks.
const MAX_AGE: u32 = 255;
/// Commits without a change after which an object counts as at rest.
const REST_COMMITS: u32 = 10;
/// The most numbers that tell objects with one id apart (§6.3).
const GENERATIONS: u8 = 16;

/// A client of a [`Replicator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ViewerId {
    index: u16,
    generation: u32,
}

/// The reason why a [`Replicator`] refuses a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReplicatorError {
    /// The id is not below the limit of objects.
    IdTooLarge,
    /// An object with this id exists.
    IdInUse,
    /// The kind belongs to another schema.
    UnknownKind,
    /// There are as many clients as the limit allows.
    TooManyViewers,
    /// The tick is not later than the one of the commit before.
    TickNotLater,
}

impl fmt::Display for ReplicatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IdTooLarge => "the id is not below the limit of objects",
            Self::IdInUse => "an object with this id exists",
            Self::UnknownKind => "the kind belongs to another schema",
            Self::TooManyViewers => "there are as many clients as the limit allows",
            Self::TickNotLater => "the tick is not later than the one before",
        })
    }
}

impl core::error::Error for ReplicatorError {}

/// A message that [`Replicator::write`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateMessage {
    /// Its length in bytes.
    pub bytes: usize,
    /// Its number, for [`Replicator::on_acknowledged`] and [`Replicator::on_lost`].
    pub tag: u64,
    /// How many objects it describes.
    pub objects: usize,
}

#[derive(Clone, Copy, Debug)]
struct ReplicatedObject {
    kind: ObjectKind,
    is_live: bool,
    generation: u8,
    /// The commit at which its words changed last; 0 before its first commit.
    changed: CommitNumber,
}

#[derive(Debug)]
struct ViewerSlot {
    generation: u32,
    is_used: bool,
    viewer: Box<Viewer>,
}

/// The objects of a server's game, and what each client knows of them.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use slipgate_sync::{Field, ObjectId, Replica, Replicator, Schema};
///
/// let mut schema = Schema::builder();
/// let door = schema.add(&[Field::boolean()]);
/// let schema = Arc::new(schema.build()?);
/// let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 100, 4), Replica::new(schema, 100));
///
/// let player = replicator.add_viewer()?;
/// replicator.spawn(ObjectId(7), door)?.set_bool(0, true)?;
/// replicator.commit(1)?;
///
/// let mut buf = [0; 100];
/// let message = replicator.write(player, &mut buf).ok_or("an object has to be sent")?;
/// replica.read(&buf[..message.bytes])?;
/// assert_eq!(replica.object(ObjectId(7)).and_then(|door| door.bool(0)), Some(true));
/// replicator.on_acknowledged(player, message.tag);
/// assert!(replicator.write(player, &mut buf).is_none(), "the client has everything");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replicator {
    schema: Arc<Schema>,
    priorities: Priorities,
    objects: Vec<ReplicatedObject>,
    /// The words of all objects, as the game has set them.
    words: Vec<i32>,
    commits: Commits,
    encodings: Encodings,
    selection: Selection,
    viewers: Vec<ViewerSlot>,
    max_viewers: usize,
}

impl Replicator {
    /// Returns a replicator without objects and clients. Ids must be below `max_objects`. Memory for `max_objects`
    /// objects at 64 commits is allocated at once, and that of a client when it is added.
    #[must_use]
    pub fn new(schema: Arc<Schema>, max_objects: u16, max_viewers: u16) -> Self {
        let (objects, words) = (usize::from(max_objects), schema.max_words());
        let free = ReplicatedObject { kind: ObjectKind(0), is_live: false, generation: 0, changed: 0 };
        Self {
            priorities: Priorities::default(),
            objects: vec![free; objects],
            words: vec![0; objects * words],
            commits: Commits::new(objects, words),
            encodings: Encodings::new(objects, schema.max_body_bits()),
            selection: Selection::new(objects),
            viewers: Vec::new(),
            max_viewers: usize::from(max_viewers),
            schema,
        }
    }

    /// Sets the rule by which objects are chosen for messages.
    #[must_use]
    pub const fn with_priorities(mut self, priorities: Priorities) -> Self {
        self.priorities = priorities;
        self
    }

    /// Adds an object and returns it, with all fields at their smallest values. Clients get it after the next commit.
    ///
    /// # Errors
    ///
    /// [`ReplicatorError::IdTooLarge`], [`ReplicatorError::IdInUse`] or [`ReplicatorError::UnknownKind`].
    pub fn spawn(&mut self, id: ObjectId, kind: ObjectKind) -> Result<ObjectMut<'_>, ReplicatorError> {
        if self.schema.layout(kind).is_none() {
            return Err(ReplicatorError::UnknownKind);
        }
        let index = usize::from(id.0);
        let object = self.objects.get_mut(index).ok_or(ReplicatorError::IdTooLarge)?;
        if object.is_live {
            return Err(ReplicatorError::IdInUse);
        }
        let generation = (object.generation + 1) % GENERATIONS;
        *object = ReplicatedObject { kind, is_live: true, generation, changed: 0 };
        for slot in &mut self.viewers {
            if let Some(viewed) = slot.viewer.objects.get_mut(index) {
                viewed.forget(self.commits.newest());
            }
        }
        self.object(id).ok_or(ReplicatorError::IdTooLarge)
    }

    /// Returns an object, to change it. `None` if it does not exist.
    pub fn object(&mut self, id: ObjectId) -> Option<ObjectMut<'_>> {
        let index = usize::from(id.0);
        let object = self.objects.get(index).filter(|object| object.is_live)?;
        let layout = self.schema.layout(object.kind)?;
        let start = index * self.schema.max_words();
        Some(ObjectMut { layout, words: self.words.get_mut(start..start + layout.words())? })
    }

    /// Removes an object. Its id can be used again at once. Does nothing if it does not exist.
    pub fn despawn(&mut self, id: ObjectId) {
        let index = usize::from(id.0);
        let Some(object) = self.objects.get_mut(index).filter(|object| object.is_live) else { return };
        object.is_live = false;
        let size = self.schema.max_words();
        if let Some(words) = self.words.get_mut(index * size..(index + 1) * size) {
            words.fill(0);
        }
    }

    /// Makes the objects' present values the state of this tick, which messages then describe. Ticks may be left out.
    /// Deltas refer to the last 64 commits and 255 ticks.
    ///
    /// # Errors
    ///
    /// [`ReplicatorError::TickNotLater`] if the tick is 0, or not larger than that of the commit before.
    pub fn commit(&mut self, tick: u32) -> Result<(), ReplicatorError> {
        let newest = self.commits.newest();
        if self.commits.tick(newest).unwrap_or(0) >= tick {
            return Err(ReplicatorError::TickNotLater);
        }
        let size = self.schema.max_words();
        for (index, object) in self.objects.iter_mut().enumerate().filter(|(_, object)| object.is_live) {
            let now = self.words.get(index * size..(index + 1) * size);
            if object.changed == 0 || now != self.commits.words(newest, index) {
                object.changed = newest + 1;
            }
        }
        self.commits.add(tick, &self.words);
        self.encodings.clear();
        Ok(())
    }

    /// Adds a client, which sees all objects.
    ///
    /// # Errors
    ///
    /// [`ReplicatorError::TooManyViewers`] if the limit is reached.
    pub fn add_viewer(&mut self) -> Result<ViewerId, ReplicatorError> {
        if let Some((index, slot)) = self.viewers.iter_mut().enumerate().find(|(_, slot)| !slot.is_used) {
            slot.viewer.reset();
            (slot.is_used, slot.generation) = (true, slot.generation.wrapping_add(1));
            return Ok(ViewerId { index: index as u16, generation: slot.generation });
        }
        if self.viewers.len() == self.max_viewers {
            return Err(ReplicatorError::TooManyViewers);
        }
        let viewer = Box::new(Viewer::new(self.objects.len()));
        self.viewers.push(ViewerSlot { generation: 0, is_used: true, viewer });
        Ok(ViewerId { index: (self.viewers.len() - 1) as u16, generation: 0 })
    }

    /// Removes a client. Its memory is kept for the next one.
    pub fn remove_viewer(&mut self, viewer: ViewerId) {
        if let Some(slot) = self.slot(viewer) {
            slot.is_used = false;
        }
    }

    /// Sets how important an object is for a client: a factor of its priority, 1 for new clients. With 0 the client
    /// does not get the object, or loses it as out of sight.
    pub fn set_weight(&mut self, viewer: ViewerId, id: ObjectId, weight: f32) {
        let newest = self.commits.newest();
        let Some(slot) = self.slot(viewer) else { return };
        let Some(viewed) = slot.viewer.objects.get_mut(usize::from(id.0)) else { return };
        let weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        if (viewed.weight > 0.0) != (weight > 0.0) {
            viewed.forget(newest);
        }
        viewed.weight = weight;
    }

    /// Notes that a message arrived, also if it was reported as lost before.
    pub fn on_acknowledged(&mut self, viewer: ViewerId, tag: u64) {
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.on_acknowledged(tag);
        }
    }

    /// Notes that a message was lost or never sent: its objects are sent again, in their newest state.
    pub fn on_lost(&mut self, viewer: ViewerId, tag: u64) {
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.on_lost(tag);
        }
    }

    /// Forgets what a client has, because [`Replica::read`](crate::Replica::read) failed there: all objects are sent as
    /// a whole. Limit how often a client may demand this.
    pub fn resync(&mut self, viewer: ViewerId) {
        let newest = self.commits.newest();
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.objects.iter_mut().for_each(|viewed| viewed.forget(newest));
        }
    }

    fn slot(&mut self, viewer: ViewerId) -> Option<&mut ViewerSlot> {
        let slot = self.viewers.get_mut(usize::from(viewer.index))?;
        (slot.is_used && slot.generation == viewer.generation).then_some(slot)
    }

    /// Writes a message for a client into `buf`, which must not be longer than a message may be. It describes the most
    /// urgent objects that fit. Returns `None` if the client has everything, or if nothing fits. Another call writes
    /// the next objects of this commit.
    pub fn write(&mut self, viewer: ViewerId, buf: &mut [u8]) -> Option<StateMessage> {
        let commit = self.commits.newest();
        let tick = self.commits.tick(commit)?;
        let slot = self.viewers.get_mut(usize::from(viewer.index))?;
        if !slot.is_used || slot.generation != viewer.generation {
            return None;
        }
        let viewer = &mut *slot.viewer;
        let mut turn = Turn {
            schema: &self.schema,
            priorities: self.priorities,
            objects: &self.objects,
            commits: &self.commits,
            encodings: &mut self.encodings,
            selection: &mut self.selection,
        };
        turn.collect(viewer);
        turn.selection.choose(buf.len() * 8, usize::from(turn.priorities.max_objects));
        let (bits, objects) = turn.emit(buf, tick);
        if objects == 0 {
            return None;
        }
        let sent = self.selection.chosen().map(|(object, record)| SentObject {
            object: object as u16,
            is_gone: matches!(record.form, RecordForm::Gone { .. }),
            coded_on: if let RecordForm::Delta { coded_on, .. } = record.form { coded_on } else { 0 },
        });
        Some(StateMessage { bytes: bits.div_ceil(8), tag: viewer.on_sent(commit, sent), objects })
    }
}

/// What writing a message uses.
struct Turn<'r> {
    schema: &'r Schema,
    priorities: Priorities,
    objects: &'r [ReplicatedObject],
    commits: &'r Commits,
    encodings: &'r mut Encodings,
    selection: &'r mut Selection,
}

impl Turn<'_> {
    /// Collects the objects that the client needs.
    fn collect(&mut self, viewer: &mut Viewer) {
        let is_new_commit = viewer.counted != self.commits.newest();
        viewer.counted = self.commits.newest();
        self.selection.clear();
        for (index, (object, viewed)) in self.objects.iter().zip(&mut viewer.objects).enumerate() {
            let record = if object.is_live && viewed.weight > 0.0 {
                self.state_record(index, *object, viewed, is_new_commit)
            } else {
                self.gone_record(*object, viewed)
            };
            if let Some(record) = record {
                self.selection.add(index, viewed.priority, record);
            }
        }
    }

    fn gone_record(&self, object: ReplicatedObject, viewed: &mut ViewedObject) -> Option<PlannedRecord> {
        let is_due = viewed.is_shown && !(viewed.is_gone_sent && viewed.is_in_flight(self.commits));
        if !is_due || viewed.written == self.commits.newest() {
            return None;
        }
        // It takes four bits and what the client shows is wrong: it goes before any state.
        viewed.priority = f32::MAX;
        Some(PlannedRecord { form: RecordForm::Gone { is_despawned: !object.is_live }, body: EncodedBody::default() })
    }

    fn state_record(
        &mut self,
        index: usize,
        object: ReplicatedObject,
        viewed: &mut ViewedObject,
        is_new_commit: bool,
    ) -> Option<PlannedRecord> {
        let newest = self.commits.newest();
        let has_it = object.changed <= viewed.known.newest && viewed.known.newest > 0;
        let is_on_its_way = viewed.is_in_flight(self.commits) && object.changed <= viewed.sent;
        let is_due = self.priorities.repeats_known || !(has_it || is_on_its_way);
        if object.changed == 0 || viewed.written == newest || !is_due {
            return None;
        }
        let layout = self.schema.layout(object.kind)?;
        if is_new_commit {
            let error = self.encodings.error(self.commits, layout, index, viewed.shown());
            viewed.priority += viewed.weight * self.growth(object, error);
        }
        let known = self.usable(viewed.known);
        let body = self.encodings.body(self.commits, layout, index, known)?;
        let form = match self.commits.tick(known.newest) {
            Some(tick) => {
                let age = (self.commits.tick(newest)? - tick) as u8;
                RecordForm::Delta { age, coded_on: known.newest }
            }
            None => RecordForm::Whole,
        };
        Some(PlannedRecord { form, body })
    }

    /// Returns how much the priority of an object grows at a commit.
    fn growth(&self, object: ReplicatedObject, error: f32) -> f32 {
        let unchanged = self.commits.newest() - object.changed;
        let base = match unchanged {
            0 => self.priorities.moving,
            1..REST_COMMITS => self.priorities.still,
            _ => self.priorities.at_rest,
        };
        base + self.priorities.per_unit_of_error * error
    }

    /// Returns the states of a client that a record can refer to.
    fn usable(&self, known: KnownCommits) -> KnownCommits {
        let now = self.commits.tick(self.commits.newest()).unwrap_or(0);
        let is_near = |tick: u32| now > tick && now - tick <= MAX_AGE;
        if !self.commits.tick(known.newest).is_some_and(is_near) {
            return KnownCommits::default();
        }
        known
    }

    /// Writes the chosen records. Returns the bits of the message and the number of its objects.
    fn emit(&self, buf: &mut [u8], tick: u32) -> (usize, usize) {
        let base = self.selection.base();
        let mut writer = BitWriter::new(buf);
        writer.write(tick & 0xffff, 16);
        writer.write(u32::from(base), 8);
        let (mut next, mut count) = (0, 0);
        for (index, record) in self.selection.chosen() {
            writer.write_number((index - next) as u32, GAP_ORDER);
            (next, count) = (index + 1, count + 1);
            match record.form {
                RecordForm::Delta { age, .. } if age == base => writer.write(0, 1),
                RecordForm::Delta { age, .. } => {
                    writer.write(0b01, 2);
                    writer.write(u32::from(age), 8);
                }
                RecordForm::Whole => {
                    let object = self.objects.get(index);
                    writer.write(0b011, 3);
                    writer.write(object.map_or(0, |object| u32::from(object.kind.0)), 4);
                    writer.write(object.map_or(0, |object| u32::from(object.generation)), 4);
                }
                RecordForm::Gone { is_despawned } => {
                    writer.write(0b111, 3);
                    writer.write(u32::from(is_despawned), 1);
                }
            }
            self.encodings.copy(&mut writer, record.body);
        }
        (writer.bits(), count)
    }
}

#[cfg(test)]
impl Replicator {
    pub(crate) fn schema_layout(&self, kind: ObjectKind) -> crate::schema::KindLayout {
        self.schema.layout(kind).expect("a kind of this schema").clone()
    }
}
