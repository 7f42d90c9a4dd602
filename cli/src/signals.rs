//! Signals for programs that poll: stop (SIGTERM, SIGINT) and reload the keys (SIGHUP).
//!
//! A signal also interrupts the wait for datagrams, so the program reacts at once.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::file_watch;

/// Records the signals that arrive after its creation.
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Whether the next signal to stop ends the process in its handler.
    ends_at_once: Arc<AtomicBool>,
}

impl Signals {
    /// Registers handlers for SIGTERM and SIGINT, and on Unix for SIGHUP.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen() -> io::Result<Self> {
        let signals = Self { stop: Arc::default(), reload: Arc::default(), ends_at_once: Arc::default() };
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(&signals.ends_at_once))?;
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }

    /// Treats each change of this file as a SIGHUP, which reads it again.
    ///
    /// # Errors
    /// Returns the system's error if the thread that looks at the file cannot be started.
    pub fn reload_on_change(&self, path: &Path) -> io::Result<()> {
        let reload = Arc::clone(&self.reload);
        file_watch::watch(vec![path.to_owned()], move || reload.store(true, Ordering::Relaxed))
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
    }

    /// Returns whether SIGHUP arrived since the last call.
    #[must_use]
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
