//! The main loop with one shard: handles datagrams at once, ends turns at the tick rate, and sleeps in between.

use std::time::Duration;

use slipgate_admin::AdminPublisher;
use slipgate_cli::signals::Signals;
use slipgate_fleet::FleetReporter;
use slipgate_server::{Clock, Inbox, Pace, Server};
use tracing::info;

use crate::app::App;
use crate::key_reloads::KeyReloads;
use crate::settings::Settings;
use crate::stop::{StopSchedule, StopStep};
use crate::supervision::Supervision;

/// How long clients may take to acknowledge that the server stops: the session's default for a redirect, and for the
/// text behind it.
const MAX_STOP: Duration = Duration::from_secs(2);

/// A server with its application and its tick rate.
pub(crate) struct Service {
    server: Server,
    inbox: Inbox,
    app: App,
    clock: Clock,
    pace: Pace,
    stop: StopSchedule,
    drain: Duration,
    keys: KeyReloads,
    supervision: Supervision,
    publisher: Option<AdminPublisher>,
    reporter: FleetReporter,
}

impl Service {
    pub(crate) fn new(
        server: Server,
        clock: Clock,
        settings: &Settings,
        keys: KeyReloads,
        supervision: Supervision,
    ) -> Self {
        Self {
            app: App::new(settings.app, server.config().slots),
            inbox: Inbox::default(),
            pace: Pace::new(clock, Duration::from_secs(1) / settings.tick),
            stop: StopSchedule::new(settings.shutdown_delay, settings.drain),
            drain: settings.drain,
            keys,
            publisher: supervision.publisher(Some(server.config()), clock),
            reporter: supervision.fleet.reporter(),
            supervision,
            server,
            clock,
        }
    }

    /// Serves until a stop signal or an operator begins a drain, then until all clients left, the drain time is over,
    /// or a second signal arrives.
    pub(crate) fn run(mut self, signals: &Signals) {
        loop {
            self.keys.poll(signals, |keys| {
                self.supervision.show_keys(&keys);
                self.server.set_keys(keys);
            });
            let (now, is_drained) = (self.clock.monotonic(), || self.server.connected_count() == 0);
            match self.stop.step(now, signals.take_stop(), &self.supervision, is_drained) {
                StopStep::Continue => {}
                StopStep::Drain => self.begin_drain(),
                StopStep::End => break,
            }
            self.turn();
            self.pace.rest(&mut self.server);
        }
        self.end(signals);
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
        if let Some(publisher) = &mut self.publisher {
            publisher.on_turn(&mut self.server, now);
        }
        self.reporter.on_turn(&mut self.server, now);
    }

    fn begin_drain(&mut self) {
        let connected = self.server.connected_count();
        info!(connected, drain = ?self.drain, "stopping: denying new clients, waiting for the others to leave");
        self.server.accept_new_clients(false);
    }

    fn end(mut self, signals: &Signals) {
        self.server.begin_turn(self.clock.now());
        self.server.stop("");
        let until = self.clock.monotonic().after(MAX_STOP);
        while self.server.connected_count() > 0 && self.clock.monotonic() < until && !signals.take_stop() {
            self.turn();
            self.pace.rest(&mut self.server);
        }
        // The last `Disconnected` events, which write their log lines, are in the next turn.
        self.turn();
        self.server.log_totals();
        self.supervision.log_redirects();
        // The drop waits up to a second for the last write of the history file: "stopped" is the last line. Another
        // signal ends the wait, and the process.
        let commands = self.supervision.fleet.hook_commands();
        signals.end_at_once_on_stop(move || commands.kill());
        drop(self.server);
        self.supervision.fleet.end();
        info!("stopped");
    }
}
