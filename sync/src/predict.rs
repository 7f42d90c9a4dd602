//! Prediction: a client simulates ahead of the server with its own inputs, and repeats corrected ticks (§6.9).

use crate::inputs::Keys;

/// The saves that a predictor asks for, each a whole world, and the most ticks that can be repeated.
pub const MAX_SAVES: usize = 64;
/// The most steps between two calls of [`Predictor::on_frame`]; the others follow in the next frame.
const STEPS_PER_FRAME: u32 = 16;

/// The next task of a game that predicts. An order stays until [`Predictor::obeyed`] is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredictOrder {
    /// Put the whole world back to a save.
    Restore {
        /// The number of the save, below [`MAX_SAVES`].
        save: usize,
    },
    /// Set the server's states of this tick into the world, and those of all objects that have not changed since an
    /// earlier one.
    Correct {
        /// The tick.
        tick: u32,
    },
    /// Save the whole world: everything that a step reads.
    Save {
        /// The number of the save, below [`MAX_SAVES`].
        save: usize,
    },
    /// Simulate one tick.
    Step {
        /// The tick that the world has afterwards.
        tick: u32,
        /// The own keys.
        keys: Keys,
        /// Whether this tick was simulated before: without sounds and effects.
        is_repeated: bool,
    },
}

/// The next thing to do at the tick of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderStage {
    Restore,
    Correct,
    Save,
    Step,
}

/// Orders a game to step, save and repeat, so that its world is at the tick of its newest input.
///
/// It repeats at most 63 ticks: [`correct`](Self::correct) refuses an older tick, because its save is overwritten.
/// These are 1,050 ms at 60 ticks a second, 490 ms at 128, and 262 ms at 240. They have to cover the round trip, the
/// time between two states, and how far inputs are ahead of the server. A game with slower paths simulates fewer ticks
/// a second. A refused correction is not lost for good: the next state of a later tick corrects the world, and one that
/// is always too old says that the client must start again with [`Predictor::new`].
///
/// It orders at most 16 steps in a frame, so that a slow machine does not fall further behind with each one. These are
/// 267 ms at 60 ticks a second, and 125 ms at 128. The others follow in the next frames. Until then the world is shown
/// a little in the past: [`tick`](Self::tick) is behind [`newest`](Self::newest). A game that repeats more ticks at its
/// corrections, and has the time, calls [`on_frame`](Self::on_frame) again in the same frame until both are equal.
///
/// # Examples
///
/// ```
/// use slipgate_sync::{MAX_SAVES, PredictOrder, Predictor};
///
/// // A world that is a sum of all inputs.
/// let (mut world, mut saves) = (0_u32, [0; MAX_SAVES]);
/// let mut predictor = Predictor::new(100);
/// let mut frame = |predictor: &mut Predictor, corrected: u32| {
///     predictor.on_frame();
///     while let Some(order) = predictor.order() {
///         match order {
///             PredictOrder::Restore { save } => world = saves[save],
///             PredictOrder::Correct { .. } => world = corrected,
///             PredictOrder::Save { save } => saves[save] = world,
///             PredictOrder::Step { keys, .. } => world += keys,
///         }
///         predictor.obeyed();
///     }
///     world
/// };
/// assert!((101..=105).all(|tick| predictor.push(tick, 1)));
/// assert_eq!(frame(&mut predictor, 0), 5);
/// // The server had 12 at tick 102, not 2.
/// assert!(predictor.correct(102));
/// assert_eq!(frame(&mut predictor, 12), 15);
/// ```
#[derive(Debug)]
pub struct Predictor {
    /// The tick of the world.
    world: u32,
    /// The tick of the newest input.
    newest: u32,
    /// The newest tick that was ever simulated.
    simulated: u32,
    /// The oldest tick with a save.
    oldest: u32,
    keys: [Keys; MAX_SAVES],
    stage: OrderStage,
    /// Whether the save of the world's tick is written.
    is_saved: bool,
    correction: Option<u32>,
    steps_left: u32,
    repeated: u64,
}

impl Predictor {
    /// Returns a predictor for a world that is at this tick. The first order is to save it.
    #[must_use]
    pub const fn new(tick: u32) -> Self {
        Self {
            world: tick,
            newest: tick,
            simulated: tick,
            oldest: tick,
            keys: [0; MAX_SAVES],
            stage: OrderStage::Save,
            is_saved: false,
            correction: None,
            steps_left: STEPS_PER_FRAME,
            repeated: 0,
        }
    }

    /// Adds the own keys of the next tick. Returns whether they were taken: a tick that is not the next one, and one
    /// that is [`MAX_SAVES`] or more ticks ahead of the world or of a correction that is due, is refused. Ticks must
    /// not be left out: after a refusal push the same tick again later, or start again with [`Predictor::new`] and a
    /// state of the server. An object that did not change gets no new state: start with the one that
    /// [`Replica`](crate::Replica) has, at [`Replica::newest_tick`](crate::Replica::newest_tick).
    pub fn push(&mut self, tick: u32, keys: Keys) -> bool {
        // The keys of all ticks that are still to be simulated are needed.
        let oldest = self.correction.map_or(self.world, |due| due.min(self.world));
        if Some(tick) != self.newest.checked_add(1) || tick - oldest >= MAX_SAVES as u32 {
            return false;
        }
        if let Some(kept) = self.keys.get_mut(tick as usize % MAX_SAVES) {
            *kept = keys;
        }
        self.newest = tick;
        true
    }

    /// Demands that the world is put back to a tick, corrected by the server's states, and simulated again. Call it
    /// only if quantised states differ. It replaces an earlier correction that is due: at [`PredictOrder::Correct`] set
    /// the newest known state up to its tick of each object, also those of other messages. Returns false if no save of
    /// the tick is left, if the newest input is [`MAX_SAVES`] or more ticks later, or if a later correction is due. An
    /// object at rest gets no new state while the prediction moves it: compare with its last state at the tick of each
    /// later message, too.
    pub fn correct(&mut self, tick: u32) -> bool {
        let is_kept = (self.oldest..=self.simulated).contains(&tick) && self.newest - tick < MAX_SAVES as u32;
        if self.correction == Some(tick) {
            return true;
        }
        if !is_kept || self.correction.is_some_and(|due| due > tick) {
            return false;
        }
        if tick > self.world || (tick == self.world && !self.is_saved) {
            return false;
        }
        self.correction = Some(tick);
        self.stage = OrderStage::Restore;
        true
    }

    /// Starts a frame, or continues it: up to 16 more steps are ordered.
    pub const fn on_frame(&mut self) {
        self.steps_left = STEPS_PER_FRAME;
    }

    /// Returns what is to be done now. The same order is returned until [`obeyed`](Self::obeyed) is called. `None` if
    /// the world is at the newest input, or this frame had its steps.
    #[must_use]
    pub fn order(&self) -> Option<PredictOrder> {
        let save = |tick: u32| tick as usize % MAX_SAVES;
        match (self.stage, self.correction) {
            (OrderStage::Restore, Some(tick)) => Some(PredictOrder::Restore { save: save(tick) }),
            (OrderStage::Correct, Some(tick)) => Some(PredictOrder::Correct { tick }),
            (OrderStage::Save, _) => Some(PredictOrder::Save { save: save(self.world) }),
            _ if self.world == self.newest || self.steps_left == 0 => None,
            _ => {
                let tick = self.world + 1;
                let keys = self.keys.get(save(tick)).copied().unwrap_or(0);
                Some(PredictOrder::Step { tick, keys, is_repeated: tick <= self.simulated })
            }
        }
    }

    /// Notes that the present order is obeyed.
    pub fn obeyed(&mut self) {
        let Some(order) = self.order() else { return };
        match order {
            PredictOrder::Restore { .. } => {
                self.world = self.correction.unwrap_or(self.world);
                (self.stage, self.is_saved) = (OrderStage::Correct, true);
            }
            PredictOrder::Correct { .. } => {
                (self.correction, self.stage, self.is_saved) = (None, OrderStage::Save, false);
            }
            PredictOrder::Save { .. } => (self.stage, self.is_saved) = (OrderStage::Step, true),
            PredictOrder::Step { tick, is_repeated, .. } => {
                self.repeated += u64::from(is_repeated);
                (self.world, self.stage, self.is_saved) = (tick, OrderStage::Save, false);
                self.simulated = self.simulated.max(tick);
                self.oldest = self.oldest.max(self.simulated.saturating_sub(MAX_SAVES as u32 - 1));
                self.steps_left -= 1;
            }
        }
    }

    /// Returns the tick of the world.
    #[must_use]
    pub const fn tick(&self) -> u32 {
        self.world
    }

    /// Returns the tick of the newest input.
    #[must_use]
    pub const fn newest(&self) -> u32 {
        self.newest
    }

    /// Returns how many ticks were simulated again.
    #[must_use]
    pub const fn repeated(&self) -> u64 {
        self.repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A world in which each step depends on all inputs before.
    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    struct World(u64);

    impl World {
        fn step(&mut self, keys: Keys) {
            self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(keys) + 1);
        }
    }

    struct Game {
        world: World,
        saves: [World; MAX_SAVES],
        steps: u32,
    }

    impl Game {
        fn obey(&mut self, predictor: &mut Predictor, truth: impl Fn(u32) -> World) {
            while let Some(order) = predictor.order() {
                assert_eq!(predictor.order(), Some(order), "an order stays until it is obeyed");
                match order {
                    PredictOrder::Restore { save } => self.world = self.saves[save],
                    PredictOrder::Correct { tick } => self.world = truth(tick),
                    PredictOrder::Save { save } => self.saves[save] = self.world,
                    PredictOrder::Step { keys, .. } => {
                        self.steps += 1;
                        self.world.step(keys);
                    }
                }
                predictor.obeyed();
            }
        }
    }

    fn truth(tick: u32, late: u32) -> World {
        let mut world = World(7);
        (1..=tick).for_each(|tick| world.step(if tick <= late { 9 } else { tick }));
        world
    }

    #[test]
    fn corrected_world_equals_one_that_knew_all_inputs() {
        let mut game = Game { world: World(7), saves: [World(0); MAX_SAVES], steps: 0 };
        let mut predictor = Predictor::new(0);
        for tick in 1..=200_u32 {
            assert!(predictor.push(tick, tick));
            if tick % 7 == 0 && tick > 20 {
                assert!(predictor.correct(tick - 20), "tick {tick}");
            }
            // The server had other inputs in the ticks up to 100.
            for _ in 0..3 {
                predictor.on_frame();
                game.obey(&mut predictor, |tick| truth(tick, 100));
            }
            assert_eq!(predictor.tick(), tick);
        }
        assert_eq!(game.world, truth(200, 100));
        assert!(predictor.repeated() > 400);
    }

    #[test]
    fn frame_has_at_most_16_steps_and_none_is_dropped() {
        let mut game = Game { world: World(7), saves: [World(0); MAX_SAVES], steps: 0 };
        let mut predictor = Predictor::new(0);
        (1..=40).for_each(|tick| assert!(predictor.push(tick, tick)));
        for expected in [16, 32, 40, 40] {
            predictor.on_frame();
            game.obey(&mut predictor, |_| World(0));
            assert_eq!(game.steps, expected);
        }
        assert_eq!(game.world, truth(40, 0));
    }

    #[test]
    fn corrections_of_forgotten_and_future_ticks_are_refused() {
        let mut game = Game { world: World(7), saves: [World(0); MAX_SAVES], steps: 0 };
        let mut predictor = Predictor::new(0);
        for tick in 1..=100 {
            predictor.push(tick, tick);
            predictor.on_frame();
            game.obey(&mut predictor, |_| World(0));
        }
        assert!(!predictor.correct(36) && !predictor.correct(101));
        assert!(predictor.correct(37));
        assert!(predictor.correct(37), "another message of the same tick");
        assert!(predictor.correct(38) && !predictor.correct(37), "a later correction is due");
        assert!(!predictor.push(110, 0));
    }

    /// Inputs and corrections come between any two orders, as an order stays until it is obeyed.
    #[test]
    fn saves_and_keys_are_those_of_their_ticks_at_any_order() {
        for seed in 1..=40_u32 {
            let (mut predictor, mut random) = (Predictor::new(1000), seed);
            let mut below = |limit: u32| {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (random >> 8) % limit
            };
            let (mut world, mut saves, mut corrected) = (1000, [0; MAX_SAVES], 0);
            for _ in 0..20_000 {
                match below(8) {
                    0 | 1 => _ = predictor.push(predictor.newest() + 1, predictor.newest() + 1),
                    2 => corrected += u32::from(predictor.correct(predictor.tick().saturating_sub(below(66)))),
                    3 => predictor.on_frame(),
                    _ => {
                        match predictor.order() {
                            None => continue,
                            Some(PredictOrder::Restore { save }) => world = saves[save],
                            Some(PredictOrder::Correct { tick }) => assert_eq!(world, tick, "seed {seed}"),
                            Some(PredictOrder::Save { save }) => saves[save] = world,
                            Some(PredictOrder::Step { tick, keys, .. }) => {
                                assert_eq!((world + 1, keys), (tick, tick), "seed {seed}");
                                world = tick;
                            }
                        }
                        predictor.obeyed();
                    }
                }
            }
            assert!(corrected > 100, "seed {seed}: {corrected} corrections");
        }
    }

    #[test]
    fn corrections_never_repeat_ticks_with_keys_of_later_ones() {
        let mut game = Game { world: World(7), saves: [World(0); MAX_SAVES], steps: 0 };
        let mut predictor = Predictor::new(0);
        for tick in 1..=100 {
            predictor.push(tick, tick);
            predictor.on_frame();
            game.obey(&mut predictor, |_| World(0));
        }
        // The keys of 145 replace those of 81.
        (101..=150).for_each(|tick| assert!(predictor.push(tick, tick)));
        assert!(!predictor.correct(80) && !predictor.correct(86) && predictor.correct(87));
        for _ in 0..5 {
            predictor.on_frame();
            game.obey(&mut predictor, |tick| truth(tick, 0));
        }
        assert_eq!((predictor.tick(), game.world), (150, truth(150, 0)));
    }
}
