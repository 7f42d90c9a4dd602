//! A hook: a command or an HTTP call for each state that the server enters, in their order. It connects orchestrators
//! without a driver of their own.

#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::{info, warn};

use crate::driver::Driver;
use crate::http::{CALL_TIMEOUT, CallMethod, CallResponse, HttpCaller, warn_refused};
use crate::life_cycle::{LifeCycle, LifeState};
use crate::population::Population;

/// The maximum time of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two looks at a running command.
const COMMAND_POLL: Duration = Duration::from_millis(20);
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
    /// The number of states that the target was informed of.
    reported: usize,
}

impl HookDriver {
    pub(crate) fn new(target: HookTarget, life: LifeCycle, population: Arc<Population>) -> Self {
        let is_loopback = matches!(&target, HookTarget::Url(url) if crate::http::is_loopback(url));
        Self { target, http: HttpCaller::new(is_loopback), life, population, reported: 1 }
    }

    fn report(&self, previous: LifeState, state: LifeState) {
        let (connected, slots) = (self.population.read().connected, self.population.slots());
        let body = HookBody { state: state.name(), previous: previous.name(), connected, slots };
        match &self.target {
            HookTarget::Command(path) => run_command(path, &body, &self.life),
            HookTarget::Url(url) => self.post(url, &body),
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

/// Runs a program, and kills it after 10 s, or when the time of the end is over. It gets no variable of the server: one
/// may hold a key.
fn run_command(path: &std::path::Path, body: &HookBody, life: &LifeCycle) {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_none_or(|name| name.starts_with("SLIPGATE_")) {
            command.env_remove(name);
        }
    }
    command
        .env("SLIPGATE_STATE", body.state)
        .env("SLIPGATE_PREVIOUS_STATE", body.previous)
        .env("SLIPGATE_CONNECTED", body.connected.to_string())
        .env("SLIPGATE_SLOTS", body.slots.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A group of its own can be killed as a whole. Ctrl-C at a terminal does not reach it.
    #[cfg(unix)]
    command.process_group(0);
    let ended = command.spawn().and_then(|mut child| wait(&mut child, life));
    match ended {
        Ok(Some(status)) if status.success() => info!(state = body.state, "the hook's command has run"),
        Ok(Some(status)) => warn!(state = body.state, %status, "the hook's command has failed"),
        Ok(None) => warn!(state = body.state, "the hook's command took too long and was killed"),
        Err(error) => warn!(state = body.state, %error, "the hook's command cannot be run"),
    }
}

/// Waits for a child. Kills it when its time is over, and returns `None` then.
fn wait(child: &mut Child, life: &LifeCycle) -> std::io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= COMMAND_TIMEOUT || life.time_left(COMMAND_TIMEOUT).is_zero() {
            break;
        }
        thread::sleep(COMMAND_POLL);
    }
    kill(child)?;
    child.wait()?;
    Ok(None)
}

/// Kills a command, on Unix with the processes that it has started and that have not left its group.
fn kill(child: &mut Child) -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process_group};
        // The id cannot belong to another process yet, because the child was not waited for.
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if group.is_some_and(|group| kill_process_group(group, Signal::KILL).is_ok()) {
            return Ok(());
        }
    }
    child.kill()
}
