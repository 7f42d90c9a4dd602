//! The measures: each gives rows of the table.

pub mod connects;
pub mod echo;
pub mod flood;
pub mod idle;
pub mod joined;
pub mod memory;
pub mod rejects;
pub mod seals;
pub mod shards;
pub mod tick;

use std::io;

use crate::row::{Against, Cell, Limit, Row, Target};

/// The question makes no sense for a contestant.
fn no_such_thing() -> io::Error {
    io::Error::other("")
}

/// Microseconds of so many nanoseconds.
fn microseconds(nanoseconds: f64) -> f64 {
    nanoseconds / 1000.0
}

/// A row where less is better.
fn row(what: impl Into<String>, unit: &'static str, cells: Vec<Cell>) -> Row {
    Row { what: what.into(), unit, more_is_better: false, cells, targets: Vec::new() }
}

impl Row {
    /// The same, to be judged by this, too.
    #[must_use]
    fn judged(mut self, against: Against, limit: Limit) -> Self {
        self.targets.push(Target { against, limit });
        self
    }
}
