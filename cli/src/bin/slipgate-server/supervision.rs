//! What operators and orchestrators see of the server, and whether they end it.

use slipgate_admin::{Admin, AdminPublisher};
use slipgate_fleet::{Fleet, LifeState, RedirectCounts};
use slipgate_server::keys::KeyRing;
use slipgate_server::{Clock, ServerConfig};
use tracing::info;

/// The admin service and the life cycle.
pub(crate) struct Supervision {
    pub(crate) admin: Option<Admin>,
    pub(crate) fleet: Fleet,
}

impl Supervision {
    pub(crate) fn publisher(&self, config: Option<&ServerConfig>, clock: Clock) -> Option<AdminPublisher> {
        Some(self.admin.as_ref()?.publisher(config?, clock))
    }

    pub(crate) fn show_keys(&self, keys: &KeyRing) {
        self.admin.iter().for_each(|admin| admin.show_keys(keys));
    }

    /// Returns whether an operator drains the server.
    pub(crate) fn is_drained_by_operator(&self) -> bool {
        self.admin.as_ref().is_some_and(Admin::is_draining)
    }

    /// Returns whether an orchestrator ends the server, or it has been empty for too long.
    pub(crate) fn is_ended_by_orchestrator(&self) -> bool {
        self.fleet.life_cycle().is_draining()
    }

    /// Reports that the server should get no new clients from now on.
    pub(crate) fn announce_drain(&self) {
        self.fleet.life_cycle().advance(LifeState::Draining);
        self.admin.iter().for_each(Admin::announce_drain);
    }

    /// Reports that no new clients are admitted any more.
    pub(crate) fn set_draining(&self) {
        self.admin.iter().for_each(Admin::set_draining);
    }

    /// Logs the redirects of a drain, if there were any: a scrape of the metrics may come too late for them.
    pub(crate) fn log_redirects(&self) {
        let counts = self.fleet.redirects().counts();
        if counts != RedirectCounts::default() {
            let RedirectCounts { sent, refused, without_channels, left, waiting } = counts;
            info!(sent, refused, without_channels, left, waiting, "totals of redirects");
        }
    }
}
