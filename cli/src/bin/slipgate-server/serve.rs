//! The loop: arrivals are answered at once, ticks come at their pace, and between them the program sleeps.

use std::time::Duration;

use slipgate_cli::keys::KeySource;
use slipgate_cli::signals::Signals;
use slipgate_netcode::time::Instant;
use slipgate_server::{Clock, Inbox, KeyRing, Pace, Server};
use tracing::{info, warn};

use crate::app::App;
use crate::settings::Settings;

/// A server with an application, a pace, and an end.
pub(crate) struct Service {
    server: Server,
    inbox: Inbox,
    app: App,
    clock: Clock,
    pace: Pace,
    drain: Duration,
    keys: KeySource,
}

/// Whether new clients are admitted, or the last ones may stay until a moment.
enum Phase {
    Serving,
    Draining { until: Instant },
}

impl Service {
    pub(crate) fn new(server: Server, clock: Clock, settings: Settings) -> Self {
        Self {
            app: App::new(settings.app, server.config().slots),
            inbox: Inbox::default(),
            pace: Pace::new(clock, Duration::from_secs(1) / settings.tick),
            drain: settings.drain,
            keys: settings.keys,
            server,
            clock,
        }
    }

    /// Serves until it is told to stop and its clients have left, or their time is over, or it is told again.
    pub(crate) fn run(mut self, signals: &Signals) {
        let mut phase = Phase::Serving;
        loop {
            if signals.take_reload() {
                self.reload_keys();
            }
            phase = match (phase, signals.take_stop()) {
                (phase, false) => phase,
                (Phase::Serving, true) => self.begin_drain(),
                (Phase::Draining { .. }, true) => break,
            };
            self.turn();
            if let Phase::Draining { until } = phase
                && (self.server.connected() == 0 || self.clock.monotonic() >= until)
            {
                break;
            }
            self.pace.rest(&mut self.server);
        }
        self.stop();
    }

    fn turn(&mut self) {
        let now = self.clock.now();
        self.server.begin_turn(now);
        self.app.answer(&mut self.server, &mut self.inbox);
        if self.pace.is_tick(now.monotonic) {
            self.server.end_turn();
        } else {
            self.server.flush();
        }
    }

    fn reload_keys(&mut self) {
        if let Some(keys) = read_keys_anew(&self.keys) {
            self.server.set_keys(keys);
        }
    }

    fn begin_drain(&mut self) -> Phase {
        let connected = self.server.connected();
        info!(connected, drain = ?self.drain, "stopping: new clients are denied, the others may leave first");
        self.server.set_admitting(false);
        Phase::Draining { until: self.clock.monotonic().after(self.drain) }
    }

    fn stop(&mut self) {
        self.server.begin_turn(self.clock.now());
        self.server.stop();
        self.server.end_turn();
        // What ended just now is told in the log as it is taken.
        while self.inbox.next(&mut self.server).is_some() {}
        self.server.log_totals();
        info!("stopped");
    }
}

/// Reads the keys anew, if they come from a file and it is of use.
pub(crate) fn read_keys_anew(keys: &KeySource) -> Option<KeyRing> {
    let Some(path) = keys.file() else {
        warn!("SIGHUP: the keys come from the environment, which cannot be read anew; the old keys stay");
        return None;
    };
    match keys.read() {
        Ok(keys) => {
            info!(path = %path.display(), keys = keys.keys().len(), "SIGHUP: the key file was read anew");
            Some(keys)
        }
        Err(error) => {
            warn!(%error, "SIGHUP: the key file is of no use; the old keys stay");
            None
        }
    }
}
