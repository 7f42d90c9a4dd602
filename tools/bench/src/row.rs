//! A row of the table: what was measured, for whom, and what was to be reached.

use serde::Serialize;

use crate::figures::{median, ratio};

/// What is compared with what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// What is measured.
    Ours,
    /// The same with messages on a channel.
    Channels,
    /// An unencrypted echo, one system call for each datagram.
    Plain,
    /// The same with a system call for up to 64 datagrams.
    Batched,
    /// Another library.
    Peer,
}

/// A column: who was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Column {
    /// Its name.
    pub name: String,
    #[serde(skip)]
    /// What is compared with it.
    pub role: Role,
}

/// What one contestant did in a row.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// A figure for each round.
    Rounds(Vec<f64>),
    /// No figure, and why; no reason where the question makes no sense.
    Blank(String),
}

impl Cell {
    /// The figures; none where the cell is blank.
    #[must_use]
    pub fn rounds(&self) -> &[f64] {
        match self {
            Self::Rounds(figures) => figures,
            Self::Blank(_) => &[],
        }
    }
}

/// What our figure is divided by before it is judged.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// Nothing.
    Itself,
    /// The unbatched echo, or its receive-and-drop.
    Plain,
    /// The best of the peers.
    BestPeer,
    /// Our own figures in another row.
    Ours {
        /// In which.
        named: String,
        /// One for each round.
        rounds: Vec<f64>,
    },
}

/// A figure to reach.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Target {
    /// What is judged.
    pub against: Against,
    /// At most this, or at least.
    pub limit: Limit,
}

/// A limit.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// So much and no more.
    AtMost(f64),
    /// So much or more.
    AtLeast(f64),
}

impl Limit {
    /// Whether a figure keeps to it.
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
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// Whether more is better.
    pub more_is_better: bool,
    /// One for each column.
    pub cells: Vec<Cell>,
    /// What is to be reached.
    pub targets: Vec<Target>,
}

/// What a target comes to.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Verdict {
    /// The target.
    pub target: Target,
    /// What was measured.
    pub measured: f64,
    /// Whether it was reached.
    pub reached: bool,
}

impl Row {
    /// The cell of the only column with this role, where the row has it.
    #[must_use]
    pub fn of(&self, columns: &[Column], role: Role) -> &[f64] {
        let cells = columns.iter().zip(&self.cells);
        cells.into_iter().find(|(column, _)| column.role == role).map_or(&[], |(_, cell)| cell.rounds())
    }

    /// The figures of the peer with the best median.
    #[must_use]
    pub fn best_peer(&self, columns: &[Column]) -> &[f64] {
        let peers = columns.iter().zip(&self.cells).filter(|(column, _)| column.role == Role::Peer);
        let medians = peers.filter_map(|(_, cell)| Some((median(cell.rounds())?, cell.rounds())));
        let best = if self.more_is_better {
            medians.max_by(|a, b| a.0.total_cmp(&b.0))
        } else {
            medians.min_by(|a, b| a.0.total_cmp(&b.0))
        };
        best.map_or(&[], |(_, rounds)| rounds)
    }

    /// Our figure divided by another; `None` where one of them is missing.
    #[must_use]
    pub fn measured(&self, columns: &[Column], against: &Against) -> Option<f64> {
        let ours = self.of(columns, Role::Ours);
        match against {
            Against::Itself => median(ours),
            Against::Plain => ratio(ours, self.of(columns, Role::Plain)),
            Against::BestPeer => ratio(ours, self.best_peer(columns)),
            Against::Ours { rounds, .. } => ratio(ours, rounds),
        }
    }

    /// What the targets come to, as far as there are figures.
    #[must_use]
    pub fn verdicts(&self, columns: &[Column]) -> Vec<Verdict> {
        let verdict = |target: &Target| {
            let measured = self.measured(columns, &target.against)?;
            Some(Verdict { target: target.clone(), measured, reached: target.limit.allows(measured) })
        };
        self.targets.iter().filter_map(verdict).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let column = |(name, role): (&str, Role)| Column { name: name.into(), role };
        [("us", Role::Ours), ("plain", Role::Plain), ("slow", Role::Peer), ("quick", Role::Peer)].map(column).into()
    }

    fn row(more_is_better: bool, against: Against, limit: Limit) -> Row {
        let cells = [vec![6.0, 4.0, 5.0], vec![2.0, 2.0, 2.0], vec![10.0, 10.0, 10.0], vec![8.0, 4.0, 5.0]];
        Row {
            what: "a measure".into(),
            unit: "us",
            more_is_better,
            cells: cells.map(Cell::Rounds).into(),
            targets: vec![Target { against, limit }],
        }
    }

    #[test]
    fn a_target_is_judged_by_what_it_is_against() {
        let elsewhere = Against::Ours { named: "elsewhere".into(), rounds: vec![10.0; 3] };
        for (more, against, limit, measured, reached) in [
            (false, Against::Itself, Limit::AtMost(5.0), 5.0, true),
            (false, Against::Plain, Limit::AtMost(2.4), 2.5, false),
            (false, Against::BestPeer, Limit::AtMost(1.0), 1.0, true),
            (true, Against::BestPeer, Limit::AtLeast(0.6), 0.5, false),
            (false, elsewhere, Limit::AtMost(0.5), 0.5, true),
        ] {
            let verdicts = row(more, against.clone(), limit).verdicts(&columns());
            assert_eq!(verdicts.len(), 1);
            assert_eq!((verdicts[0].measured, verdicts[0].reached), (measured, reached), "{against:?}");
        }
    }

    #[test]
    fn what_has_no_figure_is_not_judged() {
        let mut row = row(false, Against::BestPeer, Limit::AtMost(1.0));
        row.cells[2] = Cell::Blank("at most 1 client".into());
        row.cells[3] = Cell::Blank("at most 2 clients".into());
        assert_eq!(row.verdicts(&columns()), []);
    }
}
