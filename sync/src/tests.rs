//! A replicator and its replicas on a path that loses, delays and repeats messages.

mod choices;
mod due;
mod encodings;
mod epochs;
mod history;
mod input_log;
mod input_vectors;
mod interest;
mod jitter;
mod kept_samples;
mod large;
mod late_keys;
mod limits;
mod own_clock;
mod playout;
mod resets;
mod shots;
mod silence;
mod simulated;
mod smallest_message;
mod snap;
mod stalls;
mod urgency;
mod vectors;
mod views;

use alloc::sync::Arc;
use alloc::vec::Vec;
use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::{
    Field, GoneReason, ObjectId, ObjectKind, Priorities, Replica, ReplicaChange, Replicator, ReplicatorError, Schema,
    StateReadError, ViewerId,
};

const OBJECTS: u16 = 40;

fn schema() -> (Arc<Schema>, [ObjectKind; 2]) {
    let (schema, [cube, counter, _]) = schema_with_rest();
    (schema, [cube, counter])
}

fn schema_with_rest() -> (Arc<Schema>, [ObjectKind; 3]) {
    let mut schema = Schema::builder();
    let area = || [-16.0..16.0, 0.0..16.0, -16.0..16.0];
    let cube = schema.add(&[Field::vector(area(), 512), Field::rotation(9), Field::boolean()]);
    let counter = schema.add(&[Field::integer(-100, 1_000_000), Field::scalar(0.0..1.0, 1000)]);
    let body = schema.add(&[Field::vector(area(), 512), Field::rest(), Field::velocity(32.0, 64)]);
    (Arc::new(schema.build().unwrap()), [cube, counter, body])
}

/// Returns a server of 60 ticks a second with one client.
fn pair() -> (Replicator, Replica, ViewerId, [ObjectKind; 2]) {
    pair_with_rate(60)
}

fn pair_with_rate(ticks_per_second: u32) -> (Replicator, Replica, ViewerId, [ObjectKind; 2]) {
    let (schema, kinds) = schema();
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, 2, ticks_per_second);
    let viewer = replicator.add_viewer().unwrap();
    (replicator, Replica::new(schema, OBJECTS), viewer, kinds)
}

/// Writes one message and returns its bytes with its tag.
fn written(replicator: &mut Replicator, viewer: ViewerId, room: usize) -> Option<(Vec<u8>, u64)> {
    let mut buf = alloc::vec![0xa5; room];
    let message = replicator.write(viewer, &mut buf)?;
    assert!(message.bytes <= room, "{message:?}");
    buf.truncate(message.bytes);
    Some((buf, message.tag))
}

/// Returns whether no object is due: there is no message, or its tick is all that it says.
fn is_silent(replicator: &mut Replicator, viewer: ViewerId, room: usize) -> bool {
    replicator.write(viewer, &mut alloc::vec![0; room]).is_none_or(|message| message.objects == 0)
}

fn changes(replica: &mut Replica) -> Vec<ReplicaChange> {
    core::iter::from_fn(|| replica.poll()).collect()
}

/// Returns the words of all objects that the replica has.
fn shown(replica: &Replica) -> BTreeMap<u16, (ObjectKind, Vec<i32>)> {
    let words = |object: &crate::ObjectRef<'_>| object.words[..object.layout.words()].to_vec();
    replica.objects().map(|object| (object.id().0, (object.kind(), words(&object)))).collect()
}

/// A step of a random game.
#[derive(Clone, Copy, Debug)]
enum Step {
    Spawn(u16, bool),
    Despawn(u16),
    Move(u16, [f32; 3]),
    Turn(u16, [f32; 4]),
    Count(u16, i32),
    Weigh(u16, bool),
    Commit(u32),
    /// Sends a message of at most this size, which has this way.
    Send(usize, Way),
    Deliver,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    Arrives,
    Late,
    Twice,
    Lost,
    /// It is reported as lost and arrives.
    WronglyLost,
}

fn many_bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 1..8)
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..OBJECTS;
    let way =
        prop_oneof![Just(Way::Arrives), Just(Way::Late), Just(Way::Twice), Just(Way::Lost), Just(Way::WronglyLost)];
    prop_oneof![
        2 => (id.clone(), any::<bool>()).prop_map(|(id, kind)| Step::Spawn(id, kind)),
        1 => id.clone().prop_map(Step::Despawn),
        4 => (id.clone(), prop::array::uniform3(-17.0..17.0_f32)).prop_map(|(id, at)| Step::Move(id, at)),
        3 => (id.clone(), prop::array::uniform4(-1.0..1.0_f32)).prop_map(|(id, turn)| Step::Turn(id, turn)),
        2 => (id.clone(), any::<i32>()).prop_map(|(id, count)| Step::Count(id, count)),
        1 => (id, any::<bool>()).prop_map(|(id, visible)| Step::Weigh(id, visible)),
        5 => (1..90_u32).prop_map(Step::Commit),
        6 => (4..200_usize, way).prop_map(|(room, way)| Step::Send(room, way)),
        3 => Just(Step::Deliver),
    ]
}

/// The two ends, and the messages between them.
struct Game {
    replicator: Replicator,
    replica: Replica,
    viewer: ViewerId,
    kinds: [ObjectKind; 2],
    tick: u32,
    late: Vec<(Vec<u8>, u64)>,
    known: BTreeMap<u16, ObjectKind>,
}

impl Game {
    fn new() -> Self {
        let (replicator, replica, viewer, kinds) = pair();
        Self { replicator, replica, viewer, kinds, tick: 0, late: Vec::new(), known: BTreeMap::new() }
    }

    fn take(&mut self, bytes: &[u8], tag: u64) {
        if let Err(error) = self.replica.read(bytes) {
            assert_eq!(error, StateReadError::TickWentBack, "it is very late");
        }
        self.replicator.on_acknowledged(self.viewer, tag);
        for change in changes(&mut self.replica) {
            match change {
                ReplicaChange::Appeared { id, kind } => assert_eq!(self.known.insert(id.0, kind), None),
                ReplicaChange::Updated { id } => assert!(self.known.contains_key(&id.0)),
                ReplicaChange::Gone { id, .. } => assert!(self.known.remove(&id.0).is_some()),
            }
        }
        let shown: BTreeMap<u16, ObjectKind> =
            self.replica.objects().map(|object| (object.id().0, object.kind())).collect();
        assert_eq!(self.known, shown);
    }

    fn send(&mut self, room: usize, way: Way) {
        let Some((bytes, tag)) = written(&mut self.replicator, self.viewer, room) else { return };
        match way {
            Way::Arrives => self.take(&bytes, tag),
            Way::Late => self.late.push((bytes, tag)),
            Way::Twice => (0..2).for_each(|_| self.take(&bytes, tag)),
            Way::Lost => self.replicator.on_lost(self.viewer, tag),
            Way::WronglyLost => {
                self.replicator.on_lost(self.viewer, tag);
                self.late.push((bytes, tag));
            }
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Spawn(id, kind) => {
                // An id may be in use: nothing changes then.
                let _ = self.replicator.spawn(ObjectId(id), self.kinds[usize::from(kind)]);
            }
            Step::Despawn(id) => self.replicator.despawn(ObjectId(id)),
            Step::Move(id, at) => self.change(id, |object| object.set_vector(0, at).is_ok()),
            Step::Turn(id, turn) => self.change(id, |object| object.set_rotation(1, turn).is_ok()),
            Step::Count(id, count) => self.change(id, |object| object.set_integer(0, count).is_ok()),
            Step::Weigh(id, visible) => {
                self.replicator.set_weight(self.viewer, ObjectId(id), f32::from(u8::from(visible)));
            }
            Step::Commit(ticks) => {
                self.tick += ticks;
                self.replicator.commit(self.tick).unwrap();
            }
            Step::Send(room, way) => self.send(room, way),
            Step::Deliver if self.late.is_empty() => {}
            Step::Deliver => {
                let (bytes, tag) = self.late.remove(self.late.len() / 2);
                self.take(&bytes, tag);
            }
        }
    }

    /// Changes an object if it exists and has the field.
    fn change(&mut self, id: u16, set: impl FnOnce(&mut crate::ObjectMut<'_>) -> bool) {
        if let Some(mut object) = self.replicator.object(ObjectId(id)) {
            set(&mut object);
        }
    }

    /// Returns what the server wants the client to show.
    fn truth(&mut self) -> BTreeMap<u16, (ObjectKind, Vec<i32>)> {
        let mut truth = BTreeMap::new();
        for id in 0..OBJECTS {
            let kind = self.kinds.into_iter().find(|kind| {
                let layout = self.replicator.schema_layout(*kind);
                self.replicator.object(ObjectId(id)).is_some_and(|object| object.layout == &layout)
            });
            if let (Some(kind), Some(object)) = (kind, self.replicator.object(ObjectId(id))) {
                truth.insert(id, (kind, object.words.to_vec()));
            }
        }
        truth
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn replica_is_equal_after_any_losses(steps in prop::collection::vec(step(), 1..250)) {
        let mut game = Game::new();
        steps.into_iter().for_each(|step| game.run(step));
        for (bytes, tag) in core::mem::take(&mut game.late) {
            game.take(&bytes, tag);
        }
        (0..OBJECTS).for_each(|id| game.replicator.set_weight(game.viewer, ObjectId(id), 1.0));
        // Commits until messages on their way would be forgotten, and then until nothing is left to send.
        for _ in 0..130 {
            game.tick += 1;
            game.replicator.commit(game.tick).unwrap();
            (0..10).for_each(|_| game.send(150, Way::Arrives));
        }
        prop_assert_eq!(shown(&game.replica), game.truth());
        prop_assert!(written(&mut game.replicator, game.viewer, 200).is_none(), "nothing is left to send");
    }

    #[test]
    fn arbitrary_bytes_change_nothing_or_are_valid(messages in many_bytes()) {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        for id in 0..OBJECTS {
            replicator.spawn(ObjectId(id), cube).unwrap();
        }
        replicator.commit(1).unwrap();
        let (bytes, _) = written(&mut replicator, viewer, 1000).unwrap();
        replica.read(&bytes).unwrap();
        for message in messages {
            let before = shown(&replica);
            if replica.read(&message).is_err() {
                prop_assert_eq!(shown(&replica), before);
            }
        }
    }
}

#[test]
fn unchanged_objects_cost_nothing_once_they_arrived() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(1).unwrap();
    let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&bytes).unwrap();
    replicator.commit(2).unwrap();
    assert!(is_silent(&mut replicator, viewer, 100), "it is on its way");
    replicator.on_acknowledged(viewer, tag);
    replicator.commit(3).unwrap();
    assert!(is_silent(&mut replicator, viewer, 100), "it has arrived");
}

#[test]
fn lost_state_is_sent_again_in_its_newest_form() {
    let (mut replicator, mut replica, viewer, [_, counter]) = pair();
    replicator.spawn(ObjectId(1), counter).unwrap().set_integer(0, 5).unwrap();
    replicator.commit(1).unwrap();
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.object(ObjectId(1)).unwrap().set_integer(0, 6).unwrap();
    replicator.commit(2).unwrap();
    replicator.on_lost(viewer, tag);
    let (bytes, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&bytes).unwrap();
    assert_eq!(replica.object(ObjectId(1)).unwrap().integer(0), Some(6));
}

#[test]
fn steady_motion_costs_a_few_bits() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    let mut sizes = Vec::new();
    for tick in 1..20_u32 {
        let at = [tick as f32 * 0.5 - 8.0, 1.0, 0.0];
        replicator.object(ObjectId(1)).unwrap().set_vector(0, at).unwrap();
        replicator.commit(tick).unwrap();
        let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
        replica.read(&bytes).unwrap();
        replicator.on_acknowledged(viewer, tag);
        sizes.push(bytes.len());
        assert_eq!(replica.object(ObjectId(1)).unwrap().vector(0), Some(at));
    }
    // The third message knows the speed: header, id, form and three flags.
    assert_eq!((sizes[0], &sizes[3..]), (17, &[4; 16][..]));
}

#[test]
fn id_that_is_used_again_is_gone_first() {
    let (mut replicator, mut replica, viewer, [cube, counter]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    assert_eq!(replicator.spawn(ObjectId(1), cube).err(), Some(ReplicatorError::IdInUse));
    replicator.commit(1).unwrap();
    let (first, tag) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&first).unwrap();
    replicator.on_acknowledged(viewer, tag);
    assert_eq!(changes(&mut replica), [ReplicaChange::Appeared { id: ObjectId(1), kind: cube }]);
    replicator.despawn(ObjectId(1));
    replicator.spawn(ObjectId(1), counter).unwrap();
    replicator.commit(2).unwrap();
    let (second, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&second).unwrap();
    let gone = ReplicaChange::Gone { id: ObjectId(1), reason: GoneReason::Despawned, tick: 2 };
    assert_eq!(changes(&mut replica), [gone, ReplicaChange::Appeared { id: ObjectId(1), kind: counter }]);
}

#[test]
fn late_spawn_does_not_bring_a_removed_object_back() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(1).unwrap();
    let (spawn, _) = written(&mut replicator, viewer, 100).unwrap();
    replicator.set_weight(viewer, ObjectId(1), 0.0);
    replicator.commit(2).unwrap();
    let (gone, tag) = written(&mut replicator, viewer, 100).unwrap();
    assert_eq!(gone.len(), 7);
    replica.read(&gone).unwrap();
    replica.read(&spawn).unwrap();
    assert_eq!(changes(&mut replica), []);
    assert_eq!(replica.objects().count(), 0);
    replicator.on_acknowledged(viewer, tag);
    replicator.set_weight(viewer, ObjectId(1), 1.0);
    replicator.commit(3).unwrap();
    let (again, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&again).unwrap();
    assert_eq!(changes(&mut replica), [ReplicaChange::Appeared { id: ObjectId(1), kind: cube }]);
}

#[test]
fn removal_waits_for_a_later_tick_than_the_state() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(1).unwrap();
    let (state, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.on_lost(viewer, tag);
    replica.read(&state).unwrap();
    replicator.despawn(ObjectId(1));
    assert!(written(&mut replicator, viewer, 100).is_none(), "the client would ignore it");
    replicator.commit(2).unwrap();
    let (gone, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&gone).unwrap();
    assert_eq!(replica.objects().count(), 0);
}

#[test]
fn message_without_its_baseline_is_refused_until_resync() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(1).unwrap();
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.on_acknowledged(viewer, tag);
    replicator.object(ObjectId(1)).unwrap().set_bool(2, true).unwrap();
    replicator.commit(2).unwrap();
    let (bytes, tag) = written(&mut replicator, viewer, 100).unwrap();
    assert_eq!(replica.read(&bytes), Err(StateReadError::UnknownTick));
    replicator.on_lost(viewer, tag);
    assert!(replicator.resync(viewer, replica.resync_request().unwrap()));
    // This one is lost, and the transport reports the opposite.
    replicator.commit(3).unwrap();
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.spawn(ObjectId(2), cube).unwrap();
    replicator.commit(4).unwrap();
    let (other, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&other).unwrap();
    replicator.on_acknowledged(viewer, tag);
    replicator.object(ObjectId(1)).unwrap().set_bool(2, false).unwrap();
    replicator.commit(5).unwrap();
    let (bytes, _) = written(&mut replicator, viewer, 100).unwrap();
    assert_eq!(replica.read(&bytes), Err(StateReadError::MissingBaseline));
    replicator.object(ObjectId(1)).unwrap().set_bool(2, true).unwrap();
    replicator.commit(70).unwrap();
    assert!(replicator.resync(viewer, replica.resync_request().unwrap()));
    let (bytes, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&bytes).unwrap();
    assert_eq!(replica.resync_request(), None);
    assert_eq!(replica.object(ObjectId(1)).unwrap().bool(2), Some(true));
}

#[test]
fn two_clients_with_one_history_get_equal_bytes() {
    let (mut replicator, _, first, [cube, _]) = pair();
    let second = replicator.add_viewer().unwrap();
    assert_eq!(replicator.add_viewer(), Err(ReplicatorError::TooManyViewers));
    for tick in 1..5_u32 {
        for id in 0..OBJECTS {
            _ = replicator.spawn(ObjectId(id), cube).err();
            replicator.object(ObjectId(id)).unwrap().set_vector(0, [tick as f32, 1.0, f32::from(id)]).unwrap();
        }
        replicator.commit(tick).unwrap();
        let (left, right) =
            (written(&mut replicator, first, 900).unwrap(), written(&mut replicator, second, 900).unwrap());
        assert_eq!(left, right);
        replicator.on_acknowledged(first, left.1);
        replicator.on_acknowledged(second, right.1);
    }
}

#[test]
fn urgent_objects_go_first_and_all_get_their_turn() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), cube).unwrap();
    }
    replicator.set_weight(viewer, ObjectId(33), 50.0);
    for tick in 1..60 {
        replicator.commit(tick).unwrap();
        let (bytes, tag) = written(&mut replicator, viewer, 30).unwrap();
        replica.read(&bytes).unwrap();
        replicator.on_acknowledged(viewer, tag);
        assert!(replica.object(ObjectId(33)).is_some(), "it was in the first message");
    }
    assert_eq!(replica.objects().count(), usize::from(OBJECTS));
}

#[test]
fn thesis_sends_twenty_objects_again_and_again() {
    let (replicator, mut replica, _, [cube, _]) = pair();
    let mut replicator = replicator.with_priorities(Priorities::thesis());
    let viewer = replicator.add_viewer().unwrap();
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), cube).unwrap();
    }
    for tick in 1..10 {
        replicator.commit(tick).unwrap();
        let mut buf = [0; 1000];
        let message = replicator.write(viewer, &mut buf).unwrap();
        assert_eq!(message.objects, 20);
        replica.read(&buf[..message.bytes]).unwrap();
        replicator.on_acknowledged(viewer, message.tag);
    }
    assert_eq!(replica.objects().count(), usize::from(OBJECTS));
}

#[test]
fn removed_client_gets_nothing_and_its_place_is_used_again() {
    let (mut replicator, _, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(5).unwrap();
    assert_eq!(replicator.commit(5), Err(ReplicatorError::TickNotLater));
    replicator.remove_viewer(viewer);
    assert!(written(&mut replicator, viewer, 100).is_none());
    let next = replicator.add_viewer().unwrap();
    assert_ne!(next, viewer);
    assert!(written(&mut replicator, next, 100).is_some());
}

#[test]
fn plan_without_a_limit_has_all_objects() {
    let max = usize::MAX;
    for (messages, bytes_each) in [(max / 1024, 1024), (max, 1024), (max, max), (1, max)] {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
        replicator.commit(1).unwrap();
        replicator.plan(viewer, messages, bytes_each);
        let mut buf = [0; 1024];
        while let Some(message) = replicator.write(viewer, &mut buf) {
            replica.read(&buf[..message.bytes]).unwrap();
        }
        assert_eq!(replica.objects().count(), usize::from(OBJECTS), "{messages} messages of {bytes_each} bytes");
    }
}

#[test]
fn new_object_has_no_rotation() {
    let mut schema = Schema::builder();
    let kinds = [4, 9, 16].map(|bits| schema.add(&[Field::boolean(), Field::rotation(bits), Field::velocity(3.0, 7)]));
    let schema = Arc::new(schema.build().unwrap());
    let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 3, 1, 60), Replica::new(schema, 3));
    let viewer = replicator.add_viewer().unwrap();
    for (id, kind) in (0..).map(ObjectId).zip(kinds) {
        replicator.spawn(id, kind).unwrap();
    }
    replicator.commit(1).unwrap();
    let mut buf = [0; 100];
    let message = replicator.write(viewer, &mut buf).unwrap();
    replica.read(&buf[..message.bytes]).unwrap();
    for id in (0..3).map(ObjectId) {
        let object = replica.object(id).unwrap();
        assert_eq!((object.bool(0), object.rotation(1)), (Some(false), Some([0.0, 0.0, 0.0, 1.0])), "{id:?}");
    }
}
