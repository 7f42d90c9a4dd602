//! What programs do at a signal to stop: SIGTERM and SIGINT on Unix, Ctrl-C and Ctrl-Break on Windows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The names of the signals to stop, for lines of the log.
#[cfg(unix)]
pub const STOP_SIGNAL: &str = "SIGTERM or SIGINT";
/// The names of the events that stop a program, for lines of the log.
#[cfg(windows)]
pub const STOP_SIGNAL: &str = "Ctrl-C or Ctrl-Break";

/// What a program does at a signal to stop.
#[derive(Clone)]
pub enum StopAction {
    /// Sets a flag.
    Set(Arc<AtomicBool>),
    /// Ends the process with this exit status if a flag is set.
    ExitIf(Arc<AtomicBool>, i32),
}

/// Adds an action for each further signal to stop. Actions run in the order in which they were added.
///
/// # Errors
/// Returns the system's error if a handler cannot be registered.
pub fn on_stop_signal(action: &StopAction) -> io::Result<()> {
    #[cfg(unix)]
    return unix::add(action);
    #[cfg(windows)]
    return console::add(action.clone());
}

/// Ends the process at once, without waiting for other threads.
pub fn exit_at_once(status: i32) -> ! {
    #[cfg(unix)]
    signal_hook::low_level::exit(status);
    #[cfg(windows)]
    std::process::exit(status);
}

#[cfg(unix)]
mod unix {
    use signal_hook::consts::{SIGINT, SIGTERM};
    use signal_hook::flag::{register, register_conditional_shutdown};

    use super::*;

    pub(super) fn add(action: &StopAction) -> io::Result<()> {
        for signal in [SIGTERM, SIGINT] {
            match action {
                StopAction::Set(flag) => register(signal, Arc::clone(flag))?,
                StopAction::ExitIf(flag, status) => register_conditional_shutdown(signal, *status, Arc::clone(flag))?,
            };
        }
        Ok(())
    }
}

/// The events of the console. The crate `signal-hook` uses `signal` of the C runtime instead, which reports no
/// Ctrl-Break, and with which a process crashes under Wine 8: that `signal` lacks `SIG_GET`.
#[cfg(windows)]
mod console {
    use std::future::poll_fn;
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, PoisonError};
    use std::task::Poll;
    use std::thread;

    use tokio::runtime::{Builder, Runtime};
    use tokio::signal::windows::{CtrlBreak, CtrlC, ctrl_break, ctrl_c};

    use super::*;

    static ACTIONS: Mutex<Vec<StopAction>> = Mutex::new(Vec::new());

    pub(super) fn add(action: StopAction) -> io::Result<()> {
        let mut actions = ACTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        if actions.is_empty() {
            let (runtime, ctrl_c, ctrl_break) = (Builder::new_current_thread().build()?, ctrl_c()?, ctrl_break()?);
            thread::Builder::new().name("console".into()).spawn(move || listen(&runtime, ctrl_c, ctrl_break))?;
        }
        actions.push(action);
        Ok(())
    }

    fn listen(runtime: &Runtime, mut ctrl_c: CtrlC, mut ctrl_break: CtrlBreak) {
        loop {
            runtime.block_on(poll_fn(|context| {
                let events = [ctrl_c.poll_recv(context), ctrl_break.poll_recv(context)];
                if events.iter().any(Poll::is_ready) { Poll::Ready(()) } else { Poll::Pending }
            }));
            ACTIONS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(run);
        }
    }

    fn run(action: &StopAction) {
        match action {
            StopAction::Set(flag) => flag.store(true, Ordering::Relaxed),
            StopAction::ExitIf(flag, status) if flag.load(Ordering::Relaxed) => exit_at_once(*status),
            StopAction::ExitIf(..) => {}
        }
    }
}
