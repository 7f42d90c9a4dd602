//! The document of figures is what the simulator measures today, and the default controller reaches its targets.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test panics when something is wrong")]

use std::fs;
use std::path::Path;
use std::thread::available_parallelism;

use slipgate_lab::play::Run;
use slipgate_lab::rules::Rule;
use slipgate_lab::scenario::Scenario;
use slipgate_lab::table::{Row, SEEDS, rows};
use slipgate_lab::{random_paths, scenarios, table, targets};

/// Scenarios that are played with every controller; the default one plays all.
const WITH_ALL: &[&str] = &["A4", "A5", "C3", "F5", "I1", "K3"];

const HOW: &str =
    "if the change is meant: cargo run --release -- lab congestion --markdown > specs/congestion-table.md";

fn threads() -> usize {
    available_parallelism().map_or(1, usize::from)
}

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs/congestion-table.md");
    fs::read_to_string(path).unwrap()
}

/// The cell of a scenario and a controller, by the names in the head of the table.
fn cell(text: &str, scenario: &str, rule: Rule) -> String {
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).map(cells);
    let column = line("| | scenario |").unwrap().iter().position(|name| name == rule.name()).unwrap();
    line(&format!("| {scenario} |")).unwrap_or_else(|| panic!("{scenario} has no line"))[column].clone()
}

/// The cells of the document that differ from these rows, and lines of special figures that it lacks.
fn differences(document: &str, rows: &[Row]) -> Vec<String> {
    let markdown = table::markdown(rows);
    let cells = rows.iter().flat_map(|row| row.figures.iter().map(|(rule, _)| (row.name.as_str(), *rule)));
    let wrong = cells.filter_map(|(name, rule)| {
        let (written, measured) = (cell(document, name, rule), cell(&markdown, name, rule));
        (written != measured).then(|| format!("{name} {}: {written} is written, {measured} measured", rule.name()))
    });
    let lacking = markdown.lines().filter(|line| line.starts_with("- ") && !document.contains(line)).map(str::to_owned);
    wrong.chain(lacking).collect()
}

#[test]
fn the_document_says_what_the_default_controller_does_and_which_targets_it_reaches() {
    let rows = rows(&scenarios::all(), &[Rule::Glide], &SEEDS, threads());
    let document = document();
    let differences = differences(&document, &rows);
    assert!(differences.is_empty(), "{}\n{HOW}", differences.join("\n"));
    let checked = targets::check(&rows);
    assert_eq!(checked.len(), targets::TARGETS.iter().map(|(_, bounds)| bounds.len()).sum::<usize>());
    let targets = targets::markdown(&checked);
    assert!(document.contains(&targets), "{targets}\n{HOW}");
    let missed: Vec<_> = checked.iter().filter(|target| !target.reached).collect();
    assert!(missed.is_empty(), "the default controller misses {missed:?}");
}

#[test]
fn the_document_says_what_the_others_do() {
    let chosen: Vec<Scenario> =
        scenarios::all().into_iter().filter(|scenario| WITH_ALL.contains(&scenario.name.as_str())).collect();
    let differences = differences(&document(), &rows(&chosen, &Rule::ALL, &SEEDS, threads()));
    assert!(differences.is_empty(), "{}\n{HOW}", differences.join("\n"));
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

#[test]
fn paths_that_nobody_chose_are_used_and_stay_quick() {
    for spread in random_paths::spreads(24, Rule::Glide, threads()) {
        let ([_, served], [delay, _]) = (spread.served_p5_p50, spread.delay_p50_p90_ms);
        assert!(served > 0.9, "{spread:?}");
        if spread.trial == random_paths::Trial::Bulk {
            assert!(delay < 40.0, "{spread:?}");
        }
    }
}
