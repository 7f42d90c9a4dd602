//! Game state: once each end knows 512 ticks, neither asks for memory.

use std::sync::Arc;

use slipgate_sync::{Field, ObjectId, Replica, Replicator, Schema};
use slipgate_tests::counting::allocations;

const OBJECTS: u16 = 200;
const CLIENTS: usize = 4;

/// Runs one tick: half of the objects move, each client gets a message, and every seventh one is lost.
fn tick(replicator: &mut Replicator, clients: &mut [(slipgate_sync::ViewerId, Replica)], tick: u32) {
    for id in (0..OBJECTS).filter(|id| u32::from(*id) % 2 == tick / 50 % 2) {
        let mut object = replicator.object(ObjectId(id)).unwrap();
        object.set_vector(0, [(tick % 97) as f32 / 10.0, f32::from(id) / 20.0, 1.0]).unwrap();
    }
    replicator.commit(tick).unwrap();
    let mut buf = [0; 700];
    for (viewer, replica) in clients {
        let Some(message) = replicator.write(*viewer, &mut buf) else { continue };
        if message.tag % 7 == 0 {
            replicator.on_lost(*viewer, message.tag);
            continue;
        }
        replica.read(&buf[..message.bytes]).unwrap();
        replicator.on_acknowledged(*viewer, message.tag);
        while replica.poll().is_some() {}
    }
}

#[test]
fn state_of_many_objects_allocates_nothing() {
    let mut schema = Schema::builder();
    let kind = schema.add(&[Field::vector([-16.0..16.0, 0.0..16.0, -16.0..16.0], 512), Field::rotation(9)]);
    let schema = Arc::new(schema.build().unwrap());
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, CLIENTS as u16);
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), kind).unwrap();
    }
    let client =
        |replicator: &mut Replicator| (replicator.add_viewer().unwrap(), Replica::new(schema.clone(), OBJECTS));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| client(&mut replicator)).collect();
    (1..900).for_each(|number| tick(&mut replicator, &mut clients, number));
    let count = allocations(|| (900..1800).for_each(|number| tick(&mut replicator, &mut clients, number)));
    assert_eq!(count, 0);
}
