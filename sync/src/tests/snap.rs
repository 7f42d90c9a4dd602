//! Values that a server reads back, and those that a client gets.

use super::*;

#[test]
fn snapped_values_are_those_that_clients_get() {
    let (schema, [cube, counter, body]) = schema_with_rest();
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, 1, 60);
    let (viewer, mut replica) = (replicator.add_viewer().unwrap(), Replica::new(schema.clone(), OBJECTS));
    let (place, turn, speed) = ([1.234_567, 2.345_678, -3.456_789], [0.1, 0.7, 0.1, 0.7], [0.123, -4.567, 31.99]);
    let mut object = replicator.spawn(ObjectId(1), cube).unwrap();
    object.set_vector(0, place).unwrap().set_rotation(1, turn).unwrap();
    assert_eq!((object.vector(0), object.rotation(1)), (schema.snap_vector(cube, 0, place), object.rotation(1)));
    assert_eq!((object.bool(2), object.integer(2), object.scalar(7)), (Some(false), None, None));
    let mut object = replicator.spawn(ObjectId(2), counter).unwrap();
    object.set_integer(0, 77).unwrap().set_scalar(1, 0.123_456).unwrap();
    assert_eq!((object.integer(0), object.scalar(1)), (Some(77), schema.snap_scalar(counter, 1, 0.123_456)));
    replicator.spawn(ObjectId(3), body).unwrap().set_vector(2, speed).unwrap();
    replicator.commit(1).unwrap();
    replica.read(&written(&mut replicator, viewer, 200).unwrap().0).unwrap();
    let got = |id| replica.object(ObjectId(id)).unwrap();
    // Bit for bit: a server that rounds its world so has the same floats as its clients.
    assert_eq!(got(1).vector(0), schema.snap_vector(cube, 0, place));
    assert_eq!(got(1).rotation(1), schema.snap_rotation(cube, 1, turn));
    assert_eq!(got(2).scalar(1), schema.snap_scalar(counter, 1, 0.123_456));
    assert_eq!(got(3).vector(2), schema.snap_vector(body, 2, speed));
    assert_ne!(got(1).vector(0), Some(place));
    assert_eq!(schema.snap_vector(cube, 1, place), None);
    assert_eq!(schema.snap_rotation(cube, 0, turn), None);
}
