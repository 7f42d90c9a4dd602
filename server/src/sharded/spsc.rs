//! A bounded single-producer, single-consumer queue between two threads: entries in one ring, their bytes in another.
//!
//! ```text
//!   entries   [ Payload, 100 bytes ][ Disconnected ][ Payload, 30 bytes ] …
//!   bytes     [ 100 bytes …        ][ 30 bytes … ] …
//! ```
//!
//! Both rings are allocated once. A push or a pop takes no lock and no memory. The bytes are written before their
//! entry, so the consumer never sees an entry without them.

use rtrb::{Consumer, Producer, RingBuffer};

/// An entry with a number of bytes beside it.
pub(super) trait QueueEntry: Send {
    fn byte_count(&self) -> usize;
}

/// The producer's end.
pub(super) struct QueueProducer<E> {
    entries: Producer<E>,
    bytes: Producer<u8>,
}

/// The consumer's end.
pub(super) struct QueueConsumer<E> {
    entries: Consumer<E>,
    bytes: Consumer<u8>,
    /// The bytes of the entry that was popped last.
    body: Vec<u8>,
}

/// A lower bound on what a queue still takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueueCapacity {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

impl QueueCapacity {
    pub(super) const ZERO: Self = Self { entries: 0, bytes: 0 };

    /// Returns whether an entry with this many bytes fits and leaves `reserve` free.
    pub(super) const fn fits(self, bytes: usize, reserve: Self) -> bool {
        self.entries > reserve.entries && self.bytes >= bytes.saturating_add(reserve.bytes)
    }
}

/// Creates a queue for this many entries and bytes.
pub(super) fn queue<E: QueueEntry>(entries: usize, bytes: usize) -> (QueueProducer<E>, QueueConsumer<E>) {
    let (entries_in, entries_out) = RingBuffer::new(entries);
    let (bytes_in, bytes_out) = RingBuffer::new(bytes);
    let producer = QueueProducer { entries: entries_in, bytes: bytes_in };
    (producer, QueueConsumer { entries: entries_out, bytes: bytes_out, body: Vec::new() })
}

impl<E: QueueEntry> QueueProducer<E> {
    pub(super) fn capacity(&self) -> QueueCapacity {
        QueueCapacity { entries: self.entries.slots(), bytes: self.bytes.slots() }
    }

    /// Returns an upper bound of the number of queued entries.
    pub(super) fn len(&self) -> usize {
        self.entries.buffer().capacity() - self.entries.slots()
    }

    /// Returns the capacity of the empty queue.
    pub(super) fn max_capacity(&self) -> QueueCapacity {
        QueueCapacity { entries: self.entries.buffer().capacity(), bytes: self.bytes.buffer().capacity() }
    }

    /// Pushes an entry with its bytes, both or neither. Returns whether they fitted.
    pub(super) fn push(&mut self, entry: E, body: &[u8]) -> bool {
        debug_assert_eq!(entry.byte_count(), body.len(), "an entry states its number of bytes");
        if self.entries.slots() == 0 {
            return false;
        }
        let Ok(mut chunk) = self.bytes.write_chunk(body.len()) else { return false };
        // The chunk is in two parts where it wraps around the end of the ring.
        let (front, back) = chunk.as_mut_slices();
        let (first, second) = body.split_at(front.len().min(body.len()));
        front.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
        back.iter_mut().zip(second).for_each(|(to, from)| *to = *from);
        chunk.commit_all();
        let is_pushed = self.entries.push(entry).is_ok();
        debug_assert!(is_pushed, "there is no other producer");
        is_pushed
    }

    /// Returns whether the consumer was dropped.
    pub(super) fn is_abandoned(&self) -> bool {
        self.entries.is_abandoned()
    }
}

impl<E: QueueEntry> QueueConsumer<E> {
    /// Returns a lower bound on the number of queued entries.
    pub(super) fn len(&self) -> usize {
        self.entries.slots()
    }

    /// Pops the next entry. [`body`](Self::body) returns its bytes until the next call.
    pub(super) fn pop(&mut self) -> Option<E> {
        let entry = self.entries.pop().ok()?;
        self.body.clear();
        let chunk = self.bytes.read_chunk(entry.byte_count());
        debug_assert!(chunk.is_ok(), "bytes are pushed before their entry");
        if let Ok(chunk) = chunk {
            let (front, back) = chunk.as_slices();
            self.body.extend_from_slice(front);
            self.body.extend_from_slice(back);
            chunk.commit_all();
        }
        Some(entry)
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Number(u32, usize);

    impl QueueEntry for Number {
        fn byte_count(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn a_refused_entry_leaves_nothing_and_a_pop_frees_capacity() {
        let (mut producer, mut consumer) = queue(3, 10);
        assert!(producer.push(Number(1, 6), b"first!") && !producer.push(Number(2, 6), b"second"), "10 bytes");
        assert!(producer.push(Number(3, 0), b"") && producer.push(Number(4, 4), b"last"));
        assert!(!producer.push(Number(5, 0), b""), "3 entries");
        assert_eq!(producer.capacity(), QueueCapacity::ZERO);
        let mut pop = |expected: (u32, &[u8])| {
            let number = consumer.pop().unwrap().0;
            assert_eq!((number, consumer.body()), expected);
        };
        pop((1, b"first!"));
        assert!(producer.push(Number(6, 5), b"turns"), "bytes that wrap around the ring's end");
        pop((3, b""));
        pop((4, b"last"));
        pop((6, b"turns"));
        assert!(consumer.pop().is_none() && !producer.is_abandoned());
        drop(consumer);
        assert!(producer.is_abandoned());
    }

    #[test]
    fn two_threads_pass_every_entry_in_order_with_its_bytes() {
        let (mut producer, mut consumer) = queue(16, 300);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let bytes = [7_u8; 100];
                for number in 0..20_000_u32 {
                    let length = (number % 101) as usize;
                    while !producer.push(Number(number, length), &bytes[..length]) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < 20_000 {
                let Some(Number(number, length)) = consumer.pop() else {
                    std::thread::yield_now();
                    continue;
                };
                assert_eq!((number, consumer.body().len()), (next, length));
                next += 1;
            }
        });
    }
}
