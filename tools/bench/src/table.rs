//! The table: aligned text that is Markdown as well, and JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::figures::median;
use crate::row::{Against, Cell, Column, Limit, Role, Row, Verdict};

/// All that a run found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What it ran on.
    pub machine: String,
    /// On which cores servers and driver were, and what they had to share.
    pub cores: String,
    /// How many sockets the clients had.
    pub sockets: usize,
    /// How often everybody had a turn.
    pub rounds: usize,
    /// Who took part.
    pub columns: Vec<Column>,
    /// What was measured.
    pub rows: Vec<Row>,
}

/// A row with what follows from it.
#[derive(Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    row: &'a Row,
    medians: Vec<Option<f64>>,
    to_plain: Option<f64>,
    to_best_peer: Option<f64>,
    verdicts: Vec<Verdict>,
}

impl Report {
    /// The whole as JSON: every figure of every round, and what follows from them.
    ///
    /// # Errors
    /// A figure that JSON cannot hold.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let judged = |row: &'_ Row| -> serde_json::Result<serde_json::Value> {
            serde_json::to_value(Judged {
                row,
                medians: row.cells.iter().map(|cell| median(cell.rounds())).collect(),
                to_plain: row.measured(&self.columns, &Against::Plain),
                to_best_peer: row.measured(&self.columns, &Against::BestPeer),
                verdicts: row.verdicts(&self.columns),
            })
        };
        let rows: Vec<serde_json::Value> = self.rows.iter().map(judged).collect::<Result<_, _>>()?;
        serde_json::to_string_pretty(&serde_json::json!({
            "machine": self.machine,
            "cores": self.cores,
            "sockets": self.sockets,
            "rounds": self.rounds,
            "columns": self.columns,
            "rows": rows,
        }))
    }

    /// The whole for people: the machine, the table, and why cells are empty.
    #[must_use]
    pub fn text(&self) -> String {
        let mut lines = vec![self.heading()];
        lines.extend(self.rows.iter().map(|row| self.line(row)));
        let mut text = format!(
            "{}\n{}\nMedians of {} rounds; up to {} clients' sockets.\n\n",
            self.machine, self.cores, self.rounds, self.sockets
        );
        text.push_str(&aligned(&lines));
        for (name, why) in self.blanks() {
            let _ = write!(text, "\n{name}: {why}");
        }
        text
    }

    /// What is behind the name of a row that has figures of fewer rounds than the heading says.
    fn fewer_rounds(&self, row: &Row) -> String {
        let with_figures = row.cells.iter().map(|cell| cell.rounds().len()).filter(|rounds| *rounds > 0);
        match with_figures.min() {
            Some(1) if self.rounds > 1 => ", once".into(),
            Some(rounds) if rounds < self.rounds => format!(", {rounds} rounds"),
            _ => String::new(),
        }
    }

    fn has_peers(&self) -> bool {
        self.columns.iter().any(|column| column.role == Role::Peer)
    }

    fn heading(&self) -> Vec<String> {
        let mut cells = vec![String::new(), "unit".into()];
        cells.extend(self.columns.iter().map(|column| column.name.clone()));
        cells.push("to plain".into());
        if self.has_peers() {
            cells.push("to best peer".into());
        }
        cells.push("to reach".into());
        cells
    }

    fn line(&self, row: &Row) -> Vec<String> {
        let ratio = |against| row.measured(&self.columns, &against).map_or_else(String::new, |it| format!("{it:.2}x"));
        let mut cells = vec![row.what.clone() + &self.fewer_rounds(row), row.unit.into()];
        cells.extend(row.cells.iter().map(|cell| median(cell.rounds()).map_or_else(String::new, figure)));
        cells.push(ratio(Against::Plain));
        if self.has_peers() {
            cells.push(ratio(Against::BestPeer));
        }
        cells.push(row.verdicts(&self.columns).iter().map(verdict).collect::<Vec<_>>().join("; "));
        cells
    }

    /// Whose cells are blank, and why, each reason once.
    fn blanks(&self) -> Vec<(&str, &str)> {
        let mut blanks = Vec::new();
        for row in &self.rows {
            for (column, cell) in self.columns.iter().zip(&row.cells) {
                if let Cell::Blank(why) = cell
                    && !why.is_empty()
                    && !blanks.contains(&(column.name.as_str(), why.as_str()))
                {
                    blanks.push((column.name.as_str(), why.as_str()));
                }
            }
        }
        blanks
    }
}

/// A figure with three digits that count.
fn figure(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{figure:.2}"),
        size if size < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

fn verdict(verdict: &Verdict) -> String {
    let (sign, limit) = match verdict.target.limit {
        Limit::AtMost(limit) => ("<=", limit),
        Limit::AtLeast(limit) => (">=", limit),
    };
    let against = match &verdict.target.against {
        Against::Itself => String::new(),
        Against::Plain => "x plain".into(),
        Against::BestPeer => "x best peer".into(),
        Against::Ours { named, .. } => format!("x {named} ({:.2}x)", verdict.measured),
    };
    format!("{sign} {limit}{against}: {}", if verdict.reached { "yes" } else { "NO" })
}

/// Lines of a Markdown table whose columns stand below each other; the first line is the heading.
fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0).max(3)).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            let _ = writeln!(text, "| {} |", rules.join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Target;

    fn report() -> Report {
        let column = |(name, role): (&str, Role)| Column { name: name.into(), role };
        let row = |what: &str, ours: f64, peer: Cell| Row {
            what: what.into(),
            unit: "us",
            more_is_better: false,
            cells: vec![Cell::Rounds(vec![ours; 3]), Cell::Rounds(vec![4.0; 3]), peer],
            targets: vec![Target { against: Against::Plain, limit: Limit::AtMost(1.0) }],
        };
        Report {
            machine: "a machine".into(),
            cores: "its cores".into(),
            sockets: 5,
            rounds: 3,
            columns: [("us", Role::Ours), ("plain", Role::Plain), ("them", Role::Peer)].map(column).into(),
            rows: vec![
                row("few", 3.0, Cell::Rounds(vec![12.0; 3])),
                row("many", 5.0, Cell::Blank("at most 256 clients".into())),
            ],
        }
    }

    #[test]
    fn the_table_has_medians_ratios_targets_and_reasons() {
        let expected = "\
a machine
its cores
Medians of 3 rounds; up to 5 clients' sockets.

|      | unit | us   | plain | them | to plain | to best peer | to reach         |
| ---- | ---- | ---- | ----- | ---- | -------- | ------------ | ---------------- |
| few  | us   | 3.00 | 4.00  | 12.0 | 0.75x    | 0.25x        | <= 1x plain: yes |
| many | us   | 5.00 | 4.00  |      | 1.25x    |              | <= 1x plain: NO  |

them: at most 256 clients";
        assert_eq!(report().text(), expected);
    }

    #[test]
    fn a_row_of_fewer_rounds_than_the_heading_says_is_marked() {
        let mut report = report();
        report.rounds = 5;
        report.rows[0].cells[0] = Cell::Rounds(vec![3.0]);
        let text = report.text();
        assert!(text.contains("| few, once      |") && text.contains("| many, 3 rounds |"), "{text}");
    }

    #[test]
    fn the_json_has_every_round_and_what_follows() {
        let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["rows"][0]["cells"][0]["rounds"], serde_json::json!([3.0, 3.0, 3.0]));
        assert_eq!(json["rows"][0]["to_plain"], 0.75);
        assert_eq!(json["rows"][1]["verdicts"][0]["reached"], false);
        assert_eq!(json["rows"][1]["cells"][2]["blank"], "at most 256 clients");
        assert_eq!(json["rows"][1]["medians"][2], serde_json::Value::Null);
    }

    #[test]
    fn figures_have_three_digits_that_count() {
        for (number, text) in
            [(0.0, "0"), (0.456, "0.46"), (4.5, "4.50"), (45.67, "45.7"), (456.7, "457"), (12_345.6, "12346")]
        {
            assert_eq!(figure(number), text);
        }
    }
}
