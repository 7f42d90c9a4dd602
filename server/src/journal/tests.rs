use std::thread;
use std::time::Duration;

use slipgate_netcode::crypto::digest::Digest;
use slipgate_netcode::time::UnixSeconds;

use super::*;

/// A disk that is told how each of its flushes ends, and until then is at it.
pub(crate) struct SlowDisk {
    begun: Sender<Sender<io::Result<()>>>,
}

impl SlowDisk {
    /// A way to such a disk, and its flushes.
    pub(crate) fn journal() -> (FileJournal, Receiver<Sender<io::Result<()>>>) {
        let (begun, flushes) = channel();
        (FileJournal::new(Self { begun }).unwrap(), flushes)
    }

    /// Two shards' ways to one disk, and its flushes.
    fn of_two_shards() -> (FileJournal, FileJournal, Receiver<Sender<io::Result<()>>>) {
        let (one, flushes) = Self::journal();
        let other = one.another();
        (one, other, flushes)
    }
}

impl Disk for SlowDisk {
    fn record(&mut self, _: UsedToken) -> Result<(), JournalError> {
        Ok(())
    }

    fn is_due_for_more(&self) -> bool {
        false
    }

    fn sync(&mut self) -> Result<SyncWork, JournalError> {
        let (end, ends) = channel();
        self.begun.send(end).unwrap();
        Ok(Box::new(move || ends.recv().unwrap()))
    }

    fn synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError> {
        outcome.map_err(|_| JournalError)
    }
}

fn used(number: u8) -> UsedToken {
    UsedToken { name: Digest([number; 16]), expires: UnixSeconds(100) }
}

fn failure() -> io::Result<()> {
    Err(io::ErrorKind::Other.into())
}

/// What a shard hears when the flush under way has ended.
fn settled(shard: &mut FileJournal) -> Result<u64, JournalError> {
    for _ in 0..10_000 {
        if lock(&shard.shared.written).flushing {
            thread::sleep(Duration::from_millis(1));
        } else {
            return shard.flush();
        }
    }
    panic!("the flush does not end");
}

#[test]
fn while_a_slow_disk_flushes_nobody_waits_for_it() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    let end = flushes.recv().unwrap();
    // The flush does not end before these have: it is told below.
    other.record(used(2)).unwrap();
    assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    end.send(Ok(())).unwrap();
    assert_eq!(settled(&mut one), Ok(1));
    // What came after its beginning is not durable by that flush.
    assert_eq!(other.flush(), Ok(0));
    flushes.recv().unwrap().send(Ok(())).unwrap();
    assert_eq!(settled(&mut other), Ok(1));
    assert_eq!((one.flush(), other.flush()), (Ok(1), Ok(1)));
    assert!(flushes.try_recv().is_err(), "nothing is left to flush");
}

#[test]
fn with_a_newcomer_in_every_flush_those_before_are_durable_all_the_same() {
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
fn one_flush_is_for_all_that_was_recorded_before_it() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    other.record(used(2)).unwrap();
    assert_eq!((one.flush(), other.flush()), (Ok(0), Ok(0)));
    flushes.recv().unwrap().send(Ok(())).unwrap();
    assert_eq!(settled(&mut one), Ok(1));
    assert_eq!(other.flush(), Ok(1));
    assert!(flushes.try_recv().is_err(), "the disk was asked once");
}

#[test]
fn a_flush_that_fails_makes_nothing_durable_for_anybody_is_told_once_and_tried_again() {
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

/// A disk on which to begin a flush takes as long as it is told, as one does that writes its file anew.
struct BusyDisk {
    begun: Sender<Sender<()>>,
}

impl Disk for BusyDisk {
    fn record(&mut self, _: UsedToken) -> Result<(), JournalError> {
        Ok(())
    }

    fn is_due_for_more(&self) -> bool {
        true
    }

    fn sync(&mut self) -> Result<SyncWork, JournalError> {
        let (end, ends) = channel();
        self.begun.send(end).unwrap();
        ends.recv().unwrap();
        Ok(Box::new(|| Ok(())))
    }

    fn synced(&mut self, outcome: io::Result<()>) -> Result<(), JournalError> {
        outcome.map_err(|_| JournalError)
    }
}

#[test]
fn a_busy_disk_takes_no_records_and_keeps_nobody_waiting() {
    let (begun, flushes) = channel();
    let mut shard = FileJournal::new(BusyDisk { begun }).unwrap();
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
fn with_the_last_way_to_it_a_disk_is_let_go_and_what_was_begun_is_done() {
    let (mut one, other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    assert_eq!(one.flush(), Ok(0));
    let end = flushes.recv().unwrap();
    drop(other);
    let dropping = thread::spawn(|| drop(one));
    end.send(Ok(())).unwrap();
    dropping.join().unwrap();
    assert!(flushes.recv().is_err(), "the disk is gone, and its end of the channel with it");
}
