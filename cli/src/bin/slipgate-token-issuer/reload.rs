//! Reads keys, settings, certificates and the key set of players again while the service runs.

use std::sync::Arc;

use slipgate_netcode::time::UnixSeconds;
use slipgate_token_issuer::http::{TlsIdentity, TokenService};
use slipgate_token_issuer::players::Players;
use tracing::{info, warn};

use crate::settings::{RestartSettings, Settings, Sources};

/// The running service, and what a reload replaces in it.
pub(crate) struct Reloadable<'a> {
    pub(crate) service: TokenService,
    pub(crate) tls: Option<Arc<TlsIdentity>>,
    pub(crate) players: Option<Arc<Players>>,
    pub(crate) sources: &'a Sources,
    pub(crate) running: RestartSettings,
    /// When another key seals.
    pub(crate) next_key: Option<UnixSeconds>,
}

impl Reloadable<'_> {
    /// Reads all files again. What is wrong is logged and stays as it was.
    pub(crate) fn reload(&mut self, cause: &str) {
        match self.sources.gather() {
            Ok(settings) => self.replace(cause, settings),
            Err(error) => warn!(%error, "{cause}: the settings are wrong; keeping the current keys and settings"),
        }
        match self.tls.as_ref().map(|tls| tls.reload()) {
            Some(Ok(())) => info!("{cause}: the certificates were read again"),
            Some(Err(error)) => warn!(%error, "{cause}: keeping the current certificates"),
            None => {}
        }
        if let Some(Err(error)) = self.players.as_ref().map(|players| players.reload()) {
            warn!(%error, "{cause}: keeping the current keys of players");
        }
    }

    /// Reads the files again because another key seals from now on.
    pub(crate) fn on_next_key(&mut self) {
        self.next_key = None;
        self.reload("a new key seals");
    }

    fn replace(&mut self, cause: &str, settings: Settings) {
        let (keys, api_keys, servers) = (settings.private_keys, settings.api_keys.count(), settings.server_count());
        self.service.replace(settings.games, settings.api_keys);
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
        self.next_key = settings.next_key;
    }
}
