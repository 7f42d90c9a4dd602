//! The commands of hooks: each runs in a process group of its own, which can be killed as a whole.

#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use crate::life_cycle::LifeCycle;
use crate::population::lock;

/// The maximum time of a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The time between two looks at a running command.
const COMMAND_POLL: Duration = Duration::from_millis(20);

/// What a command gets in its environment.
#[derive(Clone, Copy)]
pub(crate) struct CommandFacts {
    pub(crate) state: &'static str,
    pub(crate) previous: &'static str,
    pub(crate) connected: u32,
    pub(crate) slots: u32,
}

/// The commands of hooks that run now. A clone is a handle to the same commands.
#[derive(Clone, Debug, Default)]
pub struct HookCommands(Arc<Mutex<RunningCommands>>);

#[derive(Debug, Default)]
struct RunningCommands {
    /// Whether no further command may start.
    is_closed: bool,
    children: Vec<Child>,
}

impl HookCommands {
    /// Kills all commands, on Unix with the processes that they have started, and starts none from now on. For a
    /// program that ends without waiting for them.
    pub fn kill(&self) {
        let mut running = lock(&self.0);
        running.is_closed = true;
        for child in &mut running.children {
            // It may have ended, and the program ends now.
            let _ = kill(child);
        }
    }

    /// Runs a program, and kills it after 10 s, or when the time of the end is over. It gets no variable of the server:
    /// one may hold a key.
    pub(crate) fn run(&self, path: &Path, facts: CommandFacts, life: &LifeCycle) {
        let state = facts.state;
        match self.start(command(path, facts)).and_then(|id| id.map_or(Ok(None), |id| self.wait(id, life))) {
            Ok(Some(status)) if status.success() => info!(state, "the hook's command has run"),
            Ok(Some(status)) => warn!(state, %status, "the hook's command has failed"),
            Ok(None) => warn!(state, "the hook's command took too long and was killed"),
            Err(error) => warn!(state, %error, "the hook's command cannot be run"),
        }
    }

    /// Starts a command. Returns its process id, `None` if none may start.
    fn start(&self, mut command: Command) -> std::io::Result<Option<u32>> {
        if lock(&self.0).is_closed {
            return Ok(None);
        }
        // A slow disk may delay it, so the lock is free meanwhile.
        let mut child = command.spawn()?;
        let (id, mut running) = (child.id(), lock(&self.0));
        if running.is_closed {
            kill(&mut child)?;
            return Ok(None);
        }
        running.children.push(child);
        Ok(Some(id))
    }

    /// Waits for a command. Kills it when its time is over, and returns `None` then.
    fn wait(&self, id: u32, life: &LifeCycle) -> std::io::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.status(id)? {
                return Ok(Some(status));
            }
            if start.elapsed() >= COMMAND_TIMEOUT || life.time_left(COMMAND_TIMEOUT).is_zero() {
                break;
            }
            thread::sleep(COMMAND_POLL);
        }
        // The lock is free while it is waited for: a disk that hangs may delay its end.
        let late = take(&mut lock(&self.0).children, id);
        if let Some(mut child) = late {
            kill(&mut child)?;
            child.wait()?;
        }
        Ok(None)
    }

    /// Returns the status of a command that has ended.
    fn status(&self, id: u32) -> std::io::Result<Option<ExitStatus>> {
        let children = &mut lock(&self.0).children;
        let Some(child) = children.iter_mut().find(|child| child.id() == id) else { return Ok(None) };
        let status = child.try_wait();
        if !matches!(status, Ok(None)) {
            take(children, id);
        }
        status
    }
}

/// Removes the child with this id.
fn take(children: &mut Vec<Child>, id: u32) -> Option<Child> {
    let index = children.iter().position(|child| child.id() == id)?;
    Some(children.swap_remove(index))
}

fn command(path: &Path, facts: CommandFacts) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_none_or(|name| name.starts_with("SLIPGATE_")) {
            command.env_remove(name);
        }
    }
    command
        .env("SLIPGATE_STATE", facts.state)
        .env("SLIPGATE_PREVIOUS_STATE", facts.previous)
        .env("SLIPGATE_CONNECTED", facts.connected.to_string())
        .env("SLIPGATE_SLOTS", facts.slots.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A group of its own can be killed as a whole. Ctrl-C at a terminal does not reach it.
    #[cfg(unix)]
    command.process_group(0);
    command
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
