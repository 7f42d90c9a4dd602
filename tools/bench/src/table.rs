//! The report: aligned text that is also Markdown, and JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::figures::median;
use crate::row::{Baseline, BenchRow, Cell, Column, ColumnRole, FigureLimit, TargetResult};

/// The report of a run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BenchReport {
    /// The machine.
    pub machine: String,
    /// The cores of servers and driver, and what they share.
    pub cores: String,
    /// The number of client sockets.
    pub sockets: usize,
    /// The number of rounds.
    pub rounds: usize,
    /// The subjects.
    pub columns: Vec<Column>,
    /// The measured rows.
    pub rows: Vec<BenchRow>,
}

/// A row with its derived figures.
#[derive(Serialize)]
struct EvaluatedRow<'a> {
    #[serde(flatten)]
    row: &'a BenchRow,
    medians: Vec<Option<f64>>,
    to_plain: Option<f64>,
    to_best_peer: Option<f64>,
    target_results: Vec<TargetResult>,
}

impl BenchReport {
    /// Returns the report as JSON: every figure of every round, and the derived figures.
    ///
    /// # Errors
    /// The error of `serde_json` for a figure that JSON cannot represent.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        let judged = |row: &'_ BenchRow| -> serde_json::Result<serde_json::Value> {
            serde_json::to_value(EvaluatedRow {
                row,
                medians: row.cells.iter().map(|cell| median(cell.rounds())).collect(),
                to_plain: row.measured(&self.columns, &Baseline::Plain),
                to_best_peer: row.measured(&self.columns, &Baseline::BestPeer),
                target_results: row.target_results(&self.columns),
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

    /// Returns the report as text: the machine, the table, and the reasons for blank cells.
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

    /// Returns the suffix for a row with fewer rounds than the heading states.
    fn fewer_rounds(&self, row: &BenchRow) -> String {
        let with_figures = row.cells.iter().map(|cell| cell.rounds().len()).filter(|rounds| *rounds > 0);
        match with_figures.min() {
            Some(1) if self.rounds > 1 => ", once".into(),
            Some(rounds) if rounds < self.rounds => format!(", {rounds} rounds"),
            _ => String::new(),
        }
    }

    fn has_peers(&self) -> bool {
        self.columns.iter().any(|column| column.role == ColumnRole::Peer)
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

    fn line(&self, row: &BenchRow) -> Vec<String> {
        let ratio = |against| row.measured(&self.columns, &against).map_or_else(String::new, |it| format!("{it:.2}x"));
        let mut cells = vec![row.what.clone() + &self.fewer_rounds(row), row.unit.into()];
        cells.extend(row.cells.iter().map(|cell| median(cell.rounds()).map_or_else(String::new, figure)));
        cells.push(ratio(Baseline::Plain));
        if self.has_peers() {
            cells.push(ratio(Baseline::BestPeer));
        }
        cells.push(row.target_results(&self.columns).iter().map(target_result).collect::<Vec<_>>().join("; "));
        cells
    }

    /// Returns the subjects with blank cells and the reasons, each reason once.
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

/// Formats a figure with three significant digits.
fn figure(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{figure:.2}"),
        size if size < 100.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

fn target_result(target_result: &TargetResult) -> String {
    let (sign, limit) = match target_result.target.limit {
        FigureLimit::AtMost(limit) => ("<=", limit),
        FigureLimit::AtLeast(limit) => (">=", limit),
    };
    let baseline = match &target_result.target.baseline {
        Baseline::Itself => String::new(),
        Baseline::Channels => " with channels".into(),
        Baseline::Plain => "x plain".into(),
        Baseline::BestPeer => "x best peer".into(),
        Baseline::Ours { named, .. } => format!("x {named} ({:.2}x)", target_result.measured),
    };
    format!("{sign} {limit}{baseline}: {}", if target_result.reached { "yes" } else { "NO" })
}

/// Formats an aligned Markdown table. The first line is the heading.
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

    fn report() -> BenchReport {
        let column = |(name, role): (&str, ColumnRole)| Column { name: name.into(), role };
        let row = |what: &str, ours: f64, peer: Cell| BenchRow {
            what: what.into(),
            unit: "us",
            more_is_better: false,
            cells: vec![Cell::Rounds(vec![ours; 3]), Cell::Rounds(vec![4.0; 3]), peer],
            targets: vec![Target { baseline: Baseline::Plain, limit: FigureLimit::AtMost(1.0) }],
        };
        BenchReport {
            machine: "a machine".into(),
            cores: "its cores".into(),
            sockets: 5,
            rounds: 3,
            columns: [("us", ColumnRole::Ours), ("plain", ColumnRole::Plain), ("them", ColumnRole::Peer)]
                .map(column)
                .into(),
            rows: vec![
                row("few", 3.0, Cell::Rounds(vec![12.0; 3])),
                row("many", 5.0, Cell::Blank("at most 256 clients".into())),
            ],
        }
    }

    #[test]
    fn text_has_medians_ratios_targets_and_reasons() {
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
    fn row_with_fewer_rounds_is_marked() {
        let mut report = report();
        report.rounds = 5;
        report.rows[0].cells[0] = Cell::Rounds(vec![3.0]);
        let text = report.text();
        assert!(text.contains("| few, once      |") && text.contains("| many, 3 rounds |"), "{text}");
    }

    #[test]
    fn json_has_every_round_and_derived_figures() {
        let json: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        assert_eq!(json["rows"][0]["cells"][0]["rounds"], serde_json::json!([3.0, 3.0, 3.0]));
        assert_eq!(json["rows"][0]["to_plain"], 0.75);
        assert_eq!(json["rows"][1]["target_results"][0]["reached"], false);
        assert_eq!(json["rows"][1]["cells"][2]["blank"], "at most 256 clients");
        assert_eq!(json["rows"][1]["medians"][2], serde_json::Value::Null);
    }

    #[test]
    fn figures_have_three_significant_digits() {
        for (number, text) in
            [(0.0, "0"), (0.456, "0.46"), (4.5, "4.50"), (45.67, "45.7"), (456.7, "457"), (12_345.6, "12346")]
        {
            assert_eq!(figure(number), text);
        }
    }
}
