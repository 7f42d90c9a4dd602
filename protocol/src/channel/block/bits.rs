//! A set of slices: which are known, acknowledged, to be sent. Finding the first one looks at a handful of words.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Slices in one word.
const WORD: u32 = u64::BITS;

/// A set of numbers below a bound. 64 MiB in slices of 160 bytes take 52 KiB.
#[derive(Default)]
pub(super) struct Slices {
    words: Vec<u64>,
    /// A bit for each word that is not zero: 4,096 slices in each.
    summary: Vec<u64>,
    count: u32,
}

impl Slices {
    /// The empty set of numbers below `bound`.
    pub(super) fn new(bound: u32) -> Self {
        let words = bound.div_ceil(WORD);
        Self { words: vec![0; words as usize], summary: vec![0; words.div_ceil(WORD) as usize], count: 0 }
    }

    /// How many are in it.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn contains(&self, index: u32) -> bool {
        self.word(index / WORD) & bit(index) != 0
    }

    /// Puts one in; answers whether it is new.
    pub(super) fn insert(&mut self, index: u32) -> bool {
        self.add(index / WORD, bit(index))
    }

    /// Takes one out; answers whether it was in.
    pub(super) fn remove(&mut self, index: u32) -> bool {
        self.clear(index / WORD, bit(index))
    }

    /// The smallest one.
    pub(super) fn first(&self) -> Option<u32> {
        let (at, summary) = self.summary.iter().enumerate().find(|(_, summary)| **summary != 0)?;
        let word = u32::try_from(at).ok()? * WORD + summary.trailing_zeros();
        Some(word * WORD + self.word(word).trailing_zeros())
    }

    /// The 64 slices of a word.
    pub(super) fn word(&self, at: u32) -> u64 {
        self.words.get(at as usize).copied().unwrap_or(0)
    }

    /// Puts in those of a word; answers whether any is new.
    pub(super) fn add(&mut self, at: u32, bits: u64) -> bool {
        let Some(word) = self.words.get_mut(at as usize) else { return false };
        let new = bits & !*word;
        *word |= new;
        self.count += new.count_ones();
        if new != 0
            && let Some(summary) = self.summary.get_mut((at / WORD) as usize)
        {
            *summary |= bit(at);
        }
        new != 0
    }

    /// Takes out those of a word; answers whether any was in.
    pub(super) fn clear(&mut self, at: u32, bits: u64) -> bool {
        let Some(word) = self.words.get_mut(at as usize) else { return false };
        let gone = bits & *word;
        *word &= !gone;
        self.count -= gone.count_ones();
        if *word == 0
            && let Some(summary) = self.summary.get_mut((at / WORD) as usize)
        {
            *summary &= !bit(at);
        }
        gone != 0
    }
}

const fn bit(index: u32) -> u64 {
    1 << (index % WORD)
}

/// A range of slices, word by word: 6,554 steps for the whole of 64 MiB in slices of 160 bytes.
pub(super) fn words(range: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    (range.start / WORD..range.end.div_ceil(WORD)).map(move |at| {
        let (from, to) = (range.start.max(at * WORD) - at * WORD, range.end.min(at * WORD + WORD) - at * WORD);
        (at, u64::MAX << from & u64::MAX >> (WORD - to))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(operations in prop::collection::vec((0u32..9000, any::<bool>(), 1u32..300), 0..200)) {
            let (mut slices, mut model) = (Slices::new(9300), BTreeSet::new());
            for (index, add, length) in operations {
                if length < 200 {
                    let news = if add { slices.insert(index) } else { slices.remove(index) };
                    prop_assert_eq!(news, if add { model.insert(index) } else { model.remove(&index) });
                } else {
                    for (at, bits) in words(index..index + length) {
                        if add { slices.add(at, bits); } else { slices.clear(at, bits); }
                    }
                    (index..index + length).for_each(|i| { if add { model.insert(i); } else { model.remove(&i); } });
                }
                prop_assert_eq!(slices.first(), model.first().copied());
                prop_assert_eq!(slices.count() as usize, model.len());
                prop_assert_eq!(slices.contains(index), model.contains(&index));
            }
        }
    }
}
