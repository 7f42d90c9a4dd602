//! The journal of used tokens: shards append records, and a thread of its own flushes them, so that no turn waits for a
//! disk.
//!
//! ```text
//!   shard 0 ─ record ─┐                        ┌─ sync ─▶ disk
//!   shard 1 ─ record ─┼─▶ lock ◀─ flushed to? ─┤
//!   shard 0 ─ flush ──┘                        └─ thread "slipgate-history"
//! ```
//!
//! A shard with records that are not durable asks for a flush in each turn, and the first one wakes the thread. One
//! flush covers all records from before it started, and does not hold the lock. Once in 65,536 records, and after a
//! failed flush, the thread rewrites the file. Meanwhile the disk is *busy*: it takes no records, and new clients
//! retry. After a failure the thread pauses, each time for longer.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipgate_netcode::token::history::{Journal, JournalError, UsedToken};

/// How long the thread pauses after a failed flush; twice as long after the next one, up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Locks a mutex and ignores poisoning, which is harmless: the registry, the uplink and the journal are consistent
/// between any two of their steps.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slow part of a flush, which runs while shards append records.
pub(crate) type SyncWork = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A storage device. Its flush has a slow part that needs no lock.
pub(crate) trait Disk: Send {
    /// Appends the record of a used token.
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError>;

    /// Returns whether starting the next flush takes long, because it rewrites the file.
    fn needs_rewrite(&self) -> bool;

    /// Starts a flush of all records so far, and returns its slow part. The next flush starts after
    /// [`on_synced`](Self::on_synced).
    fn sync(&mut self) -> Result<SyncWork, JournalError>;

    /// Takes the outcome of the slow part.
    fn on_synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError>;
}

/// A disk and its durable records.
struct DiskState {
    disk: Box<dyn Disk>,
    recorded: u64,
    flushed: u64,
    /// The thread was woken and has not finished its flush. There is never a second one: systems report a write error
    /// to one caller only, so the other flush would seem to succeed.
    is_flushing: bool,
    /// A flush has failed, and no shard has seen the error yet.
    has_failed: bool,
}

/// The state that the journals of all shards share.
struct SharedDisk {
    state: Mutex<DiskState>,
    /// The thread holds the lock for longer than a record takes, to rewrite the file.
    busy: AtomicBool,
}

impl SharedDisk {
    /// Returns the disk, `None` while it is busy, because a turn must not wait for a rewrite.
    fn unless_busy(&self) -> Option<MutexGuard<'_, DiskState>> {
        loop {
            match self.state.try_lock() {
                Ok(state) => return Some(state),
                Err(TryLockError::Poisoned(poisoned)) => return Some(PoisonError::into_inner(poisoned)),
                Err(TryLockError::WouldBlock) if self.busy.load(Ordering::Acquire) => return None,
                // Another shard holds the lock, for as long as one record takes.
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
    }
}

/// One shard's journal.
pub(crate) struct FileJournal {
    shared: Arc<SharedDisk>,
    flusher: Arc<Flusher>,
    /// The numbers of this shard's records that are not known to be durable.
    pending: VecDeque<u64>,
    /// The number of this shard's durable records.
    durable: u64,
}

impl FileJournal {
    /// Creates the journal of the first shard, and starts the thread.
    ///
    /// # Errors
    /// The error of the system call when the system has no thread left.
    pub(crate) fn new(disk: impl Disk + 'static) -> io::Result<Self> {
        let disk = Box::new(disk);
        let state = DiskState { disk, recorded: 0, flushed: 0, is_flushing: false, has_failed: false };
        let shared = Arc::new(SharedDisk { state: Mutex::new(state), busy: AtomicBool::new(false) });
        let flusher = Arc::new(Flusher::start(Arc::clone(&shared))?);
        Ok(Self { shared, flusher, pending: VecDeque::new(), durable: 0 })
    }

    /// Creates the journal of another shard on the same disk.
    pub(crate) fn for_another_shard(&self) -> Self {
        let (shared, flusher) = (Arc::clone(&self.shared), Arc::clone(&self.flusher));
        Self { shared, flusher, pending: VecDeque::new(), durable: 0 }
    }
}

impl Journal for FileJournal {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        let mut state = self.shared.unless_busy().ok_or(JournalError)?;
        state.disk.record(used)?;
        state.recorded += 1;
        self.pending.push_back(state.recorded);
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.shared.busy.load(Ordering::Acquire)
    }

    fn flush(&mut self) -> Result<u64, JournalError> {
        let Some(mut state) = self.shared.unless_busy() else { return Ok(self.durable) };
        while self.pending.pop_front_if(|record| *record <= state.flushed).is_some() {
            self.durable += 1;
        }
        if !self.pending.is_empty() && !state.is_flushing {
            state.is_flushing = true;
            self.flusher.wake();
        }
        if std::mem::take(&mut state.has_failed) { Err(JournalError) } else { Ok(self.durable) }
    }
}

/// The thread that flushes. It ends with the last journal of its disk, after the flush that is running.
struct Flusher {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    fn start(shared: Arc<SharedDisk>) -> io::Result<Self> {
        let (wake, woken) = channel();
        let thread = thread::Builder::new().name("slipgate-history".into()).spawn(move || flush(&shared, &woken))?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            // If the thread has panicked, no record becomes durable, so that no new client is connected.
            let _ = wake.send(());
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The loop of the thread: flushes whenever it is woken.
fn flush(shared: &SharedDisk, woken: &Receiver<()>) {
    let mut pause = MIN_PAUSE;
    while woken.recv().is_ok() {
        match flush_once(shared) {
            Ok(()) => pause = MIN_PAUSE,
            Err(JournalError) => {
                // While `is_flushing` is set, no shard wakes the thread: only a disconnect ends the wait early.
                if woken.recv_timeout(pause) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                pause = MAX_PAUSE.min(2 * pause);
            }
        }
        lock(&shared.state).is_flushing = false;
    }
}

fn flush_once(shared: &SharedDisk) -> Result<(), JournalError> {
    let (sync, flushed) = {
        let mut state = lock(&shared.state);
        shared.busy.store(state.disk.needs_rewrite(), Ordering::Release);
        let sync = state.disk.sync();
        shared.busy.store(false, Ordering::Release);
        (sync, state.recorded)
    };
    let outcome = sync.map(|sync| sync());
    let mut state = lock(&shared.state);
    let outcome = outcome.and_then(|outcome| state.disk.on_synced(outcome));
    match outcome {
        Ok(()) => state.flushed = flushed,
        Err(JournalError) => state.has_failed = true,
    }
    outcome
}

#[cfg(test)]
pub(crate) mod tests;
