//! The client's side: reads messages and keeps the newest state of each object.

mod states;

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use self::states::{StateTable, StoredState};
use crate::bits::BitReader;
use crate::commits::MAX_AGE;
use crate::header::{HeaderRecord, StateHeader};
use crate::object::{ObjectId, ObjectRef};
use crate::read_error::StateReadError;
use crate::record::{self, GAP_ORDER, KnownState, MAX_MOTION_TICKS, WordBuf};
use crate::resync::ResyncRequest;
use crate::schema::{MAX_WORDS, ObjectKind, Schema};

/// The reason why an object is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoneReason {
    /// The server's game removed it.
    Despawned,
    /// It exists, but this client must not see it any more.
    OutOfSight,
    /// The game has called [`Replica::reset`].
    Reset,
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
        /// The first tick at which it is gone, as far as messages say. [`PlayoutSamples::remove`] shows it up to there.
        ///
        /// [`PlayoutSamples::remove`]: crate::PlayoutSamples::remove
        tick: u32,
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
    /// The tick of the record that said so.
    gone_at: u32,
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
        gone_at: 0,
        reported: None,
        is_replaced: false,
        is_dirty: false,
        words: [0; MAX_WORDS],
    };

    /// Notes that the present object is gone. Until the game is informed, that of an earlier object counts.
    const fn end(&mut self, reason: GoneReason, tick: u32) {
        if !self.is_replaced {
            (self.reason, self.gone_at, self.is_replaced) = (reason, tick, true);
        }
    }
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
/// let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 10, 1, 60), Replica::new(schema, 10));
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
    /// How often the server has sent everything again, as far as messages have said so.
    resyncs: u8,
    needs_resync: bool,
}

impl Replica {
    /// Returns a replica without objects. `max_objects` is the server's limit. Memory for the states of an id is
    /// allocated when an object has it for the first time, and grows up to 512 states, within
    /// [`with_max_bytes`](Self::with_max_bytes).
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
            resyncs: 0,
            needs_resync: false,
            schema,
        }
    }

    /// Sets how many bytes the states of all objects may take, 64 MiB by default. A message that needs more is refused:
    /// a server that is hostile, or has more objects than the game planned for, could make it 2 GiB otherwise.
    #[must_use]
    pub fn with_max_bytes(mut self, bytes: usize) -> Self {
        self.states.set_max_bytes(bytes);
        self
    }

    /// Forgets all objects and messages, for another connection or a server that has started again.
    /// [`poll`](Self::poll) returns that all objects are gone, since tick 0. Make a new
    /// [`PlayoutClock`](crate::PlayoutClock), [`InputClock`](crate::InputClock) and [`InputLog`](crate::InputLog), and
    /// clear [`PlayoutSamples`](crate::PlayoutSamples) and [`StateQueue`](crate::StateQueue), too.
    pub fn reset(&mut self) {
        self.states.clear();
        self.parsed.clear();
        (self.newest, self.resyncs, self.needs_resync) = (None, 0, false);
        for index in 0..self.objects.len() {
            let Some(object) = self.objects.get_mut(index) else { return };
            if object.present.take().is_some() {
                object.end(GoneReason::Reset, 0);
                self.mark(index);
            }
            self.objects.get_mut(index).into_iter().for_each(|object| object.newest = None);
        }
    }

    /// Reads a message. Returns the server's tick that it describes, and what else it says. Messages
    /// may come in any order and more than once. One that comes more than 255 ticks late is not applied: the server
    /// knows that too.
    ///
    /// # Errors
    ///
    /// [`StateReadError`] if a part of the message is not valid. Nothing of it is applied then. The transport has
    /// acknowledged the message all the same, so the server must send everything again: see
    /// [`resync_request`](Self::resync_request).
    pub fn read(&mut self, message: &[u8]) -> Result<StateHeader, StateReadError> {
        self.parsed.clear();
        let read = self.read_message(message);
        if let Err(error) = read {
            self.parsed.clear();
            // A message that is so late is no baseline for the server.
            self.needs_resync |= error != StateReadError::TickWentBack;
        }
        read
    }

    /// Returns the request to send everything again, after a message was refused and until the server has done so.
    /// [`InputLog::write`](crate::InputLog::write) sends it.
    #[must_use]
    pub fn resync_request(&self) -> Option<ResyncRequest> {
        self.needs_resync.then_some(ResyncRequest(self.resyncs))
    }

    fn read_message(&mut self, message: &[u8]) -> Result<StateHeader, StateReadError> {
        let mut reader = BitReader::new(message);
        let HeaderRecord { tick, wide, report, is_first } = HeaderRecord::read(&mut reader, self.newest)?;
        let header = StateHeader { tick, report, is_first };
        let is_late = self.newest.is_some_and(|newest| newest.saturating_sub(tick) > MAX_AGE);
        if is_late && wide.is_some() {
            return Err(StateReadError::TickWentBack);
        }
        if is_late {
            return Ok(header);
        }
        self.read_records(&mut reader, tick)?;
        self.check_memory(tick)?;
        if let Some(resyncs) = wide.filter(|_| self.newest.is_none_or(|newest| tick >= newest)) {
            self.needs_resync &= resyncs == self.resyncs;
            self.resyncs = resyncs;
        }
        self.parsed_tick = tick;
        let newest = self.newest.map_or(tick, |newest| newest.max(tick));
        self.newest = Some(newest);
        for index in 0..self.parsed.len() {
            if let Some(record) = self.parsed.get(index).copied() {
                self.apply(record, tick, newest);
            }
        }
        Ok(header)
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

    /// Checks that there is memory for the states of a message, before any of them is kept.
    fn check_memory(&self, tick: u32) -> Result<(), StateReadError> {
        let newest = self.newest.map_or(tick, |newest| newest.max(tick));
        let is_state = |record: &&ParsedRecord| matches!(record.content, RecordContent::State { .. });
        let objects = self.parsed.iter().filter(is_state).map(|record| record.object);
        let bytes = objects.map(|object| self.states.bytes_to_add(object, tick, newest)).sum();
        if self.states.has_room(bytes) { Ok(()) } else { Err(StateReadError::TooManyStates) }
    }

    /// Returns the objects that the last message described, with their states at its tick, in the order of their ids.
    /// Empty if it was refused or came too late.
    ///
    /// A message may be older than another one that was read before. Its objects may be gone by now, or have another
    /// one's id: for what is shown use [`poll`](Self::poll), which never goes back.
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
                    object.end(GoneReason::Despawned, tick);
                }
                (object.present, object.words) = (Some((kind, generation)), words);
            }
            RecordContent::Gone(reason) => {
                if object.present.take().is_some() {
                    object.end(reason, tick);
                }
            }
        }
        self.mark(record.object);
    }

    /// Notes that the game has to be informed of an object.
    fn mark(&mut self, index: usize) {
        let Some(object) = self.objects.get_mut(index).filter(|object| !object.is_dirty) else { return };
        object.is_dirty = true;
        self.dirty.push(index as u16);
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
                return Some(ReplicaChange::Gone { id: ObjectId(id), reason: object.reason, tick: object.gone_at });
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

#[cfg(test)]
impl Replica {
    pub(crate) const fn state_bytes(&self) -> usize {
        self.states.bytes()
    }
}
