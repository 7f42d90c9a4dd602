//! A world of cubes and its players' keys, recorded at each tick.

use slipgate_worlds::{CubeState, CubeWorld, PLAYERS, PlayerInput, RandomPlayers};

use super::cube_fields;

/// The states of a world, 60 a second.
pub struct CubeRecording {
    /// The number of cubes.
    pub objects: usize,
    states: Vec<CubeState>,
    inputs: Vec<[PlayerInput; PLAYERS]>,
}

impl CubeRecording {
    /// Simulates a world. Tick 0 is its start.
    #[must_use]
    pub fn new(objects: usize, seed: u64, ticks: usize) -> Self {
        Self::with_steps(objects, seed, ticks, |_| {})
    }

    /// Simulates a world that is rounded to the precision of messages after each tick.
    #[must_use]
    pub fn rounded(objects: usize, seed: u64, ticks: usize) -> Self {
        let (schema, kind) = cube_fields::simulated();
        Self::with_steps(objects, seed, ticks, |world| cube_fields::round(world, &schema, kind))
    }

    fn with_steps(objects: usize, seed: u64, ticks: usize, round: impl Fn(&mut CubeWorld)) -> Self {
        let (mut world, mut players) = (CubeWorld::new(objects), RandomPlayers::new(seed));
        let (mut states, mut inputs) = (Vec::with_capacity(objects * (ticks + 1)), vec![[PlayerInput::NONE; PLAYERS]]);
        states.extend(world.states());
        for _ in 0..ticks {
            let keys = players.next_inputs();
            world.step(&keys);
            round(&mut world);
            states.extend(world.states());
            inputs.push(keys);
        }
        Self { objects, states, inputs }
    }

    /// Returns the number of ticks.
    #[must_use]
    pub fn ticks(&self) -> usize {
        self.inputs.len() - 1
    }

    /// Returns all cubes after a tick.
    #[must_use]
    pub fn state(&self, tick: usize) -> &[CubeState] {
        self.states.get(tick * self.objects..(tick + 1) * self.objects).unwrap_or(&[])
    }

    /// Returns the keys that led to a tick.
    #[must_use]
    pub fn inputs(&self, tick: usize) -> [PlayerInput; PLAYERS] {
        self.inputs.get(tick).copied().unwrap_or_default()
    }

    /// Returns the mean share of cubes that are awake.
    #[must_use]
    pub fn awake_share(&self) -> f64 {
        let awake = self.states.iter().filter(|state| !state.is_at_rest).count();
        awake as f64 / self.states.len().max(1) as f64
    }
}
