//! The states of each object that arrived, as baselines of later records: the 64 newest ones (§6.3).

use alloc::vec;
use alloc::vec::Vec;

use crate::commits::KEPT;
use crate::schema::ObjectKind;

/// A state that arrived, without its words.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredState {
    pub(super) tick: u32,
    /// The tick of the state on which it was coded; `None` for a whole one.
    pub(super) base: Option<u32>,
    pub(super) kind: ObjectKind,
    pub(super) generation: u8,
}

/// The newest states of all objects.
#[derive(Debug)]
pub(super) struct StateTable {
    states: Vec<Option<StoredState>>,
    words: Vec<i32>,
    words_per_state: usize,
}

impl StateTable {
    pub(super) fn new(objects: usize, words_per_state: usize) -> Self {
        Self { states: vec![None; objects * KEPT], words: vec![0; objects * KEPT * words_per_state], words_per_state }
    }

    fn of(&self, object: usize) -> &[Option<StoredState>] {
        self.states.get(object * KEPT..(object + 1) * KEPT).unwrap_or(&[])
    }

    fn position(&self, object: usize, tick: u32) -> Option<usize> {
        self.of(object).iter().position(|state| state.is_some_and(|state| state.tick == tick))
    }

    pub(super) fn get(&self, object: usize, tick: u32) -> Option<StoredState> {
        self.of(object).iter().flatten().find(|state| state.tick == tick).copied()
    }

    pub(super) fn words(&self, object: usize, tick: u32) -> Option<&[i32]> {
        let start = (object * KEPT + self.position(object, tick)?) * self.words_per_state;
        self.words.get(start..start + self.words_per_state)
    }

    /// Keeps a state in the place of the oldest one, unless it is older than all, or known.
    pub(super) fn add(&mut self, object: usize, state: StoredState, words: &[i32]) {
        if self.position(object, state.tick).is_some() {
            return;
        }
        let places = self.of(object).iter().enumerate();
        let oldest = places.min_by_key(|(_, place)| place.map_or(0, |place| place.tick));
        let Some((index, replaced)) = oldest else { return };
        if replaced.is_some_and(|replaced| replaced.tick > state.tick) {
            return;
        }
        let index = object * KEPT + index;
        let start = index * self.words_per_state;
        if let (Some(place), Some(kept)) =
            (self.states.get_mut(index), self.words.get_mut(start..start + self.words_per_state))
        {
            *place = Some(state);
            kept.iter_mut().zip(words).for_each(|(kept, word)| *kept = *word);
        }
    }
}
