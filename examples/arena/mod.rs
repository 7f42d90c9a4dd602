//! The rules of the arena, the fields of a figure, and the channels: both ends share them.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use slipgate::sync::{Field, Keys, ObjectKind, ObjectMut, ObjectRef, Pose, PoseSample, Schema, TickRate, WrongField};
use slipgate::{Channel, ChannelId, Layout, Traffic};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

pub(crate) const ADDRESS: &str = "127.0.0.1:40001";
/// Distinguishes this game from others: servers drop packets with another id.
pub(crate) const PROTOCOL_ID: u64 = 0x6172_656e;
/// A player with this key can join under any id. A real game makes its key with `slipgate keygen`, and keeps it on its
/// servers.
pub(crate) const DEVELOPMENT_KEY: [u8; 32] = *b"a key that every player may have";
/// Players at once; each has the object with the number of its slot.
pub(crate) const SLOTS: u16 = 16;
/// 60 ticks a second, and 20 states.
pub(crate) const RATE: TickRate = TickRate { per_second: 60, between_states: 3 };
pub(crate) const TICK: Duration = Duration::from_micros(16_667);

/// The keys of a player during a tick.
pub(crate) const UP: Keys = 1;
pub(crate) const DOWN: Keys = 2;
pub(crate) const LEFT: Keys = 4;
pub(crate) const RIGHT: Keys = 8;
/// A shot. A missing input does not repeat it.
pub(crate) const FIRE: Keys = 16;

/// Half of the arena's side, in millimetres.
const HALF_SIDE: i32 = 12_000;
/// The way of a figure in a tick, in millimetres: 6 m/s.
const STEP: i32 = 100;
/// The radius of a figure, in metres.
pub(crate) const RADIUS: f32 = 0.5;

/// A figure on the floor. Places are whole millimetres, so that both ends simulate the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) place: [i32; 2],
    /// The direction of the last step, in which it shoots.
    pub(crate) facing: [i32; 2],
    /// The hits of its shots.
    pub(crate) score: i32,
    /// How often it was hit, after which it starts again somewhere else.
    pub(crate) lives: i32,
}

impl Figure {
    /// Returns a figure at its start.
    pub(crate) fn start(slot: u16, score: i32, lives: i32) -> Self {
        let turn = i32::from(slot) * 5 + lives * 3;
        let place = [(turn % 7 - 3) * 3_000, (turn % 5 - 2) * 4_000];
        Self { place, facing: [1, 0], score, lives }
    }

    /// Moves the figure by the keys of one tick.
    pub(crate) fn step(&mut self, keys: Keys) {
        let axis = |low: Keys, high: Keys| i32::from(keys & high != 0) - i32::from(keys & low != 0);
        let way = [axis(LEFT, RIGHT), axis(UP, DOWN)];
        if way != [0, 0] {
            self.facing = way;
        }
        for (place, way) in self.place.iter_mut().zip(way) {
            *place = (*place + way * STEP).clamp(-HALF_SIDE, HALF_SIDE);
        }
    }

    /// Returns the velocity of a figure that moves, in metres a second. A wall stops it.
    fn velocity(&self) -> [f32; 3] {
        let [x, z] = [0, 1].map(|axis: usize| {
            let part = |values: [i32; 2]| values.get(axis).copied().unwrap_or(0);
            let is_stopped = part(self.place) == part(self.facing) * HALF_SIDE;
            if is_stopped { 0.0 } else { metres(part(self.facing) * STEP) * RATE.per_second as f32 }
        });
        [x, 0.0, z]
    }

    /// Returns whether a shot from here hits a figure that is shown at this place.
    pub(crate) fn hits(&self, target: [f32; 3]) -> bool {
        let [x, z] = self.place.map(metres);
        let [dx, dz] = self.facing.map(|part| part as f32);
        let length = (dx * dx + dz * dz).sqrt().max(1.0);
        let (to_x, to_z) = (target[0] - x, target[2] - z);
        let (along, aside) = ((to_x * dx + to_z * dz) / length, (to_x * dz - to_z * dx) / length);
        along > 0.0 && aside.abs() < RADIUS
    }
}

pub(crate) fn metres(millimetres: i32) -> f32 {
    millimetres as f32 / 1000.0
}

/// The fields of a figure.
const PLACE: usize = 0;
const FACING_X: usize = 1;
const FACING_Z: usize = 2;
const SCORE: usize = 3;
const LIVES: usize = 4;
const REST: usize = 5;
const MAX_COUNT: i32 = 1 << 16;

/// Returns the schema. 1,000 steps for each metre are the millimetres of the rules.
pub(crate) fn figures() -> (Arc<Schema>, ObjectKind) {
    let mut schema = Schema::builder();
    let (facing, count) = (Field::integer(-1, 1), Field::integer(0, MAX_COUNT));
    let kind = schema.add(&[
        Field::vector([-13.0..13.0, 0.0..1.0, -13.0..13.0], 1000),
        facing.clone(),
        facing,
        count.clone(),
        count,
        Field::rest(),
    ]);
    (Arc::new(schema.build().expect("valid ranges")), kind)
}

/// Sets the fields of a figure. One that rests stays at its place until the next state.
pub(crate) fn set(mut object: ObjectMut<'_>, figure: &Figure, is_at_rest: bool) -> Result<(), WrongField> {
    let ([x, z], [facing_x, facing_z]) = (figure.place.map(metres), figure.facing);
    object.set_vector(PLACE, [x, 0.0, z])?.set_integer(FACING_X, facing_x)?.set_integer(FACING_Z, facing_z)?;
    object.set_integer(SCORE, figure.score % MAX_COUNT)?.set_integer(LIVES, figure.lives % MAX_COUNT)?;
    object.set_bool(REST, is_at_rest).map(drop)
}

/// Returns the figure of an object, and whether it rests.
pub(crate) fn figure(object: &ObjectRef<'_>) -> Option<(Figure, bool)> {
    let [x, _, z] = object.vector(PLACE)?.map(|part| (part * 1000.0).round() as i32);
    let facing = [object.integer(FACING_X)?, object.integer(FACING_Z)?];
    let figure = Figure { place: [x, z], facing, score: object.integer(SCORE)?, lives: object.integer(LIVES)? };
    Some((figure, object.bool(REST)?))
}

/// Returns what a client shows of a figure at a tick: the server uses the same for lag compensation. A figure that was
/// hit jumps to another place.
pub(crate) fn sample(tick: u32, figure: &Figure, is_at_rest: bool) -> PoseSample {
    let [x, z] = figure.place.map(metres);
    let pose = Pose { position: [x, 0.0, z], ..Pose::ORIGIN };
    let velocity = (!is_at_rest).then(|| figure.velocity());
    PoseSample { tick, pose, velocity, is_at_rest, teleports: figure.lives as u32 }
}

#[derive(Clone, Copy)]
pub(crate) struct Channels {
    /// Messages of the replicator.
    pub(crate) state: ChannelId,
    /// Messages of clients' inputs.
    pub(crate) inputs: ChannelId,
}

/// Returns the channels, which must be the same at both ends.
pub(crate) fn channels() -> Result<(Channels, Traffic), Box<dyn Error>> {
    let mut layout = Layout::builder();
    // Raise the number when the meaning of messages changes.
    layout.version = figures().0.version(1);
    let state = layout.add(Channel::unreliable("state").priority(2).newest_only());
    let inputs = layout.add(Channel::unreliable("inputs").priority(3).newest_only());
    Ok((Channels { state, inputs }, Traffic::channels(layout.build()?)))
}

/// Returns what the log shows: the library's warnings, unless `RUST_LOG` says something else.
pub(crate) fn log_filter() -> EnvFilter {
    EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy()
}
