//! Objects in sight, by a sphere around each client.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{OBJECTS, changes, is_silent, pair, written};
use crate::{GoneReason, Look, ObjectId, ObjectKind, ObjectRef, Replica, ReplicaChange, Replicator, ViewerId};

/// Sends one state, which arrives. Returns the ids that the client has then.
fn send(replicator: &mut Replicator, replica: &mut Replica, viewer: ViewerId, tick: u32) -> Vec<u16> {
    replicator.commit(tick).unwrap();
    if let Some((bytes, tag)) = written(replicator, viewer, 1000) {
        replica.read(&bytes).unwrap();
        replicator.on_acknowledged(viewer, tag);
    }
    replica.objects().map(|object| object.id().0).collect()
}

fn place(replicator: &mut Replicator, id: u16, position: [f32; 3]) {
    replicator.object(ObjectId(id)).unwrap().set_vector(0, position).unwrap();
}

/// Returns where an object is, as clients know it.
fn quantised(replicator: &mut Replicator, id: u16) -> [f32; 3] {
    let object = replicator.object(ObjectId(id)).unwrap();
    let object =
        ObjectRef { layout: object.layout, words: object.words, id: ObjectId(id), kind: ObjectKind(0), tick: 0 };
    object.vector(0).unwrap()
}

#[test]
fn objects_appear_within_one_radius_and_leave_beyond_another() {
    let (mut replicator, mut replica, viewer, [cube, counter]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.spawn(ObjectId(2), counter).unwrap();
    replicator.look(viewer, Some(Look::around([0.0; 3], 4.0).leaving(6.0)));
    let at =
        [(7.0, false), (5.0, false), (3.0, true), (5.0, true), (5.9, true), (6.1, false), (5.0, false), (-4.0, true)];
    for ((x, is_seen), tick) in at.into_iter().zip(1..) {
        place(&mut replicator, 1, [x, 0.0, 0.0]);
        let ids = send(&mut replicator, &mut replica, viewer, tick);
        assert_eq!(ids.contains(&1), is_seen, "at {x}");
        assert!(ids.contains(&2), "it has no position");
    }
    _ = changes(&mut replica);
    replicator.look(viewer, Some(Look::around([10.0, 0.0, 0.0], 4.0)));
    send(&mut replicator, &mut replica, viewer, 20);
    assert_eq!(
        changes(&mut replica),
        [ReplicaChange::Gone { id: ObjectId(1), reason: GoneReason::OutOfSight, tick: 20 }]
    );
    replicator.look(viewer, None);
    assert_eq!(send(&mut replicator, &mut replica, viewer, 21), [1, 2]);
}

#[test]
fn object_out_of_sight_costs_nothing() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.look(viewer, Some(Look::around([9.0; 3], 1.0)));
    for tick in 1..200_u32 {
        place(&mut replicator, 1, [0.0, tick as f32 / 100.0, 0.0]);
        replicator.commit(tick).unwrap();
        assert!(is_silent(&mut replicator, viewer, 100));
    }
    assert!(send(&mut replicator, &mut replica, viewer, 200).is_empty());
}

/// What happens to an object between two looks.
#[derive(Clone, Copy, Debug)]
enum Event {
    Move([f32; 3]),
    Despawn,
    /// It is an object without a position from then on, or one with a position.
    Replace(bool),
}

fn event() -> impl Strategy<Value = (u16, Event)> {
    let event = prop_oneof![
        4 => prop::array::uniform3(-20.0..20.0_f32).prop_map(Event::Move),
        1 => Just(Event::Despawn),
        1 => any::<bool>().prop_map(Event::Replace),
    ];
    (0..OBJECTS, event)
}

proptest! {
    #[test]
    fn grid_finds_the_same_objects_as_all_distances(
        looks in prop::collection::vec(
            (prop::array::uniform3(-20.0..20.0_f32), 0.0..30.0_f32, prop::collection::vec(event(), 0..40)), 1..12),
    ) {
        let (mut replicator, mut replica, viewer, [cube, counter]) = pair();
        (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
        let (mut seen, mut places) = (BTreeSet::<u16>::from_iter(0..OBJECTS), [true; OBJECTS as usize]);
        let mut known = [None; OBJECTS as usize];
        for ((centre, radius, events), tick) in looks.into_iter().zip(1..) {
            for (id, event) in events {
                let is_placed = &mut places[usize::from(id)];
                match event {
                    Event::Move(position) if *is_placed && replicator.object(ObjectId(id)).is_some() => {
                        place(&mut replicator, id, position);
                    }
                    Event::Move(_) => {}
                    Event::Despawn => replicator.despawn(ObjectId(id)),
                    Event::Replace(kind) => {
                        replicator.despawn(ObjectId(id));
                        replicator.spawn(ObjectId(id), if kind { cube } else { counter }).unwrap();
                        *is_placed = kind;
                    }
                }
            }
            replicator.look(viewer, Some(Look::around(centre, radius).leaving(radius + 3.0)));
            // An id that was used again is removed in one message, and appears in the next one.
            _ = send(&mut replicator, &mut replica, viewer, 2 * tick);
            let ids = send(&mut replicator, &mut replica, viewer, 2 * tick + 1);
            let distance = |at: [f32; 3]| at.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
            for id in 0..OBJECTS {
                let is_live = replicator.object(ObjectId(id)).is_some();
                // An id without an object is seen as its last object was, until it is out of sight.
                let known = &mut known[usize::from(id)];
                if is_live {
                    *known = places[usize::from(id)].then(|| quantised(&mut replicator, id));
                }
                let limit = if seen.contains(&id) { radius + 3.0 } else { radius };
                if known.is_some_and(|at| distance(at) > limit * limit) {
                    seen.remove(&id);
                } else if is_live {
                    seen.insert(id);
                }
                prop_assert_eq!(ids.contains(&id), is_live && seen.contains(&id), "{} around {:?}", id, centre);
            }
        }
    }
}

#[test]
fn object_that_comes_into_sight_at_rest_is_sent_once() {
    for by_look in [true, false] {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        replicator.spawn(ObjectId(1), cube).unwrap();
        let see = |replicator: &mut Replicator, is_seen: bool| {
            if by_look {
                replicator.look(viewer, Some(Look::around([if is_seen { 0.0 } else { 100.0 }, 0.0, 0.0], 15.0)));
            } else {
                replicator.set_weight(viewer, ObjectId(1), if is_seen { 1.0 } else { 0.0 });
            }
        };
        see(&mut replicator, false);
        for tick in 1..20 {
            assert!(send(&mut replicator, &mut replica, viewer, tick).is_empty());
        }
        replicator.commit(20).unwrap();
        see(&mut replicator, true);
        let (bytes, tag) = written(&mut replicator, viewer, 1000).unwrap();
        replica.read(&bytes).unwrap();
        replicator.on_acknowledged(viewer, tag);
        for tick in 21..600 {
            replicator.commit(tick).unwrap();
            assert!(is_silent(&mut replicator, viewer, 1000), "look {by_look}: sent again at tick {tick}");
        }
    }
}
