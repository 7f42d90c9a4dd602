//! Servers that start again, and those that send more than a client can keep.

use alloc::vec::Vec;

use super::{changes, pair, schema, shown, written};
use crate::{
    Field, GoneReason, ObjectId, Replica, ReplicaChange, Replicator, ResyncRequest, Schema, StateReadError, ViewerId,
};

const ID: ObjectId = ObjectId(1);

/// Sends a state with another value of the object, and returns what the replica says of it.
fn exchange(
    replicator: &mut Replicator,
    replica: &mut Replica,
    viewer: ViewerId,
    tick: u32,
) -> Result<u32, StateReadError> {
    replicator.object(ID).unwrap().set_integer(0, tick as i32 % 1000).unwrap();
    replicator.commit(tick).unwrap();
    let (bytes, tag) = written(replicator, viewer, 100).unwrap();
    // The transport acknowledges messages that the game refuses, too.
    replicator.on_acknowledged(viewer, tag);
    replica.read(&bytes).map(|header| header.tick)
}

#[test]
fn server_that_starts_again_is_named_and_followed_after_a_reset() {
    let (mut old, mut replica, viewer, [_, counter]) = pair();
    old.spawn(ID, counter).unwrap();
    (1..=600).for_each(|tick| assert_eq!(exchange(&mut old, &mut replica, viewer, tick), Ok(tick)));
    assert_eq!(changes(&mut replica), [ReplicaChange::Appeared { id: ID, kind: counter }]);
    let (mut new, _, viewer, [_, counter]) = pair();
    new.spawn(ID, counter).unwrap();
    assert_eq!(exchange(&mut new, &mut replica, viewer, 1), Err(StateReadError::TickWentBack));
    assert_eq!(replica.resync_request(), None, "the server cannot mend that");
    replica.reset();
    let gone = ReplicaChange::Gone { id: ID, reason: GoneReason::Reset, tick: 0 };
    assert_eq!((changes(&mut replica), replica.objects().count()), (Vec::from([gone]), 0));
    // The server believes that the first message was read.
    assert_eq!(exchange(&mut new, &mut replica, viewer, 2), Err(StateReadError::UnknownTick));
    assert!(new.resync(viewer, replica.resync_request().unwrap()));
    for tick in 3..=700 {
        assert_eq!(exchange(&mut new, &mut replica, viewer, tick), Ok(tick));
        assert_eq!(replica.object(ID).unwrap().integer(0), Some(tick as i32), "also before the tick of the old server");
    }
    assert_eq!(changes(&mut replica), [ReplicaChange::Appeared { id: ID, kind: counter }]);
}

#[test]
fn replica_that_was_reset_is_as_a_new_one() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    (0..9).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
    replicator.commit(5000).unwrap();
    replica.read(&written(&mut replicator, viewer, 1000).unwrap().0).unwrap();
    // The game is not informed of these objects, so it is not of their end.
    replica.reset();
    assert_eq!((changes(&mut replica), replica.newest_tick()), (Vec::new(), None));
    assert!(replicator.resync(viewer, ResyncRequest(0)));
    replicator.commit(5001).unwrap();
    replica.read(&written(&mut replicator, viewer, 1000).unwrap().0).unwrap();
    assert_eq!(changes(&mut replica).len(), 9);
}

/// A hostile server sends whole states of all ids at each tick.
#[test]
fn states_beyond_the_limit_of_memory_are_refused() {
    const LIMIT: usize = 1 << 20;
    let mut builder = Schema::builder();
    let kind = builder.add(&[Field::integer(0, 7)]);
    let schema = alloc::sync::Arc::new(builder.build().unwrap());
    let mut replica = Replica::new(schema.clone(), u16::MAX).with_max_bytes(LIMIT);
    let (mut accepted, mut refused) = (0, 0);
    for tick in 1..=40_u32 {
        // Nothing is acknowledged, so that all messages have whole states.
        let mut replicator = Replicator::new(schema.clone(), 4000, 1, 60);
        let viewer = replicator.add_viewer().unwrap();
        (0..4000).for_each(|id| _ = replicator.spawn(ObjectId(id), kind).unwrap());
        replicator.commit(tick).unwrap();
        while let Some((bytes, _)) = written(&mut replicator, viewer, 1000) {
            let before = replica.objects().count();
            match replica.read(&bytes) {
                Ok(_) => accepted += 1,
                Err(error) => {
                    assert_eq!((error, replica.objects().count()), (StateReadError::TooManyStates, before));
                    refused += 1;
                }
            }
        }
        assert!(replica.state_bytes() <= LIMIT, "{} bytes", replica.state_bytes());
    }
    assert!(accepted > 0 && refused > 0, "{accepted} {refused}");
    replica.reset();
    assert_eq!(replica.state_bytes(), 0);
}

#[test]
fn counted_bytes_are_those_of_the_states() {
    let (schema, [cube, _]) = schema();
    let (mut replicator, mut replica) = (Replicator::new(schema.clone(), 9, 1, 60), Replica::new(schema, 9));
    let viewer = replicator.add_viewer().unwrap();
    (0..9).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
    for tick in 1..2000_u32 {
        let x = (tick % 90) as f32 / 10.0;
        (0..9).for_each(|id| _ = replicator.object(ObjectId(id)).unwrap().set_vector(0, [x, 0.0, 0.0]).unwrap());
        replicator.commit(tick).unwrap();
        let (bytes, tag) = written(&mut replicator, viewer, 400).unwrap();
        replica.read(&bytes).unwrap();
        replicator.on_acknowledged(viewer, tag);
    }
    assert_eq!(shown(&replica).len(), 9);
    // 8 bytes and 8 words for each of 512 ticks.
    assert_eq!(replica.state_bytes(), 9 * 512 * (8 + 8 * 4));
}

#[test]
fn reset_replica_requests_a_resync_as_a_new_one_does() {
    let (mut replicator, mut replica, viewer, [_, counter]) = pair();
    replicator.spawn(ID, counter).unwrap();
    assert!(replicator.resync(viewer, ResyncRequest(0)));
    assert_eq!(exchange(&mut replicator, &mut replica, viewer, 1), Ok(1));
    assert!(replica.read(&[0xff; 9]).is_err());
    assert_eq!(replica.resync_request(), Some(ResyncRequest(1)));
    replica.reset();
    assert_eq!(replica.resync_request(), None);
    assert!(replica.read(&[0xff; 9]).is_err());
    assert_eq!(replica.resync_request(), Some(ResyncRequest(0)));
}
