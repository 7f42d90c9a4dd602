//! The way to the history file: what is recorded is flushed by a thread of its own, so that nobody who plays waits for a
//! disk.
//!
//! ```text
//!   shard 0 ─ record ─┐                    ┌─ sync ─▶ disk
//!   shard 1 ─ record ─┼─▶ lock ◀─ until? ──┤
//!   shard 0 ─ flush? ─┘                    └─ thread "slipgate-history"
//! ```
//!
//! A shard that has recorded something asks at the end of each turn whether it is durable, and the first one to ask wakes
//! the thread. One flush is for all that was recorded before it began; the lock is not held while the disk is at it. Only
//! once in 65,536 records, and after a flush that failed, the file is written anew under the lock.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use slipgate_protocol::token::history::{Flushed, Journal, JournalError, UsedToken};

use crate::shards::lock;

/// What makes durable what was recorded before: slow, and done while others record.
pub(crate) type SyncWork = Box<dyn FnOnce() -> io::Result<()> + Send>;

/// A storage device whose slow part needs nothing of the rest.
pub(crate) trait Disk: Send {
    /// Writes down that a token was used.
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError>;

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

/// One shard's way to the disk.
pub(crate) struct FileJournal {
    written: Arc<Mutex<Written>>,
    flusher: Arc<Flusher>,
    /// The last record of this shard.
    last: u64,
}

impl FileJournal {
    /// The first way to a disk.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub(crate) fn new(disk: impl Disk + 'static) -> io::Result<Self> {
        let disk = Box::new(disk);
        let written = Written { disk, recorded: 0, flushed: 0, flushing: false, failed: false };
        let written = Arc::new(Mutex::new(written));
        let flusher = Arc::new(Flusher::start(Arc::clone(&written))?);
        Ok(Self { written, flusher, last: 0 })
    }

    /// Another shard's way to the same disk.
    pub(crate) fn another(&self) -> Self {
        Self { written: Arc::clone(&self.written), flusher: Arc::clone(&self.flusher), last: 0 }
    }
}

impl Journal for FileJournal {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        let mut written = lock(&self.written);
        written.disk.record(used)?;
        written.recorded += 1;
        self.last = written.recorded;
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, JournalError> {
        let mut written = lock(&self.written);
        if written.flushed >= self.last {
            return Ok(Flushed::All);
        }
        if !written.flushing {
            written.flushing = true;
            self.flusher.wake();
        }
        if std::mem::take(&mut written.failed) { Err(JournalError) } else { Ok(Flushed::NotYet) }
    }
}

/// The thread that flushes. It ends with the last way to its disk, and what it began is done then.
struct Flusher {
    wake: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    fn start(written: Arc<Mutex<Written>>) -> io::Result<Self> {
        let (wake, woken) = channel();
        let thread = thread::Builder::new().name("slipgate-history".into()).spawn(move || flush(&written, &woken))?;
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
fn flush(written: &Mutex<Written>, woken: &Receiver<()>) {
    while woken.recv().is_ok() {
        let (sync, until) = {
            let mut written = lock(written);
            (written.disk.sync(), written.recorded)
        };
        let outcome = sync.map(|sync| sync());
        let mut written = lock(written);
        match outcome.and_then(|outcome| written.disk.synced(outcome)) {
            Ok(()) => written.flushed = until,
            Err(JournalError) => written.failed = true,
        }
        written.flushing = false;
    }
}

#[cfg(test)]
pub(crate) mod tests;
