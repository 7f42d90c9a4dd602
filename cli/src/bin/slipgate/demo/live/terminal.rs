//! The terminal in its live mode: another screen, no cursor, keys without Enter. Every way out restores it.

use std::io::{self, Stdout, Write};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::style::Print;
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
};
use crossterm::{execute, queue};

use super::row::{Colours, ScreenRow};

/// Columns and rows assumed for a terminal that does not report its size.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// A terminal in live mode.
pub(super) struct LiveTerminal {
    out: Stdout,
    colours: Colours,
    /// Cleared when the terminal is restored: by the drop, or by a panic in any thread.
    is_live: Arc<AtomicBool>,
    size: (u16, u16),
    /// The rows on the screen, with their control sequences.
    drawn: Vec<String>,
}

impl LiveTerminal {
    pub(super) fn enter(colours: Colours) -> io::Result<Self> {
        let is_live = Arc::new(AtomicBool::new(true));
        let terminal =
            Self { out: io::stdout(), colours, is_live: Arc::clone(&is_live), size: (0, 0), drawn: Vec::new() };
        terminal::enable_raw_mode()?;
        // From here on the drop restores the terminal. A panic must do so before its message is printed.
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore(&is_live);
            report(info);
        }));
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(terminal)
    }

    /// Returns whether the terminal is still in live mode: not after a panic.
    pub(super) fn is_live(&self) -> bool {
        self.is_live.load(Ordering::Relaxed)
    }

    /// Returns the columns that may be used, and the rows. The last column stays free: writing there moves the cursor
    /// of some terminals to the next row.
    pub(super) fn size() -> (usize, usize) {
        let size = terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0);
        let (columns, rows) = size.unwrap_or(DEFAULT_SIZE);
        (usize::from(columns) - 1, usize::from(rows))
    }

    /// Draws the rows. Only rows that have changed are sent.
    pub(super) fn draw(&mut self, rows: &[ScreenRow]) -> io::Result<()> {
        if !self.is_live() {
            return Ok(());
        }
        queue!(self.out, BeginSynchronizedUpdate)?;
        let size = terminal::size().unwrap_or(DEFAULT_SIZE);
        if size != self.size {
            (self.size, self.drawn) = (size, Vec::new());
            queue!(self.out, Clear(ClearType::All))?;
        }
        self.drawn.resize(rows.len(), String::new());
        for ((row, drawn), y) in rows.iter().zip(&mut self.drawn).zip(0..) {
            let styled = row.styled(self.colours);
            if *drawn != styled {
                queue!(self.out, MoveTo(0, y), Print(&styled), Clear(ClearType::UntilNewLine))?;
                *drawn = styled;
            }
        }
        queue!(self.out, EndSynchronizedUpdate)?;
        self.out.flush()
    }

    /// Waits for a key for at most this time.
    pub(super) fn wait_for_key(&self, time: Duration) -> Option<char> {
        match event::poll(time) {
            Ok(true) => {}
            Ok(false) => return None,
            // Without keys, a signal or the end of the playing time still ends the demo.
            Err(_) => {
                std::thread::sleep(time);
                return None;
            }
        }
        match event::read().ok()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Some('q'),
                KeyCode::Char(_) if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) => None,
                KeyCode::Char(character) => Some(character.to_ascii_lowercase()),
                KeyCode::Esc => Some('q'),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        restore(&self.is_live);
    }
}

/// Restores the terminal once. Errors are ignored: the terminal may be gone.
fn restore(is_live: &AtomicBool) {
    if is_live.swap(false, Ordering::Relaxed) {
        let _ = execute!(io::stdout(), EndSynchronizedUpdate, LeaveAlternateScreen, Show);
        let _ = terminal::disable_raw_mode();
    }
}

#[cfg(all(test, unix))]
mod tests;
