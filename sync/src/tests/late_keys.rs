//! Clients that simulate without all keys and go back once these arrive: their world equals that of the server.

use alloc::vec;
use alloc::vec::Vec;

use crate::{LateKeys, ObjectId, StateQueue};

const OBJECTS: u16 = 4;
const TICKS: u32 = 400;
const MAX_TICKS: u32 = 60;
/// Keys of the tick 1 in 16 never arrive. The others arrive at most this many ticks late.
const MAX_LATE: u32 = 24;

/// Each step depends on all steps before, on all keys, and on the states that were set.
#[derive(Clone, Debug, Default, PartialEq)]
struct World([Option<u64>; OBJECTS as usize]);

impl World {
    fn step(&mut self, keys: u32) {
        let carried = self.0.iter().flatten().fold(u64::from(keys), |sum, value| sum.wrapping_add(*value));
        for value in self.0.iter_mut().flatten() {
            *value = value.wrapping_mul(31).wrapping_add(carried);
        }
    }

    fn set(&mut self, id: ObjectId, state: Option<u64>) {
        self.0[usize::from(id.0)] = state;
    }
}

struct Random(u32);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % limit
    }
}

/// What happens at each tick at the server, and when the keys of the tick arrive at the client.
struct Played {
    keys: Vec<(u32, u32)>,
    states: Vec<Vec<(ObjectId, Option<u64>)>>,
}

impl Played {
    fn new(random: &mut Random) -> Self {
        let (mut keys, mut states) = (vec![(0, 0)], vec![Vec::new()]);
        for tick in 1..=TICKS {
            let is_lost = random.below(16) == 0 && tick + MAX_LATE < TICKS;
            let arrives = tick + random.below(MAX_LATE);
            keys.push(if is_lost { (0, u32::MAX) } else { (1 + random.below(9), arrives.min(TICKS)) });
            let changed = (0..OBJECTS).filter(|_| random.below(8) == 0).map(ObjectId).collect::<Vec<_>>();
            let state = |random: &mut Random| (random.below(5) > 0).then(|| u64::from(random.below(1000)));
            states.push(changed.into_iter().map(|id| (id, state(random))).collect());
        }
        Self { keys, states }
    }

    fn truth(&self) -> World {
        let mut world = World::default();
        for (keys, states) in self.keys.iter().zip(&self.states).skip(1) {
            world.step(keys.0);
            states.iter().for_each(|(id, state)| world.set(*id, *state));
        }
        world
    }
}

struct Client {
    world: World,
    tick: u32,
    save: World,
    late: LateKeys<u64>,
    queue: StateQueue<u64>,
    steps: u32,
}

impl Client {
    fn new(max_ticks: u32, capacity: usize) -> Self {
        let (late, queue) = (LateKeys::new(max_ticks, capacity), StateQueue::new(OBJECTS, 1000));
        Self { world: World::default(), tick: 0, save: World::default(), late, queue, steps: 0 }
    }

    fn push(&mut self, tick: u32, states: &[(ObjectId, Option<u64>)]) {
        for (id, state) in states {
            match state {
                Some(state) => self.queue.push(tick, *id, *state),
                None => self.queue.end(tick, *id),
            }
        }
    }

    /// Plays a frame, of at most `max_steps`.
    fn play(&mut self, goal: u32, max_steps: u32, keys: impl Fn(u32) -> Option<u32>) {
        if let Some(saved) = self.late.go_back(goal, |tick| keys(tick).is_none()) {
            assert!(saved < self.tick && goal - saved <= MAX_TICKS);
            self.world = self.save.clone();
            self.tick = saved;
        }
        for _ in 0..max_steps.min(goal - self.tick) {
            if self.late.on_step(self.tick + 1, keys(self.tick + 1).is_none()) {
                self.save = self.world.clone();
            }
            self.tick += 1;
            self.steps += 1;
            self.world.step(keys(self.tick).unwrap_or(0));
            while let Some((tick, id, state)) = self.late.next(&mut self.queue, self.tick) {
                assert_eq!(tick, self.tick, "no state is late here");
                self.world.set(id, state);
            }
        }
    }
}

#[test]
fn world_equals_the_servers_once_all_keys_arrived() {
    for (seed, max_steps) in (1..=40).zip([u32::MAX, 5].into_iter().cycle()) {
        let mut random = Random(seed);
        let (played, mut client) = (Played::new(&mut random), Client::new(MAX_TICKS, 1000));
        let (mut now, mut pushed) = (0, 0);
        while client.tick < TICKS || now < TICKS + 20 {
            now += random.below(3);
            let goal = now.min(TICKS);
            while pushed < goal {
                pushed += 1;
                client.push(pushed, &played.states[pushed as usize]);
            }
            // Keys that never arrive are known to be none after a while.
            let is_known = |arrives: u32, tick| arrives <= now || (arrives == u32::MAX && now >= tick + MAX_LATE);
            client.play(goal, max_steps, |tick| {
                let (keys, arrives) = played.keys[tick as usize];
                is_known(arrives, tick).then_some(keys)
            });
        }
        assert_eq!(client.world, played.truth(), "seed {seed}");
        assert!(client.steps > 2 * TICKS, "seed {seed}: ticks were repeated");
    }
}

/// Plays 100 ticks of which 11 to 13 lack their keys until `arrive`. Returns how many ticks were simulated.
fn steps_with_keys_at(client: &mut Client, arrive: u32) -> u32 {
    for now in 1..=100 {
        client.push(now, &[(ObjectId(0), Some(1))]);
        client.play(now, u32::MAX, |tick| (now >= arrive || !(11..=13).contains(&tick)).then_some(1));
    }
    client.steps
}

#[test]
fn keys_that_arrive_too_late_change_nothing() {
    // The save is of tick 10: at a frame for tick 70 it is 60 ticks old. Before it there are 59 ticks to repeat.
    assert_eq!(steps_with_keys_at(&mut Client::new(MAX_TICKS, 1000), 70), 159);
    assert_eq!(steps_with_keys_at(&mut Client::new(MAX_TICKS, 1000), 71), 100);
    assert_eq!(steps_with_keys_at(&mut Client::new(MAX_TICKS, 59), 70), 159);
    assert_eq!(steps_with_keys_at(&mut Client::new(MAX_TICKS, 58), 70), 100);
    assert_eq!(steps_with_keys_at(&mut Client::new(0, 1000), 20), 100);
}

#[test]
fn one_save_is_asked_for_until_it_is_too_old_or_forgotten() {
    let mut late: LateKeys<u64> = LateKeys::new(MAX_TICKS, 10);
    let saves: Vec<_> = (1..=200).filter(|tick| late.on_step(*tick, *tick >= 5)).collect();
    assert_eq!(saves, [5, 65, 125, 185]);
    late.clear();
    assert_eq!(late.go_back(200, |_| false), None);
    assert!(late.on_step(3, true) && !late.on_step(4, true) && late.on_step(4, true), "the game went back by itself");
}

#[test]
fn only_ticks_that_were_simulated_before_are_repeated_ones() {
    let mut late: LateKeys<u64> = LateKeys::new(MAX_TICKS, 10);
    (1..=9).for_each(|tick| _ = late.on_step(tick, tick == 6));
    assert!(!late.is_repeated(9));
    assert_eq!(late.go_back(12, |_| true), None);
    assert_eq!(late.go_back(12, |_| false), Some(5));
    assert!(late.is_repeated(6) && late.is_repeated(9) && !late.is_repeated(10));
}

/// Plays 400 ticks in which states and ends arrive up to 8 ticks late, keys in gusts, and the client is 4 ticks behind.
/// Returns the tick and kind of the last state that was set of each object, which the server's is to equal.
fn last_states(seed: u32) -> [Vec<(u32, bool)>; 2] {
    let mut random = Random(seed);
    let mut queue = StateQueue::new(OBJECTS, 1000);
    let mut late = LateKeys::new(MAX_TICKS, 1000);
    let mut set = vec![(0, false); usize::from(OBJECTS)];
    let (mut save, mut truth) = (set.clone(), set.clone());
    let (mut on_path, mut tick, mut known) = (Vec::new(), 0, 0);
    for now in 1..=TICKS {
        for id in 0..OBJECTS {
            let (is_sent, is_end) = (now < TICKS - 20 && random.below(4) == 0, random.below(6) == 0);
            if !is_sent {
                continue;
            }
            truth[usize::from(id)] = (now, is_end);
            on_path.push((now + 2 + random.below(8), now, id, is_end));
        }
        on_path.retain(|(arrives, tick, id, is_end)| {
            match is_end {
                _ if *arrives > now => return true,
                true => queue.end(*tick, ObjectId(*id)),
                false => queue.push(*tick, ObjectId(*id), *tick),
            }
            false
        });
        known = if random.below(12) == 0 { now.saturating_sub(5) } else { known };
        let goal = now.saturating_sub(4);
        if let Some(saved) = late.go_back(goal, |tick| tick > known) {
            (tick, set) = (saved, save.clone());
        }
        while tick < goal {
            if late.on_step(tick + 1, tick + 1 > known) {
                save = set.clone();
            }
            tick += 1;
            while let Some((of, id, state)) = late.next(&mut queue, tick) {
                let before = set[usize::from(id.0)].0;
                assert!(of > before, "seed {seed}: the state of {of} comes after that of {before}");
                set[usize::from(id.0)] = (of, state.is_none());
            }
        }
    }
    [set, truth]
}

#[test]
fn late_states_never_come_out_after_newer_ones() {
    for seed in 1..=200 {
        let [set, truth] = last_states(seed);
        assert_eq!(set, truth, "seed {seed}");
    }
}
