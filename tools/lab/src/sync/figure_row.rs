//! A row of a table: its cells, and the mean and the worst seed of each figure.

use std::fmt::Write as _;

/// A row: its cells, and mean and worst of each figure.
pub(super) struct FigureRow {
    cells: String,
    figures: Vec<(f64, f64)>,
}

impl FigureRow {
    pub(super) fn new<F>(cells: String, runs: &[F], parts: &[fn(&F) -> f64]) -> Self {
        let figure = |part: &fn(&F) -> f64| (mean(runs, part), runs.iter().map(part).fold(0.0, f64::max));
        Self { cells, figures: parts.iter().map(figure).collect() }
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!("| {} |", self.cells);
        for (mean, worst) in &self.figures {
            let _ = write!(line, " {mean:.2} | {worst:.2} |");
        }
        line + "\n"
    }
}

/// Returns the mean of a figure.
pub(super) fn mean<F>(runs: &[F], part: impl Fn(&F) -> f64) -> f64 {
    runs.iter().map(part).sum::<f64>() / runs.len().max(1) as f64
}
