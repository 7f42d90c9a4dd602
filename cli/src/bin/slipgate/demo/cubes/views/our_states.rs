//! State synchronisation of `slipgate-sync`: the client simulates with the players' keys, and sets the server's states
//! when its own world is at their ticks.

use std::time::Duration;

use slipgate_lab::sync::cube_fields;
use slipgate_lab::sync::simulating::{SimulatedCubes, StepKeys};
use slipgate_sync::{InputBuffer, ObjectId, PlayoutClock, Pose, Replica, ReplicaChange, SmoothingDecay, TickRate};
use slipgate_worlds::PLAYERS;

use super::view::{CubeView, MessageArrival, ShownFrame};
use crate::demo::cubes::knobs::TICKS;
use crate::demo::cubes::messages::{Unreadable, read_keys, take_keys};

/// Keys count that are at most this many ticks older than the simulation: it repeats ticks with keys that come late.
const LATE_TICKS: u32 = 32;

pub(in crate::demo::cubes) struct OurStates {
    cubes: SimulatedCubes,
    clock: PlayoutClock,
    replica: Replica,
    buffers: [InputBuffer; PLAYERS],
}

impl OurStates {
    pub(super) fn new(objects: u16, rate: TickRate) -> Self {
        Self {
            cubes: SimulatedCubes::new(objects.into(), Some(SmoothingDecay::default())),
            clock: PlayoutClock::new(rate),
            replica: Replica::new(cube_fields::simulated().0, objects),
            buffers: [(); PLAYERS].map(|()| InputBuffer::new(0)),
        }
    }
}

impl CubeView for OurStates {
    fn receive(&mut self, mut bytes: &[u8], arrival: MessageArrival) -> Result<(), Unreadable> {
        let keys = take_keys(&mut bytes)?;
        let header = self.replica.read(bytes).map_err(|_| Unreadable)?;
        read_keys(&mut self.buffers, keys, header.tick.max(self.cubes.tick().saturating_sub(LATE_TICKS)))?;
        self.clock.on_message(header, arrival.at);
        while let Some(change) = self.replica.poll() {
            let (ReplicaChange::Appeared { id, .. } | ReplicaChange::Updated { id }) = change else { continue };
            let Some(object) = self.replica.object(id) else { continue };
            let tick = object.tick();
            if let Some(state) = cube_fields::simulated_state(object) {
                self.cubes.push(tick, id, state);
            }
        }
        Ok(())
    }

    fn frame(&mut self, now: Duration) -> Option<ShownFrame> {
        let goal = self.clock.advance(now)?.max(0.0).round() as u32;
        let (buffers, newest) = (&mut self.buffers, self.clock.newest_tick().unwrap_or(0));
        self.cubes.play(goal, newest, |tick| StepKeys::arrived(buffers, tick));
        self.cubes.smooth(1.0 / TICKS as f32);
        Some(ShownFrame { tick: f64::from(self.cubes.tick()), is_starved: self.clock.is_starved() })
    }

    fn cubes(&self, add: &mut dyn FnMut(usize, Pose, bool)) {
        for (id, state) in self.cubes.world().states().enumerate() {
            add(id, self.cubes.shown(ObjectId(id as u16), &state), !state.is_at_rest);
        }
    }
}
