//! Which clients' transfers are hashed: one allowance per tick for all clients, handed out round-robin.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::channel::transfer::HashingGrant;
use slipgate_netcode::ids::SlotIndex;

/// Bytes that are hashed in one tick for all clients together: 2 to 4 ms of work, and as much as an uplink of 1
/// Gbit/s brings in 1/60 s. The last chunk of a tick may exceed it by up to 18 KiB.
pub const HASHED_BYTES_PER_TICK: u32 = 2 << 20;
/// Bytes of one client that are hashed in one tick: 0.5 to 1 ms of work, by which the round trips of all others grow
/// when a transfer is completed at its start. It is as much as the work budget lets a client send at 60 Hz.
const CLIENT_BYTES_PER_TICK: i32 = 512 << 10;
/// Bytes that one client hashes before the next one: three chunks of the largest slices, or more.
const IN_A_ROW: i32 = 64 << 10;

/// The queue of clients with data to hash; other clients cost nothing.
///
/// ```text
///   received transfers ──▶ [ slot 3 ][ slot 9 ][ slot 1 ] ──▶ up to 64 KiB each, while the tick's allowance lasts;
///                                                             after 512 KiB a slot waits for the next tick
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
    /// The slot that hashes now; `None` for a client that leaves.
    current: Option<SlotIndex>,
    queue: VecDeque<SlotIndex>,
    /// Slots that have used their part of this tick.
    waiting: VecDeque<SlotIndex>,
    /// The bytes that each slot hashed in this tick.
    used: Vec<i32>,
    /// Whether each slot is in the queue. A new client inherits its slot's position.
    is_queued: Vec<bool>,
}

impl HashingQueue {
    /// Creates an empty queue for this many slots.
    pub(super) fn new(slots: usize) -> Self {
        Self {
            grant: HashingGrant::default(),
            remaining: HASHED_BYTES_PER_TICK as i32,
            granted: 0,
            hashed: 0,
            current: None,
            queue: VecDeque::with_capacity(slots),
            waiting: VecDeque::with_capacity(slots),
            used: Vec::with_capacity(slots),
            is_queued: Vec::with_capacity(slots),
        }
    }

    /// Returns the grant within which every connection hashes.
    pub(super) const fn grant(&self) -> &HashingGrant {
        &self.grant
    }

    pub(super) fn begin_tick(&mut self) {
        self.remaining = HASHED_BYTES_PER_TICK as i32;
        self.used.fill(0);
        // Those that have waited come first, in their order.
        while let Some(slot) = self.waiting.pop_back() {
            self.queue.push_front(slot);
        }
    }

    /// Queues a slot that has data to hash.
    pub(super) fn push(&mut self, slot: SlotIndex) {
        let index = slot.0 as usize;
        if index >= self.is_queued.len() {
            self.is_queued.resize(index + 1, false);
            self.used.resize(index + 1, 0);
        }
        if let Some(is_queued) = self.is_queued.get_mut(index)
            // A slot is queued once, or a client with many transfers would get more turns.
            && !core::mem::replace(is_queued, true)
        {
            let is_used_up = self.used.get(index).is_some_and(|used| *used >= CLIENT_BYTES_PER_TICK);
            if is_used_up { self.waiting.push_back(slot) } else { self.queue.push_back(slot) }
        }
    }

    /// Takes the next slot if any allowance remains. It may hash until [`finish`](Self::finish).
    pub(super) fn next(&mut self) -> Option<SlotIndex> {
        if self.remaining <= 0 {
            return None;
        }
        let slot = self.queue.pop_front()?;
        debug_assert!(self.is_queued.get(slot.0 as usize) == Some(&true), "queued slots are marked");
        if let Some(is_queued) = self.is_queued.get_mut(slot.0 as usize) {
            *is_queued = false;
        }
        self.current = Some(slot);
        self.begin(IN_A_ROW);
        Some(slot)
    }

    /// Grants the rest of the tick's allowance to a client that leaves and has no later tick, until
    /// [`finish`](Self::finish).
    pub(super) fn begin_last(&mut self) {
        self.current = None;
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
        if let Some(in_tick) = self.current.and_then(|slot| self.used.get_mut(slot.0 as usize)) {
            *in_tick += used;
        }
        self.hashed += u64::from(used.unsigned_abs());
    }

    /// Returns the bytes that were hashed since the start.
    pub(super) const fn hashed(&self) -> u64 {
        self.hashed
    }
}
