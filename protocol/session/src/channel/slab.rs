//! A slab: values at typed indices. Free indices are used again.

use alloc::vec::Vec;

use slipgate_netcode::slab::{MustExist, SlabIndex};

/// Defines the index of an [`EntrySlab`]: at most 65,536 values.
macro_rules! entry_index {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name(pub(crate) u16);

        impl slipgate_netcode::slab::SlabIndex for $name {
            #[inline]
            fn from_usize(index: usize) -> Self {
                Self(index as u16)
            }

            #[inline]
            fn to_usize(self) -> usize {
                self.0.into()
            }
        }
    };
}
pub(crate) use entry_index;

/// Values by index, at most 65,536. It grows when all indices are in use.
///
/// Debug builds assert that each index has a value, except in [`EntrySlab::lookup_mut`].
pub(crate) struct EntrySlab<I, T> {
    entries: Vec<Option<T>>,
    free: Vec<I>,
}

impl<I: SlabIndex, T> EntrySlab<I, T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Returns how many values fit without more memory.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Returns the bytes of memory that the lists hold.
    #[cfg(test)]
    pub(crate) fn list_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Option<T>>() + self.free.capacity() * size_of::<I>()
    }

    /// Returns how many values there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Stores a value and returns its index.
    pub(crate) fn insert(&mut self, value: T) -> I {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            // The free list never holds more than all indices, so that removing a value never allocates.
            self.free.reserve(self.entries.len());
            I::from_usize(self.entries.len() - 1)
        });
        if let Some(entry) = self.entries.get_mut(index.to_usize()).must_exist("a free entry") {
            *entry = Some(value);
        }
        index
    }

    /// Makes sure that the next value fits without more memory.
    pub(crate) fn reserve_one(&mut self) {
        if self.free.is_empty() {
            self.entries.reserve(1);
        }
    }

    pub(crate) fn remove(&mut self, index: I) -> Option<T> {
        let value = self.entries.get_mut(index.to_usize()).and_then(Option::take).must_exist("the removed entry")?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, index: I) -> Option<&T> {
        self.entries.get(index.to_usize()).and_then(Option::as_ref).must_exist("an entry of the slab")
    }

    pub(crate) fn get_mut(&mut self, index: I) -> Option<&mut T> {
        self.lookup_mut(index).must_exist("an entry of the slab")
    }

    /// Returns a value that may have been removed since.
    pub(crate) fn lookup_mut(&mut self, index: I) -> Option<&mut T> {
        self.entries.get_mut(index.to_usize()).and_then(Option::as_mut)
    }
}
