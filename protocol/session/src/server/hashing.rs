//! Which clients' transfers are hashed: one allowance per tick for all clients, handed out round-robin.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::channel::transfer::HashingGrant;

/// Bytes that are hashed in one tick for all clients together: 2 to 4 ms of work, and as much as an uplink of 1
/// Gbit/s brings in 1/60 s. The last chunk of a tick may exceed it by up to 18 KiB.
pub const HASHED_BYTES_PER_TICK: u32 = 2 << 20;
/// Bytes that one client hashes before the next one: three chunks of the largest slices, or more.
const IN_A_ROW: i32 = 64 << 10;

/// The queue of clients with data to hash; other clients cost nothing.
///
/// ```text
///   received transfers ──▶ [ slot 3 ][ slot 9 ][ slot 1 ] ──▶ up to 64 KiB each, while the tick's allowance lasts
///                              ▲                                    │
///                              └──────── more to hash ──────────────┘
/// ```
pub(super) struct HashingQueue {
    grant: HashingGrant,
    /// The rest of this tick's allowance; negative if the last chunk exceeded it.
    remaining: i32,
    /// The bytes that the current client was granted.
    granted: i32,
    hashed: u64,
    queue: VecDeque<u32>,
    /// Whether each slot is in the queue. A new client inherits its slot's position.
    is_queued: Vec<bool>,
}

impl HashingQueue {
    /// Creates an empty queue for so many slots.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            grant: HashingGrant::default(),
            remaining: HASHED_BYTES_PER_TICK as i32,
            granted: 0,
            hashed: 0,
            queue: VecDeque::with_capacity(slots),
            is_queued: Vec::with_capacity(slots),
        }
    }

    /// Returns the grant within which every connection hashes.
    pub(super) const fn grant(&self) -> &HashingGrant {
        &self.grant
    }

    pub(super) const fn begin_tick(&mut self) {
        self.remaining = HASHED_BYTES_PER_TICK as i32;
    }

    /// Queues a slot that has data to hash.
    pub(super) fn push(&mut self, slot: u32) {
        let index = slot as usize;
        if index >= self.is_queued.len() {
            self.is_queued.resize(index + 1, false);
        }
        if let Some(is_queued) = self.is_queued.get_mut(index)
            // A slot is queued once, or a client with many transfers would get more turns.
            && !core::mem::replace(is_queued, true)
        {
            self.queue.push_back(slot);
        }
    }

    /// Takes the next slot if any allowance remains. It may hash until [`finish`](Self::finish).
    pub(super) fn next(&mut self) -> Option<u32> {
        if self.remaining <= 0 {
            return None;
        }
        let slot = self.queue.pop_front()?;
        debug_assert!(self.is_queued.get(slot as usize) == Some(&true), "queued slots are marked");
        if let Some(is_queued) = self.is_queued.get_mut(slot as usize) {
            *is_queued = false;
        }
        self.begin(IN_A_ROW);
        Some(slot)
    }

    /// Grants the rest of the tick's allowance to a client that leaves and has no later tick, until
    /// [`finish`](Self::finish).
    pub(super) fn begin_last(&mut self) {
        self.begin(i32::MAX);
    }

    fn begin(&mut self, max_bytes: i32) {
        self.granted = self.remaining.min(max_bytes).max(0);
        self.grant.grant(self.granted);
    }

    /// Takes back what the current client did not use.
    pub(super) fn finish(&mut self) {
        let used = self.granted - self.grant.take_back();
        self.remaining -= used;
        self.hashed += u64::from(used.unsigned_abs());
    }

    /// Returns the bytes that were hashed since the start.
    pub(super) const fn hashed(&self) -> u64 {
        self.hashed
    }
}
