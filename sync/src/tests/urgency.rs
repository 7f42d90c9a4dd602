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
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, 1, 60).with_priorities(priorities);
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
    let others = sent_first(Priorities { per_metre_of_error: 0.0, ..Priorities::default() });
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
    let mut replicator = Replicator::new(Arc::new(schema.build().unwrap()), OBJECTS, 1, 60);
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

fn spawn_all(replicator: &mut Replicator, ids: core::ops::Range<u16>, kind: ObjectKind) {
    for id in ids {
        replicator.spawn(ObjectId(id), kind).unwrap();
    }
}

/// 200 objects move at 6 m/s, and a message has room for a sixth of them. Then ten more are spawned. Returns in how
/// many states all of those are sent.
fn states_until_new_objects_appear(units: f32, priorities: Priorities) -> u32 {
    const MOVING: u16 = 200;
    const ALL: u16 = 210;
    let (mut schema, side) = (Schema::builder(), 100.0 * units);
    let kind = schema.add(&[Field::vector([(); 3].map(|()| -side..side), (512.0 / units).max(1.0) as u32)]);
    let schema = Arc::new(schema.build().unwrap());
    let mut replicator = Replicator::new(schema.clone(), ALL, 1, 60).with_priorities(priorities);
    let (viewer, mut replica) = (replicator.add_viewer().unwrap(), Replica::new(schema, ALL));
    spawn_all(&mut replicator, 0..MOVING, kind);
    let mut missing: BTreeSet<u16> = (MOVING..ALL).collect();
    for state in 0..1400 {
        if state == 400 {
            spawn_all(&mut replicator, MOVING..ALL, kind);
        }
        for id in 0..MOVING {
            // Circles with a radius of 5 m.
            let turn = state as f32 * 0.05 * 6.0 / 5.0 + f32::from(id);
            let position = [libm::sinf(turn), libm::cosf(turn), 0.0].map(|part| part * 5.0 * units);
            replicator.object(ObjectId(id)).unwrap().set_vector(0, position).unwrap();
        }
        replicator.commit(state * 3 + 3).unwrap();
        if let Some((message, tag)) = written(&mut replicator, viewer, 160) {
            replica.read(&message).unwrap();
            replicator.on_acknowledged(viewer, tag);
        }
        missing.retain(|id| replica.object(ObjectId(*id)).is_none());
        if state >= 400 && missing.is_empty() {
            return state - 400;
        }
    }
    u32::MAX
}

#[test]
fn units_that_are_no_scale_count_as_metres() {
    for units_per_metre in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let rule = Priorities { units_per_metre, ..Priorities::default() };
        assert_eq!(sent_first(rule), sent_first(Priorities::default()), "{units_per_metre}");
    }
}

#[test]
fn new_objects_appear_soon_whatever_the_units_of_the_game() {
    let rule = Priorities::default();
    for (units, per_metre_of_error, units_per_metre) in
        [(1.0, 400.0, 1.0), (100.0, 400.0, 100.0), (100.0, 400.0, 1.0), (100.0, 4.0, 1.0), (1000.0, 0.4, 1.0)]
    {
        let rule = Priorities { per_metre_of_error, units_per_metre, ..rule };
        let states = states_until_new_objects_appear(units, rule);
        assert!(states <= 10, "{states} states with {rule:?}");
    }
}

/// Counters change by large numbers, cubes move, and a message has room for few of them: all get their turn.
#[test]
fn large_integers_do_not_starve_other_fields() {
    let (mut replicator, mut replica, viewer, [cube, counter]) = pair();
    for id in 0..20 {
        replicator.spawn(ObjectId(id), if id < 10 { counter } else { cube }).unwrap();
    }
    let mut sent = [0; 20];
    for tick in (3..3000_u32).step_by(3) {
        for id in 0..10 {
            replicator.object(ObjectId(id)).unwrap().set_integer(0, (tick * 7919 % 900_000) as i32).unwrap();
        }
        for id in 10..20 {
            let position = [15.0 * libm::sinf(tick as f32 / 40.0 + f32::from(id)), 1.0, 0.0];
            replicator.object(ObjectId(id)).unwrap().set_vector(0, position).unwrap();
        }
        replicator.commit(tick).unwrap();
        if let Some((message, tag)) = written(&mut replicator, viewer, 24) {
            replica.read(&message).unwrap();
            replicator.on_acknowledged(viewer, tag);
            replica.last_message().for_each(|object| sent[usize::from(object.id().0)] += 1);
        }
    }
    assert!(sent.iter().all(|count| *count > 50), "{sent:?}");
}

/// Objects that move go before those that stopped within the last ten commits, by the rule of the thesis.
#[test]
fn thesis_sends_moving_objects_before_still_ones() {
    let (schema, [cube, _]) = schema();
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, 1, 60).with_priorities(Priorities::thesis());
    let (viewer, mut replica) = (replicator.add_viewer().unwrap(), Replica::new(schema, OBJECTS));
    spawn_all(&mut replicator, 0..OBJECTS, cube);
    let (mut moving, mut still) = (0, 0);
    for tick in 1..10 {
        for id in (0..OBJECTS).step_by(2) {
            replicator.object(ObjectId(id)).unwrap().set_vector(0, [tick as f32, 0.0, 0.0]).unwrap();
        }
        replicator.commit(tick).unwrap();
        replica.read(&written(&mut replicator, viewer, 1000).unwrap().0).unwrap();
        let ids = replica.last_message().map(|object| object.id().0).filter(|_| tick > 2);
        ids.for_each(|id| if id % 2 == 0 { moving += 1 } else { still += 1 });
    }
    assert!(moving > 4 * still, "{moving} moving, {still} still ones");
}
