//! Which objects a message has when there is no room for all of them.

use std::collections::BTreeSet;

use super::*;

/// How far an object moves, in metres: large ways are spread over all ids.
fn way(id: u16) -> f32 {
    f32::from(id * 7 % OBJECTS) * 0.1
}

/// Returns the objects of a message with room for a part of them, after all have moved once.
fn sent_first(priorities: Priorities) -> BTreeSet<u16> {
    let (schema, [cube, _]) = schema();
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, 1).with_priorities(priorities);
    let (viewer, mut replica) = (replicator.add_viewer().unwrap(), Replica::new(schema, OBJECTS));
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), cube).unwrap();
    }
    replicator.commit(1).unwrap();
    let (message, tag) = written(&mut replicator, viewer, 1000).unwrap();
    replica.read(&message).unwrap();
    replicator.on_acknowledged(viewer, tag);
    changes(&mut replica);
    for id in 0..OBJECTS {
        replicator.object(ObjectId(id)).unwrap().set_vector(0, [way(id), 0.0, 0.0]).unwrap();
    }
    replicator.commit(2).unwrap();
    replica.read(&written(&mut replicator, viewer, 40).unwrap().0).unwrap();
    let id = |change| if let ReplicaChange::Updated { id } = change { Some(id.0) } else { None };
    changes(&mut replica).into_iter().filter_map(id).collect()
}

#[test]
fn objects_that_are_most_wrong_go_first() {
    let sent = sent_first(Priorities::default());
    let mut all: Vec<u16> = (0..OBJECTS).collect();
    all.sort_by(|one, two| way(*two).total_cmp(&way(*one)));
    assert!((3..usize::from(OBJECTS) / 2).contains(&sent.len()), "{sent:?}");
    assert!(all[..sent.len() - 1].iter().all(|id| sent.contains(id)), "{sent:?} of {all:?}");
    // Without the error all of them are equally urgent.
    let others = sent_first(Priorities { per_unit_of_error: 0.0, ..Priorities::default() });
    assert!(!all[..sent.len() - 1].iter().all(|id| others.contains(id)), "{others:?}");
}
