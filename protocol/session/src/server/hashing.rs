//! Whose blocks are hashed: one allowance a turn for all clients, handed round among those who have something to hash.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::channel::block::HashingGrant;

/// Bytes that are hashed in one turn, of all clients together: two to four milliseconds, and as much as a line of 1 Gbit/s
/// brings in a sixtieth of a second. The last chunk of a turn may go over it by up to 18 KiB.
pub const HASHED_PER_TURN: u32 = 2 << 20;
/// What one client hashes before the next one has its turn: three chunks of the largest slices, or more.
const IN_A_ROW: i32 = 64 << 10;

/// The turns of those who have something to hash; nobody else costs anything.
///
/// ```text
///   blocks that arrived ──▶ [ slot 3 ][ slot 9 ][ slot 1 ] ──▶ up to 64 KiB each, while the turn has some left
///                              ▲                                    │
///                              └──────── still something to hash ───┘
/// ```
pub(super) struct HashingTurns {
    grant: HashingGrant,
    /// What is left of this turn; below zero where the last chunk was larger.
    left: i32,
    /// What the one whose turn it is may hash.
    granted: i32,
    hashed: u64,
    queue: VecDeque<u32>,
    /// Whether each slot stands in the queue; as long as it needs to be. Who comes anew takes over the slot's place.
    waits: Vec<bool>,
}

impl HashingTurns {
    /// Nobody waits, for so many slots.
    pub(super) fn new(slots: usize) -> Self {
        let (grant, left) = (HashingGrant::default(), HASHED_PER_TURN as i32);
        Self {
            grant,
            left,
            granted: 0,
            hashed: 0,
            queue: VecDeque::with_capacity(slots),
            waits: Vec::with_capacity(slots),
        }
    }

    /// What every connection hashes within.
    pub(super) const fn grant(&self) -> &HashingGrant {
        &self.grant
    }

    /// A turn begins.
    pub(super) const fn begin_turn(&mut self) {
        self.left = HASHED_PER_TURN as i32;
    }

    /// A slot has something to hash, and waits for its turn.
    pub(super) fn wait(&mut self, slot: u32) {
        let at = slot as usize;
        if at >= self.waits.len() {
            self.waits.resize(at + 1, false);
        }
        if let Some(waits) = self.waits.get_mut(at)
            && !core::mem::replace(waits, true)
        {
            self.queue.push_back(slot);
        }
    }

    /// Whose turn it is, if anything is left of this one: it leaves the queue, and may hash some until
    /// [`took`](Self::took).
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.left <= 0 {
            return None;
        }
        let slot = self.queue.pop_front()?;
        if let Some(waits) = self.waits.get_mut(slot as usize) {
            *waits = false;
        }
        self.begin(IN_A_ROW);
        Some(slot)
    }

    /// Somebody leaves, and has no later turn: it may hash what is left of this one until [`took`](Self::took).
    pub(super) fn let_leave(&mut self) {
        self.begin(i32::MAX);
    }

    fn begin(&mut self, most: i32) {
        self.granted = self.left.min(most).max(0);
        self.grant.grant(self.granted);
    }

    /// Who had its turn has had it.
    pub(super) fn took(&mut self) {
        let took = self.granted - self.grant.take_back();
        self.left -= took;
        self.hashed += u64::from(took.unsigned_abs());
    }

    /// Bytes that were hashed since the start.
    pub(super) const fn hashed(&self) -> u64 {
        self.hashed
    }
}
