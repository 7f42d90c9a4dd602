use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use slipgate_protocol::crypto::digest::Digest;
use slipgate_protocol::time::UnixSeconds;

use super::*;

/// A disk that is told how each of its flushes ends, and until then is at it.
struct SlowDisk {
    begun: Sender<Sender<io::Result<()>>>,
}

impl SlowDisk {
    /// Two shards' ways to one disk, and its flushes.
    fn of_two_shards() -> (SharedJournal, SharedJournal, Receiver<Sender<io::Result<()>>>) {
        let (begun, flushes) = channel();
        let written = Written::new(Self { begun });
        (SharedJournal::new(&written), SharedJournal::new(&written), flushes)
    }
}

impl Journal for SlowDisk {
    fn record(&mut self, _: UsedToken) -> Result<(), JournalError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<Flushed, JournalError> {
        panic!("shards flush in steps")
    }
}

impl Disk for SlowDisk {
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

/// Flushes a shard's journal in a thread of its own, which ends when the disk is told so.
fn flush(mut shard: SharedJournal) -> thread::JoinHandle<(SharedJournal, Result<Flushed, JournalError>)> {
    thread::spawn(move || {
        let flushed = shard.flush();
        (shard, flushed)
    })
}

#[test]
fn while_one_shard_flushes_a_slow_disk_others_record_and_wait_for_nothing() {
    let (mut slow, mut other, flushes) = SlowDisk::of_two_shards();
    slow.record(used(1)).unwrap();
    let flushing = flush(slow);
    let end = flushes.recv().unwrap();
    // The flush does not end before these have: it is told below.
    assert_eq!(other.flush(), Ok(Flushed::All), "it has recorded nothing");
    other.record(used(2)).unwrap();
    assert_eq!(other.flush(), Ok(Flushed::NotYet));
    end.send(Ok(())).unwrap();
    assert_eq!(flushing.join().unwrap().1, Ok(Flushed::All));
    // What came after its beginning is not durable by that flush.
    let flushing = flush(other);
    flushes.recv().unwrap().send(Ok(())).unwrap();
    assert_eq!(flushing.join().unwrap().1, Ok(Flushed::All));
}

#[test]
fn one_flush_is_for_all_that_was_recorded_before_it() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    other.record(used(2)).unwrap();
    let flushing = flush(one);
    let end = flushes.recv().unwrap();
    assert_eq!(other.flush(), Ok(Flushed::NotYet));
    end.send(Ok(())).unwrap();
    let (mut one, flushed) = flushing.join().unwrap();
    assert_eq!((flushed, one.flush(), other.flush()), (Ok(Flushed::All), Ok(Flushed::All), Ok(Flushed::All)));
    assert!(flushes.try_recv().is_err(), "the disk was asked once");
}

#[test]
fn a_flush_that_fails_makes_nothing_durable_for_anybody() {
    let (mut one, mut other, flushes) = SlowDisk::of_two_shards();
    one.record(used(1)).unwrap();
    other.record(used(2)).unwrap();
    let flushing = flush(one);
    flushes.recv().unwrap().send(Err(io::ErrorKind::Other.into())).unwrap();
    let (one, flushed) = flushing.join().unwrap();
    assert_eq!(flushed, Err(JournalError));
    for shard in [one, other] {
        let flushing = flush(shard);
        flushes.recv().unwrap().send(Err(io::ErrorKind::Other.into())).unwrap();
        assert_eq!(flushing.join().unwrap().1, Err(JournalError));
    }
}
