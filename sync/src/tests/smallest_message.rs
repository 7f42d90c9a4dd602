//! The least length of a message that has room for any object.

use super::*;
use crate::{Field, InputReport};

/// The motions of an object, of which each jumps from end to end of its range in another rhythm: its place at a tick
/// has the smallest values where these are even, and the largest ones otherwise.
const JUMPS: [fn(u32) -> [u32; 3]; 4] = [
    |tick| [tick; 3],
    |tick| [tick / 2, tick / 3, tick / 5],
    |tick| [tick / 7, tick, tick / 11],
    |tick| [tick / 25; 3],
];
const TICKS: u32 = 400;

/// Returns at how many ticks a client that receives all messages has no room for an object that jumps.
fn count_left_out(schema: &Arc<Schema>, kind: ObjectKind, room: usize, place: impl Fn(u32) -> [f32; 3]) -> usize {
    let id = ObjectId(u16::MAX - 1);
    let (mut replicator, mut replica) =
        (Replicator::new(schema.clone(), u16::MAX, 1, 60), Replica::new(schema.clone(), u16::MAX));
    let viewer = replicator.add_viewer().unwrap();
    replicator.spawn(id, kind).unwrap();
    let mut is_left_out = |tick: u32| {
        let mut object = replicator.object(id).unwrap();
        object.set_vector(0, place(tick)).unwrap();
        let sent = object.vector(0);
        replicator.commit(100_000 + tick).unwrap();
        replicator.set_report(viewer, Some(InputReport { newest: tick, margin_quarters: 2, epoch: 3 }));
        let (message, tag) = written(&mut replicator, viewer, room).unwrap();
        replica.read(&message).unwrap();
        replicator.on_acknowledged(viewer, tag);
        replica.object(id).and_then(|object| object.vector(0)) != sent
    };
    (1..=TICKS).filter(|tick| is_left_out(*tick)).count()
}

#[test]
fn message_of_the_least_length_has_room_for_any_jump() {
    let mut left_out = Vec::new();
    for (end, steps) in [(16.0, 512), (1.0, 2), (1000.0, 1000)] {
        let mut schema = Schema::builder();
        let kind = schema.add(&[Field::vector([-end..end, 0.0..end, -end..end], steps), Field::rotation(4)]);
        let schema = Arc::new(schema.build().unwrap());
        for jumps in JUMPS {
            let place = |tick: u32| jumps(tick).map(|part| if part.is_multiple_of(2) { -end } else { end });
            let count = |room: usize| count_left_out(&schema, kind, room, place);
            assert_eq!(count(schema.min_message_bytes()), 0, "range {end}");
            left_out.push(count(schema.min_message_bytes() - 3));
        }
    }
    assert!(left_out.iter().any(|count| *count > 0), "{left_out:?}");
}
