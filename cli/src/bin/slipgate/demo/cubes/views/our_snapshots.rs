//! Snapshots of `slipgate-sync`: differences, and a playout that follows the path.

use std::sync::Arc;
use std::time::Duration;

use slipgate_lab::sync::cube_fields;
use slipgate_sync::{ObjectId, PlayoutClock, PlayoutSamples, Pose, Replica, ReplicaChange, Schema, TickRate};

use super::view::{CubeView, MessageArrival, ShownFrame};
use crate::demo::cubes::messages::Unreadable;

pub(in crate::demo::cubes) struct OurSnapshots {
    objects: u16,
    replica: Replica,
    clock: PlayoutClock,
    samples: PlayoutSamples,
}

impl OurSnapshots {
    pub(super) fn new(objects: u16, rate: TickRate, schema: Arc<Schema>) -> Self {
        Self {
            objects,
            replica: Replica::new(schema, objects),
            clock: PlayoutClock::new(rate),
            samples: PlayoutSamples::new(objects, rate),
        }
    }
}

impl CubeView for OurSnapshots {
    fn receive(&mut self, bytes: &[u8], arrival: MessageArrival) -> Result<(), Unreadable> {
        let header = self.replica.read(bytes).map_err(|_| Unreadable)?;
        self.clock.on_message(header, arrival.at);
        while let Some(change) = self.replica.poll() {
            let (ReplicaChange::Appeared { id, .. } | ReplicaChange::Updated { id }) = change else { continue };
            if let Some(sample) = self.replica.object(id).and_then(cube_fields::shown_sample) {
                self.samples.add(id, sample);
            }
        }
        Ok(())
    }

    fn frame(&mut self, now: Duration) -> Option<ShownFrame> {
        let tick = self.clock.advance(now)?;
        Some(ShownFrame { tick, is_starved: self.clock.is_starved() })
    }

    fn cubes(&self, add: &mut dyn FnMut(usize, Pose, bool)) {
        let (tick, newest) = (self.clock.tick().unwrap_or(0.0), self.replica.newest_tick().unwrap_or(0));
        for id in (0..self.objects).map(ObjectId) {
            let Some((pose, _)) = self.samples.shown(id, tick, newest) else { continue };
            let is_awake = self.samples.newest(id).is_some_and(|sample| !sample.is_at_rest);
            add(id.0.into(), pose, is_awake);
        }
    }
}
