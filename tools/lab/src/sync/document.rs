//! The document `specs/sync-table.md`: the measured figures and how to repeat them.

use super::cube_tables::{self, FormatRuns, InputRuns, PlayoutRuns, StateRuns};
use super::recording::Recording;
use super::replay::{DATAGRAM_HEADER_BYTES, SyncMethod, replay};
use super::seeds::{Seeds, for_seeds};
use super::sync_figures::{SyncFigures, WARM_UP_STATES};
use super::sync_goals::{self, SyncGoal};

/// The seeds of each row.
pub const SEEDS: u64 = 40;
/// States of a run: 25 seconds, of which 20 are measured.
const STATES: usize = WARM_UP_STATES + 400;
/// The rates of losses.
const LOSSES: [f64; 4] = [0.0, 0.05, LOSS_OF_GOALS, 0.37];
/// The rate of losses at which the goals are measured: the first limit of the thesis.
pub const LOSS_OF_GOALS: f64 = 0.13;
/// The numbers of objects; all losses are measured with the first one.
const OBJECTS: [usize; 3] = [104, 504, 1001];

const HEAD: &str = "\
# Game state in figures

`cargo run --release -- lab sync --markdown` generates this document, and `./check --tables` repeats all runs and
compares. The tests repeat the first two seeds, with the figures at the end. Time is virtual and all randomness comes
from seeds, so that the figures are the same everywhere.

The world has the size and the rules of a bachelor thesis (Fribourg, 2018): 32 m by 32 m with cubes that four players
push, attract and repel (`tools/worlds`, with the physics of rapier3d). The players press at random. States are sent 20
times a second. A message arrives after 50 ms; its acknowledgement takes 50 ms more, and a loss is reported after
150 ms. Messages have at most 1,200 bytes.

Columns with bytes and the payload count messages, without the headers of datagrams. The path counts 68 bytes more for
each datagram, with every method: IPv4, UDP, encryption, acknowledgements and the channel. The error is the distance
between an object of the client and the server's object 50 ms ago: the 99th percentile over 20 seconds. No client
interpolates or simulates: this is what a client knows, not what it shows. The clients of the thesis's state
synchronisation do simulate, so that its error here is larger than in its own world. `worst` is the worst of 40 seeds,
the other figures are means.

";

/// The states of a second.
const STATES_PER_SECOND: f64 = 20.0;

/// A row of the table: one method on one path.
pub struct SyncRow {
    /// The number of objects.
    pub objects: usize,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The method.
    pub method: SyncMethod,
    /// The mean share of objects that are awake.
    pub awake: f64,
    /// The figures of each seed.
    pub figures: Vec<SyncFigures>,
}

impl SyncRow {
    fn mean(&self, part: fn(&SyncFigures) -> f64) -> f64 {
        self.figures.iter().map(part).sum::<f64>() / self.figures.len().max(1) as f64
    }

    fn worst(&self, part: fn(&SyncFigures) -> f64) -> f64 {
        self.figures.iter().map(part).fold(0.0, f64::max)
    }

    fn line(&self) -> String {
        format!(
            "| {} | {:.0} % | {} | {:.0} | {:.0} | {:.1} | {:.1} | {:.1} | {:.1} |\n",
            self.objects,
            self.loss * 100.0,
            self.method.name(),
            self.mean(|figures| figures.bytes_per_state),
            self.worst(|figures| figures.bytes_per_state),
            self.mean(payload_rate),
            self.mean(path_rate),
            self.mean(|figures| figures.error_p99),
            self.worst(|figures| figures.error_p99),
        )
    }
}

/// Returns the rate of the messages, in kbit/s.
fn payload_rate(figures: &SyncFigures) -> f64 {
    figures.bytes_per_state * 8.0 * STATES_PER_SECOND / 1000.0
}

/// Returns the rate of the datagrams with their headers, in kbit/s.
fn path_rate(figures: &SyncFigures) -> f64 {
    let headers = figures.datagrams_per_state * DATAGRAM_HEADER_BYTES as f64;
    (figures.bytes_per_state + headers) * 8.0 * STATES_PER_SECOND / 1000.0
}

/// Runs everything with these seeds.
#[must_use]
pub fn rows(seeds: impl Into<Seeds>) -> Vec<SyncRow> {
    let seeds = seeds.into();
    let rows_of = |(index, objects): (usize, &usize)| {
        let losses = if index == 0 { &LOSSES[..] } else { &[LOSS_OF_GOALS][..] };
        rows_of(*objects, losses, seeds)
    };
    OBJECTS.iter().enumerate().flat_map(rows_of).collect()
}

/// Runs all methods with this number of objects and these losses.
#[must_use]
pub fn rows_of(objects: usize, losses: &[f64], seeds: impl Into<Seeds>) -> Vec<SyncRow> {
    let seeds = seeds.into();
    let paths = || losses.iter().flat_map(|loss| SyncMethod::ALL.map(|method| (*loss, method)));
    let runs = for_seeds(seeds, |seed| {
        let recording = Recording::new(objects, seed, STATES);
        let figures: Vec<SyncFigures> = paths().map(|(loss, method)| replay(&recording, method, loss, seed)).collect();
        (recording.awake, figures)
    });
    let awake = runs.iter().map(|(awake, _)| awake).sum::<f64>() / seeds.count.max(1) as f64;
    let row = |(index, (loss, method))| {
        let figures = runs.iter().filter_map(|(_, figures)| figures.get(index).copied()).collect();
        SyncRow { objects, loss, method, awake, figures }
    };
    paths().enumerate().map(row).collect()
}

/// Returns the table.
#[must_use]
pub fn table(rows: &[SyncRow]) -> String {
    let mut text = String::from(
        "| objects | loss | method | bytes a state | worst | payload, kbit/s | path, kbit/s | error p99, cm | worst |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    rows.iter().for_each(|row| text.push_str(&row.line()));
    text
}

/// Runs everything and returns the document.
#[must_use]
pub fn document() -> String {
    let rows = rows(SEEDS);
    let goals = sync_goals::table(&message_goals(&rows));
    [HEAD, &table(&rows), GOALS_HEAD, &goals, GOALS_END, &cube_tables::document(), SAMPLE_HEAD, &sample()].concat()
}

/// The seeds that each run of the tests measures again.
pub const SAMPLE_SEEDS: u64 = 2;

/// The seeds of the tables in `docs/state.md`.
pub const GUIDE_SEEDS: u64 = 10;

/// The names of the tables, in the order of the document. The last two are in `docs/state.md`.
pub const EXPERIMENTS: [&str; 11] = [
    "messages",
    "states",
    "own-cube",
    "playout",
    "playout-paths",
    "playout-many",
    "rewind",
    "formats",
    "inputs",
    "smoothing",
    "velocities",
];

/// Runs the table with this name with these seeds, `playout-many` with half of them. `None` if there is no such table.
#[must_use]
pub fn experiment(name: &str, seeds: Seeds) -> Option<String> {
    match name {
        "messages" => Some(table(&rows(seeds))),
        "states" => Some(StateRuns::new(seeds).table()),
        "own-cube" => Some(cube_tables::prediction_table(seeds)),
        "playout" => Some(PlayoutRuns::new(seeds).table()),
        "playout-paths" => Some(PlayoutRuns::paths(seeds).table()),
        "playout-many" => Some(PlayoutRuns::many(seeds).table()),
        "rewind" => Some(cube_tables::rewind_table(seeds)),
        "formats" => Some(FormatRuns::new(seeds).table()),
        "inputs" => Some(InputRuns::new(seeds, 10).table()),
        "smoothing" => Some(cube_tables::smoothing_table(seeds)),
        "velocities" => Some(cube_tables::velocities_table(seeds)),
        _ => None,
    }
}

const SAMPLE_HEAD: &str = "
## The first two seeds

The tests measure these rows again: the tables above with two seeds.

";

/// Runs the first seeds of everything but playout of many cubes, and returns their tables.
#[must_use]
pub fn sample() -> String {
    [table(&rows(SAMPLE_SEEDS)), cube_tables::sample(SAMPLE_SEEDS)].join("\n")
}

/// A goal: its text, the number of objects, the figure, and the limit.
type Goal = (&'static str, usize, fn(&SyncFigures) -> f64, f64);

const GOALS: [Goal; 4] = [
    ("bytes a state", 104, |figures| figures.bytes_per_state, 150.0),
    ("path, kbit/s", 104, path_rate, 36.0),
    ("payload, kbit/s", 504, payload_rate, 310.0),
    ("payload, kbit/s", 1001, payload_rate, 640.0),
];

const GOALS_HEAD: &str = "
## Goals

In the world in which the goals were set, 70 % of 504 objects and 83 % of 1,001 objects were awake. A figure may be at
most its goal, and a goal is reached if the mean of all seeds is within it.

";
const GOALS_END: &str = "
The share of a processor is measured by the benchmark `game_state` in `tests/benches`.
";

/// Returns the row of `slipgate-sync` in which a goal is measured.
fn goal_row(rows: &[SyncRow], objects: usize) -> Option<&SyncRow> {
    let is_own = |row: &&SyncRow| row.objects == objects && row.method == SyncMethod::Differences;
    rows.iter().filter(is_own).find(|row| (row.loss - LOSS_OF_GOALS).abs() < 1e-9)
}

/// Returns the goals that these runs measure, and what was reached.
#[must_use]
pub fn message_goals(rows: &[SyncRow]) -> Vec<SyncGoal> {
    let goal = |(name, objects, part, limit): (&str, usize, fn(&SyncFigures) -> f64, f64)| {
        let row = goal_row(rows, objects)?;
        let (awake, loss) = (row.awake * 100.0, LOSS_OF_GOALS * 100.0);
        let figure = format!("messages, {name}: {objects} cubes, {awake:.0} % awake, {loss:.0} % loss, 20 a second");
        Some(SyncGoal::new(&figure, limit, &row.figures, part))
    };
    GOALS.into_iter().filter_map(goal).collect()
}

/// Runs everything that has a goal.
#[must_use]
pub fn all_goals(seeds: Seeds) -> Vec<SyncGoal> {
    let (states, playout, inputs) = (StateRuns::new(seeds), PlayoutRuns::all(seeds), InputRuns::new(seeds, 10));
    let formats = FormatRuns::new(seeds);
    [message_goals(&rows(seeds)), states.goals(), playout.goals(), formats.goals(), inputs.goals()].concat()
}
