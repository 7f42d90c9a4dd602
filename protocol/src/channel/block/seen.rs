//! Which blocks of the peer were begun already: no late copy of a `Begin` starts a block anew.

use super::BlockId;

/// How many numbers are remembered (§4.1). A sender begins no block so far ahead of its oldest unfinished one.
pub(super) const WINDOW: u16 = 1024;

const WORDS: usize = (WINDOW / 64) as usize;

/// The window of the numbers seen.
pub(super) struct Seen {
    /// One behind the newest.
    next: u16,
    words: [u64; WORDS],
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self { next: 0, words: [0; WORDS] }
    }

    /// Whether a number is in no window any more: whoever still used it would have been waited for.
    pub(super) const fn is_past(&self, id: BlockId) -> bool {
        let behind = self.next.wrapping_sub(id.0);
        behind > WINDOW && behind <= 1 << 15
    }

    /// Whether a block of this number was begun, or is too old to be begun.
    pub(super) fn contains(&self, id: BlockId) -> bool {
        self.is_past(id) || (!self.is_ahead(id) && self.word(id) & bit(id) != 0)
    }

    /// Marks a number; answers whether it is new.
    pub(super) fn mark(&mut self, id: BlockId) -> bool {
        if self.contains(id) {
            return false;
        }
        if self.is_ahead(id) {
            let passed = id.0.wrapping_sub(self.next).min(WINDOW - 1);
            (0..=passed).for_each(|step| self.forget(BlockId(id.0.wrapping_sub(step))));
            self.next = id.0.wrapping_add(1);
        }
        if let Some(word) = self.words.get_mut(place(id)) {
            *word |= bit(id);
        }
        true
    }

    /// Whether the number is not behind the newest one.
    const fn is_ahead(&self, id: BlockId) -> bool {
        id.0.wrapping_sub(self.next) < 1 << 15
    }

    fn word(&self, id: BlockId) -> u64 {
        self.words.get(place(id)).copied().unwrap_or(0)
    }

    fn forget(&mut self, id: BlockId) {
        if let Some(word) = self.words.get_mut(place(id)) {
            *word &= !bit(id);
        }
    }
}

const fn place(id: BlockId) -> usize {
    (id.0 % WINDOW / 64) as usize
}

const fn bit(id: BlockId) -> u64 {
    1 << (id.0 % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once_whatever_the_order_and_around_the_wrap() {
        let mut seen = Seen::new();
        for round in 0..200u32 {
            let base = (round * 700) as u16;
            for step in [3, 0, 699, 2, 350, 1] {
                let id = BlockId(base.wrapping_add(step));
                assert!(seen.mark(id), "{id} in round {round}");
                assert!(!seen.mark(id), "{id} in round {round}");
            }
        }
    }

    #[test]
    fn a_number_that_fell_out_of_the_window_counts_as_seen() {
        let mut seen = Seen::new();
        assert!(seen.mark(BlockId(2000)));
        assert!(!seen.contains(BlockId(977)), "the last of the window");
        assert!(seen.contains(BlockId(976)));
        assert!(!seen.contains(BlockId(2001)));
    }
}
