//! What a player presses during a step.

/// The number of players: the first objects of a world (Fribourg thesis: four).
pub const PLAYERS: usize = 4;

/// The keys of a player during a step of the simulation, one bit each (thesis: a key map of 32 bits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PlayerInput(pub u32);

impl PlayerInput {
    /// No key.
    pub const NONE: Self = Self(0);
    /// Pushes the own cube to -z.
    pub const FORWARD: Self = Self(1);
    /// Pushes the own cube to +z.
    pub const BACK: Self = Self(2);
    /// Pushes the own cube to -x.
    pub const LEFT: Self = Self(4);
    /// Pushes the own cube to +x.
    pub const RIGHT: Self = Self(8);
    /// Attracts the cubes around.
    pub const ATTRACT: Self = Self(16);
    /// Repels the cubes around.
    pub const REPEL: Self = Self(32);

    /// Returns whether all keys of `keys` are pressed.
    #[must_use]
    pub const fn has(self, keys: Self) -> bool {
        self.0 & keys.0 == keys.0
    }

    /// Returns the keys of both.
    #[must_use]
    pub const fn with(self, keys: Self) -> Self {
        Self(self.0 | keys.0)
    }

    /// Returns the direction in which the player pushes: x and z, each -1, 0 or 1.
    #[must_use]
    pub const fn direction(self) -> [f32; 2] {
        [axis(self, Self::LEFT, Self::RIGHT), axis(self, Self::FORWARD, Self::BACK)]
    }
}

const fn axis(input: PlayerInput, low: PlayerInput, high: PlayerInput) -> f32 {
    match (input.has(low), input.has(high)) {
        (true, false) => -1.0,
        (false, true) => 1.0,
        _ => 0.0,
    }
}
