//! Worlds recorded 20 times a second: cubes with four players that press at random, and bodies that fly around.

use slipgate_sim::Random;

use super::bodies::Bodies;
use super::cube_pose::CubePose;
use super::cubes::CubeRecording;

/// Steps of the simulation for each recorded state: 60 steps a second.
pub const STEPS_PER_STATE: usize = 3;

/// The states of a world, 20 a second.
pub struct Recording {
    /// The number of objects.
    pub objects: usize,
    states: Vec<CubePose>,
    /// The share of objects that were awake, over all states.
    pub awake: f64,
}

impl Recording {
    /// Takes the first states of a recorded world of cubes.
    #[must_use]
    pub fn of_cubes(cubes: &CubeRecording, states: usize) -> Self {
        let ticks = (1..=states).map(|state| state * STEPS_PER_STATE);
        let poses = ticks
            .flat_map(|tick| cubes.state(tick))
            .map(|cube| (CubePose { position: cube.position, rotation: cube.rotation }, !cube.is_at_rest));
        Self::new(cubes.objects, poses)
    }

    /// Records bodies of which this share moves.
    #[must_use]
    pub fn of_bodies(objects: usize, moving: f64, seed: u64, states: usize) -> Self {
        let mut random = Random::new(seed, 0x42_4f);
        let mut bodies = Bodies::new(objects, &mut random);
        bodies.set_moving(moving, &mut random);
        let mut poses = Vec::with_capacity(objects * states);
        for _ in 0..states {
            bodies.step(&mut random);
            poses.extend(bodies.poses());
        }
        Self::new(objects, poses.into_iter())
    }

    fn new(objects: usize, poses: impl Iterator<Item = (CubePose, bool)>) -> Self {
        let (states, is_awake): (Vec<CubePose>, Vec<bool>) = poses.unzip();
        let awake = is_awake.iter().filter(|is_awake| **is_awake).count();
        Self { objects, awake: awake as f64 / states.len().max(1) as f64, states }
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
