//! Server and client both simulate the cubes: the thesis's state synchronisation, and `slipgate-sync`.

#![expect(clippy::indexing_slicing, reason = "ids, ticks and axes are those of one recording")]

use std::collections::VecDeque;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{
    InputBuffer, InputLog, MAX_INPUT_BYTES, ObjectId, PlayoutClock, Replica, ReplicaChange, Replicator, SmoothingDecay,
    StateHeader, TickRate, ViewerId,
};
use slipgate_worlds::{CubeState, PLAYERS, PlayerInput};

use super::cube_fields;
use super::cubes::CubeRecording;
use super::lossy::{LossyPath, MessageLoss};
use super::percentile::{Errors, distance};
use super::simulating::{Correction, SimulatedCubes, StepKeys};
use super::thesis::{THESIS_BUFFER, THESIS_MESSAGE_BYTES, ThesisPriorities};

/// Ticks in a second.
const TICKS: u32 = 60;
/// Ticks before the measurement starts: five seconds.
pub(super) const WARM_UP: usize = 300;
/// The time of a message on its way (state.md: 50 ms one way).
const DELAY: Duration = Duration::from_millis(50);
/// The time after which the server knows that a message got lost.
pub(super) const LOSS_REPORT: Duration = Duration::from_millis(150);
/// Bytes of a datagram around a message: IPv4 and UDP 28, encryption 21, acknowledgements 9, frame and receipt 10.
const HEADER_BYTES: usize = 28 + 21 + 9 + 10;

/// The error of a cube that is astray, in metres.
const ASTRAY: f32 = 0.25;

/// A method of state synchronisation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateMethod {
    /// The thesis's.
    Thesis,
    /// `slipgate-sync`.
    Ours(SmoothingDecay),
}

/// What is simulated, and over which path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateRun {
    /// The method.
    pub method: StateMethod,
    /// Messages in a second: 20 or 60.
    pub per_second: u32,
    /// The losses.
    pub loss: MessageLoss,
    /// Whether clients get the keys of all players.
    pub has_inputs: bool,
}

/// The figures of a run. Lengths are in centimetres.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateFigures {
    /// The rate on the path with all headers, in kbit/s.
    pub path_rate: f64,
    /// The 99th percentile of the distance between simulated cubes and the server's at the same tick.
    pub simulated: f64,
    /// The same of what is shown.
    pub shown: f64,
    /// The 99th percentile of how far a cube is set or slides in a frame, where one is corrected.
    pub jump: f64,
    /// How far the client is behind the quickest messages, in milliseconds.
    pub delay: f64,
    /// The longest time for which a simulated cube is more than 25 cm off, in seconds.
    pub astray: f64,
}

/// A message on its way to the client.
pub(super) struct CubeMessage {
    pub(super) tick: u32,
    /// Ours: as on the wire.
    pub(super) bytes: Vec<u8>,
    pub(super) drivers: Vec<u8>,
    /// The thesis's: the states themselves and the keys of the last ticks.
    states: Vec<(ObjectId, CubeState)>,
    pub(super) tag: u64,
}

/// Runs a method on a recorded world.
#[must_use]
pub fn run(recording: &CubeRecording, setup: StateRun, seed: u64) -> StateFigures {
    match setup.method {
        StateMethod::Thesis => Exchange::new(recording, setup, seed, ThesisServer::new(recording, setup)).run(),
        StateMethod::Ours(_) => Exchange::new(recording, setup, seed, OurServer::new(recording, setup)).run(),
    }
}

pub(super) trait StateServer {
    /// Returns the message of a tick, and its bytes on the wire.
    fn write(&mut self, recording: &CubeRecording, tick: u32) -> (CubeMessage, usize);
    /// Notes what happened to messages.
    fn on_result(&mut self, message: u64, tick: u32, has_arrived: bool);
}

struct ThesisServer {
    priorities: ThesisPriorities,
    period: u32,
    has_inputs: bool,
}

impl ThesisServer {
    fn new(recording: &CubeRecording, setup: StateRun) -> Self {
        Self {
            priorities: ThesisPriorities::new(recording.objects),
            period: TICKS / setup.per_second,
            has_inputs: setup.has_inputs,
        }
    }
}

impl StateServer for ThesisServer {
    fn write(&mut self, recording: &CubeRecording, tick: u32) -> (CubeMessage, usize) {
        let states = recording.state(tick as usize);
        let chosen = self.priorities.choose(states);
        let states = chosen.iter().map(|id| (ObjectId(*id as u16), states[*id])).collect();
        // The keys since the message before; they cost nothing here, in favour of the thesis.
        let ticks = if self.has_inputs { tick.saturating_sub(self.period) + 1..tick + 1 } else { 0..0 };
        let drivers = ticks.flat_map(|tick| recording.inputs(tick as usize)).flat_map(|input| input.0.to_le_bytes());
        let drivers = drivers.collect();
        (CubeMessage { tick, bytes: Vec::new(), drivers, states, tag: 0 }, THESIS_MESSAGE_BYTES)
    }

    fn on_result(&mut self, _: u64, _: u32, _: bool) {}
}

pub(super) struct OurServer {
    replicator: Replicator,
    viewer: ViewerId,
    logs: [InputLog; PLAYERS],
    has_inputs: bool,
    /// Ticks by which the players' keys are early at the server.
    early: u32,
    logged: u32,
}

impl OurServer {
    pub(super) fn new(recording: &CubeRecording, setup: StateRun) -> Self {
        let (schema, kind) = cube_fields::simulated();
        let objects = recording.objects as u16;
        let mut replicator = Replicator::new(schema, objects, 1, TICKS);
        let viewer = replicator.add_viewer().expect("the first client");
        (0..objects).for_each(|id| replicator.spawn(ObjectId(id), kind).map(drop).expect("a free id"));
        let logs = [(); PLAYERS].map(|()| InputLog::new());
        Self { replicator, viewer, logs, has_inputs: setup.has_inputs, early: 0, logged: 0 }
    }

    /// Returns a server that has the players' keys this number of ticks early, and sends them on at once.
    pub(super) fn with_early_keys(self, early: u32) -> Self {
        Self { early, ..self }
    }
}

impl StateServer for OurServer {
    fn write(&mut self, recording: &CubeRecording, tick: u32) -> (CubeMessage, usize) {
        for (id, state) in (0..).zip(recording.state(tick as usize)) {
            let mut object = self.replicator.object(ObjectId(id)).expect("it was spawned");
            cube_fields::set_simulated(&mut object, state).expect("the fields of a cube");
        }
        self.replicator.commit(tick).expect("ticks increase");
        let mut drivers = Vec::new();
        if self.has_inputs {
            let known = tick + self.early;
            for logged in self.logged + 1..=known {
                let inputs = recording.inputs(logged as usize);
                self.logs.iter_mut().zip(inputs).for_each(|(log, input)| log.push(logged, input.0, None));
            }
            self.logged = known;
            for log in &self.logs {
                let mut buf = [0; MAX_INPUT_BYTES];
                let length = log.write(None, &mut buf);
                drivers.push(length as u8);
                drivers.extend_from_slice(&buf[..length]);
            }
        }
        let mut buf = [0; 1100];
        let message = self.replicator.write(self.viewer, &mut buf).expect("the first message of this tick");
        let (bytes, tag) = (buf[..message.bytes].to_vec(), message.tag);
        let size = bytes.len() + drivers.len();
        (CubeMessage { tick, bytes, drivers, states: Vec::new(), tag }, size)
    }

    fn on_result(&mut self, tag: u64, tick: u32, has_arrived: bool) {
        if has_arrived {
            self.replicator.on_acknowledged(self.viewer, tag);
            self.logs.iter_mut().for_each(|log| log.on_confirmed(tick));
        } else {
            self.replicator.on_lost(self.viewer, tag);
        }
    }
}

struct Client {
    cubes: SimulatedCubes,
    /// Ours.
    clock: PlayoutClock,
    replica: Replica,
    buffers: [InputBuffer; PLAYERS],
    /// The thesis's: the keys of ticks, and how far the timeline is behind the messages.
    keys: Vec<Option<[PlayerInput; PLAYERS]>>,
    held: [PlayerInput; PLAYERS],
    thesis_start: Option<(Duration, u32)>,
}

struct Exchange<'r, S> {
    recording: &'r CubeRecording,
    setup: StateRun,
    server: S,
    client: Client,
    path: LossyPath<CubeMessage>,
    results: VecDeque<(Duration, u64, u32, bool)>,
    bytes: usize,
    simulated: Errors,
    shown: Errors,
    jumps: Errors,
    delays: Vec<f64>,
    before: Vec<[f32; 3]>,
    /// For how many frames each cube has been astray, and the most of these frames.
    astray: Vec<u32>,
    longest_astray: u32,
}

impl<'r, S: StateServer> Exchange<'r, S> {
    fn new(recording: &'r CubeRecording, setup: StateRun, seed: u64, server: S) -> Self {
        let rate = TickRate { per_second: TICKS, between_states: TICKS / setup.per_second };
        let objects = recording.objects as u16;
        let smoothing = match setup.method {
            StateMethod::Thesis => None,
            StateMethod::Ours(decay) => Some(decay),
        };
        let client = Client {
            cubes: SimulatedCubes::new(recording.objects, smoothing),
            clock: PlayoutClock::new(rate),
            replica: Replica::new(cube_fields::simulated().0, objects),
            buffers: [(); PLAYERS].map(|()| InputBuffer::new(0)),
            keys: vec![None; recording.ticks() + 1],
            held: [PlayerInput::NONE; PLAYERS],
            thesis_start: None,
        };
        let path = LossyPath::new(setup.loss, DELAY, Duration::ZERO, Random::new(seed, 0x42_4f));
        Self {
            recording,
            setup,
            server,
            client,
            path,
            results: VecDeque::new(),
            bytes: 0,
            simulated: Errors::default(),
            shown: Errors::default(),
            jumps: Errors::default(),
            delays: Vec::new(),
            before: vec![[0.0; 3]; recording.objects],
            astray: vec![0; recording.objects],
            longest_astray: 0,
        }
    }

    fn run(mut self) -> StateFigures {
        let period = (TICKS / self.setup.per_second) as usize;
        for tick in 1..=self.recording.ticks() {
            let now = Duration::from_micros(tick as u64 * 1_000_000 / u64::from(TICKS));
            while self.results.front().is_some_and(|result| result.0 <= now) {
                let (_, tag, of, has_arrived) = self.results.pop_front().expect("there is one");
                self.server.on_result(tag, of, has_arrived);
            }
            if tick % period == 0 {
                let (message, bytes) = self.server.write(self.recording, tick as u32);
                let (tag, of) = (message.tag, message.tick);
                let has_arrived = self.path.push(message, now);
                let report = if has_arrived { 2 * DELAY } else { LOSS_REPORT };
                let behind = self.results.iter().rev().take_while(|result| result.0 > now + report).count();
                self.results.insert(self.results.len() - behind, (now + report, tag, of, has_arrived));
                if tick >= WARM_UP {
                    self.bytes += bytes + HEADER_BYTES * bytes.div_ceil(1200);
                }
            }
            while let Some((at, message)) = self.path.pop(now) {
                self.receive(message, at);
            }
            self.frame(now, tick >= WARM_UP);
        }
        self.figures()
    }

    fn receive(&mut self, message: CubeMessage, now: Duration) {
        let client = &mut self.client;
        client.clock.on_message(StateHeader { tick: message.tick, report: None, is_first: true }, now);
        client.thesis_start.get_or_insert((now, message.tick));
        for (id, state) in message.states {
            client.cubes.push(message.tick, id, state);
        }
        if self.setup.method == StateMethod::Thesis {
            let keys = message.drivers.chunks_exact(4 * PLAYERS).rev();
            for (age, keys) in (0..).zip(keys) {
                let mut inputs = [PlayerInput::NONE; PLAYERS];
                for (input, bytes) in inputs.iter_mut().zip(keys.chunks_exact(4)) {
                    input.0 = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                }
                client.keys[(message.tick - age) as usize] = Some(inputs);
            }
            return;
        }
        let mut rest = &message.drivers[..];
        for buffer in &mut client.buffers {
            let Some((length, behind)) = rest.split_first() else { break };
            let (keys, behind) = behind.split_at(usize::from(*length));
            // Keys that come late count, too.
            buffer.read(keys, f64::from(message.tick)).expect("keys of the server");
            rest = behind;
        }
        let header = client.replica.read(&message.bytes).expect("a message of the replicator");
        debug_assert_eq!(header.tick, message.tick);
        while let Some(change) = client.replica.poll() {
            let (ReplicaChange::Appeared { id, .. } | ReplicaChange::Updated { id }) = change else { continue };
            if let Some(state) = client.replica.object(id).and_then(cube_fields::simulated_state) {
                client.cubes.push(message.tick, id, state);
            }
        }
    }

    /// Plays up to the tick of this frame, and measures.
    fn frame(&mut self, now: Duration, is_measured: bool) {
        let Some(goal) = self.goal(now) else { return };
        let Client { cubes, clock, buffers, keys, held, .. } = &mut self.client;
        let setup = self.setup;
        let corrected = cubes.play(goal, clock.newest_tick().unwrap_or(0), |tick| match setup.method {
            _ if !setup.has_inputs => StepKeys::known([PlayerInput::NONE; PLAYERS]),
            StateMethod::Thesis => {
                *held = keys.get(tick as usize).copied().flatten().unwrap_or(*held);
                StepKeys::known(*held)
            }
            StateMethod::Ours(_) => StepKeys::arrived(buffers, tick),
        });
        let corrected = corrected.to_vec();
        cubes.smooth(1.0 / TICKS as f32);
        if is_measured {
            self.measure(now, &corrected);
        }
    }

    fn goal(&mut self, now: Duration) -> Option<u32> {
        match self.setup.method {
            StateMethod::Thesis => {
                // The first message waits for 4 periods; the others follow each a period after the one before.
                let (arrived, tick) = self.client.thesis_start?;
                let wait = Duration::from_secs(1) * THESIS_BUFFER / self.setup.per_second;
                let passed = now.checked_sub(arrived + wait)?;
                Some(tick + (passed.as_secs_f64() * f64::from(TICKS) + 1e-6) as u32)
            }
            // The tick that is nearest to the timeline.
            StateMethod::Ours(_) => self.client.clock.advance(now).map(|tick| tick.max(0.0).round() as u32),
        }
    }

    fn measure(&mut self, now: Duration, corrected: &[Correction]) {
        let cubes = &self.client.cubes;
        let truth = self.recording.state(cubes.tick() as usize);
        let behind = now.as_secs_f64() - DELAY.as_secs_f64() - f64::from(cubes.tick()) / f64::from(TICKS);
        self.delays.push(behind * 1000.0);
        let mut offsets = Vec::with_capacity(truth.len());
        for ((id, own), truth) in (0..).zip(cubes.world().states()).zip(truth) {
            let error = distance(own.position, truth.position);
            self.simulated.add(error);
            let frames = &mut self.astray[usize::from(id)];
            *frames = if error > ASTRAY { *frames + 1 } else { 0 };
            self.longest_astray = self.longest_astray.max(*frames);
            let shown = cubes.shown(ObjectId(id), &own);
            self.shown.add(distance(shown.position, truth.position));
            offsets.push([0, 1, 2].map(|axis| shown.position[axis] - own.position[axis]));
        }
        // A corrected cube jumps by what it was set, less the change of the offset that hides it.
        for Correction { id, moved } in corrected {
            let index = usize::from(id.0);
            let jump = [0, 1, 2].map(|axis| moved[axis] + offsets[index][axis] - self.before[index][axis]);
            self.jumps.add(distance(jump, [0.0; 3]));
        }
        self.before = offsets;
    }

    fn figures(mut self) -> StateFigures {
        let seconds = (self.recording.ticks() - WARM_UP) as f64 / f64::from(TICKS);
        StateFigures {
            path_rate: self.bytes as f64 * 8.0 / 1000.0 / seconds,
            simulated: self.simulated.percentile(99) * 100.0,
            shown: self.shown.percentile(99) * 100.0,
            jump: self.jumps.percentile(99) * 100.0,
            delay: self.delays.iter().sum::<f64>() / self.delays.len().max(1) as f64,
            astray: f64::from(self.longest_astray) / f64::from(TICKS),
        }
    }
}
