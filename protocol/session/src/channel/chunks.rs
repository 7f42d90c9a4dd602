//! Memory for messages: chunks of one size, which are reused and not freed while traffic lasts.
//!
//! A chunk holds one piece of a message (§3.4). A pool belongs to one connection; several pools may draw on one shared
//! [`MemoryBudget`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::channel::shared::SharedMessage;
use crate::channel::slab::{EntrySlab, entry_index};
use crate::channel::wire::pieces::{MAX_PIECES, PIECE_BYTES};
use crate::reliability::MemoryBudget;
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// Chunks of one allocation.
const GROUP: usize = 8;
/// Bytes of a group in the shared budget.
const GROUP_BYTES: usize = GROUP * size_of::<Chunk>();
/// Chunks that each pool may use outside the shared budget, so that a connection can repair its losses even while
/// others hold all of the budget.
const RESERVE: usize = 32;
/// Chunks of messages that each pool may take in addition, while the shared budget is exhausted: one message of the
/// largest size. Only the oldest missing messages of channels take them, each as a whole, so that it completes.
const OVERDRAFT: usize = MAX_PIECES as usize;
/// Bytes of memory for received data that each connection may take outside the budget that it shares with others.
pub const RESERVE_BYTES: usize = RESERVE * size_of::<Chunk>();
/// Bytes of lists that each pool may take outside the shared budget, of all channels together: those of 1,000 messages
/// behind a gap, or of 180 incomplete ones.
const LIST_RESERVE: usize = 16 << 10;
/// How long unused memory is kept after its last use.
pub(crate) const RETENTION: Duration = Duration::from_secs(10);
/// The end of a list.
const NO_CHUNK: u32 = u32::MAX;
/// The first index of a list that refers to a [`SharedMessage`]: `last` is its index in the slab.
const SHARED: u32 = u32::MAX - 1;
/// The maximum number of shared messages in one pool. Further ones are copied.
const MAX_SHARED: usize = 1 << 14;

#[derive(Clone, Copy)]
struct Chunk {
    next: u32,
    /// The piece's number in its message.
    number: u16,
    bytes: u8,
    data: [u8; PIECE_BYTES],
}

const EMPTY: Chunk = Chunk { next: NO_CHUNK, number: 0, bytes: 0, data: [0; PIECE_BYTES] };

/// The chunks of one message in the order in which they were stored, or a reference to a shared message. It must be
/// released to its pool.
#[derive(Debug)]
pub(crate) struct ChunkList {
    first: u32,
    last: u32,
}

impl Default for ChunkList {
    fn default() -> Self {
        Self { first: NO_CHUNK, last: NO_CHUNK }
    }
}

/// Whether a pool may take more memory than the shared budget has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credit {
    No,
    /// Allowed: the whole packet was checked, or the pool has no shared budget, as those of sent messages.
    Checked,
    /// Allowed: the message has taken its chunks from the overdraft.
    Overdraft,
}

entry_index! {
    /// The place of a shared message among those of its pool.
    ReferenceIndex
}

/// A pool of chunks.
pub(crate) struct ChunkPool {
    #[expect(clippy::vec_box, reason = "a pool that grows moves no chunk and reserves no further groups")]
    groups: Vec<Box<[Chunk; GROUP]>>,
    /// Messages that are referenced instead of copied. Their bytes belong to the application.
    references: EntrySlab<ReferenceIndex, SharedMessage>,
    free: u32,
    /// Chunks in use, without those of messages in the overdraft.
    used: usize,
    /// Chunks of the messages in the overdraft, missing pieces included.
    overdraft: usize,
    last_use: Instant,
    budget: Option<MemoryBudget>,
    /// Groups that are charged to the shared budget: the maximum that was in use at once beyond the reserve. Groups
    /// of the overdraft are not among them, and stay unused until the next one.
    taken: usize,
    /// Bytes of the lists of received messages.
    list_bytes: usize,
    /// Bytes of frames in flight that are charged to the shared budget.
    frame_bytes: usize,
    /// The bytes of lists that are allowed: the reserve, and what is charged to the shared budget for them.
    allowed_list_bytes: usize,
}

impl ChunkPool {
    /// Creates an empty pool that takes its memory from a budget shared with others, if there is one.
    pub(crate) fn new(budget: Option<MemoryBudget>) -> Self {
        let (groups, references) = (Vec::new(), EntrySlab::new());
        Self {
            groups,
            references,
            free: NO_CHUNK,
            used: 0,
            overdraft: 0,
            last_use: Instant::default(),
            budget,
            taken: 0,
            list_bytes: 0,
            frame_bytes: 0,
            allowed_list_bytes: LIST_RESERVE,
        }
    }

    /// Stores a copy of a message. Returns `None` if there is no memory.
    pub(crate) fn store(&mut self, message: &[u8], credit: Credit) -> Option<ChunkList> {
        let mut list = ChunkList::default();
        // One chunk for each piece, so that a slice can be copied without searching inside chunks.
        for (number, data) in (0..).zip(message.chunks(PIECE_BYTES)) {
            if !self.append(&mut list, number, data, credit) {
                // All or nothing: a message is never stored in part.
                self.release(list);
                return None;
            }
        }
        Some(list)
    }

    /// Stores a reference to a shared message, or a copy if the pool holds [`MAX_SHARED`] references.
    pub(crate) fn store_shared(&mut self, message: &SharedMessage) -> Option<ChunkList> {
        if self.references.len() >= MAX_SHARED {
            return self.store(message.bytes(), Credit::Checked);
        }
        let index = self.references.insert(message.clone());
        Some(ChunkList { first: SHARED, last: index.0.into() })
    }

    /// Appends a piece of a message, at most [`PIECE_BYTES`]. Returns false if there is no memory.
    pub(crate) fn append(&mut self, list: &mut ChunkList, number: u16, data: &[u8], credit: Credit) -> bool {
        let Some(index) = self.take(credit) else { return false };
        if let Some(chunk) = self.chunk_mut(index).must_exist("a chunk that was free") {
            chunk.number = number;
            chunk.bytes = data.len().min(PIECE_BYTES) as u8;
            chunk.data.iter_mut().zip(data).for_each(|(to, from)| *to = *from);
        }
        // `NO_CHUNK` is out of range, which marks an empty list.
        match self.chunk_mut(list.last) {
            Some(last) => last.next = index,
            None => list.first = index,
        }
        list.last = index;
        true
    }

    /// Copies a stored message, from piece `from` on, until `to` is full.
    pub(crate) fn copy(&self, list: &ChunkList, from: u16, to: &mut [u8]) {
        if let Some(shared) = self.shared(list) {
            let start = usize::from(from) * PIECE_BYTES;
            let bytes = shared.bytes().get(start..).unwrap_or(&[]);
            return to.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        }
        let mut rest = to;
        // A sent message was stored in order: the chunk index is the piece number.
        for chunk in self.iter(list).skip(from.into()) {
            let bytes = rest.len().min(chunk.bytes.into());
            if bytes == 0 {
                break;
            }
            let (buf, behind) = rest.split_at_mut(bytes);
            buf.iter_mut().zip(&chunk.data).for_each(|(to, from)| *to = *from);
            rest = behind;
        }
        debug_assert!(rest.is_empty(), "a message is stored whole");
    }

    /// Assembles a message from pieces that were stored in any order.
    pub(crate) fn assemble(&self, list: &ChunkList, bytes: u32, into: &mut Vec<u8>) {
        into.clear();
        into.resize(bytes as usize, 0);
        for chunk in self.iter(list) {
            let start = usize::from(chunk.number) * PIECE_BYTES;
            let buf = into.get_mut(start..start + usize::from(chunk.bytes));
            if let Some(buf) = buf.must_exist("the place of a piece in its message") {
                buf.iter_mut().zip(&chunk.data).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Frees the chunks of a message for the next one.
    #[expect(clippy::needless_pass_by_value, reason = "a released list must not be used again")]
    pub(crate) fn release(&mut self, list: ChunkList) {
        // Dropping the reference frees the bytes with the last connection that has sent them.
        if list.first == SHARED {
            self.references.remove(ReferenceIndex(list.last as u16));
            return;
        }
        let mut index = list.first;
        while let Some(chunk) = self.chunk_mut(index) {
            let next = core::mem::replace(&mut chunk.next, NO_CHUNK);
            self.put_back(index);
            index = next;
        }
    }

    /// Returns whether any memory is taken: the chunks of messages, lists, or frames in flight.
    pub(crate) const fn is_in_use(&self) -> bool {
        !self.groups.is_empty() || self.list_bytes + self.frame_bytes > 0
    }

    /// Frees all memory if nothing was stored for [`RETENTION`].
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.used + self.overdraft > 0 {
            self.last_use = now;
        // Only as a whole: a group cannot be freed while any of its chunks is in use.
        } else if !self.groups.is_empty() && now.reached(self.last_use, RETENTION) {
            self.release_all();
        }
    }

    /// Returns how many more chunks could be stored now without an overdraft, counted up to `enough`.
    #[cfg(test)]
    pub(crate) fn available(&self, enough: usize) -> usize {
        let Some(budget) = &self.budget else { return enough };
        let own = self.allowed().saturating_sub(self.used);
        // Reading the shared budget touches a cache line that all shards write: only if need be.
        if own >= enough { own } else { own + budget.left() / GROUP_BYTES * GROUP }
    }

    /// Returns whether the shared budget allows this many more chunks, and lists that are larger by this many bytes.
    pub(crate) fn fits(&self, chunks: usize, list_bytes: usize) -> bool {
        let Some(budget) = &self.budget else { return true };
        let own = self.allowed().saturating_sub(self.used);
        if own >= chunks && self.list_bytes + list_bytes <= self.allowed_list_bytes {
            return true;
        }
        let groups = chunks.saturating_sub(own).div_ceil(GROUP);
        budget.left() >= groups * GROUP_BYTES + self.uncharged_list_bytes(list_bytes)
    }

    /// Returns the bytes to charge for lists that are larger by this many bytes.
    const fn uncharged_list_bytes(&self, growth: usize) -> usize {
        (self.list_bytes + growth).saturating_sub(self.allowed_list_bytes)
    }

    /// Returns how many chunks the overdraft has left.
    pub(crate) const fn overdraft_left(&self) -> usize {
        OVERDRAFT - self.overdraft
    }

    /// Moves a message of this many pieces to the overdraft, with those pieces that are stored already. Returns whether
    /// it has room for the message.
    pub(crate) fn begin_overdraft(&mut self, pieces: u16, stored: u16) -> bool {
        let has_room = usize::from(pieces) <= self.overdraft_left();
        if has_room {
            self.overdraft += usize::from(pieces);
            self.used -= usize::from(stored);
        }
        has_room
    }

    /// Ends what [`begin_overdraft`](Self::begin_overdraft) began. The stored pieces must be released next.
    pub(crate) fn end_overdraft(&mut self, pieces: u16, stored: u16) {
        self.overdraft -= usize::from(pieces);
        self.used += usize::from(stored);
    }

    /// Counts the growth of a list, and charges what exceeds the reserve to the shared budget. [`fits`](Self::fits) has
    /// checked it for the whole packet, so it fails only if another shard took the memory meanwhile; the next growth
    /// charges both then.
    #[cold]
    pub(crate) fn grow_list(&mut self, bytes: usize) {
        let uncharged = self.uncharged_list_bytes(bytes);
        self.list_bytes += bytes;
        if uncharged > 0 && self.budget.as_ref().is_some_and(|budget| budget.take(uncharged)) {
            self.allowed_list_bytes += uncharged;
        }
    }

    /// Counts a list as freed, and gives back what was charged for it.
    #[cold]
    pub(crate) fn free_list(&mut self, bytes: usize) {
        self.list_bytes -= bytes;
        let unused = self.allowed_list_bytes - self.list_bytes.clamp(LIST_RESERVE, self.allowed_list_bytes);
        self.allowed_list_bytes -= unused;
        if let Some(budget) = &self.budget {
            budget.give(unused);
        }
    }

    /// Charges more frames in flight to the shared budget. Returns whether it has the memory.
    #[cold]
    pub(crate) fn take_for_frames(&mut self, bytes: usize) -> bool {
        let is_taken = self.budget.as_ref().is_none_or(|budget| budget.take(bytes));
        self.frame_bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Gives back all that was charged for frames in flight.
    #[cold]
    pub(crate) fn give_back_frames(&mut self) {
        let bytes = core::mem::take(&mut self.frame_bytes);
        if let Some(budget) = &self.budget {
            budget.give(bytes);
        }
    }

    /// Returns the bytes of memory that are allocated now, without those of shared messages.
    pub(crate) fn bytes(&self) -> usize {
        self.groups.len() * GROUP_BYTES
    }

    /// Returns how many chunks may be in use for what was taken from the shared budget.
    const fn allowed(&self) -> usize {
        RESERVE + self.taken * GROUP
    }

    fn take(&mut self, credit: Credit) -> Option<u32> {
        match credit {
            Credit::No if !self.may_use_more() => return None,
            // It takes its part of the budget all the same, if there is one.
            Credit::Checked => _ = self.may_use_more(),
            Credit::No | Credit::Overdraft => {}
        }
        // Allocates only while the pool warms up.
        if self.free == NO_CHUNK {
            self.grow();
        }
        let index = self.free;
        let chunk = self.chunk_mut(index).must_exist("a free chunk")?;
        self.free = core::mem::replace(&mut chunk.next, NO_CHUNK);
        self.used += usize::from(credit != Credit::Overdraft);
        Some(index)
    }

    fn put_back(&mut self, index: u32) {
        let free = self.free;
        if let Some(chunk) = self.chunk_mut(index).must_exist("a released chunk") {
            chunk.next = free;
            self.free = index;
            self.used -= 1;
        }
    }

    /// Returns whether the reserve and the shared budget allow one more chunk. Takes a group from the budget if needed.
    fn may_use_more(&mut self) -> bool {
        let Some(budget) = &self.budget else { return true };
        if self.used < self.allowed() {
            return true;
        }
        // A group at a time, so that the shared counter is rarely touched.
        let taken = budget.take(GROUP_BYTES);
        self.taken += usize::from(taken);
        taken
    }

    fn grow(&mut self) {
        let first = self.groups.len() * GROUP;
        self.groups.push(Box::new([EMPTY; GROUP]));
        // The reverse order makes the free list return ascending indices.
        for index in (first..first + GROUP).rev() {
            self.used += 1;
            self.put_back(index as u32);
        }
    }

    #[cold]
    fn release_all(&mut self) {
        (self.groups, self.free) = (Vec::new(), NO_CHUNK);
        if let Some(budget) = &self.budget {
            budget.give(core::mem::take(&mut self.taken) * GROUP_BYTES);
        }
    }

    fn shared(&self, list: &ChunkList) -> Option<&SharedMessage> {
        if list.first == SHARED { self.references.get(ReferenceIndex(list.last as u16)) } else { None }
    }

    fn iter(&self, list: &ChunkList) -> impl Iterator<Item = &Chunk> {
        let mut index = list.first;
        core::iter::from_fn(move || {
            let chunk = self.groups.get(index as usize / GROUP)?.get(index as usize % GROUP)?;
            index = chunk.next;
            Some(chunk)
        })
    }

    fn chunk_mut(&mut self, index: u32) -> Option<&mut Chunk> {
        self.groups.get_mut(index as usize / GROUP)?.get_mut(index as usize % GROUP)
    }
}

impl Drop for ChunkPool {
    fn drop(&mut self) {
        self.release_all();
        self.free_list(self.list_bytes);
        self.give_back_frames();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    fn message(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * 7) as u8).collect()
    }

    #[test]
    fn message_is_copied_from_any_piece_to_its_end() {
        let mut pool = ChunkPool::new(None);
        let message = message(1000);
        let list = pool.store(&message, Credit::No).unwrap();
        for from in 0..8 {
            let mut out = vec![0; 1000 - usize::from(from) * PIECE_BYTES];
            pool.copy(&list, from, &mut out);
            assert_eq!(out, message[usize::from(from) * PIECE_BYTES..]);
        }
        pool.release(list);
        assert_eq!(pool.used, 0);
    }

    #[test]
    fn pieces_stored_in_any_order_assemble_the_message() {
        let mut pool = ChunkPool::new(None);
        let message = message(700);
        let mut list = ChunkList::default();
        for number in [3, 0, 5, 4, 1, 2] {
            let data = message.chunks(PIECE_BYTES).nth(number.into()).unwrap();
            assert!(pool.append(&mut list, number, data, Credit::No));
        }
        let mut whole = Vec::new();
        pool.assemble(&list, 700, &mut whole);
        assert_eq!(whole, message);
    }

    #[test]
    fn shared_budget_bounds_pools_beyond_reserve() {
        let shared = MemoryBudget::new(3 * GROUP_BYTES);
        let mut pools = [0; 2].map(|_| ChunkPool::new(Some(shared.clone())));
        let large = message((RESERVE + 2 * GROUP) * PIECE_BYTES);
        let list = pools[0].store(&large, Credit::No).unwrap();
        assert_eq!(shared.left(), GROUP_BYTES, "two groups beside the reserve");
        assert!(pools[1].store(&large, Credit::No).is_none());
        assert_eq!(
            pools[1].available(RESERVE + GROUP),
            RESERVE + GROUP,
            "a group that was taken for a refused message stays taken"
        );
        let unbounded = pools[1].store(&large, Credit::Checked).unwrap();
        assert_eq!(shared.left(), 0);
        pools[1].release(unbounded);
        pools[0].release(list);
        let at = |millis| Instant::from_start(Duration::from_millis(millis));
        for pool in &mut pools {
            pool.tick(at(9_999));
            assert!(pool.bytes() > 0);
            pool.tick(at(10_000));
            assert_eq!(pool.bytes(), 0);
        }
        assert_eq!(shared.left(), 3 * GROUP_BYTES);
    }

    #[test]
    fn chunks_freed_by_an_unbounded_are_not_reused() {
        let mut pool = ChunkPool::new(Some(MemoryBudget::new(0)));
        let large = message(10 * GROUP * PIECE_BYTES);
        let mut kept = Vec::new();
        for _ in 0..5 {
            let unbounded = pool.store(&large, Credit::Checked).unwrap();
            assert_eq!(pool.available(1), 0);
            pool.release(unbounded);
            while pool.available(1) > 0 {
                kept.push(pool.store(&[1], Credit::No).unwrap());
            }
        }
        assert_eq!(kept.len(), RESERVE);
        assert_eq!(pool.bytes(), 10 * GROUP_BYTES + RESERVE_BYTES);
        kept.into_iter().for_each(|list| pool.release(list));
    }

    #[test]
    fn shared_message_is_copied_out_and_dropped_on_release() {
        let mut pool = ChunkPool::new(None);
        let bytes: alloc::sync::Arc<[u8]> = message(1000).into();
        let shared = SharedMessage::from(alloc::sync::Arc::clone(&bytes));
        let lists = [0; 2].map(|_| pool.store_shared(&shared).unwrap());
        for (list, from) in lists.iter().zip([0_u16, 3]) {
            let mut out = vec![0; 1000 - usize::from(from) * PIECE_BYTES];
            pool.copy(list, from, &mut out);
            assert_eq!(out, bytes[usize::from(from) * PIECE_BYTES..]);
        }
        assert_eq!((alloc::sync::Arc::strong_count(&bytes), pool.bytes()), (4, 0));
        lists.into_iter().for_each(|list| pool.release(list));
        assert_eq!(alloc::sync::Arc::strong_count(&bytes), 2);
    }
}
