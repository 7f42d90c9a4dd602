//! Ticks that are simulated without all keys, where server and client both simulate, and repeated once the keys
//! arrive (§6.8).

use alloc::collections::VecDeque;

use crate::object::ObjectId;
use crate::release::StateQueue;

/// Says when a client that simulates too has to save its world, and when it has to go back to the save.
///
/// A client that is ahead of the newest message simulates without the keys of some players. Objects that these keys
/// move are wrong until their states arrive. The client saves its world before the first such tick. It restores the
/// save once keys of such a tick arrive, and simulates up to its present tick again. The states that came out of the
/// [`StateQueue`] since then come out once more, each at its tick.
///
/// A tick lacks keys as long as those of one player are missing: the server sends the keys that it played of each
/// player, also of a silent one. One save is held at most. Keys that arrive later than `max_ticks` after the save
/// change nothing. Nothing is allocated after [`LateKeys::new`].
///
/// # Examples
///
/// ```
/// use slipgate_sync::{LateKeys, ObjectId, StateQueue};
///
/// // A world that is a sum of all keys, and has one object.
/// let (mut world, mut save, mut tick) = (0_u32, 0, 0);
/// let mut queue = StateQueue::new(1, 64);
/// let mut late = LateKeys::new(60, 64);
/// let mut play = |queue: &mut StateQueue<u32>, goal: u32, keys: &[Option<u32>]| {
///     let keys = |tick: u32| keys.get(tick as usize).copied().flatten();
///     if let Some(saved) = late.go_back(goal, |tick| keys(tick).is_none()) {
///         (world, tick) = (save, saved);
///     }
///     while tick < goal {
///         if late.on_step(tick + 1, keys(tick + 1).is_none()) {
///             save = world;
///         }
///         tick += 1;
///         world += keys(tick).unwrap_or(0);
///         while let Some((_, _, state)) = late.next(queue, tick) {
///             world = state.unwrap_or(world);
///         }
///     }
///     world
/// };
/// queue.push(2, ObjectId(0), 100);
/// assert_eq!(play(&mut queue, 3, &[None, Some(1)]), 100);
/// // The keys of the ticks 2 and 3 arrive. The state of tick 2 is set again.
/// assert_eq!(play(&mut queue, 4, &[None, Some(1), Some(5), Some(7)]), 107);
/// ```
#[derive(Debug)]
pub struct LateKeys<S> {
    max_ticks: u32,
    capacity: usize,
    /// The tick of the save, if there is one.
    saved: Option<u32>,
    /// The ticks since then that were simulated without all keys.
    missing: VecDeque<u32>,
    /// The states that came out since then.
    kept: VecDeque<(u32, ObjectId, Option<S>)>,
    /// The states that come out again.
    again: VecDeque<(u32, ObjectId, Option<S>)>,
    /// The newest tick that was simulated.
    simulated: u32,
    /// The tick up to which all is repeated.
    repeated_to: u32,
}

impl<S: Clone> LateKeys<S> {
    /// Returns a type that repeats at most this many ticks: about a second of them is enough, because a client jumps
    /// after longer silences. It keeps at most `capacity` states that came out since the save, which should be the
    /// objects times the states of a second. If more come out, it forgets the save, and these ticks are not repeated.
    #[must_use]
    pub fn new(max_ticks: u32, capacity: usize) -> Self {
        Self {
            max_ticks,
            capacity,
            saved: None,
            missing: VecDeque::with_capacity(max_ticks as usize),
            kept: VecDeque::with_capacity(capacity),
            again: VecDeque::with_capacity(capacity),
            simulated: 0,
            repeated_to: 0,
        }
    }

    /// Returns the tick of the save, if keys of a tick arrived that was simulated without them: the game restores its
    /// save, and simulates from there to `goal`. Call it in each frame before the first step, with the tick that the
    /// world is to reach in this frame, and with a function that returns whether the keys of a tick are missing.
    pub fn go_back(&mut self, goal: u32, mut is_missing: impl FnMut(u32) -> bool) -> Option<u32> {
        let saved = self.saved?;
        if goal.saturating_sub(saved) > self.max_ticks {
            self.forget_save();
            return None;
        }
        if self.missing.iter().all(|tick| is_missing(*tick)) {
            return None;
        }
        self.again.append(&mut self.kept);
        // Each comes out at its own tick: one that came late would wait behind later ones otherwise, and come out
        // after a newer state of its object.
        self.again.make_contiguous().sort_unstable_by_key(|(tick, id, state)| (*tick, state.is_some(), *id));
        self.forget_save();
        self.repeated_to = self.simulated;
        Some(saved)
    }

    /// Notes that the world is about to be simulated to this tick. Returns whether the game has to save the whole
    /// world first: everything that a step reads. The new save replaces the one before.
    pub fn on_step(&mut self, tick: u32, is_missing: bool) -> bool {
        let is_again = self.missing.back().is_some_and(|newest| *newest >= tick);
        if is_again || self.saved.is_some_and(|saved| tick.saturating_sub(saved) > self.max_ticks) {
            self.forget_save();
        }
        self.simulated = self.simulated.max(tick);
        if !is_missing || self.max_ticks == 0 {
            return false;
        }
        let is_first = self.saved.is_none();
        self.saved.get_or_insert(tick.saturating_sub(1));
        self.missing.push_back(tick);
        is_first
    }

    /// Returns the next state that is due at the tick of the world, or the end of an object, as [`StateQueue::next`]
    /// does. While ticks are repeated, the states that came out before come first. Use it for all states.
    pub fn next(&mut self, queue: &mut StateQueue<S>, tick: u32) -> Option<(u32, ObjectId, Option<S>)> {
        let is_due = self.again.front().is_some_and(|(due, ..)| *due <= tick);
        let state = if is_due { self.again.pop_front() } else { queue.next(tick) }?;
        if self.saved.is_some() {
            if self.kept.len() + self.again.len() < self.capacity {
                self.kept.push_back(state.clone());
            } else {
                self.forget_save();
            }
        }
        Some(state)
    }

    /// Returns whether the tick was simulated before: without sounds and effects, and what it moves is no correction
    /// of its own. The correction is the difference between the worlds before and after all repeated ticks.
    #[must_use]
    pub const fn is_repeated(&self, tick: u32) -> bool {
        tick <= self.repeated_to
    }

    /// Forgets all, for another connection or a server that has started again.
    pub fn clear(&mut self) {
        self.forget_save();
        self.again.clear();
        (self.simulated, self.repeated_to) = (0, 0);
    }

    fn forget_save(&mut self) {
        self.saved = None;
        self.missing.clear();
        self.kept.clear();
    }
}
