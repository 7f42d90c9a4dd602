//! The demo's display: a live table in a terminal, one line per second otherwise, or JSON; and the summary.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::style::Print;
use crossterm::terminal::{self, Clear, ClearType};
use serde_json::json;
use slipgate_cli::Failure;
use slipgate_sim::Preset;

use super::Flags;
use super::server::ServerReport;
use super::snapshot::{EXPECTED_DISCARDS, Snapshot};
use slipgate_cli::output::{print_frame, print_line};

/// The interval between two lines if the output is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of the table besides the clients' rows: heading, "more", sum, empty line, server, drops, explanations.
const OTHER_LINES: u16 = 6 + EXPECTED_DISCARDS.len() as u16;
/// Columns and rows assumed for a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (120, 30);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Style {
    Table,
    Lines,
    Json,
}

impl Style {
    fn choose(json: bool, is_terminal: bool, term: Option<&OsStr>) -> Self {
        match (json, is_terminal) {
            (true, _) => Self::Json,
            (false, true) if term != Some(OsStr::new("dumb")) => Self::Table,
            (false, _) => Self::Lines,
        }
    }
}

pub(super) struct Screen {
    style: Style,
    drawn_lines: u16,
    next_line: Instant,
}

impl Screen {
    pub(super) fn new(json: bool) -> Self {
        let style = Style::choose(json, io::stdout().is_terminal(), std::env::var_os("TERM").as_deref());
        Self { style, drawn_lines: 0, next_line: Instant::now() + LINE_INTERVAL }
    }

    pub(super) fn introduce(
        &mut self,
        issuer: SocketAddr,
        server: SocketAddr,
        public_address: SocketAddr,
        flags: &Flags,
    ) {
        let Flags { clients, rate, map, preset, .. } = flags;
        let preset = preset.map(Preset::name);
        if self.style == Style::Json {
            let line = json!({ "event": "start", "issuer": format!("http://{issuer}"), "server": server.to_string(),
                "clients": clients, "rate": rate, "map_kib": map, "preset": preset });
            print_line(&line.to_string());
            return;
        }
        print_line(&format!("token issuer      http://{issuer}/v1/tokens, gives each client a connect token"));
        print_line(&format!(
            "dedicated server  {server} (UDP), {clients} slots, sends each client state updates and a map of {map} KiB"
        ));
        if let Some(preset) = preset {
            print_line(&format!("impaired path     {public_address} (UDP), preset {preset}, separate for each client"));
        }
        print_line(&format!(
            "clients           {clients}, each sends {rate} state updates per second, chats and verifies all messages"
        ));
        if self.style == Style::Table {
            print_line(
                "columns           chat and updates: received/sent; budget: packets per second x bytes, as measured",
            );
        }
        print_line("");
    }

    pub(super) fn draw(&mut self, snapshot: &Snapshot) {
        match self.style {
            // An error of the terminal must not end the demo.
            Style::Table => {
                let mut frame = Vec::new();
                drop(self.draw_table(snapshot, terminal::size().ok(), &mut frame));
                print_frame(&frame);
            }
            Style::Lines | Style::Json if Instant::now() < self.next_line => {}
            Style::Lines => {
                self.next_line += LINE_INTERVAL;
                print_line(&snapshot.line());
            }
            Style::Json => {
                self.next_line += LINE_INTERVAL;
                print_line(&snapshot.json("progress").to_string());
            }
        }
    }

    /// Draws over the previous table. The cursor is never hidden, so an abrupt end leaves the terminal usable.
    fn draw_table(&mut self, snapshot: &Snapshot, size: Option<(u16, u16)>, out: &mut impl Write) -> io::Result<()> {
        let (width, height) = size.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(DEFAULT_SIZE);
        let rows = usize::from(height.saturating_sub(OTHER_LINES + 1)).max(1);
        let lines = snapshot.table(rows);
        if self.drawn_lines > 0 {
            queue!(out, MoveToPreviousLine(self.drawn_lines))?;
        }
        for line in &lines {
            let cut: String = line.chars().take(usize::from(width)).collect();
            queue!(out, Clear(ClearType::CurrentLine), Print(cut), Print("\n"))?;
        }
        self.drawn_lines = lines.len() as u16;
        out.flush()
    }

    /// Prints the summary and returns the outcome.
    pub(super) fn summarise(&self, last: &Snapshot, end: &ServerReport) -> Result<(), Failure> {
        let outcome = last.outcome(end);
        if self.style == Style::Json {
            print_line(&last.json_summary(outcome.is_ok()).to_string());
        } else {
            if self.style == Style::Lines {
                last.legend().for_each(|line| print_line(&line));
            }
            print_line("");
            print_line(&last.summary(outcome.is_ok()));
        }
        outcome
    }
}

#[cfg(test)]
mod tests;
