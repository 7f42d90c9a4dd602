//! The cubes as objects of `slipgate-sync`: their fields, and the way from states to fields and back.

use std::sync::Arc;

use slipgate_sync::{Field, ObjectKind, ObjectMut, ObjectRef, Pose, PoseSample, Schema, WrongField};
use slipgate_worlds::{CubeState, CubeWorld, HALF_SIDE, HEIGHT};

const POSITION: usize = 0;
const ROTATION: usize = 1;
const REST: usize = 2;
const VELOCITY: usize = 3;
const SPIN: usize = 4;

fn schema(fields: &[Field]) -> (Arc<Schema>, ObjectKind) {
    let mut schema = Schema::builder();
    let kind = schema.add(fields);
    (Arc::new(schema.build().expect("valid ranges")), kind)
}

fn position(steps: u32) -> Field {
    Field::vector([-HALF_SIDE..HALF_SIDE, 0.0..HEIGHT, -HALF_SIDE..HALF_SIDE], steps)
}

/// Returns the schema of clients that only show: the thesis's precision of poses, and whether a cube rests.
///
/// # Panics
///
/// Never: the ranges are valid.
#[must_use]
pub fn shown() -> (Arc<Schema>, ObjectKind) {
    schema(&[position(512), Field::rotation(9), Field::rest()])
}

/// Returns the schema of clients that only show curves: that of [`shown`], and velocities in steps of 1/16 m/s.
///
/// # Panics
///
/// Never: the ranges are valid.
#[must_use]
pub fn shown_with_velocities() -> (Arc<Schema>, ObjectKind) {
    schema(&[position(512), Field::rotation(9), Field::rest(), Field::velocity(32.0, 16)])
}

/// Returns the schema of clients that simulate: states need more precision than those that are only shown.
///
/// # Panics
///
/// Never: the ranges are valid.
#[must_use]
pub fn simulated() -> (Arc<Schema>, ObjectKind) {
    let velocity = Field::velocity(32.0, 256);
    schema(&[position(2048), Field::rotation(13), Field::rest(), velocity.clone(), velocity])
}

/// Sets the fields of [`shown`] or [`shown_with_velocities`] to those of the next state. A cube with the same pose
/// as in the state before rests, although it does not sleep yet: it is not sent, and a client that took it for moving
/// would show a slow motion up to the place of the next state that is sent.
///
/// # Errors
///
/// [`WrongField`] if the object has another schema.
pub fn set_shown(object: &mut ObjectMut<'_>, state: &CubeState) -> Result<(), WrongField> {
    let before = (object.vector(POSITION), object.rotation(ROTATION));
    set_pose(object, state)?;
    let is_still = before == (object.vector(POSITION), object.rotation(ROTATION));
    object.set_bool(REST, state.is_at_rest || is_still)?;
    if object.vector(VELOCITY).is_some() {
        object.set_vector(VELOCITY, state.velocity)?;
    }
    Ok(())
}

fn set_pose(object: &mut ObjectMut<'_>, state: &CubeState) -> Result<(), WrongField> {
    object.set_vector(POSITION, state.position)?.set_rotation(ROTATION, state.rotation).map(drop)
}

/// Sets the fields of [`simulated`].
///
/// # Errors
///
/// [`WrongField`] if the object has another schema.
pub fn set_simulated(object: &mut ObjectMut<'_>, state: &CubeState) -> Result<(), WrongField> {
    set_pose(object, state)?;
    object.set_bool(REST, state.is_at_rest)?;
    let still = [0.0; 3];
    let (velocity, spin) = if state.is_at_rest { (still, still) } else { (state.velocity, state.spin) };
    object.set_vector(VELOCITY, velocity)?.set_vector(SPIN, spin).map(drop)
}

/// Rounds the cubes that are awake to the precision of messages, so that a server and a client with the same states
/// simulate the same.
pub fn round(world: &mut CubeWorld, schema: &Schema, kind: ObjectKind) {
    for id in 0..world.len() {
        let rounded = world.state(id).filter(|state| !state.is_at_rest).and_then(|state| {
            Some(CubeState {
                position: schema.snap_vector(kind, POSITION, state.position)?,
                rotation: schema.snap_rotation(kind, ROTATION, state.rotation)?,
                velocity: schema.snap_vector(kind, VELOCITY, state.velocity)?,
                spin: schema.snap_vector(kind, SPIN, state.spin)?,
                is_at_rest: false,
            })
        });
        rounded.into_iter().for_each(|state| world.adjust(id, &state));
    }
}

/// Returns what a client shows of an object of [`shown`] or [`shown_with_velocities`], from the state that it has.
#[must_use]
pub fn shown_sample(object: ObjectRef<'_>) -> Option<PoseSample> {
    let (pose, is_at_rest) = pose_and_rest(object)?;
    Some(PoseSample { tick: object.tick(), pose, velocity: object.vector(VELOCITY), is_at_rest, teleports: 0 })
}

/// Returns the sample that clients get of an object of [`shown`] or [`shown_with_velocities`] at a tick.
#[must_use]
pub fn sent_sample(object: &ObjectMut<'_>, tick: u32) -> Option<PoseSample> {
    let pose = Pose { position: object.vector(POSITION)?, rotation: object.rotation(ROTATION)? };
    let (velocity, is_at_rest) = (object.vector(VELOCITY), object.bool(REST)?);
    Some(PoseSample { tick, pose, velocity, is_at_rest, teleports: 0 })
}

fn pose_and_rest(object: ObjectRef<'_>) -> Option<(Pose, bool)> {
    let pose = Pose { position: object.vector(POSITION)?, rotation: object.rotation(ROTATION)? };
    Some((pose, object.bool(REST)?))
}

/// Returns the state of an object of [`simulated`].
#[must_use]
pub fn simulated_state(object: ObjectRef<'_>) -> Option<CubeState> {
    let (pose, is_at_rest) = pose_and_rest(object)?;
    let (velocity, spin) = (object.vector(VELOCITY)?, object.vector(SPIN)?);
    Some(CubeState { position: pose.position, rotation: pose.rotation, velocity, spin, is_at_rest })
}

#[cfg(test)]
mod tests {
    use slipgate_sync::{ObjectId, Replicator};

    use super::*;

    #[test]
    fn cube_that_stands_still_rests_before_it_sleeps() {
        let (schema, kind) = shown_with_velocities();
        let mut replicator = Replicator::new(schema, 1, 1, 60);
        replicator.spawn(ObjectId(0), kind).unwrap();
        let rotation = [0.0, 0.0, 0.0, 1.0];
        let mut rests = |x: f32, is_at_rest| {
            let (position, velocity) = ([x, 1.0, 0.0], [0.0, -0.1, 0.0]);
            let mut object = replicator.object(ObjectId(0)).unwrap();
            set_shown(&mut object, &CubeState { position, rotation, velocity, spin: [0.0; 3], is_at_rest }).unwrap();
            sent_sample(&object, 3).unwrap().is_at_rest
        };
        // A step of a message is 2 mm.
        let states = [(1.0, false), (1.0, false), (1.000_1, false), (1.1, false), (1.2, false), (1.2, true)];
        assert_eq!(states.map(|(x, is_at_rest)| rests(x, is_at_rest)), [false, true, true, false, false, true]);
    }
}
