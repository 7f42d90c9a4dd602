//! What the demo shows: a live table in a terminal, a line a second elsewhere, or JSON; and the summary.

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
use super::picture::{EXPECTED, Picture};
use super::server::ServerReport;
use crate::say;

/// How often there is a line where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// Lines of the picture beside the clients': heading, more, all, an empty one, server, drops, and what these mean.
const OTHER_LINES: u16 = 6 + EXPECTED.len() as u16;
/// Columns and rows of a terminal that does not tell them.
const USUAL_SIZE: (u16, u16) = (120, 30);

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

    pub(super) fn introduce(&mut self, issuer: SocketAddr, server: SocketAddr, door: SocketAddr, flags: &Flags) {
        let Flags { clients, rate, map, preset, .. } = flags;
        let preset = preset.map(Preset::name);
        if self.style == Style::Json {
            let line = json!({ "event": "start", "issuer": format!("http://{issuer}"), "server": server.to_string(),
                "clients": clients, "rate": rate, "map_kib": map, "preset": preset });
            say(&line.to_string());
            return;
        }
        say(&format!("token issuer      http://{issuer}/v1/tokens"));
        say(&format!("dedicated server  {server} (UDP), {clients} slots, sends state and a map of {map} KiB"));
        if let Some(preset) = preset {
            say(&format!("bad line          {door} (UDP), {preset}, one for each client"));
        }
        say(&format!(
            "clients           {clients}, each sends state {rate} times a second, chats, and checks all it hears"
        ));
        say("");
    }

    pub(super) fn draw(&mut self, picture: &Picture) {
        match self.style {
            // A terminal that cannot be drawn on is no reason to end the demo.
            Style::Table => drop(self.draw_table(picture, terminal::size().ok(), &mut io::stdout().lock())),
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

    /// Draws over the last picture. The cursor stays visible: whatever ends the demo leaves the terminal as it was.
    fn draw_table(&mut self, picture: &Picture, size: Option<(u16, u16)>, out: &mut impl Write) -> io::Result<()> {
        let (width, height) = size.filter(|(width, height)| *width > 0 && *height > 0).unwrap_or(USUAL_SIZE);
        let rows = usize::from(height.saturating_sub(OTHER_LINES + 1)).max(1);
        let lines = picture.table(rows);
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

    /// Says how it went.
    pub(super) fn summarise(&self, last: &Picture, end: &ServerReport) -> Result<(), Failure> {
        let verdict = last.verdict(end);
        if self.style == Style::Json {
            say(&last.json_summary(verdict.is_ok()).to_string());
        } else {
            if self.style == Style::Lines {
                last.legend().for_each(|line| say(&line));
            }
            say("");
            say(&last.summary(verdict.is_ok()));
        }
        verdict
    }
}

#[cfg(test)]
mod tests;
