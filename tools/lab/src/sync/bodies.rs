//! A world of bodies that fly around, with one square metre for each: that of the benchmark `game_state`.

use slipgate_sim::Random;
use slipgate_sync::Field;

use super::cube_pose::CubePose;

/// States in a second.
pub const STATES_PER_SECOND: u32 = 20;
/// The height of the world, in metres.
const HEIGHT: f32 = 16.0;
/// The bodies do not start above this place, in metres.
const FIRST_HEIGHT: f64 = 8.0;
/// The fastest motion along an axis, in m/s.
const SPEED: f32 = 4.0;
/// By how much a speed changes at each state, at most, in m/s.
const CHANGE: f64 = 0.2;

/// A body that changes its speed a little at each state, as colliding ones do.
struct Body {
    position: [f32; 3],
    velocity: [f32; 3],
    is_moving: bool,
}

/// The bodies of a world.
pub struct Bodies {
    half_side: f32,
    bodies: Vec<Body>,
}

impl Bodies {
    /// Returns this number of bodies at random places, all at rest.
    #[must_use]
    pub fn new(count: usize, random: &mut Random) -> Self {
        let half_side = (count as f32).sqrt() / 2.0 + 1.0;
        let mut world = Self { half_side, bodies: Vec::with_capacity(count) };
        for _ in 0..count {
            let position = world.random_place(random);
            world.bodies.push(Body { position, velocity: [1.0; 3], is_moving: false });
        }
        world
    }

    /// Returns a random place in this world.
    pub fn random_place(&self, random: &mut Random) -> [f32; 3] {
        [-self.half_side, 0.0, -self.half_side].map(|low| {
            let high = f64::from(low.abs()).max(FIRST_HEIGHT);
            random.between(f64::from(low), high) as f32
        })
    }

    /// Lets each body move with this probability.
    pub fn set_moving(&mut self, share: f64, random: &mut Random) {
        self.bodies.iter_mut().for_each(|body| body.is_moving = random.fraction() < share);
    }

    /// Returns the fields of a body: its place with the precision of 512 steps a metre, and its rotation.
    #[must_use]
    pub fn fields(&self) -> [Field; 2] {
        let side = -self.half_side..self.half_side;
        [Field::vector([side.clone(), 0.0..HEIGHT, side], 512), Field::rotation(9)]
    }

    /// Moves the bodies on to the next state.
    pub fn step(&mut self, random: &mut Random) {
        let half = self.half_side - 1.0;
        for body in self.bodies.iter_mut().filter(|body| body.is_moving) {
            for (place, speed) in body.position.iter_mut().zip(&mut body.velocity) {
                *speed = (*speed + random.between(-CHANGE, CHANGE) as f32).clamp(-SPEED, SPEED);
                *place += *speed / STATES_PER_SECOND as f32;
                if !(-half..half).contains(place) {
                    (*place, *speed) = (place.clamp(-half, half), -*speed);
                }
            }
        }
    }

    /// Returns the pose of each body, and whether it moves.
    pub fn poses(&self) -> impl Iterator<Item = (CubePose, bool)> {
        self.bodies.iter().map(|body| {
            let [x, y, z] = body.position.map(|part| part / (4.0 * (self.half_side - 1.0)));
            let rotation = [x, y, z, (1.0 - x * x - y * y - z * z).sqrt()];
            (CubePose { position: body.position, rotation }, body.is_moving)
        })
    }
}
