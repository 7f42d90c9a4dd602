//! Signals: SIGTERM and SIGINT stop, SIGHUP reloads on Unix; Ctrl-C and Ctrl-Break stop on Windows.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// Finish the open requests and stop.
    Stop,
    /// Read the keys and the configuration file again.
    #[cfg_attr(windows, expect(dead_code, reason = "Windows has no such signal"))]
    Reload,
}

/// Records each SIGHUP after its creation.
pub(crate) struct ReloadSignal {
    #[cfg(unix)]
    hangup: tokio::signal::unix::Signal,
}

impl ReloadSignal {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// Records the signals that arrive after its creation.
#[cfg(unix)]
pub(crate) struct AsyncSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    reload: ReloadSignal,
}

#[cfg(unix)]
impl AsyncSignals {
    /// Leaves SIGTERM and SIGINT to [`next`](Self::next). Until then they end the program.
    pub(crate) fn listen(reload: ReloadSignal) -> io::Result<Self> {
        let (terminate, interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, reload })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.terminate.recv() => Signal::Stop,
            _ = self.interrupt.recv() => Signal::Stop,
            _ = self.reload.hangup.recv() => Signal::Reload,
        }
    }
}

/// Records each Ctrl-C and Ctrl-Break after its creation.
#[cfg(windows)]
pub(crate) struct AsyncSignals {
    ctrl_c: tokio::signal::windows::CtrlC,
    ctrl_break: tokio::signal::windows::CtrlBreak,
}

#[cfg(windows)]
impl AsyncSignals {
    pub(crate) fn listen(_: ReloadSignal) -> io::Result<Self> {
        use tokio::signal::windows::{ctrl_break, ctrl_c};
        Ok(Self { ctrl_c: ctrl_c()?, ctrl_break: ctrl_break()? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.ctrl_c.recv() => Signal::Stop,
            _ = self.ctrl_break.recv() => Signal::Stop,
        }
    }
}

impl AsyncSignals {
    /// Waits for the next stop signal.
    pub(crate) async fn next_stop(&mut self) {
        while self.next().await != Signal::Stop {}
    }
}
