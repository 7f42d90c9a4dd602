//! The states that a server sends to a crowd of clients, as the words on the wire have them.

use std::sync::Arc;

use slipgate_sync::{Field, ObjectKind, Schema};

use super::cube_pose::CubePose;
use super::recording::Recording;

/// Ticks between two states: 60 ticks and 20 states a second.
pub const TICKS_PER_STATE: u32 = 3;

/// Recorded states with the precision of messages. After the last one, the world stands still.
pub struct CrowdWorld {
    /// The schema of the objects.
    pub schema: Arc<Schema>,
    /// The kind of all objects.
    pub kind: ObjectKind,
    /// The number of objects.
    pub objects: usize,
    /// The number of states.
    pub states: usize,
    poses: Vec<CubePose>,
    /// For each state and object, the first later state with other words; `u32::MAX` if there is none.
    next_changes: Vec<u32>,
}

impl CrowdWorld {
    /// Rounds the states of a recording. `fields` are a place and a rotation.
    ///
    /// # Panics
    ///
    /// If the fields are others, which is a mistake of ours.
    #[must_use]
    pub fn new(recording: &Recording, fields: &[Field; 2], states: usize) -> Self {
        let mut schema = Schema::builder();
        let kind = schema.add(fields);
        let schema = Arc::new(schema.build().expect("valid ranges"));
        let states = states.min(recording.len());
        let round = |pose: &CubePose| CubePose {
            position: schema.snap_vector(kind, 0, pose.position).expect("a place"),
            rotation: schema.snap_rotation(kind, 1, pose.rotation).expect("a rotation"),
        };
        let poses: Vec<CubePose> = (0..states).flat_map(|state| recording.state(state)).map(round).collect();
        let objects = recording.objects;
        let next_changes = next_changes(&poses, objects);
        Self { schema, kind, objects, states, poses, next_changes }
    }

    /// Returns all objects of a state.
    #[must_use]
    pub fn state(&self, state: usize) -> &[CubePose] {
        let state = state.min(self.states.saturating_sub(1));
        self.poses.get(state * self.objects..(state + 1) * self.objects).unwrap_or(&[])
    }

    /// Returns, for each object, the first state behind this one in which it differs; `u32::MAX` if there is none.
    #[must_use]
    pub fn next_changes(&self, state: usize) -> &[u32] {
        let state = state.min(self.states.saturating_sub(1));
        self.next_changes.get(state * self.objects..(state + 1) * self.objects).unwrap_or(&[])
    }

    /// Returns the tick of a state.
    #[must_use]
    pub const fn tick(state: usize) -> u32 {
        (state as u32 + 1) * TICKS_PER_STATE
    }

    /// Returns the state of a tick.
    #[must_use]
    pub const fn state_of(tick: u32) -> usize {
        (tick / TICKS_PER_STATE).saturating_sub(1) as usize
    }
}

fn next_changes(poses: &[CubePose], objects: usize) -> Vec<u32> {
    let states = poses.len() / objects.max(1);
    let mut changes = vec![u32::MAX; poses.len()];
    for state in (1..states).rev() {
        let (before, after) = ((state - 1) * objects, state * objects);
        for object in 0..objects {
            let is_same = poses.get(before + object) == poses.get(after + object);
            let later = changes.get(after + object).copied().unwrap_or(u32::MAX);
            if let Some(change) = changes.get_mut(before + object) {
                *change = if is_same { later } else { state as u32 };
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_change_is_the_first_state_with_another_pose() {
        let pose = |x: f32| CubePose { position: [x, 0.0, 0.0], rotation: [0.0, 0.0, 0.0, 1.0] };
        // Two objects in four states: the first one moves once.
        let poses = [1.0, 5.0, 1.0, 5.0, 2.0, 5.0, 2.0, 5.0].map(pose);
        let none = u32::MAX;
        assert_eq!(next_changes(&poses, 2), [2, none, 2, none, none, none, none, none]);
    }
}
