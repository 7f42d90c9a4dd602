//! Signals for programs that poll: stop (SIGTERM and SIGINT, on Windows Ctrl-C and Ctrl-Break) and reload the keys
//! (SIGHUP).
//!
//! A signal also interrupts the wait for datagrams, so the program reacts at once.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::file_watch::FileWatch;
use crate::reload::ReloadCause;
use crate::stop_signal::{StopAction, exit_at_once, on_stop_signal};

/// The time between two looks for a signal during the waits of an end.
const END_POLL: Duration = Duration::from_millis(20);

/// Records the signals that arrive after its creation.
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Whether a watched file was written or replaced, or is to be read again after a failed read.
    file_due: Arc<AtomicBool>,
    watch: OnceLock<FileWatch>,
    /// Whether the next signal to stop ends the process in its handler: the system has no thread for that.
    ends_at_once: Arc<AtomicBool>,
}

impl Signals {
    /// Registers handlers for the signals to stop, and on Unix for SIGHUP.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen() -> io::Result<Self> {
        let signals = Self::listen_for_reload()?;
        signals.listen_for_stop()?;
        Ok(signals)
    }

    /// Registers a handler for SIGHUP on Unix. Signals to stop keep their default action until
    /// [`listen_for_stop`](Self::listen_for_stop): a start may wait for a disk or for another program.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen_for_reload() -> io::Result<Self> {
        let signals = Self {
            stop: Arc::default(),
            reload: Arc::default(),
            file_due: Arc::default(),
            watch: OnceLock::new(),
            ends_at_once: Arc::default(),
        };
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }

    /// Asks for a reload after each change of one of these files. Only the first call counts.
    ///
    /// # Errors
    /// Returns the system's error if the thread that looks at the files cannot be started.
    pub fn reload_on_change(&self, paths: Vec<PathBuf>) -> io::Result<()> {
        let file_due = Arc::clone(&self.file_due);
        let watch = FileWatch::start(paths, move || file_due.store(true, Ordering::Relaxed))?;
        let _ = self.watch.set(watch);
        Ok(())
    }

    /// Asks for another reload in 5 s, because a watched file could not be read.
    pub fn reload_failed(&self) {
        self.watch.get().into_iter().for_each(FileWatch::read_failed);
    }

    /// Leaves signals to stop to [`take_stop`](Self::take_stop) from now on.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen_for_stop(&self) -> io::Result<()> {
        on_stop_signal(&StopAction::ExitIf(Arc::clone(&self.ends_at_once), 0))?;
        on_stop_signal(&StopAction::Set(Arc::clone(&self.stop)))
    }

    /// Returns whether a signal to stop arrived since the last call.
    #[must_use]
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::Relaxed)
    }

    /// Ends the process at the next signal to stop, with exit status 0 and without further log lines. For the waits
    /// of an end, in which the program does not poll. `before` runs then, for what must not outlive the process.
    pub fn end_at_once_on_stop(&self, before: impl FnOnce() + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        let end = move || {
            // The first look is for a signal that arrived since the program polled last.
            while !stop.swap(false, Ordering::Relaxed) {
                thread::sleep(END_POLL);
            }
            before();
            exit_at_once(0);
        };
        if thread::Builder::new().name("end".into()).spawn(end).is_err() {
            self.ends_at_once.store(true, Ordering::Relaxed);
        }
    }

    /// Returns why a reload was asked for since the last call: SIGHUP arrived, or a watched file has changed or could
    /// not be read some seconds ago.
    #[must_use]
    pub fn take_reload(&self) -> Option<ReloadCause> {
        if self.reload.swap(false, Ordering::Relaxed) {
            return Some(ReloadCause::Signal);
        }
        self.file_due.swap(false, Ordering::Relaxed).then_some(ReloadCause::Files)
    }
}
