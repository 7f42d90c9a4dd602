//! The table: all scenarios, all algorithms, five seeds, in text and in Markdown.

use core::fmt::Write;

use serde::Serialize;

use crate::measure::{Figures, mean};
use crate::play::{Run, play_all};
use crate::rules::Rule;
use crate::scenario::{Figure, Scenario};

/// The seeds of the table.
pub const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// A row: a scenario and the figures of each algorithm.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The scenario's short name.
    pub name: String,
    /// What it is.
    pub title: String,
    /// Means over the seeds, for each algorithm.
    pub figures: Vec<(Rule, Figures)>,
    #[serde(skip)]
    figure: Option<Figure>,
}

/// Plays the scenarios with each algorithm and each seed.
#[must_use]
pub fn rows(scenarios: &[Scenario], rules: &[Rule], seeds: &[u64], threads: usize) -> Vec<Row> {
    let runs: Vec<Run<'_>> = scenarios
        .iter()
        .flat_map(|scenario| rules.iter().map(move |rule| (scenario, *rule)))
        .flat_map(|(scenario, rule)| seeds.iter().map(move |seed| Run { scenario, rule, seed: *seed }))
        .collect();
    let mut means = play_all(&runs, threads).chunks(seeds.len().max(1)).map(mean).collect::<Vec<_>>().into_iter();
    let row = |scenario: &Scenario| Row {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        figures: rules.iter().copied().zip(&mut means).collect(),
        figure: scenario.figure,
    };
    scenarios.iter().map(row).collect()
}

/// The rows for people at a terminal.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.title.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    if let Some(row) = rows.first() {
        let _ = write!(text, "{:4} {:width$}", "", "served %/p95 ms");
        for (rule, _) in &row.figures {
            let _ = write!(text, " {:>9}", rule.name());
        }
        text.push('\n');
    }
    for row in rows {
        let _ = write!(text, "{:4} {:width$}", row.name, row.title);
        for (_, figures) in &row.figures {
            let _ = write!(text, " {:>9}", cell(figures));
        }
        text.push('\n');
    }
    let special: Vec<String> = rows.iter().flat_map(special).collect();
    if !special.is_empty() {
        let _ = write!(text, "\n{}\n", special.join("\n"));
    }
    text
}

/// The rows as they stand in the specification.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    if let Some(row) = rows.first() {
        let names: Vec<&str> = row.figures.iter().map(|(rule, _)| rule.name()).collect();
        let _ = writeln!(text, "| | scenario | {} |", names.join(" | "));
        let _ = writeln!(text, "|---|---|{}", "---|".repeat(names.len()));
    }
    for row in rows {
        let cells: Vec<String> = row.figures.iter().map(|(_, figures)| cell(figures)).collect();
        let _ = writeln!(text, "| {} | {} | {} |", row.name, row.title, cells.join(" | "));
    }
    let special: Vec<String> = rows.iter().flat_map(special).map(|line| format!("- {line}\n")).collect();
    if !special.is_empty() {
        let _ = write!(text, "\n{}", special.concat());
    }
    text
}

fn cell(figures: &Figures) -> String {
    format!("{:.0}/{:.0}", 100.0 * figures.served, figures.p95_ms)
}

/// What else a row has to say of each algorithm.
fn special(row: &Row) -> Vec<String> {
    let lines = row.figures.iter().filter_map(|(rule, figures)| {
        Some(format!("{} {}: {}", row.name, rule.name(), sentence(row.figure?, figures)?))
    });
    lines.collect()
}

fn sentence(figure: Figure, figures: &Figures) -> Option<String> {
    match figure {
        Figure::Drop { from, until } => figures.fall.map(|fall| {
            let never = fall.adaptation >= 0.999 * (until - from).as_secs_f64();
            let adapts = if never { "never adapts".to_owned() } else { format!("adapts in {:.2} s", fall.adaptation) };
            let then = if never { String::new() } else { format!("then p95 {:.0} ms, ", fall.then_p95_ms) };
            format!("{adapts}, peak {:.0} ms, {then}recovers in {:.2} s", fall.peak_ms, fall.recovery)
        }),
        Figure::Dark(_) => figures.dark.map(|dark| {
            let (sent, served) = (dark.sent / 1000.0, 100.0 * dark.then_served);
            format!("in the dark {sent:.1} kB/s, then {served:.0} %, at most {:.0} ms", dark.then_peak_ms)
        }),
        Figure::Drops => Some(format!("{:.1} % dropped", 100.0 * figures.dropped)),
        Figure::Fairness => figures.fairness.map(|index| format!("Jain's index {index:.3}")),
        Figure::Transfer => figures.transfer.map(|first| match figures.transfer_again {
            Some(second) => format!("transfer {}, again {}", within(first), within(second)),
            None => format!("transfer {}", within(first)),
        }),
    }
}

/// How long a transfer took: no scenario leaves one less than 25 s.
fn within(seconds: f64) -> String {
    if seconds >= 24.9 { "not done in 25 s".to_owned() } else { format!("in {seconds:.1} s") }
}
