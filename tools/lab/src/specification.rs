//! The document `specs/congestion-table.md`: the measured figures and how to repeat them.

use crate::controllers::ControllerKind;
use crate::random_paths::{self, TrialResult};
use crate::table::{Row, SEEDS, markdown, rows};
use crate::{scenarios, targets};

/// The number of random paths in the document.
pub const RANDOM_PATHS: u64 = 300;

const HEAD: &str = "\
# Congestion control in figures

`cargo run --release -- lab congestion --markdown` generates this document; a test repeats all runs and compares.
Time is virtual and all randomness comes from seeds, so that the figures are the same everywhere.
`tools/lab/README.md` describes the simulator.

## The table

Each cell holds the served share of a game's demand or the used share of the path's capacity, in percent, and the
95th percentile of the queueing delay in milliseconds: means over five seeds. A game's demand counts as far as the
path can carry it, without the path's random loss. `none` and `binary` send 1.25 times the capacity in bulk, half of
it in F1 and F2, and 3.5 Mbit/s in E1 and E3. `aimd`, `cubic`, `bbr`, `gcc` and `nada` are for comparison, the last
three with their main features only; the maximum rate of `nada` is twice the path's rate. The lines under the table
state for outages: the bytes sent per second after the first second; the share served from the first to the fifth
second after the outage; and the longest queueing delay until then.

";

const TARGETS_HEAD: &str = "
## Targets

";

const RANDOM_HEAD: &str = "
## Random paths

Glide on randomly drawn paths: 0.3 to 50 Mbit/s, round trips of 10 to 300 ms, buffers of 40 to 1,500 ms, up to
6 ms of jitter, up to 5 % of loss, 10 to 60 reports per second. The last three trials have other jitter and loss.

";

/// Runs everything and returns the document.
#[must_use]
pub fn document(threads: usize) -> String {
    let rows = rows(&scenarios::all(), &ControllerKind::ALL, &SEEDS, threads);
    compose(&rows, &random_paths::trial_results(RANDOM_PATHS, ControllerKind::Glide, threads))
}

/// Returns the document for measured figures.
#[must_use]
pub fn compose(rows: &[Row], trial_results: &[TrialResult]) -> String {
    let (targets, random) = (targets::markdown(rows), random_paths::markdown(trial_results));
    [HEAD, &markdown(rows), TARGETS_HEAD, &targets, RANDOM_HEAD, &random].concat()
}
