//! A slab: values in numbered slots. Free slots are used again.

use alloc::vec::Vec;

/// Values by index, at most 65,536. It grows when all slots are in use.
pub(crate) struct EntrySlab<T> {
    entries: Vec<Option<T>>,
    free: Vec<u16>,
}

impl<T> EntrySlab<T> {
    pub(crate) const fn new() -> Self {
        Self { entries: Vec::new(), free: Vec::new() }
    }

    /// Returns how many values fit without more memory.
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Returns how many values there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Stores a value and returns its index.
    pub(crate) fn insert(&mut self, value: T) -> u16 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            // The free list never holds more than all indices, so that removing a value never allocates.
            self.free.reserve(self.entries.len());
            (self.entries.len() - 1) as u16
        });
        if let Some(entry) = self.entries.get_mut(usize::from(index)) {
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

    pub(crate) fn remove(&mut self, index: u16) -> Option<T> {
        let value = self.entries.get_mut(usize::from(index))?.take()?;
        self.free.push(index);
        Some(value)
    }

    pub(crate) fn get(&self, index: u16) -> Option<&T> {
        self.entries.get(usize::from(index))?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, index: u16) -> Option<&mut T> {
        self.entries.get_mut(usize::from(index))?.as_mut()
    }
}
