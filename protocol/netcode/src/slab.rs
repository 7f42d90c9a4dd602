//! Vectors with typed indices, and values that must exist. What does not exist is a bug of ours.
//!
//! Debug builds assert that each index exists. Release builds stay total: they use a spare entry instead, so that a bug
//! cannot panic a game server.
//!
//! The module is public because `slipgate-session` and `slipgate-server` keep tables of their own for the slots and
//! client indices of this crate: [`SlabIndex`] can be implemented for those types only here.

use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use crate::ids::{ClientIndex, SlotIndex};

/// The index type of a [`Slab`].
pub trait SlabIndex: Copy + fmt::Debug {
    /// Returns the typed index of an entry.
    fn from_usize(index: usize) -> Self;

    /// Returns the index for the vector.
    fn to_usize(self) -> usize;
}

/// Implements the conversions of a newtype around an integer. The casts are lossless: no slab has more than 65,536
/// entries.
macro_rules! slab_index {
    ($index:ty, $integer:ty) => {
        impl $crate::slab::SlabIndex for $index {
            #[inline]
            fn from_usize(index: usize) -> Self {
                Self(index as $integer)
            }

            #[inline]
            fn to_usize(self) -> usize {
                self.0 as usize
            }
        }
    };
}

pub(crate) use slab_index;

slab_index!(SlotIndex, u32);
slab_index!(ClientIndex, u32);

/// A lookup that fails only by a bug.
pub trait MustExist: Sized {
    /// Returns the value as it is. Debug builds assert that there is one; release builds go on without it.
    #[must_use]
    fn must_exist(self, what: &str) -> Self;
}

impl<T> MustExist for Option<T> {
    #[inline]
    #[track_caller]
    fn must_exist(self, what: &str) -> Self {
        debug_assert!(self.is_some(), "{what} must exist");
        self
    }
}

/// Entries of type `T` by an index of type `I`.
///
/// # Examples
///
/// ```
/// use slipgate_netcode::ids::SlotIndex;
/// use slipgate_netcode::slab::Slab;
///
/// let mut bytes: Slab<SlotIndex, u64> = [0; 4].into_iter().collect();
/// bytes[SlotIndex(2)] += 100;
/// assert_eq!(bytes.into_iter().sum::<u64>(), 100);
/// ```
#[derive(Clone, Debug)]
pub struct Slab<I, T> {
    entries: Vec<T>,
    /// The entry for an index that does not exist, in release builds.
    spare: T,
    index: PhantomData<fn(I)>,
}

impl<I: SlabIndex, T> Slab<I, T> {
    /// Returns an empty slab that holds `capacity` entries without another allocation.
    pub(crate) fn with_capacity(capacity: usize, spare: T) -> Self {
        Self { entries: Vec::with_capacity(capacity), spare, index: PhantomData }
    }

    /// Returns the number of entries.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends an entry and returns its index.
    pub(crate) fn push(&mut self, entry: T) -> I {
        self.entries.push(entry);
        I::from_usize(self.entries.len() - 1)
    }

    /// Returns an entry, or `None` if the index does not exist: for indices from outside this crate.
    #[inline]
    pub(crate) fn lookup(&self, index: I) -> Option<&T> {
        self.entries.get(index.to_usize())
    }

    /// Returns an entry to be changed, or `None` if the index does not exist: for indices from outside this crate.
    #[inline]
    pub(crate) fn lookup_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.to_usize())
    }

    /// Returns every index.
    #[inline]
    pub(crate) fn indices(&self) -> impl Iterator<Item = I> + use<I, T> {
        (0..self.entries.len()).map(I::from_usize)
    }

    /// Returns every entry with its index.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.entries.iter().enumerate().map(|(index, entry)| (I::from_usize(index), entry))
    }
}

impl<I, T: Default> FromIterator<T> for Slab<I, T> {
    fn from_iter<E: IntoIterator<Item = T>>(entries: E) -> Self {
        Self { entries: entries.into_iter().collect(), spare: T::default(), index: PhantomData }
    }
}

impl<I, T> IntoIterator for Slab<I, T> {
    type Item = T;
    type IntoIter = alloc::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl<'a, I, T> IntoIterator for &'a Slab<I, T> {
    type Item = &'a T;
    type IntoIter = core::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter()
    }
}

impl<'a, I, T> IntoIterator for &'a mut Slab<I, T> {
    type Item = &'a mut T;
    type IntoIter = core::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.iter_mut()
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
pub(crate) struct ChunkedSlab<I, T> {
    chunks: Vec<Vec<T>>,
    len: usize,
    /// The entry for an index that does not exist, in release builds.
    spare: T,
    index: PhantomData<fn(I)>,
}

impl<I: SlabIndex, T> ChunkedSlab<I, T> {
    /// Returns an empty slab that holds at least `initial` entries without another allocation.
    pub(crate) fn new(initial: usize, spare: T) -> Self {
        let chunks = (0..initial.div_ceil(CHUNK)).map(|_| Vec::with_capacity(CHUNK)).collect();
        Self { chunks, len: 0, spare, index: PhantomData }
    }

    /// Returns the number of entries.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Appends an entry and returns its index.
    pub(crate) fn push(&mut self, entry: T) -> I {
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
