//! A bounded queue of lines in front of a stream that may be slow or stuck. A thread of its own writes them.
//!
//! ```text
//!  any thread ── push, never waits ──▶ queue, at most 1 MiB ──▶ writer thread, may wait ──▶ stderr or stdout
//!                                        └ full: the line is counted as lost, and the count is written in its place
//! ```
//!
//! A line that cannot be written is lost and counted in the same way. The lines behind it wait until the stream takes
//! the count.
//!
//! The first line is written at once. The thread then pauses for a few milliseconds, so that thousands of lines per
//! second do not wake it thousands of times.
// DECISION: not `tracing-appender`. Its guard prints to stdout if a stuck stream leaves its queue full at the exit, and
// may block or panic there. It also counts lost lines without reporting them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// The maximum size of the waiting lines, in bytes: some 5,000 lines of a log.
pub const MAX_BYTES: usize = 1024 * 1024;
/// After a loss, lines are taken again when at most this many bytes wait, so that a slow reader does not get a report
/// of lost lines after each line.
const RESUME_BYTES: usize = MAX_BYTES / 2;
/// How long the exit of a program waits until the last lines are written.
const FLUSH_TIME: Duration = Duration::from_secs(1);
/// The thread takes and writes lines of about this size at once.
const BATCH_BYTES: usize = 64 * 1024;
/// How long the thread pauses when it has written all lines. Waking it costs more than a line.
const GATHER_PAUSE: Duration = Duration::from_millis(5);
/// The pause before the next attempt on a stream that is set to non-blocking and full.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
/// The pause before the next attempt on a stream with an error, such as a full disk. It is shorter than [`FLUSH_TIME`],
/// so that an exit waits for one.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

/// Formats the report of lost lines, given their number, with its line break.
pub type LossReport = Box<dyn Fn(u64) -> Vec<u8> + Send>;

/// The queue's end for writers of lines. Clones share one queue.
#[derive(Clone)]
pub struct LineQueue(Arc<Shared>);

/// Waits up to 1 s, when it is dropped, until the last lines are written.
#[must_use = "the last lines are lost without it"]
pub struct FlushGuard(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    /// The bytes of all lines in `entries`.
    bytes: usize,
    /// Lines lost since the last entry.
    lost: u64,
    is_writing: bool,
    /// Whether the thread waits to be woken.
    is_waiting: bool,
    /// How often the stream had an error.
    errors: u64,
}

enum Entry {
    Line(Vec<u8>),
    Lost(u64),
}

impl Entry {
    /// Returns the size by which it counts in the queue, in bytes.
    fn len(&self) -> usize {
        match self {
            Self::Line(line) => line.len(),
            Self::Lost(_) => 0,
        }
    }
}

impl LineQueue {
    /// Starts the thread that writes to `stream`.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot be started.
    pub fn start(stream: impl Write + Send + 'static, report: LossReport) -> io::Result<(Self, FlushGuard)> {
        let shared = Arc::new(Shared::default());
        let writer = Arc::clone(&shared);
        thread::Builder::new().name("log-writer".to_owned()).spawn(move || writer.write_lines(stream, &report))?;
        Ok((Self(Arc::clone(&shared)), FlushGuard(shared)))
    }

    /// Queues a line with its line break, or counts it as lost if the queue is full. Never waits for the stream.
    pub fn push(&self, line: &[u8]) {
        let mut state = self.0.lock();
        let limit = if state.lost > 0 { RESUME_BYTES } else { MAX_BYTES };
        if state.bytes + line.len() > limit {
            state.lost = state.lost.saturating_add(1);
            return;
        }
        if state.lost > 0 {
            let lost = std::mem::take(&mut state.lost);
            state.entries.push_back(Entry::Lost(lost));
        }
        state.bytes += line.len();
        state.entries.push_back(Entry::Line(line.to_vec()));
        let wakes = state.is_waiting;
        drop(state);
        if wakes {
            self.0.changed.notify_all();
        }
    }
}

/// Each call of `write` queues one line.
impl Write for LineQueue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for FlushGuard {
    fn drop(&mut self) {
        let state = self.0.lock();
        let errors = state.errors;
        // A stuck stream, or one with an error, loses the rest: the exit must not wait for a reader or a full disk.
        let is_left = |state: &mut State| !state.is_done() && state.errors == errors;
        drop(self.0.changed.wait_timeout_while(state, FLUSH_TIME, is_left));
    }
}

impl State {
    fn is_done(&self) -> bool {
        self.is_empty() && !self.is_writing
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.lost == 0
    }

    /// Moves the oldest entries, about [`BATCH_BYTES`], into `batch`. Lines lost since the last one count as an entry.
    fn take(&mut self, batch: &mut Vec<Entry>) {
        let mut bytes = 0;
        while bytes < BATCH_BYTES && !self.is_empty() {
            let oldest = self.entries.pop_front().unwrap_or_else(|| Entry::Lost(std::mem::take(&mut self.lost)));
            bytes += oldest.len();
            batch.push(oldest);
        }
        self.bytes -= bytes;
        self.is_writing = !batch.is_empty();
    }

    /// Puts entries back to the front after an error of the stream. The first one could not be written: if it is a
    /// line, it is lost, because it may be the cause of the error.
    fn put_back(&mut self, unwritten: impl DoubleEndedIterator<Item = Entry>) {
        for entry in unwritten.rev() {
            self.bytes += entry.len();
            self.entries.push_front(entry);
        }
        if let Some(first @ Entry::Line(_)) = self.entries.front_mut() {
            self.bytes -= first.len();
            *first = Entry::Lost(1);
        }
        self.is_writing = false;
        self.errors += 1;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held left a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_lines(&self, mut stream: impl Write, report: &LossReport) {
        let (mut batch, mut bytes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        // Whether the stream ends with a part of a line.
        let mut is_cut = false;
        loop {
            self.wait_for_entries(&mut batch);
            bytes.clear();
            ends.clear();
            if is_cut {
                bytes.push(b'\n');
            }
            for entry in &batch {
                match entry {
                    Entry::Line(line) => bytes.extend(line),
                    Entry::Lost(lost) => bytes.extend(report(*lost)),
                }
                ends.push(bytes.len());
            }
            let written = write_whole(&mut stream, &bytes);
            if written == bytes.len() {
                batch.clear();
                is_cut = false;
                continue;
            }
            if let Some(last) = bytes.get(..written).and_then(<[u8]>::last) {
                is_cut = *last != b'\n';
            }
            let whole = ends.partition_point(|end| *end <= written);
            self.lock().put_back(batch.drain(..).skip(whole));
            // An exit waits for this.
            self.changed.notify_all();
            thread::sleep(ERROR_PAUSE);
        }
    }

    /// Waits for entries. Those before them are written by now.
    fn wait_for_entries(&self, batch: &mut Vec<Entry>) {
        self.lock().take(batch);
        if !batch.is_empty() {
            return;
        }
        // An exit waits for this.
        self.changed.notify_all();
        thread::sleep(GATHER_PAUSE);
        let mut state = self.lock();
        loop {
            state.take(batch);
            if !batch.is_empty() {
                return;
            }
            state.is_waiting = true;
            state = self.changed.wait_while(state, |state| state.is_empty()).unwrap_or_else(PoisonError::into_inner);
            state.is_waiting = false;
        }
    }
}

/// Writes bytes until an error, and returns how many. Waits for a full stream, even one that another program has set to
/// non-blocking.
fn write_whole(stream: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(RETRY_PAUSE),
            Err(_) => break,
        }
    }
    // A buffered stream may hold its last line back, as stdout does after a short write: that line counts as lost.
    if stream.flush().is_ok() { written } else { written.min(bytes.len().saturating_sub(1)) }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::time::Instant;

    use super::*;

    /// A stream with a reader that takes one line at a time.
    struct Pipe(SyncSender<Vec<u8>>);

    impl Write for Pipe {
        fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
            for line in lines.split_inclusive(|byte| *byte == b'\n') {
                self.0.send(line.to_vec()).map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            }
            Ok(lines.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start() -> (LineQueue, FlushGuard, Receiver<Vec<u8>>) {
        let (sender, receiver) = sync_channel(0);
        let report: LossReport = Box::new(|lost| format!("lost {lost}\n").into_bytes());
        let (queue, guard) = LineQueue::start(Pipe(sender), report).unwrap();
        (queue, guard, receiver)
    }

    /// A line of 1 KiB that begins with a number.
    fn line(number: usize) -> Vec<u8> {
        let mut line = format!("{number} ").into_bytes();
        line.resize(1023, b'.');
        line.push(b'\n');
        line
    }

    fn number(line: &[u8]) -> usize {
        std::str::from_utf8(line).unwrap().split(' ').next().unwrap().parse().unwrap()
    }

    #[test]
    fn full_queue_loses_lines_and_reports_their_number() {
        let (queue, guard, reader) = start();
        let pushed = 3000;
        (0..pushed).for_each(|number| queue.push(&line(number)));
        // The writer thread may have taken one batch before the queue was full.
        let (kept, batch) = (MAX_BYTES / 1024, BATCH_BYTES / 1024);
        let mut read = 0;
        let mut next = reader.recv().unwrap();
        while !next.starts_with(b"lost ") {
            assert_eq!(number(&next), read, "in order and without a gap before the report");
            read += 1;
            next = reader.recv().unwrap();
        }
        assert!((kept..=kept + batch).contains(&read), "{read}");
        assert_eq!(next, format!("lost {}\n", pushed - read).into_bytes());
        queue.push(b"goes on\n");
        assert_eq!(reader.recv().unwrap(), b"goes on\n");
        drop(guard);
    }

    #[test]
    fn slow_reader_gets_few_reports_of_lost_lines() {
        let (queue, _guard, reader) = start();
        let mut reports = 0;
        for number in 0..20_000 {
            queue.push(&line(number));
            // The reader takes one line in four.
            if number % 4 == 0 && reader.recv().unwrap().starts_with(b"lost ") {
                reports += 1;
            }
        }
        assert!((1..=20).contains(&reports), "{reports}");
    }

    #[test]
    fn exit_writes_last_lines_but_never_waits_for_a_stuck_reader() {
        let (queue, guard, reader) = start();
        queue.push(b"last\n");
        let start_of_wait = Instant::now();
        drop(guard);
        let waited = start_of_wait.elapsed();
        assert!(waited >= FLUSH_TIME && waited < FLUSH_TIME * 60, "{waited:?}");
        assert_eq!(reader.recv().unwrap(), b"last\n");

        let (queue, guard, reader) = start();
        let reading = thread::spawn(move || reader.iter().take(100).count());
        (0..100).for_each(|number| queue.push(&line(number)));
        drop(guard);
        assert_eq!(reading.join().unwrap(), 100);
    }

    #[test]
    fn stream_that_would_block_gets_the_whole_line() {
        struct Full(Vec<u8>, u32);
        impl Write for Full {
            fn write(&mut self, line: &[u8]) -> io::Result<usize> {
                self.1 += 1;
                if self.1 % 2 == 1 {
                    return Err(ErrorKind::WouldBlock.into());
                }
                self.0.extend(line.first());
                Ok(1)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut stream = Full(Vec::new(), 0);
        assert_eq!(write_whole(&mut stream, b"line\n"), 5);
        assert_eq!(stream.0, b"line\n");
    }

    /// A file on a disk that may be full.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<DiskState>>);

    #[derive(Default)]
    struct DiskState {
        text: Vec<u8>,
        /// The number of bytes that the disk still takes.
        room: usize,
        /// The number of refused writes.
        refused: usize,
    }

    impl Disk {
        fn with_room(bytes: usize) -> Self {
            let disk = Self::default();
            disk.lock().room = bytes;
            disk
        }

        fn lock(&self) -> MutexGuard<'_, DiskState> {
            self.0.lock().unwrap()
        }

        fn text(&self) -> String {
            String::from_utf8(self.lock().text.clone()).unwrap()
        }

        fn refused(&self) -> usize {
            self.lock().refused
        }

        fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
            let start = Instant::now();
            while !holds(self) {
                assert!(start.elapsed() < Duration::from_secs(60), "{what}: {:?}", self.text());
                thread::sleep(Duration::from_millis(5));
            }
        }

        fn start(&self) -> (LineQueue, FlushGuard) {
            let report: LossReport = Box::new(|lost| format!("lost {lost}\n").into_bytes());
            LineQueue::start(self.clone(), report).unwrap()
        }
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut disk = self.lock();
            let count = bytes.len().min(disk.room);
            if count == 0 {
                disk.refused += 1;
                return Err(ErrorKind::StorageFull.into());
            }
            disk.text.extend(&bytes[..count]);
            disk.room -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn line_lost_to_an_error_is_counted_when_writing_works_again() {
        let disk = Disk::with_room(6);
        let (queue, _guard) = disk.start();
        queue.push(b"first\n");
        disk.until("first line", |disk| disk.text() == "first\n");
        queue.push(b"second\n");
        disk.until("an error", |disk| disk.refused() > 0);
        queue.push(b"third\n");
        disk.until("another attempt", |disk| disk.refused() > 1);
        disk.lock().room = 1000;
        disk.until("the rest", |disk| disk.text() == "first\nlost 1\nthird\n");
    }

    #[test]
    fn half_a_line_is_ended_before_the_report_of_its_loss() {
        // Room for a part of the second line, then for a part of the report.
        let disk = Disk::with_room(10);
        let (queue, _guard) = disk.start();
        queue.push(b"first\n");
        queue.push(b"second\n");
        disk.until("half a line", |disk| disk.text() == "first\nseco" && disk.refused() > 0);
        disk.lock().room = 3;
        disk.until("half a report", |disk| disk.text() == "first\nseco\nlo" && disk.refused() > 1);
        queue.push(b"third\n");
        disk.lock().room = 1000;
        disk.until("the rest", |disk| disk.text() == "first\nseco\nlo\nlost 1\nthird\n");
    }

    #[test]
    fn line_in_the_buffer_of_a_stream_with_an_error_is_counted() {
        /// Takes everything, and fails to flush once.
        struct Buffered(Disk, bool);
        impl Write for Buffered {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.write(bytes)
            }

            fn flush(&mut self) -> io::Result<()> {
                if std::mem::replace(&mut self.1, true) { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
            }
        }
        let disk = Disk::with_room(1000);
        let report: LossReport = Box::new(|lost| format!("lost {lost}\n").into_bytes());
        let (queue, _guard) = LineQueue::start(Buffered(disk.clone(), false), report).unwrap();
        queue.push(b"first\n");
        // It may have been cut.
        disk.until("the report", |disk| disk.text() == "first\n\nlost 1\n");
    }

    #[test]
    fn line_that_is_never_taken_does_not_block_others() {
        /// A console that takes Unicode alone.
        struct Console(Disk);
        impl Write for Console {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match std::str::from_utf8(bytes) {
                    Ok(_) => self.0.write(bytes),
                    Err(error) if error.valid_up_to() > 0 => self.0.write(&bytes[..error.valid_up_to()]),
                    Err(_) => Err(ErrorKind::InvalidData.into()),
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let disk = Disk::with_room(1000);
        let report: LossReport = Box::new(|lost| format!("lost {lost}\n").into_bytes());
        let (queue, guard) = LineQueue::start(Console(disk.clone()), report).unwrap();
        queue.push(b"\xff\n");
        queue.push(b"next\n");
        disk.until("the next line", |disk| disk.text() == "lost 1\nnext\n");
        drop(guard);
    }

    #[test]
    fn permanent_error_costs_bounded_memory_and_few_attempts() {
        let disk = Disk::default();
        let (queue, guard) = disk.start();
        let (pushed, start_of_test) = (3000_u64, Instant::now());
        (0..pushed).for_each(|number| queue.push(&line(number as usize)));
        disk.until("three attempts", |disk| disk.refused() > 2);
        let (attempts, time) = (disk.refused(), start_of_test.elapsed());
        let max = 1 + time.as_millis() / ERROR_PAUSE.as_millis();
        assert!(attempts as u128 <= max, "{attempts} attempts in {time:?}");
        assert!(queue.0.lock().bytes <= MAX_BYTES + BATCH_BYTES + 1024);
        // The exit waits for one more attempt.
        drop(guard);
        disk.until("a last attempt", |disk| disk.refused() > attempts);

        // All lines are written or counted.
        disk.lock().room = usize::MAX;
        disk.until("the rest", |_| queue.0.lock().is_done());
        let text = disk.text();
        let lost = text.lines().filter_map(|line| line.strip_prefix("lost ")?.parse::<u64>().ok()).sum::<u64>();
        let kept = text.lines().filter(|line| line.len() == 1023).count() as u64;
        assert_eq!(kept + lost, pushed, "{lost} lost");
        assert!(text.starts_with("lost 1\n"), "the line at which writing failed");
    }
}
