//! Worlds of 504 and 1,001 cubes: their physics take most of the time, so each world is recorded once for all tables.

use super::crowd_tables::{self, JoinWorld};
use super::cube_tables::{PLAYOUT_TICKS, PlayoutRuns};
use super::cubes::CubeRecording;
use super::messages::{self, SyncRow};
use super::seeds::{Seeds, for_seeds};

/// The numbers of cubes.
pub const OBJECTS: [usize; 2] = [504, 1001];

/// The runs of one number of cubes.
pub struct ManyRuns {
    /// The rows of the table of messages.
    pub messages: Vec<SyncRow>,
    /// The clients that only show.
    pub playout: PlayoutRuns,
    /// The clients that join.
    pub joins: JoinWorld,
}

impl ManyRuns {
    /// Records a world for each seed, and runs all experiments on it.
    #[must_use]
    pub fn new(objects: usize, seeds: Seeds) -> Self {
        let runs = for_seeds(seeds, |seed| {
            let recording = CubeRecording::new(objects, seed, PLAYOUT_TICKS);
            let of_messages = messages::run(&recording, &[messages::LOSS_OF_GOALS], seed);
            (of_messages, PlayoutRuns::many_of(&recording, seed), crowd_tables::join_cubes(&recording, seed))
        });
        let (mut of_states, mut playout, mut joins) = (Vec::new(), Vec::new(), Vec::new());
        for (of_messages, of_playout, of_joins) in runs {
            of_states.push(of_messages);
            playout.push(of_playout);
            joins.push(of_joins);
        }
        Self {
            messages: messages::rows_from(objects, &[messages::LOSS_OF_GOALS], &of_states),
            playout: PlayoutRuns::of_many(objects, playout),
            joins: JoinWorld::of_cubes(objects, joins),
        }
    }
}

/// Runs clients that only show, for each of these numbers of cubes.
#[must_use]
pub fn playout(seeds: Seeds) -> PlayoutRuns {
    let runs = |objects| {
        let run = |seed| PlayoutRuns::many_of(&CubeRecording::new(objects, seed, PLAYOUT_TICKS), seed);
        PlayoutRuns::of_many(objects, for_seeds(seeds, run))
    };
    PlayoutRuns::together(OBJECTS.map(runs))
}
