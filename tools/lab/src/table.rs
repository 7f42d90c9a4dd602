//! The table: all scenarios, all controllers, five seeds, as text and as Markdown.

use core::fmt::Write;

use serde::Serialize;

use crate::controllers::ControllerKind;
use crate::measure::{Figures, mean};
use crate::play::{Run, play_all};
use crate::scenario::{Figure, Scenario};

/// The seeds of the table.
pub const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

/// A row: a scenario and the figures of each controller.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The scenario's short name.
    pub name: String,
    /// Its description.
    pub title: String,
    /// The means over the seeds, for each controller.
    pub figures: Vec<(ControllerKind, Figures)>,
    #[serde(skip)]
    figure: Option<Figure>,
}

/// Runs the scenarios with each controller and each seed.
#[must_use]
pub fn rows(scenarios: &[Scenario], controllers: &[ControllerKind], seeds: &[u64], threads: usize) -> Vec<Row> {
    let runs: Vec<Run<'_>> = scenarios
        .iter()
        .flat_map(|scenario| controllers.iter().map(move |controller| (scenario, *controller)))
        .flat_map(|(scenario, controller)| seeds.iter().map(move |seed| Run { scenario, controller, seed: *seed }))
        .collect();
    let mut means = play_all(&runs, threads).chunks(seeds.len().max(1)).map(mean).collect::<Vec<_>>().into_iter();
    let row = |scenario: &Scenario| Row {
        name: scenario.name.clone(),
        title: scenario.title.clone(),
        figures: controllers.iter().copied().zip(&mut means).collect(),
        figure: scenario.figure,
    };
    scenarios.iter().map(row).collect()
}

/// Returns the rows as text for a terminal.
#[must_use]
pub fn text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.title.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    if let Some(row) = rows.first() {
        let _ = write!(text, "{:4} {:width$}", "", "served %/p95 ms");
        for (controller, _) in &row.figures {
            let _ = write!(text, " {:>9}", controller.name());
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

/// Returns the rows as Markdown, as in the specification.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    if let Some(row) = rows.first() {
        let names: Vec<&str> = row.figures.iter().map(|(controller, _)| controller.name()).collect();
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

/// Returns the additional lines of a row, one for each controller.
fn special(row: &Row) -> Vec<String> {
    let lines = row.figures.iter().filter_map(|(controller, figures)| {
        Some(format!("{} {}: {}", row.name, controller.name(), sentence(row.figure?, figures)?))
    });
    lines.collect()
}

fn sentence(figure: Figure, figures: &Figures) -> Option<String> {
    match figure {
        Figure::Drop { from, until } => figures.rate_drop.map(|rate_drop| {
            let never = rate_drop.adaptation >= 0.999 * (until - from).as_secs_f64();
            let adapts =
                if never { "never adapts".to_owned() } else { format!("adapts in {:.2} s", rate_drop.adaptation) };
            let then = if never { String::new() } else { format!("then p95 {:.0} ms, ", rate_drop.p95_after_ms) };
            format!("{adapts}, peak {:.0} ms, {then}recovers in {:.2} s", rate_drop.peak_ms, rate_drop.recovery)
        }),
        Figure::Outage(_) => figures.outage.map(|outage| {
            let (sent, served) = (outage.sent / 1000.0, 100.0 * outage.served_after);
            format!("during the outage {sent:.1} kB/s, then {served:.0} %, at most {:.0} ms", outage.peak_after_ms)
        }),
        Figure::Drops => Some(format!("{:.1} % dropped", 100.0 * figures.dropped)),
        Figure::Fairness => figures.fairness.map(|index| format!("Jain's index {index:.3}")),
        Figure::Transfer => figures.transfer.map(|first| match figures.transfer_again {
            Some(second) => format!("transfer {}, again {}", within(first), within(second)),
            None => format!("transfer {}", within(first)),
        }),
    }
}

/// Returns the duration of a transfer as text. Each scenario leaves a transfer at least 25 s.
fn within(seconds: f64) -> String {
    if seconds >= 24.9 { "not done in 25 s".to_owned() } else { format!("in {seconds:.1} s") }
}
