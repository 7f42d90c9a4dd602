//! A vector with a typed index. An index that does not exist is a bug in this crate.
//!
//! Debug builds assert that each index exists. Release builds stay total: they use a spare entry instead, so that a bug
//! cannot panic a game server.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use crate::ids::{ClientIndex, SlotIndex};

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

impl SlabIndex for ClientIndex {
    #[inline]
    fn from_usize(index: usize) -> Self {
        // There are as many client indices as slots.
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
