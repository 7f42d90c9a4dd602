//! A storage device that fails on request, and loses records that were not flushed.

use std::sync::{Arc, Mutex, MutexGuard};

use slipgate_netcode::server::TokenStorage;
use slipgate_netcode::time::UnixSeconds;
use slipgate_netcode::token::history::{Journal, JournalError, KeptTokens, UsedToken};

/// A handle of the device. The server's journal holds another.
#[derive(Clone, Default)]
pub(super) struct Device(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    written: Vec<UsedToken>,
    durable: Vec<UsedToken>,
    /// The number of durable records of this start.
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

    /// Returns the records that a start after a crash finds.
    pub(super) fn storage(&self) -> TokenStorage {
        let mut state = self.state();
        state.written.clear();
        state.flushed = 0;
        let kept = KeptTokens { names: [0x44; 32], used: state.durable.clone(), dropped_until: UnixSeconds(0) };
        TokenStorage { journal: Box::new(self.clone()), kept }
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
