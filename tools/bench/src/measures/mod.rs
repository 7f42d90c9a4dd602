//! The measures. Each returns rows of the table.

pub mod connects;
pub mod echo;
pub mod flood;
pub mod idle;
pub mod joined;
pub mod memory;
pub mod real_time;
pub mod rejects;
pub mod seals;
pub mod shards;
pub mod tick;

use std::io;

use crate::row::{Baseline, BenchRow, Cell, FigureLimit, Target};

/// Returns the error of a measure that does not apply to a subject.
fn not_applicable() -> io::Error {
    io::Error::other("")
}

/// Converts nanoseconds to microseconds.
fn microseconds(nanoseconds: f64) -> f64 {
    nanoseconds / 1000.0
}

/// Creates a row in which lower figures are better.
fn row(what: impl Into<String>, unit: &'static str, cells: Vec<Cell>) -> BenchRow {
    BenchRow { what: what.into(), unit, more_is_better: false, cells, targets: Vec::new() }
}

impl BenchRow {
    /// Returns the row with a further target.
    #[must_use]
    fn with_target(mut self, baseline: Baseline, limit: FigureLimit) -> Self {
        self.targets.push(Target { baseline, limit });
        self
    }
}
