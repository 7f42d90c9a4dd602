//! The screen: a header, two charts, drops, and the clients.

use ratatui::Frame;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Paragraph, Row, Sparkline, Table};
use slipgate_session::connection::plain_text;

use super::view::{TopClient, TopView};

/// The minimum number of columns of a printed view.
const MIN_PRINTED_COLUMNS: u16 = 100;
/// The maximum number of lines of rates and drops, so that the list of clients keeps room.
const MAX_NUMBER_LINES: usize = 6;
/// The names of the columns of the list of clients.
const COLUMNS: [&str; 10] =
    ["client", "shard", "slot", "address", "connected", "silent", "round trip", "loss", "sent", "received"];

/// Returns the view as lines of text, at most this many. They are as long as the list of clients needs.
pub(super) fn print(view: &TopView, max_lines: u16) -> Vec<String> {
    let rows = u16::try_from(view.reading.clients.len()).unwrap_or(u16::MAX);
    let columns = MIN_PRINTED_COLUMNS.max(widths(&cells(view)).iter().map(|width| width + 1).sum());
    let others = 11 + number_lines(view, columns).len() as u16;
    lines(view, columns, rows.saturating_add(others).min(max_lines))
}

fn lines(view: &TopView, columns: u16, height: u16) -> Vec<String> {
    // A backend in memory does not fail.
    let Ok(mut terminal) = Terminal::new(TestBackend::new(columns, height));
    let Ok(_) = terminal.draw(|frame| draw(view, frame));
    let buffer = terminal.backend().buffer();
    let line =
        |row: u16| (0..columns).filter_map(|column| Some(buffer.cell((column, row))?.symbol())).collect::<String>();
    (0..height).map(|row| line(row).trim_end().to_owned()).collect()
}

/// Draws the view.
pub(super) fn draw(view: &TopView, frame: &mut Frame<'_>) {
    let numbers_text = number_lines(view, frame.area().width);
    let parts = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(5),
        Constraint::Length(numbers_text.len() as u16),
        Constraint::Min(3),
        Constraint::Length(1),
    ]);
    let [header, charts, numbers, clients, footer] = parts.areas(frame.area());
    frame.render_widget(Paragraph::new(header_lines(view)), header);
    draw_charts(view, frame, charts);
    frame.render_widget(Paragraph::new(numbers_text), numbers);
    draw_clients(view, frame, clients);
    frame.render_widget(Paragraph::new(footer_line(view)), footer);
}

fn header_lines(view: &TopView) -> Vec<Line<'static>> {
    let metrics = &view.reading.metrics;
    let (state, color) = match &view.reading.not_ready {
        None => ("ready".to_owned(), Color::Green),
        Some(reason) => (plain_text(reason), Color::Red),
    };
    let clients = metrics.sum("clients");
    let text = format!(
        "  {clients} of {} slots, {} pending, for {:.0} s",
        metrics.get("slots"),
        metrics.get("pending_clients"),
        metrics.get("uptime_seconds"),
    );
    let name = Span::styled(view.url.clone(), Style::new().add_modifier(Modifier::BOLD));
    let state = Span::styled(format!("  {state}"), Style::new().fg(color));
    let problem = view.problem.clone().map(|problem| Span::styled(problem, Style::new().fg(Color::Red)));
    vec![Line::from(vec![name, state, Span::raw(text)]), Line::from(problem.into_iter().collect::<Vec<_>>())]
}

fn draw_charts(view: &TopView, frame: &mut Frame<'_>, area: Rect) {
    let [left, right] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    let chart = |title: String, values| Sparkline::default().block(Block::bordered().title(title)).data(values);
    let last = |values: &[u64]| values.last().copied().unwrap_or(0);
    frame.render_widget(chart(format!("clients {}", last(&view.connected)), &view.connected), left);
    frame.render_widget(chart(format!("datagrams/s in {}", last(&view.datagrams)), &view.datagrams), right);
}

/// Returns the rates and the drops by reason, in as many lines of this width as they need, at most
/// [`MAX_NUMBER_LINES`].
fn number_lines(view: &TopView, width: u16) -> Vec<Line<'static>> {
    let rate = |counter: &str| view.rate(counter).map_or_else(|| "-".to_owned(), short);
    let turn = view.turn_millis().map_or_else(|| "-".to_owned(), |millis| format!("{millis:.2} ms"));
    let rates = [
        format!("turn {turn}"),
        format!("in {}B/s", rate("received_bytes_total")),
        format!("out {}B/s", rate("sent_bytes_total")),
        format!("datagrams out {}/s", rate("datagrams_sent_total")),
        format!("dropped {}/s", view.rate_of_drops().map_or_else(|| "-".to_owned(), short)),
        format!("over budget {}/s", rate("packets_over_budget_total")),
    ];
    let drops = view.reading.metrics.drops();
    let drops = drops.iter().map(|(reason, count)| format!("{} {}", plain_text(reason), short(*count).trim_end()));
    let mut drops: Vec<String> = drops.collect();
    match drops.first_mut() {
        Some(first) => first.insert_str(0, "dropped since the start: "),
        None => drops.push("dropped since the start: none".to_owned()),
    }
    let mut lines = filled(&rates, "   ", width);
    lines.extend(filled(&drops, ", ", width));
    lines.into_iter().take(MAX_NUMBER_LINES).map(Line::raw).collect()
}

/// Joins parts to lines of at most this width. A part that is longer has a line of its own.
fn filled(parts: &[String], separator: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        let length = part.chars().count() + separator.len();
        match lines.last_mut().filter(|line| line.chars().count() + length <= usize::from(width)) {
            Some(line) => line.extend([separator, part]),
            None => lines.push(part.clone()),
        }
    }
    lines
}

fn draw_clients(view: &TopView, frame: &mut Frame<'_>, area: Rect) {
    let cells = cells(view);
    let widths = fitting(&widths(&cells), area.width);
    let row = |texts: &[String; COLUMNS.len()]| Row::new(texts.iter().take(widths.len()).cloned().map(Cell::from));
    let header = row(&COLUMNS.map(str::to_owned)).style(Style::new().add_modifier(Modifier::BOLD));
    let rows = cells.iter().skip(view.first_row).map(row);
    let constraints = widths.iter().copied().map(Constraint::Length);
    frame.render_widget(Table::new(rows, constraints).header(header), area);
}

/// Returns the texts of the list of clients.
fn cells(view: &TopView) -> Vec<[String; COLUMNS.len()]> {
    view.reading.clients.iter().map(client_cells).collect()
}

/// Returns the width of each column, in which the longest text of all clients has room.
fn widths(cells: &[[String; COLUMNS.len()]]) -> [u16; COLUMNS.len()] {
    let mut widths = COLUMNS.map(|name| name.chars().count());
    for row in cells {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = text.chars().count().max(*width);
        }
    }
    widths.map(|width| u16::try_from(width).unwrap_or(u16::MAX))
}

/// Returns the widths of the first columns that fit into this width with a space between them, at least one.
fn fitting(widths: &[u16], width: u16) -> Vec<u16> {
    let mut end = 0_u16;
    let fits = |column: &u16| {
        end = end.saturating_add(*column);
        let is_within = end <= width;
        end = end.saturating_add(1);
        is_within
    };
    let fitting = widths.iter().copied().take_while(fits).count().max(1);
    widths.iter().take(fitting).copied().collect()
}

fn client_cells(client: &TopClient) -> [String; COLUMNS.len()] {
    let seconds = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.0} s"));
    let millis = |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time * 1000.0));
    [
        plain_text(&client.id),
        client.shard.to_string(),
        client.slot.to_string(),
        plain_text(client.address.as_deref().unwrap_or("-")),
        seconds(client.connected_seconds),
        millis(client.silent_seconds),
        millis(client.round_trip_seconds),
        client.loss.map_or_else(|| "-".to_owned(), |loss| format!("{:.2} %", loss * 100.0)),
        format!("{}B", short(client.bytes_sent as f64)),
        format!("{}B", short(client.bytes_received as f64)),
    ]
}

fn footer_line(view: &TopView) -> Line<'static> {
    let more = if view.reading.has_more { " (the first 256)" } else { "" };
    let (count, order) = (view.reading.clients.len(), view.order.name());
    Line::raw(format!("{count} clients{more} by {order}; q: quit, s: order, arrows: scroll"))
}

/// Returns a number with three digits and a letter for its size.
fn short(value: f64) -> String {
    let (size, letter) = match value {
        1e9.. => (1e9, "G"),
        1e6.. => (1e6, "M"),
        1e3.. => (1e3, "k"),
        _ => return format!("{value:.0} "),
    };
    format!("{:.1} {letter}", value / size)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, reason = "a failed test panics")]

    use super::super::metrics::TopMetrics;
    use super::super::view::TopReading;
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (value, expected) in [(0.0, "0 "), (999.0, "999 "), (1000.0, "1.0 k"), (2.5e6, "2.5 M"), (3e9, "3.0 G")] {
            assert_eq!(short(value), expected);
        }
    }

    fn view_of(addresses: &[&str]) -> TopView {
        let client = |(slot, address): (usize, &&str)| TopClient {
            id: u64::MAX.to_string(),
            shard: 0,
            slot: slot as u32,
            address: Some((*address).to_owned()),
            connected_seconds: Some(1.0),
            silent_seconds: Some(0.1),
            round_trip_seconds: Some(0.05),
            loss: Some(0.0),
            bytes_sent: 2_500_000,
            bytes_received: 1000,
        };
        let reading = TopReading {
            at: std::time::Instant::now(),
            metrics: TopMetrics::default(),
            not_ready: None,
            clients: addresses.iter().enumerate().map(client).collect(),
            has_more: false,
        };
        TopView::new("http://127.0.0.1:9100", reading)
    }

    #[test]
    fn rates_and_drops_take_the_lines_that_they_need() {
        let reasons = ["unknown_sender", "token_used", "address_connected", "client_id_connected", "replayed"];
        let metric = |reason: &&str| format!("slipgate_dropped_datagrams_total{{reason=\"{reason}\"}} 1234\n");
        let mut view = view_of(&["203.0.113.255:65535"]);
        let text: String = reasons.iter().chain(&["connection_ended"]).map(metric).collect();
        view.reading.metrics = TopMetrics::parse(&text);
        assert!(!lines(&view, 80, 24).join("").contains("connection_ended"), "a clean leave is no drop");
        let screen = lines(&view, 80, 24);
        assert!(screen.iter().all(|line| line.chars().count() <= 80), "{screen:#?}");
        let text = screen.join("\n");
        for part in reasons.into_iter().chain(["over budget -/s", "203.0.113.255", "q: quit"]) {
            assert!(text.contains(part), "{part}: {screen:#?}");
        }
        assert_eq!(filled(&["ab", "cd", "efghi"].map(str::to_owned), ", ", 6), ["ab, cd", "efghi"]);
        assert_eq!(filled(&["abcdefg", "h"].map(str::to_owned), ", ", 6), ["abcdefg", "h"]);
    }

    const LONG: &str = "[2001:db8:1111:2222:3333:4444:5555:6666]:65535";

    #[test]
    fn printed_view_has_whole_addresses_and_all_columns() {
        let printed = print(&view_of(&["203.0.113.255:65535", LONG]), 40);
        assert!(printed[9].ends_with("sent   received"), "{printed:#?}");
        assert!(printed[10].contains(" 203.0.113.255:65535 ") && printed[10].ends_with("2.5 MB 1.0 kB"));
        assert!(printed[11].contains(&format!(" {LONG} 1 s ")), "{printed:#?}");
    }

    #[test]
    fn narrow_screen_has_whole_columns() {
        let view = view_of(&[LONG]);
        let (wide, narrow) = (lines(&view, 90, 14), lines(&view, 60, 14));
        assert!(wide[9].ends_with("connected") && wide[10].contains(LONG), "{wide:#?}");
        // The rates take two lines there.
        assert!(narrow[10].ends_with("slot") && narrow[11].ends_with(" 0"), "{narrow:#?}");
        assert_eq!((fitting(&[6, 5], 12), fitting(&[6, 5], 11), fitting(&[6], 1)), (vec![6, 5], vec![6], vec![6]));
    }
}
