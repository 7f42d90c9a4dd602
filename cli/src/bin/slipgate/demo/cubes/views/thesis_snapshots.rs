//! The thesis's snapshots: 10 a second, shown 100 ms after they arrived, on straight lines between them.

use std::time::Duration;

use slipgate_sync::{ObjectId, PlayoutSamples, Pose, PoseSample, TickRate};

use super::view::{CubeView, MessageArrival, ShownFrame};
use crate::demo::cubes::knobs::TICKS;
use crate::demo::cubes::messages::{Unreadable, read_snapshot, take_tick};

/// The thesis's delay (§3.4.2), in ticks.
const DELAY_TICKS: f64 = TICKS as f64 / 10.0;

pub(in crate::demo::cubes) struct ThesisSnapshots {
    objects: u16,
    samples: PlayoutSamples,
    newest: u32,
    /// The tick at the start of the demo, if the first snapshot was the quickest.
    start: Option<f64>,
    shown_at: f64,
}

impl ThesisSnapshots {
    pub(super) fn new(objects: u16) -> Self {
        let rate = TickRate { per_second: TICKS, between_states: TICKS / 10 };
        Self { objects, samples: PlayoutSamples::new(objects, rate), newest: 0, start: None, shown_at: 0.0 }
    }
}

impl CubeView for ThesisSnapshots {
    fn receive(&mut self, mut bytes: &[u8], arrival: MessageArrival) -> Result<(), Unreadable> {
        let tick = take_tick(&mut bytes)?;
        // Late snapshots are refused.
        if tick <= self.newest {
            return Ok(());
        }
        self.newest = tick;
        self.start.get_or_insert(f64::from(tick) - arrival.at.as_secs_f64() * f64::from(TICKS));
        for (id, pose) in (0..self.objects).map(ObjectId).zip(read_snapshot(bytes)) {
            let pose = Pose { position: pose.position(), rotation: pose.rotation() };
            let sample = PoseSample { tick, pose, velocity: None, is_at_rest: false, teleports: 0 };
            self.samples.add(id, sample);
        }
        Ok(())
    }

    fn frame(&mut self, now: Duration) -> Option<ShownFrame> {
        let tick = self.start? + now.as_secs_f64() * f64::from(TICKS) - DELAY_TICKS;
        self.shown_at = tick;
        Some(ShownFrame { tick, is_starved: tick > f64::from(self.newest) })
    }

    fn cubes(&self, add: &mut dyn FnMut(usize, Pose, bool)) {
        for id in (0..self.objects).map(ObjectId) {
            // The cubes stop at the newest snapshot: the thesis does not move them on.
            if let Some((pose, _)) = self.samples.shown(id, self.shown_at, u32::MAX) {
                add(id.0.into(), pose, true);
            }
        }
    }
}
