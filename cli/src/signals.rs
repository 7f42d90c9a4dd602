//! Signals for programs that poll: stop (SIGTERM, SIGINT) and reload the keys (SIGHUP).
//!
//! A signal also interrupts the wait for datagrams, so the program reacts at once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::file_watch::{self, FileWatch, Version};
use crate::reload::ReloadCause;

/// The watched file.
struct WatchedFile {
    path: PathBuf,
    /// Its version when it was last read.
    read: Option<Version>,
    has_failed: bool,
    watch: FileWatch,
}

/// Records the signals that arrive after its creation.
pub struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    /// Whether the watched file was written or replaced, or is to be read again after a failed read.
    file_due: Arc<AtomicBool>,
    watched: Mutex<Option<WatchedFile>>,
    /// Whether the next signal to stop ends the process in its handler.
    ends_at_once: Arc<AtomicBool>,
}

impl Signals {
    /// Registers handlers for SIGTERM and SIGINT, and on Unix for SIGHUP.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen() -> io::Result<Self> {
        let signals = Self::listen_for_reload()?;
        signals.listen_for_stop()?;
        Ok(signals)
    }

    /// Registers a handler for SIGHUP on Unix. SIGTERM and SIGINT keep their default action until
    /// [`listen_for_stop`](Self::listen_for_stop): a start may wait for a disk or for another program.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen_for_reload() -> io::Result<Self> {
        let signals = Self {
            stop: Arc::default(),
            reload: Arc::default(),
            file_due: Arc::default(),
            watched: Mutex::default(),
            ends_at_once: Arc::default(),
        };
        #[cfg(unix)]
        signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::clone(&signals.reload))?;
        Ok(signals)
    }

    /// Asks for a reload after each change of this file that no SIGHUP has read.
    ///
    /// # Errors
    /// Returns the system's error if the thread that looks at the file cannot be started.
    pub fn reload_on_change(&self, path: &Path) -> io::Result<()> {
        let (path, read) = (path.to_owned(), file_watch::version(path));
        let file_due = Arc::clone(&self.file_due);
        let watch = FileWatch::start(vec![path.clone()], move || file_due.store(true, Ordering::Relaxed))?;
        *self.lock() = Some(WatchedFile { path, read, has_failed: false, watch });
        Ok(())
    }

    /// Asks for another reload in 5 s, because the watched file could not be read.
    pub fn reload_failed(&self) {
        if let Some(watched) = &mut *self.lock() {
            watched.has_failed = true;
            watched.watch.read_failed();
        }
    }

    /// Leaves SIGTERM and SIGINT to [`take_stop`](Self::take_stop) from now on.
    ///
    /// # Errors
    /// Returns the system's error if a handler cannot be registered.
    pub fn listen_for_stop(&self) -> io::Result<()> {
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register_conditional_shutdown(signal, 0, Arc::clone(&self.ends_at_once))?;
            signal_hook::flag::register(signal, Arc::clone(&self.stop))?;
        }
        Ok(())
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

    /// Returns why a reload was asked for since the last call: SIGHUP arrived, or the watched file has changed or could
    /// not be read some seconds ago.
    #[must_use]
    pub fn take_reload(&self) -> Option<ReloadCause> {
        if self.reload.swap(false, Ordering::Relaxed) {
            return Some(ReloadCause::Signal);
        }
        self.file_due.swap(false, Ordering::Relaxed).then_some(ReloadCause::Files)
    }

    /// Returns whether a reload reads the watched file: always after SIGHUP, otherwise if it has another version than
    /// the one that was last read, or could not be read. Records it as read. It looks at the file, which takes as long
    /// as the disk hangs.
    #[must_use]
    pub fn is_unread(&self, cause: ReloadCause) -> bool {
        let Some(path) = self.lock().as_ref().map(|watched| watched.path.clone()) else {
            return cause == ReloadCause::Signal;
        };
        // Not under the lock, which other threads take.
        let present = file_watch::version(&path);
        let mut watched = self.lock();
        let Some(watched) = &mut *watched else { return false };
        let has_failed = std::mem::take(&mut watched.has_failed);
        let is_new = std::mem::replace(&mut watched.read, present) != present;
        is_new || has_failed || cause == ReloadCause::Signal
    }

    fn lock(&self) -> MutexGuard<'_, Option<WatchedFile>> {
        // Poisoning is harmless: the critical sections only compare and swap.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
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
        let unread = |cause| signals.take_reload().map(|taken| (taken == cause, signals.is_unread(cause)));
        let due = || signals.file_due.store(true, Ordering::Relaxed);
        assert_eq!(unread(ReloadCause::Files), None);

        std::fs::write(&path, "a second").unwrap();
        signals.reload.store(true, Ordering::Relaxed);
        assert_eq!(unread(ReloadCause::Signal), Some((true, true)));
        due();
        assert_eq!(unread(ReloadCause::Files), Some((true, false)), "the signal has read this version");

        std::fs::write(&path, "and a third").unwrap();
        due();
        assert_eq!(unread(ReloadCause::Files), Some((true, true)));
        signals.reload_failed();
        assert_eq!(unread(ReloadCause::Files), None, "the next attempt is due in 5 s");
        due();
        assert_eq!(unread(ReloadCause::Files), Some((true, true)), "the same version, which could not be read");
        std::fs::remove_file(&path).unwrap();
    }
}
