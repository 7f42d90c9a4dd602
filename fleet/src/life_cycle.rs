//! The states of a server's life, which are entered in one order.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time that drivers have from the end of the life on, to report it and what is left before it.
pub(crate) const END_TIME: Duration = Duration::from_secs(10);

/// A state of a server's life. A server enters each state at most once, and never goes back; it may skip some.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LifeState {
    /// The server is not bound yet: no client can connect.
    Starting,
    /// Clients may connect, and none has.
    Ready,
    /// The server has, or had, clients, or an orchestrator has chosen it for a match.
    Allocated,
    /// The server should get no new clients, and admits none when its delay is over. The others may stay for a while.
    Draining,
    /// The server has no clients any more, and the program ends.
    Ended,
}

impl LifeState {
    /// All states in their order.
    pub const ALL: [Self; 5] = [Self::Starting, Self::Ready, Self::Allocated, Self::Draining, Self::Ended];

    /// Returns the name in hooks and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Allocated => "allocated",
            Self::Draining => "draining",
            Self::Ended => "ended",
        }
    }

    fn from_index(index: u8) -> Self {
        Self::ALL.get(usize::from(index)).copied().unwrap_or(Self::Ended)
    }
}

impl fmt::Display for LifeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What waits for new states.
#[derive(Debug)]
struct LifeProgress {
    /// The states entered so far, at most five.
    entered: Vec<LifeState>,
    /// The drivers that have not finished.
    running: usize,
    ended: Option<Instant>,
}

#[derive(Debug)]
struct LifeShared {
    state: AtomicU8,
    progress: Mutex<LifeProgress>,
    changed: Condvar,
}

/// The life of one server. Clones are handles to the same life.
#[derive(Clone, Debug)]
pub struct LifeCycle(Arc<LifeShared>);

impl Default for LifeCycle {
    /// Returns a life that starts.
    fn default() -> Self {
        let progress = LifeProgress { entered: vec![LifeState::Starting], running: 0, ended: None };
        Self(Arc::new(LifeShared { state: AtomicU8::new(0), progress: Mutex::new(progress), changed: Condvar::new() }))
    }
}

impl LifeCycle {
    /// Returns the present state. It is one atomic load.
    #[must_use]
    pub fn state(&self) -> LifeState {
        LifeState::from_index(self.0.state.load(Ordering::Acquire))
    }

    /// Enters a state, unless it or a later one was entered before. Returns whether it did. It waits for no driver.
    pub fn advance(&self, to: LifeState) -> bool {
        let mut progress = self.lock();
        if progress.entered.last().is_some_and(|last| *last >= to) {
            return false;
        }
        progress.entered.push(to);
        progress.ended = (to == LifeState::Ended).then(Instant::now);
        self.0.state.store(to as u8, Ordering::Release);
        self.0.changed.notify_all();
        true
    }

    /// Returns whether the server is on its way to its end: it drains, or has ended.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state() >= LifeState::Draining
    }

    /// Returns the states entered so far, in their order.
    pub(crate) fn entered(&self) -> Vec<LifeState> {
        self.lock().entered.clone()
    }

    /// Waits until the life is in another state than `seen`, at most for this time.
    pub(crate) fn wait(&self, seen: LifeState, limit: Duration) {
        let progress = self.lock();
        let is_seen = |progress: &mut LifeProgress| progress.entered.last() == Some(&seen);
        let _ = self.0.changed.wait_timeout_while(progress, limit, is_seen);
    }

    /// Returns how long a driver may still go on, at most `limit`: [`END_TIME`] from the end of the life on.
    pub(crate) fn time_left(&self, limit: Duration) -> Duration {
        let ended = self.lock().ended;
        ended.map_or(limit, |ended| END_TIME.saturating_sub(ended.elapsed()).min(limit))
    }

    pub(crate) fn add_driver(&self) {
        self.lock().running += 1;
    }

    pub(crate) fn remove_driver(&self) {
        let mut progress = self.lock();
        progress.running = progress.running.saturating_sub(1);
        self.0.changed.notify_all();
    }

    /// Waits until all drivers have finished, at most for this time. Returns whether they have.
    pub(crate) fn wait_for_drivers(&self, limit: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.lock(), limit, |progress| progress.running > 0);
        waited.is_ok_and(|(_, time)| !time.timed_out())
    }

    fn lock(&self) -> MutexGuard<'_, LifeProgress> {
        // Poisoning is harmless: the critical sections only push and count.
        self.0.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_entered_in_order_and_once() {
        let life = LifeCycle::default();
        assert_eq!(life.state(), LifeState::Starting);
        assert!(!life.advance(LifeState::Starting));
        assert!(life.advance(LifeState::Ready) && !life.is_draining());
        assert!(life.advance(LifeState::Draining) && life.is_draining());
        assert!(!life.advance(LifeState::Allocated), "a draining server is not allocated any more");
        assert!(life.advance(LifeState::Ended) && !life.advance(LifeState::Ended));
        assert_eq!(life.entered(), [LifeState::Starting, LifeState::Ready, LifeState::Draining, LifeState::Ended]);
    }

    #[test]
    fn each_state_has_its_index_and_a_name_of_its_own() {
        let names: std::collections::BTreeSet<_> = LifeState::ALL.iter().map(|state| state.name()).collect();
        assert_eq!(names.len(), LifeState::ALL.len());
        for state in LifeState::ALL {
            assert_eq!(LifeState::from_index(state as u8), state);
        }
    }
}
