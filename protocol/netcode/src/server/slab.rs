//! A vector with a typed index. An index that does not exist is a bug in this crate.
//!
//! Debug builds assert that each index exists. Release builds stay total: they use a spare entry instead, so that a bug
//! cannot panic a game server.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use crate::ids::SlotIndex;

/// The index type of a [`Slab`].
pub(super) trait SlabIndex: Copy + fmt::Debug {
    /// Returns the typed index of an entry.
    fn from_usize(index: usize) -> Self;

    /// Returns the index for the vector.
    fn to_usize(self) -> usize;
}

impl SlabIndex for SlotIndex {
    #[inline]
    fn from_usize(index: usize) -> Self {
        // A server has at most 65,536 slots.
        Self(index as u32)
    }

    #[inline]
    fn to_usize(self) -> usize {
        self.0 as usize
    }
}

/// Entries of type `T` by an index of type `I`.
pub(super) struct Slab<I, T> {
    entries: Vec<T>,
    /// The entry for an index that does not exist, in release builds.
    spare: T,
    index: PhantomData<fn(I)>,
}

impl<I: SlabIndex, T> Slab<I, T> {
    /// Returns an empty slab that holds `capacity` entries without another allocation.
    pub(super) fn with_capacity(capacity: usize, spare: T) -> Self {
        Self { entries: Vec::with_capacity(capacity), spare, index: PhantomData }
    }

    /// Returns the number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends an entry and returns its index.
    pub(super) fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::from_usize(self.entries.len() - 1)
    }

    /// Returns an entry, or `None` if the index does not exist: for indices from outside this crate.
    #[inline]
    pub(super) fn lookup(&self, index: I) -> Option<&T> {
        self.entries.get(index.to_usize())
    }

    /// Returns an entry to be changed, or `None` if the index does not exist: for indices from outside this crate.
    #[inline]
    pub(super) fn lookup_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.to_usize())
    }

    /// Returns every index.
    #[inline]
    pub(super) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map(I::from_usize)
    }

    /// Returns every entry with its index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.entries.iter().enumerate().map(|(index, entry)| (I::from_usize(index), entry))
    }
}

impl<I: SlabIndex, T> Index<I> for Slab<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        let entry = self.entries.get(index.to_usize());
        debug_assert!(entry.is_some(), "{index:?} must be an entry of the slab");
        entry.unwrap_or(&self.spare)
    }
}

impl<I: SlabIndex, T> IndexMut<I> for Slab<I, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        // Two fields, so that the fallback can borrow the spare entry.
        let Self { entries, spare, .. } = self;
        let entry = entries.get_mut(index.to_usize());
        debug_assert!(entry.is_some(), "{index:?} must be an entry of the slab");
        entry.unwrap_or(spare)
    }
}

/// The number of entries of a chunk of a [`ChunkedSlab`].
const CHUNK: usize = 256;

/// Entries of type `T` by an index of type `I`, in chunks that are allocated when they are first used.
///
/// An entry never moves, so keys leave no copies behind when the slab grows.
pub(super) struct ChunkedSlab<I, T> {
    chunks: Vec<Vec<T>>,
    len: usize,
    /// The entry for an index that does not exist, in release builds.
    spare: T,
    index: PhantomData<fn(I)>,
}

impl<I: SlabIndex, T> ChunkedSlab<I, T> {
    /// Returns an empty slab that holds at least `initial` entries without another allocation.
    pub(super) fn new(initial: usize, spare: T) -> Self {
        let chunks = (0..initial.div_ceil(CHUNK)).map(|_| Vec::with_capacity(CHUNK)).collect();
        Self { chunks, len: 0, spare, index: PhantomData }
    }

    /// Returns the number of entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Appends an entry and returns its index.
    pub(super) fn push(&mut self, entry: T) -> I {
        if self.len == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        // The chunk exists and has space: all chunks before it are full.
        if let Some(chunk) = self.chunks.get_mut(self.len / CHUNK) {
            chunk.push(entry);
        }
        self.len += 1;
        I::from_usize(self.len - 1)
    }
}

impl<I: SlabIndex, T> Index<I> for ChunkedSlab<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, index: I) -> &T {
        let position = index.to_usize();
        let entry = self.chunks.get(position / CHUNK).and_then(|chunk| chunk.get(position % CHUNK));
        debug_assert!(entry.is_some(), "{index:?} must be an entry of the slab");
        entry.unwrap_or(&self.spare)
    }
}

impl<I: SlabIndex, T> IndexMut<I> for ChunkedSlab<I, T> {
    #[inline]
    fn index_mut(&mut self, index: I) -> &mut T {
        let position = index.to_usize();
        let Self { chunks, spare, .. } = self;
        let entry = chunks.get_mut(position / CHUNK).and_then(|chunk| chunk.get_mut(position % CHUNK));
        debug_assert!(entry.is_some(), "{index:?} must be an entry of the slab");
        entry.unwrap_or(spare)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_the_index_that_push_returned() {
        let mut slab = Slab::<SlotIndex, u8>::with_capacity(2, 0);
        let (first, second) = (slab.push(7), slab.push(8));
        slab[first] += 10;
        assert_eq!((slab[first], slab[second], slab.len()), (17, 8, 2));
        assert_eq!(slab.lookup(SlotIndex(2)), None);
    }

    #[test]
    fn entries_of_a_chunked_slab_never_move() {
        let mut slab = ChunkedSlab::<SlotIndex, usize>::new(CHUNK + 1, 0);
        assert_eq!(slab.chunks.len(), 2, "allocated at the start");
        let first = slab.push(0);
        let place: *const usize = &raw const slab[first];
        for number in 1..10 * CHUNK {
            let index = slab.push(number);
            slab[index] += 1;
        }
        assert!(std::ptr::eq(place, &raw const slab[first]));
        assert!((1..10 * CHUNK).all(|number| slab[SlotIndex(number as u32)] == number + 1));
        assert_eq!((slab.len(), slab.chunks.len()), (10 * CHUNK, 10));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "must be an entry")]
    fn missing_index_panics_in_debug_builds() {
        let slab = Slab::<SlotIndex, u8>::with_capacity(0, 0);
        let _ = slab[SlotIndex(0)];
    }

    #[test]
    #[cfg(not(debug_assertions))]
    fn missing_index_is_the_spare_entry_in_release_builds() {
        let mut slab = Slab::<SlotIndex, u8>::with_capacity(0, 5);
        slab[SlotIndex(9)] += 1;
        assert_eq!((slab[SlotIndex(3)], slab.len()), (6, 0));
    }
}
