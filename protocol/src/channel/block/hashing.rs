//! How much of what has arrived may be hashed in one turn: one allowance for all blocks of a channel, handed round.

/// Bytes that are hashed in one turn: a millisecond or two.
const BYTES_PER_TURN: u32 = 1 << 20;

/// What is left of a turn's allowance.
pub(super) struct Hashing {
    left: u32,
    /// Whose turn it is when there is more to hash than may be.
    turn: usize,
}

impl Default for Hashing {
    fn default() -> Self {
        Self { left: BYTES_PER_TURN, turn: 0 }
    }
}

impl Hashing {
    /// A turn begins.
    pub(super) const fn begin_turn(&mut self) {
        self.left = BYTES_PER_TURN;
    }

    pub(super) const fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// So many bytes are hashed. The last chunk of a turn may be one that is larger than what is left.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Lets each block hash in turn until nothing is left; the next time it is the turn of the block behind.
    pub(super) fn share<T>(&mut self, blocks: &mut [T], mut work: impl FnMut(&mut T, &mut Self)) {
        for _ in 0..blocks.len() {
            if self.is_used_up() {
                return;
            }
            self.turn = (self.turn + 1) % blocks.len();
            if let Some(block) = blocks.get_mut(self.turn) {
                work(block, self);
            }
        }
    }
}
