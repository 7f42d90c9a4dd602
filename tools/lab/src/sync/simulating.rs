//! A client that simulates the cubes too: its world is set to the server's states when it is at their ticks.

use slipgate_sync::{ObjectId, Pose, Smoothing, SmoothingDecay, StateQueue};
use slipgate_worlds::{CubeState, CubeWorld, PLAYERS, PlayerInput, STEPS_PER_SECOND};

use super::percentile::distance;

/// States that wait for each cube at most: a second at 60 states a second.
const QUEUED_STATES: usize = 64;
/// A client that is further behind than this many ticks jumps, and does not simulate all of them.
const MAX_STEPS: u32 = 60;
/// A cube that rests at the server may be off by this many metres before it is set back.
const TOLERANCE: f32 = 0.001;
/// The same of one that is awake and stands still: contacts move it a little at each end.
const TOLERANCE_AWAKE: f32 = 0.01;
/// A cube that is slower than this stands still, in m/s.
const STILL: f32 = 0.05;

/// How far a state moved a cube.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// The cube.
    pub id: ObjectId,
    /// The way from its simulated place to the one that was set, in metres.
    pub moved: [f32; 3],
}

/// A client's world, with the states that wait for their ticks.
pub struct SimulatedCubes {
    world: CubeWorld,
    tick: u32,
    queue: StateQueue<CubeState>,
    /// `None` for the thesis's client, which shows what it simulates and sets states as they came.
    smoothing: Option<Smoothing>,
    corrected: Vec<Correction>,
}

impl SimulatedCubes {
    /// Returns the world at tick 0. Without smoothing it is the thesis's client.
    #[must_use]
    pub fn new(objects: usize, smoothing: Option<SmoothingDecay>) -> Self {
        let ids = objects as u16;
        Self {
            world: CubeWorld::new(objects),
            tick: 0,
            queue: StateQueue::new(ids, objects * QUEUED_STATES),
            smoothing: smoothing.map(|decay| Smoothing::new(ids, decay)),
            corrected: Vec::new(),
        }
    }

    /// Returns the tick of the world.
    #[must_use]
    pub const fn tick(&self) -> u32 {
        self.tick
    }

    /// Returns the world.
    #[must_use]
    pub const fn world(&self) -> &CubeWorld {
        &self.world
    }

    /// Adds a state of the server.
    pub fn push(&mut self, tick: u32, id: ObjectId, state: CubeState) {
        self.queue.push(tick, id, state);
    }

    /// Simulates up to a tick, with the keys that `inputs` returns for each one. `newest` is the newest tick of a
    /// message. Returns what was corrected.
    pub fn play(
        &mut self,
        goal: u32,
        newest: u32,
        mut inputs: impl FnMut(u32) -> [PlayerInput; PLAYERS],
    ) -> &[Correction] {
        self.corrected.clear();
        if goal.saturating_sub(self.tick) > MAX_STEPS {
            self.tick = goal - 1;
        }
        while self.tick < goal {
            self.tick += 1;
            self.world.step(&inputs(self.tick));
            self.release();
            if self.smoothing.is_some() && newest >= self.tick {
                self.put_back();
            }
        }
        &self.corrected
    }

    /// Lets what is shown approach what is simulated.
    pub fn smooth(&mut self, seconds: f32) {
        self.smoothing.iter_mut().for_each(|smoothing| smoothing.advance(seconds));
    }

    /// Returns what is shown of a cube.
    #[must_use]
    pub fn shown(&self, id: ObjectId, state: &CubeState) -> Pose {
        self.smoothing.as_ref().map_or_else(|| pose(state), |smoothing| smoothing.shown(id, pose(state)))
    }

    /// Sets the states that are due.
    fn release(&mut self) {
        while let Some((tick, id, state)) = self.queue.next(self.tick) {
            // No cube of the world is ever removed.
            let Some(state) = state else { continue };
            let state = if self.smoothing.is_some() { moved_on(state, self.tick - tick) } else { state };
            self.set(id, &state);
        }
    }

    /// Puts cubes back that rest or stand still at the server: it sends nothing of them, so that nothing else corrects
    /// a client that pushed one by mistake.
    fn put_back(&mut self) {
        for id in (0..self.world.len() as u16).map(ObjectId) {
            let Some((_, state)) = self.queue.settled(id).filter(|(_, state)| stands_still(state)) else { continue };
            let Some(own) = self.world.state(usize::from(id.0)) else { continue };
            let tolerance = if state.is_at_rest { TOLERANCE } else { TOLERANCE_AWAKE };
            let (state, is_moved) = (*state, distance(own.position, state.position) > tolerance);
            if is_moved {
                self.set(id, &state);
            } else if state.is_at_rest && !own.is_at_rest {
                self.world.set_state(usize::from(id.0), &state);
            }
        }
    }

    fn set(&mut self, id: ObjectId, state: &CubeState) {
        let Some(before) = self.world.state(usize::from(id.0)) else { return };
        self.world.set_state(usize::from(id.0), state);
        let mut moved = state.position;
        moved.iter_mut().zip(before.position).for_each(|(part, before)| *part -= before);
        self.corrected.push(Correction { id, moved });
        if let Some(smoothing) = &mut self.smoothing {
            smoothing.on_correction(id, pose(&before), pose(state));
        }
    }
}

/// Returns whether a cube stays where this state has it until the server sends another one. A cube that moves changes,
/// and messages have it again.
fn stands_still(state: &CubeState) -> bool {
    state.is_at_rest || distance(state.velocity, [0.0; 3]) < STILL
}

fn pose(state: &CubeState) -> Pose {
    Pose { position: state.position, rotation: state.rotation }
}

/// Returns a state that came some ticks too late, moved on with its velocity.
fn moved_on(mut state: CubeState, ticks: u32) -> CubeState {
    if !state.is_at_rest {
        let seconds = ticks as f32 / STEPS_PER_SECOND as f32;
        state.position.iter_mut().zip(state.velocity).for_each(|(part, speed)| *part += speed * seconds);
        let [_, height, _] = &mut state.position;
        *height = height.max(0.4);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: ObjectId = ObjectId(3);

    /// Returns how far a cube is from the server's after a second with keys that the server did not have.
    fn error_after_wrong_keys(newest: u32, is_at_rest: bool) -> f32 {
        let mut cubes = SimulatedCubes::new(PLAYERS, Some(SmoothingDecay::default()));
        let state = CubeState { velocity: [0.0; 3], spin: [0.0; 3], is_at_rest, ..cubes.world().state(3).unwrap() };
        cubes.push(1, LAST, state);
        let wrong = [PlayerInput::RIGHT; PLAYERS];
        cubes.play(60, newest, |_| wrong);
        distance(cubes.world().state(3).unwrap().position, state.position)
    }

    #[test]
    fn cube_that_stands_still_at_the_server_is_put_back() {
        for is_at_rest in [false, true] {
            assert!(error_after_wrong_keys(60, is_at_rest) <= TOLERANCE_AWAKE);
            // Without messages nothing says that the cube is still there.
            assert!(error_after_wrong_keys(1, is_at_rest) > 1.0);
        }
    }
}
