//! The world of cubes with four players that press at random, recorded 20 times a second.

use slipgate_worlds::{CubeWorld, RandomPlayers};

/// Steps of the simulation for each recorded state: 60 steps a second.
pub const STEPS_PER_STATE: usize = 3;

/// The position and the rotation of a cube.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CubePose {
    /// In metres.
    pub position: [f32; 3],
    /// A unit quaternion.
    pub rotation: [f32; 4],
}

/// The states of a world, 20 a second.
pub struct Recording {
    /// The number of objects.
    pub objects: usize,
    states: Vec<CubePose>,
    /// The share of objects that were awake, over all states.
    pub awake: f64,
}

impl Recording {
    /// Simulates a world and records its states.
    #[must_use]
    pub fn new(objects: usize, seed: u64, states: usize) -> Self {
        let (mut world, mut players) = (CubeWorld::new(objects), RandomPlayers::new(seed));
        let (mut recorded, mut awake) = (Vec::with_capacity(objects * states), 0_u32);
        for _ in 0..states {
            for _ in 0..STEPS_PER_STATE {
                world.step(&players.next_inputs());
            }
            for cube in world.states() {
                recorded.push(CubePose { position: cube.position, rotation: cube.rotation });
                awake += u32::from(!cube.is_at_rest);
            }
        }
        Self { objects, awake: f64::from(awake) / recorded.len().max(1) as f64, states: recorded }
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
    pub fn state(&self, index: usize) -> &[CubePose] {
        self.states.get(index * self.objects..(index + 1) * self.objects).unwrap_or(&[])
    }
}
