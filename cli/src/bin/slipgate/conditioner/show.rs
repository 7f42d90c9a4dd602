//! The conditioner's display: a live table in a terminal, a line at each interval otherwise, or JSON; and the totals.
//!
//! Text goes to standard error, JSON to standard output.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType};
use serde_json::{Value, json};
use slipgate_netcode::time::Instant;
use slipgate_sim::DirectionStats;
use slipgate_sim::proxy::{Proxy, ProxyClientReport, ProxySettings, ProxyStats};

use slipgate_cli::output::{print_error_frame, print_error_line, print_line};

/// The interval at which the table is drawn.
const FRAME: Duration = Duration::from_millis(200);
/// Lines of the table besides the clients' rows: heading, "more", empty line, up, down, proxy.
const OTHER_LINES: u16 = 6;
/// Columns and rows assumed for a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (100, 30);

/// The counters of the proxy and of its clients.
pub(super) struct ProxySnapshot {
    clients: Vec<ProxyClientReport>,
    stats: ProxyStats,
}

impl ProxySnapshot {
    pub(super) fn of(proxy: &Proxy, now: Instant) -> Self {
        Self { clients: proxy.clients(now).collect(), stats: proxy.stats() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    Table,
    Lines,
    Json,
}

pub(super) struct ConditionerScreen {
    style: Style,
    interval: Duration,
    next: Option<Instant>,
    drawn_lines: u16,
}

impl ConditionerScreen {
    pub(super) fn new(json: bool, interval: Duration) -> Self {
        let draws = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let (style, interval) = match (json, draws) {
            (true, _) => (Style::Json, interval),
            (false, true) => (Style::Table, FRAME),
            (false, false) => (Style::Lines, interval),
        };
        Self { style, interval, next: None, drawn_lines: 0 }
    }

    pub(super) fn introduce(&self, listen: SocketAddr, settings: &ProxySettings) {
        let rebinding = settings.rebinding.map(|rebinding| rebinding.to_string());
        if self.style == Style::Json {
            let line = json!({ "event": "start", "listen": listen.to_string(), "to": settings.to.to_string(),
                "seed": settings.seed, "up": settings.up.to_string(), "down": settings.down.to_string(),
                "new_addresses": rebinding });
            print_line(&line.to_string());
            return;
        }
        print_error_line(&format!("conditioner  {listen} to {} (UDP), --seed {}", settings.to, settings.seed));
        print_error_line(&format!("up           {}", settings.up));
        print_error_line(&format!("down         {}", settings.down));
        rebinding.into_iter().for_each(|interval| print_error_line(&format!("new address  {interval}")));
        print_error_line("");
    }

    /// Draws if the interval has passed.
    pub(super) fn draw(&mut self, now: Instant, snapshot: impl FnOnce() -> ProxySnapshot) {
        let next = *self.next.get_or_insert(now.after(self.interval));
        if now < next {
            return;
        }
        self.next = Some(now.after(self.interval));
        self.show(&snapshot());
    }

    fn show(&mut self, snapshot: &ProxySnapshot) {
        match self.style {
            // An error of the terminal must not end the proxy.
            Style::Table => {
                let mut frame = Vec::new();
                drop(self.draw_table(snapshot, terminal::size().ok(), &mut frame));
                print_error_frame(&frame);
            }
            Style::Lines => print_error_line(&snapshot.line()),
            Style::Json => print_line(&snapshot.json("progress").to_string()),
        }
    }

    /// Draws over the previous table. The cursor is never hidden, so an abrupt end leaves the terminal usable.
    fn draw_table(
        &mut self,
        snapshot: &ProxySnapshot,
        size: Option<(u16, u16)>,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let (width, height) = size.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(DEFAULT_SIZE);
        let lines = snapshot.table(usize::from(height.saturating_sub(OTHER_LINES + 1)).max(1));
        if self.drawn_lines > 0 {
            queue!(out, MoveToPreviousLine(self.drawn_lines))?;
        }
        for line in &lines {
            let cut: String = line.chars().take(usize::from(width)).collect();
            queue!(out, Clear(ClearType::CurrentLine), Print(cut), Print("\n"))?;
        }
        // The table gets shorter when a client is forgotten.
        queue!(out, Clear(ClearType::FromCursorDown))?;
        self.drawn_lines = lines.len() as u16;
        out.flush()
    }

    /// Prints the totals.
    pub(super) fn summarise(&mut self, last: &ProxySnapshot) {
        if self.style == Style::Json {
            print_line(&last.json("summary").to_string());
            return;
        }
        if self.style == Style::Table {
            self.show(last);
        }
        print_error_line("");
        print_error_line(&format!("total: {} clients", last.stats.joined));
        last.totals().iter().for_each(|line| print_error_line(line));
    }
}

impl ProxySnapshot {
    fn table(&self, rows: usize) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<21}  {:<7} {:<4} {:>8} {:>8} {:>7} {:>7} {:>10}",
            "client", "as port", "dir", "in", "out", "lost", "full", "queue"
        )];
        let shown = self.clients.len().min(rows / 2);
        lines.extend(self.clients.iter().take(shown).flat_map(rows_of));
        if self.clients.len() > shown {
            lines.push(format!("… and {} more", self.clients.len() - shown));
        }
        lines.push(String::new());
        lines.extend(self.totals());
        lines
    }

    fn totals(&self) -> [String; 3] {
        let stats = &self.stats;
        [
            format!("up     {}", counts(&stats.up)),
            format!("down   {}", counts(&stats.down)),
            format!("proxy  {}", self.proxy()),
        ]
    }

    fn proxy(&self) -> String {
        let ProxyStats { clients, left, refused, rebindings, socket_errors, dropped_by_system, .. } = self.stats;
        let mut words = format!("clients {clients}, forgotten {left}, new addresses {rebindings}");
        for (count, name) in [
            (refused, "datagrams refused over the client limit"),
            (dropped_by_system.unwrap_or_default(), "dropped by the system before the proxy read them"),
            (socket_errors.closed, "refused by a closed port"),
            (socket_errors.full, "refused by a full socket buffer"),
            (socket_errors.other, "other socket errors"),
        ] {
            if count > 0 {
                words += &format!(", {name} {count}");
            }
        }
        words
    }

    fn line(&self) -> String {
        let queue =
            |of: fn(&ProxyClientReport) -> Duration| millis(self.clients.iter().map(of).max().unwrap_or_default());
        format!(
            "up {} (queue {}); down {} (queue {}); {}",
            counts(&self.stats.up),
            queue(|client| client.up_queue),
            counts(&self.stats.down),
            queue(|client| client.down_queue),
            self.proxy()
        )
    }

    fn json(&self, event: &str) -> Value {
        let queue = |time: Duration| (time.as_secs_f64() * 1e6).round() / 1e3;
        let clients: Vec<Value> = self
            .clients
            .iter()
            .map(|client| {
                json!({ "address": client.address.to_string(),
                    "upstream": client.upstream.map(|address| address.to_string()),
                    "new_addresses": client.rebindings,
                    "up": path(&client.up), "up_queue_ms": queue(client.up_queue),
                    "down": path(&client.down), "down_queue_ms": queue(client.down_queue) })
            })
            .collect();
        let stats = &self.stats;
        json!({ "event": event, "clients": clients, "up": path(&stats.up), "down": path(&stats.down),
            "joined": stats.joined, "forgotten": stats.left, "refused": stats.refused,
            "new_addresses": stats.rebindings, "socket_errors": { "closed": stats.socket_errors.closed,
            "full": stats.socket_errors.full, "other": stats.socket_errors.other },
            "dropped_by_system": stats.dropped_by_system })
    }
}

/// Returns the rows of a client, one for each direction.
fn rows_of(client: &ProxyClientReport) -> [String; 2] {
    let address = client.address.to_string();
    let port = client.upstream.map_or_else(|| "-".to_owned(), |upstream| upstream.port().to_string());
    let row = |address: &str, port: &str, direction: &str, stats: &DirectionStats, queue: Duration| {
        let full = stats.tail_dropped + stats.overflowed;
        format!(
            "{address:<21}  {port:<7} {direction:<4} {:>8} {:>8} {:>7} {full:>7} {:>10}",
            stats.pushed,
            stats.delivered,
            stats.lost,
            millis(queue)
        )
    };
    [row(&address, &port, "up", &client.up, client.up_queue), row("", "", "down", &client.down, client.down_queue)]
}

/// Returns the counters of one direction as text: in and out always, others if they are not zero.
fn counts(stats: &DirectionStats) -> String {
    let mut words = format!("{} in, {} out", stats.pushed, stats.delivered);
    for (count, name) in [
        (stats.lost, "lost"),
        (stats.tail_dropped, "dropped by a full buffer"),
        (stats.overflowed, "dropped by the proxy's own bounds"),
        (stats.duplicated, "duplicated"),
        (stats.overtaken, "overtaken"),
        (stats.corrupted, "corrupted"),
        (stats.stalls, "stalls"),
    ] {
        if count > 0 {
            words += &format!(", {count} {name}");
        }
    }
    words
}

fn path(stats: &DirectionStats) -> Value {
    json!({ "in": stats.pushed, "in_bytes": stats.pushed_bytes, "out": stats.delivered,
        "out_bytes": stats.delivered_bytes, "lost": stats.lost, "buffer_full": stats.tail_dropped,
        "out_of_bounds": stats.overflowed, "duplicated": stats.duplicated, "held_back": stats.held_back,
        "overtaken": stats.overtaken, "corrupted": stats.corrupted, "stalls": stats.stalls })
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(clients: u16) -> ProxySnapshot {
        let report = |port| ProxyClientReport {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            upstream: Some(SocketAddr::from(([127, 0, 0, 1], port + 1000))),
            rebindings: 0,
            up: DirectionStats { pushed: 10, delivered: 8, lost: 2, ..DirectionStats::default() },
            down: DirectionStats::default(),
            up_queue: Duration::from_micros(12_340),
            down_queue: Duration::ZERO,
        };
        let clients: Vec<ProxyClientReport> = (0..clients).map(|number| report(40_000 + number)).collect();
        let up = DirectionStats { pushed: 10, delivered: 8, lost: 2, ..DirectionStats::default() };
        ProxySnapshot { stats: ProxyStats { clients: clients.len(), joined: 3, up, ..ProxyStats::default() }, clients }
    }

    #[test]
    fn table_fits_the_terminal_and_counts_omitted_clients() {
        let mut screen = ConditionerScreen { style: Style::Table, interval: FRAME, next: None, drawn_lines: 0 };
        for (clients, shown) in [(0, 0), (2, 2), (50, 2)] {
            let mut out = Vec::new();
            screen.draw_table(&snapshot(clients), Some((80, 12)), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.matches("127.0.0.1:40").count(), shown, "{text}");
            assert_eq!(text.contains("… and 48 more"), clients == 50);
            assert!(screen.drawn_lines < 12);
        }
    }

    #[test]
    fn columns_are_aligned_with_their_headings() {
        let lines = snapshot(1).table(10);
        assert!(lines[..3].iter().all(|line| line.len() == lines[0].len() && line.len() <= 80), "{lines:#?}");
        assert!(
            lines[1].starts_with("127.0.0.1:40000        41000   up ") && lines[1].ends_with(" 12.3 ms"),
            "{lines:#?}"
        );
    }

    #[test]
    fn counters_of_zero_are_omitted() {
        assert_eq!(counts(&DirectionStats::default()), "0 in, 0 out");
        assert_eq!(
            snapshot(1).line(),
            "up 10 in, 8 out, 2 lost (queue 12.3 ms); down 0 in, 0 out (queue 0.0 ms); \
             clients 1, forgotten 0, new addresses 0"
        );
        let mut full = snapshot(1);
        full.stats.dropped_by_system = Some(7);
        assert!(full.line().ends_with(", dropped by the system before the proxy read them 7"), "{}", full.line());
    }
}
