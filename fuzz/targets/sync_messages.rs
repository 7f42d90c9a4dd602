//! Messages of game state: arbitrary ones for a replica that has objects, and those of a replicator on a path that
//! loses, delays and repeats them.

#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use slipgate_fuzz::Input;
use slipgate_sync::{
    Field, InputReport, Look, ObjectId, ObjectKind, Replica, ReplicaChange, Replicator, ResyncRequest, Schema,
    StateReadError, ViewerId,
};

const OBJECTS: u16 = 12;
const MAX_BYTES: usize = 120;
/// The memory of the states of a replica that reads arbitrary messages: less than they could make it.
const MAX_STATE_BYTES: usize = 24_000;

static SCHEMA: LazyLock<(Arc<Schema>, [ObjectKind; 3])> = LazyLock::new(|| {
    let mut schema = Schema::builder();
    let area = || [-16.0..16.0, 0.0..16.0, -16.0..16.0];
    let cube = schema.add(&[Field::vector(area(), 512), Field::rotation(9), Field::boolean()]);
    let counter = schema.add(&[Field::integer(-100, 1_000_000), Field::scalar(0.0..1.0, 1000)]);
    let body = schema.add(&[Field::vector(area(), 512), Field::rest(), Field::velocity(32.0, 64)]);
    (Arc::new(schema.build().expect("valid ranges")), [cube, counter, body])
});

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let mut world = World::new();
    match input.u8() & 1 {
        0 => world.invented(&mut input),
        _ => world.run(&mut input),
    }
});

/// All fields that an object of one of the kinds may have, with the bits of their numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shown {
    kind: ObjectKind,
    vectors: [Option<[u32; 3]>; 2],
    rotation: Option<[u32; 4]>,
    switches: [Option<bool>; 2],
    numbers: (Option<i32>, Option<u32>),
}

/// The two ends, the messages between them, and the objects that the replica reported.
struct World {
    replicator: Replicator,
    replica: Replica,
    viewer: ViewerId,
    tick: u32,
    late: Vec<(Vec<u8>, u64)>,
    reported: [Option<ObjectKind>; OBJECTS as usize],
}

impl World {
    fn new() -> Self {
        let (schema, _) = &*SCHEMA;
        let mut replicator = Replicator::new(Arc::clone(schema), OBJECTS, 1, 60);
        let viewer = replicator.add_viewer().expect("the first client");
        let replica = Replica::new(Arc::clone(schema), OBJECTS);
        Self { replicator, replica, viewer, tick: 0, late: Vec::new(), reported: [None; OBJECTS as usize] }
    }

    /// Feeds arbitrary bytes to a replica that has objects: a refused message changes nothing.
    fn invented(&mut self, input: &mut Input<'_>) {
        let (schema, [cube, counter, _]) = &*SCHEMA;
        self.replica = Replica::new(Arc::clone(schema), OBJECTS).with_max_bytes(MAX_STATE_BYTES);
        for id in 0..OBJECTS / 2 {
            let kind = if id % 2 == 0 { cube } else { counter };
            self.replicator.spawn(ObjectId(id), *kind).expect("a free id");
        }
        self.commit(1);
        self.send(0, MAX_BYTES);
        while let Some(len) = input.operation() {
            if len == u8::MAX {
                self.reset();
                continue;
            }
            let message: Vec<u8> = (0..len % 40).map(|_| input.u8()).collect();
            let before = self.shown();
            if self.replica.read(&message).is_err() {
                assert_eq!(self.shown(), before, "a refused message changes nothing");
            }
            self.poll();
        }
    }

    /// Forgets all objects of the replica, which are gone then.
    fn reset(&mut self) {
        self.replica.reset();
        assert_eq!((self.replica.objects().count(), self.replica.resync_request()), (0, None));
        self.poll();
    }

    /// Connects again, with the same replica: the server knows nothing of it.
    fn connect_again(&mut self) {
        self.late.clear();
        self.replicator.remove_viewer(self.viewer);
        self.viewer = self.replicator.add_viewer().expect("the only client");
        self.reset();
    }

    fn shown(&self) -> [Option<Shown>; OBJECTS as usize] {
        let mut shown = [None; OBJECTS as usize];
        for object in self.replica.objects() {
            let vectors = [0, 2].map(|field| object.vector(field).map(|parts| parts.map(f32::to_bits)));
            shown[usize::from(object.id().0)] = Some(Shown {
                kind: object.kind(),
                vectors,
                rotation: object.rotation(1).map(|parts| parts.map(f32::to_bits)),
                switches: [1, 2].map(|field| object.bool(field)),
                numbers: (object.integer(0), object.scalar(1).map(f32::to_bits)),
            });
        }
        shown
    }

    /// Follows the changes: they are those between the objects before and now.
    fn poll(&mut self) {
        while let Some(change) = self.replica.poll() {
            match change {
                ReplicaChange::Appeared { id, kind } => {
                    assert_eq!(self.reported[usize::from(id.0)].replace(kind), None);
                }
                ReplicaChange::Updated { id } => assert!(self.reported[usize::from(id.0)].is_some()),
                ReplicaChange::Gone { id, .. } => assert!(self.reported[usize::from(id.0)].take().is_some()),
            }
        }
        let mut present = [None; OBJECTS as usize];
        for object in self.replica.objects() {
            present[usize::from(object.id().0)] = Some(object.kind());
        }
        assert_eq!(self.reported, present);
    }

    fn commit(&mut self, ticks: u32) {
        self.tick += ticks;
        self.replicator.commit(self.tick).expect("a later tick");
    }

    /// Writes a message, which arrives, gets lost, comes late, or is reported as lost and comes late.
    /// Returns `false` if it has no object.
    fn send(&mut self, way: u8, max_bytes: usize) -> bool {
        let mut buf = vec![0; max_bytes];
        let Some(message) = self.replicator.write(self.viewer, &mut buf) else { return false };
        assert!(message.bytes <= max_bytes);
        buf.truncate(message.bytes);
        match way % 4 {
            0 => self.deliver(&buf, message.tag),
            1 => self.replicator.on_lost(self.viewer, message.tag),
            2 => self.late.push((buf, message.tag)),
            _ => {
                self.replicator.on_lost(self.viewer, message.tag);
                self.late.push((buf, message.tag));
            }
        }
        message.objects > 0
    }

    fn deliver(&mut self, bytes: &[u8], tag: u64) {
        let read = self.replica.read(bytes).map(|_| ());
        // A client has all states that a message refers to, however late it comes.
        assert!(matches!(read, Ok(()) | Err(StateReadError::TickWentBack)), "{read:?}");
        self.replicator.on_acknowledged(self.viewer, tag);
        self.poll();
    }

    fn run(&mut self, input: &mut Input<'_>) {
        let (_, kinds) = *SCHEMA;
        while let Some(operation) = input.operation() {
            let id = ObjectId(u16::from(input.u8()) % OBJECTS);
            let value = input.u8();
            match operation % 12 {
                0 | 1 => _ = self.replicator.spawn(id, kinds[usize::from(value % 3)]).err(),
                2 => self.replicator.despawn(id),
                3 | 4 => self.change(id, value, input.u8()),
                5 if value == u8::MAX => self.connect_again(),
                5 => self.replicator.set_weight(self.viewer, id, f32::from(value % 3)),
                6 => self.commit(u32::from(value % 80) + 1),
                10 => {
                    let look = Look::around([f32::from(value) / 8.0 - 16.0, 0.0, 0.0], f32::from(input.u8() % 16));
                    self.replicator.look(self.viewer, (value % 4 != 0).then_some(look.leaving(12.0)));
                }
                8 if value & 128 == 0 => _ = self.replicator.resync(self.viewer, ResyncRequest(value % 16)),
                8 => {
                    let report = InputReport { newest: self.tick, margin_quarters: value as i8, epoch: value % 16 };
                    self.replicator.set_report(self.viewer, Some(report));
                }
                9 => self.replicator.plan(self.viewer, usize::from(value % 4), 4 + usize::from(input.u8()) % MAX_BYTES),
                7 => _ = self.send(value, 4 + usize::from(input.u8()) % MAX_BYTES),
                _ if self.late.is_empty() => {}
                _ => {
                    let (bytes, tag) = self.late.remove(usize::from(value) % self.late.len());
                    self.deliver(&bytes, tag);
                }
            }
        }
        self.settle();
    }

    fn change(&mut self, id: ObjectId, value: u8, other: u8) {
        let (at, turn) = (f32::from(value) / 8.0 - 16.0, f32::from(other) / 256.0);
        let Some(mut object) = self.replicator.object(id) else { return };
        let has_place = object.set_vector(0, [at, turn, at * turn]).is_ok();
        if object.set_bool(1, other % 3 == 0).is_ok() {
            object.set_vector(2, [at, turn, -at]).expect("a body has a velocity");
        } else if has_place && value % 2 == 0 {
            let half = (1.0 - turn * turn).sqrt();
            object.set_rotation(1, [turn, 0.0, half, 0.0]).expect("a cube has a rotation");
            object.set_bool(2, other % 2 == 0).expect("a cube has a switch");
        } else if !has_place {
            object.set_integer(0, i32::from(value) * i32::from(other)).expect("a counter has an integer");
        }
    }

    fn has_all_objects(&mut self) -> bool {
        let live = (0..OBJECTS).filter(|id| self.replicator.object(ObjectId(*id)).is_some()).map(ObjectId);
        live.eq(self.replica.objects().map(|object| object.id()))
    }

    /// Delivers everything. The replica has all objects then, and nothing is left to send.
    fn settle(&mut self) {
        for (bytes, tag) in std::mem::take(&mut self.late) {
            self.deliver(&bytes, tag);
        }
        self.replicator.look(self.viewer, None);
        (0..OBJECTS).for_each(|id| self.replicator.set_weight(self.viewer, ObjectId(id), 1.0));
        for _ in 0..130 {
            self.commit(1);
            // The replicator may wait with an object until a removal is acknowledged.
            if !(0..4).all(|_| self.send(0, MAX_BYTES)) && self.has_all_objects() {
                break;
            }
        }
        assert!(self.has_all_objects(), "the replica has all objects");
        assert!(self.replicator.write(self.viewer, &mut [0; MAX_BYTES]).is_none(), "nothing is left to send");
    }
}
