//! A bounded record of the newest entries, allocated once.

use alloc::collections::VecDeque;

/// A record of at most a fixed number of entries; a new one then replaces the oldest.
#[derive(Clone, Debug)]
pub(super) struct Ring<T> {
    entries: VecDeque<T>,
    max: usize,
}

impl<T> Ring<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: VecDeque::with_capacity(max), max }
    }

    pub(super) fn push(&mut self, entry: T) {
        // Drop before pushing, so that the memory never grows.
        if self.entries.len() == self.max {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Drops the oldest entry while `is_old` holds for the two oldest, but keeps at least `least` entries.
    pub(super) fn drop_while(&mut self, least: usize, is_old: impl Fn(&T, &T) -> bool) {
        while self.entries.len() > least {
            let (Some(oldest), Some(next)) = (self.entries.front(), self.entries.get(1)) else { return };
            if !is_old(oldest, next) {
                return;
            }
            self.entries.pop_front();
        }
    }

    pub(super) fn oldest(&self) -> Option<&T> {
        self.entries.front()
    }

    pub(super) fn newest(&self) -> Option<&T> {
        self.entries.back()
    }

    pub(super) fn newest_mut(&mut self) -> Option<&mut T> {
        self.entries.back_mut()
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter()
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn full_ring_drops_its_oldest_entry_without_allocating() {
        let mut ring = Ring::new(3);
        let room = ring.entries.capacity();
        for entry in 0..10 {
            ring.push(entry);
        }
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!((ring.oldest(), ring.newest(), ring.entries.capacity()), (Some(&7), Some(&9), room));
    }

    #[test]
    fn old_entries_are_dropped_down_to_the_minimum() {
        let mut ring = Ring::new(10);
        for entry in 0..10 {
            ring.push(entry);
        }
        ring.drop_while(2, |oldest, _| *oldest < 6);
        assert_eq!(ring.oldest(), Some(&6));
        ring.drop_while(2, |_, _| true);
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [8, 9]);
    }
}
