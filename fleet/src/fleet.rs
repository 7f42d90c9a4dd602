//! The life of a server with its drivers.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::agones::{AgonesDriver, DEFAULT_PORT};
use crate::agones_watch::AgonesWatch;
use crate::driver::{spawn, spawn_unawaited};
use crate::empty::EmptyDriver;
use crate::hook::{HookDriver, HookTarget};
use crate::hook_command::HookCommands;
use crate::life_cycle::{END_TIME, LifeCycle, LifeState};
use crate::population::Population;
use crate::redirect::RedirectDriver;
use crate::redirect_counts::RedirectCounter;
use crate::redirect_queue::RedirectQueue;
use crate::registration::{RegistrationConfig, RegistrationDriver};
use crate::registration_log::RegistrationState;
use crate::reporter::FleetReporter;

/// The time for a driver to finish after [`END_TIME`]: to kill a command, and to leave a call.
const FINISH_TIME: Duration = Duration::from_secs(1);
/// The variable with the port of Agones' REST gateway. Agones sets it for the game server.
const AGONES_PORT: &str = "AGONES_SDK_HTTP_PORT";

/// What is informed of a server's life. Without any, [`LifeCycle`] still has the states.
#[derive(Clone, Debug, Default)]
pub struct FleetConfig {
    /// The maximum number of clients.
    pub slots: u32,
    /// The loopback port of Agones' REST gateway.
    pub agones_port: Option<u16>,
    /// Commands and URLs.
    pub hooks: Vec<HookTarget>,
    /// systemd, if it has started the program (Linux only).
    pub systemd: bool,
    /// The time without clients after which an allocated server drains, also if none has ever connected; `None`: never.
    /// Agones replaces an allocated server only when its program has ended.
    pub end_when_empty: Option<Duration>,
}

impl FleetConfig {
    /// Returns the port of Agones' REST gateway: that of the variable `AGONES_SDK_HTTP_PORT`, otherwise 9358.
    #[must_use]
    pub fn agones_port_of_environment() -> u16 {
        std::env::var(AGONES_PORT).ok().and_then(|port| port.parse().ok()).unwrap_or(DEFAULT_PORT)
    }
}

/// The life of a server, with a thread for each driver. Dropping it ends the life, as [`end`](Self::end) does.
///
/// # Examples
/// ```no_run
/// use slipgate_fleet::{Fleet, FleetConfig, LifeState};
///
/// let config = FleetConfig { slots: 64, agones_port: Some(9358), ..FleetConfig::default() };
/// let fleet = Fleet::start(config)?;
/// // Bind the server, then:
/// fleet.life_cycle().advance(LifeState::Ready);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Fleet {
    life: LifeCycle,
    pub(crate) population: Arc<Population>,
    pub(crate) redirects: Arc<RedirectQueue>,
    registration: RegistrationState,
    commands: HookCommands,
}

impl Fleet {
    /// Starts the drivers.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start(config: FleetConfig) -> io::Result<Self> {
        let (life, population) = (LifeCycle::default(), Arc::new(Population::new(config.slots)));
        if let Some(port) = config.agones_port {
            spawn("agones", &life, AgonesDriver::new(port, Arc::clone(&population)))?;
            spawn_unawaited("agones-watch", &life, AgonesWatch::new(port, life.clone()))?;
        }
        let commands = HookCommands::default();
        for target in config.hooks {
            spawn("hook", &life, HookDriver::new(target, life.clone(), Arc::clone(&population), commands.clone()))?;
        }
        #[cfg(target_os = "linux")]
        if config.systemd && std::env::var_os("NOTIFY_SOCKET").is_some() {
            spawn("systemd", &life, crate::systemd::SystemdDriver::new(Arc::clone(&population)))?;
        }
        if let Some(limit) = config.end_when_empty {
            spawn("empty", &life, EmptyDriver::new(limit, life.clone(), Arc::clone(&population)))?;
        }
        Ok(Self { life, population, redirects: Arc::default(), registration: RegistrationState::default(), commands })
    }

    /// Registers the server with a token issuer, from the state ready on. It is removed at its end. With redirects, a
    /// drain gets a token for each client, and the [reporter](Self::reporter) sends it.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn register(&self, config: RegistrationConfig) -> io::Result<()> {
        let redirects = || Arc::clone(&self.redirects);
        if config.redirects {
            let driver = RedirectDriver::new(config.clone(), self.life.clone(), redirects());
            // The end of the life does not wait for tokens that no client will get.
            spawn_unawaited("redirects", &self.life, driver)?;
        }
        let (population, registered) = (Arc::clone(&self.population), self.registration.clone());
        spawn("registration", &self.life, RegistrationDriver::new(config, population, redirects(), registered))
    }

    /// Returns whether the registration is in effect, for metrics.
    #[must_use]
    pub fn registration(&self) -> RegistrationState {
        self.registration.clone()
    }

    /// Returns the counter of redirects, for metrics.
    #[must_use]
    pub fn redirects(&self) -> RedirectCounter {
        self.redirects.counter.clone()
    }

    /// Returns the commands of hooks, for a program that ends without waiting for them.
    #[must_use]
    pub fn hook_commands(&self) -> HookCommands {
        self.commands.clone()
    }

    /// Returns the states of the server.
    #[must_use]
    pub const fn life_cycle(&self) -> &LifeCycle {
        &self.life
    }

    /// Ends the life, and waits until the drivers have reported that, at most for 11 s: commands and calls end after
    /// 10 s. Disconnect the clients first: from here on, drivers report that none is connected.
    pub fn end(&self) {
        // The last turn's copy may be older than the end of the connections.
        self.population.clear();
        if self.life.advance(LifeState::Ended) && !self.life.wait_for_drivers(END_TIME + FINISH_TIME) {
            warn!("the end of the server could not be reported within 10 s");
        }
    }

    /// Returns the reporter of a server, or of one shard of a server; each shard needs its own.
    #[must_use]
    pub fn reporter(&self) -> FleetReporter {
        FleetReporter::new(self.life.clone(), self.population.add_shard(), Arc::clone(&self.redirects))
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, unix))]
mod tests;
