//! The main loop with one shard: handles datagrams at once, ends turns at the tick rate, and sleeps in between.

use std::time::Duration;

use slipgate_admin::{Admin, AdminPublisher};
use slipgate_cli::keys::KeySource;
use slipgate_cli::signals::Signals;
use slipgate_fleet::{Fleet, FleetReporter, LifeState};
use slipgate_netcode::time::Instant;
use slipgate_server::keys::KeyRing;
use slipgate_server::{Clock, Inbox, Pace, Server};
use tracing::{info, warn};

use crate::app::App;
use crate::settings::Settings;

/// A server with its application and its tick rate.
pub(crate) struct Service {
    server: Server,
    inbox: Inbox,
    app: App,
    clock: Clock,
    pace: Pace,
    drain: Duration,
    keys: KeySource,
    admin: Option<(Admin, AdminPublisher)>,
    fleet: Fleet,
    reporter: FleetReporter,
}

/// Whether the server accepts new clients or waits for the last ones to leave.
enum ServiceState {
    Serving,
    Draining { until: Instant },
}

impl Service {
    pub(crate) fn new(server: Server, clock: Clock, settings: Settings, admin: Option<Admin>, fleet: Fleet) -> Self {
        Self {
            app: App::new(settings.app, server.config().slots),
            inbox: Inbox::default(),
            pace: Pace::new(clock, Duration::from_secs(1) / settings.tick),
            drain: settings.drain,
            keys: settings.keys,
            admin: admin.map(|admin| {
                let publisher = admin.publisher(server.config(), clock);
                (admin, publisher)
            }),
            reporter: fleet.reporter(),
            fleet,
            server,
            clock,
        }
    }

    /// Serves until a stop signal arrives, then until all clients left, the drain time is over, or a second signal.
    pub(crate) fn run(mut self, signals: &Signals) {
        let mut state = ServiceState::Serving;
        loop {
            if signals.take_reload() {
                self.reload_keys();
            }
            state = match (state, signals.take_stop()) {
                (ServiceState::Serving, false) if self.drains_by_operator() => self.begin_drain(),
                (state, false) => state,
                (ServiceState::Serving, true) => self.begin_drain(),
                (ServiceState::Draining { .. }, true) => break,
            };
            self.turn();
            if let ServiceState::Draining { until } = state
                && (self.server.connected_count() == 0 || self.clock.monotonic() >= until)
            {
                break;
            }
            self.pace.rest(&mut self.server);
        }
        self.stop(signals);
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        self.app.handle_events(&mut self.server, &mut self.inbox);
        if self.pace.is_tick(now.monotonic) {
            self.server.end_turn();
        } else {
            self.server.flush();
        }
        if let Some((_, publisher)) = &mut self.admin {
            publisher.on_turn(&mut self.server, now);
        }
        self.reporter.on_turn(&mut self.server, now);
    }

    /// Returns whether an operator, or an orchestrator, drains the server.
    fn drains_by_operator(&self) -> bool {
        self.fleet.life_cycle().is_draining() || self.admin.as_ref().is_some_and(|(admin, _)| admin.is_draining())
    }

    fn reload_keys(&mut self) {
        if let Some(keys) = read_keys_again(&self.keys) {
            self.server.set_keys(keys);
        }
    }

    fn begin_drain(&mut self) -> ServiceState {
        let connected = self.server.connected_count();
        info!(connected, drain = ?self.drain, "stopping: denying new clients, waiting for the others to leave");
        self.server.accept_new_clients(false);
        self.fleet.life_cycle().advance(LifeState::Draining);
        if let Some((admin, _)) = &self.admin {
            admin.set_draining();
        }
        ServiceState::Draining { until: self.clock.monotonic().after(self.drain) }
    }

    fn stop(mut self, signals: &Signals) {
        self.server.begin_turn(self.clock.now());
        self.server.stop("");
        self.server.end_turn();
        // Taking the last `Disconnected` events writes their log lines.
        while self.inbox.next(&mut self.server).is_some() {}
        self.server.log_totals();
        // The drop waits up to a second for the last write of the history file: "stopped" is the last line. Another
        // signal ends the wait, and the process.
        signals.end_at_once_on_stop();
        drop(self.server);
        self.fleet.end();
        info!("stopped");
    }
}

/// Reads the key file again. Returns `None`, with a warning in the log, if there is no file or it is invalid.
pub(crate) fn read_keys_again(keys: &KeySource) -> Option<KeyRing> {
    let Some(path) = keys.file() else {
        warn!("SIGHUP: the keys come from the environment, which cannot be read again; keeping the current keys");
        return None;
    };
    match keys.read() {
        Ok(keys) => {
            info!(path = %path.display(), keys = keys.len(), "the key file was read again");
            Some(keys)
        }
        Err(error) => {
            warn!(%error, "the key file is invalid; keeping the current keys");
            None
        }
    }
}
