//! Which blocks of the peer were begun already: no late copy of a `Begin` starts a block anew.

use super::BlockId;
use super::places::Places;

/// How many numbers are remembered (§4.1). A sender begins no block so far ahead of its oldest unfinished one.
pub(super) const WINDOW: u16 = 1024;

/// The window of the numbers seen.
#[derive(Default)]
pub(super) struct Seen {
    /// One behind the newest.
    next: u16,
    marked: Places,
}

impl Seen {
    /// Whether a number is in no window any more: whoever still used it would have been waited for.
    const fn is_past(&self, id: BlockId) -> bool {
        let behind = self.behind(id);
        behind > WINDOW && behind <= 1 << 15
    }

    /// Whether a number is one of the last 1,024.
    pub(super) const fn is_within(&self, id: BlockId) -> bool {
        let behind = self.behind(id);
        behind > 0 && behind <= WINDOW
    }

    /// The first number of the window.
    pub(super) const fn oldest(&self) -> BlockId {
        BlockId(self.next.wrapping_sub(WINDOW))
    }

    /// Whether a block of this number was begun, or is too old to be begun.
    pub(super) fn contains(&self, id: BlockId) -> bool {
        self.is_past(id) || (self.is_within(id) && self.marked.contains(id))
    }

    /// Marks a number; answers by how many numbers the window went on for it, or `None` if it is not new.
    pub(super) fn mark(&mut self, id: BlockId) -> Option<u16> {
        if self.contains(id) {
            return None;
        }
        let mut passed = 0;
        if !self.is_within(id) {
            passed = id.0.wrapping_sub(self.next).min(WINDOW - 1) + 1;
            self.marked.clear(id, passed);
            self.next = id.0.wrapping_add(1);
        }
        self.marked.insert(id);
        Some(passed)
    }

    const fn behind(&self, id: BlockId) -> u16 {
        self.next.wrapping_sub(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once_whatever_the_order_and_around_the_wrap() {
        let mut seen = Seen::default();
        for round in 0..200u32 {
            let base = (round * 700) as u16;
            for step in [3, 0, 699, 2, 350, 1] {
                let id = BlockId(base.wrapping_add(step));
                assert!(seen.mark(id).is_some(), "{id} in round {round}");
                assert!(seen.mark(id).is_none(), "{id} in round {round}");
            }
        }
    }

    #[test]
    fn a_number_that_fell_out_of_the_window_counts_as_seen() {
        let mut seen = Seen::default();
        assert_eq!(seen.mark(BlockId(2000)), Some(WINDOW));
        assert_eq!(seen.oldest(), BlockId(977));
        assert!(!seen.contains(BlockId(977)), "the last of the window");
        assert!(seen.contains(BlockId(976)));
        assert!(!seen.contains(BlockId(2001)));
    }
}
