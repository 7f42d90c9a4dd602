//! systemd: units of `Type=notify`, and their watchdog. It does nothing without the variable `NOTIFY_SOCKET`, which
//! systemd sets.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;
use tracing::warn;

use crate::driver::Driver;
use crate::life_cycle::LifeState;
use crate::population::Population;

/// The time between two looks at the state; a new state ends the wait.
const IDLE: Duration = Duration::from_secs(60);

/// Reports the life to systemd. Where the unit has a watchdog, it reports that turns advance.
pub(crate) struct SystemdDriver {
    population: Arc<Population>,
    /// The time in which systemd expects a sign of life; `None` without a watchdog.
    watchdog: Option<Duration>,
    reported: LifeState,
}

impl SystemdDriver {
    pub(crate) fn new(population: Arc<Population>) -> Self {
        Self { population, watchdog: sd_notify::watchdog_enabled(), reported: LifeState::Starting }
    }

    /// Sends one message. The server runs on if systemd does not take it.
    fn notify(states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            warn!(%error, "systemd cannot be notified");
        }
    }
}

impl Driver for SystemdDriver {
    fn run(&mut self, state: LifeState) -> Option<Duration> {
        if self.reported == LifeState::Starting && state > LifeState::Starting {
            Self::notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
        }
        if self.reported < LifeState::Draining && state >= LifeState::Draining {
            Self::notify(&[NotifyState::Stopping, NotifyState::Status("draining")]);
        }
        self.reported = state;
        if state == LifeState::Ended {
            return None;
        }
        let Some(watchdog) = self.watchdog else { return Some(IDLE) };
        if self.population.is_healthy() {
            Self::notify(&[NotifyState::Watchdog]);
        }
        // systemd.service(5) advises half of the time.
        Some(watchdog / 2)
    }
}
