//! One direction between two threads: entries in a ring, and the bytes that go with them in another.
//!
//! ```text
//!   entries   [ Payload, 100 bytes ][ Disconnected ][ Payload, 30 bytes ] …
//!   bytes     [ 100 bytes …        ][ 30 bytes … ] …
//! ```
//!
//! Both are bounded, made once, and have one writer and one reader: no lock, and no memory is asked for per entry. Bytes
//! are there before their entry is.

use rtrb::{Consumer, Producer, RingBuffer};

/// An entry, which says how many bytes go with it.
pub(super) trait Entry: Send {
    fn bytes(&self) -> usize;
}

/// Where entries go in.
pub(super) struct Inlet<E> {
    entries: Producer<E>,
    bytes: Producer<u8>,
}

/// Where they come out.
pub(super) struct Outlet<E> {
    entries: Consumer<E>,
    bytes: Consumer<u8>,
    /// The bytes of the entry that came out last.
    body: Vec<u8>,
}

/// What still goes in, at least.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Room {
    pub(super) entries: usize,
    pub(super) bytes: usize,
}

impl Room {
    /// Whether an entry with so many bytes goes in, and this much is left.
    pub(super) const fn takes(self, bytes: usize, left: Self) -> bool {
        self.entries > left.entries && self.bytes >= bytes.saturating_add(left.bytes)
    }
}

/// Nothing need be left.
pub(super) const NOTHING: Room = Room { entries: 0, bytes: 0 };

/// A direction with room for so many entries and bytes.
pub(super) fn lane<E: Entry>(entries: usize, bytes: usize) -> (Inlet<E>, Outlet<E>) {
    let (entries_in, entries_out) = RingBuffer::new(entries);
    let (bytes_in, bytes_out) = RingBuffer::new(bytes);
    let inlet = Inlet { entries: entries_in, bytes: bytes_in };
    (inlet, Outlet { entries: entries_out, bytes: bytes_out, body: Vec::new() })
}

impl<E: Entry> Inlet<E> {
    pub(super) fn room(&self) -> Room {
        Room { entries: self.entries.slots(), bytes: self.bytes.slots() }
    }

    /// Puts in an entry and its bytes, both or none. Answers whether there was room.
    pub(super) fn put(&mut self, entry: E, body: &[u8]) -> bool {
        debug_assert_eq!(entry.bytes(), body.len(), "an entry says how many bytes it has");
        if self.entries.slots() == 0 {
            return false;
        }
        let Ok(mut room) = self.bytes.write_chunk(body.len()) else { return false };
        let (front, back) = room.as_mut_slices();
        let (first, second) = body.split_at(front.len().min(body.len()));
        front.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
        back.iter_mut().zip(second).for_each(|(to, from)| *to = *from);
        room.commit_all();
        let is_in = self.entries.push(entry).is_ok();
        debug_assert!(is_in, "nobody else puts entries in");
        is_in
    }

    /// Whether nobody will take anything out any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.entries.is_abandoned()
    }
}

impl<E: Entry> Outlet<E> {
    /// How many entries wait, at least.
    pub(super) fn waiting(&self) -> usize {
        self.entries.slots()
    }

    /// Takes the next entry out; its bytes are those of [`body`](Self::body) until the next one is taken.
    pub(super) fn take(&mut self) -> Option<E> {
        let entry = self.entries.pop().ok()?;
        self.body.clear();
        let chunk = self.bytes.read_chunk(entry.bytes());
        debug_assert!(chunk.is_ok(), "bytes are there before their entry");
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

    impl Entry for Number {
        fn bytes(&self) -> usize {
            self.1
        }
    }

    #[test]
    fn what_finds_no_room_leaves_nothing_behind_and_what_is_taken_makes_room() {
        let (mut inlet, mut outlet) = lane(3, 10);
        assert!(inlet.put(Number(1, 6), b"first!") && !inlet.put(Number(2, 6), b"second"), "10 bytes");
        assert!(inlet.put(Number(3, 0), b"") && inlet.put(Number(4, 4), b"last"));
        assert!(!inlet.put(Number(5, 0), b""), "3 entries");
        assert_eq!(inlet.room(), NOTHING);
        let mut take = |expected: (u32, &[u8])| {
            let number = outlet.take().unwrap().0;
            assert_eq!((number, outlet.body()), expected);
        };
        take((1, b"first!"));
        assert!(inlet.put(Number(6, 5), b"turns"), "bytes that go around the ring's end");
        take((3, b""));
        take((4, b"last"));
        take((6, b"turns"));
        assert!(outlet.take().is_none() && !inlet.is_abandoned());
        drop(outlet);
        assert!(inlet.is_abandoned());
    }

    #[test]
    fn two_threads_pass_every_entry_on_in_order_with_its_bytes() {
        let (mut inlet, mut outlet) = lane(16, 300);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let bytes = [7_u8; 100];
                for number in 0..20_000_u32 {
                    let length = (number % 101) as usize;
                    while !inlet.put(Number(number, length), &bytes[..length]) {
                        std::thread::yield_now();
                    }
                }
            });
            let mut next = 0;
            while next < 20_000 {
                let Some(Number(number, length)) = outlet.take() else {
                    std::thread::yield_now();
                    continue;
                };
                assert_eq!((number, outlet.body().len()), (next, length));
                next += 1;
            }
        });
    }
}
