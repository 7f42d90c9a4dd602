//! The slices that have arrived, and their hashing. Memory grows with them: a transfer that is announced and never sent
//! takes at most 4 KiB.
//!
//! A chunk is allocated whole for its first slice, which is fastest for slices in order. A sender that scatters slices
//! would make a receiver allocate 16 times of what it sends. Chunks therefore become *packed* beyond twice the bytes
//! that have arrived:
//!
//! ```text
//!  whole    │ 0 │   │ 2 │   │ … 15 │     each slice at its own offset
//!  packed   │ 0 │ 2 │                    the slices that have arrived, in order, without gaps
//! ```

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicI32, Ordering};

use sha2::{Digest as _, Sha256};

use super::{ContentDigest, MAX_SLICE_BYTES, MAX_TRANSFER_BYTES, MIN_SLICE_BYTES, TransferProgress, TransferViolation};
use crate::channel::steps;
use crate::reliability::MemoryBudget;

/// Chunks of a region. The table of chunks grows by regions.
pub(super) const REGION_CHUNKS: u32 = 64;
/// Slices of a region.
const REGION_SLICES: u32 = REGION_CHUNKS * CHUNK_SLICES;

/// A part of the table of chunks.
pub(super) struct SliceRegion {
    /// Which slices of each chunk have arrived.
    masks: [u16; REGION_CHUNKS as usize],
    /// A bit for each chunk of which a slice has arrived.
    started: u64,
    /// A bit for each chunk of which all 16 slices have arrived.
    full: u64,
    /// A chunk of its full length is whole, a shorter one is packed.
    pub(super) chunks: [Option<Box<[u8]>>; REGION_CHUNKS as usize],
}

/// Whether a slice has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SliceState {
    Arrived,
    Missing,
}

/// The slices of a transfer, and the digest of those without a gap from the start.
pub(super) struct SliceStore {
    pub(super) shape: TransferShape,
    regions: Vec<Option<Box<SliceRegion>>>,
    /// The bytes of all chunks.
    chunk_bytes: usize,
    arrived: u32,
    /// The state of the last slice, which may be shorter than the others.
    last: SliceState,
    hash: Sha256,
    /// The number of chunks that are in `hash`.
    hashed: u32,
}

/// The outcome of storing a slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SliceStored {
    /// The slice was stored.
    New,
    /// The slice was there already.
    Duplicate,
    /// There is no memory for it.
    NoMemory,
}

/// The result of verifying the content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DigestCheck {
    /// A part of it has not arrived or is not hashed.
    Unfinished,
    /// The digest is the announced one.
    Right,
    /// The digest is another one.
    Wrong,
}

impl SliceStore {
    /// Creates the store of a transfer. `None` if there is no memory.
    pub(super) fn new(shape: TransferShape, lease: &mut MemoryLease) -> Option<Self> {
        // Only the table of regions is allocated at once: 4 KiB for 64 MiB.
        let regions = shape.chunks().div_ceil(REGION_CHUNKS) as usize;
        lease.take(regions * size_of::<Option<Box<SliceRegion>>>()).then(|| Self {
            shape,
            regions: core::iter::repeat_with(|| None).take(regions).collect(),
            chunk_bytes: 0,
            arrived: 0,
            last: SliceState::Missing,
            hash: Sha256::new(),
            hashed: 0,
        })
    }

    pub(super) fn progress(&self) -> TransferProgress {
        self.shape.progress(self.arrived, self.last)
    }

    /// Stores a slice. The caller has checked its number and length against the shape.
    pub(super) fn put(&mut self, index: u32, bytes: &[u8], lease: &mut MemoryLease) -> SliceStored {
        let (chunk, slice) = (index / CHUNK_SLICES, index % CHUNK_SLICES);
        // A duplicate must not be written: its chunk may be hashed already.
        if self.mask(chunk) & 1 << slice != 0 {
            return SliceStored::Duplicate;
        }
        if self.insert(chunk, slice, bytes, lease).is_none() {
            return SliceStored::NoMemory;
        }
        self.arrived += 1;
        if index + 1 == self.shape.slices() {
            self.last = SliceState::Arrived;
        }
        SliceStored::New
    }

    /// Inserts a slice into its chunk. Returns `None` if there is no memory for it.
    fn insert(&mut self, chunk: u32, slice: u32, bytes: &[u8], lease: &mut MemoryLease) -> Option<()> {
        let (whole, slice_bytes) = (self.shape.chunk(chunk)?.len(), usize::from(self.shape.slice_bytes));
        let allowed = 2 * self.progress().bytes as usize + MAX_BYTES_AHEAD;
        let chunk_bytes = self.chunk_bytes;
        let (region, index) = self.region_mut(chunk, lease)?;
        let (mask, content) = (region.masks.get_mut(index)?, region.chunks.get_mut(index)?);
        let before = content.as_deref().map_or(0, <[u8]>::len);
        let fits_whole = chunk_bytes + (whole - before) <= allowed;
        let after = if fits_whole { whole } else { (before + bytes.len()).min(whole) };
        if !lease.take(after - before) {
            return None;
        }
        if after < whole {
            let offset = (*mask & ((1 << slice) - 1)).count_ones() as usize * slice_bytes;
            let (earlier, later) = content.as_deref().unwrap_or_default().split_at_checked(offset)?;
            *content = Some([earlier, bytes, later].concat().into_boxed_slice());
        } else {
            if before < whole {
                *content = Some(unpack(content.as_deref().unwrap_or_default(), *mask, slice_bytes, whole));
            }
            // The last chunk may be shorter, but its slices start at the same offsets.
            let offset = slice as usize * slice_bytes;
            content.as_deref_mut()?.get_mut(offset..offset + bytes.len())?.copy_from_slice(bytes);
        }
        *mask |= 1 << slice;
        region.started |= 1 << index;
        region.full |= u64::from(*mask == u16::MAX) << index;
        self.chunk_bytes += after - before;
        Some(())
    }

    /// Hashes at most `chunks` more chunks within the budget, and compares the digest after the last one.
    pub(super) fn verify(&mut self, digest: ContentDigest, chunks: u32, hash_budget: &mut HashBudget) -> DigestCheck {
        let until = self.hashed.saturating_add(chunks).min(self.shape.chunks());
        // Taken out, because the loop borrows the chunks.
        let mut hash = core::mem::take(&mut self.hash);
        // SHA-256 cannot skip a gap, so chunks are hashed in order.
        while self.hashed < until && self.is_whole(self.hashed) && !hash_budget.is_used_up() {
            let Some(chunk) = self.content(self.hashed) else { break };
            hash_budget.spend(chunk.len());
            hash.update(chunk);
            self.hashed += 1;
        }
        self.hash = hash;
        // A part is never compared: its digest is not known.
        if self.hashed < self.shape.chunks() {
            return DigestCheck::Unfinished;
        }
        let found: [u8; 32] = self.hash.clone().finalize().into();
        if found == digest.0 { DigestCheck::Right } else { DigestCheck::Wrong }
    }

    /// Returns whether a chunk waits to be hashed.
    pub(super) fn has_unhashed(&self) -> bool {
        self.hashed < self.shape.chunks() && self.is_whole(self.hashed)
    }

    /// Returns the next range of slices that have arrived, from `from` to the one before `end`.
    pub(super) fn next_range(&self, from: u32, end: u32) -> Option<Range<u32>> {
        let start = self.find(from, end, SliceState::Arrived);
        (start < end).then(|| start..self.find(start, end, SliceState::Missing))
    }

    /// Returns the regions. Their chunks are the content.
    pub(super) fn into_regions(self) -> Vec<Option<Box<SliceRegion>>> {
        self.regions
    }

    /// Returns the first slice in this state from `from` on. Returns `end` if there is none before it. Takes a step for
    /// each region.
    fn find(&self, from: u32, end: u32, state: SliceState) -> u32 {
        let mut slice = from;
        while slice < end {
            steps::count(1);
            let start = slice - slice % REGION_SLICES;
            let found = match self.region(slice / CHUNK_SLICES) {
                Some(region) => region.find(slice - start, state),
                None => (state == SliceState::Missing).then_some(slice - start),
            };
            if let Some(found) = found {
                return (start + found).min(end);
            }
            slice = start + REGION_SLICES;
        }
        end
    }

    fn region(&self, chunk: u32) -> Option<&SliceRegion> {
        self.regions.get((chunk / REGION_CHUNKS) as usize)?.as_deref()
    }

    fn mask(&self, chunk: u32) -> u16 {
        let mask = self.region(chunk).and_then(|region| region.masks.get((chunk % REGION_CHUNKS) as usize));
        mask.copied().unwrap_or(0)
    }

    fn is_whole(&self, chunk: u32) -> bool {
        self.mask(chunk).count_ones() == self.shape.slices_of_chunk(chunk)
    }

    fn content(&self, chunk: u32) -> Option<&[u8]> {
        self.region(chunk)?.chunks.get((chunk % REGION_CHUNKS) as usize)?.as_deref()
    }

    /// Returns the region of a chunk, and the chunk's place in it. The region is allocated with the first slice.
    fn region_mut(&mut self, chunk: u32, lease: &mut MemoryLease) -> Option<(&mut SliceRegion, usize)> {
        let region = self.regions.get_mut((chunk / REGION_CHUNKS) as usize)?;
        // A region is a table of 64 chunks.
        if region.is_none() {
            *region = lease.take(size_of::<SliceRegion>()).then(SliceRegion::empty);
        }
        Some((region.as_deref_mut()?, (chunk % REGION_CHUNKS) as usize))
    }
}

/// Returns a whole chunk of `length` bytes with the slices of a packed one, which are those in `mask`.
fn unpack(packed: &[u8], mask: u16, slice_bytes: usize, length: usize) -> Box<[u8]> {
    let mut whole = vec![0; length];
    let places = whole.chunks_mut(slice_bytes).enumerate().filter(|(slice, _)| mask & 1 << slice != 0);
    for ((_, place), slice) in places.zip(packed.chunks(slice_bytes)) {
        // Only the last slice of a transfer is shorter, at both places.
        if place.len() == slice.len() {
            place.copy_from_slice(slice);
        }
    }
    whole.into_boxed_slice()
}

impl SliceRegion {
    fn empty() -> Box<Self> {
        let (masks, chunks) = ([0; REGION_CHUNKS as usize], [const { None }; REGION_CHUNKS as usize]);
        Box::new(Self { masks, started: 0, full: 0, chunks })
    }

    /// Returns the first slice in this state from `from` on, counted from the start of the region.
    fn find(&self, from: u32, state: SliceState) -> Option<u32> {
        let chunk = from / CHUNK_SLICES;
        self.find_in(chunk, from % CHUNK_SLICES, state).or_else(|| {
            let chunks = if state == SliceState::Arrived { self.started } else { !self.full };
            // Shifted twice: there is no chunk behind the last one.
            let later = chunks & (u64::MAX << chunk) << 1;
            (later != 0).then(|| self.find_in(later.trailing_zeros(), 0, state))?
        })
    }

    /// Returns the first slice of a chunk in this state from `from` on, counted from the start of the region.
    fn find_in(&self, chunk: u32, from: u32, state: SliceState) -> Option<u32> {
        let mask = *self.masks.get(chunk as usize)?;
        let wanted = if state == SliceState::Arrived { mask } else { !mask } >> from;
        (wanted != 0).then(|| chunk * CHUNK_SLICES + from + wanted.trailing_zeros())
    }
}

/// Slices of one chunk, the unit of allocation and hashing.
pub(super) const CHUNK_SLICES: u32 = 16;
/// The bytes of a transfer's chunks beyond twice what has arrived: three chunks of the largest slices.
const MAX_BYTES_AHEAD: usize = 64 << 10;

/// The length of a transfer and of its slices. The last slice may be shorter. An empty transfer has no slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TransferShape {
    pub(super) length: u32,
    pub(super) slice_bytes: u16,
}

impl TransferShape {
    /// Checks an announced shape.
    ///
    /// # Errors
    /// [`TransferViolation::TransferTooLong`] and [`TransferViolation::SliceBytes`] when it is out of bounds.
    pub(super) fn check(length: u32, slice_bytes: u16) -> Result<Self, TransferViolation> {
        if length > MAX_TRANSFER_BYTES {
            return Err(TransferViolation::TransferTooLong);
        }
        // Tiny slices would multiply the cost of each byte, for both ends.
        if !(MIN_SLICE_BYTES..=MAX_SLICE_BYTES).contains(&slice_bytes) {
            return Err(TransferViolation::SliceBytes);
        }
        Ok(Self { length, slice_bytes })
    }

    /// Returns the number of slices.
    pub(super) fn slices(self) -> u32 {
        self.length.div_ceil(u32::from(self.slice_bytes).max(1))
    }

    /// Returns the number of chunks.
    pub(super) fn chunks(self) -> u32 {
        self.slices().div_ceil(CHUNK_SLICES)
    }

    /// Returns the range of a slice's bytes in the content. `None` if there is no such slice.
    pub(super) fn slice(self, index: u32) -> Option<Range<usize>> {
        self.range(index, self.slices(), self.slice_bytes.into())
    }

    /// Returns how many slices have this many bytes, at least one, from slice `first` on.
    ///
    /// # Errors
    /// [`TransferViolation::SliceIndex`] or [`TransferViolation::SliceLength`] when there are no such slices.
    pub(super) fn run(self, first: u32, bytes: usize) -> Result<u16, TransferViolation> {
        let start = self.slice(first).ok_or(TransferViolation::SliceIndex)?.start;
        let (slice, end) = (usize::from(self.slice_bytes), start.saturating_add(bytes));
        let whole = bytes > 0 && bytes.is_multiple_of(slice) && end <= self.length as usize;
        // A frame has far fewer slices: more is not a length of this transfer.
        let count = u16::try_from(bytes.div_ceil(slice)).map_err(|_| TransferViolation::SliceLength)?;
        if whole || end == self.length as usize { Ok(count) } else { Err(TransferViolation::SliceLength) }
    }

    /// Returns the range of a chunk's bytes in the content. `None` if there is no such chunk.
    pub(super) fn chunk(self, index: u32) -> Option<Range<usize>> {
        self.range(index, self.chunks(), self.chunk_bytes())
    }

    /// Returns the bytes of each chunk but the last.
    pub(super) fn chunk_bytes(self) -> u32 {
        u32::from(self.slice_bytes) * CHUNK_SLICES
    }

    /// Returns the number of slices of a chunk.
    pub(super) fn slices_of_chunk(self, index: u32) -> u32 {
        self.slices().saturating_sub(index * CHUNK_SLICES).min(CHUNK_SLICES)
    }

    /// Returns the progress when this many slices have arrived, and the last one is in this state.
    pub(super) fn progress(self, slices: u32, last: SliceState) -> TransferProgress {
        // The last slice is shorter by this much.
        let missing_of_last = self.slices() * u32::from(self.slice_bytes) - self.length;
        let bytes =
            slices * u32::from(self.slice_bytes) - if last == SliceState::Arrived { missing_of_last } else { 0 };
        TransferProgress { bytes, of: self.length }
    }

    fn range(self, index: u32, count: u32, bytes: u32) -> Option<Range<usize>> {
        // Numbers of the peer are compared before they are multiplied, so that nothing overflows.
        let from = if index < count { index * bytes } else { return None };
        Some(from as usize..(from + bytes).min(self.length) as usize)
    }
}

/// Bytes that are hashed in one turn, which takes one or two milliseconds.
const BYTES_PER_TURN: u32 = 1 << 20;

/// How many bytes of received transfers many connections may hash now. Clones share it.
///
/// It is empty until its owner grants bytes. The owner decides which transfers are hashed by granting bytes before it
/// polls a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashingGrant {
    left: Arc<AtomicI32>,
}

impl HashingGrant {
    /// Sets the grant to this many bytes.
    pub(crate) fn grant(&self, bytes: i32) {
        // Relaxed: the number guards no other data.
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Takes back the rest of the grant. It is negative if the last chunk exceeded it.
    pub(crate) fn take_back(&self) -> i32 {
        self.left.swap(0, Ordering::Relaxed)
    }

    fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) <= 0
    }

    fn spend(&self, bytes: usize) {
        self.left.fetch_sub(i32::try_from(bytes).unwrap_or(i32::MAX), Ordering::Relaxed);
    }
}

/// The hash budget of a turn.
pub(super) struct HashBudget {
    left: u32,
    /// The transfer that hashes next. It rotates.
    turn: usize,
    granted: Option<HashingGrant>,
}

impl Default for HashBudget {
    fn default() -> Self {
        Self { left: BYTES_PER_TURN, turn: 0, granted: None }
    }
}

impl HashBudget {
    /// Limits hashing to the grant as well.
    pub(super) fn within(&mut self, grant: HashingGrant) {
        self.granted = Some(grant);
    }

    /// Begins a turn.
    pub(super) const fn begin_turn(&mut self) {
        self.left = BYTES_PER_TURN;
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.left == 0 || self.granted.as_ref().is_some_and(HashingGrant::is_used_up)
    }

    /// Counts hashed bytes. The last chunk of a turn may exceed the budget.
    pub(super) fn spend(&mut self, bytes: usize) {
        // A chunk is hashed whole, so that the last one may exceed the budget.
        self.left = self.left.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        // The grant of the server covers all connections.
        if let Some(granted) = &self.granted {
            granted.spend(bytes);
        }
    }

    /// Lets each transfer hash in turn until the budget is used up. The next turn begins with the transfer behind.
    pub(super) fn share<T>(&mut self, transfers: &mut [T], mut work: impl FnMut(&mut T, &mut Self)) {
        // Round robin: a large transfer must not delay a small one.
        for _ in 0..transfers.len() {
            if self.is_used_up() {
                return;
            }
            self.turn = (self.turn + 1) % transfers.len();
            if let Some(transfer) = transfers.get_mut(self.turn) {
                work(transfer, self);
            }
        }
    }
}

/// Memory that a transfer has taken from a shared budget. It is given back on drop.
pub(super) struct MemoryLease {
    shared: Option<MemoryBudget>,
    bytes: usize,
}

impl MemoryLease {
    pub(super) const fn new(shared: Option<MemoryBudget>) -> Self {
        Self { shared, bytes: 0 }
    }

    /// Takes memory. Returns false, and takes nothing, if the budget has not enough left, or less than this transfer
    /// would hold: transfers that are started and never finished leave memory to the others.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        // Without a shared budget the limits of the channel bound the memory.
        let taken = self.shared.as_ref().is_none_or(|shared| shared.take_share(bytes, self.bytes));
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// Returns the bytes taken.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.give(self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_contiguous_and_the_last_is_the_rest() {
        let shape = TransferShape { length: 1000, slice_bytes: 300 };
        assert_eq!((shape.slices(), shape.chunks()), (4, 1));
        assert_eq!([0, 1, 3, 4].map(|index| shape.slice(index)), [Some(0..300), Some(300..600), Some(900..1000), None]);
        assert_eq!((shape.chunk(0), shape.chunk(1)), (Some(0..1000), None));
        assert_eq!(shape.progress(3, SliceState::Missing).bytes, 900);
        assert_eq!(shape.progress(1, SliceState::Arrived).bytes, 100);
        assert_eq!(shape.progress(4, SliceState::Arrived), TransferProgress { bytes: 1000, of: 1000 });
    }

    #[test]
    fn run_of_slices_follows_from_its_length() {
        let shape = TransferShape { length: 1000, slice_bytes: 300 };
        for (first, bytes, count) in [
            (0, 300, Ok(1)),
            (0, 600, Ok(2)),
            (1, 700, Ok(3)),
            (3, 100, Ok(1)),
            (0, 1000, Ok(4)),
            (0, 299, Err(TransferViolation::SliceLength)),
            (0, 301, Err(TransferViolation::SliceLength)),
            (3, 300, Err(TransferViolation::SliceLength)),
            (1, 1000, Err(TransferViolation::SliceLength)),
            (4, 100, Err(TransferViolation::SliceIndex)),
        ] {
            assert_eq!(shape.run(first, bytes), count, "{bytes} bytes from {first} on");
        }
    }

    /// Stores the slices of `content` in this order. Returns the store. Asserts that its memory is bounded.
    fn store(shape: TransferShape, content: &[u8], order: impl Iterator<Item = u32>) -> SliceStore {
        let mut lease = MemoryLease::new(None);
        let mut store = SliceStore::new(shape, &mut lease).unwrap();
        let tables = lease.bytes() + (shape.chunks().div_ceil(REGION_CHUNKS) as usize) * size_of::<SliceRegion>();
        for index in order {
            let slice = &content[shape.slice(index).unwrap()];
            assert_eq!(store.put(index, slice, &mut lease), SliceStored::New);
            assert_eq!(store.put(index, slice, &mut lease), SliceStored::Duplicate);
            let arrived = store.progress().bytes as usize;
            assert!(lease.bytes() <= tables + 2 * arrived + MAX_BYTES_AHEAD, "{} for {arrived}", lease.bytes());
        }
        store
    }

    #[test]
    fn slices_in_any_order_take_twice_their_memory_at_most() {
        for (length, slice_bytes) in [(2_000_000, 1000), (2_000_123, 1136), (300_001, 128), (128, 128), (1, 128)] {
            let shape = TransferShape { length, slice_bytes };
            let content: Vec<u8> = (0..length).map(|byte| (byte / 7 % 251) as u8).collect();
            let digest = ContentDigest::of(&content);
            let slices = shape.slices();
            // Numbers coprime to that of the slices: each slice comes once.
            let is_coprime =
                |step: &u32| (2..=*step).all(|factor| !(step.is_multiple_of(factor) && slices.is_multiple_of(factor)));
            for step in [1, 17, 257, 1021].into_iter().filter(is_coprime) {
                for is_reversed in [false, true] {
                    let index = |at: u32| (if is_reversed { slices - 1 - at } else { at }) * step % slices;
                    let mut store = store(shape, &content, (0..slices).map(index));
                    let found = store.verify(digest, u32::MAX, &mut HashBudget::default());
                    let found = if found == DigestCheck::Unfinished {
                        store.verify(digest, u32::MAX, &mut HashBudget::default())
                    } else {
                        found
                    };
                    assert_eq!(found, DigestCheck::Right, "{length} bytes, step {step}, reversed: {is_reversed}");
                }
            }
        }
    }

    #[test]
    fn slices_in_order_take_whole_chunks() {
        let shape = TransferShape { length: 1 << 20, slice_bytes: 1136 };
        let content = vec![7; 1 << 20];
        for arrived in 1..shape.slices() {
            let store = store(shape, &content, 0..arrived);
            assert_eq!(store.chunk_bytes, shape.chunk((arrived - 1) / CHUNK_SLICES).unwrap().end);
        }
    }

    #[test]
    fn largest_transfer_in_smallest_slices_does_not_overflow() {
        let shape = TransferShape::check(MAX_TRANSFER_BYTES, MIN_SLICE_BYTES).unwrap();
        assert_eq!((shape.slices(), shape.chunks()), (524_288, 32_768));
        assert_eq!(shape.slice(524_287).unwrap().end, 64 << 20);
        assert_eq!(shape.slices_of_chunk(32_767), 16);
        assert_eq!(TransferShape { length: 0, slice_bytes: 256 }.slices(), 0);
    }
}
