//! A client that predicts its own cube: it is ahead of the server, and repeats the ticks that the server corrects.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{InputBuffer, InputLog, MAX_INPUT_BYTES, Replica, SmoothingDecay};
use slipgate_worlds::{PLAYERS, PlayerInput};

use super::cube_fields;
use super::cubes::CubeRecording;
use super::lossy::{LossyPath, MessageLoss};
use super::percentile::{Errors, distance};
use super::playout::{DELAY, TICKS, time_of};
use super::predicted_world::PredictedWorld;
use super::states::{CubeMessage, LOSS_REPORT, OurServer, StateMethod, StateRun, StateServer, WARM_UP};

/// Ticks by which the client is ahead of the server: the 3 of the path, and 2 that inputs are early.
const LEAD: usize = PATH + EARLY;
const PATH: usize = 3;
const EARLY: usize = 2;

/// What is predicted, and over which path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictionRun {
    /// Messages in a second: 20 or 60.
    pub per_second: u32,
    /// The losses.
    pub loss: MessageLoss,
    /// Whether the client has the keys of all players at once, which no network can do. What differs then is not due
    /// to keys that the client could not know.
    pub knows_keys: bool,
    /// Whether the recorded server and the client round their worlds to the precision of messages after each tick.
    pub is_rounded: bool,
}

/// The figures of a run. Lengths are in centimetres.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PredictionFigures {
    /// The 99th percentile of the distance between the own cube and the server's at the same tick.
    pub simulated: f64,
    /// The same of what is shown.
    pub shown: f64,
    /// Corrections in a second.
    pub corrections: f64,
    /// States with another place or speed of the own cube than was predicted, in a second.
    pub own_corrections: f64,
    /// Ticks that are simulated again, in a second.
    pub repeated: f64,
}

/// The client: its objects, the keys of the others, and its world.
struct PredictingClient {
    replica: Replica,
    others: [InputBuffer; PLAYERS],
    world: Option<PredictedWorld>,
    made: u32,
    is_rounded: bool,
    /// The keys of all players, for a client that has them at once.
    known: Option<[InputLog; PLAYERS]>,
}

impl PredictingClient {
    /// Gives the client the keys of all players for the tick of its newest input.
    fn learn_keys(&mut self, recording: &CubeRecording, tick: usize) {
        let Some(logs) = &mut self.known else { return };
        let inputs = recording.inputs(tick);
        for ((log, buffer), input) in logs.iter_mut().zip(&mut self.others).zip(inputs) {
            let mut buf = [0; MAX_INPUT_BYTES];
            log.push(tick as u32, input.0, None);
            let length = log.write(None, &mut buf);
            buffer.read(buf.get(..length).unwrap_or(&[]), tick as f64).expect("keys of a log");
        }
    }

    fn receive(&mut self, message: &CubeMessage) {
        let mut rest = &message.drivers[..];
        for buffer in &mut self.others {
            let Some((length, behind)) = rest.split_first() else { break };
            let (keys, behind) = behind.split_at(usize::from(*length));
            buffer.read(keys, f64::from(message.tick)).expect("keys of the server");
            rest = behind;
        }
        self.replica.read(&message.bytes).expect("a message of the replicator");
        while self.replica.poll().is_some() {}
        if let Some(world) = &mut self.world {
            world.check(&self.replica, message.tick);
        }
    }

    /// Makes the input of the next tick, and plays it.
    fn frame(&mut self, recording: &CubeRecording, tick: usize) {
        let [own, ..] = recording.inputs(tick + LEAD);
        let PlayerInput(keys) = own;
        self.made = (tick + LEAD) as u32;
        self.learn_keys(recording, tick + LEAD);
        if self.world.as_mut().is_some_and(|world| !world.push(self.made, keys)) {
            self.world = None;
        }
        if self.world.is_none() && self.replica.objects().count() == recording.objects {
            let newest = self.replica.newest_tick();
            let world = newest.and_then(|newest| PredictedWorld::start(&self.replica, newest, self.made));
            self.world = if self.is_rounded { world.map(PredictedWorld::rounded) } else { world };
        }
        if let Some(world) = &mut self.world {
            world.frame(&self.replica, &mut self.others);
        }
    }
}

#[derive(Default)]
struct PredictionMeasure {
    simulated: Errors,
    shown: Errors,
    /// Corrections, those of the own cube, and repeated ticks at the start of the measurement, and in the end.
    before: Option<[u64; 3]>,
    now: [u64; 3],
}

impl PredictionMeasure {
    fn add(&mut self, world: &PredictedWorld, recording: &CubeRecording) {
        let Some(truth) = recording.state(world.tick() as usize).first() else { return };
        let (Some(own), Some((shown, _))) = (world.own(), world.shown().next()) else { return };
        self.simulated.add(distance(own.position, truth.position));
        self.shown.add(distance(shown.position, truth.position));
        self.now = [world.corrections(), world.own_corrections(), world.repeated()];
        self.before.get_or_insert(self.now);
    }

    fn figures(mut self, seconds: f64) -> PredictionFigures {
        let before = self.before.unwrap_or_default();
        let mut rates = [0.0; 3];
        for ((rate, now), before) in rates.iter_mut().zip(self.now).zip(before) {
            *rate = now.saturating_sub(before) as f64 / seconds;
        }
        let [corrections, own_corrections, repeated] = rates;
        PredictionFigures {
            simulated: self.simulated.percentile(99) * 100.0,
            shown: self.shown.percentile(99) * 100.0,
            corrections,
            own_corrections,
            repeated,
        }
    }
}

/// Runs the client of the first player. The server plays all keys at their ticks.
///
/// # Panics
///
/// If `slipgate-sync` refuses its own messages, which is a mistake of ours.
#[must_use]
pub fn run(recording: &CubeRecording, run: PredictionRun, seed: u64) -> PredictionFigures {
    let PredictionRun { per_second, loss, knows_keys, is_rounded } = run;
    let setup = StateRun { method: StateMethod::Ours(SmoothingDecay::default()), per_second, loss, has_inputs: true };
    let mut server = OurServer::new(recording, setup).with_early_keys(EARLY as u32);
    let mut client = PredictingClient {
        replica: Replica::new(cube_fields::simulated().0, recording.objects as u16),
        others: [(); PLAYERS].map(|()| InputBuffer::new(0)),
        world: None,
        made: 0,
        is_rounded,
        known: knows_keys.then(|| [(); PLAYERS].map(|()| InputLog::new())),
    };
    let mut path = LossyPath::new(loss, DELAY, Duration::ZERO, Random::new(seed, 0x50_52));
    let (mut reports, mut measure) = (VecDeque::new(), PredictionMeasure::default());
    for tick in 1..=recording.ticks() - LEAD {
        let now = time_of(tick);
        while let Some((_, tag, of, has_arrived)) = reports.pop_front_if(|report: &mut Report| report.0 <= now) {
            server.on_result(tag, of, has_arrived);
        }
        if (tick as u32).is_multiple_of(TICKS / per_second) {
            let (message, _) = server.write(recording, tick as u32);
            let (tag, of) = (message.tag, message.tick);
            let has_arrived = path.push(message, now);
            // All results wait for as long as those of lost messages, so that they come in their order.
            reports.push_back((now + LOSS_REPORT, tag, of, has_arrived));
        }
        while let Some((_, message)) = path.pop(now) {
            client.receive(&message);
        }
        client.frame(recording, tick);
        if let (Some(world), true) = (&client.world, tick >= WARM_UP) {
            measure.add(world, recording);
        }
    }
    measure.figures((recording.ticks() - LEAD - WARM_UP) as f64 / f64::from(TICKS))
}

/// When the server learns of a message, its tag, its tick, and whether it arrived.
type Report = (Duration, u64, u32, bool);
