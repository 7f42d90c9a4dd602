//! Reads keys, settings, certificates and the key set of players again while the service runs.

use std::sync::Arc;

use slipgate_cli::Failure;
use slipgate_cli::file_watch::FileWatch;
use slipgate_cli::reload::{LastRead, ReloadCause};
use slipgate_cli::reload_thread::ReloadThread;
use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::http::{TlsIdentity, TokenService};
use slipgate_token_issuer::players::Players;
use tokio::sync::watch;
use tracing::{info, warn};

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
    pub(crate) last_reads: LastReads,
}

/// The outcomes of the last reads.
#[derive(Default)]
pub(crate) struct LastReads {
    settings: LastRead,
    certificates: LastRead,
    players: LastRead,
}

impl LastReads {
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
            if cause == ReloadCause::NewKey {
                self.on_next_key();
            } else {
                self.reload(cause);
            }
            send.send_replace(self.next_key);
            None
        };
        let thread = ReloadThread::start(read)
            .map_err(|error| Failure::run_time(format!("the thread of reloads cannot be started: {error}")))?;
        Ok((thread, next_keys))
    }

    /// Reads all files again. What is wrong is logged, stays as it was, and is read again after 5 s.
    fn reload(&mut self, cause: ReloadCause) {
        let is_retry = cause == ReloadCause::Files && self.last_reads.has_failed();
        self.read_settings(cause, is_retry);
        self.read_certificates(cause, is_retry);
        let players = self.players.as_ref().map(|players| players.reload());
        let error = players.and_then(Result::err).map(|error| error.to_string());
        if self.last_reads.players.record(is_retry, error.clone())
            && let Some(error) = error
        {
            warn!(error, "{cause}: keeping the current keys of players");
        }
        if self.last_reads.has_failed() {
            self.watch.read_failed();
        }
    }

    /// Reads the files again because another key seals from now on.
    fn on_next_key(&mut self) {
        // A successful read sets the next time. A failed one is tried again by the watch.
        self.next_key = None;
        self.reload(ReloadCause::NewKey);
    }

    fn read_settings(&mut self, cause: ReloadCause, is_retry: bool) {
        match self.sources.gather() {
            Ok(settings) => {
                let is_new = self.last_reads.settings.record(is_retry, None);
                self.replace(cause, settings, is_new);
            }
            Err(error) => {
                if self.last_reads.settings.record(is_retry, Some(error.to_string())) {
                    warn!(%error, "{cause}: the settings are wrong; keeping the current keys and settings");
                }
            }
        }
    }

    fn read_certificates(&mut self, cause: ReloadCause, is_retry: bool) {
        let Some(read) = self.tls.as_ref().map(|tls| tls.reload()) else { return };
        let error = read.err().map(|error| error.to_string());
        let is_new = self.last_reads.certificates.record(is_retry, error.clone());
        match error {
            _ if !is_new => {}
            None => info!("{cause}: the certificates were read again"),
            Some(error) => warn!(error, "{cause}: keeping the current certificates"),
        }
    }

    fn replace(&mut self, cause: ReloadCause, settings: Settings, is_new: bool) {
        let (keys, api_keys, servers) = (settings.private_keys, settings.api_keys.count(), settings.server_count());
        self.service.replace(settings.games, settings.api_keys);
        self.watch.set_paths(settings.files);
        self.next_key = settings.next_key;
        if !is_new {
            return;
        }
        match settings.keys.file() {
            Some(path) => info!(path = %path.display(), keys, api_keys, servers, "{cause}: the keys were read again"),
            None => {
                info!(api_keys, servers, "{cause}: the API keys were read again; private keys of the environment stay");
            }
        }
        if settings.fixed != self.running {
            warn!(
                "{cause}: listening address, paths of certificates, registry, rules for players, host names, \
                 connection limits, tokens per minute and log format change at a restart only"
            );
        }
    }
}
