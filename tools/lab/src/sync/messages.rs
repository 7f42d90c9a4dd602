//! The table of messages: bytes and errors of `slipgate-sync` beside the methods of the thesis.

use super::cubes::CubeRecording;
use super::figure_row::mean;
use super::recording::{Recording, STEPS_PER_STATE};
use super::replay::{DATAGRAM_HEADER_BYTES, SyncMethod, replay};
use super::seeds::{Seeds, for_seeds};
use super::sync_figures::{SyncFigures, WARM_UP_STATES};
use super::sync_goals::SyncGoal;

/// States of a run: 25 seconds, of which 20 are measured.
const STATES: usize = WARM_UP_STATES + 400;
/// The rates of losses.
pub const LOSSES: [f64; 4] = [0.0, 0.05, LOSS_OF_GOALS, 0.37];
/// The rate of losses at which the goals are measured: the first limit of the thesis.
pub const LOSS_OF_GOALS: f64 = 0.13;
/// The numbers of objects; all losses are measured with the first one.
pub const OBJECTS: [usize; 3] = [104, 504, 1001];

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
    let run = |seed| run(&CubeRecording::new(objects, seed, STATES * STEPS_PER_STATE), losses, seed);
    rows_from(objects, losses, &for_seeds(seeds, run))
}

/// The figures of a seed for each loss and method, and the share of objects that are awake.
type MessageSeed = (f64, Vec<SyncFigures>);

fn paths(losses: &[f64]) -> impl Iterator<Item = (f64, SyncMethod)> {
    losses.iter().flat_map(|loss| SyncMethod::ALL.map(|method| (*loss, method)))
}

/// Runs all methods on the first states of a recorded world.
pub(super) fn run(cubes: &CubeRecording, losses: &[f64], seed: u64) -> MessageSeed {
    let recording = Recording::of_cubes(cubes, STATES);
    let figures = paths(losses).map(|(loss, method)| replay(&recording, method, loss, seed)).collect();
    (recording.awake, figures)
}

/// Returns the rows of these runs, one for each seed.
pub(super) fn rows_from(objects: usize, losses: &[f64], runs: &[MessageSeed]) -> Vec<SyncRow> {
    let awake = mean(runs, |(awake, _)| *awake);
    let row = |(index, (loss, method))| {
        let figures = runs.iter().filter_map(|(_, figures)| figures.get(index).copied()).collect();
        SyncRow { objects, loss, method, awake, figures }
    };
    paths(losses).enumerate().map(row).collect()
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

/// A goal: its text, the number of objects, the figure, and the limit.
type Goal = (&'static str, usize, fn(&SyncFigures) -> f64, f64);

const GOALS: [Goal; 4] = [
    ("bytes a state", 104, |figures| figures.bytes_per_state, 150.0),
    ("path, kbit/s", 104, path_rate, 36.0),
    ("payload, kbit/s", 504, payload_rate, 310.0),
    ("payload, kbit/s", 1001, payload_rate, 640.0),
];

/// Returns the row of `slipgate-sync` in which a goal is measured.
fn goal_row(rows: &[SyncRow], objects: usize) -> Option<&SyncRow> {
    let is_own = |row: &&SyncRow| row.objects == objects && row.method == SyncMethod::Differences;
    rows.iter().filter(is_own).find(|row| (row.loss - LOSS_OF_GOALS).abs() < 1e-9)
}

/// Returns the goals that these runs measure, and what was reached.
#[must_use]
pub fn goals(rows: &[SyncRow]) -> Vec<SyncGoal> {
    let goal = |(name, objects, part, limit): (&str, usize, fn(&SyncFigures) -> f64, f64)| {
        let row = goal_row(rows, objects)?;
        let (awake, loss) = (row.awake * 100.0, LOSS_OF_GOALS * 100.0);
        let figure = format!("messages, {name}: {objects} cubes, {awake:.0} % awake, {loss:.0} % loss, 20 a second");
        Some(SyncGoal::new(&figure, limit, &row.figures, part))
    };
    GOALS.into_iter().filter_map(goal).collect()
}
