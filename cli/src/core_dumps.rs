//! Core dumps, which would hold the private keys: off unless a flag allows them.

use std::io;

use clap::Args;
use tracing::warn;

/// The flag of all programs that allows core dumps.
#[derive(Args, Clone, Debug, Default)]
pub struct CoreDumps {
    /// Allow core dumps and debuggers of the same user, which can read the keys; for debugging only
    #[arg(
        long,
        global = true,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        env = "SLIPGATE_ALLOW_CORE_DUMPS",
        hide_env_values = true
    )]
    allow_core_dumps: Option<bool>,
}

impl CoreDumps {
    /// Turns core dumps off for the rest of the process's life, unless the flag allows them.
    ///
    /// On Unix it sets `RLIMIT_CORE` to 0. On Linux it also clears `PR_SET_DUMPABLE`: handlers that receive dumps by a
    /// pipe ignore the limit, and other processes of the same user can no longer read `/proc/PID/environ` and
    /// `/proc/PID/mem`. It does nothing on Windows.
    ///
    /// # Errors
    /// Returns the system's error if a sandbox forbids the calls. The program can run on.
    pub fn apply(&self) -> io::Result<()> {
        if self.allow_core_dumps == Some(true) { Ok(()) } else { forbid() }
    }
}

/// Logs a warning if [`CoreDumps::apply`] failed.
pub fn log(applied: io::Result<()>) {
    if let Err(error) = applied {
        warn!(%error, "core dumps cannot be turned off: a core of this process would hold the private keys");
    }
}

#[cfg(unix)]
fn forbid() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};

    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature as on Unix")]
fn forbid() -> io::Result<()> {
    Ok(())
}
