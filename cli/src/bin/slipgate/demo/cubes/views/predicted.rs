//! The client with its own cube: it simulates ahead of the server with the keys that are pressed now, and repeats the
//! ticks that the server corrects.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use slipgate_lab::sync::cube_fields;
use slipgate_lab::sync::predicted_world::PredictedWorld;
use slipgate_sync::{InputBuffer, InputClock, InputLog, MAX_INPUT_BYTES, Pose, Replica, StateHeader};
use slipgate_worlds::{PLAYERS, RandomPlayers};

use super::view::{CubeView, MessageArrival, ShownFrame};
use crate::demo::cubes::keyboard::Keyboard;
use crate::demo::cubes::knobs::TICKS;
use crate::demo::cubes::messages::{Unreadable, read_keys, take_keys};
use crate::demo::cubes::meter::{Meter, difference};
use crate::demo::cubes::truth::Truth;

/// The first assumption on a path that is not measured yet.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(100);
const FIRST_JITTER: Duration = Duration::from_millis(20);
/// After a pause of more ticks than this, inputs start again at the present.
const MAX_GAP: u32 = 30;
/// The seed of the keys without a person.
const SEED: u64 = 7;

pub(in crate::demo::cubes) struct PredictedCube {
    objects: u16,
    replica: Replica,
    clock: InputClock,
    log: InputLog,
    message: [u8; MAX_INPUT_BYTES],
    /// The newest tick with an input.
    made: Option<u32>,
    keyboard: Arc<Keyboard>,
    random: RandomPlayers,
    /// The keys of the others as far as the server has sent them.
    others: [InputBuffer; PLAYERS],
    /// `None` until all cubes have arrived, and after a pause.
    prediction: Option<PredictedWorld>,
    /// The places of the own cube at ticks that the server has not played.
    shown: VecDeque<(u32, [f32; 3])>,
}

impl PredictedCube {
    pub(super) fn new(objects: u16, keyboard: Arc<Keyboard>) -> Self {
        Self {
            objects,
            replica: Replica::new(cube_fields::simulated().0, objects),
            clock: InputClock::new(TICKS),
            log: InputLog::new(),
            message: [0; MAX_INPUT_BYTES],
            made: None,
            keyboard,
            random: RandomPlayers::new(SEED),
            others: [(); PLAYERS].map(|()| InputBuffer::new(0)),
            prediction: None,
            shown: VecDeque::new(),
        }
    }

    /// Starts to predict from the newest states, once there are all.
    fn start(&mut self) {
        let (Some(tick), Some(made)) = (self.replica.newest_tick(), self.made) else { return };
        if self.replica.objects().count() == usize::from(self.objects) {
            self.prediction = PredictedWorld::start(&self.replica, tick, made).map(PredictedWorld::rounded);
        }
    }
}

impl CubeView for PredictedCube {
    fn receive(&mut self, mut bytes: &[u8], arrival: MessageArrival) -> Result<(), Unreadable> {
        let keys = take_keys(&mut bytes)?;
        let StateHeader { tick, report, .. } = self.replica.read(bytes).map_err(|_| Unreadable)?;
        let round_trip = if arrival.round_trip.is_zero() { FIRST_ROUND_TRIP } else { arrival.round_trip };
        self.clock.set(tick, round_trip, FIRST_JITTER, arrival.at);
        if let Some(report) = report.filter(|report| self.log.on_report(*report)) {
            self.clock.on_report(report);
        }
        read_keys(&mut self.others, keys, tick)?;
        while self.replica.poll().is_some() {}
        if let Some(prediction) = &mut self.prediction {
            prediction.check(&self.replica, tick);
        }
        Ok(())
    }

    fn inputs(&mut self, now: Duration) -> Option<&[u8]> {
        let newest = self.clock.advance(now)?;
        let before = self.made.unwrap_or(newest.saturating_sub(1));
        // After a jump back of the clock, the inputs of its ticks are made again.
        let before = if before > newest || newest - before > MAX_GAP {
            self.prediction = None;
            newest.saturating_sub(1)
        } else {
            before
        };
        for tick in (before..newest).map(|tick| tick + 1) {
            let keys = self.keyboard.keys(&mut self.random).0;
            self.log.push(tick, keys, None);
            // A prediction that cannot follow starts again from the server's states.
            if self.prediction.as_mut().is_some_and(|prediction| !prediction.push(tick, keys)) {
                self.prediction = None;
            }
        }
        self.made = Some(newest);
        let length = self.log.write(self.replica.resync_request(), &mut self.message);
        self.message.get(..length).filter(|message| !message.is_empty())
    }

    fn frame(&mut self, _: Duration) -> Option<ShownFrame> {
        if self.prediction.is_none() {
            self.start();
        }
        let prediction = self.prediction.as_mut()?;
        prediction.frame(&self.replica, &mut self.others);
        let tick = prediction.tick();
        if self.shown.back().is_none_or(|(last, _)| *last < tick) {
            let own = prediction.shown().next().map_or([0.0; 3], |(pose, _)| pose.position);
            self.shown.push_back((tick, own));
        }
        Some(ShownFrame { tick: tick.into(), is_starved: false })
    }

    fn compare(&mut self, truth: &Truth, meter: &mut Meter) {
        let (newest, mut positions) = (truth.newest(), Vec::new());
        while let Some((tick, shown)) = self.shown.front().copied().filter(|(tick, _)| *tick <= newest) {
            self.shown.pop_front();
            if let Some(own) = truth.read(tick.into(), &mut positions).then(|| positions.first()).flatten() {
                meter.add_cube(0, difference(shown, *own));
            }
        }
    }

    fn cubes(&self, add: &mut dyn FnMut(usize, Pose, bool)) {
        let Some(prediction) = &self.prediction else { return };
        for (id, (pose, is_awake)) in prediction.shown().enumerate() {
            add(id, pose, is_awake);
        }
    }
}
