//! The document equals the figures of the simulator, and the default controller reaches its targets.
//!
//! With `SLIPGATE_TESTS=all` every scenario runs with every controller and seed, and all random paths. Otherwise the
//! default controller runs every scenario with every seed, which is what its targets need.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use slipgate_lab::controllers::ControllerKind;
use slipgate_lab::play::Run;
use slipgate_lab::random_paths::{self, Trial, TrialResult};
use slipgate_lab::scenarios;
use slipgate_lab::specification::{self, RANDOM_PATHS};
use slipgate_lab::table::{Row, SEEDS, rows};
use slipgate_lab::targets::{self, OPEN, TARGETS};

use self::scale::pick;

#[path = "../../../../tests/src/scale.rs"]
#[allow(unreachable_pub, reason = "the file is a module of the test library")]
mod scale;
#[cfg(feature = "cubes")]
mod sync_table;

const HOW: &str =
    "if the change is intended: cargo run --release -- lab congestion --markdown > specs/congestion-table.md";

/// Computed once for all tests.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let quick: &[ControllerKind] = &[ControllerKind::Glide];
    let controllers = pick(quick, &ControllerKind::ALL[..]);
    rows(&scenarios::all(), controllers, &SEEDS, threads())
});
static TRIAL_RESULTS: LazyLock<Vec<TrialResult>> =
    LazyLock::new(|| random_paths::trial_results(RANDOM_PATHS, ControllerKind::Glide, threads()));

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Returns the lines of one text that the other lacks.
fn lacking<'a>(text: &'a str, other: &str) -> Vec<&'a str> {
    text.lines().filter(|line| !other.lines().any(|known| known == *line)).collect()
}

#[test]
fn document_equals_the_measured_figures() {
    if pick(true, false) {
        println!("skipped: SLIPGATE_TESTS=all measures the whole table");
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/congestion-table.md");
    let written = fs::read_to_string(path).unwrap();
    let measured = specification::compose(&ROWS, &TRIAL_RESULTS);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("congestion-table.md");
    fs::write(&kept, &measured).unwrap();
    let (stale, new) = (lacking(&written, &measured).join("\n"), lacking(&measured, &written).join("\n"));
    assert!(
        written.trim_end() == measured.trim_end(),
        "written:\n{stale}\nmeasured:\n{new}\nwhole: {}\n{HOW}",
        kept.display()
    );
}

#[test]
fn the_default_controller_reaches_its_targets() {
    let checked = targets::check(TARGETS, &ROWS);
    assert_eq!(checked.len(), TARGETS.iter().map(|(_, bounds)| bounds.len()).sum::<usize>());
    let missed: Vec<_> = checked.iter().filter(|target| !target.reached).collect();
    assert!(missed.is_empty(), "the default controller misses {missed:?}");
}

#[test]
fn open_goals_are_not_reached_yet() {
    let reached: Vec<_> = targets::check(OPEN, &ROWS).into_iter().filter(|target| target.reached).collect();
    assert!(reached.is_empty(), "these are targets now: {reached:?}");
}

#[test]
fn every_scenario_has_a_target() {
    let has = |name: &str| TARGETS.iter().any(|(target, bounds)| *target == name && !bounds.is_empty());
    for scenario in scenarios::all() {
        assert!(has(&scenario.name), "{}", scenario.name);
    }
}

#[test]
fn random_paths_reach_their_goals() {
    if pick(true, false) {
        return;
    }
    assert_eq!(TRIAL_RESULTS.iter().map(|trial_result| trial_result.trial).collect::<Vec<_>>(), Trial::ALL);
    for trial_result in TRIAL_RESULTS.iter() {
        assert!(
            trial_result.paths == 300 && trial_result.reaches_its_goal(),
            "{trial_result:?}, {:?}",
            trial_result.trial.goal()
        );
    }
}

#[test]
fn seed_determines_the_run() {
    let all = scenarios::all();
    // One scenario of each kind of randomness: loss, bursts, jitter, stalls, a random walk, several flows.
    for scenario in all.iter().filter(|scenario| ["C1", "C6", "G2", "G3", "G4", "J2"].contains(&&*scenario.name)) {
        let run = |seed| Run { scenario, controller: ControllerKind::Glide, seed };
        let trace = run(1).play().trace;
        assert_eq!(run(1).play().trace, trace, "{}", scenario.name);
        assert_ne!(run(2).play().trace, trace, "{}", scenario.name);
    }
}
