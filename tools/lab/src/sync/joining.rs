//! Clients that join a running world, or come back to it: how long it takes, and what the others get meanwhile.

use std::time::Duration;

use slipgate_sync::{ObjectId, PlayoutClock, PlayoutSamples, Pose, PoseSample, ReplicaChange, TickRate};

use super::bodies::STATES_PER_SECOND;
use super::crowd::{self, ClientLog, CrowdClient, CrowdRoom, CrowdRun, STATE_TIME, transfer_time};
use super::crowd_client::{CrowdReader, pose_of};
use super::crowd_world::{CrowdWorld, TICKS_PER_STATE};
use super::fanout;
use super::replay::DATAGRAM_HEADER_BYTES;
use super::sync_figures::Sent;

/// The rates of paths, in bits a second.
pub const RATES: [u64; 3] = [256_000, 1_000_000, 10_000_000];
/// The shares of datagrams that get lost.
pub const LOSSES: [f64; 3] = [0.0, 0.02, 0.13];
/// The rate of the clients that come back, of those that join together, and of those that are there before.
pub const USUAL_RATE: u64 = 1_000_000;
const USUAL_LOSS: f64 = 0.02;
/// The time of a datagram to a client that joins.
const ONE_WAY: Duration = Duration::from_millis(50);
/// The state at which clients join: six seconds after the start.
pub const JOIN: usize = 120;
/// States of a run: a client has four seconds to join.
pub const STATES: usize = JOIN + 80;
/// States of which a client gets nothing before it comes back: five seconds, which are more than 255 ticks.
const PAUSE: usize = 100;
/// Frames of a client in a second.
const FRAMES: u32 = 60;
/// Clients that are in a world of cubes before.
pub const OTHERS_OF_CUBES: usize = 4;
/// Clients that join together, of all clients of a fan-out.
pub const TOGETHER: usize = 50;

/// How a client comes into a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinKind {
    /// It joins.
    Joins,
    /// It joins, as one of 50.
    JoinsTogether,
    /// It was there, left, and joins again with the same `Replica`.
    Rejoins,
    /// Its path was interrupted for more than 255 ticks, so that no state is a baseline any more.
    WasInterrupted,
}

impl JoinKind {
    /// Returns the text for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joins => "joins",
            Self::JoinsTogether => "joins, worst of 50",
            Self::Rejoins => "joins again",
            Self::WasInterrupted => "after 5 s without messages",
        }
    }

    /// Returns the text for clients that come in one run.
    #[must_use]
    pub const fn name_of_group(self) -> &'static str {
        match self {
            Self::JoinsTogether => "50 clients",
            _ => "those of the table above",
        }
    }
}

/// A client that is measured, and its path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JoinSetup {
    /// How it comes into the world.
    pub kind: JoinKind,
    /// The rate of its path, in bits a second.
    pub rate: u64,
    /// The share of datagrams that get lost.
    pub loss: f64,
}

/// The figures of a client that joins. Those of several clients are the worst ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JoinFigures {
    /// The time until it has every object, in milliseconds.
    pub time: f64,
    /// The time that the bytes of one whole state take on its path, in milliseconds.
    pub whole: f64,
    /// What it was sent until then, with the headers of datagrams, in kB.
    pub sent: f64,
    /// What one whole state takes, with the headers of datagrams, in kB.
    pub useful: f64,
    /// The time until it first shows all objects, in milliseconds.
    pub shown: f64,
}

impl JoinFigures {
    /// Returns how much longer the join takes than the bytes of one whole state.
    #[must_use]
    pub fn share_of_transfer(&self) -> f64 {
        self.time / self.whole
    }

    fn worst(self, other: Self) -> Self {
        let (time, shown) = (self.time.max(other.time), self.shown.max(other.shown));
        let (sent, useful) = (self.sent.max(other.sent), self.useful.max(other.useful));
        Self { time, whole: self.whole.max(other.whole), sent, useful, shown }
    }
}

/// What a join does to the server and to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OtherFigures {
    /// The payload of another client and state while clients join, in bytes.
    pub bytes: f64,
    /// Messages of the others that are not the same, or arrive at another time, than without the join.
    pub changed: f64,
    /// The most encodings for a state while clients join.
    pub encodings: f64,
    /// The most encodings for a state at that time if no client joins.
    pub encodings_without: f64,
}

/// Returns the clients that are measured in one run, beside each other: what a client gets does not depend on others.
#[must_use]
pub fn setups() -> Vec<JoinSetup> {
    let joins = RATES.into_iter().flat_map(|rate| LOSSES.map(|loss| JoinSetup { kind: JoinKind::Joins, rate, loss }));
    let back = [JoinKind::Rejoins, JoinKind::WasInterrupted]
        .into_iter()
        .flat_map(|kind| LOSSES.map(|loss| JoinSetup { kind, rate: USUAL_RATE, loss }));
    joins.chain(back).collect()
}

/// Returns the setup of many clients that join together.
#[must_use]
pub const fn together() -> JoinSetup {
    JoinSetup { kind: JoinKind::JoinsTogether, rate: USUAL_RATE, loss: USUAL_LOSS }
}

fn joining(setup: JoinSetup, stream: u64) -> CrowdClient {
    let JoinSetup { kind, rate, loss } = setup;
    let was_there = matches!(kind, JoinKind::Rejoins | JoinKind::WasInterrupted);
    CrowdClient {
        one_way: ONE_WAY,
        loss,
        room: CrowdRoom::Rate(rate),
        joins: if was_there { 0 } else { JOIN },
        pause: if was_there { JOIN - PAUSE..JOIN } else { 0..0 },
        leaves: kind == JoinKind::Rejoins,
        stream,
    }
}

/// The runs of a world with one seed.
pub struct JoinRuns {
    /// Of each of [`setups`], and of [`together`] in a world of many clients.
    pub joins: Vec<(JoinSetup, JoinFigures)>,
    /// What the first setups do to the others, and what many clients that join together do to them.
    pub others: Vec<(JoinKind, OtherFigures)>,
}

/// Runs a world of cubes: clients come to four others.
#[must_use]
pub fn run_cubes(world: &CrowdWorld, seed: u64) -> JoinRuns {
    let (others, setups) = (others(OTHERS_OF_CUBES), setups());
    let without = crowd::run(world, &others, seed, STATES, None);
    let (joins, effect) = run_joins(world, &others, &without, &setups, seed);
    JoinRuns { joins, others: vec![(JoinKind::Joins, effect)] }
}

/// Runs a world of 200 clients: some come to all others, and 50 of them together.
#[must_use]
pub fn run_crowd(world: &CrowdWorld, seed: u64) -> JoinRuns {
    let setups = setups();
    let all = others(fanout::CLIENTS - setups.len());
    let without = crowd::run(world, &all, seed, STATES, None);
    let (mut joins, effect) = run_joins(world, &all, &without, &setups, seed);
    let (before, many) = (others(fanout::CLIENTS - TOGETHER), [together(); TOGETHER]);
    let (of_many, effect_of_many) = run_joins(world, &before, &without, &many, seed);
    let worst = of_many.into_iter().map(|(_, figures)| figures).reduce(JoinFigures::worst);
    joins.extend(worst.map(|figures| (together(), figures)));
    JoinRuns { joins, others: vec![(JoinKind::Joins, effect), (JoinKind::JoinsTogether, effect_of_many)] }
}

/// Returns clients that are there before.
fn others(count: usize) -> Vec<CrowdClient> {
    fanout::clients(count, USUAL_LOSS, CrowdRoom::Rate(USUAL_RATE))
}

fn run_joins(
    world: &CrowdWorld,
    others: &[CrowdClient],
    without: &CrowdRun,
    setups: &[JoinSetup],
    seed: u64,
) -> (Vec<(JoinSetup, JoinFigures)>, OtherFigures) {
    let streams = (fanout::CLIENTS as u64..).zip(setups);
    let new = streams.map(|(stream, setup)| joining(*setup, stream));
    let clients: Vec<CrowdClient> = others.iter().cloned().chain(new).collect();
    let run = crowd::run(world, &clients, seed, STATES, None);
    let whole = crowd::whole_world(world, JOIN);
    let logs = run.logs.get(others.len()..).unwrap_or(&[]);
    let joins = setups.iter().zip(logs).map(|(setup, log)| (*setup, measure(world, *setup, log, whole)));
    (joins.collect(), effect_on_others(&run, without, others.len()))
}

fn effect_on_others(run: &CrowdRun, without: &CrowdRun, others: usize) -> OtherFigures {
    let logs = || run.logs.iter().zip(&without.logs).take(others);
    let changed = logs().map(|(with, without)| changed_messages(with, without)).sum::<usize>();
    let sent = logs().flat_map(|(with, _)| with.sent.get(JOIN..STATES).unwrap_or(&[]));
    let bytes = sent.sum::<usize>() as f64 / ((STATES - JOIN) * others) as f64;
    let most = |run: &CrowdRun| run.encodings.iter().skip(JOIN).copied().max().unwrap_or(0) as f64;
    OtherFigures { bytes, changed: changed as f64, encodings: most(run), encodings_without: most(without) }
}

fn changed_messages(with: &ClientLog, without: &ClientLog) -> usize {
    let pairs = with.arrived.iter().zip(&without.arrived);
    let others = pairs.filter(|(one, two)| one.at != two.at || one.bytes != two.bytes).count();
    others + with.arrived.len().abs_diff(without.arrived.len())
}

/// Returns the bytes with the headers of datagrams.
const fn path_bytes(sent: Sent) -> usize {
    sent.bytes + sent.datagrams * DATAGRAM_HEADER_BYTES
}

/// A client that joins, with what it shows.
struct JoinClient<'w> {
    world: &'w CrowdWorld,
    reader: CrowdReader<'w>,
    clock: PlayoutClock,
    samples: PlayoutSamples,
    /// The objects of which it has a state since the join, or one that is still the same.
    has: Vec<bool>,
    missing: usize,
    /// When it had every object, and the tick of the last one.
    complete: Option<(Duration, u32)>,
}

const fn rate() -> TickRate {
    TickRate { per_second: STATES_PER_SECOND * TICKS_PER_STATE, between_states: TICKS_PER_STATE }
}

impl<'w> JoinClient<'w> {
    fn new(world: &'w CrowdWorld, log: &'w ClientLog) -> Self {
        Self {
            world,
            reader: CrowdReader::new(world, log),
            clock: PlayoutClock::new(rate()),
            samples: PlayoutSamples::new(world.objects as u16, rate()),
            has: vec![false; world.objects],
            missing: world.objects,
            complete: None,
        }
    }

    /// Reads what arrived until now.
    fn read(&mut self, now: Duration) {
        while let Some((at, header)) = self.reader.read(now) {
            self.clock.on_message(header, at);
            let state = CrowdWorld::state_of(header.tick);
            while let Some(change) = self.reader.replica.poll() {
                let (ReplicaChange::Appeared { id, .. } | ReplicaChange::Updated { id }) = change else { continue };
                let Some(object) = self.reader.replica.object(id) else { continue };
                let (tick, pose) = (object.tick(), pose_of(object));
                let pose = pose.map(|pose| Pose { position: pose.position, rotation: pose.rotation });
                if let Some(pose) = pose {
                    self.samples.add(id, PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 });
                }
                self.note(usize::from(id.0), state >= JOIN, at, tick);
            }
        }
    }

    /// Notes that a state of an object arrived.
    fn note(&mut self, id: usize, is_new: bool, at: Duration, tick: u32) {
        let Some(has) = self.has.get_mut(id).filter(|has| is_new && !**has) else { return };
        *has = true;
        self.missing -= 1;
        if self.missing == 0 {
            self.complete = Some((at, tick));
        }
    }

    /// Notes the objects that it has from before, and that have not changed since.
    fn note_unchanged(&mut self) {
        for id in 0..self.world.objects {
            let Some(state) = self.reader.state_of(id) else { continue };
            let change = self.world.next_changes(state).get(id).copied().unwrap_or(0);
            let tick = CrowdWorld::tick(state);
            self.note(id, change as usize > JOIN, STATE_TIME * JOIN as u32, tick);
        }
    }

    /// Forgets everything, for another connection.
    fn reset(&mut self) {
        self.reader.replica.reset();
        while self.reader.replica.poll().is_some() {}
        (self.clock, self.samples) =
            (PlayoutClock::new(rate()), PlayoutSamples::new(self.world.objects as u16, rate()));
    }

    /// Returns whether all objects are shown in a frame, as they were at the join or later.
    fn shows_all(&mut self, kind: JoinKind, now: Duration) -> bool {
        let (Some(at), Some((_, tick))) = (self.clock.advance(now), self.complete) else { return false };
        let newest = self.reader.replica.newest_tick().unwrap_or(0);
        match kind {
            // An old state of each object is shown all the time.
            JoinKind::WasInterrupted => at >= f64::from(tick),
            _ => (0..self.world.objects as u16).all(|id| self.samples.shown(ObjectId(id), at, newest).is_some()),
        }
    }
}

/// Measures a client that joins at the state [`JOIN`]. An event that does not happen counts as the whole rest of the
/// run.
fn measure(world: &CrowdWorld, setup: JoinSetup, log: &ClientLog, whole: Sent) -> JoinFigures {
    let (start, end) = (STATE_TIME * JOIN as u32, STATE_TIME * STATES as u32);
    let mut client = JoinClient::new(world, log);
    if setup.kind == JoinKind::WasInterrupted || setup.kind == JoinKind::Rejoins {
        client.read_frames(start);
    }
    if setup.kind == JoinKind::Rejoins {
        client.reset();
    }
    client.note_unchanged();
    let (mut now, mut shown) = (start, end);
    while now < end {
        client.read(now);
        if client.shows_all(setup.kind, now) {
            shown = now;
            break;
        }
        now += Duration::from_secs(1) / FRAMES;
    }
    let complete = client.complete.map_or(end, |(at, _)| at);
    // With what got lost, and without what was on its way at the start and in the end.
    let is_counted = |at: Duration| at > start + ONE_WAY && at <= complete;
    let sent: usize = log.datagrams.iter().filter(|(at, _)| is_counted(*at)).map(|(_, bytes)| bytes).sum();
    let transfer = ONE_WAY + transfer_time(path_bytes(whole), setup.rate);
    let millis = |time: Duration| time.as_secs_f64() * 1000.0;
    JoinFigures {
        time: millis(complete - start),
        whole: millis(transfer),
        sent: sent as f64 / 1000.0,
        useful: path_bytes(whole) as f64 / 1000.0,
        shown: millis(shown - start),
    }
}

impl JoinClient<'_> {
    /// Runs the frames from the start to this time.
    fn read_frames(&mut self, end: Duration) {
        let mut now = Duration::ZERO;
        while now < end {
            self.read(now);
            self.clock.advance(now);
            now += Duration::from_secs(1) / FRAMES;
        }
    }
}
