//! The thesis's choice of cubes for a message: 20 states, by priorities that grow with the time since the last one.

use slipgate_worlds::CubeState;

use super::percentile::distance;

/// The states of a message.
pub const THESIS_STATES: usize = 20;
/// The bytes of a message: 4, and 54 for each state (index, pose and velocities).
pub const THESIS_MESSAGE_BYTES: usize = 4 + THESIS_STATES * 54;
/// The messages by which a state is set after its arrival.
pub const THESIS_BUFFER: u32 = 4;
/// The speed from which on a cube moves, in m/s.
const MOVING: f32 = 0.05;

/// The priorities of all cubes.
pub struct ThesisPriorities(Vec<f32>);

impl ThesisPriorities {
    /// Returns priorities of zero.
    #[must_use]
    pub fn new(objects: usize) -> Self {
        Self(vec![0.0; objects])
    }

    /// Returns the cubes of the next message: those with the highest priorities, which start at zero again.
    pub fn choose(&mut self, states: &[CubeState]) -> Vec<usize> {
        for (priority, state) in self.0.iter_mut().zip(states) {
            *priority += match state {
                state if state.is_at_rest => 1.0,
                state if distance(state.velocity, [0.0; 3]) > MOVING => 100.0,
                _ => 10.0,
            };
        }
        let priority = |id: usize| self.0.get(id).copied().unwrap_or(0.0);
        let mut order: Vec<usize> = (0..states.len()).collect();
        order.sort_by(|one, two| priority(*two).total_cmp(&priority(*one)));
        order.truncate(THESIS_STATES);
        for id in &order {
            self.0.get_mut(*id).into_iter().for_each(|priority| *priority = 0.0);
        }
        order
    }
}
