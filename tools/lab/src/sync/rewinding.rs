//! Lag compensation: clients aim at cubes that they show, and the server looks up where the cubes were for them.

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{MAX_REWIND, ObjectId, Pose, PoseSample, Rewind, TickRate};

use super::cubes::CubeRecording;
use super::lossy::{LossyPath, MessageLoss};
use super::percentile::{Errors, distance};
use super::playout::{DELAY, SnapshotClient, SnapshotServer, TICKS, WARM_UP, time_of};

/// Ticks between two shots, none of which is a multiple of the ticks between two states.
const TICKS_OF_SHOT: usize = 7;
/// Ticks from the frame that a player saw until the server plays the shot: the next frame makes the input, for the tick
/// that the input clock is ahead. That covers 50 ms, the jitter of 10 ms and half a tick, and so is 5 ticks.
const TICKS_OF_SHOT_ON_PATH: usize = 1 + 5;
/// The shown tick travels with a fraction of 6 bits.
const FRACTIONS: f64 = 64.0;
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
}

/// A shot on its way: when it arrives, at which cube, the tick that the client showed, and the cube's place there.
struct Shot {
    due: usize,
    id: usize,
    seen: f64,
    shown: [f32; 3],
}

#[derive(Default)]
struct ShotMeasure {
    shots: usize,
    missed: usize,
    missed_without: usize,
    cut: usize,
    errors: Errors,
}

impl ShotMeasure {
    fn add(&mut self, shot: &Shot, rewind: &Rewind, recording: &CubeRecording) {
        let Some(seen) = rewind.at(ObjectId(shot.id as u16), shot.seen, shot.due as u32) else { return };
        let Some(present) = recording.state(shot.due).get(shot.id) else { return };
        let error = distance(seen.pose.position, shot.shown);
        self.shots += 1;
        self.missed += usize::from(error > HIT);
        self.missed_without += usize::from(distance(present.position, shot.shown) > HIT);
        let most = MAX_REWIND.as_secs_f64() * f64::from(TICKS);
        self.cut += usize::from(shot.due as f64 - shot.seen > most);
        self.errors.add(error);
    }

    fn figures(mut self) -> RewindFigures {
        let percent = |count: usize| count as f64 * 100.0 / self.shots.max(1) as f64;
        let (missed, missed_without, cut) = (percent(self.missed), percent(self.missed_without), percent(self.cut));
        RewindFigures { error: self.errors.percentile(99) * 100.0, missed, missed_without, cut }
    }
}

/// Runs a client that aims at the middle of each moving cube by turns, with this number of states in a second.
#[must_use]
pub fn run(
    recording: &CubeRecording,
    per_second: u32,
    loss: MessageLoss,
    jitter: Duration,
    seed: u64,
) -> RewindFigures {
    let rate = TickRate { per_second: TICKS, between_states: TICKS / per_second };
    let mut path = LossyPath::new(loss, DELAY, jitter, Random::new(seed, 0x52_57));
    let (mut server, mut client) = (SnapshotServer::new(recording), SnapshotClient::new(recording, rate));
    let (mut rewind, mut measure) = (Rewind::new(recording.objects as u16, rate), ShotMeasure::default());
    let mut shots = VecDeque::<Shot>::new();
    for tick in 1..recording.ticks() {
        let now = time_of(tick);
        server.take_reports(now);
        if (tick as u32).is_multiple_of(rate.between_states) {
            server.send(recording, tick, &mut path, now);
            keep(&mut rewind, recording, tick);
        }
        while let Some((at, message)) = path.pop(now) {
            client.receive(&message, at);
        }
        while let Some(shot) = shots.pop_front_if(|shot| shot.due <= tick) {
            measure.add(&shot, &rewind, recording);
        }
        let Some(at) = client.advance(now) else { continue };
        if tick >= WARM_UP && tick.is_multiple_of(TICKS_OF_SHOT) {
            shots.extend(aim(&client, recording, tick, at));
        }
    }
    measure.figures()
}

/// Keeps the poses of all cubes, as they are sent.
fn keep(rewind: &mut Rewind, recording: &CubeRecording, tick: usize) {
    for (id, state) in (0..).map(ObjectId).zip(recording.state(tick)) {
        let pose = Pose { position: state.position, rotation: state.rotation };
        let (tick, is_at_rest) = (tick as u32, state.is_at_rest);
        rewind.add(id, PoseSample { tick, pose, velocity: None, is_at_rest, teleports: 0 });
    }
}

/// Returns a shot at the next cube that moves.
fn aim(client: &SnapshotClient<'_>, recording: &CubeRecording, tick: usize, at: f64) -> Option<Shot> {
    let states = recording.state(at.max(0.0) as usize);
    let first = tick / TICKS_OF_SHOT;
    let id = (0..states.len()).map(|index| (first + index) % states.len());
    let id = id.into_iter().find(|id| states.get(*id).is_some_and(|state| !state.is_at_rest))?;
    let seen = (at * FRACTIONS).round() / FRACTIONS;
    Some(Shot { due: tick + TICKS_OF_SHOT_ON_PATH, id, seen, shown: client.shown(id, at)?.position })
}
