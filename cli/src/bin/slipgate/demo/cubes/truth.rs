//! The server's cubes at its last ticks, with which all views are compared. Only measurements read it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use slipgate_worlds::CubeState;

/// The ticks that are kept: eight seconds.
const KEPT_TICKS: usize = 480;

#[derive(Default)]
pub(super) struct Truth(Mutex<TruthStates>);

#[derive(Default)]
struct TruthStates {
    newest: u32,
    /// The positions of the newest ticks, oldest first.
    positions: VecDeque<Vec<[f32; 3]>>,
}

impl TruthStates {
    fn at(&self, tick: u32) -> Option<&Vec<[f32; 3]>> {
        let age = self.newest.checked_sub(tick)? as usize;
        self.positions.get(self.positions.len().checked_sub(age + 1)?)
    }
}

impl Truth {
    /// Adds the states of the next tick.
    pub(super) fn publish(&self, tick: u32, states: impl Iterator<Item = CubeState>) {
        let mut truth = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = truth.positions.len() == KEPT_TICKS;
        let mut positions = if is_full { truth.positions.pop_front().unwrap_or_default() } else { Vec::new() };
        positions.clear();
        positions.extend(states.map(|state| state.position));
        truth.positions.push_back(positions);
        truth.newest = tick;
    }

    /// Returns the newest tick.
    pub(super) fn newest(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).newest
    }

    /// Writes the positions of all cubes at a tick with a fraction into `positions`. Returns whether they are known.
    pub(super) fn read(&self, tick: f64, positions: &mut Vec<[f32; 3]>) -> bool {
        let truth = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (whole, share) = (tick.max(0.0) as u32, tick.max(0.0).fract() as f32);
        let Some(before) = truth.at(whole) else { return false };
        let Some(after) = (if share > 0.0 { truth.at(whole + 1) } else { Some(before) }) else { return false };
        positions.clear();
        positions.extend(before.iter().zip(after).map(|(from, to)| {
            let mut between = *from;
            between.iter_mut().zip(to).for_each(|(part, to)| *part += (to - *part) * share);
            between
        }));
        true
    }
}

#[cfg(test)]
mod tests {
    use slipgate_worlds::CubeWorld;

    use super::*;

    #[test]
    fn positions_between_two_ticks_are_on_the_line() {
        let (truth, world) = (Truth::default(), CubeWorld::new(4));
        for tick in 1..=1000_u32 {
            let moved = |state: CubeState| CubeState { position: [tick as f32, 0.0, 0.0], ..state };
            truth.publish(tick, world.states().map(moved));
        }
        let mut positions = Vec::new();
        assert!(truth.read(998.25, &mut positions));
        assert_eq!((positions.len(), positions[0]), (4, [998.25, 0.0, 0.0]));
        assert!(truth.read(1000.0, &mut positions));
        assert!(!truth.read(1000.5, &mut positions) && !truth.read(520.0, &mut positions));
        assert!(truth.read(521.0, &mut positions));
    }
}
