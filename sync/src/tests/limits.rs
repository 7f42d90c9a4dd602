//! Limits at which a client must not mistake one thing for another: ids that are used again, resyncs, and memory.

use super::*;
use crate::ResyncRequest;

const ID: ObjectId = ObjectId(1);

/// Lets an object arrive, and replaces it this many times without a message. Returns what the client is informed of,
/// message by message.
fn changes_after_spawns(spawns: u32) -> Vec<Vec<ReplicaChange>> {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    replicator.commit(1).unwrap();
    let (message, tag) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&message).unwrap();
    replicator.on_acknowledged(viewer, tag);
    changes(&mut replica);
    for _ in 0..spawns {
        replicator.despawn(ID);
        replicator.spawn(ID, cube).unwrap();
    }
    let mut all = Vec::new();
    for tick in 2..=3 {
        replicator.commit(tick).unwrap();
        let (message, tag) = written(&mut replicator, viewer, 100).unwrap();
        replica.read(&message).unwrap();
        replicator.on_acknowledged(viewer, tag);
        all.push(changes(&mut replica));
    }
    all
}

/// The generation of an object has four bits: 16 objects with one id are distinct.
#[test]
fn client_never_takes_an_object_for_a_later_one_with_its_id() {
    for spawns in [1, 2, 14, 15, 16, 17, 31, 32, 33, 300] {
        let gone = ReplicaChange::Gone { id: ID, reason: GoneReason::Despawned, tick: 2 };
        let appeared = ReplicaChange::Appeared { id: ID, kind: pair().3[0] };
        // One message is enough for an object that the client can tell apart.
        let expected = if spawns < 15 {
            [alloc::vec![gone, appeared], alloc::vec![]]
        } else {
            [alloc::vec![gone], alloc::vec![appeared]]
        };
        assert_eq!(changes_after_spawns(spawns), expected, "{spawns} spawns");
    }
}

/// A message from before a resync comes after those from behind it.
#[test]
fn late_message_says_nothing_of_resyncs() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(ID, cube).unwrap();
    replicator.commit(1).unwrap();
    let (late, _) = written(&mut replicator, viewer, 100).unwrap();
    assert!(replicator.resync(viewer, ResyncRequest(0)));
    replicator.commit(2).unwrap();
    let (message, _) = written(&mut replicator, viewer, 100).unwrap();
    replica.read(&message).unwrap();
    replica.read(&message[..5]).unwrap_err();
    assert_eq!(replica.resync_request(), Some(ResyncRequest(1)));
    replica.read(&late).unwrap();
    assert_eq!(replica.resync_request(), Some(ResyncRequest(1)), "the server has done nothing for it yet");
}

/// States of 28 words take 120 bytes, and the first one of an object takes 32 of them: 64 MiB are 17,476 objects.
#[test]
fn states_take_64_mib_at_most_unless_the_game_allows_more() {
    let mut schema = Schema::builder();
    let kind = schema.add(&core::array::from_fn::<_, 28, _>(|_| Field::integer(0, 1)));
    let schema = Arc::new(schema.build().unwrap());
    for (objects, is_read) in [(17_400, true), (17_500, false)] {
        let (mut replicator, mut replica) =
            (Replicator::new(schema.clone(), objects, 1, 60), Replica::new(schema.clone(), objects));
        let viewer = replicator.add_viewer().unwrap();
        for id in 0..objects {
            replicator.spawn(ObjectId(id), kind).unwrap();
        }
        replicator.commit(1).unwrap();
        // A turn looks at all objects that changed at the newest commit.
        let (message, _) = written(&mut replicator, viewer, 200_000).unwrap();
        let expected = if is_read { Ok(1) } else { Err(StateReadError::TooManyStates) };
        assert_eq!(replica.read(&message).map(|header| header.tick), expected, "{objects} objects");
        assert_eq!(replica.objects().count(), if is_read { usize::from(objects) } else { 0 });
    }
}

/// Eight integers of 30 bits, all of which change at each tick: each difference to a baseline is longer than the whole.
#[test]
fn room_for_a_whole_state_is_enough_for_any_change() {
    let mut schema = Schema::builder();
    let kind = schema.add(&[(); 8].map(|()| Field::integer(0, (1 << 30) - 1)));
    let schema = Arc::new(schema.build().unwrap());
    let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 10, 1, 60), Replica::new(schema, 10));
    let (viewer, id) = (replicator.add_viewer().unwrap(), ObjectId(9));
    replicator.spawn(id, kind).unwrap();
    for tick in 1..=300_u32 {
        let values: [i32; 8] = core::array::from_fn(|field| {
            (tick.wrapping_mul(2_654_435_761).rotate_left(field as u32 * 5) & ((1 << 30) - 1)) as i32
        });
        for (field, value) in values.iter().enumerate() {
            replicator.object(id).unwrap().set_integer(field, *value).unwrap();
        }
        replicator.commit(tick).unwrap();
        let mut buf = [0; 30 + 15];
        if tick % 2 == 0 {
            replicator.plan(viewer, 3, buf.len());
        }
        let message = replicator.write(viewer, &mut buf).unwrap();
        replica.read(&buf[..message.bytes]).unwrap();
        replicator.on_acknowledged(viewer, message.tag);
        let object = replica.object(id).unwrap();
        assert_eq!(core::array::from_fn(|field| object.integer(field).unwrap()), values, "tick {tick}");
    }
    // The client has one object all the time.
    assert!(matches!(changes(&mut replica)[..], [ReplicaChange::Appeared { .. }]));
}
