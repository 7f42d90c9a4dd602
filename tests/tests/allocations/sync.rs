//! Game state: after their first ticks, no part of it asks for memory.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use slipgate_sim::Random;
use slipgate_sync::{
    Field, InputBuffer, InputClock, InputLog, InputReport, LateKeys, Look, MAX_INPUT_BYTES, ObjectId, ObjectKind,
    PlayoutClock, PlayoutSamples, Pose, PoseSample, Predictor, Replica, Replicator, ResyncRequest, Rewind, Schema,
    Smoothing, SmoothingDecay, StateHeader, StateQueue, TickRate, ViewerId,
};
use slipgate_tests::counting::allocations;

const OBJECTS: u16 = 200;
const CLIENTS: usize = 4;

/// Moves some objects, and sends each client two messages, of which every seventh one is lost.
fn tick(replicator: &mut Replicator, clients: &mut [(ViewerId, Replica)], tick: u32, ids: impl Iterator<Item = u16>) {
    for id in ids {
        let mut object = replicator.object(ObjectId(id)).unwrap();
        object.set_vector(0, [(tick % 97) as f32 / 10.0, f32::from(id) / 20.0, 1.0]).unwrap();
    }
    replicator.commit(tick).unwrap();
    let mut buf = [0; 700];
    for (viewer, replica) in clients {
        replicator.set_report(*viewer, Some(InputReport { newest: tick, margin_quarters: 2, epoch: 0 }));
        replicator.plan(*viewer, 2, buf.len());
        for _ in 0..2 {
            let Some(message) = replicator.write(*viewer, &mut buf) else { break };
            if message.tag % 7 == 0 {
                replicator.on_lost(*viewer, message.tag);
                continue;
            }
            replica.read(&buf[..message.bytes]).unwrap();
            replicator.on_acknowledged(*viewer, message.tag);
        }
        while replica.poll().is_some() {}
    }
}

/// Uses some ids again, lets half of the clients look at another place, and once in a while sends a client everything
/// again.
fn change_all(replicator: &mut Replicator, kind: ObjectKind, clients: &[(ViewerId, Replica)], tick: u32) {
    if tick.is_multiple_of(10) {
        let id = ObjectId((tick / 10 % u32::from(OBJECTS)) as u16);
        replicator.despawn(id);
        replicator.spawn(id, kind).unwrap();
    }
    for (number, (viewer, _)) in (0..).zip(clients) {
        if tick % 400 == number {
            assert!(replicator.resync(*viewer, ResyncRequest(0)), "the last one is 400 ticks ago");
        }
        let x = ((tick / 20 + number) % 20) as f32 - 10.0;
        replicator.look(*viewer, (number % 2 == 0).then(|| Look::around([x, 0.0, 0.0], 6.0).leaving(7.0)));
    }
}

#[test]
fn state_of_many_objects_allocates_nothing() {
    let mut schema = Schema::builder();
    let kind = schema.add(&[Field::vector([-16.0..16.0, 0.0..16.0, -16.0..16.0], 512), Field::rotation(9)]);
    let schema = Arc::new(schema.build().unwrap());
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, CLIENTS as u16, 60);
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), kind).unwrap();
    }
    let client =
        |replicator: &mut Replicator| (replicator.add_viewer().unwrap(), Replica::new(schema.clone(), OBJECTS));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| client(&mut replicator)).collect();
    // All histories grow to their full length where all objects move at each tick.
    (1..1500).for_each(|number| tick(&mut replicator, &mut clients, number, 0..OBJECTS));
    let mut run = |ticks: std::ops::Range<u32>| {
        for number in ticks {
            change_all(&mut replicator, kind, &clients, number);
            let ids = (0..OBJECTS).filter(|id| u32::from(*id) % 2 == number / 50 % 2);
            tick(&mut replicator, &mut clients, number, ids);
        }
    };
    run(1500..2000);
    let count = allocations(|| run(2000..4000));
    assert_eq!(count, 0);
}

/// The parts of a client and of a server beside the objects.
struct Parts {
    playout: PlayoutClock,
    samples: PlayoutSamples,
    rewind: Rewind,
    queue: StateQueue<Pose>,
    late: LateKeys<Pose>,
    smoothing: Smoothing,
    log: InputLog,
    inputs: InputBuffer,
    clock: InputClock,
    predictor: Predictor,
}

impl Parts {
    fn new() -> Self {
        let rate = TickRate { per_second: 60, between_states: 3 };
        Self {
            playout: PlayoutClock::new(rate),
            samples: PlayoutSamples::new(OBJECTS, rate),
            rewind: Rewind::new(OBJECTS, rate),
            queue: StateQueue::new(OBJECTS, usize::from(OBJECTS) * 8),
            late: LateKeys::new(60, usize::from(OBJECTS) * 60),
            smoothing: Smoothing::new(OBJECTS, SmoothingDecay::default()),
            log: InputLog::new(),
            inputs: InputBuffer::new(1),
            clock: InputClock::new(60),
            predictor: Predictor::new(0),
        }
    }

    /// Runs a tick with a state for each object, inputs, and a prediction.
    fn tick(&mut self, tick: u32) {
        let now = Duration::from_millis(u64::from(tick) * 50 / 3);
        self.playout.on_message(StateHeader { tick, report: None, is_first: true }, now);
        let shown = self.playout.advance(now).unwrap_or(0.0);
        for id in (0..OBJECTS).map(ObjectId) {
            let pose = Pose { position: [(tick % 97) as f32, 0.0, 0.0], ..Pose::ORIGIN };
            let sample = PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 };
            self.samples.add(id, sample);
            self.rewind.add(id, sample);
            self.queue.push(tick + 4, id, pose);
            if u32::from(id.0) == tick % 500 {
                self.samples.remove(id, tick + 1);
                self.queue.end(tick + 5, id);
            }
            assert!(self.samples.shown(id, shown, tick).is_some() && self.rewind.at(id, shown, tick).is_some());
        }
        // The keys of 30 ticks arrive at once, and those of the ticks after them never.
        let is_missing = |of: u32| of % 100 < 50 && (tick % 100 < 30 || of % 100 >= 30);
        let first = self.late.go_back(tick, is_missing).map_or(tick, |saved| saved + 1);
        for tick in first..=tick {
            self.late.on_step(tick, is_missing(tick));
            while let Some((_, id, pose)) = self.late.next(&mut self.queue, tick) {
                if let Some(pose) = pose {
                    self.smoothing.on_correction(id, Pose::ORIGIN, pose);
                }
            }
        }
        self.smoothing.advance(1.0 / 60.0);
        self.clock.set(tick, Duration::ZERO, Duration::ZERO, now);
        self.clock.advance(now);
        self.log.push(tick, tick % 5, Some(shown));
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = self.log.write(None, &mut buf);
        self.inputs.read(&buf[..length], f64::from(tick) - 1.5).unwrap();
        self.inputs.keys(tick);
        if let Some(report) = self.inputs.report().filter(|report| self.log.on_report(*report)) {
            self.clock.on_report(report);
        }
        assert!(self.predictor.push(tick, tick % 5));
        self.predictor.correct(tick.saturating_sub(9));
        self.predictor.on_frame();
        while self.predictor.order().is_some() {
            self.predictor.obeyed();
        }
    }
}

#[test]
fn parts_of_clients_and_servers_allocate_nothing() {
    let mut parts = Parts::new();
    (1..200).for_each(|number| parts.tick(number));
    let count = allocations(|| (200..3000).for_each(|number| parts.tick(number)));
    assert_eq!(count, 0);
}

/// A world of objects that wander around, and clients that are farther away than those of [`tick`]: receipts of their
/// messages come up to 6 states later.
struct Wanderers {
    replicator: Replicator,
    places: Vec<[f64; 3]>,
    clients: Vec<(ViewerId, [f32; 3])>,
    /// The messages of the last states of each client, and whether they get lost.
    sent: Vec<VecDeque<Vec<(u64, bool)>>>,
    random: Random,
    tick: u32,
}

impl Wanderers {
    fn new(seed: u64) -> Self {
        let mut schema = Schema::builder();
        let kind = schema.add(&[Field::vector([-16.0..16.0, 0.0..16.0, -16.0..16.0], 512), Field::rotation(9)]);
        let mut replicator = Replicator::new(Arc::new(schema.build().unwrap()), OBJECTS, CLIENTS as u16, 60);
        (0..OBJECTS).for_each(|id| _ = replicator.spawn(ObjectId(id), kind).unwrap());
        let mut random = Random::new(seed, 1);
        let mut place = || [0.0; 3].map(|_| random.between(-15.0, 15.0));
        let places = (0..OBJECTS).map(|_| place()).collect();
        let clients = (0..CLIENTS).map(|_| (replicator.add_viewer().unwrap(), place().map(|part| part as f32)));
        let clients = clients.collect();
        let sent = (0..CLIENTS).map(|_| (0..7).map(|_| Vec::with_capacity(2)).collect()).collect();
        Self { replicator, places, clients, sent, random, tick: 0 }
    }

    fn state(&mut self, messages: usize, sight: Option<f32>) {
        for (id, place) in (0..).zip(&mut self.places) {
            for part in place.iter_mut() {
                *part = (*part + self.random.between(-0.5, 0.5)).clamp(-15.0, 15.0);
            }
            let place = place.map(|part| part as f32);
            self.replicator.object(ObjectId(id)).unwrap().set_vector(0, place).unwrap();
        }
        self.tick += 3;
        self.replicator.commit(self.tick).unwrap();
        for ((number, (viewer, place)), sent) in (0..).zip(&self.clients).zip(&mut self.sent) {
            for (tag, is_lost) in sent.get(1 + number % 6).into_iter().flatten() {
                if *is_lost {
                    self.replicator.on_lost(*viewer, *tag);
                } else {
                    self.replicator.on_acknowledged(*viewer, *tag);
                }
            }
            let (mut newest, mut buf) = (sent.pop_back().unwrap(), [0; 300]);
            newest.clear();
            self.replicator.look(*viewer, sight.map(|radius| Look::around(*place, radius).leaving(1.2 * radius)));
            self.replicator.plan(*viewer, messages, buf.len());
            for _ in 0..messages {
                let Some(message) = self.replicator.write(*viewer, &mut buf) else { break };
                newest.push((message.tag, self.random.fraction() < 0.13));
            }
            sent.push_front(newest);
        }
    }
}

/// As the benchmark `game_state` claims for its own seed. Much memory of what waits for a receipt is first needed long
/// after the start, if many messages get lost or many objects are in sight at once.
#[test]
fn state_of_lossy_clients_allocates_nothing_whatever_the_seed() {
    for (seed, messages, sight) in
        [(1, 2, None), (2, 1, None), (3, 2, Some(7.0)), (4, 1, Some(10.0)), (5, 2, Some(15.0))]
    {
        let mut world = Wanderers::new(seed);
        (0..300).for_each(|_| world.state(messages, sight));
        let count = allocations(|| (0..1500).for_each(|_| world.state(messages, sight)));
        assert_eq!(count, 0, "seed {seed}, {messages} messages, sight {sight:?}");
    }
}
