use std::thread;
use std::time::Duration;

use slipgate_netcode::crypto::digest::Digest;
use slipgate_netcode::time::UnixSeconds;

use super::*;

/// A disk with flushes that last until the test ends them.
pub(crate) struct SlowDisk {
    started: Sender<Sender<io::Result<()>>>,
}

impl SlowDisk {
    /// Returns a journal on such a disk, and its flushes.
    pub(crate) fn journal() -> (FileJournal, Receiver<Sender<io::Result<()>>>) {
        let (started, flushes) = channel();
        (FileJournal::new(Self { started }).unwrap(), flushes)
    }

    /// Returns the journals of two shards on one disk, and its flushes.
    fn of_two_shards() -> (FileJournal, FileJournal, Receiver<Sender<io::Result<()>>>) {
        let (one, flushes) = Self::journal();
        let other = one.for_another_shard();
        (one, other, flushes)
    }
}

impl Disk for SlowDisk {
    fn record(&mut self, _: UsedToken) -> Result<(), JournalError> {
        Ok(())
    }

    fn needs_rewrite(&self) -> bool {
        false
    }

    fn sync(&mut self) -> Result<SyncWork, JournalError> {
        let (end, ends) = channel();
        self.started.send(end).unwrap();
        Ok(Box::new(move || ends.recv().unwrap()))
    }

    fn on_synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError> {
        outcome.map_err(|_| JournalError)
    }
}

fn used(number: u8) -> UsedToken {
    UsedToken { name: Digest([number; 16]), expires: UnixSeconds(100) }
}

fn failure() -> io::Result<()> {
    Err(io::ErrorKind::Other.into())
}

/// Waits until the current flush has ended, and returns what the shard then reads.
fn settled(shard: &mut FileJournal) -> Result<u64, JournalError> {
    for _ in 0..10_000 {
        if lock(&shard.shared.state).is_flushing {
            thread::sleep(Duration::from_millis(1));
        } else {
            return shard.flush();
        }
    }
    panic!("the flush does not end");
}

#[test]
fn shards_do_not_wait_for_a_slow_flush() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    let end = flushes.recv().unwrap();
    // The flush cannot end before these calls: the test ends it below.
    other.record(used(2)).unwrap();
    assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    end.send(Ok(())).unwrap();
    assert_eq!(settled(&mut one), Ok(1));
    // The flush does not cover a record from after its start.
    assert_eq!(other.flush(), Ok(0));
    flushes.recv().unwrap().send(Ok(())).unwrap();
    assert_eq!(settled(&mut other), Ok(1));
    assert_eq!((one.flush(), other.flush()), (Ok(1), Ok(1)));
    assert!(flushes.try_recv().is_err(), "nothing is left to flush");
}

#[test]
fn records_during_each_flush_do_not_delay_earlier_ones() {
    let (mut shard, flushes) = SlowDisk::journal();
    shard.record(used(0)).unwrap();
    assert_eq!(shard.flush(), Ok(0));
    for number in 1..50 {
        let end = flushes.recv().unwrap();
        shard.record(used(number)).unwrap();
        end.send(Ok(())).unwrap();
        assert_eq!(settled(&mut shard), Ok(number.into()));
    }
}

#[test]
fn one_flush_covers_all_records_from_before_it() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    other.record(used(2)).unwrap();
    assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    flushes.recv().unwrap().send(Ok(())).unwrap();
    assert_eq!(settled(&mut one), Ok(1));
    assert_eq!(other.flush(), Ok(1));
    assert!(flushes.try_recv().is_err(), "there was one flush");
}

#[test]
fn a_failed_flush_is_reported_once_and_repeated() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    other.record(used(2)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    for _ in 0..3 {
        flushes.recv().unwrap().send(failure()).unwrap();
        assert_eq!(settled(&mut one), Err(JournalError));
        assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    }
    flushes.recv().unwrap().send(Ok(())).unwrap();
    assert_eq!(settled(&mut one), Ok(1));
    assert_eq!(other.flush(), Ok(1));
}

/// A disk on which starting a flush lasts until the test ends it, as when a file is rewritten.
struct BusyDisk {
    started: Sender<Sender<()>>,
}

impl Disk for BusyDisk {
    fn record(&mut self, _: UsedToken) -> Result<(), JournalError> {
        Ok(())
    }

    fn needs_rewrite(&self) -> bool {
        true
    }

    fn sync(&mut self) -> Result<SyncWork, JournalError> {
        let (end, ends) = channel();
        self.started.send(end).unwrap();
        ends.recv().unwrap();
        Ok(Box::new(|| Ok(())))
    }

    fn on_synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError> {
        outcome.map_err(|_| JournalError)
    }
}

#[test]
fn a_busy_disk_refuses_records_without_a_wait() {
    let (started, flushes) = channel();
    let mut shard = FileJournal::new(BusyDisk { started }).unwrap();
    shard.record(used(1)).unwrap();
    assert_eq!(shard.flush(), Ok(0));
    let end = flushes.recv().unwrap();
    assert!(shard.is_busy());
    assert_eq!((shard.record(used(2)), shard.flush()), (Err(JournalError), Ok(0)));
    end.send(()).unwrap();
    assert_eq!(settled(&mut shard), Ok(1));
    assert!(!shard.is_busy());
    assert_eq!(shard.record(used(2)), Ok(()));
}

#[test]
fn the_last_journal_releases_the_disk_after_its_flush() {
    let (mut one, other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    let end = flushes.recv().unwrap();
    drop(other);
    let dropping = thread::spawn(|| drop(one));
    end.send(Ok(())).unwrap();
    dropping.join().unwrap();
    assert!(flushes.recv().is_err(), "the disk was dropped with its end of the channel");
}
