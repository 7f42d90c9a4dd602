//! `slipgate top`: a terminal view of a server by its admin port.

mod metrics;
mod screen;
mod view;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use slipgate_cli::Failure;
use slipgate_cli::output::print_line;
use slipgate_cli::signals::Signals;
use slipgate_cli::values::Span;

use self::view::{TopReading, TopView};
use crate::http_port::HttpPort;

pub(crate) const AFTER_HELP: &str = "\
Keys: q, Esc or Ctrl-C ends; Up, Down, PageUp and PageDown move in the list of clients; s changes the order: slot, \
round trip, loss, bytes.

A narrow terminal has the first columns of the list only.

Where standard output is not a terminal, or with --once, it reads the server twice, --interval apart, prints the view \
with the rates of that time, and ends.";

#[derive(Args)]
pub(crate) struct TopFlags {
    /// The server's admin port: IP:PORT, or a URL
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:9100")]
    admin: String,

    /// File with the token of the admin port, mode 0600 [default: none]
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,

    /// Time between two readings
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,

    /// Print the view once, after two readings, without colours, and end
    #[arg(long)]
    once: bool,
}

/// The lines of a printed view.
const PRINTED_LINES: u16 = 40;
/// The shortest time between two readings.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The longest time until a signal ends the view. The terminal is restored then.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(flags: &TopFlags) -> Result<(), Failure> {
    let port = HttpPort::of_admin(&flags.admin, flags.admin_token_file.as_deref())?;
    let interval = flags.interval.0.max(MIN_INTERVAL);
    let read = || TopReading::read(&port).map_err(|error| Failure::run_time(explain(port.url(), &error)));
    let mut view = TopView::new(port.url(), read()?);
    if flags.once || !io::stdout().is_terminal() {
        // Rates need a second reading.
        thread::sleep(interval);
        view.update(Ok(read()?));
        screen::print(&view, PRINTED_LINES).iter().for_each(|line| print_line(line));
        return Ok(());
    }
    let signals = Signals::listen().map_err(|error| Failure::run_time(format!("cannot register signals: {error}")))?;
    let mut terminal = ratatui::try_init().map_err(|error| Failure::run_time(format!("no terminal: {error}")))?;
    let result = watch(&mut terminal, &mut view, &port, interval, &signals);
    ratatui::restore();
    result.map_err(|error| Failure::run_time(format!("the terminal failed: {error}")))
}

/// Returns the sentence of a failed reading. A port that does not respond needs a remedy.
fn explain(url: &str, error: &str) -> String {
    let remedy = if error.starts_with("io: ") { ": start the server with --admin, or give its admin port" } else { "" };
    format!("{url}: {error}{remedy}")
}

/// Shows the view until a key or a signal ends it.
fn watch(
    terminal: &mut DefaultTerminal,
    view: &mut TopView,
    port: &HttpPort,
    interval: Duration,
    signals: &Signals,
) -> io::Result<()> {
    let mut next = Instant::now() + interval;
    while !signals.take_stop() {
        terminal.draw(|frame| screen::draw(view, frame))?;
        let wait = next.saturating_duration_since(Instant::now()).min(SIGNAL_INTERVAL);
        if event::poll(wait)? {
            let event = event::read()?;
            if is_end(&event) {
                break;
            }
            on_key(view, &event);
        } else if Instant::now() >= next {
            view.update(TopReading::read(port));
            next = Instant::now() + interval;
        }
    }
    Ok(())
}

/// Returns whether a key ends the view.
fn is_end(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => key.kind == KeyEventKind::Press,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

fn on_key(view: &mut TopView, event: &Event) {
    let Event::Key(key) = event else { return };
    match key.code {
        KeyCode::Up => view.scroll(-1),
        KeyCode::Down => view.scroll(1),
        KeyCode::PageUp => view.scroll(-20),
        KeyCode::PageDown => view.scroll(20),
        KeyCode::Char('s') => view.next_order(),
        _ => {}
    }
}
