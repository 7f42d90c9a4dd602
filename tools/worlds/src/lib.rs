//! A world of cubes that four players push, attract and repel: the same on each machine for the same inputs.
//!
//! [`CubeWorld`] is the simulation, which a server and its clients run. [`PlayerInput`] is what a player presses, and
//! [`RandomPlayers`] press at random. Saves are whole worlds: a restored world continues bit for bit as the saved one
//! did, which a world that is set to poses and velocities does not.

#![forbid(unsafe_code)]

mod cubes;
mod input;
mod random_players;
#[cfg(test)]
mod tests;

pub use cubes::{CubeSave, CubeState, CubeWorld, HALF_SIDE, HEIGHT, STEPS_PER_SECOND, cube_side};
pub use input::{PLAYERS, PlayerInput};
pub use random_players::RandomPlayers;
