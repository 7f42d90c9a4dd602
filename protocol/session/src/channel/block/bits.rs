//! A set of slices: which are known, acknowledged, to be sent. What is not in it costs no step of any search.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::steps;

/// Slices in one word.
const WORD: u32 = u64::BITS;

/// A set of numbers below a bound. 64 MiB in slices of 160 bytes take 52 KiB.
#[derive(Default)]
pub(super) struct Slices {
    words: Vec<u64>,
    /// A bit for each word that is not zero: 4,096 slices in each.
    summary: Vec<u64>,
    /// A bit for each word of the summary that is not zero: 262,144 slices in each.
    top: Vec<u64>,
    count: u32,
}

impl Slices {
    /// The empty set of numbers below `bound`.
    pub(super) fn new(bound: u32) -> Self {
        let words = bound.div_ceil(WORD);
        let summary = words.div_ceil(WORD);
        let [words, summary, top] = [words, summary, summary.div_ceil(WORD)].map(|length| vec![0; length as usize]);
        Self { words, summary, top, count: 0 }
    }

    /// The set of all numbers below `bound`.
    pub(super) fn full(bound: u32) -> Self {
        let mut all = Self::new(bound);
        (0..bound.div_ceil(WORD)).for_each(|at| _ = all.add(at, mask(at, &(0..bound))));
        all
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
        self.next(0)
    }

    /// Takes those of a range out, and hands them over word by word; answers whether there were any. It takes a step for
    /// each word that had some, and one more: those that are out already cost nothing.
    pub(super) fn take(&mut self, range: Range<u32>, mut taken: impl FnMut(u32, u64)) -> bool {
        let before = self.count;
        let mut from = range.start;
        while let Some(next) = self.next(from).filter(|next| *next < range.end) {
            let at = next / WORD;
            let bits = self.word(at) & mask(at, &range);
            self.clear(at, bits);
            taken(at, bits);
            from = (at + 1) * WORD;
        }
        self.count < before
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
        if new != 0 {
            mark(&mut self.summary, at);
            mark(&mut self.top, at / WORD);
        }
        new != 0
    }

    /// Takes out those of a word; answers whether any was in.
    pub(super) fn clear(&mut self, at: u32, bits: u64) -> bool {
        let Some(word) = self.words.get_mut(at as usize) else { return false };
        let gone = bits & *word;
        *word &= !gone;
        self.count -= gone.count_ones();
        if gone != 0 && *word == 0 && unmark(&mut self.summary, at) {
            unmark(&mut self.top, at / WORD);
        }
        gone != 0
    }

    /// The smallest one from `from` on.
    fn next(&self, from: u32) -> Option<u32> {
        next(&[&self.words, &self.summary, &self.top], from)
    }
}

/// The first bit from `from` on in the lowest level. Each level above tells which words of the one below are not zero;
/// the words of the last one are looked at one by one, and 64 MiB have two of them.
fn next(levels: &[&[u64]], from: u32) -> Option<u32> {
    let (words, above) = levels.split_first()?;
    steps::count(1);
    let at = from / WORD;
    let here = words.get(at as usize)? & u64::MAX << (from % WORD);
    if here != 0 {
        return Some(at * WORD + here.trailing_zeros());
    }
    let later = match above {
        [] => (at + 1..).zip(words.get(at as usize + 1..)?).find(|(_, word)| **word != 0)?.0,
        above => next(above, at + 1)?,
    };
    Some(later * WORD + words.get(later as usize)?.trailing_zeros())
}

fn mark(words: &mut [u64], index: u32) {
    if let Some(word) = words.get_mut((index / WORD) as usize) {
        *word |= bit(index);
    }
}

/// Answers whether the word is zero now.
fn unmark(words: &mut [u64], index: u32) -> bool {
    let Some(word) = words.get_mut((index / WORD) as usize) else { return false };
    *word &= !bit(index);
    *word == 0
}

const fn bit(index: u32) -> u64 {
    1 << (index % WORD)
}

/// Which bits of a word belong to a range that touches it.
fn mask(at: u32, range: &Range<u32>) -> u64 {
    let (from, to) = (range.start.max(at * WORD) - at * WORD, range.end.min(at * WORD + WORD) - at * WORD);
    u64::MAX << from & u64::MAX >> (WORD - to)
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
                    let mut told = BTreeSet::new();
                    if add {
                        (index..index + length).for_each(|index| _ = slices.insert(index));
                    } else {
                        let any = slices.take(index..index + length, |at, bits| {
                            told.extend((0..64).filter(|place| bits >> place & 1 != 0).map(|place| at * 64 + place));
                        });
                        prop_assert_eq!(any, !told.is_empty());
                        prop_assert_eq!(told, model.range(index..index + length).copied().collect());
                    }
                    (index..index + length).for_each(|i| { if add { model.insert(i); } else { model.remove(&i); } });
                }
                prop_assert_eq!(slices.first(), model.first().copied());
                prop_assert_eq!(slices.count() as usize, model.len());
                prop_assert_eq!(slices.contains(index), model.contains(&index));
            }
        }
    }

    #[test]
    fn the_full_set_has_every_number_and_is_emptied_once() {
        for bound in [0, 1, 63, 64, 65, 4096, 300_000] {
            let mut slices = Slices::full(bound);
            assert_eq!((slices.count(), slices.first()), (bound, (bound > 0).then_some(0)));
            assert!(!slices.contains(bound));
            let mut taken = 0;
            assert_eq!(slices.take(0..bound, |_, bits| taken += bits.count_ones()), bound > 0);
            assert_eq!((taken, slices.count(), slices.first()), (bound, 0, None));
            assert!(!slices.take(0..bound, |_, _| panic!("nothing is left")));
        }
    }

    #[test]
    fn one_far_away_is_found_in_a_few_steps_and_what_is_out_costs_none() {
        let mut slices = Slices::new(524_288);
        slices.insert(524_287);
        assert!(steps::of(|| assert_eq!(slices.first(), Some(524_287))) <= 3);
        assert!(steps::of(|| assert!(!slices.take(0..524_287, |_, _| panic!("there is none")))) <= 3);
    }
}
