//! Players that press keys at random.

use slipgate_sim::Random;

use crate::cubes::STEPS_PER_SECOND;
use crate::input::{PLAYERS, PlayerInput};

/// The mean time between two changes of a player's direction, in steps: a third of a second.
const STEPS_OF_DIRECTION: u64 = STEPS_PER_SECOND / 3;
/// The mean time between two changes of its force, in steps.
const STEPS_OF_FORCE: u64 = STEPS_PER_SECOND / 2;

/// Players that change their direction about three times a second, and that attract or repel cubes a third of the time.
#[derive(Clone, Debug)]
pub struct RandomPlayers {
    random: Random,
    directions: [PlayerInput; PLAYERS],
    forces: [PlayerInput; PLAYERS],
}

impl RandomPlayers {
    /// Returns players that press the same keys for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let none = [PlayerInput::NONE; PLAYERS];
        Self { random: Random::new(seed, 0x50_4c), directions: none, forces: none }
    }

    /// Returns the keys of all players for the next step.
    pub fn next_inputs(&mut self) -> [PlayerInput; PLAYERS] {
        let mut inputs = [PlayerInput::NONE; PLAYERS];
        for ((input, direction), force) in inputs.iter_mut().zip(&mut self.directions).zip(&mut self.forces) {
            if self.random.below(STEPS_OF_DIRECTION) == 0 {
                *direction = random_direction(&mut self.random);
            }
            if self.random.below(STEPS_OF_FORCE) == 0 {
                *force = random_force(&mut self.random);
            }
            *input = direction.with(*force);
        }
        inputs
    }
}

/// Returns one of eight directions, or none.
fn random_direction(random: &mut Random) -> PlayerInput {
    let mut axis = |low: PlayerInput, high: PlayerInput| match random.below(3) {
        0 => low,
        1 => high,
        _ => PlayerInput::NONE,
    };
    axis(PlayerInput::LEFT, PlayerInput::RIGHT).with(axis(PlayerInput::FORWARD, PlayerInput::BACK))
}

fn random_force(random: &mut Random) -> PlayerInput {
    match random.below(6) {
        0 => PlayerInput::ATTRACT,
        1 => PlayerInput::REPEL,
        _ => PlayerInput::NONE,
    }
}
