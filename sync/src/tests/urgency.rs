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

#[test]
fn object_with_the_id_of_a_hidden_one_is_sent() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.set_weight(viewer, ObjectId(1), 0.0);
    replicator.commit(1).unwrap();
    assert!(is_silent(&mut replicator, viewer, 100));
    replicator.despawn(ObjectId(1));
    replicator.spawn(ObjectId(1), cube).unwrap();
    replicator.commit(2).unwrap();
    replica.read(&written(&mut replicator, viewer, 100).unwrap().0).unwrap();
    assert_eq!(changes(&mut replica), [ReplicaChange::Appeared { id: ObjectId(1), kind: cube }]);
}

/// Twenty objects of about 60 bytes are more urgent than the others.
#[test]
fn objects_too_large_for_a_message_do_not_hold_others_back() {
    let mut schema = Schema::builder();
    let large = schema.add(&core::array::from_fn::<_, 16, _>(|_| Field::integer(0, (1 << 29) - 1)));
    let small = schema.add(&[Field::integer(0, 15)]);
    let mut replicator = Replicator::new(Arc::new(schema.build().unwrap()), OBJECTS, 1);
    let viewer = replicator.add_viewer().unwrap();
    for id in 0..OBJECTS {
        let is_large = id < 20;
        let mut object = replicator.spawn(ObjectId(id), if is_large { large } else { small }).unwrap();
        if is_large {
            for field in 0..16 {
                object.set_integer(field, 0x1555_5555).unwrap();
            }
            replicator.set_weight(viewer, ObjectId(id), 50.0);
        }
    }
    replicator.commit(1).unwrap();
    let (message, _) = written(&mut replicator, viewer, 40).unwrap();
    assert!(message.len() > 20, "{} bytes", message.len());
    assert!(written(&mut replicator, viewer, 100).unwrap().0.len() > 60, "a large object fits here");
}
