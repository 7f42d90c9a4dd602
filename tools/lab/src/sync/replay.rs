//! Sends a recording over a lossy path with one method. Measures bytes, and the error of what the client has.

use std::collections::VecDeque;
use std::sync::Arc;

use slipgate_sim::Random;
use slipgate_sync::{Field, ObjectId, ObjectKind, Priorities, Replica, Replicator, Schema, ViewerId};

use super::cube_pose::CubePose;
use super::percentile::distance;
use super::recording::{Recording, STEPS_PER_STATE};
use super::sync_figures::{DELAY_STATES, MESSAGE_BYTES, Sent, SyncFigures, WARM_UP_STATES, figures};

/// States after which the server knows that a message got lost: 150 ms.
const LOSS_STATES: usize = 3;
/// The most messages of a state.
const MAX_MESSAGES: usize = 16;
/// Bytes of a state of the thesis's state synchronisation: index, pose and velocities.
const THESIS_STATE_BYTES: usize = 54;
/// Bytes of an object in a snapshot of the thesis: position and rotation as floats.
const THESIS_SNAPSHOT_BYTES: usize = 28;
/// Bits of an object in its quantised snapshot: 14 + 14 + 13 for the position, 2 + 3 x 9 for the rotation.
const THESIS_QUANTISED_BITS: usize = 70;
const THESIS_HEADER_BYTES: usize = 4;
/// Bytes of a datagram around a message: IPv4 and UDP 28, encryption 21, acknowledgements 9, frame and receipt 10.
pub const DATAGRAM_HEADER_BYTES: usize = 28 + 21 + 9 + 10;

/// A way to send the objects of a world, 20 times a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMethod {
    /// `slipgate-sync`.
    Differences,
    /// All objects in each message, as floats.
    Snapshots,
    /// All objects in each message, with quantised positions and rotations.
    QuantisedSnapshots,
    /// 20 objects in each message, chosen by the thesis's priorities, with velocities. The client does not simulate.
    TwentyStates,
}

impl SyncMethod {
    /// All methods.
    pub const ALL: [Self; 4] = [Self::Differences, Self::Snapshots, Self::QuantisedSnapshots, Self::TwentyStates];

    /// Returns the text for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Differences => "slipgate-sync",
            Self::Snapshots => "thesis, snapshots",
            Self::QuantisedSnapshots => "thesis, quantised snapshots",
            Self::TwentyStates => "thesis, 20 states a message",
        }
    }

    const fn priorities(self) -> Option<Priorities> {
        match self {
            Self::TwentyStates => Some(Priorities::thesis()),
            _ => None,
        }
    }
}

/// A message on its way, or the report of its delivery.
struct OnTheWay {
    due: usize,
    bytes: Vec<u8>,
    tag: u64,
    is_lost: bool,
}

struct Exchange {
    kind: ObjectKind,
    replicator: Replicator,
    viewer: ViewerId,
    replica: Replica,
    messages: VecDeque<OnTheWay>,
    reports: VecDeque<OnTheWay>,
    random: Random,
    loss: f64,
}

/// Runs a method over a path that loses this share of all messages.
///
/// # Panics
///
/// If `slipgate-sync` refuses its own messages, which is a mistake of ours.
#[must_use]
pub fn replay(recording: &Recording, method: SyncMethod, loss: f64, seed: u64) -> SyncFigures {
    let random = Random::new(seed, 0x4c_4f);
    match method {
        SyncMethod::Differences | SyncMethod::TwentyStates => {
            Exchange::new(recording.objects, method, loss, random).run(recording, method)
        }
        SyncMethod::Snapshots => snapshots(recording, THESIS_SNAPSHOT_BYTES * 8, loss, random),
        SyncMethod::QuantisedSnapshots => snapshots(recording, THESIS_QUANTISED_BITS, loss, random),
    }
}

impl Exchange {
    fn new(objects: usize, method: SyncMethod, loss: f64, random: Random) -> Self {
        let mut schema = Schema::builder();
        let area = [-16.0..16.0, 0.0..16.0, -16.0..16.0];
        let kind = schema.add(&[Field::vector(area, 512), Field::rotation(9)]);
        let schema = Arc::new(schema.build().expect("valid ranges"));
        let objects = objects as u16;
        let mut replicator = Replicator::new(Arc::clone(&schema), objects, 1, 60);
        if let Some(priorities) = method.priorities() {
            replicator = replicator.with_priorities(priorities);
        }
        let viewer = replicator.add_viewer().expect("the first client");
        for id in 0..objects {
            replicator.spawn(ObjectId(id), kind).expect("a free id");
        }
        let (messages, reports) = (VecDeque::new(), VecDeque::new());
        Self { kind, replicator, viewer, replica: Replica::new(schema, objects), messages, reports, random, loss }
    }

    fn run(mut self, recording: &Recording, method: SyncMethod) -> SyncFigures {
        let (mut total, mut errors) = (Sent::default(), Vec::new());
        for now in 0..recording.len() {
            self.set(now, recording.state(now));
            let sent = self.send(now, method);
            self.receive(now);
            if now >= WARM_UP_STATES {
                total.add(sent);
                // The newest message that could be here describes this state.
                self.add_errors(recording.state(now - DELAY_STATES), &mut errors);
            }
        }
        figures(total, &mut errors, recording.len())
    }

    fn set(&mut self, now: usize, poses: &[CubePose]) {
        for (id, pose) in (0..).zip(poses) {
            let mut object = self.replicator.object(ObjectId(id)).expect("it was spawned");
            let position =
                object.set_vector(0, pose.position).map(|object| object.set_rotation(1, pose.rotation).is_ok());
            debug_assert_eq!(position, Ok(true), "the fields of a cube");
        }
        self.replicator.commit(((now + 1) * STEPS_PER_STATE) as u32).expect("ticks increase");
    }

    /// Sends messages until the client has everything.
    fn send(&mut self, now: usize, method: SyncMethod) -> Sent {
        let (mut total, mut buf) = (Sent::default(), [0; MESSAGE_BYTES]);
        if method == SyncMethod::Differences {
            self.replicator.plan(self.viewer, MAX_MESSAGES, MESSAGE_BYTES);
        }
        while let Some(message) = self.replicator.write(self.viewer, &mut buf) {
            let is_lost = self.random.fraction() < self.loss;
            let delay = if is_lost { LOSS_STATES } else { DELAY_STATES };
            let bytes = buf.get(..message.bytes).unwrap_or(&[]).to_vec();
            self.messages.push_back(OnTheWay { due: now + delay, bytes, tag: message.tag, is_lost });
            if method == SyncMethod::TwentyStates {
                return Sent { bytes: THESIS_HEADER_BYTES + message.objects * THESIS_STATE_BYTES, datagrams: 1 };
            }
            total.add(Sent { bytes: message.bytes, datagrams: 1 });
        }
        total
    }

    fn receive(&mut self, now: usize) {
        let (due, later): (VecDeque<_>, _) = self.messages.drain(..).partition(|message| message.due <= now);
        self.messages = later;
        for message in due {
            if message.is_lost {
                self.replicator.on_lost(self.viewer, message.tag);
            } else {
                self.replica.read(&message.bytes).expect("a message of the replicator");
                self.reports.push_back(OnTheWay { due: now + DELAY_STATES, ..message });
            }
        }
        while self.reports.front().is_some_and(|report| report.due <= now) {
            if let Some(report) = self.reports.pop_front() {
                self.replicator.on_acknowledged(self.viewer, report.tag);
            }
        }
    }

    fn add_errors(&self, truth: &[CubePose], errors: &mut Vec<f32>) {
        for (id, pose) in (0..).zip(truth) {
            let object = self.replica.object(ObjectId(id)).filter(|object| object.kind() == self.kind);
            let position = object.and_then(|object| object.vector(0)).unwrap_or_default();
            errors.push(distance(position, pose.position));
        }
    }
}

/// Runs a method that sends all objects in each message: the client has the newest message that arrived.
fn snapshots(recording: &Recording, bits_per_object: usize, loss: f64, mut random: Random) -> SyncFigures {
    let bytes_per_state = THESIS_HEADER_BYTES + (recording.objects * bits_per_object).div_ceil(8);
    let datagrams = bytes_per_state.div_ceil(MESSAGE_BYTES);
    let (mut newest, mut errors, mut total) = (0, Vec::new(), Sent::default());
    for now in 0..recording.len() {
        // A snapshot of several datagrams is lost with each of them.
        let has_arrived = (0..datagrams).fold(true, |all, _| (random.fraction() >= loss) && all);
        if has_arrived && now >= DELAY_STATES {
            newest = now - DELAY_STATES;
        }
        if now >= WARM_UP_STATES {
            total.add(Sent { bytes: bytes_per_state, datagrams });
            let truth = recording.state(now - DELAY_STATES).iter().zip(recording.state(newest));
            errors.extend(truth.map(|(truth, shown)| distance(shown.position, truth.position)));
        }
    }
    figures(total, &mut errors, recording.len())
}
