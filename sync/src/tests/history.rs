//! How long messages and states are known: silence, long paths, late messages, ids that are used again.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{OBJECTS, changes, is_silent, pair, pair_with_rate, schema, shown, written};
use crate::{GoneReason, InputReport, ObjectId, Replica, ReplicaChange, Replicator, ResyncRequest, ViewerId};

const CUBE: ObjectId = ObjectId(1);

fn move_to(replicator: &mut Replicator, id: ObjectId, x: f32) {
    replicator.object(id).unwrap().set_vector(0, [x, 1.0, 0.0]).unwrap();
}

fn deliver(replicator: &mut Replicator, replica: &mut Replica, viewer: ViewerId) -> usize {
    let (bytes, tag) = written(replicator, viewer, 1000).unwrap();
    replica.read(&bytes).unwrap();
    replicator.on_acknowledged(viewer, tag);
    bytes.len()
}

#[test]
fn silence_of_any_length_does_not_make_messages_old() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(CUBE, cube).unwrap();
    let mut sizes = Vec::new();
    for (tick, x) in [(1, 1.0), (2, 2.0), (32_770, 3.0), (40_000, 4.0), (105_536, 5.0), (4_000_000_000, 6.0)] {
        move_to(&mut replicator, CUBE, x);
        replicator.commit(tick).unwrap();
        sizes.push(deliver(&mut replicator, &mut replica, viewer));
        assert_eq!(replica.newest_tick(), Some(tick));
        assert_eq!(replica.object(CUBE).unwrap().vector(0), Some([x, 1.0, 0.0]));
    }
    assert_eq!(sizes[3], sizes[0] - 3, "the client knows the upper half of the tick");
}

#[test]
fn resync_repeats_a_removal_that_was_refused() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(CUBE, cube).unwrap();
    replicator.commit(1).unwrap();
    deliver(&mut replicator, &mut replica, viewer);
    replicator.despawn(CUBE);
    replicator.commit(2).unwrap();
    // The message arrives, and the replica refuses it because of another record.
    let (_, tag) = written(&mut replicator, viewer, 100).unwrap();
    replicator.on_acknowledged(viewer, tag);
    assert!(replicator.resync(viewer, ResyncRequest(0)));
    replicator.commit(3).unwrap();
    deliver(&mut replicator, &mut replica, viewer);
    assert_eq!(replica.objects().count(), 0);
    replicator.commit(4).unwrap();
    assert!(is_silent(&mut replicator, viewer, 100), "once is enough");
}

#[test]
fn client_can_demand_a_resync_once_a_second() {
    let (mut replicator, _, _, _) = pair_with_rate(20);
    let viewer = replicator.add_viewer().unwrap();
    let mut accepted = Vec::new();
    for tick in 1..60 {
        replicator.commit(tick).unwrap();
        if replicator.resync(viewer, ResyncRequest(accepted.len() as u8)) {
            accepted.push(tick);
        }
    }
    assert_eq!(accepted, [1, 21, 41]);
}

#[test]
fn request_that_was_made_before_the_resync_waits_five_seconds() {
    let (mut replicator, _, _, _) = pair_with_rate(20);
    let viewer = replicator.add_viewer().unwrap();
    let mut accepted = Vec::new();
    for tick in 1..260 {
        replicator.commit(tick).unwrap();
        if replicator.resync(viewer, ResyncRequest(0)) {
            accepted.push(tick);
        }
    }
    assert_eq!(accepted, [1, 101, 201]);
}

#[test]
fn long_paths_have_baselines_at_each_rate() {
    for round_trip in [1, 30, 120, 250] {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
        let (mut reports, mut bytes) = (VecDeque::new(), 0);
        for tick in 1..=600 {
            (0..OBJECTS).for_each(|id| move_to(&mut replicator, ObjectId(id), tick as f32 / 100.0));
            replicator.commit(tick).unwrap();
            let (message, tag) = written(&mut replicator, viewer, 1000).unwrap();
            replica.read(&message).unwrap();
            reports.push_back(tag);
            if tick > round_trip {
                replicator.on_acknowledged(viewer, reports.pop_front().unwrap());
            }
            bytes = message.len();
        }
        // An object takes nine bytes as a whole.
        assert!(bytes < usize::from(OBJECTS) * 5, "{bytes} bytes with a round trip of {round_trip} ticks");
    }
}

#[test]
fn message_that_is_255_ticks_late_finds_its_baseline() {
    for lateness in [100, 200, 255, 256, 300] {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        replicator.spawn(CUBE, cube).unwrap();
        move_to(&mut replicator, CUBE, 0.9);
        replicator.commit(1).unwrap();
        deliver(&mut replicator, &mut replica, viewer);
        move_to(&mut replicator, CUBE, 1.0);
        replicator.commit(256).unwrap();
        let (late, tag) = written(&mut replicator, viewer, 100).unwrap();
        assert_eq!(late.len(), 6, "a difference to the state of 255 ticks ago");
        for tick in 257..=256 + lateness {
            move_to(&mut replicator, CUBE, tick as f32 / 100.0);
            replicator.commit(tick).unwrap();
            deliver(&mut replicator, &mut replica, viewer);
        }
        assert_eq!(replica.read(&late).map(|header| header.tick), Ok(256));
        assert_eq!(replica.last_message().count(), usize::from(lateness < 256), "{lateness} ticks late");
        replicator.on_acknowledged(viewer, tag);
        replicator.commit(257 + lateness).unwrap();
        assert!(is_silent(&mut replicator, viewer, 100));
    }
}

#[test]
fn object_that_took_over_an_id_was_despawned_before() {
    let (mut replicator, mut replica, viewer, [cube, counter]) = pair();
    replicator.spawn(CUBE, cube).unwrap();
    for (tick, weight) in [(1, 1.0), (2, 0.0), (3, 1.0)] {
        replicator.set_weight(viewer, CUBE, weight);
        replicator.commit(tick).unwrap();
        deliver(&mut replicator, &mut replica, viewer);
        _ = changes(&mut replica);
    }
    replicator.despawn(CUBE);
    replicator.spawn(CUBE, counter).unwrap();
    replicator.commit(4).unwrap();
    deliver(&mut replicator, &mut replica, viewer);
    let gone = ReplicaChange::Gone { id: CUBE, reason: GoneReason::Despawned, tick: 4 };
    assert_eq!(changes(&mut replica), [gone, ReplicaChange::Appeared { id: CUBE, kind: counter }]);
}

#[test]
fn no_number_of_reuses_looks_like_an_update() {
    for reuses in 1..40 {
        let (mut replicator, mut replica, viewer, [cube, _]) = pair();
        replicator.spawn(CUBE, cube).unwrap();
        replicator.commit(1).unwrap();
        deliver(&mut replicator, &mut replica, viewer);
        _ = changes(&mut replica);
        for _ in 0..reuses {
            replicator.despawn(CUBE);
            replicator.spawn(CUBE, cube).unwrap();
        }
        for tick in 2..5 {
            replicator.commit(tick).unwrap();
            if let Some((bytes, tag)) = written(&mut replicator, viewer, 100) {
                replica.read(&bytes).unwrap();
                replicator.on_acknowledged(viewer, tag);
            }
        }
        let gone = ReplicaChange::Gone { id: CUBE, reason: GoneReason::Despawned, tick: 2 };
        assert_eq!(changes(&mut replica), [gone, ReplicaChange::Appeared { id: CUBE, kind: cube }], "{reuses}");
    }
}

#[test]
fn clients_with_different_histories_get_the_truth() {
    const CLIENTS: u16 = 60;
    let (schema, [cube, _]) = schema();
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, CLIENTS, 60);
    let mut clients: Vec<(ViewerId, Replica)> =
        (0..CLIENTS).map(|_| (replicator.add_viewer().unwrap(), Replica::new(schema.clone(), OBJECTS))).collect();
    (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
    for tick in 1..=u32::from(CLIENTS) {
        (0..OBJECTS).for_each(|id| move_to(&mut replicator, ObjectId(id), (tick * 7 % 97) as f32 / 9.0));
        replicator.commit(tick).unwrap();
        // Each client has its last state of another tick.
        for (viewer, replica) in clients.iter_mut().skip(tick as usize - 1) {
            deliver(&mut replicator, replica, *viewer);
        }
    }
    (0..OBJECTS).for_each(|id| move_to(&mut replicator, ObjectId(id), f32::from(id) / 7.0));
    replicator.commit(100).unwrap();
    for (viewer, replica) in &mut clients {
        deliver(&mut replicator, replica, *viewer);
    }
    let first = shown(&clients[0].1);
    assert!(clients.iter().all(|(_, replica)| shown(replica) == first));
    let x = clients[0].1.object(ObjectId(35)).and_then(|object| object.vector(0)).unwrap()[0];
    assert!((x - 5.0).abs() < 0.01, "{x}");
}

#[test]
fn planned_messages_have_ascending_ids_and_all_objects() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
    replicator.commit(1).unwrap();
    replicator.plan(viewer, 8, 81);
    let (mut ids, mut messages) = (Vec::new(), 0);
    while let Some((bytes, _)) = written(&mut replicator, viewer, 81) {
        replica.read(&bytes).unwrap();
        ids.extend(replica.last_message().map(|object| object.id().0));
        messages += 1;
    }
    assert!(ids.iter().copied().eq(0..OBJECTS), "{ids:?}");
    assert_eq!(messages, 6, "an object takes 83 bits: seven fit");
}

#[test]
fn only_the_first_message_of_a_tick_says_that_it_is_the_first() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
    for tick in 1..4 {
        (0..OBJECTS).for_each(|id| move_to(&mut replicator, ObjectId(id), (tick * tick % 7) as f32));
        replicator.commit(tick).unwrap();
        if tick == 2 {
            // The first message has a report, and all are narrow.
            replicator.set_report(viewer, Some(InputReport { newest: 1, margin_quarters: 4, epoch: 0 }));
            replicator.plan(viewer, 8, 40);
        }
        let mut firsts = Vec::new();
        while let Some((bytes, tag)) = written(&mut replicator, viewer, 40) {
            firsts.push(replica.read(&bytes).unwrap().is_first);
            replicator.on_acknowledged(viewer, tag);
        }
        let expected: Vec<_> = (0..firsts.len()).map(|number| number == 0).collect();
        assert!(firsts.len() > 1 && firsts == expected, "tick {tick}: {firsts:?}");
    }
}

#[test]
fn plan_of_too_few_messages_reaches_all_objects() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), cube).unwrap());
    let mut last = [0; OBJECTS as usize];
    for tick in 1..200 {
        (0..OBJECTS).for_each(|id| move_to(&mut replicator, ObjectId(id), (tick % 7) as f32));
        replicator.commit(tick).unwrap();
        replicator.plan(viewer, 2, 60);
        for _ in 0..2 {
            let Some((bytes, tag)) = written(&mut replicator, viewer, 60) else { continue };
            replica.read(&bytes).unwrap();
            replicator.on_acknowledged(viewer, tag);
            replica.last_message().for_each(|object| last[usize::from(object.id().0)] = tick);
        }
    }
    let oldest = last.iter().min().unwrap();
    assert!(*oldest > 180, "{last:?}");
}

#[test]
fn first_end_counts_until_the_game_is_informed() {
    let (mut replicator, mut replica, viewer, [cube, _]) = pair();
    replicator.spawn(CUBE, cube).unwrap();
    for (tick, weight) in [(3, 1.0), (6, 0.0), (9, 1.0)] {
        replicator.set_weight(viewer, CUBE, weight);
        replicator.commit(tick).unwrap();
        deliver(&mut replicator, &mut replica, viewer);
        if tick == 3 {
            assert_eq!(changes(&mut replica).len(), 1);
        }
    }
    replicator.despawn(CUBE);
    replicator.commit(12).unwrap();
    deliver(&mut replicator, &mut replica, viewer);
    assert_eq!(changes(&mut replica), [ReplicaChange::Gone { id: CUBE, reason: GoneReason::OutOfSight, tick: 6 }]);
}
