//! Clients that simulate: queues of states that are full or get something twice, corrections about each axis, and
//! predictions that are corrected at any moment.

use alloc::vec::Vec;

use crate::{Keys, MAX_SAVES, ObjectId, Pose, PredictOrder, Predictor, Smoothing, SmoothingDecay, StateQueue};

const ID: ObjectId = ObjectId(0);
const OTHER: ObjectId = ObjectId(1);

fn released(queue: &mut StateQueue<char>) -> Vec<(u32, ObjectId, Option<char>)> {
    core::iter::from_fn(|| queue.next(100)).collect()
}

#[test]
fn states_and_ends_that_come_twice_come_out_once() {
    let mut queue = StateQueue::new(1, 16);
    for (tick, state) in [(6, 'a'), (9, 'b'), (6, 'a')] {
        queue.push(tick, ID, state);
    }
    for tick in [12, 12, 11] {
        queue.end(tick, ID);
    }
    assert_eq!(released(&mut queue), [(6, ID, Some('a')), (9, ID, Some('b')), (12, ID, None)]);
}

#[test]
fn full_queue_drops_an_end_before_the_last_one() {
    let mut queue = StateQueue::new(1, 0);
    queue.end(5, ID);
    queue.push(6, ID, 'a');
    queue.end(8, ID);
    queue.push(9, ID, 'b');
    assert_eq!(queue.dropped(), 2);
    assert_eq!(released(&mut queue), [(8, ID, None), (9, ID, Some('b'))]);
}

#[test]
fn full_queue_keeps_a_state_of_the_tick_of_an_end() {
    let mut queue = StateQueue::new(2, 0);
    queue.end(8, ID);
    queue.push(8, ID, 'a');
    for (tick, state) in [(10, 'x'), (11, 'y'), (12, 'z')] {
        queue.push(tick, OTHER, state);
    }
    let expected = [(8, ID, None), (8, ID, Some('a')), (11, OTHER, Some('y')), (12, OTHER, Some('z'))];
    assert_eq!(released(&mut queue), expected);
}

/// Returns the rotation by an angle about an axis: 0 for x, 1 for y, 2 for z.
fn turned(axis: usize, angle: f32) -> Pose {
    let mut rotation = [0.0, 0.0, 0.0, libm::cosf(angle / 2.0)];
    rotation[axis] = libm::sinf(angle / 2.0);
    Pose { rotation, ..Pose::ORIGIN }
}

fn angle_between(one: Pose, two: Pose) -> f32 {
    let dot: f32 = one.rotation.iter().zip(two.rotation).map(|(a, b)| a * b).sum();
    2.0 * libm::acosf(dot.abs().min(1.0))
}

#[test]
fn corrections_about_each_axis_go_away_slowly() {
    for axis in 0..3 {
        for (from, to) in [(0.0, 1.2), (0.0, -1.2), (1.0, -0.2), (-0.4, 0.8)] {
            let (before, after) = (turned(axis, from), turned(axis, to));
            let mut smoothing = Smoothing::new(1, SmoothingDecay::default());
            smoothing.on_correction(ID, before, after);
            assert!(angle_between(smoothing.shown(ID, after), before) < 2e-3, "axis {axis}, {from} to {to}");
            // The small decay has 40 ms: half of the difference is left after 28 ms.
            smoothing.advance(0.0277);
            let left = angle_between(smoothing.shown(ID, after), after);
            assert!((left - 0.6).abs() < 5e-3, "{left} about axis {axis}, {from} to {to}");
        }
    }
    // A correction about one axis of an object that is turned about another one.
    let (before, after) = (turned(0, 0.7), turned(2, -1.1));
    let mut smoothing = Smoothing::new(1, SmoothingDecay::default());
    smoothing.on_correction(ID, before, after);
    assert!(angle_between(smoothing.shown(ID, after), before) < 2e-3);
}

/// A world of which the server corrects the first number only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct World {
    own: u32,
    steps: u32,
}

struct Game {
    world: World,
    saves: [World; MAX_SAVES],
    predictor: Predictor,
}

impl Game {
    /// Returns a game at this tick, to which the world has been saved.
    fn at(tick: u32) -> Self {
        let world = World { own: 0, steps: tick };
        let mut game = Self { world, saves: [World::default(); MAX_SAVES], predictor: Predictor::new(tick) };
        game.frame();
        game
    }

    fn push(&mut self, ticks: core::ops::RangeInclusive<u32>, keys: Keys) {
        ticks.for_each(|tick| assert!(self.predictor.push(tick, keys), "{tick}"));
    }

    fn frame(&mut self) {
        self.predictor.on_frame();
        while let Some(order) = self.predictor.order() {
            self.obey(order);
        }
    }

    fn obey(&mut self, order: PredictOrder) {
        match order {
            PredictOrder::Restore { save } => self.world = self.saves[save],
            PredictOrder::Correct { .. } => self.world.own = 1000,
            PredictOrder::Save { save } => self.saves[save] = self.world,
            PredictOrder::Step { keys, .. } => {
                self.world = World { own: self.world.own + keys, steps: self.world.steps + 1 };
            }
        }
        self.predictor.obeyed();
    }
}

#[test]
fn corrected_world_keeps_what_the_server_did_not_correct() {
    let mut game = Game::at(100);
    game.push(101..=116, 1);
    game.frame();
    assert_eq!(game.world, World { own: 16, steps: 116 });
    assert!(game.predictor.correct(106));
    game.frame();
    // Ten ticks are repeated, with the rest of the world as it was at the tick 106.
    assert_eq!((game.world, game.predictor.repeated()), (World { own: 1010, steps: 116 }, 10));
}

#[test]
fn ticks_before_the_first_one_have_no_save() {
    let mut game = Game::at(100);
    game.push(101..=110, 0);
    game.frame();
    assert!(!game.predictor.correct(99) && game.predictor.correct(100));
}

#[test]
fn inputs_are_taken_up_to_63_ticks_ahead_of_the_world() {
    let mut game = Game::at(100);
    game.push(101..=163, 0);
    assert!(!game.predictor.push(164, 0));
    assert_eq!((game.predictor.tick(), game.predictor.newest()), (100, 163));
}

/// A correction at a tick that the world has not reached again would be overwritten by the steps up to there.
#[test]
fn correction_during_a_repetition_is_of_a_tick_that_is_reached() {
    for (tick, is_taken) in [(117, false), (116, true), (115, true)] {
        let mut game = Game::at(100);
        game.push(101..=140, 1);
        (0..3).for_each(|_| game.frame());
        assert!(game.predictor.correct(100));
        game.frame();
        assert_eq!(game.predictor.tick(), 116, "16 of 40 ticks are repeated");
        assert_eq!(game.predictor.correct(tick), is_taken, "tick {tick}");
    }
}

#[test]
fn tick_that_is_not_saved_yet_cannot_be_corrected() {
    let mut game = Game::at(100);
    game.push(101..=102, 1);
    game.predictor.on_frame();
    let step = game.predictor.order().unwrap();
    game.obey(step);
    assert!(matches!(game.predictor.order(), Some(PredictOrder::Save { .. })) && !game.predictor.correct(101));
    let save = game.predictor.order().unwrap();
    game.obey(save);
    assert!(game.predictor.correct(101));
}
