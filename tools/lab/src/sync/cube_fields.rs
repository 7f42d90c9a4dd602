//! The cubes as objects of `slipgate-sync`: their fields, and the way from states to fields and back.

use std::sync::Arc;

use slipgate_sync::{Field, ObjectKind, ObjectMut, ObjectRef, Pose, Schema, WrongField};
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

/// Sets the fields of [`shown`].
///
/// # Errors
///
/// [`WrongField`] if the object has another schema.
pub fn set_shown(object: &mut ObjectMut<'_>, state: &CubeState) -> Result<(), WrongField> {
    let object = object.set_vector(POSITION, state.position)?.set_rotation(ROTATION, state.rotation)?;
    object.set_bool(REST, state.is_at_rest).map(drop)
}

/// Sets the fields of [`simulated`].
///
/// # Errors
///
/// [`WrongField`] if the object has another schema.
pub fn set_simulated(object: &mut ObjectMut<'_>, state: &CubeState) -> Result<(), WrongField> {
    set_shown(object, state)?;
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

/// Returns the pose of an object of [`shown`], and whether it rests.
#[must_use]
pub fn shown_pose(object: ObjectRef<'_>) -> Option<(Pose, bool)> {
    let pose = Pose { position: object.vector(POSITION)?, rotation: object.rotation(ROTATION)? };
    Some((pose, object.bool(REST)?))
}

/// Returns the state of an object of [`simulated`].
#[must_use]
pub fn simulated_state(object: ObjectRef<'_>) -> Option<CubeState> {
    let (pose, is_at_rest) = shown_pose(object)?;
    let (velocity, spin) = (object.vector(VELOCITY)?, object.vector(SPIN)?);
    Some(CubeState { position: pose.position, rotation: pose.rotation, velocity, spin, is_at_rest })
}
