//! A client of a crowd: reads what arrived, and is compared with the server's states.

use std::sync::Arc;
use std::time::Duration;

use slipgate_sync::{ObjectId, ObjectRef, Replica, StateHeader};

use super::crowd::{ClientLog, STATE_TIME};
use super::crowd_world::CrowdWorld;
use super::cube_pose::CubePose;
use super::percentile::distance;

/// The objects of a client.
pub struct CrowdReader<'w> {
    world: &'w CrowdWorld,
    log: &'w ClientLog,
    next: usize,
    /// Polled by the caller, or never.
    pub replica: Replica,
}

impl<'w> CrowdReader<'w> {
    /// Returns a client without objects.
    #[must_use]
    pub fn new(world: &'w CrowdWorld, log: &'w ClientLog) -> Self {
        let replica = Replica::new(Arc::clone(&world.schema), world.objects as u16);
        Self { world, log, next: 0, replica }
    }

    /// Reads the next message that has arrived. Returns its time and its header.
    ///
    /// # Panics
    ///
    /// If `slipgate-sync` refuses its own messages, which is a mistake of ours.
    pub fn read(&mut self, now: Duration) -> Option<(Duration, StateHeader)> {
        let message = self.log.arrived.get(self.next).filter(|message| message.at <= now)?;
        self.next += 1;
        let header = self.replica.read(&message.bytes).expect("a message of the replicator");
        Some((message.at, header))
    }

    /// Returns the state of the newest record of an object; `None` without one.
    #[must_use]
    pub fn state_of(&self, id: usize) -> Option<usize> {
        self.replica.object(ObjectId(id as u16)).map(|object| CrowdWorld::state_of(object.tick()))
    }

    /// Returns how many objects have another pose than those of the server.
    #[must_use]
    pub fn differing(&self, state: usize) -> usize {
        let poses = self.world.state(state);
        let is_same = |id: usize, pose: &CubePose| {
            let object = self.replica.object(ObjectId(id as u16));
            object.and_then(pose_of).is_some_and(|own| own == *pose)
        };
        poses.iter().enumerate().filter(|(id, pose)| !is_same(*id, pose)).count()
    }
}

/// Returns the pose of an object.
#[must_use]
pub fn pose_of(object: ObjectRef<'_>) -> Option<CubePose> {
    Some(CubePose { position: object.vector(0)?, rotation: object.rotation(1)? })
}

/// Compares a client with a state of the server, which is the newest one that could be there. `known` returns the state
/// of which the client has an object. Calls `add_error` with the error of each object, in metres. Returns for how long
/// a newer state of the oldest object could have been there, in milliseconds.
pub fn compare(
    world: &CrowdWorld,
    newest: usize,
    known: impl Fn(usize) -> Option<usize>,
    mut add_error: impl FnMut(f32),
) -> f32 {
    let mut oldest = 0;
    for (id, truth) in world.state(newest).iter().enumerate() {
        let Some(state) = known(id) else {
            oldest = newest + 1;
            continue;
        };
        let changed = world.next_changes(state).get(id).map_or(usize::MAX, |change| *change as usize);
        if changed <= newest {
            oldest = oldest.max(newest - changed + 1);
        }
        let shown = world.state(state).get(id).map_or([0.0; 3], |pose| pose.position);
        add_error(distance(shown, truth.position));
    }
    (STATE_TIME * oldest as u32).as_secs_f32() * 1000.0
}
