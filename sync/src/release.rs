//! States that wait for their playout tick, where server and client both simulate (§6.8).

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use crate::object::ObjectId;

/// States of objects, each to be set when the client's simulation is at its tick. An object's states come out in their
/// order: one that is older than the state set before is dropped. The newest state of an object always comes out, also
/// of a full queue, as its end does: nothing else would correct the object. Nothing is allocated after
/// [`StateQueue::new`].
///
/// # Examples
///
/// ```
/// use slipgate_sync::{ObjectId, StateQueue};
///
/// let (mut queue, cube) = (StateQueue::new(10, 8), ObjectId(1));
/// queue.push(12, cube, "at rest");
/// assert_eq!(queue.next(11), None);
/// assert_eq!(queue.next(12), Some((12, cube, Some("at rest"))));
/// assert_eq!(queue.next(12), None);
/// // The server has sent nothing newer, so the cube still rests there.
/// assert_eq!(queue.settled(cube), Some((12, &"at rest")));
/// // `ReplicaChange::Gone` with the tick 18.
/// queue.end(18, cube);
/// assert_eq!(queue.next(18), Some((18, cube, None)));
/// ```
#[derive(Debug)]
pub struct StateQueue<S> {
    /// By tick; `None` for the end of an object, which is before the states of its tick.
    states: VecDeque<(u32, ObjectId, Option<S>)>,
    objects: Vec<ReleasedObject<S>>,
    capacity: usize,
    dropped: u64,
}

/// What a queue knows of an object.
#[derive(Clone, Debug)]
struct ReleasedObject<S> {
    /// The newest tick of a state that was pushed.
    newest: Option<u32>,
    /// The newest state that came out.
    released: Option<(u32, S)>,
    /// The tick of the last end, or 0: earlier states are of the object before.
    gone_at: u32,
}

impl<S> ReleasedObject<S> {
    const UNKNOWN: Self = Self { newest: None, released: None, gone_at: 0 };
}

impl<S: Clone> StateQueue<S> {
    /// Returns a queue for this number of states, of ids below `max_objects`. It has room for one end and one state of
    /// each object at least. A push into a full queue searches it for the oldest state that may go, which a hostile
    /// server can make a search of the whole queue.
    #[must_use]
    pub fn new(max_objects: u16, capacity: usize) -> Self {
        let objects = usize::from(max_objects);
        let capacity = capacity.max(2 * objects);
        let (states, objects) = (VecDeque::with_capacity(capacity), vec![ReleasedObject::UNKNOWN; objects]);
        Self { states, objects, capacity, dropped: 0 }
    }

    /// Adds the state of an object at a tick. A full queue drops the oldest state that is not the newest one of its
    /// object.
    pub fn push(&mut self, tick: u32, id: ObjectId, state: S) {
        let Some(object) = self.objects.get_mut(usize::from(id.0)) else { return };
        let is_older = object.released.as_ref().is_some_and(|(released, _)| *released >= tick);
        if is_older || tick < object.gone_at || object.newest == Some(tick) {
            return;
        }
        object.newest = object.newest.max(Some(tick));
        self.insert(tick, id, Some(state));
    }

    /// Adds the end of an object, at the tick of [`ReplicaChange::Gone`](crate::ReplicaChange::Gone).
    /// [`next`](Self::next) returns it as `None`. States of this tick and later ones are of another object with the
    /// same id.
    pub fn end(&mut self, tick: u32, id: ObjectId) {
        let Some(object) = self.objects.get_mut(usize::from(id.0)) else { return };
        let is_older = object.released.as_ref().is_some_and(|(released, _)| *released >= tick);
        if is_older || tick <= object.gone_at {
            return;
        }
        object.gone_at = tick;
        self.insert(tick, id, None);
    }

    fn insert(&mut self, tick: u32, id: ObjectId, state: Option<S>) {
        if self.states.len() == self.capacity {
            self.dropped += 1;
            // This is the one to drop: no search, however many of them a hostile server sends.
            if self.states.front().is_some_and(|(oldest, ..)| tick < *oldest)
                && !self.is_newest(id, tick, state.is_none())
            {
                return;
            }
            // The room is enough for the last end and the newest state of each object, so that without an older one
            // this is one.
            let is_old = |(tick, id, state): &(u32, ObjectId, Option<S>)| !self.is_newest(*id, *tick, state.is_none());
            let Some(oldest) = self.states.iter().position(is_old) else { return };
            self.states.remove(oldest);
        }
        let is_later = |other: u32| other > tick || (state.is_none() && other == tick);
        let place = self.states.partition_point(|(other, ..)| !is_later(*other));
        self.states.insert(place, (tick, id, state));
    }

    fn is_newest(&self, id: ObjectId, tick: u32, is_end: bool) -> bool {
        self.objects.get(usize::from(id.0)).is_some_and(|object| {
            if is_end { object.gone_at == tick } else { object.newest == Some(tick) && tick >= object.gone_at }
        })
    }

    /// Returns and removes the oldest state, if its tick is not later than that of the simulation. `None` in place of
    /// the state: the object is gone. A state of an earlier tick came too late: it describes the past.
    pub fn next(&mut self, tick: u32) -> Option<(u32, ObjectId, Option<S>)> {
        while self.states.front()?.0 <= tick {
            let (tick, id, state) = self.states.pop_front()?;
            let Some(object) = self.objects.get_mut(usize::from(id.0)) else { continue };
            if object.released.as_ref().is_none_or(|(released, _)| *released < tick) {
                object.released = state.clone().map(|state| (tick, state));
                return Some((tick, id, state));
            }
        }
        None
    }

    /// Returns the newest state of an object and its tick, if it came out and no newer one waits. An object that rests
    /// or stands still in it is there still, as long as a message of the simulation's tick or a later one has arrived:
    /// the server sends nothing of an object that does not change, also if it is awake. A simulation that moved the
    /// object is wrong, and nothing but the game puts it back (§6.8).
    #[must_use]
    pub fn settled(&self, id: ObjectId) -> Option<(u32, &S)> {
        let object = self.objects.get(usize::from(id.0))?;
        let (tick, state) = object.released.as_ref()?;
        (object.newest <= Some(*tick) && object.gone_at <= *tick).then_some((*tick, state))
    }

    /// Forgets all objects and states, for another connection or a server that has started again.
    pub fn clear(&mut self) {
        self.states.clear();
        self.objects.fill(ReleasedObject::UNKNOWN);
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
        assert_eq!(queue.next(9), Some((9, ObjectId(9), Some(9))));
    }

    #[test]
    fn full_queue_drops_the_oldest_state() {
        let mut queue = StateQueue::new(1, 2);
        (1..=3).for_each(|tick| queue.push(tick, ObjectId(0), ()));
        assert_eq!(queue.next(9), Some((2, ObjectId(0), Some(()))));
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn full_queue_keeps_the_newest_state_of_each_object() {
        for capacity in [0, 3, 4, 7] {
            let mut queue = StateQueue::new(3, capacity);
            // The first object stops at once, the second one later, and the third one goes on. Some come twice.
            for tick in (1..=20).chain(5..12) {
                queue.push(1, ObjectId(0), 1);
                queue.push(tick.min(9), ObjectId(1), tick.min(9));
                queue.push(tick, ObjectId(2), tick);
            }
            while queue.next(30).is_some() {}
            let settled = [0, 1, 2].map(|id| queue.settled(ObjectId(id)).map(|(tick, state)| (tick, *state)));
            assert_eq!(settled, [Some((1, 1)), Some((9, 9)), Some((20, 20))], "room for {capacity}");
        }
    }

    #[test]
    fn older_state_than_the_released_one_never_comes_out() {
        let mut queue = StateQueue::new(2, 4);
        queue.push(6, ObjectId(0), ());
        assert_eq!(queue.next(6), Some((6, ObjectId(0), Some(()))));
        queue.push(3, ObjectId(0), ());
        queue.push(3, ObjectId(1), ());
        assert_eq!(queue.next(9), Some((3, ObjectId(1), Some(()))));
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
        queue.end(12, id);
        assert_eq!(queue.settled(id), None, "its end waits");
        assert_eq!((queue.next(12), queue.settled(id)), (Some((12, id, None)), None));
    }

    #[test]
    fn object_with_the_id_of_one_that_is_gone_keeps_its_states() {
        let id = ObjectId(0);
        // It appears at the tick of the end, or later; all comes before the simulation is there.
        for appears in [9, 12] {
            let mut queue = StateQueue::new(1, 8);
            queue.push(6, id, 'a');
            queue.end(9, id);
            queue.push(appears, id, 'b');
            queue.push(8, id, 'x');
            let come: Vec<_> = core::iter::from_fn(|| queue.next(20)).collect();
            assert_eq!(come, [(6, id, Some('a')), (9, id, None), (appears, id, Some('b'))]);
            assert_eq!(queue.settled(id), Some((appears, &'b')));
            queue.push(8, id, 'x');
            queue.end(9, id);
            assert_eq!(queue.next(20), None, "late states of the object before");
        }
    }

    #[test]
    fn ends_come_out_of_a_full_queue() {
        let mut queue = StateQueue::new(2, 0);
        for tick in 1..=20 {
            queue.push(tick, ObjectId(0), tick);
        }
        queue.end(21, ObjectId(0));
        queue.push(21, ObjectId(0), 21);
        for tick in 1..=20 {
            queue.push(tick, ObjectId(1), tick);
        }
        let come: Vec<_> = core::iter::from_fn(|| queue.next(30)).collect();
        assert!(come.ends_with(&[(21, ObjectId(0), None), (21, ObjectId(0), Some(21))]), "{come:?}");
        assert_eq!(queue.settled(ObjectId(1)), Some((20, &20)));
    }

    #[test]
    fn cleared_queue_takes_the_ticks_of_another_server() {
        let mut queue = StateQueue::new(1, 4);
        queue.push(5000, ObjectId(0), 'a');
        let _ = queue.next(5000);
        queue.end(6000, ObjectId(0));
        queue.clear();
        assert_eq!((queue.next(9000), queue.settled(ObjectId(0))), (None, None));
        queue.push(1, ObjectId(0), 'b');
        assert_eq!(queue.next(1), Some((1, ObjectId(0), Some('b'))));
    }

    #[test]
    fn unknown_ids_are_ignored() {
        let mut queue = StateQueue::new(1, 4);
        queue.push(1, ObjectId(1), ());
        queue.end(2, ObjectId(7));
        assert_eq!((queue.next(9), queue.settled(ObjectId(9))), (None, None));
    }
}
