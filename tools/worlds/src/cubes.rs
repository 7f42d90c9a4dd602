//! The simulation of the cubes.

use rapier3d::prelude::*;

use crate::input::{PLAYERS, PlayerInput};

/// Half of the floor's side, in metres (Fribourg thesis: 32 m by 32 m).
pub const HALF_SIDE: f32 = 16.0;
/// The height of the world, in metres (thesis).
pub const HEIGHT: f32 = 16.0;
/// The steps of the simulation in a second.
pub const STEPS_PER_SECOND: u64 = 60;
/// The thickness of floor, roof and walls, in metres: no cube gets through in one step.
const WALL: f32 = 2.0;
/// The side of a player's cube and of the other cubes, in metres.
const PLAYER_SIDE: f32 = 1.1;
const SMALL_SIDE: f32 = 0.9;
/// The density of all cubes, in kg / m³.
const DENSITY: f32 = 1.0;
/// The acceleration with which a player pushes its cube, in m/s².
const PLAYER_ACCELERATION: f32 = 26.0;
/// The speed at which a player pushes no more, in m/s.
const PLAYER_SPEED: f32 = 6.0;
/// The radius in which a player attracts and repels cubes, in metres.
const FORCE_RADIUS: f32 = 4.5;
/// The acceleration of attracted and repelled cubes, in m/s².
const FORCE_ACCELERATION: f32 = 20.0;
/// The share of it that lifts the cubes.
const LIFT: f32 = 0.5;

/// Returns the side of a cube, in metres.
#[must_use]
pub const fn cube_side(id: usize) -> f32 {
    if id < PLAYERS { PLAYER_SIDE } else { SMALL_SIDE }
}

/// The state of a cube, as it is sent and set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubeState {
    /// The position of the centre, in metres.
    pub position: [f32; 3],
    /// A unit quaternion `[x, y, z, w]`.
    pub rotation: [f32; 4],
    /// In m/s.
    pub velocity: [f32; 3],
    /// The angular velocity, in rad/s.
    pub spin: [f32; 3],
    /// Whether the cube sleeps: it does not move until something touches it.
    pub is_at_rest: bool,
}

/// All that a step reads and changes.
#[derive(Clone)]
struct Physics {
    islands: IslandManager,
    broad_phase: DefaultBroadPhase,
    narrow_phase: NarrowPhase,
    bodies: RigidBodySet,
    colliders: ColliderSet,
    impulse_joints: ImpulseJointSet,
    multibody_joints: MultibodyJointSet,
    soft_bodies: SoftBodySet,
    ccd_solver: CCDSolver,
}

/// A saved world, for [`CubeWorld::restore`].
#[derive(Clone)]
pub struct CubeSave {
    physics: Physics,
    steps: u64,
}

/// A world of cubes. The first four are the players'.
pub struct CubeWorld {
    physics: Physics,
    cubes: Vec<RigidBodyHandle>,
    parameters: IntegrationParameters,
    pipeline: PhysicsPipeline,
    steps: u64,
}

impl CubeWorld {
    /// Returns a world with this number of cubes, players included, on the floor and in layers above it.
    #[must_use]
    pub fn new(objects: usize) -> Self {
        let mut physics = Physics::empty();
        physics.add_room();
        let cubes = (0..objects).map(|id| physics.add_cube(id, first_place(id))).collect();
        let parameters = IntegrationParameters { dt: 1.0 / STEPS_PER_SECOND as f32, ..Default::default() };
        Self { physics, cubes, parameters, pipeline: PhysicsPipeline::new(), steps: 0 }
    }

    /// Advances the world by 1/60 s.
    pub fn step(&mut self, inputs: &[PlayerInput; PLAYERS]) {
        for (player, input) in inputs.iter().enumerate() {
            self.push(player, *input);
        }
        self.physics.step(&mut self.pipeline, &self.parameters);
        self.steps += 1;
    }

    /// Returns how many steps the world has made.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of cubes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.cubes.len()
    }

    /// Returns whether there is no cube.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.cubes.is_empty()
    }

    /// Returns the state of a cube.
    #[must_use]
    pub fn state(&self, id: usize) -> Option<CubeState> {
        let body = self.physics.bodies.get(*self.cubes.get(id)?)?;
        Some(CubeState {
            position: body.translation().to_array(),
            rotation: body.rotation().to_array(),
            velocity: body.linvel().to_array(),
            spin: body.angvel().to_array(),
            is_at_rest: body.is_sleeping(),
        })
    }

    /// Returns the states of all cubes.
    pub fn states(&self) -> impl Iterator<Item = CubeState> + '_ {
        (0..self.cubes.len()).filter_map(|id| self.state(id))
    }

    /// Sets a cube to a state: one at rest sleeps, and loses its velocities. Contacts are not part of a state, so the
    /// world continues a little differently than the one from which the state is.
    pub fn set_state(&mut self, id: usize, state: &CubeState) {
        let Some(body) = self.cubes.get(id).and_then(|handle| self.physics.bodies.get_mut(*handle)) else { return };
        let (is_moving, still) = (!state.is_at_rest, [0.0; 3]);
        let rotation = Rotation::from_array(state.rotation).normalize();
        body.set_position(Pose::from_parts(state.position.into(), rotation), is_moving);
        body.set_linvel(if is_moving { state.velocity } else { still }.into(), is_moving);
        body.set_angvel(if is_moving { state.spin } else { still }.into(), is_moving);
        if state.is_at_rest && !body.is_sleeping() {
            body.sleep();
        }
    }

    /// Moves a cube that is awake to a state that is very near, such as its own one rounded. When it falls asleep does
    /// not change.
    pub fn adjust(&mut self, id: usize, state: &CubeState) {
        let Some(body) = self.cubes.get(id).and_then(|handle| self.physics.bodies.get_mut(*handle)) else { return };
        if body.is_sleeping() {
            return;
        }
        let rotation = Rotation::from_array(state.rotation);
        body.set_position(Pose::from_parts(state.position.into(), rotation), false);
        body.set_linvel(state.velocity.into(), false);
        body.set_angvel(state.spin.into(), false);
    }

    /// Returns a copy of everything.
    #[must_use]
    pub fn save(&self) -> CubeSave {
        CubeSave { physics: self.physics.clone(), steps: self.steps }
    }

    /// Puts everything back to a saved world, which must have as many cubes.
    pub fn restore(&mut self, save: &CubeSave) {
        self.physics.clone_from(&save.physics);
        self.steps = save.steps;
    }

    /// Returns a hash of all states, bit for bit: FNV-1a with 64 bits.
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for state in self.states() {
            let parts = state.position.iter().chain(&state.rotation).chain(&state.velocity).chain(&state.spin);
            for byte in parts.flat_map(|part| part.to_bits().to_le_bytes()).chain([u8::from(state.is_at_rest)]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        hash
    }

    /// Applies the keys of a player.
    fn push(&mut self, player: usize, input: PlayerInput) {
        let Some(body) = self.cubes.get(player).and_then(|handle| self.physics.bodies.get_mut(*handle)) else { return };
        let step = 1.0 / STEPS_PER_SECOND as f32;
        let (velocity, centre) = (body.linvel(), body.translation());
        for (axis, part) in [(Vector::X, input.direction()[0]), (Vector::Z, input.direction()[1])] {
            if part != 0.0 && velocity.dot(axis) * part < PLAYER_SPEED {
                body.apply_impulse(axis * part * PLAYER_ACCELERATION * step * body.mass(), true);
            }
        }
        if input.has(PlayerInput::ATTRACT) != input.has(PlayerInput::REPEL) {
            let sign = if input.has(PlayerInput::ATTRACT) { -1.0 } else { 1.0 };
            self.pull_around(player, centre, sign * FORCE_ACCELERATION * step);
        }
    }

    /// Changes the speed of all cubes around a player by this number of m/s, away from it.
    fn pull_around(&mut self, player: usize, centre: Vector, change: f32) {
        for (id, handle) in self.cubes.iter().enumerate().filter(|(id, _)| *id != player) {
            let Some(body) = self.physics.bodies.get_mut(*handle) else { continue };
            let offset = body.translation() - centre;
            let distance = offset.length();
            if distance < FORCE_RADIUS {
                let away = offset / distance.max(cube_side(id));
                let push = away * change + Vector::Y * change.abs() * LIFT;
                body.apply_impulse(push * body.mass(), true);
            }
        }
    }
}

impl Physics {
    fn empty() -> Self {
        Self {
            islands: IslandManager::new(),
            broad_phase: DefaultBroadPhase::default(),
            narrow_phase: NarrowPhase::new(),
            bodies: RigidBodySet::new(),
            colliders: ColliderSet::new(),
            impulse_joints: ImpulseJointSet::new(),
            multibody_joints: MultibodyJointSet::new(),
            soft_bodies: SoftBodySet::new(),
            ccd_solver: CCDSolver::new(),
        }
    }

    /// Adds the floor, the roof and four walls.
    fn add_room(&mut self) {
        let (half, middle) = (HALF_SIDE + WALL, HEIGHT / 2.0);
        let (flat, tall) = (Vector::new(half, WALL / 2.0, half), middle + WALL);
        let (across, along) = (Vector::new(WALL / 2.0, tall, half), Vector::new(half, tall, WALL / 2.0));
        let outside = HALF_SIDE + WALL / 2.0;
        let walls = [
            (flat, Vector::new(0.0, -WALL / 2.0, 0.0)),
            (flat, Vector::new(0.0, HEIGHT + WALL / 2.0, 0.0)),
            (across, Vector::new(-outside, middle, 0.0)),
            (across, Vector::new(outside, middle, 0.0)),
            (along, Vector::new(0.0, middle, -outside)),
            (along, Vector::new(0.0, middle, outside)),
        ];
        for (size, place) in walls {
            self.colliders.insert(ColliderBuilder::cuboid(size.x, size.y, size.z).translation(place));
        }
    }

    fn add_cube(&mut self, id: usize, place: Vector) -> RigidBodyHandle {
        let half = cube_side(id) / 2.0;
        let body = self.bodies.insert(RigidBodyBuilder::dynamic().translation(place));
        let cube = ColliderBuilder::cuboid(half, half, half).density(DENSITY);
        self.colliders.insert_with_parent(cube, body, &mut self.bodies);
        body
    }

    fn step(&mut self, pipeline: &mut PhysicsPipeline, parameters: &IntegrationParameters) {
        pipeline.step(
            Vector::Y * -9.81,
            parameters,
            &mut self.islands,
            &mut self.broad_phase,
            &mut self.narrow_phase,
            &mut self.bodies,
            &mut self.colliders,
            &mut self.impulse_joints,
            &mut self.multibody_joints,
            &mut self.soft_bodies,
            &mut self.ccd_solver,
            &(),
            &(),
        );
    }
}

/// Returns where a cube starts: players near the middle, the other cubes in a grid of 10 by 10 per layer.
fn first_place(id: usize) -> Vector {
    if let Some(small) = id.checked_sub(PLAYERS) {
        let (layer, index) = (small / 100, small % 100);
        let along = |place: usize| (place as f32 - 4.5) * 3.0;
        // Layers are shifted, so that the cubes do not fall into towers.
        let shift = layer as f32 * 0.3;
        let height = SMALL_SIDE / 2.0 + layer as f32;
        return Vector::new(along(index % 10) + shift, height, along(index / 10) + shift);
    }
    let along = |bit: usize| if id >> bit & 1 == 0 { -3.0 } else { 3.0 };
    Vector::new(along(0), PLAYER_SIDE / 2.0, along(1))
}
