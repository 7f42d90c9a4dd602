//! A bounded record of the newest entries, which takes memory as it fills.

use alloc::collections::VecDeque;

/// The fewest entries by which a queue grows.
const MIN_GROWTH: usize = 4;

/// A record of at most a fixed number of entries; a new one then replaces the oldest.
#[derive(Clone, Debug)]
pub(super) struct Ring<T> {
    entries: VecDeque<T>,
    max: usize,
}

impl<T> Ring<T> {
    pub(super) fn new(max: usize) -> Self {
        Self { entries: VecDeque::new(), max }
    }

    /// Adds an entry. Returns the oldest one if the record was full.
    pub(super) fn push(&mut self, entry: T) -> Option<T> {
        // Drop before pushing, so that a full record never grows.
        let dropped = if self.entries.len() == self.max { self.entries.pop_front() } else { None };
        push_back(&mut self.entries, entry, self.max);
        dropped
    }

    /// Drops the oldest entry if `is_old` holds for it. Returns it.
    pub(super) fn drop_if(&mut self, is_old: impl FnOnce(&T) -> bool) -> Option<T> {
        if self.entries.front().is_some_and(is_old) { self.entries.pop_front() } else { None }
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

    /// Returns the entry this many entries before the newest.
    pub(super) fn before_newest(&self, entries: usize) -> Option<&T> {
        self.entries.get(self.entries.len().checked_sub(entries + 1)?)
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

/// Adds an entry to a queue of at most `max` entries. The queue grows by half, because most records stay short and
/// each connection has several of them.
pub(super) fn push_back<T>(entries: &mut VecDeque<T>, entry: T, max: usize) {
    let len = entries.len();
    if len == entries.capacity() {
        entries.reserve_exact((len / 2).max(MIN_GROWTH).min(max.saturating_sub(len)));
    }
    entries.push_back(entry);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn full_ring_drops_its_oldest_entry_without_allocating() {
        let mut ring = Ring::new(30);
        assert_eq!(ring.entries.capacity(), 0, "a ring without entries takes no memory");
        for entry in 0..100 {
            assert_eq!(ring.push(entry), (entry >= 30).then(|| entry - 30));
        }
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), (70..100).collect::<Vec<_>>());
        assert_eq!((ring.oldest(), ring.newest(), ring.entries.capacity()), (Some(&70), Some(&99), 30));
    }

    #[test]
    fn single_old_entry_is_dropped_on_request() {
        let mut ring = Ring::new(10);
        assert_eq!(ring.drop_if(|_: &u32| true), None);
        ring.push(1);
        assert_eq!((ring.drop_if(|oldest| *oldest > 1), ring.drop_if(|oldest| *oldest == 1)), (None, Some(1)));
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
