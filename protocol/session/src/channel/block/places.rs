//! A set among the last 1,024 numbers of blocks: a place for each, taken over by the number 1,024 behind it.

use core::ops::Range;

use super::BlockId;
use super::seen::WINDOW;
use super::steps;

const BITS: u16 = u64::BITS as u16;
const WORDS: u16 = WINDOW / BITS;

/// Numbers of which no two are 1,024 or more apart. Whatever is asked of it takes 17 steps at most.
#[derive(Default)]
pub(super) struct Places([u64; WORDS as usize]);

impl Places {
    pub(super) fn contains(&self, id: BlockId) -> bool {
        self.0.get(word(id.0)).is_some_and(|word| word & bit(id.0) != 0)
    }

    /// Puts one in.
    pub(super) fn insert(&mut self, id: BlockId) {
        if let Some(word) = self.0.get_mut(word(id.0)) {
            *word |= bit(id.0);
        }
    }

    /// Takes one out; answers whether it was in.
    pub(super) fn remove(&mut self, id: BlockId) -> bool {
        let was_in = self.contains(id);
        if let Some(word) = self.0.get_mut(word(id.0)) {
            *word &= !bit(id.0);
        }
        was_in
    }

    /// Takes out whatever has the places of the `count` numbers up to `last`; they are 1,024 at most.
    pub(super) fn clear(&mut self, last: BlockId, count: u16) {
        for (at, bits) in runs(last.0.wrapping_sub(count).wrapping_add(1), count) {
            if let Some(word) = self.0.get_mut(word(at)) {
                *word &= !bits;
            }
        }
    }

    /// The first one from `oldest` on.
    pub(super) fn first_from(&self, oldest: BlockId) -> Option<BlockId> {
        runs(oldest.0, WINDOW).find_map(|(at, bits)| {
            let here = self.0.get(word(at))? & bits;
            (here != 0).then(|| BlockId((at - at % BITS).wrapping_add(here.trailing_zeros() as u16)))
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS as usize]
    }
}

/// Consecutive numbers word by word: a number of each, and the bits of those that are meant.
fn runs(first: u16, count: u16) -> impl Iterator<Item = (u16, u64)> {
    let mut left = Range { start: 0, end: count };
    core::iter::from_fn(move || {
        let at = first.wrapping_add(left.start);
        let length = (BITS - at % BITS).min(left.end - left.start);
        left.start += length;
        steps::count(1);
        (length > 0).then(|| (at, u64::MAX >> (BITS - length) << (at % BITS)))
    })
}

const fn word(number: u16) -> usize {
    (number % WINDOW / BITS) as usize
}

const fn bit(number: u16) -> u64 {
    1 << (number % BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set_that_moves_on(
            start in any::<u16>(),
            operations in prop::collection::vec((0u16..WINDOW, any::<bool>(), 0u16..=WINDOW), 0..100),
        ) {
            let (mut places, mut model, mut oldest) = (Places::default(), BTreeSet::new(), u32::from(start) + (1 << 16));
            for (ahead, add, moves) in operations {
                let number = oldest + u32::from(ahead);
                let id = |number: u32| BlockId(number as u16);
                if add {
                    places.insert(id(number));
                    model.insert(number);
                } else {
                    prop_assert_eq!(places.remove(id(number)), model.remove(&number));
                }
                if moves.is_multiple_of(3) {
                    oldest += u32::from(moves);
                    places.clear(id(oldest - 1), moves);
                    model.retain(|number| *number >= oldest);
                }
                prop_assert_eq!(places.first_from(id(oldest)), model.first().map(|first| id(*first)));
                prop_assert_eq!(places.is_empty(), model.is_empty());
                prop_assert_eq!(places.contains(id(number)), model.contains(&number));
            }
        }
    }
}
