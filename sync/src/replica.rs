//! The client's side: reads messages and keeps the newest state of each object.

mod states;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use self::states::{StateTable, StoredState};
use crate::bits::BitReader;
use crate::commits::MAX_AGE;
use crate::object::{ObjectId, ObjectRef};
use crate::read_error::StateReadError;
use crate::record::{self, GAP_ORDER, KnownState, MAX_MOTION_TICKS, WordBuf};
use crate::schema::{MAX_WORDS, ObjectKind, Schema};

/// The reason why an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoneReason {
    /// The server's game removed it.
    Despawned,
    /// It exists, but this client must not see it any more.
    OutOfSight,
}

/// A change that [`Replica::poll`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaChange {
    /// There is a new object. [`Replica::object`] has its state.
    Appeared {
        /// The object.
        id: ObjectId,
        /// Its kind.
        kind: ObjectKind,
    },
    /// The state of an object is newer than before.
    Updated {
        /// The object.
        id: ObjectId,
    },
    /// The object is gone. Another one with the same id may appear.
    Gone {
        /// The object.
        id: ObjectId,
        /// The reason.
        reason: GoneReason,
    },
}

/// What a record says of an object.
#[derive(Clone, Copy, Debug)]
enum RecordContent {
    State { kind: ObjectKind, generation: u8, base_age: u8, words: WordBuf },
    Gone(GoneReason),
}

#[derive(Clone, Copy, Debug)]
struct ParsedRecord {
    object: usize,
    content: RecordContent,
}

/// An object as the newest record describes it, and as the game was informed of it.
#[derive(Clone, Copy, Debug)]
struct ReplicaObject {
    /// The tick of the newest record; `None` before the first one.
    newest: Option<u32>,
    present: Option<(ObjectKind, u8)>,
    reason: GoneReason,
    reported: Option<(ObjectKind, u8)>,
    /// Whether the object that was reported is gone, and the present one is another one.
    is_replaced: bool,
    is_dirty: bool,
    words: WordBuf,
}

impl ReplicaObject {
    const NEW: Self = Self {
        newest: None,
        present: None,
        reason: GoneReason::Despawned,
        reported: None,
        is_replaced: false,
        is_dirty: false,
        words: [0; MAX_WORDS],
    };
}

/// The objects that a server sends to this client.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use slipgate_sync::{Field, ObjectId, Replica, ReplicaChange, Replicator, Schema};
///
/// let mut schema = Schema::builder();
/// let bird = schema.add(&[Field::vector([-9.0..9.0, 0.0..9.0, -9.0..9.0], 100)]);
/// let schema = Arc::new(schema.build()?);
/// let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 10, 1), Replica::new(schema, 10));
/// let player = replicator.add_viewer()?;
/// replicator.spawn(ObjectId(3), bird)?.set_vector(0, [1.0, 2.0, 3.0])?;
/// replicator.commit(1)?;
/// let mut buf = [0; 100];
/// let message = replicator.write(player, &mut buf).ok_or("an object has to be sent")?;
///
/// replica.read(&buf[..message.bytes])?;
/// while let Some(change) = replica.poll() {
///     assert_eq!(change, ReplicaChange::Appeared { id: ObjectId(3), kind: bird });
/// }
/// for object in replica.objects() {
///     assert_eq!(object.vector(0), Some([1.0, 2.0, 3.0]));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Replica {
    schema: Arc<Schema>,
    objects: Vec<ReplicaObject>,
    states: StateTable,
    newest: Option<u32>,
    /// The records of the last message, and its tick: applied only if all are valid.
    parsed: Vec<ParsedRecord>,
    parsed_tick: u32,
    dirty: Vec<u16>,
}

impl Replica {
    /// Returns a replica without objects. `max_objects` is the server's limit. Memory for the states of an id is
    /// allocated when an object has it for the first time, and grows up to 512 states.
    #[must_use]
    pub fn new(schema: Arc<Schema>, max_objects: u16) -> Self {
        let objects = usize::from(max_objects);
        Self {
            objects: vec![ReplicaObject::NEW; objects],
            states: StateTable::new(objects, schema.max_words()),
            newest: None,
            parsed: Vec::with_capacity(objects),
            parsed_tick: 0,
            dirty: Vec::with_capacity(objects),
            schema,
        }
    }

    /// Reads a message. Returns the server's tick that it describes. Messages may come in any order and more than once.
    /// One that comes more than 255 ticks late is not applied: the server knows that too.
    ///
    /// # Errors
    ///
    /// [`StateReadError`] if a part of the message is not valid. Nothing of it is applied then. The transport has
    /// acknowledged the message all the same, so the server must be asked to call
    /// [`Replicator::resync`](crate::Replicator::resync).
    pub fn read(&mut self, message: &[u8]) -> Result<u32, StateReadError> {
        self.parsed.clear();
        let mut reader = BitReader::new(message);
        let tick = self.read_tick(&mut reader)?;
        if self.newest.is_some_and(|newest| newest.saturating_sub(tick) > MAX_AGE) {
            return Ok(tick);
        }
        let records = self.read_records(&mut reader, tick);
        if records.is_err() {
            self.parsed.clear();
        }
        records?;
        self.parsed_tick = tick;
        let newest = self.newest.map_or(tick, |newest| newest.max(tick));
        self.newest = Some(newest);
        for index in 0..self.parsed.len() {
            if let Some(record) = self.parsed.get(index).copied() {
                self.apply(record, tick, newest);
            }
        }
        Ok(tick)
    }

    /// Reads the tick: all of its bits, or the lowest 16 bits of the one that is nearest to the newest tick.
    fn read_tick(&self, reader: &mut BitReader<'_>) -> Result<u32, StateReadError> {
        let low = reader.read(16)?;
        let tick = if reader.read_bit()? {
            reader.read(16)? << 16 | low
        } else {
            let newest = self.newest.ok_or(StateReadError::UnknownTick)?;
            let ahead = (low as u16).wrapping_sub(newest as u16) as i16;
            newest.checked_add_signed(i32::from(ahead)).ok_or(StateReadError::UnknownTick)?
        };
        if tick == 0 { Err(StateReadError::UnknownTick) } else { Ok(tick) }
    }

    fn read_records(&mut self, reader: &mut BitReader<'_>, tick: u32) -> Result<(), StateReadError> {
        let base = reader.read(8)?;
        let mut next = 0;
        while !reader.is_at_padding() {
            let gap = reader.read_number(GAP_ORDER)?;
            let object = usize::try_from(gap).ok().and_then(|gap| gap.checked_add(next));
            let object = object.filter(|id| *id < self.objects.len()).ok_or(StateReadError::UnknownObject)?;
            next = object + 1;
            let content = self.read_record(reader, object, tick, base)?;
            self.parsed.push(ParsedRecord { object, content });
        }
        Ok(())
    }

    /// Returns the objects that the last message described, with their states at its tick, in the order of their ids.
    /// Empty if it was refused or came too late.
    pub fn last_message(&self) -> impl Iterator<Item = ObjectRef<'_>> {
        self.parsed.iter().filter_map(|record| {
            let RecordContent::State { kind, words, .. } = &record.content else { return None };
            let layout = self.schema.layout(*kind)?;
            Some(ObjectRef { layout, words, id: ObjectId(record.object as u16), kind: *kind, tick: self.parsed_tick })
        })
    }

    fn read_record(
        &self,
        reader: &mut BitReader<'_>,
        object: usize,
        tick: u32,
        base: u32,
    ) -> Result<RecordContent, StateReadError> {
        if !reader.read_bit()? {
            return self.read_delta(reader, object, tick, base);
        }
        if !reader.read_bit()? {
            let age = reader.read(8)?;
            return self.read_delta(reader, object, tick, age);
        }
        if reader.read_bit()? {
            let is_despawned = reader.read_bit()?;
            return Ok(RecordContent::Gone(if is_despawned { GoneReason::Despawned } else { GoneReason::OutOfSight }));
        }
        let kind = ObjectKind(reader.read(4)? as u8);
        let generation = reader.read(4)? as u8;
        let layout = self.schema.layout(kind).ok_or(StateReadError::UnknownKind)?;
        let words = record::read_whole(reader, layout)?;
        Ok(RecordContent::State { kind, generation, base_age: 0, words })
    }

    fn read_delta(
        &self,
        reader: &mut BitReader<'_>,
        object: usize,
        tick: u32,
        age: u32,
    ) -> Result<RecordContent, StateReadError> {
        let base = tick.checked_sub(age).filter(|_| age > 0).ok_or(StateReadError::MissingBaseline)?;
        let known = self.states.get(object, base).ok_or(StateReadError::MissingBaseline)?;
        let layout = self.schema.layout(known.kind).ok_or(StateReadError::UnknownKind)?;
        let before = base.checked_sub(u32::from(known.base_age)).filter(|before| *before < base);
        let before = before.filter(|before| tick - before <= MAX_MOTION_TICKS);
        // The server continues the motion, so a client that has forgotten it cannot read the record.
        let before = match before {
            Some(before) => Some((self.states.words(object, before).ok_or(StateReadError::MissingBaseline)?, before)),
            None => None,
        };
        let words = self.states.words(object, base).ok_or(StateReadError::MissingBaseline)?;
        let words = record::read_delta(reader, layout, KnownState { words, tick: base, before }, tick)?;
        Ok(RecordContent::State { kind: known.kind, generation: known.generation, base_age: age as u8, words })
    }

    fn apply(&mut self, record: ParsedRecord, tick: u32, newest: u32) {
        let Some(object) = self.objects.get_mut(record.object) else { return };
        if let RecordContent::State { kind, generation, base_age, words } = record.content {
            self.states.add(record.object, StoredState { tick, base_age, kind, generation }, &words, newest);
        }
        // A record that comes late is a baseline only: a newer one, perhaps of a removal, is shown.
        if object.newest.is_some_and(|newest| newest >= tick) {
            return;
        }
        object.newest = Some(tick);
        match record.content {
            RecordContent::State { kind, generation, words, .. } => {
                // A new object takes over the id only after the one before was removed.
                if object.present.is_some_and(|before| before != (kind, generation)) {
                    (object.reason, object.is_replaced) = (GoneReason::Despawned, true);
                }
                (object.present, object.words) = (Some((kind, generation)), words);
            }
            RecordContent::Gone(reason) => {
                if object.present.take().is_some() {
                    (object.reason, object.is_replaced) = (reason, true);
                }
            }
        }
        if !object.is_dirty {
            object.is_dirty = true;
            self.dirty.push(record.object as u16);
        }
    }

    /// Returns the next change since the last call. An object with several changes is returned once. If it
    /// was gone meanwhile, it is gone first, and then the other one appears.
    pub fn poll(&mut self) -> Option<ReplicaChange> {
        loop {
            let id = *self.dirty.last()?;
            let object = self.objects.get_mut(usize::from(id))?;
            let (reported, present) = (object.reported, object.present);
            let is_replaced = core::mem::take(&mut object.is_replaced);
            if reported.is_some() && is_replaced {
                // The new object is reported by the next call.
                object.reported = None;
                return Some(ReplicaChange::Gone { id: ObjectId(id), reason: object.reason });
            }
            object.is_dirty = false;
            self.dirty.pop();
            object.reported = present;
            match (reported, present) {
                (None, Some((kind, _))) => return Some(ReplicaChange::Appeared { id: ObjectId(id), kind }),
                (Some(_), Some(_)) => return Some(ReplicaChange::Updated { id: ObjectId(id) }),
                // It appeared and disappeared between two calls, or its end was just returned.
                (_, None) => {}
            }
        }
    }

    /// Returns an object that exists.
    #[must_use]
    pub fn object(&self, id: ObjectId) -> Option<ObjectRef<'_>> {
        let object = self.objects.get(usize::from(id.0))?;
        let (kind, _) = object.present?;
        let layout = self.schema.layout(kind)?;
        Some(ObjectRef { layout, words: &object.words, id, kind, tick: object.newest? })
    }

    /// Returns all objects that exist, by ascending id.
    pub fn objects(&self) -> impl Iterator<Item = ObjectRef<'_>> {
        let present = (0..=u16::MAX).zip(&self.objects).filter(|(_, object)| object.present.is_some());
        present.filter_map(|(id, _)| self.object(ObjectId(id)))
    }

    /// Returns the newest tick of a message; `None` before the first one.
    #[must_use]
    pub const fn newest_tick(&self) -> Option<u32> {
        self.newest
    }
}
