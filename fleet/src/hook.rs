//! A hook: a command or an HTTP call for each state that the server enters, in their order. It connects orchestrators
//! without a driver of their own.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde::Serialize;
use tracing::info;

use crate::driver::Driver;
use crate::hook_command::{CommandFacts, HookCommands};
use crate::http::{CALL_TIMEOUT, CallMethod, CallResponse, HttpCaller, warn_refused};
use crate::life_cycle::{LifeCycle, LifeState};
use crate::population::Population;

/// The number of attempts of an HTTP call for one state.
const ATTEMPTS: u32 = 3;
/// The pause between two attempts.
const ATTEMPT_PAUSE: Duration = Duration::from_secs(1);
/// The time between two looks at the state; a new state ends the wait.
const IDLE: Duration = Duration::from_secs(60);

/// What is informed of each state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookTarget {
    /// A program, which is started without arguments. The variables `SLIPGATE_STATE`, `SLIPGATE_PREVIOUS_STATE`,
    /// `SLIPGATE_CONNECTED` and `SLIPGATE_SLOTS` have the values. It may take 10 s, and is killed then, on Unix with
    /// the processes that it has started; those of a command that has ended in time may go on. From the end of the
    /// life on, all commands together have 10 s.
    Command(std::path::PathBuf),
    /// A URL to which a JSON object with `state`, `previous`, `connected` and `slots` is posted. Statuses other than
    /// 2xx, and failures, are tried again twice.
    Url(String),
}

/// The body of a call.
#[derive(Serialize)]
struct HookBody {
    state: &'static str,
    previous: &'static str,
    connected: u32,
    slots: u32,
}

/// Informs the target of each state but the first.
pub(crate) struct HookDriver {
    target: HookTarget,
    http: HttpCaller,
    life: LifeCycle,
    population: Arc<Population>,
    commands: HookCommands,
    /// The number of states that the target was informed of.
    reported: usize,
}

impl HookDriver {
    pub(crate) fn new(
        target: HookTarget,
        life: LifeCycle,
        population: Arc<Population>,
        commands: HookCommands,
    ) -> Self {
        let is_loopback = matches!(&target, HookTarget::Url(url) if crate::http::is_loopback(url));
        Self { target, http: HttpCaller::new(is_loopback), life, population, commands, reported: 1 }
    }

    fn report(&self, previous: LifeState, state: LifeState) {
        let (connected, slots) = (self.population.read().connected, self.population.slots());
        let (state, previous) = (state.name(), previous.name());
        match &self.target {
            HookTarget::Command(path) => {
                self.commands.run(path, CommandFacts { state, previous, connected, slots }, &self.life);
            }
            HookTarget::Url(url) => self.post(url, &HookBody { state, previous, connected, slots }),
        }
    }

    fn post(&self, url: &str, body: &HookBody) {
        for attempt in 1..=ATTEMPTS {
            let time = self.life.time_left(CALL_TIMEOUT);
            let result = self.http.call_within(time, CallMethod::Post, url, None, Some(body));
            if result.as_ref().is_ok_and(CallResponse::is_success) {
                info!(state = body.state, "the hook was called");
                return;
            }
            if attempt == ATTEMPTS || self.life.time_left(ATTEMPT_PAUSE).is_zero() {
                warn_refused("hook", None, body.state, &result);
                return;
            }
            thread::sleep(self.life.time_left(ATTEMPT_PAUSE));
        }
    }
}

impl Driver for HookDriver {
    fn run(&mut self, _state: LifeState) -> Option<Duration> {
        let entered = self.life.entered();
        for states in entered.windows(2).skip(self.reported - 1) {
            if let [previous, state] = states {
                self.report(*previous, *state);
            }
            self.reported += 1;
        }
        // States that were entered meanwhile are reported in the next run, which follows at once.
        if entered.last() == Some(&LifeState::Ended) { None } else { Some(IDLE) }
    }
}
