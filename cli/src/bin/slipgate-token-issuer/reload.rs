//! Reads keys, settings, certificates and the key set of players again while the service runs.

use std::path::PathBuf;
use std::sync::Arc;

use slipgate_cli::Failure;
use slipgate_cli::file_watch::FileWatch;
use slipgate_cli::reload::ReloadCause;
use slipgate_cli::reload_thread::ReloadThread;
use slipgate_cli::reloaded_files::{FileList, ReloadedFiles};
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::http::{TlsIdentity, TokenService};
use slipgate_token_issuer::players::Players;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::key_log::KeyLog;
use crate::settings::{RestartSettings, Settings, Sources};

/// The running service, and what a reload replaces in it.
pub(crate) struct Reloadable {
    pub(crate) service: TokenService,
    pub(crate) tls: Option<Arc<TlsIdentity>>,
    pub(crate) players: Option<Arc<Players>>,
    pub(crate) sources: Sources,
    pub(crate) running: RestartSettings,
    /// When another key seals.
    pub(crate) next_key: Option<UnixSeconds>,
    pub(crate) watch: FileWatch,
    pub(crate) files: ReloadGroups,
}

/// The files that are read together.
pub(crate) struct ReloadGroups {
    /// The configuration file and the key files.
    settings: ReloadedFiles,
    certificates: ReloadedFiles,
    players: ReloadedFiles,
}

impl ReloadGroups {
    /// Creates them for the files of the settings in their present versions, and those that `fixed` names.
    pub(crate) fn new(settings: Vec<PathBuf>, fixed: &RestartSettings) -> Self {
        Self {
            settings: ReloadedFiles::new(settings),
            certificates: ReloadedFiles::new(fixed.certificate_files()),
            players: ReloadedFiles::new(fixed.player_file()),
        }
    }

    /// Returns all paths.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        [&self.settings, &self.certificates, &self.players]
            .into_iter()
            .flat_map(ReloadedFiles::paths)
            .cloned()
            .collect()
    }

    const fn has_failed(&self) -> bool {
        self.settings.has_failed() || self.certificates.has_failed() || self.players.has_failed()
    }
}

impl Reloadable {
    /// Starts the thread that reads the files again: a disk that hangs stops neither the service nor its end. Returns
    /// the times from which other keys seal, too.
    pub(crate) fn start_thread(mut self) -> Result<(ReloadThread<()>, watch::Receiver<Option<UnixSeconds>>), Failure> {
        let (send, next_keys) = watch::channel(self.next_key);
        let read = move |cause: ReloadCause| {
            self.reload(cause);
            send.send_replace(self.next_key);
            None
        };
        let thread = ReloadThread::start(read)
            .map_err(|error| Failure::run_time(format!("the thread of reloads cannot be started: {error}")))?;
        Ok((thread, next_keys))
    }

    /// Reads the files again: those that have changed, all of them after a signal, and the keys when another one seals
    /// from now on. What is wrong is logged, stays as it was, and is read again after 5 s.
    fn reload(&mut self, cause: ReloadCause) {
        if cause == ReloadCause::NewKey {
            // A successful read sets the next time. A failed one is tried again by the watch.
            self.next_key = None;
            self.read_settings(cause);
        } else {
            self.read_settings(cause);
            self.read_certificates(cause);
            self.read_players(cause);
        }
        if self.files.has_failed() {
            self.watch.read_failed();
        }
    }

    fn read_settings(&mut self, cause: ReloadCause) {
        match self.files.settings.read_again(cause, || self.sources.gather()) {
            None => {}
            Some((files, Ok(settings))) => self.replace(cause, &files, settings),
            Some((_, Err(error))) => {
                warn!(error, "{cause}: the settings are wrong; keeping the current keys and settings");
            }
        }
    }

    fn read_certificates(&mut self, cause: ReloadCause) {
        let Some(tls) = &self.tls else { return };
        match self.files.certificates.read_again(cause, || tls.reload()) {
            None => {}
            Some((path, Ok(()))) => info!(%path, "{cause}: the certificates were read again"),
            Some((path, Err(error))) => warn!(%path, error, "{cause}: keeping the current certificates"),
        }
    }

    fn read_players(&mut self, cause: ReloadCause) {
        let Some(players) = &self.players else { return };
        if self.running.player_file().is_none() {
            if cause == ReloadCause::Signal {
                // Asks for a fetch, which logs its own outcome.
                let _ = players.reload();
            }
            return;
        }
        match self.files.players.read_again(cause, || players.reload()) {
            None => {}
            Some((path, Ok(()))) => {
                let keys = players.key_count();
                info!(%path, keys, "{cause}: the keys of players were read again");
            }
            Some((path, Err(error))) => warn!(%path, error, "{cause}: keeping the current keys of players"),
        }
    }

    fn replace(&mut self, cause: ReloadCause, path: &FileList, settings: Settings) {
        let (keys, api_keys, servers) = (settings.private_keys, settings.api_keys.count(), settings.server_count());
        let loaded = KeyLog::of(&settings.games, &settings.api_keys);
        self.service.replace(settings.games, settings.api_keys);
        self.files.settings.set_paths(settings.files);
        self.watch.set_paths(self.files.paths());
        self.next_key = settings.next_key;
        let is_configuration = |path: &PathBuf| self.sources.flags.config.as_ref() == Some(path);
        if settings.keys.file().is_none() {
            info!(
                %path, api_keys, servers,
                "{cause}: the API keys were read again; private keys of the environment stay"
            );
        } else if path.iter().all(is_configuration) {
            info!(%path, keys, api_keys, servers, "{cause}: the configuration was read again");
        } else {
            info!(%path, keys, api_keys, servers, "{cause}: the keys were read again");
        }
        loaded.write();
        if settings.fixed != self.running {
            warn!(
                "{cause}: listening address, paths of certificates, registry, rules for players, host names, \
                 connection limits, tokens per minute and log format change at a restart only"
            );
        }
    }
}
