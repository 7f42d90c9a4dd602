//! How much of what has arrived may be hashed in one turn: one allowance for all blocks of a channel, handed round, and
//! where a server has its own for all of its clients, no more than it grants.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicI32, Ordering};

/// Bytes that are hashed in one turn: a millisecond or two.
const BYTES_PER_TURN: u32 = 1 << 20;

/// How many bytes may be hashed now of the blocks of many connections. Clones share it.
///
/// It is empty until something is granted: who grants decides whose blocks are hashed, by granting before it asks that
/// connection for events.
#[derive(Clone, Debug, Default)]
pub(crate) struct HashingGrant {
    left: Arc<AtomicI32>,
}

impl HashingGrant {
    /// Grants so many bytes, instead of what was left.
    pub(crate) fn grant(&self, bytes: i32) {
        // Relaxed: the number guards nothing but itself.
        self.left.store(bytes, Ordering::Relaxed);
    }

    /// Takes back what is left: less than nothing, where the last chunk was larger than that.
    pub(crate) fn take_back(&self) -> i32 {
        self.left.swap(0, Ordering::Relaxed)
    }

    fn is_used_up(&self) -> bool {
        self.left.load(Ordering::Relaxed) <= 0
    }

    fn spend(&self, bytes: usize) {
        self.left.fetch_sub(i32::try_from(bytes).unwrap_or(i32::MAX), Ordering::Relaxed);
    }
}

/// What is left of a turn's allowance.
pub(super) struct Hashing {
    left: u32,
    /// Whose turn it is when there is more to hash than may be.
    turn: usize,
    granted: Option<HashingGrant>,
}

impl Default for Hashing {
    fn default() -> Self {
        Self { left: BYTES_PER_TURN, turn: 0, granted: None }
    }
}

impl Hashing {
    /// From now on no more than is granted either.
    pub(super) fn within(&mut self, grant: HashingGrant) {
        self.granted = Some(grant);
    }

    /// A turn begins.
    pub(super) const fn begin_turn(&mut self) {
        self.left = BYTES_PER_TURN;
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.left == 0 || self.granted.as_ref().is_some_and(HashingGrant::is_used_up)
    }

    /// So many bytes are hashed. The last chunk of a turn may be one that is larger than what is left.
    pub(super) fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
        if let Some(granted) = &self.granted {
            granted.spend(bytes);
        }
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
