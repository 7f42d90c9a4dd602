//! Worlds of 20,000 objects: a turn does not look at all of them.

use alloc::vec::Vec;
use std::collections::BTreeSet;

use super::{changes, is_silent, pair, written};
use crate::{Field, ObjectId, Replica, ReplicaChange, Replicator, Schema, ViewerId};

const OBJECTS: u16 = 20_000;
/// Room for about 300 objects.
const ROOM: usize = 1000;
/// An object that does not change.
const URGENT: ObjectId = ObjectId(17_000);

/// Runs a client that joins a world, until it has all objects. Returns the turns in which the objects that change, one
/// by one, reach it, and the number of turns.
fn join(changes_of: impl Fn(u32) -> u16) -> (Vec<u32>, u32) {
    let mut builder = Schema::builder();
    let kind = builder.add(&[Field::integer(0, 9)]);
    let schema = alloc::sync::Arc::new(builder.build().unwrap());
    let (mut replicator, mut replica) =
        (Replicator::new(schema.clone(), OBJECTS, 1, 60), Replica::new(schema, OBJECTS).with_max_bytes(usize::MAX));
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), kind).unwrap();
    }
    replicator.commit(1).unwrap();
    let viewer = replicator.add_viewer().unwrap();
    replicator.set_weight(viewer, URGENT, 1e6);
    let (mut at_once, mut known, mut urgent_at) = (Vec::new(), BTreeSet::new(), 0);
    for turn in 1..=200_u32 {
        let id = ObjectId(changes_of(turn));
        replicator.object(id).unwrap().set_integer(0, 1 + turn as i32 % 9).unwrap();
        replicator.set_weight(viewer, id, 1e6);
        replicator.commit(1 + 3 * turn).unwrap();
        let (bytes, tag) = written(&mut replicator, viewer, ROOM).unwrap();
        replica.read(&bytes).unwrap();
        replicator.on_acknowledged(viewer, tag);
        for change in changes(&mut replica) {
            let (ReplicaChange::Appeared { id: other, .. } | ReplicaChange::Updated { id: other }) = change else {
                continue;
            };
            known.insert(other.0);
            if other == id {
                at_once.push(turn);
            }
            if other == URGENT {
                urgent_at = turn;
            }
        }
        if known.len() == usize::from(OBJECTS) {
            // Each turn looks at more than 4,000 of those that wait.
            assert!((1..=5).contains(&urgent_at), "{urgent_at}");
            return (at_once, turn);
        }
    }
    panic!("{} objects are missing", usize::from(OBJECTS) - known.len());
}

#[test]
fn client_that_joins_a_large_world_gets_what_changes_at_once() {
    for changes_of in [|_| OBJECTS - 1, |turn: u32| (turn * 7919 % 16_000) as u16] {
        let (at_once, turns) = join(changes_of);
        assert!(at_once.iter().copied().eq(1..=turns), "{at_once:?} of {turns}");
        // No message has much room left.
        assert!(turns < 90, "{turns}");
    }
}

/// Returns the ticks up to 700 with objects in their messages. No message is reported.
fn ticks_with_objects(replicator: &mut Replicator, viewer: ViewerId) -> Vec<u32> {
    let has_objects = |tick: &u32| {
        replicator.commit(*tick).unwrap();
        !is_silent(replicator, viewer, 100)
    };
    (2..700).filter(has_objects).collect()
}

#[test]
fn message_without_a_report_is_sent_again_when_it_is_too_old() {
    let (mut replicator, _, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(1).unwrap();
    assert!(!is_silent(&mut replicator, viewer, 100));
    assert_eq!(ticks_with_objects(&mut replicator, viewer), [257, 513]);
}

#[test]
fn removal_without_a_report_is_sent_again_when_it_is_too_old() {
    let (mut replicator, _, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(1).unwrap();
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.on_acknowledged(viewer, tag);
    replicator.despawn(ObjectId(1));
    assert_eq!(ticks_with_objects(&mut replicator, viewer), [2, 258, 514]);
}
