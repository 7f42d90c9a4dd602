//! The newest entries of a record, in memory that is asked for once.

use alloc::collections::VecDeque;

/// A record of at most as many entries as it was made for; then the oldest goes.
#[derive(Clone, Debug)]
pub(super) struct Ring<T> {
    entries: VecDeque<T>,
    most: usize,
}

impl<T> Ring<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { entries: VecDeque::with_capacity(most), most }
    }

    pub(super) fn push(&mut self, entry: T) {
        if self.entries.len() == self.most {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    /// Drops entries from the oldest on as long as `is_old` says so of the two oldest, and keeps at least `least`.
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
    fn a_full_ring_forgets_its_oldest_entry_and_asks_for_no_memory() {
        let mut ring = Ring::new(3);
        let room = ring.entries.capacity();
        for entry in 0..10 {
            ring.push(entry);
        }
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [7, 8, 9]);
        assert_eq!((ring.oldest(), ring.newest(), ring.entries.capacity()), (Some(&7), Some(&9), room));
    }

    #[test]
    fn what_is_old_goes_but_for_the_least_number() {
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
