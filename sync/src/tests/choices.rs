//! Which of two objects goes first, by each part of the rule: losses, rest, turns, errors, and what finds no room.

use super::*;

/// Room for any message here.
const ROOM: usize = 1000;

/// A rule by which objects become more urgent by their weights in 50 ms, whatever they do.
const BY_WEIGHT: Priorities = Priorities {
    at_rest: 1.0,
    still: 1.0,
    moving: 1.0,
    per_metre_of_error: 0.0,
    units_per_metre: 1.0,
    max_objects: u16::MAX,
    repeats_known: false,
};
/// The same rule and the usual one, with one object in a message: it is the most urgent one.
const ONE_BY_WEIGHT: Priorities = Priorities { max_objects: 1, ..BY_WEIGHT };

fn one_by_error() -> Priorities {
    Priorities { max_objects: 1, ..Priorities::default() }
}

/// Returns a server of 20 ticks a second: priorities grow by the numbers of the rule in each tick.
fn server(objects: u16, priorities: Priorities) -> (Replicator, Replica, ViewerId, [ObjectKind; 3]) {
    server_with_rate(objects, priorities, 20)
}

fn server_with_rate(
    objects: u16,
    priorities: Priorities,
    rate: u32,
) -> (Replicator, Replica, ViewerId, [ObjectKind; 3]) {
    let (schema, kinds) = schema_with_rest();
    let mut replicator = Replicator::new(schema.clone(), objects, 1, rate).with_priorities(priorities);
    let viewer = replicator.add_viewer().unwrap();
    (replicator, Replica::new(schema, objects), viewer, kinds)
}

/// Writes and delivers a message. Returns the objects that it describes.
fn sent(replicator: &mut Replicator, replica: &mut Replica, viewer: ViewerId, room: usize) -> Vec<u16> {
    let (message, tag) = written(replicator, viewer, room).unwrap();
    replica.read(&message).unwrap();
    replicator.on_acknowledged(viewer, tag);
    replica.last_message().map(|object| object.id().0).collect()
}

/// Delivers all messages of a commit.
fn deliver(replicator: &mut Replicator, replica: &mut Replica, viewer: ViewerId) {
    while let Some((message, tag)) = written(replicator, viewer, ROOM) {
        replica.read(&message).unwrap();
        replicator.on_acknowledged(viewer, tag);
    }
}

fn weigh(replicator: &mut Replicator, viewer: ViewerId, id: u16, weight: f32) {
    replicator.set_weight(viewer, ObjectId(id), weight);
}

#[test]
fn lost_object_goes_before_one_that_grew_by_less_than_50() {
    for (ticks, weight, first) in [(1, 40.0, 0), (1, 60.0, 1), (5, 8.0, 0), (5, 12.0, 1)] {
        let (mut replicator, mut replica, viewer, [_, counter, _]) = server(2, ONE_BY_WEIGHT);
        replicator.spawn(ObjectId(0), counter).unwrap();
        replicator.commit(1).unwrap();
        let (_, tag) = written(&mut replicator, viewer, ROOM).unwrap();
        replicator.spawn(ObjectId(1), counter).unwrap();
        weigh(&mut replicator, viewer, 1, weight);
        replicator.commit(1 + ticks).unwrap();
        replicator.on_lost(viewer, tag);
        assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM), [first], "against {weight} for {ticks} ticks");
    }
}

/// Removals take four bits each, and what the client shows is wrong: they leave no room for states here.
#[test]
fn removals_go_before_the_most_urgent_states() {
    let (mut replicator, mut replica, viewer, [cube, ..]) = server(OBJECTS, BY_WEIGHT);
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), cube).unwrap();
    }
    replicator.commit(1).unwrap();
    assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM).len(), usize::from(OBJECTS));
    for id in 0..OBJECTS {
        if id.is_multiple_of(2) {
            replicator.despawn(ObjectId(id));
        } else {
            weigh(&mut replicator, viewer, id, 1e6);
            replicator.object(ObjectId(id)).unwrap().set_vector(0, [9.0, 9.0, 9.0]).unwrap();
        }
    }
    replicator.commit(2).unwrap();
    assert_eq!(sent(&mut replicator, &mut replica, viewer, 24), [0_u16; 0]);
    assert_eq!(replica.objects().count(), usize::from(OBJECTS) / 2);
}

#[test]
fn object_rests_when_it_has_not_changed_for_ten_commits() {
    let rule = Priorities { still: 10.0, moving: 5.0, ..ONE_BY_WEIGHT };
    for unchanged in 1..=15 {
        let (mut replicator, mut replica, viewer, [_, counter, _]) = server(2, rule);
        replicator.spawn(ObjectId(0), counter).unwrap();
        (1..=unchanged).for_each(|tick| replicator.commit(tick).unwrap());
        replicator.spawn(ObjectId(1), counter).unwrap();
        replicator.commit(unchanged + 1).unwrap();
        let first = if unchanged < 10 { 0 } else { 1 };
        assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM), [first], "{unchanged} commits");
    }
}

/// 12,288 objects wait, of which a turn looks at a third. Each of them grows three times as much in its turn as an
/// object that changes, which is looked at in all turns.
#[test]
fn object_of_one_turn_in_three_grows_for_three() {
    const WAITING: u16 = 3 * 4096;
    for (moving, is_first) in [(2.5, false), (3.5, true)] {
        let rule = Priorities { moving, ..BY_WEIGHT };
        let (mut replicator, mut replica, viewer, [_, counter, _]) = server(WAITING + 1, rule);
        for id in 0..=WAITING {
            replicator.spawn(ObjectId(id), counter).unwrap();
        }
        replicator.commit(1).unwrap();
        replicator.object(ObjectId(WAITING)).unwrap().set_integer(0, 7).unwrap();
        replicator.commit(2).unwrap();
        let sent = sent(&mut replicator, &mut replica, viewer, 100);
        assert!(sent.len() > 10, "{sent:?}");
        assert_eq!(sent.contains(&WAITING), is_first, "{sent:?} with {moving}");
    }
}

/// The priority of an object that waits grows in all turns, also in those in which others are sent.
#[test]
fn waiting_object_is_sent_when_it_has_grown_by_more_than_others() {
    let (mut replicator, mut replica, viewer, [_, counter, _]) = server(2, ONE_BY_WEIGHT);
    replicator.spawn(ObjectId(0), counter).unwrap();
    replicator.spawn(ObjectId(1), counter).unwrap();
    weigh(&mut replicator, viewer, 1, 3.5);
    let mut order = Vec::new();
    for tick in 1..=8 {
        for id in 0..2 {
            replicator.object(ObjectId(id)).unwrap().set_integer(0, tick as i32 * 1000 + 7).unwrap();
        }
        replicator.commit(tick).unwrap();
        order.extend(sent(&mut replicator, &mut replica, viewer, ROOM));
    }
    // The first one has 4 at the fourth tick, when the other one has 3.5; then it starts again from zero.
    assert_eq!(order, [1, 1, 1, 0, 1, 1, 1, 0]);
}

/// One object moves on as its client expects, 10 cm in a tick, and another one is wrong by 20 cm.
#[test]
fn client_is_assumed_to_move_objects_on_for_100_ms() {
    const MOVING: ObjectId = ObjectId(0);
    const WRONG: ObjectId = ObjectId(1);
    // At 60 ticks a second 100 ms are 6 ticks: after 7 ticks the error is 10 cm, after 9 it is 30 cm.
    for (ticks, first) in [(1, 1), (6, 1), (7, 1), (9, 0), (20, 0)] {
        let (mut replicator, mut replica, viewer, [cube, ..]) = server_with_rate(2, one_by_error(), 60);
        let place = |tick: u32| [tick as f32 * 0.1 - 8.0, 0.0, 0.0];
        for id in [MOVING, WRONG] {
            replicator.spawn(id, cube).unwrap().set_vector(0, [0.0; 3]).unwrap();
        }
        for tick in 1..=10 + ticks {
            replicator.object(MOVING).unwrap().set_vector(0, place(tick)).unwrap();
            if tick == 10 + ticks {
                replicator.object(WRONG).unwrap().set_vector(0, [0.2, 0.0, 0.0]).unwrap();
            }
            replicator.commit(tick).unwrap();
            if tick <= 10 {
                deliver(&mut replicator, &mut replica, viewer);
            }
        }
        assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM), [first], "after {ticks} ticks");
    }
}

/// A speed that is wrong by 20 m/s counts as much as a place that is wrong by a metre.
#[test]
fn error_of_a_velocity_counts_as_much_as_of_a_place() {
    for (speed, first) in [(4.0, 1), (8.0, 0)] {
        let (mut replicator, mut replica, viewer, [.., body]) = server(2, one_by_error());
        for id in 0..2 {
            replicator.spawn(ObjectId(id), body).unwrap().set_vector(0, [0.0; 3]).unwrap();
        }
        for tick in 1..=5 {
            replicator.commit(tick).unwrap();
            deliver(&mut replicator, &mut replica, viewer);
        }
        replicator.object(ObjectId(0)).unwrap().set_vector(2, [speed, 0.0, 0.0]).unwrap();
        replicator.object(ObjectId(1)).unwrap().set_vector(0, [0.3, 0.0, 0.0]).unwrap();
        replicator.commit(6).unwrap();
        assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM), [first], "{speed} m/s");
    }
}

/// A large record and a middle one fill a message but for a few bytes; then come middle ones that find no room, and a
/// small one that does.
#[test]
fn message_is_filled_up_behind_ten_misfits_and_not_twenty() {
    let mut schema = Schema::builder();
    let middle = schema.add(&core::array::from_fn::<_, 8, _>(|_| Field::integer(0, (1 << 29) - 1)));
    let small = schema.add(&[Field::integer(0, 15)]);
    let schema = Arc::new(schema.build().unwrap());
    for (misfits, is_filled) in [(0, true), (10, true), (20, false)] {
        let last = misfits + 1;
        let mut replicator = Replicator::new(schema.clone(), OBJECTS, 1, 20).with_priorities(BY_WEIGHT);
        let (viewer, mut replica) = (replicator.add_viewer().unwrap(), Replica::new(schema.clone(), OBJECTS));
        for id in 0..=last {
            replicator.spawn(ObjectId(id), if id == last { small } else { middle }).unwrap();
            weigh(&mut replicator, viewer, id, f32::from(OBJECTS - id));
        }
        replicator.commit(1).unwrap();
        // A middle record takes 31 bytes, a small one 3, and the header 6.
        let sent = sent(&mut replicator, &mut replica, viewer, 50);
        let expected = if is_filled { alloc::vec![0, last] } else { alloc::vec![0] };
        assert_eq!(sent, expected, "{misfits} misfits");
    }
}

/// An object that the client does not have counts as one that is wrong by a metre, if no other one is wrong by more.
#[test]
fn unknown_object_is_as_urgent_as_an_error_of_a_metre() {
    for (metres, first) in [(0.8, 1), (1.2, 0)] {
        let (mut replicator, mut replica, viewer, [cube, ..]) = server(2, one_by_error());
        replicator.spawn(ObjectId(0), cube).unwrap().set_vector(0, [0.0; 3]).unwrap();
        for tick in 1..=3 {
            replicator.commit(tick).unwrap();
            deliver(&mut replicator, &mut replica, viewer);
        }
        replicator.object(ObjectId(0)).unwrap().set_vector(0, [metres, 0.0, 0.0]).unwrap();
        replicator.spawn(ObjectId(1), cube).unwrap();
        replicator.commit(4).unwrap();
        assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM), [first], "{metres} m");
    }
}

/// A client goes on showing what it had before a message got lost.
#[test]
fn error_after_a_loss_is_that_of_the_state_before() {
    let rule = Priorities { max_objects: 2, ..Priorities::default() };
    let (mut replicator, mut replica, viewer, [cube, ..]) = server(3, rule);
    for id in 0..3 {
        replicator.spawn(ObjectId(id), cube).unwrap().set_vector(0, [0.0; 3]).unwrap();
    }
    for tick in 1..=3 {
        replicator.commit(tick).unwrap();
        deliver(&mut replicator, &mut replica, viewer);
    }
    replicator.object(ObjectId(0)).unwrap().set_vector(0, [0.1, 0.0, 0.0]).unwrap();
    replicator.commit(4).unwrap();
    let (_, tag) = written(&mut replicator, viewer, ROOM).unwrap();
    // The loss adds 50, as much as 12.5 cm.
    replicator.on_lost(viewer, tag);
    for (id, metres) in [(1, 0.3), (2, 0.4)] {
        replicator.object(ObjectId(id)).unwrap().set_vector(0, [metres, 0.0, 0.0]).unwrap();
    }
    replicator.commit(5).unwrap();
    assert_eq!(sent(&mut replicator, &mut replica, viewer, ROOM), [1, 2]);
}
