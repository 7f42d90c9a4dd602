//! What the system asks of a program that polls: to stop, and to read its keys anew.
//!
//! A signal also ends the wait for datagrams early, so that it is heard at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Hears signals from its making on.
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// Listens to SIGTERM and SIGINT, and where there is one to SIGHUP.
    ///
    /// # Errors
    /// When the system does not report signals.
    pub fn listen() -> io::Result<Self> {
        let signals = Self { stop: Arc::default(), reload: Arc::default() };
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&signals.stop))?;
        }
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }

    /// Whether the program was asked to stop (SIGTERM, SIGINT) since the last call.
    #[must_use]
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Whether the program was asked to read its keys anew (SIGHUP) since the last call.
    #[must_use]
    pub fn take_reload(&self) -> bool {
        self.reload.swap(false, Ordering::Relaxed)
    }
}
