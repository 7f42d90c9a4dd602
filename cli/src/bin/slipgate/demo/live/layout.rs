//! The rows of the screen, for any size: what is left out where there is little room, and where the rest stands.
//!
//! ```text
//!  Slipgate demo   8 players, a server and a token issuer                 0:23
//!  issuer http://127.0.0.1:41234   server 127.0.0.1:45678 (UDP)
//!  line         1 perfect  2 wifi-bad  3 4g  4 satellite  5 dsl-bufferbloat
//!  round trip   0.31 ms  ▁▁▁▁▂▁▁▁▇▆▁▁
//!  server CPU     4.1 %  ▁▁▁▁▁▁▁▁▃▃▁▁
//!  junk         ...
//!
//!  player state ...        a row for each player, and their sum
//!
//!  0:02 ...                the latest events
//!
//!  1-5 line   k kick ...   the keys
//! ```

use std::time::{Duration, Instant};

use super::super::line::{LINES, Line};
use super::super::snapshot::DemoSnapshot;
use super::history::{History, Sample};
use super::row::{ScreenRow, Tone, first_that_fits, wrap};
use super::table::{Table, short_millis};

/// The bars of a sparkline, from low to high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The columns of a label, and of the value after it.
const LABEL: usize = 12;
const VALUE: usize = 9;
/// The narrowest sparkline that says something.
const MIN_SPARKLINE: usize = 8;
/// The round trip at which a sparkline is full, unless a longer one was seen: noise on loopback must look flat.
const FULL_ROUND_TRIP: f64 = 0.010;
/// The rows that a small screen must have: title, line, round trip, processor, drops, heading, sum, keys.
const NEEDED_ROWS: usize = 8;
/// The most event rows.
const MAX_EVENT_ROWS: usize = 12;

/// Everything that the screen shows.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a DemoSnapshot,
    pub(super) history: &'a History,
    pub(super) line: Line,
    /// Where issuer and server listen.
    pub(super) addresses: &'a str,
    pub(super) now: Instant,
}

/// How many rows each part gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Plan {
    players: usize,
    events: usize,
    gaps: usize,
    description: usize,
    addresses: usize,
}

impl Plan {
    /// Shares the rows of the screen. Players come first, then the latest events, then what is merely nice.
    fn of(height: usize, players: usize) -> Self {
        let mut free = height.saturating_sub(NEEDED_ROWS);
        let mut take = |wanted: usize| {
            let taken = wanted.min(free);
            free -= taken;
            taken
        };
        let mut plan = Self { events: take(1), ..Self::default() };
        plan.players = take(players.min(4));
        plan.events += take(2);
        plan.players += take(players.saturating_sub(4).min(4));
        plan.gaps = take(2);
        plan.description = take(1);
        plan.addresses = take(1);
        plan.events += take(1);
        plan.players += take(players.saturating_sub(8));
        plan.events += take(MAX_EVENT_ROWS - 4);
        plan
    }
}

/// Returns the rows of a screen of this size: at most `height`, each at most `width` columns wide.
pub(super) fn rows(view: &View<'_>, width: usize, height: usize) -> Vec<ScreenRow> {
    let snapshot = view.snapshot;
    let plan = Plan::of(height, snapshot.clients.len());
    let gap = |number: usize| (plan.gaps >= number).then(ScreenRow::default);
    let table = Table::of_width(width);
    let mut rows = vec![title(view, width)];
    rows.extend((plan.addresses > 0).then(|| ScreenRow::new(Tone::Dim, first_that_fits(width, &[view.addresses]))));
    rows.push(line(view.line, width));
    rows.extend((plan.description > 0).then(|| description(view.line, width)));
    rows.extend([round_trip(view.history, width), cpu(view.history, width), drops(view, width)]);
    rows.extend(gap(1));
    rows.push(table.heading());
    rows.extend(players(snapshot, &table, plan.players, width));
    rows.push(table.total(snapshot));
    rows.extend(gap(2));
    rows.extend(events(view.history, width, plan.events));
    // The keys stand at the bottom.
    rows.truncate(height.saturating_sub(1));
    rows.resize_with(height.saturating_sub(1), ScreenRow::default);
    rows.push(keys(width, view.history.samples().next_back().is_some_and(|sample| sample.flood.is_some())));
    rows
}

/// Returns the rows of as many players as fit, and how many are left out.
fn players(snapshot: &DemoSnapshot, table: &Table, max: usize, width: usize) -> Vec<ScreenRow> {
    let players = snapshot.clients.len();
    let shown = if players <= max { players } else { max.saturating_sub(1) };
    let rows = snapshot.clients.iter().take(shown).map(|entry| table.player(entry, snapshot.map_bytes()));
    let mut rows: Vec<ScreenRow> = rows.collect();
    if shown < players && max > 0 {
        let left_out = ScreenRow::new(Tone::Dim, &format!("{:>7}and {} more players", "", players - shown));
        rows.push(ScreenRow::default().and_if_it_fits(left_out, width));
    }
    rows
}

fn title(view: &View<'_>, width: usize) -> ScreenRow {
    let players = view.snapshot.clients.len();
    let time = clock(view.history.elapsed(view.now));
    let about = format!("  {players} players, a game server and a token issuer on this machine");
    let short = format!("  {players} players");
    let title = ScreenRow::new(Tone::Bold, first_that_fits(width, &["Slipgate demo", "Slipgate"]));
    let free = width.saturating_sub(title.width() + time.len() + 1);
    let title = title.with(Tone::Plain, first_that_fits(free, &[&about, &short]));
    let pad = " ".repeat(width.saturating_sub(title.width() + time.len()).max(1));
    title.and_if_it_fits(ScreenRow::new(Tone::Plain, &pad).with(Tone::Dim, &time), width)
}

/// Returns the lines with their keys; where there is no room, only the keys and the name of the chosen line.
fn line(chosen: Line, width: usize) -> ScreenRow {
    let tone = |line: Line| if line == chosen { Tone::Chosen } else { Tone::Plain };
    let (mut full, mut short) = (label("line", width), label("line", width));
    for (number, line) in (1..).zip(LINES) {
        let gap = if number == 1 { "" } else { "  " };
        full = full.with(Tone::Plain, gap).with(tone(line), &format!("{number} {}", line.name()));
        short = short.with(tone(line), &number.to_string()).with(Tone::Plain, " ");
    }
    let name = ScreenRow::new(Tone::Plain, chosen.name());
    let rows = [full, short.and(name.clone()), name];
    rows.into_iter().find(|row| row.width() <= width).unwrap_or_default()
}

fn description(line: Line, width: usize) -> ScreenRow {
    let indent = " ".repeat(LABEL + 1);
    let lines = wrap(line.description(), width.saturating_sub(indent.len()));
    let first = lines.first().map_or("", |line| line.trim_end_matches(','));
    ScreenRow::default().and_if_it_fits(ScreenRow::new(Tone::Dim, &format!("{indent}{first}")), width)
}

/// Returns the label of a row, of a fixed width.
fn label(text: &str, width: usize) -> ScreenRow {
    ScreenRow::default().and_if_it_fits(ScreenRow::new(Tone::Dim, &format!("{text:<LABEL$} ")), width)
}

fn round_trip(history: &History, width: usize) -> ScreenRow {
    let seconds = |sample: &Sample| sample.round_trip.map(|time| time.as_secs_f64());
    let latest = history.samples().next_back().and_then(|sample| sample.round_trip);
    let most = |most: f64| format!("up to {}", short_millis(Duration::try_from_secs_f64(most).ok()));
    sparkline("round trip", &short_millis(latest), history, width, seconds, FULL_ROUND_TRIP, most)
}

fn cpu(history: &History, width: usize) -> ScreenRow {
    let latest = history.samples().next_back().and_then(|sample| sample.cpu);
    let text = latest.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0));
    let most = |most: f64| format!("up to {:.0} %", most * 100.0);
    sparkline("server CPU", &text, history, width, |sample| sample.cpu, 1.0, most)
}

/// Returns a row with a label, the latest value, a sparkline of the samples, and the largest of them. `full` is the
/// smallest scale.
fn sparkline(
    name: &str,
    latest: &str,
    history: &History,
    width: usize,
    value: impl Fn(&Sample) -> Option<f64>,
    full: f64,
    most: impl Fn(f64) -> String,
) -> ScreenRow {
    let row = label(name, width).and_if_it_fits(ScreenRow::new(Tone::Bold, &format!("{latest:>VALUE$}  ")), width);
    // The text behind the sparkline has a fixed width, so that the sparkline does not move.
    let columns = width.saturating_sub(row.width() + 2 + "up to 00.0 ms".len());
    if columns < MIN_SPARKLINE {
        return row;
    }
    let samples: Vec<Option<f64>> = history.samples().rev().take(columns).map(value).collect();
    let largest = samples.iter().flatten().copied().fold(0.0, f64::max);
    let bars: String =
        samples.iter().rev().map(|value| value.map_or(' ', |value| bar(value, full.max(largest)))).collect();
    let pad = " ".repeat(columns.saturating_sub(samples.len()));
    row.with(Tone::Accent, &bars).with(Tone::Dim, &format!("{pad}  {}", most(largest)))
}

fn bar(value: f64, full: f64) -> char {
    let step = (value / full * (BARS.len() - 1) as f64).round().clamp(0.0, 7.0) as usize;
    BARS.get(step).copied().unwrap_or(' ')
}

/// Returns the row of junk and drops: rates during a flood, otherwise the sums so far.
fn drops(view: &View<'_>, width: usize) -> ScreenRow {
    let latest = view.history.samples().next_back();
    if let Some((sample, flood)) = latest.and_then(|sample| Some((sample, sample.flood?))) {
        let row = label("flood", width);
        let row = row.and_if_it_fits(ScreenRow::new(Tone::Bad, &format!("{}/s", grouped(flood))), width);
        // Short, so that two rates of six digits fit into 80 columns.
        let mut parts = vec![("kernel", sample.dropped_by_system)];
        parts.extend(sample.drops.iter().copied());
        return list(row, "  dropped: ", "/s", &parts, width);
    }
    let server = &view.snapshot.server;
    let mut parts = vec![("by the kernel", server.dropped_by_system.unwrap_or(0))];
    parts.extend(server.discards.iter().map(|(reason, count)| (reason.name(), count)));
    parts.retain(|(_, count)| *count > 0);
    let row = label("dropped", width);
    if parts.is_empty() {
        return row.and_if_it_fits(ScreenRow::new(Tone::Plain, "none"), width);
    }
    list(row, "", "", &parts, width)
}

/// Appends as many counters to a row as fit.
fn list(row: ScreenRow, prefix: &str, unit: &str, parts: &[(&str, u64)], width: usize) -> ScreenRow {
    let (mut row, mut separator) = (row, prefix);
    for (name, count) in parts {
        let piece = ScreenRow::new(Tone::Plain, &format!("{separator}{}{unit} {name}", grouped(*count)));
        let longer = row.clone().and_if_it_fits(piece, width);
        if longer == row {
            break;
        }
        (row, separator) = (longer, ", ");
    }
    row
}

/// Returns the last rows of the wrapped events.
fn events(history: &History, width: usize, max: usize) -> Vec<ScreenRow> {
    let mut rows: Vec<ScreenRow> = Vec::new();
    for (at, text) in history.events().rev() {
        let time = format!("{:>5} ", clock(*at));
        let lines = wrap(text, width.saturating_sub(time.len()));
        let new = lines.iter().enumerate().map(|(index, line)| {
            let start = if index == 0 { time.clone() } else { " ".repeat(time.len()) };
            ScreenRow::default().and_if_it_fits(ScreenRow::new(Tone::Dim, &start).with(Tone::Plain, line), width)
        });
        let new: Vec<ScreenRow> = new.collect();
        if rows.len() + new.len() > max {
            break;
        }
        rows.extend(new.into_iter().rev());
    }
    rows.reverse();
    rows
}

fn keys(width: usize, is_flooding: bool) -> ScreenRow {
    let flood = if is_flooding { "stop the flood" } else { "flood with junk" };
    let full = [("1-5", "line"), ("k", "kick a player"), ("r", "restart the server"), ("f", flood), ("q", "quit")];
    let short = [("1-5", "line"), ("k", "kick"), ("r", "restart"), ("f", "flood"), ("q", "quit")];
    let row = |keys: &[(&str, &str)]| {
        keys.iter().enumerate().fold(ScreenRow::default(), |row, (index, (key, meaning))| {
            let gap = if index == 0 { "" } else { "   " };
            row.with(Tone::Plain, gap).with(Tone::Chosen, &format!(" {key} ")).with(Tone::Plain, &format!(" {meaning}"))
        })
    };
    let letters = ScreenRow::new(Tone::Plain, "1-5 k r f q");
    let rows = [row(&full), row(&short), letters];
    rows.into_iter().find(|row| row.width() <= width).unwrap_or_default()
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Returns a number with a comma before each group of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;
