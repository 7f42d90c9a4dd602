//! A storage device that fails when told to, and loses what was not flushed.

use std::sync::{Arc, Mutex, MutexGuard};

use slipgate_netcode::server::Storage;
use slipgate_netcode::token::history::{Journal, JournalError, UsedToken};

/// A handle on the device; the server's journal holds another.
#[derive(Clone, Default)]
pub(super) struct Device(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    written: Vec<UsedToken>,
    durable: Vec<UsedToken>,
    /// How many records of this start are durable.
    flushed: u64,
    write_fails: bool,
    flush_fails: bool,
}

impl Device {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn set_failing(&self, write_fails: bool, flush_fails: bool) {
        let mut state = self.state();
        (state.write_fails, state.flush_fails) = (write_fails, flush_fails);
    }

    pub(super) fn works(&self) -> bool {
        let state = self.state();
        !state.write_fails && !state.flush_fails
    }

    /// What a start after a crash finds.
    pub(super) fn storage(&self) -> Storage {
        let mut state = self.state();
        state.written.clear();
        state.flushed = 0;
        Storage { journal: Box::new(self.clone()), names: [0x44; 32], used: state.durable.clone() }
    }
}

impl Journal for Device {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        let mut state = self.state();
        if state.write_fails {
            return Err(JournalError);
        }
        state.written.push(used);
        Ok(())
    }

    fn flush(&mut self) -> Result<u64, JournalError> {
        let mut state = self.state();
        if state.flush_fails {
            return Err(JournalError);
        }
        let written = std::mem::take(&mut state.written);
        state.flushed += written.len() as u64;
        state.durable.extend(written);
        Ok(state.flushed)
    }
}
