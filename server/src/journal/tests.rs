use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use slipgate_netcode::crypto::digest::Digest;
use slipgate_netcode::time::UnixSeconds;

use super::*;
use crate::test_log::count_warnings;

/// An attempt that lasts until the test ends it.
pub(crate) struct Attempt {
    /// The names of the records begin with these bytes.
    pub(crate) records: Vec<u8>,
    end: Sender<Result<(), JournalError>>,
}

impl Attempt {
    pub(crate) fn end(self, outcome: Result<(), JournalError>) {
        self.end.send(outcome).unwrap();
    }
}

/// A disk with attempts that last until the test ends them, as when it is frozen.
pub(crate) struct SlowDisk {
    started: Sender<Attempt>,
    /// Removing expired records lasts until the test ends it, too.
    tidying: Option<Sender<Sender<()>>>,
}

impl SlowDisk {
    /// Returns a journal on such a disk, and its attempts.
    pub(crate) fn journal() -> (FileJournal, Receiver<Attempt>) {
        let (started, attempts) = channel();
        (FileJournal::new(Self { started, tidying: None }).unwrap(), attempts)
    }

    /// Returns the journals of two shards on one disk, and its attempts.
    pub(crate) fn of_two_shards() -> (FileJournal, FileJournal, Receiver<Attempt>) {
        let (one, attempts) = Self::journal();
        let other = one.for_another_shard();
        (one, other, attempts)
    }
}

impl Disk for SlowDisk {
    fn store(&mut self, records: &[UsedToken]) -> Result<(), JournalError> {
        let (end, ends) = channel();
        self.started.send(Attempt { records: records.iter().map(|used| used.name.0[0]).collect(), end }).unwrap();
        ends.recv().unwrap()
    }

    fn tidy(&mut self) {
        if let Some(tidying) = &self.tidying {
            let (end, ends) = channel();
            tidying.send(end).unwrap();
            ends.recv().unwrap();
        }
    }
}

/// How long a test waits for what must happen.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Returns the next attempt, or the next rewrite.
fn next<T>(attempts: &Receiver<T>) -> T {
    attempts.recv_timeout(MAX_WAIT).expect("the journal uses the disk")
}

/// Runs calls of two shards on a thread of their own. Fails if they do not return, as when they wait for the disk.
fn without_waiting(
    one: FileJournal,
    other: FileJournal,
    calls: impl FnOnce(&mut FileJournal, &mut FileJournal) + Send + 'static,
) -> (FileJournal, FileJournal) {
    let (returned, journals) = channel();
    thread::spawn(move || {
        let (mut one, mut other) = (one, other);
        calls(&mut one, &mut other);
        returned.send((one, other)).unwrap();
    });
    journals.recv_timeout(MAX_WAIT).expect("the calls of the shards return while the disk is slow")
}

fn used(number: u8) -> UsedToken {
    UsedToken { name: Digest([number; 16]), expires: UnixSeconds(100) }
}

/// Flushes until as many records are durable.
fn until_durable(shard: &mut FileJournal, count: u64) {
    until(|| shard.flush().unwrap() == count);
}

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < MAX_WAIT, "it does not happen in {MAX_WAIT:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn shards_do_not_wait_for_a_slow_disk() {
    let (mut one, other, attempts) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    let first = next(&attempts);
    assert_eq!(first.records, [1]);
    // The attempt cannot end before these calls: the test ends it below.
    let (mut one, mut other) = without_waiting(one, other, |one, other| {
        other.record(used(2)).unwrap();
        assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    });
    first.end(Ok(()));
    until_durable(&mut one, 1);
    // The attempt does not cover a record from after its start.
    assert_eq!(other.flush(), Ok(0));
    next(&attempts).end(Ok(()));
    until_durable(&mut other, 1);
    assert_eq!((one.flush(), other.flush()), (Ok(1), Ok(1)));
    assert!(attempts.try_recv().is_err(), "nothing is left to store");
}

#[test]
fn records_during_each_attempt_do_not_delay_earlier_ones() {
    let (mut shard, attempts) = SlowDisk::journal();
    shard.record(used(0)).unwrap();
    assert_eq!(shard.flush(), Ok(0));
    for number in 1..50 {
        let attempt = next(&attempts);
        shard.record(used(number)).unwrap();
        attempt.end(Ok(()));
        until_durable(&mut shard, number.into());
    }
}

#[test]
fn one_attempt_covers_all_records_from_before_it() {
    let (mut one, mut other, attempts) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    other.record(used(2)).unwrap();
    assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    let attempt = next(&attempts);
    assert_eq!(attempt.records, [1, 2]);
    attempt.end(Ok(()));
    until_durable(&mut one, 1);
    until_durable(&mut other, 1);
    assert!(attempts.try_recv().is_err(), "there was one attempt");
}

#[test]
fn failed_attempt_is_reported_once_and_repeated_with_all() {
    let (mut one, mut other, attempts) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    for count in 1..=3 {
        let attempt = next(&attempts);
        assert_eq!(attempt.records, [1, 2, 2][..count.min(2)]);
        if count == 1 {
            other.record(used(2)).unwrap();
        }
        attempt.end(Err(JournalError));
        until(|| one.flush().is_err());
        assert!(one.is_busy() && other.is_busy(), "new clients keep their tokens meanwhile");
        assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    }
    next(&attempts).end(Ok(()));
    until_durable(&mut one, 1);
    until_durable(&mut other, 1);
    assert!(!one.is_busy());
}

#[test]
fn an_attempt_that_has_ended_does_not_make_the_journal_busy() {
    let (mut shard, attempts) = SlowDisk::journal();
    shard.record(used(1)).unwrap();
    shard.flush().unwrap();
    next(&attempts).end(Ok(()));
    until_durable(&mut shard, 1);
    let later = || Instant::now() + 2 * BUSY_AFTER;
    until(|| !shard.is_busy_at(later()));
}

#[test]
fn failed_attempt_is_repeated_after_a_pause() {
    let (mut shard, attempts) = SlowDisk::journal();
    shard.record(used(1)).unwrap();
    shard.flush().unwrap();
    let mut attempt = next(&attempts);
    for pause in [MIN_PAUSE, 2 * MIN_PAUSE, 4 * MIN_PAUSE] {
        let failed = Instant::now();
        attempt.end(Err(JournalError));
        attempt = next(&attempts);
        assert!(failed.elapsed() >= pause, "{:?} instead of {pause:?}", failed.elapsed());
    }
    attempt.end(Ok(()));
}

#[test]
fn frozen_disk_makes_the_journal_busy_and_then_full() {
    let (mut one, mut other, attempts) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    one.flush().unwrap();
    let frozen = next(&attempts);
    let now = lock(&one.shared.records).working_since.unwrap();
    assert!(!one.is_busy_at(now) && !other.is_busy_at(now));
    let later = now + BUSY_AFTER + Duration::from_millis(1);
    assert!(one.is_busy_at(later) && other.is_busy_at(later));
    for _ in 1..MAX_RECORDS {
        other.record(used(2)).unwrap();
    }
    assert!(one.is_busy_at(now), "the queue is full");
    assert_eq!((one.record(used(3)), other.record(used(3))), (Err(JournalError), Err(JournalError)));
    frozen.end(Ok(()));
    until_durable(&mut one, 1);
    assert_eq!(one.record(used(3)), Ok(()), "there is room for as many as became durable");
    assert_eq!(one.record(used(4)), Err(JournalError));
    let mut stored = 1;
    while stored <= MAX_RECORDS {
        other.flush().unwrap();
        let rest = next(&attempts);
        stored += rest.records.len();
        rest.end(Ok(()));
    }
    until_durable(&mut other, MAX_RECORDS as u64 - 1);
}

#[test]
fn slow_attempt_is_logged_once_a_minute_while_it_lasts() {
    let mut log = SlowLog::default();
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    assert!(!log.is_due(SLOW_AFTER - Duration::from_millis(1), at(1)));
    assert!(log.is_due(SLOW_AFTER, at(1)));
    let hung_for_an_hour = (2..3601).filter(|second| log.is_due(Duration::from_secs(*second), at(*second))).count();
    assert_eq!(hung_for_an_hour, 59);
    // The next attempt is logged if it takes longer, and so is the one after that.
    for second in [3550, 3560] {
        log.has_present = false;
        assert!(!log.is_due(SLOW_AFTER, at(second)));
        assert!(log.is_due(SLOW_AGAIN_AFTER, at(second + 2)));
        assert!(!log.is_due(SLOW_AGAIN_AFTER * 2, at(second + 5)), "once");
    }
    log.has_present = false;
    assert!(log.is_due(SLOW_AFTER, at(3622)));
}

#[test]
fn records_are_durable_before_expired_ones_are_removed() {
    let ((started, attempts), (tidying, rewrites)) = (channel(), channel());
    let mut shard = FileJournal::new(SlowDisk { started, tidying: Some(tidying) }).unwrap();
    shard.record(used(1)).unwrap();
    shard.flush().unwrap();
    next(&attempts).end(Ok(()));
    let end = next(&rewrites);
    // The rewrite cannot end before these calls.
    until_durable(&mut shard, 1);
    shard.record(used(2)).unwrap();
    assert_eq!(shard.flush(), Ok(1));
    assert!(shard.is_busy_at(Instant::now() + BUSY_AFTER), "a long rewrite takes no records");
    end.send(()).unwrap();
    next(&attempts).end(Ok(()));
    next(&rewrites).send(()).unwrap();
    until_durable(&mut shard, 2);
}

#[test]
fn the_last_journal_releases_the_disk_after_its_attempt() {
    for outcome in [Ok(()), Err(JournalError)] {
        let (mut one, other, attempts) = SlowDisk::of_two_shards();
        one.record(used(1)).unwrap();
        assert_eq!(one.flush(), Ok(0));
        let attempt = next(&attempts);
        drop(other);
        let shared = Arc::clone(&one.shared);
        let dropping = thread::spawn(|| drop(one));
        until(|| lock(&shared.records).is_closed);
        assert!(!dropping.is_finished(), "the attempt is not interrupted");
        attempt.end(outcome);
        dropping.join().unwrap();
        assert!(attempts.recv().is_err(), "the disk was dropped with its end of the channel");
    }
}

#[test]
fn last_journal_leaves_a_disk_that_hangs() {
    let (mut shard, attempts) = SlowDisk::journal();
    shard.record(used(1)).unwrap();
    assert_eq!(shard.flush(), Ok(0));
    next(&attempts).end(Ok(()));
    until_durable(&mut shard, 1);
    shard.record(used(2)).unwrap();
    assert_eq!(shard.flush(), Ok(1));
    let attempt = next(&attempts);
    let since = lock(&shard.shared.records).working_since.unwrap();
    let (ended, end) = channel();
    // The warning counts the records that are not durable.
    thread::spawn(move || ended.send(count_warnings("undurable=1", || drop(shard))));
    let (_, lines) = end.recv_timeout(MAX_WAIT).expect("the journal is dropped although its disk hangs");
    assert_eq!(lines, 1);
    assert!(since.elapsed() >= MAX_LAST_ATTEMPT, "the attempt was left after {:?}", since.elapsed());
    // The thread releases the disk when it responds.
    attempt.end(Ok(()));
    assert!(attempts.recv().is_err(), "the disk was dropped with its end of the channel");
}

/// Drops a journal on a disk that has hung for longer than the end may take. Returns how long the drop takes.
fn drop_with_a_hung_disk() -> Duration {
    let (mut shard, attempts) = SlowDisk::journal();
    shard.record(used(1)).unwrap();
    assert_eq!(shard.flush(), Ok(0));
    let attempt = next(&attempts);
    lock(&shard.shared.records).working_since = Instant::now().checked_sub(MAX_LAST_ATTEMPT);
    let (ended, end) = channel();
    thread::spawn(move || {
        let start = Instant::now();
        drop(shard);
        ended.send(start.elapsed())
    });
    let took = end.recv_timeout(MAX_WAIT).expect("the journal is dropped although its disk hangs");
    attempt.end(Ok(()));
    took
}

#[test]
fn last_journal_does_not_wait_for_a_disk_that_has_hung() {
    // A machine that pauses delays some drops. A journal that waits delays each.
    assert!((0..10).any(|_| drop_with_a_hung_disk() < MAX_LAST_ATTEMPT / 2), "the attempt has lasted for long enough");
}

#[test]
fn attempt_makes_the_journal_busy_after_half_a_second() {
    let start = Instant::now();
    let records = RecordQueue { working_since: Some(start), ..RecordQueue::new() };
    assert!(!records.is_busy(start) && !records.is_busy(start + BUSY_AFTER));
    assert!(records.is_busy(start + BUSY_AFTER + Duration::from_nanos(1)));
}

#[test]
fn log_says_that_the_disk_is_slow() {
    let (mut shard, attempts) = SlowDisk::journal();
    shard.record(used(1)).unwrap();
    shard.flush().unwrap();
    let attempt = attempts.recv().unwrap();
    let ask = |at| count_warnings("does not finish a write", || shard.is_busy_at(at));
    let start = lock(&shard.shared.records).working_since.unwrap();
    assert_eq!(ask(start), (false, 0));
    assert_eq!([1, 2].map(|count| ask(start + count * SLOW_AFTER)), [(true, 1), (true, 0)]);
    attempt.end(Ok(()));
}
