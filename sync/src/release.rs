//! States that wait for their playout tick, where server and client both simulate (§6.8).

use alloc::collections::VecDeque;

use crate::object::ObjectId;

/// States of objects, each to be set when the client's simulation is at its tick. Nothing is allocated after
/// [`StateQueue::new`].
///
/// # Examples
///
/// ```
/// use slipgate_sync::{ObjectId, StateQueue};
///
/// let mut queue = StateQueue::new(8);
/// queue.push(12, ObjectId(1), "a state");
/// assert_eq!(queue.next(11), None);
/// assert_eq!(queue.next(12), Some((12, ObjectId(1), "a state")));
/// assert_eq!(queue.next(12), None);
/// ```
#[derive(Debug)]
pub struct StateQueue<S> {
    /// By tick; states of one tick in the order in which they came.
    states: VecDeque<(u32, ObjectId, S)>,
    capacity: usize,
    dropped: u64,
}

impl<S> StateQueue<S> {
    /// Returns a queue for this number of states.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { states: VecDeque::with_capacity(capacity), capacity, dropped: 0 }
    }

    /// Adds the state of an object at a tick. A full queue drops its oldest state.
    pub fn push(&mut self, tick: u32, id: ObjectId, state: S) {
        if self.capacity == 0 {
            return;
        }
        if self.states.len() == self.capacity {
            self.states.pop_front();
            self.dropped += 1;
        }
        // Messages come nearly in order, so the place is near the end.
        let behind = self.states.iter().rev().take_while(|(other, ..)| *other > tick).count();
        self.states.insert(self.states.len() - behind, (tick, id, state));
    }

    /// Returns and removes the oldest state, if its tick is not later than that of the simulation. A state of an
    /// earlier tick came too late: it describes the past.
    pub fn next(&mut self, tick: u32) -> Option<(u32, ObjectId, S)> {
        if self.states.front()?.0 <= tick { self.states.pop_front() } else { None }
    }

    /// Returns how many states a full queue dropped.
    #[must_use]
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_come_out_by_their_ticks() {
        let mut queue = StateQueue::new(10);
        for tick in [3, 9, 6, 6, 1] {
            queue.push(tick, ObjectId(tick as u16), tick);
        }
        let mut released = alloc::vec::Vec::new();
        while let Some((tick, ..)) = queue.next(8) {
            released.push(tick);
        }
        assert_eq!(released, [1, 3, 6, 6]);
        assert_eq!(queue.next(9), Some((9, ObjectId(9), 9)));
    }

    #[test]
    fn full_queue_drops_the_oldest_state() {
        let mut queue = StateQueue::new(2);
        (1..=3).for_each(|tick| queue.push(tick, ObjectId(0), ()));
        assert_eq!(queue.next(9), Some((2, ObjectId(0), ())));
        assert_eq!(queue.dropped(), 1);
    }
}
