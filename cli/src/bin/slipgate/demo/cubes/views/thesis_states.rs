//! The thesis's state synchronisation: 20 states in each message, set 4 messages later; the client simulates without
//! the players' keys, which the thesis does not send.

use std::time::Duration;

use slipgate_lab::sync::simulating::{SimulatedCubes, StepKeys};
use slipgate_lab::sync::thesis::THESIS_BUFFER;
use slipgate_sync::{ObjectId, Pose};
use slipgate_worlds::{PLAYERS, PlayerInput};

use super::view::{CubeView, MessageArrival, ShownFrame};
use crate::demo::cubes::knobs::TICKS;
use crate::demo::cubes::messages::{Unreadable, read_states, take_tick};

pub(in crate::demo::cubes) struct ThesisStates {
    cubes: SimulatedCubes,
    /// Messages a second.
    rate: u32,
    newest: u32,
    /// The tick at the start of the demo, if the first message was the quickest.
    start: Option<f64>,
}

impl ThesisStates {
    pub(super) fn new(objects: u16, rate: u32) -> Self {
        Self { cubes: SimulatedCubes::new(objects.into(), None), rate, newest: 0, start: None }
    }
}

impl CubeView for ThesisStates {
    fn receive(&mut self, mut bytes: &[u8], arrival: MessageArrival) -> Result<(), Unreadable> {
        let tick = take_tick(&mut bytes)?;
        read_states(&mut bytes, |id, state| self.cubes.push(tick, id, state))?;
        self.newest = self.newest.max(tick);
        self.start.get_or_insert(f64::from(tick) - arrival.at.as_secs_f64() * f64::from(TICKS));
        Ok(())
    }

    fn frame(&mut self, now: Duration) -> Option<ShownFrame> {
        let wait = f64::from(THESIS_BUFFER * TICKS / self.rate);
        let goal = (self.start? + now.as_secs_f64() * f64::from(TICKS) - wait).max(0.0) as u32;
        if goal == 0 {
            return None;
        }
        self.cubes.play(goal, self.newest, |_| StepKeys::known([PlayerInput::NONE; PLAYERS]));
        Some(ShownFrame { tick: f64::from(self.cubes.tick()), is_starved: goal > self.newest })
    }

    fn cubes(&self, add: &mut dyn FnMut(usize, Pose, bool)) {
        for (id, state) in self.cubes.world().states().enumerate() {
            add(id, self.cubes.shown(ObjectId(id as u16), &state), !state.is_at_rest);
        }
    }
}
