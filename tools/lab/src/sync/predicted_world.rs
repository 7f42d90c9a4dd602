//! The world of a client that predicts: saves, corrections, and the motion that hides them.

use std::sync::Arc;

use slipgate_sync::{
    InputBuffer, MAX_SAVES, ObjectId, ObjectKind, ObjectRef, Pose, PredictOrder, Predictor, Replica, Schema, Smoothing,
    SmoothingDecay,
};
use slipgate_worlds::{CubeSave, CubeState, CubeWorld, PLAYERS, PlayerInput, STEPS_PER_SECOND};

use super::cube_fields;
use super::percentile::distance;

/// The most calls of `on_frame` in a frame: enough to repeat all ticks that are saved.
const MAX_ROUNDS: usize = 4;
/// The cube of the first player.
const OWN: ObjectId = ObjectId(0);
/// Differences below these are those of the words on the wire: metres, m/s.
const SAME_PLACE: f32 = 0.002;
const SAME_SPEED: f32 = 0.02;

/// A predicted world of cubes. The client is the first player.
pub struct PredictedWorld {
    predictor: Predictor,
    world: CubeWorld,
    /// The precision to which the world is rounded after each tick, as the server's.
    precision: Option<(Arc<Schema>, ObjectKind)>,
    saves: Vec<Option<CubeSave>>,
    /// The states of the saved ticks, with which the server's are compared.
    states: Vec<Vec<CubeState>>,
    smoothing: Smoothing,
    /// The newest tick whose states differ from the server's.
    due: Option<u32>,
    corrections: u64,
    own_corrections: u64,
}

/// Returns whether two states of a cube are the same, as far as messages say. A cube that rests at one end and stands
/// still at the other is the same: messages do not say since when a cube has been still, so that the ends find at
/// different ticks that it rests.
fn is_same(own: &CubeState, state: &CubeState) -> bool {
    let is_near = |one, two, limit| distance(one, two) <= limit;
    let velocity = |state: &CubeState| if state.is_at_rest { [0.0; 3] } else { state.velocity };
    is_near(own.position, state.position, SAME_PLACE) && is_near(velocity(own), velocity(state), SAME_SPEED)
}

/// Returns the state that the server has at a tick: an object that rests or stands still does so until a newer state
/// arrives.
fn state_at(object: ObjectRef<'_>, tick: u32) -> Option<CubeState> {
    let of = object.tick();
    let stands_still = |state: &CubeState| state.is_at_rest || distance(state.velocity, [0.0; 3]) < SAME_SPEED;
    cube_fields::simulated_state(object).filter(|state| of == tick || (of < tick && stands_still(state)))
}

fn pose(state: &CubeState) -> Pose {
    Pose { position: state.position, rotation: state.rotation }
}

impl PredictedWorld {
    /// Starts at a tick of the server, with no keys up to the newest input. `None` if that is too far ahead.
    #[must_use]
    pub fn start(replica: &Replica, tick: u32, made: u32) -> Option<Self> {
        let objects = replica.objects().count();
        let mut world = CubeWorld::new(objects);
        for object in replica.objects() {
            let id = object.id();
            cube_fields::simulated_state(object).into_iter().for_each(|state| world.set_state(id.0.into(), &state));
        }
        let mut predictor = Predictor::new(tick);
        if !(tick + 1..=made).all(|tick| predictor.push(tick, 0)) {
            return None;
        }
        let smoothing = Smoothing::new(objects as u16, SmoothingDecay::default());
        let (saves, states) = ((0..MAX_SAVES).map(|_| None).collect(), vec![Vec::new(); MAX_SAVES]);
        Some(Self {
            predictor,
            world,
            precision: None,
            saves,
            states,
            smoothing,
            due: None,
            corrections: 0,
            own_corrections: 0,
        })
    }

    /// Adds the own keys of the next tick. Returns whether the prediction can follow.
    pub fn push(&mut self, tick: u32, keys: u32) -> bool {
        self.predictor.push(tick, keys)
    }

    /// Returns the tick of the world.
    #[must_use]
    pub const fn tick(&self) -> u32 {
        self.predictor.tick()
    }

    /// Rounds the world to the precision of messages after each tick, for a server that does so too.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self { precision: Some(cube_fields::simulated()), ..self }
    }

    /// Compares the server's states of a tick with those that were predicted.
    pub fn check(&mut self, replica: &Replica, tick: u32) {
        let Some(own) = self.states.get(tick as usize % MAX_SAVES) else { return };
        let is_wrong = |object: ObjectRef<'_>| {
            let own = own.get(usize::from(object.id().0));
            state_at(object, tick).zip(own).is_some_and(|(state, own)| !is_same(own, &state))
        };
        self.own_corrections += u64::from(replica.object(OWN).is_some_and(is_wrong));
        if replica.objects().any(is_wrong) {
            self.due = self.due.max(Some(tick));
        }
    }

    /// Steps to the newest input, after a correction if one is due.
    pub fn frame(&mut self, replica: &Replica, others: &mut [InputBuffer; PLAYERS]) {
        self.smoothing.advance(1.0 / STEPS_PER_SECOND as f32);
        let present = self.predictor.tick();
        let index = present as usize % MAX_SAVES;
        let due = self.due.take().filter(|tick| self.predictor.correct(*tick));
        self.corrections += u64::from(due.is_some());
        let before = due.and_then(|_| self.states.get(index).cloned()).unwrap_or_default();
        for _ in 0..MAX_ROUNDS {
            self.predictor.on_frame();
            while let Some(order) = self.predictor.order() {
                self.obey(order, replica, others);
                self.predictor.obeyed();
            }
        }
        let after = self.states.get(index).map_or(&[][..], Vec::as_slice);
        for ((id, before), after) in (0..).map(ObjectId).zip(&before).zip(after) {
            if before.position != after.position || before.rotation != after.rotation {
                self.smoothing.on_correction(id, pose(before), pose(after));
            }
        }
    }

    fn obey(&mut self, order: PredictOrder, replica: &Replica, others: &mut [InputBuffer; PLAYERS]) {
        match order {
            PredictOrder::Restore { save } => {
                self.saves.get(save).and_then(Option::as_ref).into_iter().for_each(|save| self.world.restore(save));
            }
            PredictOrder::Correct { tick } => {
                // The others now hold the keys that they had at this tick.
                for buffer in others {
                    buffer.keys(tick);
                }
                self.correct(replica, tick);
            }
            PredictOrder::Save { save } => {
                self.saves.get_mut(save).into_iter().for_each(|kept| *kept = Some(self.world.save()));
                if let Some(states) = self.states.get_mut(save) {
                    states.clear();
                    states.extend(self.world.states());
                }
            }
            PredictOrder::Step { tick, keys, .. } => {
                let mut inputs = others.each_mut().map(|buffer| PlayerInput(buffer.keys(tick).keys));
                let [own, ..] = &mut inputs;
                *own = PlayerInput(keys);
                self.world.step(&inputs);
                if let Some((schema, kind)) = &self.precision {
                    cube_fields::round(&mut self.world, schema, *kind);
                }
            }
        }
    }

    /// Sets the cubes that differ from the server's at this tick.
    fn correct(&mut self, replica: &Replica, tick: u32) {
        for object in replica.objects() {
            let id = usize::from(object.id().0);
            let (Some(state), Some(own)) = (state_at(object, tick), self.world.state(id)) else { continue };
            if !is_same(&own, &state) {
                self.world.set_state(id, &state);
            }
        }
    }

    /// Returns the state of the own cube, without smoothing.
    #[must_use]
    pub fn own(&self) -> Option<CubeState> {
        self.world.state(0)
    }

    /// Returns how often the world was put back and corrected.
    #[must_use]
    pub const fn corrections(&self) -> u64 {
        self.corrections
    }

    /// Returns how many states had another place or speed of the own cube than was predicted.
    #[must_use]
    pub const fn own_corrections(&self) -> u64 {
        self.own_corrections
    }

    /// Returns how many ticks were simulated again.
    #[must_use]
    pub const fn repeated(&self) -> u64 {
        self.predictor.repeated()
    }

    /// Returns what is shown of all cubes, and whether they are awake.
    pub fn shown(&self) -> impl Iterator<Item = (Pose, bool)> + '_ {
        let states = (0..).map(ObjectId).zip(self.world.states());
        states.map(|(id, state)| (self.smoothing.shown(id, pose(&state)), !state.is_at_rest))
    }
}

#[cfg(test)]
mod tests {
    use slipgate_sync::Replicator;

    use super::*;

    #[test]
    fn cube_that_stands_still_at_the_server_is_corrected() {
        let (schema, kind) = cube_fields::simulated();
        let ids = PLAYERS as u16;
        let (mut replicator, mut replica) =
            (Replicator::new(Arc::clone(&schema), ids, 1, 60), Replica::new(schema, ids));
        let (viewer, server) = (replicator.add_viewer().unwrap(), CubeWorld::new(PLAYERS));
        for (id, state) in (0..).map(ObjectId).zip(server.states()) {
            cube_fields::set_simulated(&mut replicator.spawn(id, kind).unwrap(), &state).unwrap();
        }
        let mut read = |tick, replica: &mut Replica| {
            let mut buf = [0; 500];
            replicator.commit(tick).unwrap();
            let message = replicator.write(viewer, &mut buf).unwrap();
            replica.read(&buf[..message.bytes]).unwrap();
            replicator.on_acknowledged(viewer, message.tag);
            message.objects
        };
        assert_eq!(read(1, &mut replica), PLAYERS);
        let mut others = [(); PLAYERS].map(|()| InputBuffer::new(0));
        let mut predicted = PredictedWorld::start(&replica, 1, 1).unwrap();
        for tick in 2..=40 {
            assert!(predicted.push(tick, PlayerInput::RIGHT.0));
            predicted.frame(&replica, &mut others);
        }
        let error =
            |predicted: &PredictedWorld| distance(predicted.own().unwrap().position, server.state(0).unwrap().position);
        assert!(error(&predicted) > 0.5);
        // The server did not get the keys: its cubes are awake and stand still, and the message has none.
        assert_eq!(read(40, &mut replica), 0);
        predicted.check(&replica, 40);
        predicted.frame(&replica, &mut others);
        assert!(error(&predicted) < SAME_PLACE, "{}", error(&predicted));
    }
}
