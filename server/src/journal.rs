//! The way to the history file: what is recorded is flushed by a thread of its own, so that nobody who plays waits for a
//! disk.
//!
//! ```text
//!   shard 0 ─ record ─┐                    ┌─ sync ─▶ disk
//!   shard 1 ─ record ─┼─▶ lock ◀─ until? ──┤
//!   shard 0 ─ flush? ─┘                    └─ thread "slipgate-history"
//! ```
//!
//! A shard that has recorded something asks in each turn how much of it is durable, and the first one to ask wakes the
//! thread. One flush is for all that was recorded before it began; the lock is not held while the disk is at it. Once in
//! 65,536 records, and after a flush that failed, the thread writes the file anew: then the disk is *busy*, takes no
//! records, and whoever would be admitted asks again in a moment. After a failure the thread rests for longer and longer.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use slipgate_netcode::token::history::{Journal, JournalError, UsedToken};

/// How long the thread rests after a flush that failed, the next time twice as long, up to [`LONGEST_REST`].
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// A thread that panicked while it held a lock has left nothing half done that the others could trip over: the register,
/// the uplink and the journal are whole between any two of their steps.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What makes durable what was recorded before: slow, and done while others record.
pub(crate) type SyncWork = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A storage device whose slow part needs nothing of the rest.
pub(crate) trait Disk: Send {
    /// Writes down that a token was used.
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError>;

    /// Whether to begin a flush takes long, too, this time.
    fn is_due_for_more(&self) -> bool;

    /// Begins to make durable all that was recorded until now. Another one begins when the outcome of this is known.
    fn sync(&mut self) -> Result<SyncWork, JournalError>;

    /// What has come of it.
    fn synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError>;
}

/// A disk, and what on it is durable.
struct Written {
    disk: Box<dyn Disk>,
    recorded: u64,
    flushed: u64,
    /// The thread was woken and has not ended its flush. Never two at a time: systems report a failure once, and the other
    /// would hear of none.
    flushing: bool,
    /// A flush has failed of which no shard was told yet.
    failed: bool,
}

/// What all ways to a disk share.
struct Shared {
    written: Mutex<Written>,
    /// The thread holds the lock for longer than a record takes.
    busy: AtomicBool,
}

impl Shared {
    /// The disk, unless it is busy: nobody who plays waits for that.
    fn unless_busy(&self) -> Option<MutexGuard<'_, Written>> {
        loop {
            match self.written.try_lock() {
                Ok(written) => return Some(written),
                Err(TryLockError::Poisoned(poisoned)) => return Some(PoisonError::into_inner(poisoned)),
                Err(TryLockError::WouldBlock) if self.busy.load(Ordering::Acquire) => return None,
                // Another shard, for as long as a record takes.
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
    }
}

/// One shard's way to the disk.
pub(crate) struct FileJournal {
    shared: Arc<Shared>,
    flusher: Arc<Flusher>,
    /// Which records are this shard's, of those that may not be durable yet, and how many are.
    waiting: VecDeque<u64>,
    durable: u64,
}

impl FileJournal {
    /// The first way to a disk.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub(crate) fn new(disk: impl Disk + 'static) -> io::Result<Self> {
        let disk = Box::new(disk);
        let written = Written { disk, recorded: 0, flushed: 0, flushing: false, failed: false };
        let shared = Arc::new(Shared { written: Mutex::new(written), busy: AtomicBool::new(false) });
        let flusher = Arc::new(Flusher::start(Arc::clone(&shared))?);
        Ok(Self { shared, flusher, waiting: VecDeque::new(), durable: 0 })
    }

    /// Another shard's way to the same disk.
    pub(crate) fn another(&self) -> Self {
        let (shared, flusher) = (Arc::clone(&self.shared), Arc::clone(&self.flusher));
        Self { shared, flusher, waiting: VecDeque::new(), durable: 0 }
    }
}

impl Journal for FileJournal {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        let mut written = self.shared.unless_busy().ok_or(JournalError)?;
        written.disk.record(used)?;
        written.recorded += 1;
        self.waiting.push_back(written.recorded);
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.shared.busy.load(Ordering::Acquire)
    }

    fn flush(&mut self) -> Result<u64, JournalError> {
        let Some(mut written) = self.shared.unless_busy() else { return Ok(self.durable) };
        while self.waiting.pop_front_if(|record| *record <= written.flushed).is_some() {
            self.durable += 1;
        }
        if !self.waiting.is_empty() && !written.flushing {
            written.flushing = true;
            self.flusher.wake();
        }
        if std::mem::take(&mut written.failed) { Err(JournalError) } else { Ok(self.durable) }
    }
}

/// The thread that flushes. It ends with the last way to its disk, and what it began is done then.
struct Flusher {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    fn start(shared: Arc<Shared>) -> io::Result<Self> {
        let (wake, woken) = channel();
        let thread = thread::Builder::new().name("slipgate-history".into()).spawn(move || flush(&shared, &woken))?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            // A thread that is gone flushes nothing any more: its clients are told nothing.
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

/// Flushes whenever it is woken.
fn flush(shared: &Shared, woken: &Receiver<()>) {
    let mut rest = FIRST_REST;
    while woken.recv().is_ok() {
        match flush_once(shared) {
            Ok(()) => rest = FIRST_REST,
            Err(JournalError) => {
                // Nobody wakes it while it is said to flush; only the end of all comes through.
                if woken.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
                rest = LONGEST_REST.min(2 * rest);
            }
        }
        lock(&shared.written).flushing = false;
    }
}

fn flush_once(shared: &Shared) -> Result<(), JournalError> {
    let (sync, until) = {
        let mut written = lock(&shared.written);
        shared.busy.store(written.disk.is_due_for_more(), Ordering::Release);
        let sync = written.disk.sync();
        shared.busy.store(false, Ordering::Release);
        (sync, written.recorded)
    };
    let outcome = sync.map(|sync| sync());
    let mut written = lock(&shared.written);
    let outcome = outcome.and_then(|outcome| written.disk.synced(outcome));
    match outcome {
        Ok(()) => written.flushed = until,
        Err(JournalError) => written.failed = true,
    }
    outcome
}

#[cfg(test)]
pub(crate) mod tests;
