//! The document that stands in `specs/congestion-table.md`: what was measured, and how to measure it again.

use crate::random_paths::{self, Spread};
use crate::rules::Rule;
use crate::table::{Row, SEEDS, markdown, rows};
use crate::{scenarios, targets};

/// How many paths are drawn for the document.
pub const RANDOM_PATHS: u64 = 300;

const HEAD: &str = "\
# Congestion avoidance in figures

Made by `cargo run --release -- lab congestion --markdown`; a test plays it again and compares. Time is virtual and all
randomness comes from seeds, so that the figures are the same everywhere. `lab/README.md` says how the simulator works.

## The table

Each cell is the share that was served (of a game's demand, as far as the path has room for it, without what the path
loses on its own account) or used (of the path's capacity), in percent, and the queueing delay that 95 % of the packets
did not exceed, in milliseconds: means over five seeds. `none` and `binary` offer 1.25 times the capacity in bulk, half
of it in F1 and F2, 3.5 Mbit/s in E1 and E3. `aimd`, `cubic`, `bbr`, `gcc`, `nada` are comparisons, the last three in
their main features only; `nada` knows twice the path's rate as its highest. Under the table: what leaves per second in
the dark, after the first; what is served from one second after it to the fifth, and how long the queue is at most until
then.

";

const TARGETS_HEAD: &str = "
## Targets

";

const RANDOM_HEAD: &str = "
## Random paths

Glide on paths that nobody chose: 0.3 to 50 Mbit/s, round trips of 10 to 300 ms, buffers of 40 to 1,500 ms, up to 6 ms
of jitter, up to 5 % of loss, 10 to 60 reports per second.

";

/// The whole document: everything is played.
#[must_use]
pub fn document(threads: usize) -> String {
    let rows = rows(&scenarios::all(), &Rule::ALL, &SEEDS, threads);
    compose(&rows, &random_paths::spreads(RANDOM_PATHS, Rule::Glide, threads))
}

/// The document that says what was measured.
#[must_use]
pub fn compose(rows: &[Row], spreads: &[Spread]) -> String {
    let (targets, random) = (targets::markdown(rows), random_paths::markdown(spreads));
    [HEAD, &markdown(rows), TARGETS_HEAD, &targets, RANDOM_HEAD, &random].concat()
}
