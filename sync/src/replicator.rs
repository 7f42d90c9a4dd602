//! The server's side: takes the states of objects and writes messages for each client.

mod encodings;
mod interest;
mod replicated;
mod selection;
mod sent_log;
mod smallest_message;
mod turn;
mod viewer;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use self::encodings::Encodings;
use self::interest::Grid;
pub use self::interest::Look;
use self::replicated::{GENERATIONS, ReplicatedObject};
use self::selection::{Room, Selection};
use self::turn::{Turn, sent_record};
use self::viewer::Viewer;
use crate::commits::{CommitNumber, Commits};
use crate::inputs::{EPOCHS, InputReport};
use crate::object::{ObjectId, ObjectMut};
use crate::object_set::ObjectSet;
use crate::priority::Priorities;
use crate::resync::ResyncRequest;
use crate::schema::{ObjectKind, Schema};

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
    /// How many objects it describes: 0 if only its tick is new for the client.
    pub objects: usize,
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
/// let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 100, 4, 60), Replica::new(schema, 100));
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
/// // Nothing changes: the next message has its tick only.
/// replicator.commit(2)?;
/// assert_eq!(replicator.write(player, &mut buf).map(|message| (message.bytes, message.objects)), Some((4, 0)));
/// assert_eq!(replicator.write(player, &mut buf), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replicator {
    schema: Arc<Schema>,
    priorities: Priorities,
    ticks_per_second: u32,
    objects: Vec<ReplicatedObject>,
    /// All ids that were ever used are below this one.
    end: usize,
    /// The words of all objects, as the game has set them.
    words: Vec<i32>,
    /// The objects that the game may have changed since the newest commit.
    touched: ObjectSet,
    /// The objects that changed at the newest commit.
    changed: ObjectSet,
    commits: Commits,
    encodings: Encodings,
    selection: Selection,
    grid: Grid,
    /// The commit of the grid.
    grid_of: CommitNumber,
    /// The client and the commit of the selection, unless anything happened since.
    planned_for: Option<(ViewerId, CommitNumber)>,
    viewers: Vec<ViewerSlot>,
    max_viewers: usize,
}

impl Replicator {
    /// Returns a replicator without objects and clients. Ids must be below `max_objects`. Some memory is allocated for
    /// all ids at once, that of states at the first use of their ids, and that of a client when it is added. It is
    /// bounded: the guide has the figures.
    ///
    /// `ticks_per_second` is the rate of the ticks of [`commit`](Self::commit), at least 1. It says how long a second
    /// is in which [`resync`](Self::resync) obeys once, how fast [`Priorities`] grow, and how far clients move an
    /// object on for 100 ms, which is part of its error.
    #[must_use]
    pub fn new(schema: Arc<Schema>, max_objects: u16, max_viewers: u16, ticks_per_second: u32) -> Self {
        let (objects, words) = (usize::from(max_objects), schema.max_words());
        let free = ReplicatedObject { kind: ObjectKind(0), is_live: false, generation: 0, changed: 0 };
        Self {
            priorities: Priorities::default(),
            ticks_per_second: ticks_per_second.max(1),
            objects: vec![free; objects],
            end: 0,
            words: vec![0; objects * words],
            touched: ObjectSet::new(objects),
            changed: ObjectSet::new(objects),
            commits: Commits::new(words),
            encodings: Encodings::new(objects),
            selection: Selection::new(objects),
            grid: Grid::new(&schema, objects),
            grid_of: 0,
            planned_for: None,
            viewers: Vec::new(),
            max_viewers: usize::from(max_viewers),
            schema,
        }
    }

    /// Sets the rule by which objects are chosen for messages. `units_per_metre` is 1 if it is not a number above 0.
    #[must_use]
    pub const fn with_priorities(mut self, mut priorities: Priorities) -> Self {
        if !priorities.units_per_metre.is_normal() || priorities.units_per_metre < 0.0 {
            priorities.units_per_metre = 1.0;
        }
        self.priorities = priorities;
        self
    }

    /// Adds an object and returns it, without rotation, with zero velocities, and all other fields at their smallest
    /// values. Clients get it after the next commit.
    ///
    /// # Errors
    ///
    /// [`ReplicatorError::IdTooLarge`], [`ReplicatorError::IdInUse`] or [`ReplicatorError::UnknownKind`].
    pub fn spawn(&mut self, id: ObjectId, kind: ObjectKind) -> Result<ObjectMut<'_>, ReplicatorError> {
        let layout = self.schema.layout(kind).ok_or(ReplicatorError::UnknownKind)?;
        let index = usize::from(id.0);
        let object = self.objects.get_mut(index).ok_or(ReplicatorError::IdTooLarge)?;
        if object.is_live {
            return Err(ReplicatorError::IdInUse);
        }
        let generation = (object.generation + 1) % GENERATIONS;
        *object = ReplicatedObject { kind, is_live: true, generation, changed: 0 };
        let words = self.words.iter_mut().skip(index * self.schema.max_words());
        words.zip(layout.first_words()).for_each(|(word, first)| *word = *first);
        self.end = self.end.max(index + 1);
        self.on_replaced(index, true);
        self.object(id).ok_or(ReplicatorError::IdTooLarge)
    }

    fn on_replaced(&mut self, index: usize, is_spawn: bool) {
        self.planned_for = None;
        self.viewers.iter_mut().for_each(|slot| slot.viewer.on_replaced(index, is_spawn));
    }

    /// Returns an object, to change it. `None` if it does not exist.
    pub fn object(&mut self, id: ObjectId) -> Option<ObjectMut<'_>> {
        let index = usize::from(id.0);
        let object = self.objects.get(index).filter(|object| object.is_live)?;
        let layout = self.schema.layout(object.kind)?;
        let start = index * self.schema.max_words();
        self.touched.insert(index);
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
        self.grid.note(index);
        self.on_replaced(index, false);
    }

    /// Makes the objects' present values the state of this tick, which messages then describe. Ticks may be left out.
    /// Differences refer to commits of the last 255 ticks.
    ///
    /// # Errors
    ///
    /// [`ReplicatorError::TickNotLater`] if the tick is 0, or not larger than that of the commit before.
    pub fn commit(&mut self, tick: u32) -> Result<(), ReplicatorError> {
        if self.commits.tick(self.commits.newest()).unwrap_or(0) >= tick {
            return Err(ReplicatorError::TickNotLater);
        }
        self.find_changes();
        let words = self.words.get(..self.end * self.schema.max_words()).unwrap_or(&[]);
        self.commits.add(tick, words, &self.changed);
        self.grid.note_all(&self.changed);
        self.encodings.start(&self.commits);
        for slot in self.viewers.iter_mut().filter(|slot| slot.is_used) {
            slot.viewer.forget_old(&self.commits);
            slot.viewer.notice(&self.changed);
            if self.priorities.repeats_known {
                slot.viewer.due.insert_below(self.end);
            }
        }
        Ok(())
    }

    /// Finds the objects with other words than at the newest commit, of those that the game may have changed.
    fn find_changes(&mut self) {
        let (newest, size) = (self.commits.newest(), self.schema.max_words());
        self.changed.clear();
        for index in self.touched.iter() {
            let words = self.words.get_mut(index * size..(index + 1) * size);
            let Some((object, words)) = self.objects.get_mut(index).zip(words) else { continue };
            if !object.is_live {
                continue;
            }
            if let Some(layout) = self.schema.layout(object.kind) {
                layout.stop_at_rest(words);
            }
            if object.changed == 0 || Some(&*words) != self.commits.words(newest, index) {
                object.changed = newest + 1;
                self.changed.insert(index);
            }
        }
        self.touched.clear();
    }

    /// Adds a client, which sees all objects.
    ///
    /// # Errors
    ///
    /// [`ReplicatorError::TooManyViewers`] if the limit is reached.
    pub fn add_viewer(&mut self) -> Result<ViewerId, ReplicatorError> {
        let free = self.viewers.iter().position(|slot| !slot.is_used);
        let index = free.unwrap_or(self.viewers.len());
        if index == self.max_viewers {
            return Err(ReplicatorError::TooManyViewers);
        }
        if free.is_none() {
            let viewer = Box::new(Viewer::new(self.objects.len()));
            self.viewers.push(ViewerSlot { generation: 0, is_used: false, viewer });
        }
        let slot = self.viewers.get_mut(index).ok_or(ReplicatorError::TooManyViewers)?;
        slot.viewer.reset();
        slot.viewer.due.insert_below(self.end);
        (slot.is_used, slot.generation) = (true, slot.generation.wrapping_add(1));
        Ok(ViewerId { index: index as u16, generation: slot.generation })
    }

    /// Removes a client. Its memory is kept for the next one.
    pub fn remove_viewer(&mut self, viewer: ViewerId) {
        if let Some(slot) = self.slot(viewer) {
            slot.is_used = false;
        }
    }

    /// Sets how important an object is for a client: a factor of its priority. With 0 the client does not get the
    /// object, or loses it as out of sight. It is 1 for new clients and for new objects: [`spawn`](Self::spawn) sets it
    /// to 1 for all clients, because an id may have been that of another object.
    pub fn set_weight(&mut self, viewer: ViewerId, id: ObjectId, weight: f32) {
        let weight = if weight.is_finite() { weight.max(0.0) } else { 0.0 };
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.set_weight(usize::from(id.0), weight);
        }
    }

    /// Sets what a client sees of the world, in addition to the weights: objects around a place, or all with `None`.
    /// What is out of sight is removed from the client.
    pub fn look(&mut self, viewer: ViewerId, look: Option<Look>) {
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.set_look(look);
        }
    }

    /// Notes that a message arrived, also if it was reported as lost before.
    pub fn on_acknowledged(&mut self, viewer: ViewerId, tag: u64) {
        self.planned_for = None;
        if let Some(slot) = used_slot(&mut self.viewers, viewer) {
            slot.viewer.on_acknowledged(tag, &self.commits);
        }
    }

    /// Notes that a message was lost or never sent: its objects are sent again, in their newest state.
    pub fn on_lost(&mut self, viewer: ViewerId, tag: u64) {
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.on_lost(tag);
        }
    }

    /// Sets the report of a client's inputs, which its next message has.
    pub fn set_report(&mut self, viewer: ViewerId, report: Option<InputReport>) {
        if let Some(slot) = self.slot(viewer) {
            slot.viewer.report = report.map(|report| InputReport { epoch: report.epoch % EPOCHS, ..report });
        }
    }

    /// Forgets what a client has, because [`Replica::read`](crate::Replica::read) failed there: all objects are sent as
    /// a whole. Does so at most once a second, and only for a request that was made after the last time, or 5 s later.
    /// Returns whether it did.
    pub fn resync(&mut self, viewer: ViewerId, request: ResyncRequest) -> bool {
        self.planned_for = None;
        let Some(slot) = used_slot(&mut self.viewers, viewer) else { return false };
        slot.viewer.resync(request, &self.commits, self.ticks_per_second)
    }

    /// Returns a client's data, to change it.
    fn slot(&mut self, viewer: ViewerId) -> Option<&mut ViewerSlot> {
        self.planned_for = None;
        used_slot(&mut self.viewers, viewer)
    }

    /// Chooses objects for several messages of this commit, each of which has `bytes_each` bytes. The next calls of
    /// [`write`](Self::write) write these by ascending ids, which takes fewer bytes than to choose for each message.
    /// Each message keeps room for one more record: if it has room for few, [`write`](Self::write) alone fills it
    /// better.
    pub fn plan(&mut self, viewer: ViewerId, messages: usize, bytes_each: usize) {
        self.planned_for = None;
        self.choose(viewer, messages.max(1), bytes_each);
    }

    fn choose(&mut self, viewer: ViewerId, messages: usize, bytes_each: usize) {
        let max_objects = messages.saturating_mul(usize::from(self.priorities.max_objects));
        let newest = self.commits.newest();
        let Some(slot) = used_slot(&mut self.viewers, viewer).filter(|_| newest > 0) else { return };
        let turn = Turn {
            schema: &self.schema,
            priorities: self.priorities,
            objects: &self.objects,
            changed: &self.changed,
            commits: &self.commits,
            ticks_per_second: self.ticks_per_second,
        };
        if slot.viewer.look.is_some() && self.grid_of != newest {
            self.grid_of = newest;
            self.grid.update_cells(&self.schema, &self.objects, &self.commits);
        }
        slot.viewer.update_seen(&self.grid, newest);
        let (first, later) = turn.headers(&slot.viewer);
        let header_bits = if messages > 1 { first.bits().max(later.bits()) } else { first.bits() };
        let record_bits = slot.viewer.record_bits;
        let room = Room { messages, bytes_each, header_bits, max_objects, record_bits };
        let is_known = self.planned_for == Some((viewer, newest));
        turn.plan(&mut slot.viewer, &mut self.encodings, &mut self.selection, room, is_known);
        self.planned_for = Some((viewer, newest));
    }

    /// Returns how often the fields of an object were encoded so far. Clients with equal knowledge of an object share
    /// an encoding, and most objects that find no room are not encoded.
    #[must_use]
    pub const fn encoded_count(&self) -> u64 {
        self.encodings.made()
    }

    /// Writes a message for a client into `buf`, which must not be longer than a message may be. It describes the most
    /// urgent objects that fit. Another call writes the next objects of this commit. Returns `None` if no more are due
    /// or fit. The first message of a commit is always written, as long as its header fits: a client that gets no
    /// message cannot tell silence from loss. An object that does not fit into an empty message is left out, without an
    /// error: [`Schema::min_message_bytes`] has room for any.
    pub fn write(&mut self, viewer: ViewerId, buf: &mut [u8]) -> Option<StateMessage> {
        let newest = self.commits.newest();
        let planned = Some((viewer, newest));
        if self.planned_for != planned || self.selection.is_written() {
            self.choose(viewer, 1, buf.len());
        }
        let slot = used_slot(&mut self.viewers, viewer).filter(|_| self.planned_for == planned)?;
        let turn = Turn {
            schema: &self.schema,
            priorities: self.priorities,
            objects: &self.objects,
            changed: &self.changed,
            commits: &self.commits,
            ticks_per_second: self.ticks_per_second,
        };
        let (bits, objects) = turn.emit(buf, &self.encodings, &self.selection, &slot.viewer);
        if objects == 0 && slot.viewer.has_written(newest) || bits > buf.len() * 8 {
            return None;
        }
        let selection = &mut self.selection;
        let records = selection.unwritten().iter().take(objects).map(|object| sent_record(selection, *object));
        let tag = slot.viewer.on_sent(&self.commits, records);
        selection.take(objects);
        Some(StateMessage { bytes: bits.div_ceil(8), tag, objects })
    }
}

fn used_slot(viewers: &mut [ViewerSlot], viewer: ViewerId) -> Option<&mut ViewerSlot> {
    let slot = viewers.get_mut(usize::from(viewer.index))?;
    (slot.is_used && slot.generation == viewer.generation).then_some(slot)
}

#[cfg(test)]
impl Replicator {
    pub(crate) fn schema_layout(&self, kind: ObjectKind) -> crate::schema::KindLayout {
        self.schema.layout(kind).expect("a kind of this schema").clone()
    }
}
