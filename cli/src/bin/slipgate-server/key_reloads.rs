//! New private keys while the server runs: SIGHUP or a change of the key file asks for them.

use std::path::PathBuf;
use std::sync::Arc;

use slipgate_cli::Failure;
use slipgate_cli::keys::KeySource;
use slipgate_cli::reload::{LastRead, ReloadCause};
use slipgate_cli::reload_thread::ReloadThread;
use slipgate_cli::signals::Signals;
use slipgate_server::keys::KeyRing;
use tracing::{info, warn};

/// Reads the key file on a thread of its own.
pub(crate) struct KeyReloads {
    path: Option<PathBuf>,
    thread: ReloadThread<KeyRing>,
}

impl KeyReloads {
    pub(crate) fn start(source: KeySource, signals: Arc<Signals>) -> Result<Self, Failure> {
        let path = source.file().map(PathBuf::from);
        let mut keys = RunningKeys { source, last_read: LastRead::default() };
        let read = move |cause| if signals.is_unread(cause) { keys.read_again(cause, &signals) } else { None };
        let thread = ReloadThread::start(read)
            .map_err(|error| Failure::run_time(format!("the thread of reloads cannot be started: {error}")))?;
        Ok(Self { path, thread })
    }

    /// Requests a reload if a signal or a change asks for it, and passes on keys that were read. Never waits.
    pub(crate) fn poll(&self, signals: &Signals, set: impl FnOnce(KeyRing)) {
        if let Some(cause) = signals.take_reload() {
            self.thread.request(cause);
        }
        if let (Some(read), Some(path)) = (self.thread.poll(), &self.path) {
            let keys = read.len();
            set(read);
            info!(path = %path.display(), keys, "the key file was read again");
        }
    }
}

/// The source of the keys, on the thread that reads them.
struct RunningKeys {
    source: KeySource,
    last_read: LastRead,
}

impl RunningKeys {
    /// Reads the key file again. Returns `None`, with a warning in the log, if there is no file or it is invalid. An
    /// invalid file is read again after 5 s.
    fn read_again(&mut self, cause: ReloadCause, signals: &Signals) -> Option<KeyRing> {
        if self.source.file().is_none() {
            warn!("SIGHUP: the keys come from the environment, which cannot be read again; keeping the current keys");
            return None;
        }
        let is_retry = cause == ReloadCause::Files && self.last_read.has_failed();
        match self.source.read() {
            Ok(keys) => {
                self.last_read.record(is_retry, None);
                Some(keys)
            }
            Err(error) => {
                signals.reload_failed();
                if self.last_read.record(is_retry, Some(error.to_string())) {
                    warn!(%error, "the key file is invalid; keeping the current keys, and trying again every 5 s");
                }
                None
            }
        }
    }
}
