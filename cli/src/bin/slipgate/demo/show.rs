//! The demo's output without a live screen: one line per second, or JSON; and the summary.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use serde_json::json;
use slipgate_cli::Failure;
use slipgate_cli::output::print_line;
use slipgate_sim::Preset;

use super::flags::DemoFlags;
use super::live::wrap_to_terminal;
use super::outcome::Ending;
use super::server::ServerReport;
use super::snapshot::DemoSnapshot;
use super::stage::DemoStage;

/// The interval between two lines.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// How the demo shows itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    Live,
    Lines,
    Json,
}

/// Whether the program reads from and writes to a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Terminal {
    Present,
    Absent,
}

impl Style {
    /// Chooses the style. A live screen needs a terminal for its keys too.
    pub(super) fn of_output(json: bool) -> Self {
        let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
        let terminal = if is_terminal { Terminal::Present } else { Terminal::Absent };
        if json { Self::Json } else { Self::of_terminal(terminal, std::env::var_os("TERM").as_deref()) }
    }

    fn of_terminal(terminal: Terminal, term: Option<&OsStr>) -> Self {
        let is_dumb = term == Some(OsStr::new("dumb"));
        if terminal == Terminal::Present && !is_dumb { Self::Live } else { Self::Lines }
    }
}

pub(super) struct DemoScreen {
    style: Style,
    next_line: Instant,
}

impl DemoScreen {
    pub(super) fn new(style: Style) -> Self {
        Self { style, next_line: Instant::now() + LINE_INTERVAL }
    }

    pub(super) fn introduce(&self, stage: &DemoStage, flags: &DemoFlags) {
        let (issuer, server, public_address) = (stage.issuer_address(), stage.server_address, stage.advertised());
        let (rate, DemoFlags { clients, map, preset, .. }) = (flags.rate(), flags);
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
        print_line("");
    }

    /// Prints a line if one is due.
    pub(super) fn draw(&mut self, snapshot: &DemoSnapshot) {
        if Instant::now() < self.next_line {
            return;
        }
        self.next_line += LINE_INTERVAL;
        match self.style {
            Style::Json => print_line(&snapshot.json("progress").to_string()),
            Style::Live | Style::Lines => print_line(&snapshot.line()),
        }
    }

    /// Prints the summary and returns the outcome.
    pub(super) fn summarise(&self, last: &DemoSnapshot, end: &ServerReport, ending: Ending) -> Result<(), Failure> {
        let outcome = last.outcome(end, ending);
        let text = last.summary(outcome.is_ok(), ending);
        match self.style {
            Style::Json => print_line(&last.json_summary(outcome.is_ok()).to_string()),
            Style::Live => print_line(&wrap_to_terminal(&text)),
            Style::Lines => {
                last.legend().for_each(|line| print_line(&line));
                print_line("");
                print_line(&text);
            }
        }
        outcome
    }
}

#[cfg(test)]
pub(super) mod tests;
