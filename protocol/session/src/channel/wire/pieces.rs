//! Pieces: the units of 128 bytes into which a long message is sliced (§3.4).

/// Bytes of a piece, the unit in which long messages are sliced, acked and retransmitted (§3.4).
pub const PIECE_BYTES: usize = 128;
/// The maximum number of pieces of a message.
pub(crate) const MAX_PIECES: u16 = 512;

/// Returns how many pieces a message of this many bytes has.
pub(crate) const fn pieces_of(bytes: u32) -> u16 {
    bytes.div_ceil(PIECE_BYTES as u32) as u16
}

const WORDS: usize = MAX_PIECES as usize / 64;

/// A set of pieces of one message: one bit for each piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PieceSet([u64; WORDS]);

impl PieceSet {
    /// Returns the set of the pieces from 0 to before `end`.
    pub(crate) fn up_to(end: u16) -> Self {
        let mut set = Self::default();
        for piece in 0..end {
            set.insert(piece);
        }
        set
    }

    pub(crate) fn has(&self, piece: u16) -> bool {
        self.0.get(usize::from(piece / 64)).is_some_and(|word| word >> (piece % 64) & 1 != 0)
    }

    /// Adds a piece. Returns whether it was missing.
    pub(crate) fn insert(&mut self, piece: u16) -> bool {
        let missing = !self.has(piece);
        if let Some(word) = self.0.get_mut(usize::from(piece / 64)) {
            *word |= 1 << (piece % 64);
        }
        missing
    }

    pub(crate) fn remove(&mut self, piece: u16) {
        if let Some(word) = self.0.get_mut(usize::from(piece / 64)) {
            *word &= !(1 << (piece % 64));
        }
    }

    /// Returns the first run of pieces, of at most `max` pieces: its first piece and its length.
    pub(crate) fn first_run(&self, max: u16) -> Option<(u16, u16)> {
        // Whole words are skipped: at most eight of them.
        let (index, word) = self.0.iter().enumerate().find(|(_, word)| **word != 0)?;
        let first = index as u16 * 64 + word.trailing_zeros() as u16;
        let count = (first..MAX_PIECES).take(max.into()).take_while(|piece| self.has(*piece)).count();
        Some((first, count as u16))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_extend_across_words() {
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
