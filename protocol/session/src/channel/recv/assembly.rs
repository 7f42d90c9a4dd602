//! Messages of which some slices have arrived.

use alloc::vec::Vec;
use core::time::Duration;

use crate::channel::chunks::{ChunkList, ChunkPool, Credit};
use crate::channel::wire::message_id::MessageId;
use crate::channel::wire::pieces::{PIECE_BYTES, PieceSet, pieces_of};
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// How long a message that is sent once waits for its next slice (Fiedler, "Reliability, Ordering and Congestion
/// Avoidance over UDP").
const SLICE_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of incomplete messages of an unreliable or sequenced channel. A newer one displaces the oldest.
const MAX_PARTIALS: usize = 16;
/// The maximum bytes of incomplete messages on such a channel, in messages of the maximum size.
const MAX_PARTIAL_MESSAGES: u64 = 4;

/// The slices of a message.
pub(crate) struct MessageAssembly {
    pub(crate) bytes: u32,
    pub(crate) chunks: ChunkList,
    received: PieceSet,
    missing: u16,
    /// Whether its memory is from the overdraft of the pool.
    overdrawn: bool,
}

/// The state of a message after a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AssemblyProgress {
    Waiting,
    Complete,
    NoMemory,
}

impl MessageAssembly {
    pub(crate) fn new(bytes: u32) -> Self {
        let (chunks, received, missing) = (ChunkList::default(), PieceSet::default(), pieces_of(bytes));
        Self { bytes, chunks, received, missing, overdrawn: false }
    }

    /// Returns whether the message is in the overdraft, which has memory for all of it.
    pub(crate) const fn is_overdrawn(&self) -> bool {
        self.overdrawn
    }

    /// Returns the credit for pieces of the oldest missing message of a channel. While the shared budget is exhausted,
    /// it moves to the overdraft if that has room.
    pub(crate) fn credit_as_oldest(&mut self, new_pieces: usize, pool: &mut ChunkPool) -> Credit {
        let pieces = pieces_of(self.bytes);
        if !self.overdrawn && !pool.fits(new_pieces, 0) {
            self.overdrawn = pool.begin_overdraft(pieces, pieces - self.missing);
        }
        if self.overdrawn { Credit::Overdraft } else { Credit::Checked }
    }

    /// Returns the stored pieces, which the caller releases. They are not in the overdraft any more.
    pub(crate) fn into_chunks(self, pool: &mut ChunkPool) -> ChunkList {
        if self.overdrawn {
            let pieces = pieces_of(self.bytes);
            pool.end_overdraft(pieces, pieces - self.missing);
        }
        self.chunks
    }

    /// Returns how many pieces are missing.
    pub(crate) const fn missing(&self) -> u16 {
        self.missing
    }

    /// Returns whether a piece is missing.
    pub(crate) fn is_missing(&self, piece: u16) -> bool {
        !self.received.has(piece)
    }

    /// Stores the pieces of a slice that are new.
    pub(crate) fn add(&mut self, first: u16, data: &[u8], pool: &mut ChunkPool, credit: Credit) -> AssemblyProgress {
        for (piece, data) in (first..).zip(data.chunks(PIECE_BYTES)) {
            // A retransmitted slice may overlap with others.
            if self.received.has(piece) {
                continue;
            }
            if !pool.append(&mut self.chunks, piece, data, credit) {
                return AssemblyProgress::NoMemory;
            }
            self.received.insert(piece);
            self.missing -= 1;
        }
        if self.missing == 0 { AssemblyProgress::Complete } else { AssemblyProgress::Waiting }
    }
}

/// An incomplete message that is sent once.
struct PartialMessage {
    id: MessageId,
    latest: Instant,
    assembly: MessageAssembly,
}

/// The incomplete messages of one unreliable or sequenced channel, the one with the oldest slice first.
pub(crate) struct PartialMessages {
    list: Vec<PartialMessage>,
}

/// A slice of a message that is sent once.
pub(crate) struct MessageSlice<'a> {
    pub(crate) id: MessageId,
    pub(crate) bytes: u32,
    pub(crate) first: u16,
    pub(crate) data: &'a [u8],
}

impl PartialMessages {
    pub(crate) const fn new() -> Self {
        Self { list: Vec::new() }
    }

    /// Stores a slice. Returns the message if the slice completes it, and how many messages were discarded for it.
    pub(crate) fn add(
        &mut self,
        slice: &MessageSlice<'_>,
        max_message_bytes: u32,
        pool: &mut ChunkPool,
        now: Instant,
    ) -> (Option<MessageAssembly>, u64) {
        // Room first: discarding may remove the message of this slice if its size changed.
        let mut discarded = self.make_room(slice, max_message_bytes, pool);
        self.move_to_end(slice, now);
        let partial = self.list.last_mut().must_exist("the message of the slice");
        let Some(partial) = partial else { return (None, discarded) };
        partial.latest = now;
        let mut progress = partial.assembly.add(slice.first, slice.data, pool, Credit::No);
        // The shared budget is exhausted: older messages are less likely to complete. The slice's own message is last.
        if progress == AssemblyProgress::NoMemory {
            discarded += self.discard_all_but_last(pool);
            let again = |partial: &mut PartialMessage| partial.assembly.add(slice.first, slice.data, pool, Credit::No);
            progress = self.list.last_mut().map_or(AssemblyProgress::NoMemory, again);
        }
        match progress {
            AssemblyProgress::Waiting => (None, discarded),
            AssemblyProgress::Complete => (self.list.pop().map(|partial| partial.assembly), discarded),
            AssemblyProgress::NoMemory => (None, discarded + self.discard_first(pool)),
        }
    }

    /// Discards the messages for which `is_hopeless` returns true. Returns how many there were.
    pub(crate) fn discard_if(
        &mut self,
        pool: &mut ChunkPool,
        mut is_hopeless: impl FnMut(MessageId, Instant) -> bool,
    ) -> u64 {
        let before = self.list.len();
        self.list.retain_mut(|partial| {
            let discard = is_hopeless(partial.id, partial.latest);
            if discard {
                pool.release(core::mem::take(&mut partial.assembly.chunks));
            }
            !discard
        });
        (before - self.list.len()) as u64
    }

    /// Discards messages with a latest slice older than [`SLICE_TIMEOUT`]. Returns how many there were.
    pub(crate) fn tick(&mut self, now: Instant, pool: &mut ChunkPool) -> u64 {
        if self.list.is_empty() { 0 } else { self.discard_if(pool, |_, latest| now.reached(latest, SLICE_TIMEOUT)) }
    }

    /// Discards old messages if the slice belongs to a new one that would exceed the limits. Returns how many there
    /// were.
    fn make_room(&mut self, slice: &MessageSlice<'_>, max_message_bytes: u32, pool: &mut ChunkPool) -> u64 {
        if self.list.iter().any(|partial| partial.id == slice.id && partial.assembly.bytes == slice.bytes) {
            return 0;
        }
        // Another size under the same id: the ids have wrapped since, and the old message is lost.
        let mut discarded = self.discard_if(pool, |id, _| id == slice.id);
        let bytes = |list: &[PartialMessage]| list.iter().map(|partial| u64::from(partial.assembly.bytes)).sum::<u64>();
        let max_bytes = u64::from(max_message_bytes) * MAX_PARTIAL_MESSAGES;
        while self.list.len() >= MAX_PARTIALS || bytes(&self.list) + u64::from(slice.bytes) > max_bytes {
            discarded += self.discard_first(pool);
        }
        discarded
    }

    /// Moves the slice's message to the end of the list, or adds it there.
    fn move_to_end(&mut self, slice: &MessageSlice<'_>, now: Instant) {
        let index = self.list.iter().position(|partial| partial.id == slice.id);
        match index.and_then(|index| self.list.get_mut(index..)) {
            // The rotation keeps the order of the others.
            Some(behind) => behind.rotate_left(1),
            None => {
                let assembly = MessageAssembly::new(slice.bytes);
                self.list.push(PartialMessage { id: slice.id, latest: now, assembly });
            }
        }
    }

    fn discard_first(&mut self, pool: &mut ChunkPool) -> u64 {
        let mut first = true;
        self.discard_if(pool, |_, _| core::mem::take(&mut first))
    }

    fn discard_all_but_last(&mut self, pool: &mut ChunkPool) -> u64 {
        // Counts down to the last one.
        let mut left = self.list.len();
        self.discard_if(pool, |_, _| {
            left -= 1;
            left > 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliability::MemoryBudget;

    const LIMIT: u32 = 16 * 1024;

    fn at(millis: u64) -> Instant {
        Instant::from_start(Duration::from_millis(millis))
    }

    /// Adds pieces from the start of a message of this many pieces. Returns whether it is complete, and how many
    /// messages were discarded.
    fn add(partials: &mut PartialMessages, pool: &mut ChunkPool, id: u32, pieces: usize, of: u32) -> (bool, u64) {
        let data = alloc::vec![7; pieces * PIECE_BYTES];
        let slice = MessageSlice { id: MessageId::new(id), bytes: of * PIECE_BYTES as u32, first: 0, data: &data };
        let (complete, discarded) = partials.add(&slice, LIMIT, pool, at(0));
        let is_complete = complete.is_some();
        complete.into_iter().for_each(|assembly| pool.release(assembly.chunks));
        (is_complete, discarded)
    }

    /// Returns a pool that has its reserve alone, and the chunks of that.
    fn small_pool() -> (ChunkPool, usize) {
        let pool = ChunkPool::new(Some(MemoryBudget::new(0)));
        let chunks = pool.available(usize::MAX);
        (pool, chunks)
    }

    #[test]
    fn older_messages_give_way_when_memory_is_scarce() {
        let (mut pool, chunks) = small_pool();
        let mut partials = PartialMessages::new();
        assert_eq!(add(&mut partials, &mut pool, 1, 10, 11), (false, 0));
        assert_eq!(add(&mut partials, &mut pool, 2, chunks - 10, 40), (false, 0), "the memory is full");
        assert_eq!(add(&mut partials, &mut pool, 3, 5, 6), (false, 2));
        assert_eq!(partials.list.iter().map(|partial| partial.id).collect::<Vec<_>>(), [MessageId::new(3)]);
        assert_eq!(pool.available(usize::MAX), chunks - 5);
    }

    #[test]
    fn oldest_message_gives_way_at_each_limit() {
        let (mut pool, mut partials) = (ChunkPool::new(None), PartialMessages::new());
        for id in 0..MAX_PARTIALS as u32 {
            assert_eq!(add(&mut partials, &mut pool, id, 1, 2), (false, 0));
        }
        assert_eq!(add(&mut partials, &mut pool, 0, 1, 2), (false, 0), "a slice of a known message");
        assert_eq!(add(&mut partials, &mut pool, 100, 1, 2), (false, 1), "the seventeenth message");
        assert_eq!(partials.list.first().map(|oldest| oldest.id), Some(MessageId::new(2)), "0 was used later than 1");

        let (mut pool, mut partials) = (ChunkPool::new(None), PartialMessages::new());
        let pieces = LIMIT / PIECE_BYTES as u32;
        for id in 0..MAX_PARTIAL_MESSAGES as u32 {
            assert_eq!(add(&mut partials, &mut pool, id, 1, pieces), (false, 0), "four of the maximum size");
        }
        assert_eq!(add(&mut partials, &mut pool, 4, 1, pieces), (false, 1), "the fifth");
        assert_eq!(add(&mut partials, &mut pool, 5, 1, 2), (false, 1), "a small one");
        assert_eq!(add(&mut partials, &mut pool, 5, 1, 3), (false, 1), "another size under the same id");
        assert_eq!(partials.list.len(), 4);
    }

    #[test]
    fn message_is_discarded_a_second_after_its_latest_slice() {
        let (mut pool, mut partials) = (ChunkPool::new(None), PartialMessages::new());
        assert_eq!(partials.tick(at(5000), &mut pool), 0);
        add(&mut partials, &mut pool, 1, 1, 2);
        add(&mut partials, &mut pool, 2, 1, 2);
        assert_eq!((partials.tick(at(999), &mut pool), partials.tick(at(1000), &mut pool)), (0, 2));
        assert!(partials.list.is_empty());
    }

    #[test]
    fn message_larger_than_the_memory_is_discarded_itself() {
        let (mut pool, chunks) = small_pool();
        let mut partials = PartialMessages::new();
        assert_eq!(add(&mut partials, &mut pool, 1, 10, 11), (false, 0));
        assert_eq!(add(&mut partials, &mut pool, 2, chunks + 1, 40), (false, 2));
        assert_eq!((partials.list.len(), pool.available(usize::MAX)), (0, chunks));
    }
}
