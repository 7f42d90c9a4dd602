//! What the conditioner shows: a live table in a terminal, a line from time to time elsewhere, or JSON; and totals.
//!
//! People read it on standard error, programs as JSON on standard output.

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType};
use serde_json::{Value, json};
use slipgate_netcode::time::Instant;
use slipgate_sim::PathStats;
use slipgate_sim::proxy::{ClientReport, Proxy, ProxyStats, Settings};

use crate::say;

/// How often the table is drawn.
const FRAME: Duration = Duration::from_millis(200);
/// Lines of the picture beside the clients': heading, more, empty, up, down, proxy.
const OTHER_LINES: u16 = 6;
/// Columns and rows of a terminal that does not tell them.
const USUAL_SIZE: (u16, u16) = (100, 30);

/// What there is to show.
pub(super) struct Picture {
    clients: Vec<ClientReport>,
    stats: ProxyStats,
}

impl Picture {
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

pub(super) struct Screen {
    style: Style,
    interval: Duration,
    next: Option<Instant>,
    drawn_lines: u16,
}

impl Screen {
    pub(super) fn new(json: bool, interval: Duration) -> Self {
        let draws = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let (style, interval) = match (json, draws) {
            (true, _) => (Style::Json, interval),
            (false, true) => (Style::Table, FRAME),
            (false, false) => (Style::Lines, interval),
        };
        Self { style, interval, next: None, drawn_lines: 0 }
    }

    pub(super) fn introduce(&self, listen: SocketAddr, settings: &Settings) {
        let rebinding = settings.rebinding.map(|rebinding| rebinding.to_string());
        if self.style == Style::Json {
            let line = json!({ "event": "start", "listen": listen.to_string(), "to": settings.to.to_string(),
                "seed": settings.seed, "up": settings.up.to_string(), "down": settings.down.to_string(),
                "new_addresses": rebinding });
            say(&line.to_string());
            return;
        }
        tell(&format!("conditioner  {listen} to {} (UDP), --seed {}", settings.to, settings.seed));
        tell(&format!("up           {}", settings.up));
        tell(&format!("down         {}", settings.down));
        rebinding.into_iter().for_each(|often| tell(&format!("new address  {often}")));
        tell("");
    }

    /// Draws when it is time to.
    pub(super) fn draw(&mut self, now: Instant, picture: impl FnOnce() -> Picture) {
        let next = *self.next.get_or_insert(now.after(self.interval));
        if now < next {
            return;
        }
        self.next = Some(now.after(self.interval));
        self.show(&picture());
    }

    fn show(&mut self, picture: &Picture) {
        match self.style {
            // A terminal that cannot be drawn on is no reason to end.
            Style::Table => drop(self.draw_table(picture, terminal::size().ok(), &mut io::stderr().lock())),
            Style::Lines => tell(&picture.line()),
            Style::Json => say(&picture.json("progress").to_string()),
        }
    }

    /// Draws over the last picture. The cursor stays visible: whatever ends the program leaves the terminal as it was.
    fn draw_table(&mut self, picture: &Picture, size: Option<(u16, u16)>, out: &mut impl Write) -> io::Result<()> {
        let (width, height) = size.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(USUAL_SIZE);
        let lines = picture.table(usize::from(height.saturating_sub(OTHER_LINES + 1)).max(1));
        if self.drawn_lines > 0 {
            queue!(out, MoveToPreviousLine(self.drawn_lines))?;
        }
        for line in &lines {
            let cut: String = line.chars().take(usize::from(width)).collect();
            queue!(out, Clear(ClearType::CurrentLine), Print(cut), Print("\n"))?;
        }
        // A client that left has made the picture shorter.
        queue!(out, Clear(ClearType::FromCursorDown))?;
        self.drawn_lines = lines.len() as u16;
        out.flush()
    }

    /// Says what it all came to.
    pub(super) fn summarise(&mut self, last: &Picture) {
        if self.style == Style::Json {
            say(&last.json("summary").to_string());
            return;
        }
        if self.style == Style::Table {
            self.show(last);
        }
        tell("");
        tell(&format!("in all: {} clients", last.stats.joined));
        last.totals().iter().for_each(|line| tell(line));
    }
}

impl Picture {
    fn table(&self, rows: usize) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<21}  {:<7} {:<4} {:>8} {:>8} {:>7} {:>7} {:>10}",
            "client", "as port", "way", "in", "out", "lost", "full", "queue"
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
        let ProxyStats { clients, left, refused, rebindings, troubles, .. } = self.stats;
        let mut words = format!("clients {clients}, forgotten {left}, new addresses {rebindings}");
        for (count, name) in [
            (refused, "datagrams of clients too many"),
            (troubles.closed, "refused by a closed port"),
            (troubles.full, "without room in the system"),
            (troubles.other, "other errors of sockets"),
        ] {
            if count > 0 {
                words += &format!(", {name} {count}");
            }
        }
        words
    }

    fn line(&self) -> String {
        let queue = |of: fn(&ClientReport) -> Duration| millis(self.clients.iter().map(of).max().unwrap_or_default());
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
            "new_addresses": stats.rebindings, "socket_errors": { "closed": stats.troubles.closed,
            "full": stats.troubles.full, "other": stats.troubles.other } })
    }
}

/// A row for each direction.
fn rows_of(client: &ClientReport) -> [String; 2] {
    let address = client.address.to_string();
    let port = client.upstream.map_or_else(|| "-".to_owned(), |upstream| upstream.port().to_string());
    let row = |address: &str, port: &str, way: &str, stats: &PathStats, queue: Duration| {
        let full = stats.tail_dropped + stats.overflowed;
        format!(
            "{address:<21}  {port:<7} {way:<4} {:>8} {:>8} {:>7} {full:>7} {:>10}",
            stats.pushed,
            stats.delivered,
            stats.lost,
            millis(queue)
        )
    };
    [row(&address, &port, "up", &client.up, client.up_queue), row("", "", "down", &client.down, client.down_queue)]
}

/// What happened in one direction: in and out always, the rest where it did.
fn counts(stats: &PathStats) -> String {
    let mut words = format!("{} in, {} out", stats.pushed, stats.delivered);
    for (count, name) in [
        (stats.lost, "lost"),
        (stats.tail_dropped, "dropped by a full buffer"),
        (stats.overflowed, "beyond the proxy's bounds"),
        (stats.duplicated, "doubled"),
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

fn path(stats: &PathStats) -> Value {
    json!({ "in": stats.pushed, "in_bytes": stats.pushed_bytes, "out": stats.delivered,
        "out_bytes": stats.delivered_bytes, "lost": stats.lost, "buffer_full": stats.tail_dropped,
        "out_of_bounds": stats.overflowed, "doubled": stats.duplicated, "held_back": stats.held_back,
        "overtaken": stats.overtaken, "corrupted": stats.corrupted, "stalls": stats.stalls })
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// Writes a line for people. A closed pipe is the reader's wish, and no reason to fail.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(clients: u16) -> Picture {
        let report = |port| ClientReport {
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            upstream: Some(SocketAddr::from(([127, 0, 0, 1], port + 1000))),
            rebindings: 0,
            up: PathStats { pushed: 10, delivered: 8, lost: 2, ..PathStats::default() },
            down: PathStats::default(),
            up_queue: Duration::from_micros(12_340),
            down_queue: Duration::ZERO,
        };
        let clients: Vec<ClientReport> = (0..clients).map(|number| report(40_000 + number)).collect();
        let up = PathStats { pushed: 10, delivered: 8, lost: 2, ..PathStats::default() };
        Picture { stats: ProxyStats { clients: clients.len(), joined: 3, up, ..ProxyStats::default() }, clients }
    }

    #[test]
    fn the_table_fits_the_terminal_and_says_what_it_leaves_out() {
        let mut screen = Screen { style: Style::Table, interval: FRAME, next: None, drawn_lines: 0 };
        for (clients, shown) in [(0, 0), (2, 2), (50, 2)] {
            let mut out = Vec::new();
            screen.draw_table(&picture(clients), Some((80, 12)), &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.matches("127.0.0.1:40").count(), shown, "{text}");
            assert_eq!(text.contains("… and 48 more"), clients == 50);
            assert!(screen.drawn_lines < 12);
        }
    }

    #[test]
    fn columns_stand_below_their_headings() {
        let lines = picture(1).table(10);
        assert!(lines[..3].iter().all(|line| line.len() == lines[0].len() && line.len() <= 80), "{lines:#?}");
        assert!(
            lines[1].starts_with("127.0.0.1:40000        41000   up ") && lines[1].ends_with(" 12.3 ms"),
            "{lines:#?}"
        );
    }

    #[test]
    fn what_did_not_happen_is_not_mentioned() {
        assert_eq!(counts(&PathStats::default()), "0 in, 0 out");
        assert_eq!(
            picture(1).line(),
            "up 10 in, 8 out, 2 lost (queue 12.3 ms); down 0 in, 0 out (queue 0.0 ms); \
             clients 1, forgotten 0, new addresses 0"
        );
    }
}
