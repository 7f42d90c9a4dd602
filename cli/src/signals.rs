//! Signals for programs that poll: stop (SIGTERM, SIGINT) and reload the keys (SIGHUP).
//!
//! A signal also interrupts the wait for datagrams, so the program reacts at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::file_watch::{self, Version};

/// Records the signals that arrive after its creation.
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Whether the watched file was written or replaced.
    file_changed: Arc<AtomicBool>,
    /// The watched file, and its version when it was last read.
    watched: Mutex<Option<(PathBuf, Option<Version>)>>,
    /// Whether the next signal to stop ends the process in its handler.
    ends_at_once: Arc<AtomicBool>,
}

impl Signals {
    /// Registers handlers for SIGTERM and SIGINT, and on Unix for SIGHUP.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen() -> io::Result<Self> {
        let signals = Self {
            stop: Arc::default(),
            reload: Arc::default(),
            file_changed: Arc::default(),
            watched: Mutex::default(),
            ends_at_once: Arc::default(),
        };
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(&signals.ends_at_once))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }

    /// Asks for a reload after each change of this file that no SIGHUP has read.
    ///
    /// # Errors
    /// Returns the system's error if the thread that looks at the file cannot be started.
    pub fn reload_on_change(&self, path: &Path) -> io::Result<()> {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((path.to_owned(), file_watch::version(path)));
        let file_changed = Arc::clone(&self.file_changed);
        file_watch::watch(vec![path.to_owned()], move || file_changed.store(true, Ordering::Relaxed))
    }

    /// Returns whether SIGTERM or SIGINT arrived since the last call.
    #[must_use]
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Ends the process at the next SIGTERM or SIGINT, with exit status 0 and without further log lines. For the waits
    /// of an end, in which the program does not poll.
    pub fn end_at_once_on_stop(&self) {
        self.ends_at_once.store(true, Ordering::Relaxed);
        // A signal that arrived since the program polled last.
        if self.take_stop() {
            signal_hook::low_level::exit(0);
        }
    }

    /// Returns whether SIGHUP arrived since the last call, or the watched file has changed since it was last read.
    #[must_use]
    pub fn take_reload(&self) -> bool {
        if self.reload.swap(false, Ordering::Relaxed) {
            self.is_unread_version();
            return true;
        }
        self.file_changed.swap(false, Ordering::Relaxed) && self.is_unread_version()
    }

    /// Returns whether the watched file has another version than the one that was last read, and records it as read.
    fn is_unread_version(&self) -> bool {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((path, read)) = &mut *watched else { return false };
        let present = file_watch::version(path);
        std::mem::replace(read, present) != present
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test panics")]

    use super::*;

    #[test]
    fn change_that_a_signal_has_read_is_not_read_again() {
        let path = std::env::temp_dir().join(format!("slipgate-signals-{}", std::process::id()));
        std::fs::write(&path, "one").unwrap();
        let signals = Signals::listen().unwrap();
        signals.reload_on_change(&path).unwrap();
        assert!(!signals.take_reload());

        std::fs::write(&path, "a second").unwrap();
        signals.reload.store(true, Ordering::Relaxed);
        assert!(signals.take_reload());
        signals.file_changed.store(true, Ordering::Relaxed);
        assert!(!signals.take_reload(), "the signal has read this version");

        std::fs::write(&path, "and a third").unwrap();
        signals.file_changed.store(true, Ordering::Relaxed);
        assert!(signals.take_reload());
        std::fs::remove_file(&path).unwrap();
    }
}
