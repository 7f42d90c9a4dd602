//! A row of the table: the figures of each subject and the targets.

use serde::Serialize;

use crate::figures::{median, ratio};

/// The role of a column in comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnRole {
    /// The Slipgate server.
    Ours,
    /// The Slipgate server with messages on a channel.
    Channels,
    /// An unencrypted echo, one system call for each datagram.
    Plain,
    /// An unencrypted echo with batched system calls of up to 64 datagrams.
    Batched,
    /// Another library.
    Peer,
}

/// A column: a subject.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Column {
    /// The name of the subject.
    pub name: String,
    #[serde(skip)]
    /// Its role.
    pub role: ColumnRole,
}

/// The figures of a subject in a row.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// A figure for each round.
    Rounds(Vec<f64>),
    /// No figure, and the reason; an empty reason if the measure does not apply.
    Blank(String),
}

impl Cell {
    /// Returns the figures; none for a blank cell.
    #[must_use]
    pub fn rounds(&self) -> &[f64] {
        match self {
            Self::Rounds(figures) => figures,
            Self::Blank(_) => &[],
        }
    }
}

/// The baseline by which our figure is divided.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// Our own figure, so the quotient is not shown.
    Itself,
    /// The figure of our server with channels, also undivided.
    Channels,
    /// The unbatched echo, or its receive-and-drop.
    Plain,
    /// The best peer.
    BestPeer,
    /// Our own figures in another row.
    Ours {
        /// The name of that row.
        named: String,
        /// The figures of its rounds.
        rounds: Vec<f64>,
    },
}

/// A target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Target {
    /// The baseline.
    pub baseline: Baseline,
    /// The limit of the ratio, or of the figure itself.
    pub limit: FigureLimit,
}

/// A limit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureLimit {
    /// An upper bound.
    AtMost(f64),
    /// A lower bound.
    AtLeast(f64),
}

impl FigureLimit {
    /// Returns whether a figure is within the limit.
    #[must_use]
    pub fn allows(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }
}

/// A row.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BenchRow {
    /// The measured figure.
    pub what: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// Whether higher figures are better.
    pub more_is_better: bool,
    /// The cells, one for each column.
    pub cells: Vec<Cell>,
    /// The targets of the row.
    pub targets: Vec<Target>,
}

/// The result of a target.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TargetResult {
    /// The target.
    pub target: Target,
    /// The measured figure.
    pub measured: f64,
    /// Whether the target was reached.
    pub reached: bool,
}

impl BenchRow {
    /// Returns the figures of the column with this role; none if there is no such column.
    #[must_use]
    pub fn of(&self, columns: &[Column], role: ColumnRole) -> &[f64] {
        let cells = columns.iter().zip(&self.cells);
        cells.into_iter().find(|(column, _)| column.role == role).map_or(&[], |(_, cell)| cell.rounds())
    }

    /// Returns the figures of the peer with the best median.
    #[must_use]
    pub fn best_peer(&self, columns: &[Column]) -> &[f64] {
        let peers = columns.iter().zip(&self.cells).filter(|(column, _)| column.role == ColumnRole::Peer);
        let medians = peers.filter_map(|(_, cell)| Some((median(cell.rounds())?, cell.rounds())));
        let best = if self.more_is_better {
            medians.max_by(|a, b| a.0.total_cmp(&b.0))
        } else {
            medians.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        best.map_or(&[], |(_, rounds)| rounds)
    }

    /// Returns our figure divided by the baseline; `None` if one of them is missing.
    #[must_use]
    pub fn measured(&self, columns: &[Column], baseline: &Baseline) -> Option<f64> {
        let ours = self.of(columns, ColumnRole::Ours);
        match baseline {
            Baseline::Itself => median(ours),
            Baseline::Channels => median(self.of(columns, ColumnRole::Channels)),
            Baseline::Plain => ratio(ours, self.of(columns, ColumnRole::Plain)),
            Baseline::BestPeer => ratio(ours, self.best_peer(columns)),
            Baseline::Ours { rounds, .. } => ratio(ours, rounds),
        }
    }

    /// Returns the results of the targets for which there are figures.
    #[must_use]
    pub fn target_results(&self, columns: &[Column]) -> Vec<TargetResult> {
        let target_result = |target: &Target| {
            let measured = self.measured(columns, &target.baseline)?;
            Some(TargetResult { target: target.clone(), measured, reached: target.limit.allows(measured) })
        };
        self.targets.iter().filter_map(target_result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let column = |(name, role): (&str, ColumnRole)| Column { name: name.into(), role };
        [
            ("us", ColumnRole::Ours),
            ("plain", ColumnRole::Plain),
            ("slow", ColumnRole::Peer),
            ("quick", ColumnRole::Peer),
        ]
        .map(column)
        .into()
    }

    fn row(more_is_better: bool, baseline: Baseline, limit: FigureLimit) -> BenchRow {
        let cells = [vec![6.0, 4.0, 5.0], vec![2.0, 2.0, 2.0], vec![10.0, 10.0, 10.0], vec![8.0, 4.0, 5.0]];
        BenchRow {
            what: "a measure".into(),
            unit: "us",
            more_is_better,
            cells: cells.map(Cell::Rounds).into(),
            targets: vec![Target { baseline, limit }],
        }
    }

    #[test]
    fn target_is_evaluated_by_its_baseline() {
        let elsewhere = Baseline::Ours { named: "elsewhere".into(), rounds: vec![10.0; 3] };
        for (more, baseline, limit, measured, reached) in [
            (false, Baseline::Itself, FigureLimit::AtMost(5.0), 5.0, true),
            (false, Baseline::Plain, FigureLimit::AtMost(2.4), 2.5, false),
            (false, Baseline::BestPeer, FigureLimit::AtMost(1.0), 1.0, true),
            (true, Baseline::BestPeer, FigureLimit::AtLeast(0.6), 0.5, false),
            (false, elsewhere, FigureLimit::AtMost(0.5), 0.5, true),
        ] {
            let target_results = row(more, baseline.clone(), limit).target_results(&columns());
            assert_eq!(target_results.len(), 1);
            assert_eq!((target_results[0].measured, target_results[0].reached), (measured, reached), "{baseline:?}");
        }
    }

    #[test]
    fn target_without_figures_has_no_result() {
        let mut row = row(false, Baseline::BestPeer, FigureLimit::AtMost(1.0));
        row.cells[2] = Cell::Blank("at most 1 client".into());
        row.cells[3] = Cell::Blank("at most 2 clients".into());
        assert_eq!(row.target_results(&columns()), []);
    }
}
