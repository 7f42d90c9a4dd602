//! The journal of used tokens: shards queue records, and a thread of its own writes them, so that no turn waits for a
//! disk.
//!
//! ```text
//!   shard 0 ─ record ─┐                    ┌─ store ─▶ disk
//!   shard 1 ─ record ─┼─▶ queue of records ┤
//!   shard 0 ─ flush ──┘      durable to? ◀─└─ thread "slipgate-history"
//! ```
//!
//! A shard with records that are not durable asks for a flush in each turn, which wakes the thread. The thread takes
//! all records of the queue, writes them and flushes them at once. No system call runs under the lock of the queue.
//!
//! The journal is *busy* while the queue is full, while the last attempt has failed, and while an attempt takes longer
//! than half a second. It takes no records then: new clients repeat their responses, and their tokens stay unused.
//! Connected clients are not affected. The thread repeats a failed attempt after a pause, each time a longer one.
//!
//! The last journal that is dropped waits for the running attempt until it has lasted for [`MAX_LAST_ATTEMPT`]. Then it
//! leaves the thread to the disk: a server must end although its disk hangs.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use slipgate_netcode::token::history::{Journal, JournalError, UsedToken};
use tracing::warn;

use crate::rounded::seconds;

/// The maximum number of records that are not durable. A disk that takes 20 ms for a flush makes 51,200 clients durable
/// in a second.
const MAX_RECORDS: usize = 1024;
/// How long the thread pauses after a failed attempt; twice as long after the next one, up to [`MAX_PAUSE`].
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The journal is busy while an attempt takes longer. A flush takes 1 to 100 ms, and pending clients live for 5 s.
const BUSY_AFTER: Duration = Duration::from_millis(500);
/// An attempt that takes longer is logged.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The end of a server waits for an attempt until it has lasted for this time. A disk that works needs 1 to 100 ms, and
/// one that hangs may never finish. A record that is not durable by then belongs to a client that was sent nothing, so
/// its token may be used again.
const MAX_LAST_ATTEMPT: Duration = Duration::from_secs(1);
/// A slow attempt is logged once in this time while it lasts.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// A further attempt within that time is logged if it takes longer than this: a disk that stalls for a second again and
/// again writes few lines.
const SLOW_AGAIN_AFTER: Duration = Duration::from_secs(3);

/// Locks a mutex and ignores poisoning, which is harmless: the registry, the uplink and the journal are consistent
/// between any two of their steps.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A storage device, which the thread alone uses.
pub(crate) trait Disk: Send {
    /// Writes records and waits until they are durable. After an error the same records are stored again, together with
    /// later ones. The disk logs the cause.
    fn store(&mut self, records: &[UsedToken]) -> Result<(), JournalError>;

    /// Does work that no client waits for, such as removing expired records. The disk logs errors.
    fn tidy(&mut self);
}

/// The records of all shards that are not durable.
struct RecordQueue {
    /// Records that the thread has not taken.
    waiting: Vec<UsedToken>,
    /// The number of all records so far, and of the durable ones.
    recorded: u64,
    durable: u64,
    /// A shard asks for a flush of the waiting records.
    is_flush_due: bool,
    /// When the thread began to use the disk, while it does.
    working_since: Option<Instant>,
    /// The last attempt has failed.
    is_failing: bool,
    /// An attempt has failed, and no shard has seen the error yet.
    has_new_failure: bool,
    slow_log: SlowLog,
    /// The last journal was dropped.
    is_closed: bool,
    /// The thread has dropped the disk.
    is_released: bool,
}

impl RecordQueue {
    fn new() -> Self {
        Self {
            waiting: Vec::with_capacity(MAX_RECORDS),
            recorded: 0,
            durable: 0,
            is_flush_due: false,
            working_since: None,
            is_failing: false,
            has_new_failure: false,
            slow_log: SlowLog::default(),
            is_closed: false,
            is_released: false,
        }
    }

    fn is_full(&self) -> bool {
        self.recorded - self.durable >= MAX_RECORDS as u64
    }

    /// Returns how long the thread has used the disk for.
    fn working_for(&self, now: Instant) -> Duration {
        self.working_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn is_busy(&self, now: Instant) -> bool {
        self.is_full() || self.is_failing || self.working_for(now) > BUSY_AFTER
    }
}

/// Which slow attempts were logged.
#[derive(Default)]
struct SlowLog {
    last: Option<Instant>,
    /// The present attempt was logged.
    has_present: bool,
}

impl SlowLog {
    /// Returns whether to log an attempt that has lasted for this time.
    fn is_due(&mut self, working_for: Duration, now: Instant) -> bool {
        let is_recent = self.last.is_some_and(|last| now.saturating_duration_since(last) < LOG_INTERVAL);
        let logged_after = if is_recent { SLOW_AGAIN_AFTER } else { SLOW_AFTER };
        if working_for < logged_after || (is_recent && self.has_present) {
            return false;
        }
        (self.last, self.has_present) = (Some(now), true);
        true
    }
}

/// The state that the journals of all shards share with the thread.
struct SharedQueue {
    records: Mutex<RecordQueue>,
    wake: Condvar,
}

impl SharedQueue {
    /// Logs a disk that has not finished an attempt for a while. Shards call it, because the thread is waiting.
    fn log_slow_attempt(mut records: MutexGuard<'_, RecordQueue>, now: Instant) {
        let working_for = records.working_for(now);
        if records.slow_log.is_due(working_for, now) {
            // A log may be slow too.
            drop(records);
            warn!(
                seconds = seconds(working_for),
                "the disk of the history file does not finish a write; new clients wait until it does, and connected \
                 clients are not affected"
            );
        }
    }
}

/// One shard's journal.
pub(crate) struct FileJournal {
    shared: Arc<SharedQueue>,
    /// Held for its `Drop`, which ends the thread with the last journal.
    writer: Arc<HistoryThread>,
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
        let shared = Arc::new(SharedQueue { records: Mutex::new(RecordQueue::new()), wake: Condvar::new() });
        let writer = Arc::new(HistoryThread::start(Arc::clone(&shared), Box::new(disk))?);
        Ok(Self::of(shared, writer))
    }

    /// Creates the journal of another shard on the same disk.
    pub(crate) fn for_another_shard(&self) -> Self {
        Self::of(Arc::clone(&self.shared), Arc::clone(&self.writer))
    }

    fn of(shared: Arc<SharedQueue>, writer: Arc<HistoryThread>) -> Self {
        Self { shared, writer, pending: VecDeque::with_capacity(MAX_RECORDS), durable: 0 }
    }

    fn is_busy_at(&self, now: Instant) -> bool {
        let records = lock(&self.shared.records);
        let is_busy = records.is_busy(now);
        SharedQueue::log_slow_attempt(records, now);
        is_busy
    }
}

impl Journal for FileJournal {
    fn record(&mut self, used: UsedToken) -> Result<(), JournalError> {
        let mut records = lock(&self.shared.records);
        if records.is_full() {
            return Err(JournalError);
        }
        records.waiting.push(used);
        records.recorded += 1;
        self.pending.push_back(records.recorded);
        Ok(())
    }

    fn is_busy(&self) -> bool {
        self.is_busy_at(Instant::now())
    }

    fn flush(&mut self) -> Result<u64, JournalError> {
        let mut records = lock(&self.shared.records);
        while self.pending.pop_front_if(|record| *record <= records.durable).is_some() {
            self.durable += 1;
        }
        // A thread that has panicked leaves all records undurable, so no new client is connected.
        if !records.waiting.is_empty() && !std::mem::replace(&mut records.is_flush_due, true) {
            self.shared.wake.notify_one();
        }
        let has_failed = std::mem::take(&mut records.has_new_failure);
        SharedQueue::log_slow_attempt(records, Instant::now());
        if has_failed { Err(JournalError) } else { Ok(self.durable) }
    }
}

/// The thread that writes. It ends with the last journal of its disk, after the attempt that is running.
struct HistoryThread {
    shared: Arc<SharedQueue>,
    thread: Option<JoinHandle<()>>,
}

impl HistoryThread {
    fn start(shared: Arc<SharedQueue>, disk: Box<dyn Disk>) -> io::Result<Self> {
        let of_thread = Release(Arc::clone(&shared));
        let thread =
            thread::Builder::new().name("slipgate-history".into()).spawn(move || write_records(&of_thread.0, disk))?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for HistoryThread {
    fn drop(&mut self) {
        let mut records = lock(&self.shared.records);
        records.is_closed = true;
        let limit = MAX_LAST_ATTEMPT.saturating_sub(records.working_for(Instant::now()));
        let undurable = records.recorded - records.durable;
        self.shared.wake.notify_one();
        let holds_disk = |records: &mut RecordQueue| !records.is_released;
        let waited = self.shared.wake.wait_timeout_while(records, limit, holds_disk);
        let is_released = waited.unwrap_or_else(PoisonError::into_inner).0.is_released;
        if !is_released {
            warn!(
                undurable,
                "the disk of the history file hangs, so the server ends without it; tokens that are not on the disk \
                 belong to clients that were not connected"
            );
            // Dropping the handle detaches the thread, which keeps the file and its lock until the disk responds.
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Sets `is_released` when the thread has ended, also when it has panicked.
struct Release(Arc<SharedQueue>);

impl Drop for Release {
    fn drop(&mut self) {
        lock(&self.0.records).is_released = true;
        self.0.wake.notify_one();
    }
}

/// Runs the thread: stores the records of the queue whenever a shard asks for it.
fn write_records(shared: &SharedQueue, mut disk: Box<dyn Disk>) {
    let mut batch = Vec::with_capacity(MAX_RECORDS);
    let mut pause = MIN_PAUSE;
    while take_records(shared, &mut batch) {
        let outcome = disk.store(&batch);
        let is_closed = on_stored(shared, batch.len() as u64, outcome);
        match outcome {
            Ok(()) => {
                batch.clear();
                pause = MIN_PAUSE;
                disk.tidy();
                end_attempt(shared);
            }
            Err(JournalError) if is_closed || sleep(shared, pause) => return,
            Err(JournalError) => pause = MAX_PAUSE.min(2 * pause),
        }
    }
}

/// Waits until a shard asks for a flush, and appends the waiting records to those that failed before. Returns false
/// when the last journal was dropped.
fn take_records(shared: &SharedQueue, batch: &mut Vec<UsedToken>) -> bool {
    let records = lock(&shared.records);
    let is_idle = |records: &mut RecordQueue| !records.is_closed && batch.is_empty() && !records.is_flush_due;
    let mut records = shared.wake.wait_while(records, is_idle).unwrap_or_else(PoisonError::into_inner);
    if records.is_closed {
        return false;
    }
    batch.append(&mut records.waiting);
    records.is_flush_due = false;
    records.working_since = Some(Instant::now());
    true
}

/// Publishes the outcome of an attempt. Returns whether the last journal was dropped.
fn on_stored(shared: &SharedQueue, count: u64, outcome: Result<(), JournalError>) -> bool {
    let mut records = lock(&shared.records);
    records.is_failing = outcome.is_err();
    match outcome {
        Ok(()) => records.durable += count,
        Err(JournalError) => records.has_new_failure = true,
    }
    let is_closed = records.is_closed;
    if outcome.is_err() {
        drop(records);
        end_attempt(shared);
    }
    is_closed
}

/// Ends the use of the disk, and logs how long it took if shards have logged that it is slow.
fn end_attempt(shared: &SharedQueue) {
    let mut records = lock(&shared.records);
    let took = records.working_for(Instant::now());
    records.working_since = None;
    let was_logged = std::mem::take(&mut records.slow_log.has_present);
    drop(records);
    if was_logged {
        warn!(seconds = seconds(took), "the disk of the history file has finished the write");
    }
}

/// Pauses. Returns true at once when the last journal is dropped.
fn sleep(shared: &SharedQueue, pause: Duration) -> bool {
    let is_open = |records: &mut RecordQueue| !records.is_closed;
    let records = lock(&shared.records);
    let waited = shared.wake.wait_timeout_while(records, pause, is_open).unwrap_or_else(PoisonError::into_inner);
    waited.0.is_closed
}

#[cfg(test)]
pub(crate) mod tests;
