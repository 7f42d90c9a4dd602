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
/// The memory of all states by default: 1,000 objects of 28 words at 60 states a second.
const DEFAULT_MAX_BYTES: usize = 64 << 20;

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

    /// Returns how many places are needed, so that states of this tick and of all needed ones have different places.
    fn places_for(&self, tick: u32, newest: u32) -> usize {
        let (places, most) = (self.states.len(), KEPT_TICKS as usize);
        let is_needed = |kept: &&StoredState| kept.tick > 0 && newest.saturating_sub(kept.tick) < KEPT_TICKS;
        let Some(kept) = self.states.get(self.place(tick)) else { return FIRST_PLACES };
        // With twice as many places, no other state can be in the way.
        let Some(kept) = Some(kept).filter(is_needed).filter(|kept| kept.tick != tick) else { return places };
        let bits_apart = (kept.tick ^ tick).trailing_zeros();
        (2_usize << bits_apart.min(16)).clamp(places, most)
    }

    /// Makes the number of places larger.
    fn grow(&mut self, places: usize, words_per_state: usize) {
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
    /// The bytes of all states, and the most that there may be.
    bytes: usize,
    max_bytes: usize,
}

impl StateTable {
    pub(super) fn new(objects: usize, words_per_state: usize) -> Self {
        let objects = vec![ObjectStates::default(); objects];
        Self { objects, words_per_state, bytes: 0, max_bytes: DEFAULT_MAX_BYTES }
    }

    pub(super) const fn set_max_bytes(&mut self, bytes: usize) {
        self.max_bytes = bytes;
    }

    #[cfg(test)]
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets all states and frees their memory.
    pub(super) fn clear(&mut self) {
        self.objects.fill(ObjectStates::default());
        self.bytes = 0;
    }

    const fn bytes_per_state(&self) -> usize {
        size_of::<StoredState>() + self.words_per_state * size_of::<i32>()
    }

    /// Returns how many more bytes there are with a state of this tick.
    pub(super) fn bytes_to_add(&self, object: usize, tick: u32, newest: u32) -> usize {
        let Some(states) = self.objects.get(object) else { return 0 };
        (states.places_for(tick, newest) - states.states.len()) * self.bytes_per_state()
    }

    pub(super) const fn has_room(&self, bytes: usize) -> bool {
        self.bytes.saturating_add(bytes) <= self.max_bytes
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
        self.bytes += self.bytes_to_add(object, state.tick, newest);
        let Some(states) = self.objects.get_mut(object) else { return };
        if states.get(state.tick).is_some() {
            return;
        }
        let places = states.places_for(state.tick, newest);
        if places > states.states.len() {
            states.grow(places, self.words_per_state);
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
