//! A set of pieces of one message.

use super::pieces::MAX_PIECES;

const WORDS: usize = MAX_PIECES as usize / 64;

/// One bit for each piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PieceSet([u64; WORDS]);

impl PieceSet {
    /// The pieces from 0 to before `end`.
    pub(super) fn up_to(end: u16) -> Self {
        let mut set = Self::default();
        for piece in 0..end {
            set.insert(piece);
        }
        set
    }

    pub(super) fn has(&self, piece: u16) -> bool {
        self.0.get(usize::from(piece / 64)).is_some_and(|word| word >> (piece % 64) & 1 != 0)
    }

    /// Adds a piece, and answers whether it was missing.
    pub(super) fn insert(&mut self, piece: u16) -> bool {
        let missing = !self.has(piece);
        if let Some(word) = self.0.get_mut(usize::from(piece / 64)) {
            *word |= 1 << (piece % 64);
        }
        missing
    }

    pub(super) fn remove(&mut self, piece: u16) {
        if let Some(word) = self.0.get_mut(usize::from(piece / 64)) {
            *word &= !(1 << (piece % 64));
        }
    }

    /// The first run of pieces, at most `most` of them: where it begins, and how many there are.
    pub(super) fn first_run(&self, most: u16) -> Option<(u16, u16)> {
        let (at, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        let first = at as u16 * 64 + word.trailing_zeros() as u16;
        let count = (first..MAX_PIECES).take(most.into()).take_while(|piece| self.has(*piece)).count();
        Some((first, count as u16))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_over_the_ends_of_words() {
        let mut set = PieceSet::up_to(130);
        assert_eq!((set.first_run(512), set.first_run(9)), (Some((0, 130)), Some((0, 9))));
        for piece in (0..60).chain([100]) {
            set.remove(piece);
        }
        assert_eq!(set.first_run(512), Some((60, 40)));
        assert!(set.insert(100) && !set.insert(100));
        assert_eq!(set.first_run(512), Some((60, 70)));
        assert_eq!(PieceSet::up_to(512).first_run(512), Some((0, 512)));
        assert_eq!((PieceSet::default().first_run(512), PieceSet::default().is_empty()), (None, true));
    }
}
