//! States that wait for their playout tick, where server and client both simulate (§6.8).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::object::ObjectId;

/// States of objects, each to be set when the client's simulation is at its tick. An object's states come out in their
/// order: one that is older than the state set before is dropped. Nothing is allocated after [`StateQueue::new`].
///
/// # Examples
///
/// ```
/// use slipgate_sync::{ObjectId, StateQueue};
///
/// let (mut queue, cube) = (StateQueue::new(10, 8), ObjectId(1));
/// queue.push(12, cube, "at rest");
/// assert_eq!(queue.next(11), None);
/// assert_eq!(queue.next(12), Some((12, cube, "at rest")));
/// assert_eq!(queue.next(12), None);
/// // The server has sent nothing newer, so the cube still rests there.
/// assert_eq!(queue.settled(cube), Some((12, &"at rest")));
/// ```
#[derive(Debug)]
pub struct StateQueue<S> {
    /// By tick; states of one tick in the order in which they came.
    states: VecDeque<(u32, ObjectId, S)>,
    objects: Vec<ReleasedObject<S>>,
    capacity: usize,
    dropped: u64,
}

/// What a queue knows of an object.
#[derive(Clone, Debug)]
struct ReleasedObject<S> {
    /// The newest tick that was pushed.
    newest: Option<u32>,
    /// The newest state that came out.
    released: Option<(u32, S)>,
}

impl<S: Clone> StateQueue<S> {
    /// Returns a queue for this number of states, of ids below `max_objects`.
    #[must_use]
    pub fn new(max_objects: u16, capacity: usize) -> Self {
        let objects = vec![ReleasedObject { newest: None, released: None }; usize::from(max_objects)];
        Self { states: VecDeque::with_capacity(capacity), objects, capacity, dropped: 0 }
    }

    /// Adds the state of an object at a tick. A full queue drops its oldest state.
    pub fn push(&mut self, tick: u32, id: ObjectId, state: S) {
        let Some(object) = self.objects.get_mut(usize::from(id.0)) else { return };
        let is_older = object.released.as_ref().is_some_and(|(released, _)| *released >= tick);
        if self.capacity == 0 || is_older {
            return;
        }
        object.newest = object.newest.max(Some(tick));
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
        while self.states.front()?.0 <= tick {
            let (tick, id, state) = self.states.pop_front()?;
            let Some(object) = self.objects.get_mut(usize::from(id.0)) else { continue };
            if object.released.as_ref().is_none_or(|(released, _)| *released < tick) {
                object.released = Some((tick, state.clone()));
                return Some((tick, id, state));
            }
        }
        None
    }

    /// Returns the newest state of an object and its tick, if it came out and no newer one waits. An object that rests
    /// in it rests there still, as long as a message of the simulation's tick or a later one has arrived: the server
    /// sends nothing of an object that does not change. A simulation that moved the object is wrong (§6.8).
    #[must_use]
    pub fn settled(&self, id: ObjectId) -> Option<(u32, &S)> {
        let object = self.objects.get(usize::from(id.0))?;
        let (tick, state) = object.released.as_ref()?;
        (object.newest <= Some(*tick)).then_some((*tick, state))
    }

    /// Forgets an object that is gone, and its states.
    pub fn remove(&mut self, id: ObjectId) {
        self.states.retain(|(_, other, _)| *other != id);
        if let Some(object) = self.objects.get_mut(usize::from(id.0)) {
            *object = ReleasedObject { newest: None, released: None };
        }
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
        let mut queue = StateQueue::new(10, 10);
        for tick in [3, 9, 6, 6, 1] {
            queue.push(tick, ObjectId(tick as u16), tick);
        }
        let mut released = Vec::new();
        while let Some((tick, ..)) = queue.next(8) {
            released.push(tick);
        }
        assert_eq!(released, [1, 3, 6], "a second state of a tick is dropped");
        assert_eq!(queue.next(9), Some((9, ObjectId(9), 9)));
    }

    #[test]
    fn full_queue_drops_the_oldest_state() {
        let mut queue = StateQueue::new(1, 2);
        (1..=3).for_each(|tick| queue.push(tick, ObjectId(0), ()));
        assert_eq!(queue.next(9), Some((2, ObjectId(0), ())));
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn older_state_than_the_released_one_never_comes_out() {
        let mut queue = StateQueue::new(2, 4);
        queue.push(6, ObjectId(0), ());
        assert_eq!(queue.next(6), Some((6, ObjectId(0), ())));
        queue.push(3, ObjectId(0), ());
        queue.push(3, ObjectId(1), ());
        assert_eq!(queue.next(9), Some((3, ObjectId(1), ())));
        assert_eq!(queue.next(9), None);
    }

    #[test]
    fn object_is_settled_until_a_newer_state_waits() {
        let mut queue = StateQueue::new(1, 4);
        let id = ObjectId(0);
        assert_eq!(queue.settled(id), None);
        queue.push(6, id, 'a');
        assert_eq!(queue.settled(id), None, "the state has not come out");
        let _ = queue.next(6);
        assert_eq!(queue.settled(id), Some((6, &'a')));
        queue.push(9, id, 'b');
        assert_eq!(queue.settled(id), None);
        let _ = queue.next(9);
        assert_eq!(queue.settled(id), Some((9, &'b')));
        queue.remove(id);
        assert_eq!(queue.settled(id), None);
    }

    #[test]
    fn unknown_ids_are_ignored() {
        let mut queue = StateQueue::new(1, 4);
        queue.push(1, ObjectId(1), ());
        queue.remove(ObjectId(7));
        assert_eq!((queue.next(9), queue.settled(ObjectId(9))), (None, None));
    }
}
