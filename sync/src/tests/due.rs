//! What is due for a client after reports that come late or are wrong, and how full messages are.

use super::*;
use crate::Look;

const ID: ObjectId = ObjectId(1);

/// The transport reports a message as lost, and later that it arrived.
#[test]
fn object_that_arrived_after_its_loss_is_not_sent_again() {
    let (mut replicator, _, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    replicator.commit(1).unwrap();
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.on_lost(viewer, tag);
    replicator.on_acknowledged(viewer, tag);
    replicator.commit(2).unwrap();
    assert!(is_silent(&mut replicator, viewer, 100));
}

#[test]
fn removal_does_not_wait_for_the_report_of_a_state() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    replicator.commit(1).unwrap();
    replica.read(&written(&mut replicator, viewer, 100).unwrap().0).unwrap();
    replicator.despawn(ID);
    replicator.commit(2).unwrap();
    replica.read(&written(&mut replicator, viewer, 100).unwrap().0).unwrap();
    assert_eq!(replica.objects().count(), 0);
}

/// The report of a state comes when another object has its id: that state is no baseline of the other one.
#[test]
fn report_of_an_object_says_nothing_of_the_next_one() {
    for is_seen in [true, false] {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        replicator.spawn(ID, cube).unwrap();
        replicator.commit(1).unwrap();
        let (message, tag) = written(&mut replicator, viewer, 100).unwrap();
        replica.read(&message).unwrap();
        changes(&mut replica);
        let first = replica.object(ID).map(|object| object.words.to_vec());
        replicator.despawn(ID);
        replicator.spawn(ID, cube).unwrap();
        if is_seen {
            replicator.on_acknowledged(viewer, tag);
        }
        replicator.commit(2).unwrap();
        replica.read(&written(&mut replicator, viewer, 100).unwrap().0).unwrap();
        // Both objects have the same fields.
        assert_eq!(replica.object(ID).map(|object| object.words.to_vec()), first);
        let gone = ReplicaChange::Gone { id: ID, reason: GoneReason::Despawned, tick: 2 };
        assert_eq!(changes(&mut replica), [gone, ReplicaChange::Appeared { id: ID, kind: cube }]);
    }
}

#[test]
fn object_within_two_looks_is_not_sent_again() {
    let (mut replicator, _, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap().set_vector(0, [1.0, 0.0, 0.0]).unwrap();
    replicator.look(viewer, Some(Look::around([0.0; 3], 5.0)));
    replicator.commit(1).unwrap();
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.on_acknowledged(viewer, tag);
    replicator.look(viewer, Some(Look::around([2.0, 0.0, 0.0], 5.0)));
    replicator.commit(2).unwrap();
    assert!(is_silent(&mut replicator, viewer, 100));
}

/// A tick of 16 bits would be ambiguous for a client that has got nothing for a long time.
#[test]
fn messages_are_wider_16384_ticks_after_the_newest_report() {
    for (ticks, is_wide) in [(1, false), (16_383, false), (16_384, true), (100_000, true)] {
        let (mut replicator, _, viewer, _) = pair();
        replicator.commit(1).unwrap();
        let (wide, tag) = written(&mut replicator, viewer, 100).unwrap();
        replicator.on_acknowledged(viewer, tag);
        replicator.commit(1 + ticks).unwrap();
        let (message, _) = written(&mut replicator, viewer, 100).unwrap();
        assert_eq!(message.len() == wide.len(), is_wide, "{ticks} ticks");
    }
}

/// A world with records of all forms: differences to two states, whole ones, and removals. Returns what the client
/// has, and the ids in the order of their urgency.
fn mixed_world(objects: u16) -> (Replicator, Replica, ViewerId, Vec<u16>) {
    let (mut replicator, mut replica, viewer, [cube, counter]) = pair();
    let change = |replicator: &mut Replicator, id: u16, step: u32| {
        let part = |factor: u32| ((u32::from(id) * 37 + step * factor) % 89) as f32 / 8.0;
        let mut object = replicator.object(ObjectId(id)).unwrap();
        if id.is_multiple_of(3) {
            object.set_integer(0, ((u32::from(id) + 1) * 7919 * step) as i32 % 900_000).unwrap();
        } else {
            object.set_vector(0, [part(7), part(11), part(13)]).unwrap();
        }
    };
    let known = (0..objects).filter(|id| id % 5 < 4);
    for id in known.clone() {
        replicator.spawn(ObjectId(id), if id.is_multiple_of(3) { counter } else { cube }).unwrap();
    }
    for step in 1..=2 {
        known.clone().filter(|id| step == 1 || id.is_multiple_of(2)).for_each(|id| change(&mut replicator, id, step));
        replicator.commit(step).unwrap();
        let (message, tag) = written(&mut replicator, viewer, 2000).unwrap();
        replica.read(&message).unwrap();
        replicator.on_acknowledged(viewer, tag);
    }
    for id in 0..objects {
        match id % 5 {
            3 => replicator.despawn(ObjectId(id)),
            4 => _ = replicator.spawn(ObjectId(id), if id.is_multiple_of(3) { counter } else { cube }).unwrap(),
            _ => {}
        }
        if id % 5 != 3 {
            change(&mut replicator, id, 3);
        }
    }
    // The last ones are most urgent.
    let order: Vec<u16> = (0..objects).rev().filter(|id| id % 5 != 3).collect();
    for id in &order {
        replicator.set_weight(viewer, ObjectId(*id), libm::powf(1.5, f32::from(*id)));
    }
    changes(&mut replica);
    replicator.commit(3).unwrap();
    (replicator, replica, viewer, order)
}

/// Nothing is left out of a message that has exactly the bytes that its objects take.
#[test]
fn all_objects_fit_a_message_of_their_length() {
    for objects in 1..OBJECTS {
        let (mut replicator, _, viewer, _) = mixed_world(objects);
        let length = replicator.write(viewer, &mut [0; 2000]).unwrap().bytes;
        let (mut replicator, _, viewer, _) = mixed_world(objects);
        let mut buf = alloc::vec![0; length];
        let message = replicator.write(viewer, &mut buf).unwrap();
        assert_eq!((message.bytes, message.objects), (length, usize::from(objects)), "of {objects} objects");
    }
}

/// The records of a message are in the order of their ids, and the most urgent ones are the last here: one that is
/// counted as shorter than it is would be cut.
#[test]
fn most_urgent_objects_are_in_each_message() {
    let gone = usize::from(OBJECTS / 5);
    for room in 28..400 {
        let (mut replicator, mut replica, viewer, order) = mixed_world(OBJECTS);
        let (message, _) = written(&mut replicator, viewer, room).unwrap();
        replica.read(&message).unwrap();
        let sent: Vec<u16> = replica.last_message().map(|object| object.id().0).collect();
        // Removals go first.
        let is_gone = |change: &ReplicaChange| matches!(change, ReplicaChange::Gone { .. });
        assert_eq!(changes(&mut replica).iter().filter(|change| is_gone(change)).count(), gone, "{room} bytes");
        if room >= 50 {
            let count = (1..=3.min(sent.len())).take_while(|count| *count * 16 + 30 < room).count();
            assert!(order[..count].iter().all(|id| sent.contains(id)), "{room} bytes: {sent:?}");
        }
    }
}
