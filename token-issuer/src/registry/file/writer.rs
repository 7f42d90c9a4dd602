//! The thread that writes the file. After an error it opens the file again, and reads the table from it.
//!
//! A table in memory may have changes that the file refused, such as reservations without a token. The file has those
//! alone that were committed, so it is read again. Until then, the registry refuses all requests.
//!
//! A disk that hangs reports no error. The registry is *stalled* once a request sees a write that takes longer than
//! [`STALLED_AFTER`]. It refuses all requests then, also those that wait. When the write has ended, the thread refuses
//! the changes that still wait, and reads the table from the file.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::rows::{Change, load, write};
use crate::registry::clock::RegistryClock;
use crate::registry::table::RegistryTable;

/// The maximum number of changes in one commit.
const MAX_BATCH: usize = 4096;
/// The maximum number of batches that are not written yet: those of one commit, and those that wait for the next one.
pub(super) const MAX_BATCHES: usize = 2 * MAX_BATCH;
/// The registry is stalled while a write takes longer. A commit takes 1 to 100 ms, and a busy disk may need a second.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(2);
/// The interval in which ended reservations and forgotten servers are removed from the file.
const SWEEP_INTERVAL: Duration = Duration::from_secs(30);
/// The pause before the file is opened again. It doubles with each attempt until a commit succeeds.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Changes that belong together, and the request that waits for their commit.
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    pub(super) written: oneshot::Sender<bool>,
    /// The place of this batch among [`MAX_BATCHES`].
    pub(super) _place: OwnedSemaphorePermit,
}

/// What the registry and its thread share.
pub(super) struct SharedTable {
    table: Mutex<RegistryTable>,
    is_available: AtomicBool,
    write: Mutex<WriteState>,
}

/// The write that the thread is at.
#[derive(Default)]
struct WriteState {
    since: Option<Instant>,
    /// A request has seen that the write takes too long. This stays until the thread has read the table again.
    is_stalled: bool,
}

impl SharedTable {
    pub(super) fn new(table: RegistryTable) -> Self {
        Self { table: Mutex::new(table), is_available: AtomicBool::new(true), write: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, RegistryTable> {
        // Poisoning is harmless: each operation leaves a consistent table at each point where it may panic.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_state(&self) -> MutexGuard<'_, WriteState> {
        self.write.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the file takes changes. It says so to a holder of the lock until the table is replaced.
    pub(super) fn is_available(&self) -> bool {
        self.is_available.load(Ordering::Relaxed) && !self.is_stalled()
    }

    /// Returns whether a write takes too long, and logs the first time that it is seen.
    pub(super) fn is_stalled(&self) -> bool {
        let mut write = self.write_state();
        let is_late = write.since.is_some_and(|since| since.elapsed() >= STALLED_AFTER);
        if !is_late || write.is_stalled {
            return write.is_stalled;
        }
        write.is_stalled = true;
        // A log may be slow too.
        drop(write);
        tracing::warn!(
            "the disk of the registry does not finish a write; requests for groups are refused until it does"
        );
        true
    }

    fn begin_write(&self) {
        self.write_state().since = Some(Instant::now());
    }

    /// Ends a write, and returns whether it was stalled. The registry stays so until [`Self::end_stall`].
    fn end_write(&self) -> bool {
        let mut write = self.write_state();
        write.since = None;
        write.is_stalled
    }

    fn end_stall(&self) {
        self.write_state().is_stalled = false;
    }

    pub(super) fn set_unavailable(&self) {
        self.is_available.store(false, Ordering::Relaxed);
    }
}

/// The thread's own state.
pub(super) struct FileWriter<F> {
    pub(super) shared: Arc<SharedTable>,
    pub(super) batches: Receiver<Batch>,
    pub(super) clock: RegistryClock,
    /// Opens the file again.
    pub(super) reopen: F,
}

impl<F: Fn() -> Result<Database, DatabaseError>> FileWriter<F> {
    /// Commits changes until the registry is dropped.
    pub(super) fn run(self, mut database: Database) {
        let mut pause = MIN_PAUSE;
        while let Err(error) = self.write_all(&database, &mut pause) {
            tracing::warn!(%error, "the file of the registry cannot be written");
            // A database refuses everything after its first error.
            drop(database);
            let Some(reopened) = self.reopen_after(&mut pause) else { return };
            database = reopened;
        }
    }

    /// Commits changes until the registry is dropped, or a commit fails.
    fn write_all(&self, database: &Database, pause: &mut Duration) -> Result<(), redb::Error> {
        let mut swept = Instant::now();
        while let Ok(first) = self.batches.recv() {
            let mut waiting = vec![first];
            while waiting.len() < MAX_BATCH {
                let Ok(next) = self.batches.try_recv() else { break };
                waiting.push(next);
            }
            let sweep = (swept.elapsed() >= SWEEP_INTERVAL).then(|| self.clock.now());
            self.shared.begin_write();
            let written = write(database, waiting.iter().flat_map(|batch| &batch.changes), sweep);
            if written.is_err() {
                self.shared.set_unavailable();
            }
            let was_stalled = self.shared.end_write();
            for batch in waiting {
                // A request that was given up does not wait any longer.
                let _ = batch.written.send(written.is_ok());
            }
            if was_stalled {
                tracing::warn!("the disk of the registry has finished the write");
            }
            written?;
            if was_stalled {
                // Requests that were refused have changed the table in memory.
                self.replace_table(load(database, self.clock.now())?.0);
            }
            *pause = MIN_PAUSE;
            if sweep.is_some() {
                swept = Instant::now();
            }
        }
        Ok(())
    }

    /// Opens the file again, after one pause or more. Returns `None` if the registry is dropped meanwhile.
    fn reopen_after(&self, pause: &mut Duration) -> Option<Database> {
        loop {
            self.refuse_batches(*pause)?;
            *pause = (*pause * 2).min(MAX_PAUSE);
            match self.reopen_and_load() {
                Ok(database) => return Some(database),
                Err(error) => tracing::debug!(%error, "the file of the registry cannot be opened again"),
            }
        }
    }

    fn reopen_and_load(&self) -> Result<Database, redb::Error> {
        let database = (self.reopen)()?;
        self.replace_table(load(&database, self.clock.now())?.0);
        tracing::info!("the file of the registry was opened again");
        Ok(database)
    }

    /// Replaces the table by the one of the file, and makes the registry available.
    fn replace_table(&self, loaded: RegistryTable) {
        let mut table = self.shared.lock();
        *table = loaded;
        // These changed the table that was replaced, and further ones wait for the lock.
        self.batches.try_iter().for_each(refuse);
        self.shared.end_stall();
        self.shared.is_available.store(true, Ordering::Relaxed);
    }

    /// Refuses what was sent before the registry was unavailable. Returns `None` if the registry is dropped.
    fn refuse_batches(&self, pause: Duration) -> Option<()> {
        let end = Instant::now() + pause;
        loop {
            match self.batches.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(batch) => refuse(batch),
                Err(RecvTimeoutError::Timeout) => return Some(()),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

fn refuse(batch: Batch) {
    let _ = batch.written.send(false);
}
