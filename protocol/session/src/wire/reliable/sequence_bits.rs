//! One bit for each of the last n sequence numbers.

use alloc::boxed::Box;
use alloc::vec;

use super::Sequence;

const WORD: u16 = u64::BITS as u16;

/// Returns a mask of the lowest `count` bits: all 64 if there are more.
pub(crate) fn low_bits(count: u64) -> u64 {
    1_u64.checked_shl(count.min(64) as u32).map_or(u64::MAX, |above| above - 1)
}

/// A ring of bits, newest first, as in acknowledgements: the index of a sequence number is -1 minus the number, modulo
/// the size of the ring.
///
/// The size is a power of two, so that it divides 65,536 and the index is continuous across the wrap.
pub(crate) struct SequenceBits {
    words: Box<[u64]>,
    size: u16,
}

impl SequenceBits {
    /// Creates `size` clear bits; `size` must be a power of two.
    pub(crate) fn new(size: u16) -> Self {
        debug_assert!(size.is_power_of_two(), "checked with the configuration");
        Self { words: vec![0; usize::from(size.div_ceil(WORD))].into_boxed_slice(), size }
    }

    /// Returns the bits of 64 numbers: bit i is that of `newest - i`. A ring of fewer bits leaves the others 0.
    pub(crate) fn newest_first(&self, newest: Sequence) -> u64 {
        let Some(first) = self.words.first() else { return 0 };
        let (word, bit) = self.slot(newest);
        if self.size < WORD {
            // Repeat the ring until it fills a word, so that each rotation is a shift.
            let all = (1 << self.size) - 1;
            return (*first * (u64::MAX / all)).rotate_right(bit.into()) & all;
        }
        let current = self.words.get(word).copied().unwrap_or(0);
        let older = self.words.get(word + 1).unwrap_or(first);
        // Two shifts, because a shift by 64 is no shift.
        current >> bit | *older << 1 << (WORD - 1 - bit)
    }

    pub(crate) fn get(&self, sequence: Sequence) -> bool {
        let (word, bit) = self.slot(sequence);
        self.words.get(word).is_some_and(|word| word >> bit & 1 != 0)
    }

    pub(crate) fn set(&mut self, sequence: Sequence) {
        let (word, bit) = self.slot(sequence);
        if let Some(word) = self.words.get_mut(word) {
            *word |= 1 << bit;
        }
    }

    /// Sets or clears one bit.
    pub(crate) fn assign(&mut self, sequence: Sequence, is_set: bool) {
        let (word, bit) = self.slot(sequence);
        if let Some(word) = self.words.get_mut(word) {
            *word = *word & !(1 << bit) | u64::from(is_set) << bit;
        }
    }

    /// Returns whether no bit is set.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Clears one bit, and returns whether it was set.
    pub(crate) fn take(&mut self, sequence: Sequence) -> bool {
        let (word, bit) = self.slot(sequence);
        let Some(word) = self.words.get_mut(word) else { return false };
        let before = *word;
        *word = before & !(1 << bit);
        *word != before
    }

    /// Clears `count` bits from `first` on, and returns how many of them were set.
    pub(crate) fn clear(&mut self, first: Sequence, count: u16) -> u16 {
        let count = count.min(self.size);
        // From the newest one on, in the order of the ring.
        let (mut at, mut left, mut were_set) = (first + count - 1, count, 0);
        while left > 0 {
            let (word, bit) = self.slot(at);
            // Whole words at a time: a jump over the window costs 32 steps instead of 2,048.
            let run = left.min(self.run(bit));
            // `run` is at least 1 and at most 64, so the shift is in range.
            let mask = (u64::MAX >> (WORD - run)) << bit;
            if let Some(word) = self.words.get_mut(word) {
                were_set += (*word & mask).count_ones() as u16;
                *word &= !mask;
            }
            (at, left) = (at - run, left - run);
        }
        were_set
    }

    /// Returns the first set bit of the ring, searched from `first` on.
    pub(crate) fn first_set(&self, first: Sequence) -> Option<Sequence> {
        let mut checked = 0;
        while checked < self.size {
            // Against the order of the ring.
            let (word, bit) = self.slot(first + checked);
            let rest = self.words.get(word).copied().unwrap_or(0) << (WORD - 1 - bit);
            let found = checked + rest.leading_zeros() as u16;
            if rest != 0 && found < self.size {
                return Some(first + found);
            }
            checked += bit + 1;
        }
        None
    }

    /// Returns the number of bits from `bit` to the end of its word.
    fn run(&self, bit: u16) -> u16 {
        WORD.min(self.size) - bit
    }

    fn slot(&self, sequence: Sequence) -> (usize, u16) {
        let slot = !sequence.0 & (self.size - 1);
        (usize::from(slot / WORD), slot % WORD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u16),
        Clear(u16, u16),
        FirstSet(u16),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            any::<u16>().prop_map(Step::Set),
            (any::<u16>(), prop_oneof![0..3_u16, 0..200_u16, any::<u16>()])
                .prop_map(|(at, count)| Step::Clear(at, count)),
            any::<u16>().prop_map(Step::FirstSet),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn ring_of_words_matches_a_set_of_indices(log in 4..12_u32, steps in steps()) {
            let size = 1_u16 << log;
            let slot = |sequence: u16| sequence & (size - 1);
            let (mut bits, mut model) = (SequenceBits::new(size), BTreeSet::new());
            for step in steps {
                match step {
                    Step::Set(at) => {
                        bits.set(Sequence(at));
                        model.insert(slot(at));
                    }
                    Step::Clear(first, count) => {
                        let span = (0..count.min(size)).map(|ahead| slot(first.wrapping_add(ahead)));
                        let were_set = span.filter(|at| model.remove(at)).count();
                        prop_assert_eq!(usize::from(bits.clear(Sequence(first), count)), were_set);
                    }
                    Step::FirstSet(first) => {
                        let mut ring = (0..size).map(|ahead| first.wrapping_add(ahead));
                        let found = ring.find(|at| model.contains(&slot(*at))).map(Sequence);
                        prop_assert_eq!(bits.first_set(Sequence(first)), found);
                    }
                }
                prop_assert_eq!(bits.is_empty(), model.is_empty());
                for at in 0..size {
                    prop_assert_eq!(bits.get(Sequence(at)), model.contains(&at));
                }
                for newest in [0, 1, 15, 40, 63, 64, size - 1, size + 7, u16::MAX] {
                    let expected = (0..64.min(size)).filter(|back| bits.get(Sequence(newest) - *back));
                    let expected = expected.fold(0, |word: u64, back| word | 1 << back);
                    prop_assert_eq!(bits.newest_first(Sequence(newest)), expected);
                }
            }
        }
    }
}
