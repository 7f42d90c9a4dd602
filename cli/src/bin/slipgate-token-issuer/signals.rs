//! When to stop: SIGTERM and SIGINT, or Ctrl-C where there are no signals.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Hears signals from its making on.
#[cfg(unix)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next request to stop.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Hears Ctrl-C from its making on.
#[cfg(windows)]
pub(crate) struct Signals {
    ctrl_c: tokio::signal::windows::CtrlC,
}

#[cfg(windows)]
impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { ctrl_c: tokio::signal::windows::ctrl_c()? })
    }

    /// Waits for the next request to stop.
    pub(crate) async fn next(&mut self) {
        self.ctrl_c.recv().await;
    }
}
