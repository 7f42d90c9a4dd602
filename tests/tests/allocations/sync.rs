//! Game state: after their first ticks, no part of it asks for memory.

use std::sync::Arc;
use std::time::Duration;

use slipgate_sync::{
    Field, InputBuffer, InputClock, InputLog, MAX_INPUT_BYTES, ObjectId, PlayoutClock, PlayoutSamples, Pose,
    PoseSample, Predictor, Replica, Replicator, Rewind, Schema, Smoothing, SmoothingDecay, StateQueue, TickRate,
};
use slipgate_tests::counting::allocations;

const OBJECTS: u16 = 200;
const CLIENTS: usize = 4;

/// Runs one tick: half of the objects move, each client gets a message, and every seventh one is lost.
fn tick(replicator: &mut Replicator, clients: &mut [(slipgate_sync::ViewerId, Replica)], tick: u32) {
    for id in (0..OBJECTS).filter(|id| u32::from(*id) % 2 == tick / 50 % 2) {
        let mut object = replicator.object(ObjectId(id)).unwrap();
        object.set_vector(0, [(tick % 97) as f32 / 10.0, f32::from(id) / 20.0, 1.0]).unwrap();
    }
    replicator.commit(tick).unwrap();
    let mut buf = [0; 700];
    for (viewer, replica) in clients {
        let Some(message) = replicator.write(*viewer, &mut buf) else { continue };
        if message.tag % 7 == 0 {
            replicator.on_lost(*viewer, message.tag);
            continue;
        }
        replica.read(&buf[..message.bytes]).unwrap();
        replicator.on_acknowledged(*viewer, message.tag);
        while replica.poll().is_some() {}
    }
}

#[test]
fn state_of_many_objects_allocates_nothing() {
    let mut schema = Schema::builder();
    let kind = schema.add(&[Field::vector([-16.0..16.0, 0.0..16.0, -16.0..16.0], 512), Field::rotation(9)]);
    let schema = Arc::new(schema.build().unwrap());
    let mut replicator = Replicator::new(schema.clone(), OBJECTS, CLIENTS as u16);
    for id in 0..OBJECTS {
        replicator.spawn(ObjectId(id), kind).unwrap();
    }
    let client =
        |replicator: &mut Replicator| (replicator.add_viewer().unwrap(), Replica::new(schema.clone(), OBJECTS));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| client(&mut replicator)).collect();
    (1..900).for_each(|number| tick(&mut replicator, &mut clients, number));
    let count = allocations(|| (900..1800).for_each(|number| tick(&mut replicator, &mut clients, number)));
    assert_eq!(count, 0);
}

/// The parts of a client and of a server beside the objects.
struct Parts {
    playout: PlayoutClock,
    samples: PlayoutSamples,
    rewind: Rewind,
    queue: StateQueue<Pose>,
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
        self.playout.on_state(tick, now);
        let shown = self.playout.advance(now).unwrap_or(0.0);
        for id in (0..OBJECTS).map(ObjectId) {
            let pose = Pose { position: [(tick % 97) as f32, 0.0, 0.0], ..Pose::ORIGIN };
            let sample = PoseSample { tick, pose, velocity: None, is_at_rest: false, is_teleport: false };
            self.samples.add(id, sample);
            self.rewind.add(id, sample);
            self.queue.push(tick + 4, id, pose);
            assert!(self.samples.shown(id, shown, tick).is_some() && self.rewind.at(id, shown, tick).is_some());
        }
        while let Some((_, id, pose)) = self.queue.next(tick) {
            self.smoothing.on_correction(id, Pose::ORIGIN, pose);
        }
        self.smoothing.advance(1.0 / 60.0);
        self.clock.set(tick, Duration::ZERO, Duration::ZERO, now);
        self.clock.advance(now);
        self.log.push(tick, tick % 5);
        let mut buf = [0; MAX_INPUT_BYTES];
        let length = self.log.write(&mut buf);
        self.inputs.read(&buf[..length], f64::from(tick) - 1.5).unwrap();
        self.inputs.keys(tick);
        if let Some(report) = self.inputs.report() {
            self.log.on_confirmed(report.newest);
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
