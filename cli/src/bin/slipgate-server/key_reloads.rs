//! New keys while the server runs: SIGHUP or a change of a file asks for them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use slipgate_admin::AdminToken;
use slipgate_cli::Failure;
use slipgate_cli::keys::{KeySource, list_fingerprints};
use slipgate_cli::reload::ReloadCause;
use slipgate_cli::reload_thread::ReloadThread;
use slipgate_cli::reloaded_file::ReloadedFile;
use slipgate_cli::signals::Signals;
use slipgate_server::keys::{Key, KeyRing};
use tracing::{info, warn};

use crate::settings::Settings;

/// Reads the files on a thread of its own.
pub(crate) struct KeyReloads {
    path: Option<PathBuf>,
    thread: ReloadThread<(ReloadCause, KeyRing)>,
}

impl KeyReloads {
    pub(crate) fn start(
        settings: &Settings,
        admin_token: Option<AdminToken>,
        signals: Arc<Signals>,
    ) -> Result<Self, Failure> {
        let (source, path) = (settings.keys.clone(), settings.keys.file().map(PathBuf::from));
        let mut keys = RunningKeys { file: path.as_deref().map(ReloadedFile::new), source };
        let mut others = other_files(settings, admin_token);
        let watched = keys.file.iter().chain(others.iter().map(|other| &other.file));
        let watched = signals.reload_on_change(watched.map(|file| file.path().to_owned()).collect());
        watched.map_err(|error| Failure::run_time(format!("the key files cannot be watched: {error}")))?;
        let read = move |cause| {
            let read = keys.read_again(cause);
            others.iter_mut().for_each(|other| other.read_again(cause));
            let mut files = keys.file.iter().chain(others.iter().map(|other| &other.file));
            if files.any(ReloadedFile::has_failed) {
                signals.reload_failed();
            }
            read.map(|keys| (cause, keys))
        };
        let thread = ReloadThread::start(read)
            .map_err(|error| Failure::run_time(format!("the thread of reloads cannot be started: {error}")))?;
        Ok(Self { path, thread })
    }

    /// Requests a reload if a signal or a change asks for it, and passes on keys that were read. Never waits.
    pub(crate) fn poll(&self, signals: &Signals, set: impl FnOnce(KeyRing)) {
        if let Some(cause) = signals.take_reload() {
            self.thread.request(cause);
        }
        if let (Some((cause, read)), Some(path)) = (self.thread.poll(), &self.path) {
            let (keys, fingerprints) = (read.len(), list_fingerprints(read.iter().map(Key::fingerprint)));
            set(read);
            info!(path = %path.display(), keys, fingerprints, "{cause}: the key file was read again");
        }
    }
}

/// The source of the private keys, on the thread that reads them.
struct RunningKeys {
    source: KeySource,
    file: Option<ReloadedFile>,
}

impl RunningKeys {
    /// Reads the key file again. Returns `None`, with a warning in the log, if there is no file or it is invalid.
    fn read_again(&mut self, cause: ReloadCause) -> Option<KeyRing> {
        let Some(file) = &mut self.file else {
            if cause == ReloadCause::Signal {
                warn!(
                    "SIGHUP: the keys come from the environment, which cannot be read again; keeping the current keys"
                );
            }
            return None;
        };
        match file.read_again(cause, || self.source.read())? {
            Ok(keys) => Some(keys),
            Err(error) => {
                warn!(error, "{cause}: the key file is invalid; keeping the current keys, and trying again every 5 s");
                None
            }
        }
    }
}

/// Returns the other files: the key and the authorities of the registration, and the token of admin requests.
fn other_files(settings: &Settings, admin_token: Option<AdminToken>) -> Vec<RunningFile> {
    let (fleet, registration) = (&settings.fleet, settings.fleet.registration.as_ref());
    let key = registration.map(|registration| registration.key.clone()).zip(fleet.issuer_key_file.as_deref());
    let key = key.map(|(key, path)| {
        RunningFile::new("--issuer-key-file", "secret", path, move |path| {
            key.reload(path).map_err(|error| error.to_string())
        })
    });
    let authorities = registration.and_then(|registration| registration.authorities.clone());
    let authorities = authorities.zip(fleet.issuer_ca_file.as_deref()).map(|(authorities, path)| {
        RunningFile::new("--issuer-ca-file", "authorities", path, move |path| {
            authorities.reload(path).map_err(|error| error.to_string())
        })
    });
    let admin_token = admin_token.zip(settings.admin_token_file.as_deref()).map(|(token, path)| {
        RunningFile::new("--admin-token-file", "secret", path, move |path| {
            token.reload(path).map_err(|error| error.to_string())
        })
    });
    [key, authorities, admin_token].into_iter().flatten().collect()
}

/// Replaces what a file holds in place, unless the file is invalid.
type FileReload = dyn Fn(&Path) -> Result<(), String> + Send;

/// A file whose content its owner replaces in place.
struct RunningFile {
    setting: &'static str,
    /// What the file holds.
    content: &'static str,
    file: ReloadedFile,
    reload: Box<FileReload>,
}

impl RunningFile {
    fn new(
        setting: &'static str,
        content: &'static str,
        path: &Path,
        reload: impl Fn(&Path) -> Result<(), String> + Send + 'static,
    ) -> Self {
        Self { setting, content, file: ReloadedFile::new(path), reload: Box::new(reload) }
    }

    /// Reads the file again. An invalid one changes nothing.
    fn read_again(&mut self, cause: ReloadCause) {
        let path = self.file.path().to_owned();
        match self.file.read_again(cause, || (self.reload)(&path)) {
            None => {}
            Some(Ok(())) => info!(path = %path.display(), "{cause}: the file of {} was read again", self.setting),
            Some(Err(error)) => {
                let Self { setting, content, .. } = self;
                warn!(
                    error,
                    "{cause}: the file of {setting} is invalid; keeping the current {content}, and trying again \
                     every 5 s"
                );
            }
        }
    }
}
