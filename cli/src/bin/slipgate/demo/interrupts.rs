//! The signals that end the demo in order.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use slipgate_cli::Failure;
use slipgate_cli::stop_signal::{StopAction, on_stop_signal};

use super::failures::cannot_register;

/// The signals to stop.
pub(super) struct Interrupts {
    pub(super) interrupted: Arc<AtomicBool>,
    /// Whether a signal ends the program at once: not before the terminal is restored.
    pub(super) may_exit: Arc<AtomicBool>,
}

impl Interrupts {
    pub(super) fn listen() -> Result<Self, Failure> {
        let interrupts = Self { interrupted: Arc::default(), may_exit: Arc::default() };
        on_stop_signal(&StopAction::ExitIf(Arc::clone(&interrupts.may_exit), 130))
            .and_then(|()| on_stop_signal(&StopAction::Set(Arc::clone(&interrupts.interrupted))))
            .map_err(|error| cannot_register(&error))?;
        Ok(interrupts)
    }

    /// Lets a second signal end the program at once, even if a thread hangs.
    pub(super) fn may_exit_at_second_signal(&self) -> Result<(), Failure> {
        on_stop_signal(&StopAction::Set(Arc::clone(&self.may_exit))).map_err(|error| cannot_register(&error))
    }
}
