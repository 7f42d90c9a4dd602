//! What the demo shows: a live table in a terminal, a line a second elsewhere, or JSON; and the summary.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crossterm::cursor::{Hide, MoveToPreviousLine, Show};
use crossterm::queue;
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType};
use serde_json::{Value, json};
use slipgate_edge::cli::Failure;

use super::clients::ClientReport;
use super::server::ServerReport;
use crate::say;

/// How often there is a line where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of the picture beside the clients': heading, server, drops, more.
const OTHER_LINES: u16 = 5;

/// What there is to show.
pub(super) struct Picture {
    pub(super) clients: Vec<ClientReport>,
    pub(super) server: ServerReport,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Table,
    Lines,
    Json,
}

pub(super) struct Screen {
    style: Style,
    drawn_lines: u16,
    next_line: Instant,
}

impl Screen {
    pub(super) fn new(json: bool) -> Self {
        let style = match (json, io::stdout().is_terminal()) {
            (true, _) => Style::Json,
            (false, true) => Style::Table,
            (false, false) => Style::Lines,
        };
        Self { style, drawn_lines: 0, next_line: Instant::now() + LINE_INTERVAL }
    }

    pub(super) fn introduce(&mut self, issuer: SocketAddr, server: SocketAddr, clients: u32, rate: u32) {
        if self.style == Style::Json {
            let line = json!({ "event": "start", "issuer": format!("http://{issuer}"), "server": server.to_string(),
                "clients": clients, "rate": rate });
            say(&line.to_string());
            return;
        }
        say(&format!("token issuer      http://{issuer}/v1/tokens"));
        say(&format!("dedicated server  {server} (UDP), {clients} slots, echoes every payload"));
        say(&format!("clients           {clients}, each sends {rate} payloads a second and checks every echo"));
        say("");
    }

    pub(super) fn draw(&mut self, picture: &Picture) {
        match self.style {
            // A terminal that cannot be drawn on is no reason to end the demo.
            Style::Table => drop(self.draw_table(picture)),
            Style::Lines | Style::Json if Instant::now() < self.next_line => {}
            Style::Lines => {
                self.next_line += LINE_INTERVAL;
                say(&picture.line());
            }
            Style::Json => {
                self.next_line += LINE_INTERVAL;
                say(&picture.json("progress").to_string());
            }
        }
    }

    fn draw_table(&mut self, picture: &Picture) -> io::Result<()> {
        let (width, height) = terminal::size().unwrap_or((100, 30));
        let rows = usize::from(height.saturating_sub(OTHER_LINES + 1)).max(1);
        let lines = picture.table(rows);
        let mut out = io::stdout().lock();
        if self.drawn_lines > 0 {
            queue!(out, MoveToPreviousLine(self.drawn_lines))?;
        } else {
            queue!(out, Hide)?;
        }
        for line in &lines {
            let cut: String = line.chars().take(usize::from(width)).collect();
            queue!(out, Clear(ClearType::CurrentLine), Print(cut), Print("\n"))?;
        }
        self.drawn_lines = lines.len() as u16;
        out.flush()
    }

    /// Gives the terminal back.
    pub(super) fn finish(&mut self) {
        if self.style == Style::Table {
            let mut out = io::stdout().lock();
            let _ = queue!(out, Show).and_then(|()| out.flush());
        }
    }

    /// Says how it went: all is well only if every client was served and every echo was right.
    pub(super) fn summarise(&self, last: &Picture, end: &ServerReport) -> Result<(), Failure> {
        let served = last.clients.iter().filter(|client| client.probe.was_connected).count();
        let perfect = last.clients.iter().filter(|client| client.is_perfect()).count();
        let clean = end.connected == 0 && end.stats.connects == end.stats.disconnects;
        let ok = perfect == last.clients.len() && clean;
        if self.style == Style::Json {
            let mut line = last.json("summary");
            if let Some(line) = line.as_object_mut() {
                line.extend([("ok".to_owned(), json!(ok)), ("served".to_owned(), json!(served))]);
            }
            say(&line.to_string());
        } else {
            say("");
            say(&last.summary(served, ok));
        }
        if ok { Ok(()) } else { Err(last.failure(served, clean)) }
    }
}

/// The terminal gets its cursor back however the demo ends.
impl Drop for Screen {
    fn drop(&mut self) {
        self.finish();
    }
}

impl ClientReport {
    fn is_perfect(&self) -> bool {
        self.trouble.is_none() && self.probe.is_perfect()
    }
}

fn millis(time: Option<Duration>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.2} ms", time.as_secs_f64() * 1e3))
}

impl Picture {
    fn sum(&self, of: impl Fn(&ClientReport) -> u64) -> u64 {
        self.clients.iter().map(of).sum()
    }

    fn slowest(&self) -> Option<Duration> {
        self.clients.iter().filter_map(|client| client.probe.round_trip.smoothed).max()
    }

    fn table(&self, rows: usize) -> Vec<String> {
        let mut lines = vec![format!(
            "{:>8}  {:<28} {:>5} {:>11} {:>9} {:>9} {:>7} {:>8} {:>8}",
            "client", "state", "slot", "round trip", "sent", "echoes", "wrong", "missing", "dropped"
        )];
        for client in self.clients.iter().take(rows) {
            let (probe, slot) =
                (&client.probe, client.probe.slot.map_or_else(|| "-".to_owned(), |slot| slot.to_string()));
            lines.push(format!(
                "{:>8}  {:<28} {:>5} {:>11} {:>9} {:>9} {:>7} {:>8} {:>8}",
                client.client_id,
                client.trouble.as_deref().unwrap_or_else(|| probe.state.name()),
                slot,
                millis(probe.round_trip.smoothed),
                probe.sent,
                probe.right,
                probe.wrong,
                probe.missing(),
                probe.dropped,
            ));
        }
        if self.clients.len() > rows {
            lines.push(format!("{:>8}  … and {} more", "", self.clients.len() - rows));
        }
        lines.push(String::new());
        lines.push(self.server_line());
        lines.push(format!("dropped   {}", self.drops()));
        lines
    }

    fn server_line(&self) -> String {
        let server = &self.server;
        format!(
            "server    {} of {} slots, payloads in {}, out {}, challenges {}, denials {}",
            server.connected,
            server.slots,
            server.stats.payloads_received,
            server.stats.payloads_sent,
            server.stats.challenges_sent,
            server.stats.denials_sent
        )
    }

    fn drops(&self) -> String {
        let mut drops = String::new();
        for (reason, count) in self.server.discards.iter() {
            let separator = if drops.is_empty() { "" } else { ", " };
            let _ = write!(drops, "{separator}{reason} {count}");
        }
        if drops.is_empty() { "none".to_owned() } else { drops }
    }

    fn line(&self) -> String {
        let connected = self.clients.iter().filter(|client| client.probe.state.is_connected()).count();
        format!(
            "{connected} of {} connected, slowest round trip {}, sent {}, echoes {}, wrong {}, dropped: {}",
            self.clients.len(),
            millis(self.slowest()),
            self.sum(|client| client.probe.sent),
            self.sum(|client| client.probe.right),
            self.sum(|client| client.probe.wrong),
            self.drops()
        )
    }

    fn json(&self, event: &str) -> Value {
        let round_trip = |time: Option<Duration>| time.map(|time| (time.as_secs_f64() * 1e6).round() / 1e3);
        let clients: Vec<Value> = self
            .clients
            .iter()
            .map(|client| {
                let probe = &client.probe;
                json!({ "client_id": client.client_id.to_string(), "state": probe.state.name(), "slot": probe.slot,
                    "round_trip_ms": round_trip(probe.round_trip.smoothed), "sent": probe.sent, "right": probe.right,
                    "wrong": probe.wrong, "missing": probe.missing(), "dropped": probe.dropped,
                    "trouble": client.trouble })
            })
            .collect();
        let drops: serde_json::Map<String, Value> =
            self.server.discards.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count))).collect();
        let (server, stats) = (&self.server, &self.server.stats);
        json!({ "event": event, "clients": clients, "server": { "slots": server.slots, "connected": server.connected,
            "payloads_received": stats.payloads_received, "payloads_sent": stats.payloads_sent, "dropped": drops } })
    }

    fn summary(&self, served: usize, ok: bool) -> String {
        let clients = self.clients.len();
        let (sent, right) = (self.sum(|client| client.probe.sent), self.sum(|client| client.probe.right));
        let verdict = if ok { "every client was served, every echo was right" } else { "not all went well" };
        format!(
            "{verdict}: {served} of {clients} clients served, {right} of {sent} echoes right, {} wrong, slowest round trip {}",
            self.sum(|client| client.probe.wrong),
            millis(self.slowest())
        )
    }

    fn failure(&self, served: usize, clean: bool) -> Failure {
        if let Some(client) = self.clients.iter().find(|client| client.trouble.is_some()) {
            let trouble = client.trouble.as_deref().unwrap_or_default();
            return Failure::run_time(format!("client {}: {trouble}", client.client_id));
        }
        let (clients, missing) = (self.clients.len(), self.sum(|client| client.probe.missing()));
        let wrong = self.sum(|client| client.probe.wrong);
        let goodbye = if clean { "" } else { ", and not every client's goodbye was heard" };
        Failure::run_time(format!(
            "{served} of {clients} clients were served, {missing} echoes are missing, {wrong} were wrong{goodbye}"
        ))
    }
}
