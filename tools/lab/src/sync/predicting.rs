//! A client that predicts its own cube: it is ahead of the server, and repeats the ticks that the server corrects.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{InputBuffer, Replica, SmoothingDecay};
use slipgate_worlds::{PLAYERS, PlayerInput};

use super::cube_fields;
use super::cubes::CubeRecording;
use super::lossy::{LossyPath, MessageLoss};
use super::percentile::{Errors, distance};
use super::playout::{DELAY, TICKS, time_of};
use super::predicted_world::PredictedWorld;
use super::states::{CubeMessage, LOSS_REPORT, OurServer, StateMethod, StateRun, StateServer, WARM_UP};

/// Ticks by which the client is ahead of the server: the 3 of the path, and 2 that inputs are early.
const LEAD: usize = 5;

/// The figures of a run. Lengths are in centimetres.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PredictionFigures {
    /// The 99th percentile of the distance between the own cube and the server's at the same tick.
    pub simulated: f64,
    /// The same of what is shown.
    pub shown: f64,
    /// Corrections in a second.
    pub corrections: f64,
    /// Ticks that are simulated again, in a second.
    pub repeated: f64,
}

/// The client: its objects, the keys of the others, and its world.
struct PredictingClient {
    replica: Replica,
    others: [InputBuffer; PLAYERS],
    world: Option<PredictedWorld>,
    made: u32,
}

impl PredictingClient {
    fn receive(&mut self, message: &CubeMessage) {
        let mut rest = &message.drivers[..];
        for buffer in &mut self.others {
            let Some((length, behind)) = rest.split_first() else { break };
            let (keys, behind) = behind.split_at(usize::from(*length));
            buffer.read(keys, f64::from(message.tick)).expect("keys of the server");
            rest = behind;
        }
        if message.bytes.is_empty() {
            return;
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
        if self.world.as_mut().is_some_and(|world| !world.push(self.made, keys)) {
            self.world = None;
        }
        if self.world.is_none() && self.replica.objects().count() == recording.objects {
            let newest = self.replica.newest_tick();
            self.world = newest.and_then(|newest| PredictedWorld::start(&self.replica, newest, self.made));
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
    /// Corrections and repeated ticks at the start of the measurement, and in the end.
    before: Option<(u64, u64)>,
    now: (u64, u64),
}

impl PredictionMeasure {
    fn add(&mut self, world: &PredictedWorld, recording: &CubeRecording) {
        let Some(truth) = recording.state(world.tick() as usize).first() else { return };
        let (Some(own), Some((shown, _))) = (world.own(), world.shown().next()) else { return };
        self.simulated.add(distance(own.position, truth.position));
        self.shown.add(distance(shown.position, truth.position));
        self.now = (world.corrections(), world.repeated());
        self.before.get_or_insert(self.now);
    }

    fn figures(mut self, seconds: f64) -> PredictionFigures {
        let before = self.before.unwrap_or_default();
        PredictionFigures {
            simulated: self.simulated.percentile(99) * 100.0,
            shown: self.shown.percentile(99) * 100.0,
            corrections: self.now.0.saturating_sub(before.0) as f64 / seconds,
            repeated: self.now.1.saturating_sub(before.1) as f64 / seconds,
        }
    }
}

/// Runs the client of the first player. The server plays all keys at their ticks.
///
/// # Panics
///
/// If `slipgate-sync` refuses its own messages, which is a mistake of ours.
#[must_use]
pub fn run(recording: &CubeRecording, per_second: u32, loss: MessageLoss, seed: u64) -> PredictionFigures {
    let setup = StateRun { method: StateMethod::Ours(SmoothingDecay::default()), per_second, loss, has_inputs: true };
    let mut server = OurServer::new(recording, setup);
    let mut client = PredictingClient {
        replica: Replica::new(cube_fields::simulated().0, recording.objects as u16),
        others: [(); PLAYERS].map(|()| InputBuffer::new(0)),
        world: None,
        made: 0,
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
