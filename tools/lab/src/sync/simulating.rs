//! A client that simulates the cubes too: its world is set to the server's states when it is at their ticks. Ticks that
//! it simulated without the players' keys are repeated once the keys arrive.

use slipgate_sync::{InputBuffer, LateKeys, ObjectId, Pose, Smoothing, SmoothingDecay, StateQueue};
use slipgate_worlds::{CubeSave, CubeState, CubeWorld, PLAYERS, PlayerInput, STEPS_PER_SECOND};

use super::percentile::distance;

/// States that wait for each cube at most: a second at 60 states a second.
const QUEUED_STATES: usize = 64;
/// A client that is further behind than this many ticks jumps, and does not simulate all of them. It repeats no more
/// ticks, either.
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

/// The keys of all players for a tick, as far as they have arrived.
#[derive(Clone, Copy, Debug)]
pub struct StepKeys([Option<PlayerInput>; PLAYERS]);

impl StepKeys {
    /// Returns the keys of a tick that are known, or that never will be.
    #[must_use]
    pub fn known(inputs: [PlayerInput; PLAYERS]) -> Self {
        Self(inputs.map(Some))
    }

    /// Returns the keys of a tick, as far as they have arrived.
    #[must_use]
    pub fn arrived(buffers: &[InputBuffer; PLAYERS], tick: u32) -> Self {
        Self(buffers.each_ref().map(|buffer| buffer.arrived(tick).map(PlayerInput)))
    }

    /// Returns whether those of a player have not arrived.
    fn is_missing(&self) -> bool {
        self.0.iter().any(Option::is_none)
    }

    /// Returns the keys to simulate with: those that a player held before, where none have arrived.
    fn or_held(&self, held: [PlayerInput; PLAYERS]) -> [PlayerInput; PLAYERS] {
        let mut inputs = held;
        inputs.iter_mut().zip(self.0).for_each(|(input, arrived)| *input = arrived.unwrap_or(*input));
        inputs
    }
}

/// A client's world, with the states that wait for their ticks.
pub struct SimulatedCubes {
    world: CubeWorld,
    tick: u32,
    queue: StateQueue<CubeState>,
    late: LateKeys<CubeState>,
    /// The keys of the world's tick.
    held: [PlayerInput; PLAYERS],
    /// The world before the first tick that was simulated without all keys, and the keys of its tick.
    save: Option<(CubeSave, [PlayerInput; PLAYERS])>,
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
            late: LateKeys::new(MAX_STEPS, objects * QUEUED_STATES),
            held: [PlayerInput::NONE; PLAYERS],
            save: None,
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

    /// Simulates up to a tick, with the keys that `keys_of` returns for each one. `newest` is the newest tick of a
    /// message. If keys have arrived without which ticks were simulated, repeats these ticks first. Returns what was
    /// corrected.
    pub fn play(&mut self, goal: u32, newest: u32, mut keys_of: impl FnMut(u32) -> StepKeys) -> &[Correction] {
        self.corrected.clear();
        if goal.saturating_sub(self.tick) > MAX_STEPS {
            self.tick = goal - 1;
        }
        if let Some(saved) = self.late.go_back(goal, |tick| keys_of(tick).is_missing()) {
            self.repeat(saved, newest, &mut keys_of);
        }
        while self.tick < goal {
            self.step(newest, &mut keys_of);
        }
        &self.corrected
    }

    /// Simulates a tick.
    fn step(&mut self, newest: u32, keys_of: &mut impl FnMut(u32) -> StepKeys) {
        let keys = keys_of(self.tick + 1);
        if self.late.on_step(self.tick + 1, keys.is_missing()) {
            self.save = Some((self.world.save(), self.held));
        }
        self.tick += 1;
        self.held = keys.or_held(self.held);
        self.world.step(&self.held);
        self.release();
        if self.smoothing.is_some() && newest >= self.tick {
            self.put_back();
        }
    }

    /// Goes back to the save, and simulates all ticks since then again. What is shown approaches the result from where
    /// it was.
    fn repeat(&mut self, saved: u32, newest: u32, keys_of: &mut impl FnMut(u32) -> StepKeys) {
        let Some((save, held)) = &self.save else { return };
        let before: Vec<_> = self.world.states().collect();
        self.world.restore(save);
        self.held = *held;
        let simulated = std::mem::replace(&mut self.tick, saved);
        while self.tick < simulated {
            self.step(newest, keys_of);
        }
        let after: Vec<_> = self.world.states().collect();
        for ((id, before), after) in (0..).map(ObjectId).zip(&before).zip(&after) {
            if before.position != after.position || before.rotation != after.rotation {
                self.note_correction(id, before, after);
            }
        }
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
        while let Some((tick, id, state)) = self.late.next(&mut self.queue, self.tick) {
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
            // While ticks are repeated, the newest state may be one of a later tick.
            let settled = self.queue.settled(id).filter(|(tick, state)| *tick <= self.tick && stands_still(state));
            let Some((_, state)) = settled else { continue };
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
        if !self.late.is_repeated(self.tick) {
            self.note_correction(id, &before, state);
        }
    }

    /// Notes that a cube was moved. It is shown where it was at first.
    fn note_correction(&mut self, id: ObjectId, before: &CubeState, after: &CubeState) {
        let mut moved = after.position;
        moved.iter_mut().zip(before.position).for_each(|(part, before)| *part -= before);
        self.corrected.push(Correction { id, moved });
        if let Some(smoothing) = &mut self.smoothing {
            smoothing.on_correction(id, pose(before), pose(after));
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
    use std::ops::Range;

    use slipgate_worlds::RandomPlayers;

    use super::*;

    const LAST: ObjectId = ObjectId(3);

    /// Returns how far a cube is from the server's after a second with keys that the server did not have.
    fn error_after_wrong_keys(newest: u32, is_at_rest: bool) -> f32 {
        let mut cubes = SimulatedCubes::new(PLAYERS, Some(SmoothingDecay::default()));
        let state = CubeState { velocity: [0.0; 3], spin: [0.0; 3], is_at_rest, ..cubes.world().state(3).unwrap() };
        cubes.push(1, LAST, state);
        let wrong = [PlayerInput::RIGHT; PLAYERS];
        cubes.play(60, newest, |_| StepKeys::known(wrong));
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

    /// The players' keys at each tick, and the world that they make: a cube is thrown at tick 20.
    struct Played {
        keys: Vec<[PlayerInput; PLAYERS]>,
        world: CubeWorld,
        thrown: CubeState,
    }

    const THROWN: (u32, ObjectId) = (20, ObjectId(40));

    fn played(ticks: u32) -> Played {
        let (mut world, mut players) = (CubeWorld::new(104), RandomPlayers::new(1));
        let mut thrown = world.state(THROWN.1.0.into()).unwrap();
        let mut keys = vec![[PlayerInput::NONE; PLAYERS]];
        for tick in 1..=ticks {
            keys.push(players.next_inputs());
            world.step(&keys[tick as usize]);
            if tick == THROWN.0 {
                thrown = CubeState { velocity: [3.0, 5.0, 0.0], is_at_rest: false, ..thrown };
                world.set_state(THROWN.1.0.into(), &thrown);
            }
        }
        Played { keys, world, thrown }
    }

    /// Plays up to a tick without the keys of some ticks.
    fn play_without(cubes: &mut SimulatedCubes, played: &Played, goal: u32, missing: Range<u32>) -> usize {
        let mut asked = 0;
        cubes.play(goal, 0, |tick| {
            asked += 1;
            if missing.contains(&tick) {
                StepKeys([None; PLAYERS])
            } else {
                StepKeys::known(played.keys[tick as usize])
            }
        });
        asked
    }

    #[test]
    fn ticks_without_keys_are_repeated_once_the_keys_come() {
        let played = played(40);
        let mut cubes = SimulatedCubes::new(104, Some(SmoothingDecay::default()));
        cubes.push(THROWN.0, THROWN.1, played.thrown);
        (1..40).for_each(|tick| _ = play_without(&mut cubes, &played, tick, 11..50));
        let before = cubes.world().state(0).unwrap();
        assert!(distance(before.position, played.world.state(0).unwrap().position) > 0.1);
        // Keys of some ticks are there, and then those of all.
        for missing in [31..50, 0..0] {
            play_without(&mut cubes, &played, 40, missing);
        }
        assert_eq!((cubes.tick(), cubes.world().hash()), (40, played.world.hash()));
        // What is shown starts where it was.
        let shown = cubes.shown(ObjectId(0), &cubes.world().state(0).unwrap()).position;
        assert!(distance(shown, before.position) < 0.2, "{shown:?} {before:?}");
    }

    #[test]
    fn keys_that_never_come_cause_no_repetition() {
        let (played, mut cubes) = (played(200), SimulatedCubes::new(104, Some(SmoothingDecay::default())));
        let asked: Vec<_> = (1..=200).map(|tick| play_without(&mut cubes, &played, tick, 11..13)).collect();
        // Each tick needs its keys. Those of both missing ticks are asked for as long as they may still come.
        assert!(asked.iter().all(|asked| *asked <= 3) && asked[100..].iter().all(|asked| *asked == 1), "{asked:?}");
    }
}
