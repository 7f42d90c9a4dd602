//! The states of each object that arrived, as baselines of later records (§6.3).

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::commits::MAX_AGE;
use crate::schema::ObjectKind;

/// States of this many ticks can be needed: a message that is 255 ticks late refers to a state of 255 ticks before.
pub(super) const KEPT_TICKS: u32 = 2 * (MAX_AGE + 1);
/// The places of an object at first. There is one for each tick at most.
const FIRST_PLACES: usize = 32;

/// A state that arrived, without its words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StoredState {
    /// 0 for no state.
    pub(super) tick: u32,
    /// How many ticks before it was the state on which it was coded; 0 for a whole one.
    pub(super) base_age: u8,
    pub(super) kind: ObjectKind,
    pub(super) generation: u8,
}

/// The states of an object. The state of a tick has the place of this number, modulo the number of places.
#[derive(Clone, Debug, Default)]
struct ObjectStates {
    states: Box<[StoredState]>,
    words: Box<[i32]>,
}

impl ObjectStates {
    fn place(&self, tick: u32) -> usize {
        tick as usize & self.states.len().wrapping_sub(1)
    }

    fn get(&self, tick: u32) -> Option<StoredState> {
        self.states.get(self.place(tick)).copied().filter(|state| state.tick == tick && tick > 0)
    }

    fn put(&mut self, state: StoredState, words: &[i32], words_per_state: usize) {
        let place = self.place(state.tick);
        let kept_words = self.words.get_mut(place * words_per_state..(place + 1) * words_per_state);
        if let (Some(kept), Some(kept_words)) = (self.states.get_mut(place), kept_words) {
            *kept = state;
            kept_words.iter_mut().zip(words).for_each(|(kept, word)| *kept = *word);
        }
    }

    /// Doubles the number of places, so that states of this tick and of all needed ones have different places.
    fn grow(&mut self, words_per_state: usize) {
        let places = (self.states.len() * 2).clamp(FIRST_PLACES, KEPT_TICKS as usize);
        let mut larger = Self {
            states: vec![StoredState::default(); places].into_boxed_slice(),
            words: vec![0; places * words_per_state].into_boxed_slice(),
        };
        for (state, words) in self.states.iter().zip(self.words.chunks_exact(words_per_state.max(1))) {
            if state.tick > 0 {
                larger.put(*state, words, words_per_state);
            }
        }
        *self = larger;
    }
}

/// The states of all objects.
#[derive(Debug)]
pub(super) struct StateTable {
    objects: Vec<ObjectStates>,
    words_per_state: usize,
}

impl StateTable {
    pub(super) fn new(objects: usize, words_per_state: usize) -> Self {
        Self { objects: vec![ObjectStates::default(); objects], words_per_state }
    }

    pub(super) fn get(&self, object: usize, tick: u32) -> Option<StoredState> {
        self.objects.get(object)?.get(tick)
    }

    pub(super) fn words(&self, object: usize, tick: u32) -> Option<&[i32]> {
        let states = self.objects.get(object)?;
        states.get(tick)?;
        let start = states.place(tick) * self.words_per_state;
        states.words.get(start..start + self.words_per_state)
    }

    /// Keeps a state, unless there is one of this tick. `newest` is the newest tick of any message.
    pub(super) fn add(&mut self, object: usize, state: StoredState, words: &[i32], newest: u32) {
        let Some(states) = self.objects.get_mut(object) else { return };
        if states.get(state.tick).is_some() {
            return;
        }
        let is_needed = |kept: &StoredState| kept.tick > 0 && newest.saturating_sub(kept.tick) < KEPT_TICKS;
        // With a place for each needed tick, no other needed state is in the way.
        while states.states.get(states.place(state.tick)).is_none_or(is_needed)
            && states.states.len() < KEPT_TICKS as usize
        {
            states.grow(self.words_per_state);
        }
        states.put(state, words, self.words_per_state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_states_of_512_ticks_are_kept_at_each_interval() {
        for interval in [1, 2, 3, 4, 6, 7, 10, 60] {
            let mut table = StateTable::new(1, 2);
            for tick in (1..3000).step_by(interval) {
                let state = StoredState { tick, base_age: 1, kind: ObjectKind(0), generation: 3 };
                table.add(0, state, &[tick as i32, -1], tick);
                for kept in (1..=tick).rev().step_by(interval).take_while(|kept| tick - kept < KEPT_TICKS) {
                    assert_eq!(table.words(0, kept), Some(&[kept as i32, -1][..]), "{tick} {kept}");
                }
            }
            assert!(table.objects[0].states.len() <= KEPT_TICKS as usize);
        }
    }
}
