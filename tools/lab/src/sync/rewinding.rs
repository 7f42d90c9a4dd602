//! Lag compensation: clients aim at cubes that they show, and the server looks up where the cubes were for them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{InputBuffer, InputClock, InputLog, MAX_INPUT_BYTES, MAX_REWIND, ObjectId, Rewind, TickRate};

use super::cube_fields;
use super::cubes::CubeRecording;
use super::lossy::{LossyPath, MessageLoss};
use super::percentile::{Errors, distance};
use super::playout::{DELAY, SnapshotClient, SnapshotServer, TICKS, WARM_UP, time_of};

/// Inputs between two shots. None is a multiple of the ticks between two states.
const TICKS_OF_SHOT: u32 = 7;
/// A shot at the middle of a cube hits if the cube is not further off than half of its side, in metres.
const HIT: f32 = 0.45;

/// The figures of a run. Lengths are in centimetres.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RewindFigures {
    /// The 99th percentile of the distance between what the client showed and what the server looked up.
    pub error: f64,
    /// Shots that miss, in percent.
    pub missed: f64,
    /// Shots that would miss without lag compensation, in percent.
    pub missed_without: f64,
    /// Shots at what is further back than a server rewinds, in percent.
    pub cut: f64,
    /// Shots of which the input comes too late, so that the server does not play them, in percent of all shots.
    pub late: f64,
    /// How far inputs are ahead of the server's tick when they are made, in milliseconds.
    pub lead: f64,
}

/// A shot on its way: the tick of its input, at which cube, and the cube's place that the client showed.
struct Shot {
    tick: u32,
    id: usize,
    shown: [f32; 3],
}

#[derive(Default)]
struct ShotMeasure {
    shots: usize,
    missed: usize,
    missed_without: usize,
    cut: usize,
    late: usize,
    errors: Errors,
}

impl ShotMeasure {
    /// Adds a shot that the server plays now. `seen` is the tick that the client showed, as far as the server knows.
    fn add(&mut self, shot: &Shot, seen: f64, rewind: &Rewind, recording: &CubeRecording) {
        let Some(found) = rewind.at(ObjectId(shot.id as u16), seen, shot.tick) else { return };
        let Some(present) = recording.state(shot.tick as usize).get(shot.id) else { return };
        let error = distance(found.pose.position, shot.shown);
        self.shots += 1;
        self.missed += usize::from(error > HIT);
        self.missed_without += usize::from(distance(present.position, shot.shown) > HIT);
        let most = MAX_REWIND.as_secs_f64() * f64::from(TICKS);
        self.cut += usize::from(f64::from(shot.tick) - seen > most);
        self.errors.add(error);
    }

    fn figures(mut self, lead: f64) -> RewindFigures {
        let percent = |count: usize, all: usize| count as f64 * 100.0 / all.max(1) as f64;
        let [missed, missed_without, cut] =
            [self.missed, self.missed_without, self.cut].map(|count| percent(count, self.shots));
        let late = percent(self.late, self.shots + self.late);
        RewindFigures { error: self.errors.percentile(99) * 100.0, missed, missed_without, cut, late, lead }
    }
}

/// A player: what it shows, its clock, and the inputs that it makes for it.
struct Shooter {
    view: SnapshotClient,
    clock: InputClock,
    log: InputLog,
    jitter: Duration,
    /// The newest tick with an input.
    made: Option<u32>,
    /// The tick that the frame on the screen shows.
    shown: Option<f64>,
    /// The sum of all leads, and how many there are.
    leads: (f64, u32),
}

impl Shooter {
    fn new(view: SnapshotClient, jitter: Duration) -> Self {
        let clock = InputClock::new(TICKS);
        Self { view, clock, log: InputLog::new(), jitter, made: None, shown: None, leads: (0.0, 0) }
    }

    fn receive(&mut self, message: &[u8], at: Duration) {
        let header = self.view.receive(message, at);
        self.clock.set(header.tick, 2 * DELAY, self.jitter, at);
        if let Some(report) = header.report.filter(|report| self.log.on_report(*report)) {
            self.clock.on_report(report);
        }
    }

    /// Makes the inputs that are due, for what the frame before showed, and sends them. Then it shows the next frame.
    /// Adds the shots of the inputs.
    fn frame(&mut self, world: &CubeRecording, up: &mut LossyPath<Vec<u8>>, shots: &mut VecDeque<Shot>, now: Duration) {
        let newest = self.clock.advance(now).filter(|newest| self.made.is_none_or(|made| made < *newest));
        for tick in newest.map_or(0..0, |newest| self.made.map_or(newest, |made| made + 1)..newest + 1) {
            self.log.push(tick, tick % 7, self.shown);
            self.note_lead(tick, now);
            if let Some(at) = self.shown.filter(|_| tick.is_multiple_of(TICKS_OF_SHOT) && tick >= WARM_UP as u32) {
                shots.extend(aim(&self.view, world, tick, at));
            }
        }
        if newest.is_some() {
            let mut buf = [0; MAX_INPUT_BYTES];
            let length = self.log.write(None, &mut buf);
            up.push(buf.get(..length).unwrap_or(&[]).to_vec(), now);
            self.made = newest;
        }
        self.shown = self.view.advance(now);
    }

    fn note_lead(&mut self, tick: u32, now: Duration) {
        if now >= time_of(WARM_UP) {
            let (sum, count) = self.leads;
            let lead = f64::from(tick) / f64::from(TICKS) - now.as_secs_f64();
            self.leads = (sum + lead * 1000.0, count + 1);
        }
    }
}

/// Runs a client that aims at the middle of each moving cube by turns, with this number of states in a second. Its
/// inputs get lost as often as the states.
#[must_use]
pub fn run(
    recording: &CubeRecording,
    per_second: u32,
    loss: MessageLoss,
    jitter: Duration,
    seed: u64,
) -> RewindFigures {
    let rate = TickRate { per_second: TICKS, between_states: TICKS / per_second };
    let mut random = Random::new(seed, 0x52_50);
    // The frames of a client are somewhere between the ticks of the server.
    let phase = random.duration_between(Duration::ZERO, time_of(1));
    let mut down = LossyPath::<Vec<u8>>::new(loss, DELAY, jitter, Random::new(seed, 0x52_57));
    let mut up = LossyPath::<Vec<u8>>::new(loss, DELAY, jitter, Random::new(seed, 0x52_55));
    let (schema, kind) = cube_fields::shown();
    let mut server = SnapshotServer::new(recording, (Arc::clone(&schema), kind));
    let mut client = Shooter::new(SnapshotClient::new(recording, rate, schema), jitter);
    let (mut rewind, mut measure) = (Rewind::new(recording.objects as u16, rate), ShotMeasure::default());
    let (mut inputs, mut shots) = (InputBuffer::new(0), VecDeque::<Shot>::new());
    for tick in 1..recording.ticks() {
        let now = time_of(tick);
        server.take_reports(now);
        while let Some((at, message)) = up.pop(now) {
            let result = inputs.read(&message, at.as_secs_f64() * f64::from(TICKS));
            debug_assert_eq!(result, Ok(None), "inputs of the client");
        }
        let is_missing = inputs.keys(tick as u32).is_missing;
        if (tick as u32).is_multiple_of(rate.between_states) {
            server.set_report(inputs.report());
            server.send(recording, tick, &mut down, now);
            keep(&mut rewind, &mut server, recording.objects, tick);
        }
        while let Some(shot) = shots.pop_front_if(|shot| shot.tick <= tick as u32) {
            if is_missing || (shot.tick as usize) < tick {
                measure.late += 1;
            } else {
                measure.add(&shot, inputs.shown(shot.tick), &rewind, recording);
            }
        }
        let frame = now + phase;
        while let Some((at, message)) = down.pop(frame) {
            client.receive(&message, at);
        }
        client.frame(recording, &mut up, &mut shots, frame);
    }
    let (leads, count) = client.leads;
    measure.figures(leads / f64::from(count.max(1)))
}

/// Keeps the poses of all cubes, as they are sent.
fn keep(rewind: &mut Rewind, server: &mut SnapshotServer, objects: usize, tick: usize) {
    for id in (0..objects as u16).map(ObjectId) {
        if let Some(sample) = server.sample(id, tick) {
            rewind.add(id, sample);
        }
    }
}

/// Returns the shot of an input at the next cube that moves.
fn aim(client: &SnapshotClient, recording: &CubeRecording, tick: u32, at: f64) -> Option<Shot> {
    let states = recording.state(at.max(0.0) as usize);
    let first = (tick / TICKS_OF_SHOT) as usize;
    let id = (0..states.len()).map(|index| (first + index) % states.len());
    let id = id.into_iter().find(|id| states.get(*id).is_some_and(|state| !state.is_at_rest))?;
    Some(Shot { tick, id, shown: client.shown(id, at)?.position })
}
