//! Clients that only show the cubes: snapshot interpolation of the thesis, and the playout of `slipgate-sync`.

use std::sync::Arc;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{
    InputReport, ObjectId, ObjectKind, PlayoutClock, PlayoutSamples, Pose, PoseSample, Replica, ReplicaChange,
    Replicator, Schema, StateHeader, TickRate,
};

use super::cube_fields;
use super::cubes::CubeRecording;
use super::lossy::{LossyPath, MessageLoss};
use super::percentile::{Errors, distance};

pub(super) const TICKS: u32 = 60;
/// Ticks before the measurement starts: half a minute, in which the clock settles.
pub const WARM_UP: usize = 1800;
/// Frames of the start: five seconds from the first one that shows something.
const START_FRAMES: usize = 300;
pub(super) const DELAY: Duration = Duration::from_millis(50);
const LOSS_REPORT: Duration = Duration::from_millis(150);
/// The thesis sends 10 snapshots a second and shows them 100 ms later (§3.4.2).
const THESIS_PERIOD: u32 = TICKS / 10;
const THESIS_DELAY: f64 = 6.0;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayoutFigures {
    /// Frames in which nothing newer than the shown moment is there, in percent.
    pub starved: f64,
    /// The same in the first five seconds.
    pub starved_at_first: f64,
    /// The same after the first five seconds and before the others.
    pub starved_early: f64,
    /// How far the client is behind messages without jitter, in milliseconds.
    pub delay: f64,
    /// The same after the first five seconds and before the others.
    pub delay_early: f64,
    /// The 99th percentile of the distance between what is shown and the server's cube at the tick shown, in
    /// centimetres.
    pub error: f64,
    /// The payload, in kbit/s; 0 for the thesis: its snapshots are in another table.
    pub payload: f64,
}

/// Frames of a part of a run.
#[derive(Default)]
struct PlayoutFrames {
    count: usize,
    starved: usize,
    delays: f64,
}

impl PlayoutFrames {
    fn add(&mut self, delay: f64, is_starved: bool) {
        self.count += 1;
        self.starved += usize::from(is_starved);
        self.delays += delay;
    }

    fn starved(&self) -> f64 {
        self.starved as f64 * 100.0 / self.count.max(1) as f64
    }

    fn delay(&self) -> f64 {
        self.delays / self.count.max(1) as f64
    }
}

#[derive(Default)]
struct PlayoutMeasure {
    /// By how much the delay of the path grows each second.
    growth: Duration,
    first: PlayoutFrames,
    early: PlayoutFrames,
    settled: PlayoutFrames,
    errors: Errors,
}

impl PlayoutMeasure {
    /// Adds a frame that shows the tick `at`. Returns whether its errors are to be added.
    fn add(&mut self, recording: &CubeRecording, tick: usize, at: f64, is_starved: bool) -> bool {
        debug_assert!(at < recording.ticks() as f64, "clients are behind");
        let now = time_of(tick).as_secs_f64();
        let path = DELAY.as_secs_f64() + self.growth.as_secs_f64() * now;
        let is_settled = tick >= WARM_UP;
        let frames = match self.first.count {
            _ if is_settled => &mut self.settled,
            START_FRAMES.. => &mut self.early,
            _ => &mut self.first,
        };
        frames.add((now - path - at / f64::from(TICKS)) * 1000.0, is_starved);
        is_settled
    }

    fn add_error(&mut self, recording: &CubeRecording, id: usize, at: f64, shown: [f32; 3]) {
        let (before, share) = (at.max(0.0) as usize, at.fract() as f32);
        let (Some(one), Some(two)) = (recording.state(before).get(id), recording.state(before + 1).get(id)) else {
            return;
        };
        let truth = [0, 1, 2].map(|axis: usize| {
            let part = |position: [f32; 3]| position.get(axis).copied().unwrap_or(0.0);
            part(one.position) + (part(two.position) - part(one.position)) * share
        });
        self.errors.add(distance(shown, truth));
    }

    /// Adds the errors of all cubes between the two snapshots around a moment.
    fn add_snapshots(&mut self, recording: &CubeRecording, at: f64, snapshots: &[u32]) {
        let next = snapshots.partition_point(|snapshot| f64::from(*snapshot) < at);
        let Some(before) = next.checked_sub(1).and_then(|index| snapshots.get(index)).copied() else { return };
        let after = snapshots.get(next).copied().unwrap_or(before);
        let share = ((at - f64::from(before)) / f64::from(after - before).max(1.0)).clamp(0.0, 1.0) as f32;
        let pairs = recording.state(before as usize).iter().zip(recording.state(after as usize));
        for (id, (one, two)) in pairs.enumerate() {
            let mut shown = one.position;
            shown.iter_mut().zip(two.position).for_each(|(part, to)| *part += (to - *part) * share);
            self.add_error(recording, id, at, shown);
        }
    }

    fn figures(mut self, bytes: usize, seconds: f64) -> PlayoutFigures {
        PlayoutFigures {
            starved: self.settled.starved(),
            starved_at_first: self.first.starved(),
            starved_early: self.early.starved(),
            delay: self.settled.delay(),
            delay_early: self.early.delay(),
            error: self.errors.percentile(99) * 100.0,
            payload: bytes as f64 * 8.0 / 1000.0 / seconds,
        }
    }
}

/// Runs the thesis's snapshot interpolation: 10 snapshots a second, shown 100 ms after their arrival.
#[must_use]
pub fn thesis(recording: &CubeRecording, loss: MessageLoss, jitter: Duration, seed: u64) -> PlayoutFigures {
    let mut path = LossyPath::new(loss, DELAY, jitter, Random::new(seed, 0x50_54));
    let (mut snapshots, mut start, mut measure) = (Vec::<u32>::new(), None, PlayoutMeasure::default());
    for tick in 1..recording.ticks() {
        let now = time_of(tick);
        if (tick as u32).is_multiple_of(THESIS_PERIOD) {
            path.push(tick as u32, now);
        }
        while let Some((at, snapshot)) = path.pop(now) {
            start.get_or_insert(at.as_secs_f64() * f64::from(TICKS) - f64::from(snapshot));
            // Late snapshots are refused.
            if snapshots.last().is_none_or(|newest| *newest < snapshot) {
                snapshots.push(snapshot);
            }
        }
        let Some(start) = start else { continue };
        let at = now.as_secs_f64() * f64::from(TICKS) - start - THESIS_DELAY;
        let is_starved = snapshots.last().is_none_or(|newest| f64::from(*newest) < at);
        if measure.add(recording, tick, at, is_starved) {
            measure.add_snapshots(recording, at, &snapshots);
        }
    }
    measure.figures(0, seconds_of(recording))
}

/// How a client with `slipgate-sync` is run.
#[derive(Clone, Copy, Debug)]
pub struct PlayoutRun {
    /// States in a second.
    pub per_second: u32,
    /// The losses of the path.
    pub loss: MessageLoss,
    /// The jitter of the path.
    pub jitter: Duration,
    /// By how much the delay of the path grows each second.
    pub growth: Duration,
    /// The seed of the path.
    pub seed: u64,
    /// Whether states have the velocities of cubes.
    pub has_velocities: bool,
}

impl PlayoutRun {
    /// Returns the run of a client that knows no velocities, over a path with an even delay.
    #[must_use]
    pub const fn new(per_second: u32, loss: MessageLoss, jitter: Duration, seed: u64) -> Self {
        Self { per_second, loss, jitter, growth: Duration::ZERO, seed, has_velocities: false }
    }
}

/// Runs `slipgate-sync`.
///
/// # Panics
///
/// If `slipgate-sync` refuses its own messages, which is a mistake of ours.
#[must_use]
pub fn ours(recording: &CubeRecording, run: PlayoutRun) -> PlayoutFigures {
    let PlayoutRun { per_second, loss, jitter, growth, seed, has_velocities } = run;
    let rate = TickRate { per_second: TICKS, between_states: TICKS / per_second };
    let mut path = LossyPath::new(loss, DELAY, jitter, Random::new(seed, 0x50_4f)).with_growth(growth);
    let (schema, kind) = if has_velocities { cube_fields::shown_with_velocities() } else { cube_fields::shown() };
    let mut server = SnapshotServer::new(recording, (Arc::clone(&schema), kind));
    let mut client = SnapshotClient::new(recording, rate, schema);
    let (mut measure, mut bytes) = (PlayoutMeasure { growth, ..PlayoutMeasure::default() }, 0);
    for tick in 1..recording.ticks() {
        let now = time_of(tick);
        server.take_reports(now);
        if (tick as u32).is_multiple_of(rate.between_states) {
            let sent = server.send(recording, tick, &mut path, now);
            bytes += if tick >= WARM_UP { sent } else { 0 };
        }
        while let Some((at, message)) = path.pop(now) {
            client.receive(&message, at);
        }
        let Some(at) = client.advance(now) else { continue };
        if measure.add(recording, tick, at, client.clock.is_starved()) {
            for id in 0..recording.objects {
                if let Some(pose) = client.shown(id, at) {
                    measure.add_error(recording, id, at, pose.position);
                }
            }
        }
    }
    measure.figures(bytes, seconds_of(recording))
}

pub(super) fn time_of(tick: usize) -> Duration {
    Duration::from_micros(tick as u64 * 1_000_000 / u64::from(TICKS))
}

fn seconds_of(recording: &CubeRecording) -> f64 {
    recording.ticks().saturating_sub(WARM_UP) as f64 / f64::from(TICKS)
}

pub(super) struct SnapshotServer {
    replicator: Replicator,
    viewer: slipgate_sync::ViewerId,
    reports: Vec<(Duration, u64, bool)>,
}

impl SnapshotServer {
    pub(super) fn new(recording: &CubeRecording, (schema, kind): (Arc<Schema>, ObjectKind)) -> Self {
        let objects = recording.objects as u16;
        let mut replicator = Replicator::new(schema, objects, 1, TICKS);
        let viewer = replicator.add_viewer().expect("the first client");
        (0..objects).for_each(|id| replicator.spawn(ObjectId(id), kind).map(drop).expect("a free id"));
        Self { replicator, viewer, reports: Vec::new() }
    }

    pub(super) fn take_reports(&mut self, now: Duration) {
        for (_, tag, has_arrived) in self.reports.extract_if(.., |report| report.0 <= now) {
            if has_arrived {
                self.replicator.on_acknowledged(self.viewer, tag);
            } else {
                self.replicator.on_lost(self.viewer, tag);
            }
        }
    }

    /// Returns what clients get of a cube at this tick.
    pub(super) fn sample(&mut self, id: ObjectId, tick: usize) -> Option<PoseSample> {
        cube_fields::sent_sample(&self.replicator.object(id)?, tick as u32)
    }

    /// Puts the report of the client's inputs into its next message.
    pub(super) fn set_report(&mut self, report: Option<InputReport>) {
        self.replicator.set_report(self.viewer, report);
    }

    pub(super) fn send(
        &mut self,
        recording: &CubeRecording,
        tick: usize,
        path: &mut LossyPath<Vec<u8>>,
        now: Duration,
    ) -> usize {
        for (id, state) in (0..).zip(recording.state(tick)) {
            let mut object = self.replicator.object(ObjectId(id)).expect("it was spawned");
            cube_fields::set_shown(&mut object, state).expect("the fields of a cube");
        }
        self.replicator.commit(tick as u32).expect("ticks increase");
        let (mut buf, mut total) = ([0; 1200], 0);
        while let Some(message) = self.replicator.write(self.viewer, &mut buf) {
            let has_arrived = path.push(buf.get(..message.bytes).unwrap_or(&[]).to_vec(), now);
            let report = if has_arrived { 2 * DELAY } else { LOSS_REPORT };
            self.reports.push((now + report, message.tag, has_arrived));
            total += message.bytes;
        }
        total
    }
}

pub(super) struct SnapshotClient {
    replica: Replica,
    clock: PlayoutClock,
    samples: PlayoutSamples,
}

impl SnapshotClient {
    pub(super) fn new(recording: &CubeRecording, rate: TickRate, schema: Arc<Schema>) -> Self {
        let objects = recording.objects as u16;
        let (clock, samples) = (PlayoutClock::new(rate), PlayoutSamples::new(objects, rate));
        Self { replica: Replica::new(schema, objects), clock, samples }
    }

    pub(super) fn receive(&mut self, message: &[u8], at: Duration) -> StateHeader {
        let header = self.replica.read(message).expect("a message of the replicator");
        self.clock.on_message(header, at);
        while let Some(change) = self.replica.poll() {
            let (ReplicaChange::Appeared { id, .. } | ReplicaChange::Updated { id }) = change else { continue };
            if let Some(sample) = self.replica.object(id).and_then(cube_fields::shown_sample) {
                self.samples.add(id, sample);
            }
        }
        header
    }

    /// Moves the timeline on. Returns the tick that is shown now.
    pub(super) fn advance(&mut self, now: Duration) -> Option<f64> {
        self.clock.advance(now)
    }

    /// Returns what is shown of a cube at a tick.
    pub(super) fn shown(&self, id: usize, at: f64) -> Option<Pose> {
        let newest = self.replica.newest_tick().unwrap_or(0);
        self.samples.shown(ObjectId(id as u16), at, newest).map(|(pose, _)| pose)
    }
}
