//! The document `specs/sync-table.md`: the measured figures and how to repeat them.

use super::crowd_tables::{self, FanoutRuns, JoinWorld};
use super::cube_tables::{self, FormatRuns, InputRuns, PlayoutRuns, StateRuns};
use super::document_texts as texts;
use super::goal_notes;
use super::many_cubes::{self, ManyRuns};
use super::messages::{self, SyncRow};
use super::seeds::Seeds;
use super::sync_goals::{self, SyncGoal};

/// The seeds of each row, of which the texts say the number, too.
pub const SEEDS: u64 = 40;
/// The minutes of a run of inputs.
const MINUTES_OF_INPUTS: u32 = 10;

/// All runs of the document.
struct AllRuns {
    messages: Vec<SyncRow>,
    states: StateRuns,
    playout: PlayoutRuns,
    formats: FormatRuns,
    inputs: InputRuns,
    fanout: FanoutRuns,
    joins: Vec<JoinWorld>,
}

impl AllRuns {
    fn new(seeds: Seeds) -> Self {
        let [first, ..] = messages::OBJECTS;
        let (mut messages, mut joins) =
            (messages::rows_of(first, &messages::LOSSES, seeds), vec![JoinWorld::cubes(first, seeds)]);
        let mut playout = vec![PlayoutRuns::new(seeds), PlayoutRuns::paths(seeds)];
        for objects in many_cubes::OBJECTS {
            let many = ManyRuns::new(objects, seeds);
            messages.extend(many.messages);
            playout.push(many.playout);
            joins.push(many.joins);
        }
        joins.push(JoinWorld::crowd(seeds));
        Self {
            messages,
            states: StateRuns::new(seeds),
            playout: PlayoutRuns::together(playout),
            formats: FormatRuns::new(seeds),
            inputs: InputRuns::new(seeds, MINUTES_OF_INPUTS),
            fanout: FanoutRuns::new(seeds),
            joins,
        }
    }

    /// Returns the goals but those of messages.
    fn other_goals(&self) -> Vec<SyncGoal> {
        let shown = [self.states.goals(), self.playout.goals(), self.formats.goals(), self.inputs.goals()].concat();
        [shown, self.fanout.goals(), crowd_tables::join_goals(&self.joins)].concat()
    }

    fn goals(&self) -> Vec<SyncGoal> {
        [messages::goals(&self.messages), self.other_goals()].concat()
    }

    /// Returns the tables of clients that show and simulate cubes.
    fn cubes(&self, prediction: &str, rewind: &str) -> String {
        let first = [texts::CUBES_TEXT, &self.states.table(), texts::PREDICTION_TEXT, prediction].concat();
        let shown = [texts::PLAYOUT_TEXT, &self.playout.table(), texts::REWIND_TEXT, rewind].concat();
        let formats = [texts::FORMATS_TEXT, &self.formats.table(), texts::INPUTS_TEXT, &self.inputs.table()].concat();
        first + &shown + &formats
    }

    /// Returns the tables of many clients.
    fn crowds(&self) -> String {
        let joins = crowd_tables::join_tables(&self.joins);
        let fanout = [texts::FANOUT_TEXT, &self.fanout.table(), "\n", &self.fanout.notes()].concat();
        fanout + texts::JOIN_TEXT + &joins
    }

    fn goals_part(&self) -> String {
        let table = sync_goals::table(&self.other_goals());
        let notes = goal_notes::on_prototype(&self.states) + &goal_notes::text(&self.goals());
        [texts::GOALS_TEXT, &table, &notes, &goal_notes::on_playout(&self.playout)].concat()
    }
}

/// Runs everything and returns the document.
#[must_use]
pub fn document() -> String {
    let (runs, prediction) = (AllRuns::new(SEEDS.into()), cube_tables::prediction_table(SEEDS));
    let messages = [
        texts::HEAD,
        &messages::table(&runs.messages),
        texts::MESSAGE_GOALS_TEXT,
        &sync_goals::table(&messages::goals(&runs.messages)),
    ]
    .concat();
    let cubes = runs.cubes(&prediction, &cube_tables::rewind_table(SEEDS));
    [messages, cubes, runs.crowds(), runs.goals_part(), texts::SAMPLE_HEAD.to_owned(), sample()].concat()
}

/// The seeds that each run of the tests measures again.
pub const SAMPLE_SEEDS: u64 = 2;

/// The seeds of the tables in `docs/state.md`.
pub const GUIDE_SEEDS: u64 = SEEDS;

/// The names of the tables, in the order of the document. The last two are in `docs/state.md`.
pub const EXPERIMENTS: [&str; 13] = [
    "messages",
    "states",
    "own-cube",
    "playout",
    "playout-paths",
    "playout-many",
    "rewind",
    "formats",
    "inputs",
    "fanout",
    "join",
    "smoothing",
    "velocities",
];

/// Runs the table with this name with these seeds. `None` if there is no such table.
#[must_use]
pub fn experiment(name: &str, seeds: Seeds) -> Option<String> {
    match name {
        "messages" => Some(messages::table(&messages::rows(seeds))),
        "states" => Some(StateRuns::new(seeds).table()),
        "own-cube" => Some(cube_tables::prediction_table(seeds)),
        "playout" => Some(PlayoutRuns::new(seeds).table()),
        "playout-paths" => Some(PlayoutRuns::paths(seeds).table()),
        "playout-many" => Some(many_cubes::playout(seeds).table()),
        "rewind" => Some(cube_tables::rewind_table(seeds)),
        "formats" => Some(FormatRuns::new(seeds).table()),
        "inputs" => Some(InputRuns::new(seeds, MINUTES_OF_INPUTS).table()),
        "fanout" => Some(FanoutRuns::new(seeds).table()),
        "join" => Some(crowd_tables::join_tables(&crowd_tables::join_worlds(seeds))),
        "smoothing" => Some(cube_tables::smoothing_table(seeds)),
        "velocities" => Some(cube_tables::velocities_table(seeds)),
        _ => None,
    }
}

/// Runs the first seeds of everything but playout of many cubes, and returns their tables.
#[must_use]
pub fn sample() -> String {
    let seeds = Seeds::from(SAMPLE_SEEDS);
    let tables = [
        messages::table(&messages::rows(seeds)),
        StateRuns::new(seeds).table(),
        cube_tables::prediction_table(seeds),
        PlayoutRuns::new(seeds).table(),
        PlayoutRuns::paths(seeds).table(),
        cube_tables::rewind_table(seeds),
        FormatRuns::new(seeds).table(),
        InputRuns::new(seeds, MINUTES_OF_INPUTS).table(),
        FanoutRuns::new(seeds).table(),
        crowd_tables::join_tables(&crowd_tables::join_worlds(seeds)),
    ];
    tables.join("\n")
}

/// Runs everything that has a goal.
#[must_use]
pub fn all_goals(seeds: Seeds) -> Vec<SyncGoal> {
    AllRuns::new(seeds).goals()
}
