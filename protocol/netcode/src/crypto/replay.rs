//! The replay window: the sequence numbers that were received (§1.9).
//!
//! The window is a bitmap after RFC 6479, which clears whole words when it moves. No arithmetic adds to a received
//! number, so nothing overflows near 2^64.

/// The size of the replay window: 1,024 packets behind the newest, instead of the reference's 256 (§1.2).
///
/// A larger window loses no packets when a path reorders the bursts of a fast sender.
pub const WINDOW: u64 = ReplayWindow::SIZE;

/// The replay window of a connection: 1,024 sequence numbers.
pub type ReplayWindow = ReplayBitmap<17>;

/// A replay window of `64 * (WORDS - 1)` sequence numbers. The additional word is the one that is being filled.
///
/// Test the number, then open the packet, then mark the number: an unauthenticated number must not move the window.
#[derive(Clone, Debug)]
pub struct ReplayBitmap<const WORDS: usize> {
    newest: Option<u64>,
    seen: [u64; WORDS],
}

impl<const WORDS: usize> Default for ReplayBitmap<WORDS> {
    fn default() -> Self {
        Self { newest: None, seen: [0; WORDS] }
    }
}

impl<const WORDS: usize> ReplayBitmap<WORDS> {
    /// The number of sequence numbers in the window.
    pub const SIZE: u64 = (WORDS as u64 - 1) * 64;

    /// Returns the newest marked sequence number.
    #[must_use]
    pub const fn newest(&self) -> Option<u64> {
        self.newest
    }

    /// Returns whether a sequence number is not marked and does not lie behind the window.
    #[inline]
    pub(super) fn is_fresh(&self, sequence: u64) -> bool {
        // Without `newest`, number 0 would look like a replay before the first packet.
        let Some(newest) = self.newest else { return true };
        if sequence > newest {
            return true;
        }
        // The subtraction cannot underflow: `sequence` is at most `newest` here.
        newest - sequence < Self::SIZE && self.word(sequence) & bit(sequence) == 0
    }

    /// Marks the sequence number of an authentic packet. Returns whether it was neither marked nor behind the window,
    /// which must be so before.
    #[inline]
    pub fn mark(&mut self, sequence: u64) -> bool {
        let is_fresh = self.is_fresh(sequence);
        self.advance(sequence);
        if let Some(word) = self.seen.get_mut(Self::word_index(sequence)) {
            *word |= bit(sequence);
        }
        is_fresh
    }

    /// Moves the window to a sequence number. An older number moves it by nothing.
    fn advance(&mut self, sequence: u64) {
        // The loop clears at most WORDS words, however far the number jumps.
        let from = self.newest.map_or(0, |newest| newest / 64);
        let words = (sequence / 64).saturating_sub(from).min(WORDS as u64);
        for step in 0..words {
            if let Some(word) = self.seen.get_mut(Self::word_index((sequence / 64 - step) * 64)) {
                *word = 0;
            }
        }
        self.newest = self.newest.max(Some(sequence));
    }

    fn word(&self, sequence: u64) -> u64 {
        self.seen.get(Self::word_index(sequence)).copied().unwrap_or(u64::MAX)
    }

    const fn word_index(sequence: u64) -> usize {
        (sequence / 64 % WORDS as u64) as usize
    }
}

const fn bit(sequence: u64) -> u64 {
    1 << (sequence % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// The rule of the window, implemented with a set.
    #[derive(Default)]
    struct Model(BTreeSet<u64>);

    impl Model {
        fn is_fresh(&self, sequence: u64) -> bool {
            let behind = self.0.last().is_some_and(|newest| *newest >= sequence && newest - sequence >= WINDOW);
            !behind && !self.0.contains(&sequence)
        }
    }

    /// Generates numbers near each other, near 0 and near 2^64, with jumps of every size.
    fn sequences() -> impl Strategy<Value = Vec<u64>> {
        let start = prop_oneof![Just(0), Just(u64::MAX - 5000), any::<u64>(), Just(1 << 63)];
        let step = prop_oneof![0..4_u64, 0..70_u64, 250..260_u64, 1010..1100_u64, 0..5000_u64];
        (start, prop::collection::vec((step, any::<bool>()), 1..400)).prop_map(|(start, steps)| {
            let mut sequence = start;
            let advance = |(step, forward): (u64, bool)| {
                sequence = if forward { sequence.saturating_add(step) } else { sequence.saturating_sub(step) };
                sequence
            };
            steps.into_iter().map(advance).collect()
        })
    }

    proptest! {
        #[test]
        fn bitmap_agrees_with_the_model(sequences in sequences()) {
            let (mut window, mut model) = (ReplayWindow::default(), Model::default());
            for sequence in sequences {
                let fresh = window.is_fresh(sequence);
                prop_assert_eq!(fresh, model.is_fresh(sequence), "{}", sequence);
                if fresh {
                    window.mark(sequence);
                    model.0.insert(sequence);
                }
            }
        }
    }

    #[test]
    fn packet_overtaken_by_1023_others_is_accepted() {
        let mut window = ReplayWindow::default();
        for sequence in 1..1024 {
            window.mark(sequence);
        }
        assert!(window.is_fresh(0), "1,023 are newer");
        window.mark(1024);
        assert!(!window.is_fresh(0), "1,024 are newer");
    }

    #[test]
    fn highest_sequence_number_is_accepted_once() {
        let mut window = ReplayWindow::default();
        for sequence in [u64::MAX - WINDOW, u64::MAX] {
            assert!(window.is_fresh(sequence));
            window.mark(sequence);
        }
        assert!(!window.is_fresh(u64::MAX) && !window.is_fresh(u64::MAX - WINDOW));
        assert!(window.is_fresh(u64::MAX - (WINDOW - 1)));
    }
}
