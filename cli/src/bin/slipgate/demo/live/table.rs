//! The table of players: a row for each, as many columns as fit.

use std::time::Duration;

use slipgate_client::CloseKind;

use super::super::snapshot::{DemoSnapshot, PlayerEntry};
use super::row::{ScreenRow, Tone, wrap};

/// The columns from left to right: heading, width, and rank. On a narrow screen the columns with the highest rank are
/// left out first.
const COLUMNS: [(&str, usize, u8); 11] = [
    ("player", 6, 0),
    ("state", 10, 0),
    ("round trip", 10, 1),
    ("jitter", 7, 4),
    ("loss", 6, 3),
    ("budget", 11, 7),
    ("map", 10, 2),
    ("chat", 5, 6),
    ("wrong", 5, 5),
    ("updates", 13, 8),
    ("slot", 4, 9),
];

/// A cell: its text, and how it looks.
type Cell = (Tone, String);

/// The columns that a screen shows.
pub(super) struct Table {
    shown: Vec<usize>,
    width: usize,
}

impl Table {
    /// Chooses the columns for this width.
    pub(super) fn of_width(width: usize) -> Self {
        let mut by_rank: Vec<usize> = (0..COLUMNS.len()).collect();
        by_rank.sort_by_key(|index| COLUMNS.get(*index).map(|(_, _, rank)| *rank));
        let (mut shown, mut used) = (Vec::new(), 0);
        for index in by_rank {
            let Some((_, columns, _)) = COLUMNS.get(index) else { continue };
            used += columns + usize::from(!shown.is_empty());
            if used > width {
                break;
            }
            shown.push(index);
        }
        shown.sort_unstable();
        Self { shown, width }
    }

    pub(super) fn heading(&self) -> ScreenRow {
        self.row(&COLUMNS.map(|(heading, _, _)| (Tone::Dim, heading.to_owned())))
    }

    /// Returns the row of a player. One that is away shows why, instead of measurements.
    pub(super) fn player(&self, entry: &PlayerEntry, map_bytes: u32) -> ScreenRow {
        let client = &entry.client;
        if let Some(error) = &client.error {
            return self.away(entry, (Tone::Bad, "failed"), error);
        }
        let player = &client.player;
        match &client.past.last_end {
            Some(end) if !player.state.is_connected() && end.kind == CloseKind::Kicked => {
                return self.away(entry, (Tone::Bad, "kicked"), &end.to_string());
            }
            Some(end) if !player.state.is_connected() => {
                return self.away(entry, (Tone::Warning, "rejoins"), &end.to_string());
            }
            _ => {}
        }
        let state = if player.state.is_connected() { (Tone::Good, "connected") } else { (Tone::Warning, "joining") };
        let is_wrong = entry.wrong() > 0;
        self.row(&[
            (Tone::Bold, client.client_id.to_string()),
            (state.0, state.1.to_owned()),
            (Tone::Plain, short_millis(entry.round_trip())),
            (Tone::Plain, short_millis(entry.jitter())),
            loss(entry.loss()),
            (Tone::Plain, entry.budget()),
            map_bar(player.map.complete > 0, player.map.bytes, map_bytes),
            (Tone::Plain, client.lines_returned().to_string()),
            (if is_wrong { Tone::Bad } else { Tone::Plain }, entry.wrong().to_string()),
            (Tone::Plain, client.states_received().to_string()),
            (Tone::Plain, player.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string())),
        ])
    }

    /// Returns the row that sums up all players.
    pub(super) fn total(&self, snapshot: &DemoSnapshot) -> ScreenRow {
        let (players, connected) = (snapshot.clients.len(), snapshot.connected());
        let maps = snapshot.count(|entry| entry.client.player.map.complete > 0);
        let wrong = snapshot.wrong();
        let tone = |is_good: bool| if is_good { Tone::Plain } else { Tone::Warning };
        self.row(&[
            (Tone::Bold, "all".to_owned()),
            (tone(connected == players), format!("{connected} of {players}")),
            (Tone::Plain, short_millis(snapshot.slowest())),
            (Tone::Plain, short_millis(snapshot.largest_jitter())),
            loss(snapshot.largest_loss()),
            (Tone::Plain, String::new()),
            (tone(maps == players), format!("{maps} of {players}")),
            (Tone::Plain, snapshot.lines_returned().to_string()),
            (if wrong > 0 { Tone::Bad } else { Tone::Plain }, wrong.to_string()),
            (Tone::Plain, snapshot.states_received().to_string()),
            (Tone::Plain, String::new()),
        ])
    }

    fn row(&self, cells: &[Cell; COLUMNS.len()]) -> ScreenRow {
        let mut row = ScreenRow::default();
        for index in &self.shown {
            let (Some((tone, text)), Some((_, width, _))) = (cells.get(*index), COLUMNS.get(*index)) else { continue };
            if row.width() > 0 {
                row = row.with(Tone::Plain, " ");
            }
            // A text that is too long for its column has no place: half a number would be a wrong one.
            let text = if text.chars().count() <= *width { text } else { "…" };
            let pad = " ".repeat(width - text.chars().count());
            // The state and the map are bars and words, which begin at the left; numbers end at the right.
            row = match *index {
                1 | 6 => row.with(*tone, text).with(Tone::Plain, &pad),
                _ => row.with(Tone::Plain, &pad).with(*tone, text),
            };
        }
        row
    }

    fn away(&self, entry: &PlayerEntry, (tone, state): (Tone, &str), reason: &str) -> ScreenRow {
        let id = ScreenRow::new(Tone::Bold, &format!("{:>6}", entry.client.client_id));
        let row = ScreenRow::default().and_if_it_fits(id, self.width);
        let row = row.and_if_it_fits(ScreenRow::new(tone, &format!(" {state:<10}")), self.width);
        let free = self.width.saturating_sub(row.width() + 1);
        let lines = wrap(reason, free.saturating_sub(2));
        let first = lines.first().map_or("", String::as_str);
        let rest = if lines.len() > 1 { " …" } else { "" };
        row.and_if_it_fits(ScreenRow::new(tone, &format!(" {first}{rest}")), self.width)
    }
}

fn loss(loss: Option<f64>) -> Cell {
    let Some(percent) = loss else { return (Tone::Plain, "-".to_owned()) };
    let tone = match percent {
        0.0..2.0 => Tone::Plain,
        2.0..10.0 => Tone::Warning,
        _ => Tone::Bad,
    };
    (tone, format!("{percent:.1} %"))
}

/// Returns the bar of the map: 10 columns, filled from the left.
fn map_bar(is_complete: bool, bytes: u32, of: u32) -> Cell {
    const COLUMNS: u64 = 10;
    let tenths = if is_complete { COLUMNS } else { u64::from(bytes) * COLUMNS / u64::from(of.max(1)) };
    let filled = tenths.min(COLUMNS) as usize;
    let tone = if is_complete { Tone::Good } else { Tone::Accent };
    (tone, "█".repeat(filled) + &"░".repeat(COLUMNS as usize - filled))
}

/// Returns a time with three digits: `0.31 ms`, `12.3 ms`, `612 ms`.
pub(super) fn short_millis(time: Option<Duration>) -> String {
    let Some(time) = time else { return "-".to_owned() };
    match time.as_secs_f64() * 1e3 {
        millis @ ..9.995 => format!("{millis:.2} ms"),
        millis @ ..99.95 => format!("{millis:.1} ms"),
        millis => format!("{millis:.0} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        for (micros, text) in
            [(310, "0.31 ms"), (9_994, "9.99 ms"), (9_996, "10.0 ms"), (99_960, "100 ms"), (612_400, "612 ms")]
        {
            assert_eq!(short_millis(Some(Duration::from_micros(micros))), text);
        }
    }

    #[test]
    fn bar_is_full_only_when_the_map_is_complete() {
        assert_eq!(map_bar(false, 0, 100).1, "░░░░░░░░░░");
        assert_eq!(map_bar(false, 59, 100).1, "█████░░░░░");
        assert_eq!(map_bar(false, 99, 100).1, "█████████░");
        assert_eq!(map_bar(true, 100, 100).1, "██████████");
    }

    #[test]
    fn narrow_table_leaves_out_whole_columns() {
        let heading = |width| Table::of_width(width).heading().text();
        assert!(heading(79).contains(" chat wrong") && !heading(79).contains("updates"), "{}", heading(79));
        assert!(heading(100).ends_with("slot"), "{}", heading(100));
        assert_eq!(
            heading(46).split_whitespace().collect::<Vec<_>>(),
            ["player", "state", "round", "trip", "loss", "map"]
        );
        assert_eq!(heading(3), "");
    }
}
