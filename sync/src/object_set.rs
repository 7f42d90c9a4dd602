//! A set of objects: one bit for each id.

use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Debug)]
pub(crate) struct ObjectSet {
    words: Vec<u64>,
}

impl ObjectSet {
    /// Returns an empty set for ids below `objects`.
    pub(crate) fn new(objects: usize) -> Self {
        Self { words: vec![0; objects.div_ceil(64)] }
    }

    pub(crate) fn insert(&mut self, id: usize) {
        if let Some(word) = self.words.get_mut(id / 64) {
            *word |= 1 << (id % 64);
        }
    }

    pub(crate) fn remove(&mut self, id: usize) {
        if let Some(word) = self.words.get_mut(id / 64) {
            *word &= !(1 << (id % 64));
        }
    }

    /// Inserts the id, or removes it.
    pub(crate) fn set(&mut self, id: usize, is_member: bool) {
        if is_member { self.insert(id) } else { self.remove(id) }
    }

    pub(crate) fn contains(&self, id: usize) -> bool {
        self.words.get(id / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    /// Returns whether the set has any of `count` ids from `first` on. `first` and 64 are multiples of `count`.
    pub(crate) fn has_any_of(&self, first: usize, count: usize) -> bool {
        let mask = u64::MAX >> (64 - count.clamp(1, 64)) << (first % 64);
        self.words.get(first / 64).is_some_and(|word| word & mask != 0)
    }

    /// Inserts the ids that the other set has.
    pub(crate) fn add(&mut self, other: &Self) {
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// Inserts the ids that both other sets have.
    pub(crate) fn add_common(&mut self, one: &Self, two: &Self) {
        let both = one.words.iter().zip(&two.words).map(|(one, two)| one & two);
        self.words.iter_mut().zip(both).for_each(|(word, both)| *word |= both);
    }

    /// Returns the number of groups of 64 ids.
    pub(crate) fn groups(&self) -> usize {
        self.words.len()
    }

    /// Returns how many ids of a group the set has and the other one has not.
    pub(crate) fn count_without(&self, other: &Self, index: usize) -> usize {
        let word = |set: &Self| set.words.get(index).copied().unwrap_or(0);
        (word(self) & !word(other)).count_ones() as usize
    }

    /// Returns the ids of a group that both sets have, in ascending order. The sets can change meanwhile.
    pub(crate) fn common_group(&self, other: &Self, index: usize) -> impl Iterator<Item = usize> + use<> {
        let word = |set: &Self| set.words.get(index).copied().unwrap_or(0);
        ids(index, word(self) & word(other))
    }

    /// Returns the ids of a group in ascending order. The set can change meanwhile.
    pub(crate) fn group(&self, index: usize) -> impl Iterator<Item = usize> + use<> {
        ids(index, self.words.get(index).copied().unwrap_or(0))
    }

    /// Inserts the ids below this one.
    pub(crate) fn insert_below(&mut self, end: usize) {
        self.words.iter_mut().take(end / 64).for_each(|word| *word = u64::MAX);
        if let Some(word) = self.words.get_mut(end / 64) {
            *word |= (1 << (end % 64)) - 1;
        }
    }

    /// Returns the ids in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.from(0)
    }

    /// Returns the ids from this one on, in ascending order.
    pub(crate) fn from(&self, first: usize) -> impl Iterator<Item = usize> {
        let words = self.words.iter().enumerate().skip(first / 64);
        words.flat_map(move |(index, word)| {
            let mask = if index == first / 64 { u64::MAX << (first % 64) } else { u64::MAX };
            ids(index, word & mask)
        })
    }

    /// Returns the largest id below this one.
    pub(crate) fn before(&self, id: usize) -> Option<usize> {
        let (mut index, mut mask) = (id / 64, (1_u64 << (id % 64)) - 1);
        loop {
            let word = self.words.get(index)? & mask;
            if word != 0 {
                return Some(index * 64 + 63 - word.leading_zeros() as usize);
            }
            (index, mask) = (index.checked_sub(1)?, u64::MAX);
        }
    }

    /// Returns the smallest id above this one.
    pub(crate) fn after(&self, id: usize) -> Option<usize> {
        self.from(id + 1).next()
    }
}

/// Returns the ids of a group from its bits.
fn ids(group: usize, mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let id = group * 64 + bits.trailing_zeros() as usize;
        // Clears the lowest bit that is set. There is none behind the last one.
        bits &= bits.checked_sub(1)?;
        Some(id)
    })
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn set_has_what_was_inserted(ids in prop::collection::btree_set(0..300_usize, 0..40), probe in 0..300_usize) {
            let mut set = ObjectSet::new(300);
            ids.iter().for_each(|id| set.insert(*id));
            prop_assert!(set.iter().eq(ids.iter().copied()));
            prop_assert!(set.from(probe).eq(ids.range(probe..).copied()));
            prop_assert_eq!(set.before(probe), ids.range(..probe).next_back().copied());
            prop_assert_eq!(set.after(probe), ids.range(probe + 1..).next().copied());
            prop_assert_eq!(set.contains(probe), ids.contains(&probe));
            prop_assert!((0..set.groups()).flat_map(|index| set.group(index)).eq(ids.iter().copied()));
            let mut other = ObjectSet::new(300);
            ids.iter().filter(|id| **id % 3 > 0).for_each(|id| other.insert(*id));
            let without: usize = (0..set.groups()).map(|index| set.count_without(&other, index)).sum();
            prop_assert_eq!(without, ids.iter().filter(|id| **id % 3 == 0).count());
            let common = (0..set.groups()).flat_map(|index| set.common_group(&other, index));
            prop_assert!(common.eq(ids.iter().copied().filter(|id| id % 3 > 0)));
            let first = probe / 16 * 16;
            prop_assert_eq!(set.has_any_of(first, 16), ids.range(first..first + 16).next().is_some());
            other.add(&set);
            prop_assert!(other.iter().eq(ids.iter().copied()));
            ids.iter().for_each(|id| set.remove(*id));
            prop_assert_eq!(set.iter().next(), None);
            set.insert_below(probe);
            prop_assert!(set.iter().eq(0..probe));
        }
    }
}
