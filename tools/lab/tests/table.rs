//! The document of figures is what the simulator measures today, and the default controller reaches its targets.
//!
//! All of it is played: every scenario with every controller and each seed, and all random paths.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]

use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use slipgate_lab::play::Run;
use slipgate_lab::random_paths::{self, Spread, Trial};
use slipgate_lab::rules::Rule;
use slipgate_lab::scenarios;
use slipgate_lab::specification::{self, RANDOM_PATHS};
use slipgate_lab::table::{Row, SEEDS, rows};
use slipgate_lab::targets::{self, OPEN, TARGETS};

const HOW: &str =
    "if the change is meant: cargo run --release -- lab congestion --markdown > specs/congestion-table.md";

/// Played once for all tests.
static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| rows(&scenarios::all(), &Rule::ALL, &SEEDS, threads()));
static SPREADS: LazyLock<Vec<Spread>> = LazyLock::new(|| random_paths::spreads(RANDOM_PATHS, Rule::Glide, threads()));

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// The lines of the one text that the other lacks.
fn lacking<'a>(text: &'a str, other: &str) -> Vec<&'a str> {
    text.lines().filter(|line| !other.lines().any(|known| known == *line)).collect()
}

#[test]
fn the_document_says_what_every_controller_does_and_nothing_else() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs/congestion-table.md");
    let written = fs::read_to_string(path).unwrap();
    let measured = specification::compose(&ROWS, &SPREADS);
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
fn what_is_open_is_not_reached_yet_and_would_be_a_target_otherwise() {
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
fn paths_that_nobody_chose_are_used_and_stay_quick() {
    assert_eq!(SPREADS.iter().map(|spread| spread.trial).collect::<Vec<_>>(), Trial::ALL);
    for spread in SPREADS.iter() {
        assert!(spread.paths == 300 && spread.reaches_its_goal(), "{spread:?}, {:?}", spread.trial.goal());
    }
}

#[test]
fn a_seed_gives_the_same_run_again_and_another_seed_another_one() {
    let all = scenarios::all();
    // One of each kind of randomness: loss, bursts, jitter, stalls, a rate that walks, several flows.
    for scenario in all.iter().filter(|scenario| ["C1", "C6", "G2", "G3", "G4", "J2"].contains(&&*scenario.name)) {
        let run = |seed| Run { scenario, rule: Rule::Glide, seed };
        let trace = run(1).play().trace;
        assert_eq!(run(1).play().trace, trace, "{}", scenario.name);
        assert_ne!(run(2).play().trace, trace, "{}", scenario.name);
    }
}
