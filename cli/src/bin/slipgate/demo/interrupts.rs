//! The signals that end the demo in order.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use slipgate_cli::Failure;

use super::failures::cannot_register;

const SIGNALS: [i32; 2] = [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM];

/// The signals SIGINT and SIGTERM.
pub(super) struct Interrupts {
    pub(super) interrupted: Arc<AtomicBool>,
    /// Whether a signal ends the program at once: not before the terminal is restored.
    pub(super) may_exit: Arc<AtomicBool>,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failure> {
        let interrupts = Self { interrupted: Arc::default(), may_exit: Arc::default() };
        for signal in SIGNALS {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupts.may_exit))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&interrupts.interrupted)))
                .map_err(|error| cannot_register(&error))?;
        }
        Ok(interrupts)
    }

    /// Lets a second signal end the program at once, even if a thread hangs.
    pub(super) fn may_exit_at_second_signal(&self) -> Result<(), Failure> {
        for signal in SIGNALS {
            signal_hook::flag::register(signal, Arc::clone(&self.may_exit)).map_err(|error| cannot_register(&error))?;
        }
        Ok(())
    }
}
