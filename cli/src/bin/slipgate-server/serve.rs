//! The main loop with one shard: handles datagrams at once, ends turns at the tick rate, and sleeps in between.

use std::time::Duration;

use slipgate_admin::{Admin, AdminPublisher};
use slipgate_cli::signals::Signals;
use slipgate_fleet::{Fleet, FleetReporter, LifeState};
use slipgate_netcode::time::Instant;
use slipgate_server::{Clock, Inbox, Pace, Server};
use tracing::info;

use crate::app::App;
use crate::key_reloads::KeyReloads;
use crate::settings::Settings;
use crate::sharded::Supervision;

/// A server with its application and its tick rate.
pub(crate) struct Service {
    server: Server,
    inbox: Inbox,
    app: App,
    clock: Clock,
    pace: Pace,
    drain: Duration,
    keys: KeyReloads,
    admin: Option<(Admin, AdminPublisher)>,
    fleet: Fleet,
    reporter: FleetReporter,
}

/// Whether the server accepts new clients or waits for the last ones to leave.
enum ServiceState {
    Serving,
    Draining {
        until: Instant,
        /// Whether a stop signal arrived. If an operator or an orchestrator began the drain, one may follow.
        is_signalled: bool,
    },
}

impl Service {
    pub(crate) fn new(
        server: Server,
        clock: Clock,
        settings: &Settings,
        keys: KeyReloads,
        supervision: Supervision,
    ) -> Self {
        let Supervision { admin, fleet } = supervision;
        Self {
            app: App::new(settings.app, server.config().slots),
            inbox: Inbox::default(),
            pace: Pace::new(clock, Duration::from_secs(1) / settings.tick),
            drain: settings.drain,
            keys,
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

    /// Serves until a stop signal or an operator begins a drain, then until all clients left, the drain time is over,
    /// or a second signal arrives.
    pub(crate) fn run(mut self, signals: &Signals) {
        let mut state = ServiceState::Serving;
        loop {
            self.keys.poll(signals, |keys| {
                self.admin.iter().for_each(|(admin, _)| admin.show_keys(&keys));
                self.server.set_keys(keys);
            });
            state = match (state, signals.take_stop()) {
                (ServiceState::Serving, false) if self.drains_by_operator() => self.begin_drain(false),
                (state, false) => state,
                (ServiceState::Serving, true) => self.begin_drain(true),
                (ServiceState::Draining { is_signalled: true, .. }, true) => break,
                (ServiceState::Draining { until, .. }, true) => ServiceState::Draining { until, is_signalled: true },
            };
            self.turn();
            if let ServiceState::Draining { until, .. } = state
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

    fn begin_drain(&mut self, is_signalled: bool) -> ServiceState {
        let connected = self.server.connected_count();
        info!(connected, drain = ?self.drain, "stopping: denying new clients, waiting for the others to leave");
        self.server.accept_new_clients(false);
        self.fleet.life_cycle().advance(LifeState::Draining);
        if let Some((admin, _)) = &self.admin {
            admin.set_draining();
        }
        ServiceState::Draining { until: self.clock.monotonic().after(self.drain), is_signalled }
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
