//! Objects in sight, by a sphere around each client.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::{OBJECTS, changes, pair, written};
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
    assert_eq!(changes(&mut replica), [ReplicaChange::Gone { id: ObjectId(1), reason: GoneReason::OutOfSight }]);
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
        assert!(written(&mut replicator, viewer, 100).is_none());
    }
    assert!(send(&mut replicator, &mut replica, viewer, 200).is_empty());
}

proptest! {
    #[test]
    fn grid_finds_the_same_objects_as_all_distances(
        positions in prop::collection::vec(prop::array::uniform3(-20.0..20.0_f32), 1..usize::from(OBJECTS)),
        looks in prop::collection::vec((prop::array::uniform3(-20.0..20.0_f32), 0.0..30.0_f32), 1..6),
    ) {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        for (id, position) in (0..).zip(&positions) {
            replicator.spawn(ObjectId(id), cube).unwrap();
            place(&mut replicator, id, *position);
        }
        let mut seen: BTreeSet<u16> = (0..positions.len() as u16).collect();
        for ((centre, radius), tick) in looks.into_iter().zip(1..) {
            replicator.look(viewer, Some(Look::around(centre, radius).leaving(radius + 3.0)));
            let ids = send(&mut replicator, &mut replica, viewer, tick);
            for id in 0..positions.len() as u16 {
                let at = quantised(&mut replicator, id);
                let distance = at.iter().zip(centre).map(|(a, b)| (a - b) * (a - b)).sum::<f32>();
                let limit = if seen.contains(&id) { radius + 3.0 } else { radius };
                if distance <= limit * limit { seen.insert(id); } else { seen.remove(&id); }
            }
            prop_assert!(ids.into_iter().eq(seen.iter().copied()));
        }
    }
}
