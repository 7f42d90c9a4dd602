//! The live screen in a terminal, and its keys.

mod event_log;
mod history;
mod layout;
mod row;
mod table;
mod terminal;

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use slipgate_cli::Failure;

use self::event_log::EventLog;
use self::history::History;
use self::layout::View;
use self::row::Colours;
use self::terminal::LiveTerminal;
use super::flood::FLOOD_RATE;
use super::line::Line;
use super::stage::DemoStage;

/// What the demo does after a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Continue,
    /// The person at the terminal wants to quit, or the terminal is gone after a panic.
    Quit,
}

/// The live screen.
pub(super) struct LiveScreen {
    terminal: LiveTerminal,
    history: History,
    events: EventLog,
    addresses: String,
}

impl LiveScreen {
    /// Puts the terminal into its live mode.
    pub(super) fn start(stage: &DemoStage) -> Result<Self, Failure> {
        let no_colour = std::env::var_os("NO_COLOR");
        let terminal = LiveTerminal::enter(colours(no_colour.as_deref()))
            .map_err(|error| Failure::run_time(format!("cannot control the terminal: {error}")))?;
        let addresses =
            format!("issuer http://{} (HTTP)   server {} (UDP)", stage.issuer_address(), stage.server_address);
        let now = Instant::now();
        Ok(Self { terminal, history: History::new(now), events: EventLog::new(now), addresses })
    }

    /// Draws a frame and handles keys, for at most this time.
    pub(super) fn frame(&mut self, stage: &mut DemoStage, time: Duration) -> Result<Next, Failure> {
        self.draw(stage);
        if !self.terminal.is_live() {
            return Ok(Next::Quit);
        }
        match self.terminal.wait_for_key(time) {
            Some(key) => self.handle(key, stage),
            None => Ok(Next::Continue),
        }
    }

    fn draw(&mut self, stage: &mut DemoStage) {
        let (now, snapshot) = (Instant::now(), stage.snapshot());
        let events = self.events.update(&snapshot, stage.take_restarted());
        events.into_iter().for_each(|event| self.history.add_event(now, event));
        self.history.update(&snapshot, stage.flood_count(), now);
        let view =
            View { snapshot: &snapshot, history: &self.history, line: stage.line(), addresses: &self.addresses, now };
        let (width, height) = LiveTerminal::size();
        // An error of the terminal must not end the demo.
        let _ = self.terminal.draw(&layout::rows(&view, width, height));
    }

    fn handle(&mut self, key: char, stage: &mut DemoStage) -> Result<Next, Failure> {
        match key {
            'q' => return Ok(Next::Quit),
            'k' => stage.kick_one(),
            'r' => {
                self.add_event("The server restarts on the same port, with an empty memory.");
                self.draw(stage);
                stage.restart()?;
            }
            'f' => self.toggle_flood(stage)?,
            key => {
                if let Some(line) = Line::of_key(key) {
                    stage.set_line(line);
                    self.add_event(&format!("The line is now {}.", line.name()));
                }
            }
        }
        Ok(Next::Continue)
    }

    fn toggle_flood(&mut self, stage: &mut DemoStage) -> Result<(), Failure> {
        match stage.flood_count() {
            None => self.add_event(&format!("A flood begins: {FLOOD_RATE} datagrams of junk a second.")),
            Some(count) => self.add_event(&format!("The flood ends after {} datagrams.", count.sent)),
        }
        stage.toggle_flood()
    }

    /// Restores the terminal.
    ///
    /// # Errors
    /// A thread has panicked.
    pub(super) fn leave(self) -> Result<(), Failure> {
        if self.terminal.is_live() { Ok(()) } else { Err(Failure::run_time("a thread of the demo panicked")) }
    }

    /// Shows that the demo waits for the last messages.
    pub(super) fn announce_end(&mut self) {
        self.add_event("The last messages are on their way. Press q again to end at once.");
    }

    fn add_event(&mut self, text: &str) {
        self.history.add_event(Instant::now(), text.to_owned());
    }
}

/// Breaks a text between words into lines as wide as the terminal.
pub(super) fn wrap_to_terminal(text: &str) -> String {
    let (width, _) = LiveTerminal::size();
    row::wrap(text, width).join("\n")
}

/// Returns whether to use colours: not if the variable is set and not empty (no-color.org).
fn colours(no_colour: Option<&OsStr>) -> Colours {
    if no_colour.is_some_and(|value| !value.is_empty()) { Colours::Off } else { Colours::On }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_turns_colours_off_unless_it_is_empty() {
        let of = |value: &'static str| colours(Some(OsStr::new(value)));
        assert_eq!((colours(None), of(""), of("1"), of("0")), (Colours::On, Colours::On, Colours::Off, Colours::Off));
    }
}
