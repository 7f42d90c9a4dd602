//! A world of balls that players push, throw and lift, recorded 20 times a second.
//!
//! It has the size, the number of objects and the actions of the thesis's world, but balls instead of cubes, and only
//! the physics that move them: gravity, collisions, rolling friction. All arithmetic is exact in IEEE 754, so a seed
//! gives the same recording on every machine.

use slipgate_sim::Random;

/// Half of the floor's side, in metres.
const HALF_SIDE: f32 = 16.0;
const HEIGHT: f32 = 16.0;
const RADIUS: f32 = 0.25;
/// The players, which are the first objects.
const PLAYERS: usize = 4;
const STEPS_PER_SECOND: usize = 60;
/// Steps of the simulation for each recorded state.
pub const STEPS_PER_STATE: usize = 3;
const STEP: f32 = 1.0 / STEPS_PER_SECOND as f32;
const GRAVITY: f32 = 9.81;
/// The share of the speed that a collision keeps.
const RESTITUTION: f32 = 0.3;
/// The share of the speed that a rolling ball loses in a second.
const FRICTION: f32 = 0.9;
/// A ball on the floor that is slower rests, in metres per second.
const REST_SPEED: f32 = 0.05;
const PLAYER_ACCELERATION: f32 = 20.0;
const PLAYER_SPEED: f32 = 6.0;
/// The radius in which a player throws balls, in metres.
const THROW_RADIUS: f32 = 3.0;
const THROW_SPEED: f32 = 6.0;
/// The side of a cell of the collision grid is one metre.
const CELLS: usize = 2 * HALF_SIDE as usize;

/// The position and the rotation of a ball.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BallPose {
    /// In metres.
    pub position: [f32; 3],
    /// A unit quaternion.
    pub rotation: [f32; 4],
}

#[derive(Clone, Copy)]
struct Ball {
    pose: BallPose,
    velocity: [f32; 3],
}

/// The states of a world, 20 a second.
pub struct Recording {
    /// The number of objects.
    pub objects: usize,
    states: Vec<BallPose>,
}

impl Recording {
    /// Simulates a world and records its states.
    #[must_use]
    pub fn new(objects: usize, seed: u64, states: usize) -> Self {
        let mut world = BallWorld::new(objects, seed);
        let mut recorded = Vec::with_capacity(objects * states);
        for _ in 0..states {
            (0..STEPS_PER_STATE).for_each(|_| world.step());
            recorded.extend(world.balls.iter().map(|ball| ball.pose));
        }
        Self { objects, states: recorded }
    }

    /// Returns the number of states.
    #[must_use]
    pub fn len(&self) -> usize {
        self.states.len() / self.objects.max(1)
    }

    /// Returns whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// Returns all objects of a state.
    #[must_use]
    pub fn state(&self, index: usize) -> &[BallPose] {
        self.states.get(index * self.objects..(index + 1) * self.objects).unwrap_or(&[])
    }

    /// Returns the share of objects that differ from the state before.
    #[must_use]
    pub fn moving_share(&self) -> f64 {
        let pairs = (1..self.len()).flat_map(|index| self.state(index - 1).iter().zip(self.state(index)));
        let (mut moving, mut all) = (0_u32, 0_u32);
        for (before, after) in pairs {
            moving += u32::from(before != after);
            all += 1;
        }
        f64::from(moving) / f64::from(all.max(1))
    }
}

struct BallWorld {
    balls: Vec<Ball>,
    random: Random,
    /// The direction in which each player accelerates.
    directions: [[f32; 2]; PLAYERS],
    cells: Vec<Vec<usize>>,
}

impl BallWorld {
    fn new(objects: usize, seed: u64) -> Self {
        let mut random = Random::new(seed, 0x57_4f);
        let mut place = || random.between(f64::from(1.0 - HALF_SIDE), f64::from(HALF_SIDE - 1.0)) as f32;
        let mut balls = Vec::with_capacity(objects);
        for _ in 0..objects {
            let pose = BallPose { position: [place(), RADIUS, place()], rotation: [0.0, 0.0, 0.0, 1.0] };
            balls.push(Ball { pose, velocity: [0.0; 3] });
        }
        Self { balls, random, directions: [[0.0; 2]; PLAYERS], cells: vec![Vec::new(); CELLS * CELLS] }
    }

    fn step(&mut self) {
        for player in 0..PLAYERS.min(self.balls.len()) {
            self.act(player);
        }
        for ball in &mut self.balls {
            ball.advance();
        }
        self.collide();
    }

    /// Lets a player act at random: turn about once a second, and throw what is near every three seconds.
    fn act(&mut self, player: usize) {
        if self.random.below(STEPS_PER_SECOND as u64) == 0 {
            let mut part = || self.random.between(-1.0, 1.0) as f32;
            let direction = [part(), part()];
            if let Some(kept) = self.directions.get_mut(player) {
                *kept = direction;
            }
        }
        let is_throwing = self.random.below(3 * STEPS_PER_SECOND as u64) == 0;
        let direction = self.directions.get(player).copied().unwrap_or_default();
        let Some(ball) = self.balls.get_mut(player) else { return };
        for (axis, part) in [0, 2].into_iter().zip(direction) {
            if let Some(speed) = ball.velocity.get_mut(axis) {
                *speed = (*speed + part * PLAYER_ACCELERATION * STEP).clamp(-PLAYER_SPEED, PLAYER_SPEED);
            }
        }
        if is_throwing {
            let centre = ball.pose.position;
            self.throw(player, centre);
        }
    }

    /// Throws the balls around a player outwards and up.
    fn throw(&mut self, player: usize, centre: [f32; 3]) {
        for (index, ball) in self.balls.iter_mut().enumerate() {
            let offset = minus(ball.pose.position, centre);
            let distance = libm::sqrtf(dot(offset, offset));
            if index != player && distance < THROW_RADIUS {
                let away = offset.map(|part| part / distance.max(RADIUS) * THROW_SPEED);
                ball.velocity = [away[0], THROW_SPEED / 2.0, away[2]];
            }
        }
    }

    fn collide(&mut self) {
        self.cells.iter_mut().for_each(Vec::clear);
        for index in 0..self.balls.len() {
            let Some((x, z)) = self.balls.get(index).map(Ball::cell) else { continue };
            for near_x in x.saturating_sub(1)..=(x + 1).min(CELLS - 1) {
                for near_z in z.saturating_sub(1)..=(z + 1).min(CELLS - 1) {
                    let others = self.cells.get(near_x * CELLS + near_z).map_or(&[][..], Vec::as_slice);
                    for other in others {
                        if let Ok([one, two]) = self.balls.get_disjoint_mut([index, *other]) {
                            bounce(one, two);
                        }
                    }
                }
            }
            if let Some(cell) = self.cells.get_mut(x * CELLS + z) {
                cell.push(index);
            }
        }
    }
}

impl Ball {
    fn cell(&self) -> (usize, usize) {
        let cell = |part: f32| ((part + HALF_SIDE).max(0.0) as usize).min(CELLS - 1);
        (cell(self.pose.position[0]), cell(self.pose.position[2]))
    }

    fn advance(&mut self) {
        let is_on_floor = self.pose.position[1] <= RADIUS && self.velocity[1] <= 0.0;
        if is_on_floor {
            let kept = 1.0 - FRICTION * STEP;
            self.velocity = [self.velocity[0] * kept, 0.0, self.velocity[2] * kept];
            if dot(self.velocity, self.velocity) < REST_SPEED * REST_SPEED {
                self.velocity = [0.0; 3];
            }
        } else {
            self.velocity[1] -= GRAVITY * STEP;
        }
        if self.velocity == [0.0; 3] {
            return;
        }
        let limits = [(-HALF_SIDE, HALF_SIDE), (0.0, HEIGHT), (-HALF_SIDE, HALF_SIDE)];
        for ((place, speed), (low, high)) in self.pose.position.iter_mut().zip(&mut self.velocity).zip(limits) {
            *place += *speed * STEP;
            let inside = place.clamp(low + RADIUS, high - RADIUS);
            if inside.to_bits() != place.to_bits() {
                (*place, *speed) = (inside, -*speed * RESTITUTION);
            }
        }
        self.roll();
    }

    /// Turns the ball as it would roll over the floor.
    fn roll(&mut self) {
        let half = STEP / (2.0 * RADIUS);
        let (spin_x, spin_z) = (self.velocity[2] * half, -self.velocity[0] * half);
        let [x, y, z, w] = self.pose.rotation;
        let turned = [
            x + spin_x * w - spin_z * y,
            y + spin_z * x - spin_x * z,
            z + spin_z * w + spin_x * y,
            w - spin_x * x - spin_z * z,
        ];
        let length = libm::sqrtf(turned.iter().map(|part| part * part).sum());
        self.pose.rotation = turned.map(|part| part / length);
    }
}

/// Lets two balls bounce off each other, if they touch and approach.
fn bounce(one: &mut Ball, two: &mut Ball) {
    let offset = minus(two.pose.position, one.pose.position);
    let squared = dot(offset, offset);
    if !(1e-6..4.0 * RADIUS * RADIUS).contains(&squared) {
        return;
    }
    let distance = libm::sqrtf(squared);
    let normal = offset.map(|part| part / distance);
    let approach = dot(minus(one.velocity, two.velocity), normal);
    if approach > REST_SPEED {
        let impulse = approach * (1.0 + RESTITUTION) / 2.0;
        for ((first, second), part) in one.velocity.iter_mut().zip(&mut two.velocity).zip(normal) {
            *first -= impulse * part;
            *second += impulse * part;
        }
    }
}

fn minus(one: [f32; 3], two: [f32; 3]) -> [f32; 3] {
    [one[0] - two[0], one[1] - two[1], one[2] - two[2]]
}

fn dot(one: [f32; 3], two: [f32; 3]) -> f32 {
    one.iter().zip(two).map(|(a, b)| a * b).sum()
}
