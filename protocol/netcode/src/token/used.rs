//! A set of used keys with expiry: a dense array of entries, and a hash table of their indices.
//!
//! A hash table has capacity for twice its entries. This one holds 4-byte indices, and the entries are in an array
//! without gaps, so memory is small.

use alloc::vec::Vec;
use core::hash::Hash;
use core::time::Duration;

use hashbrown::HashTable;

use super::epochs::Epoch;
use crate::crypto::keyed::HashKey;
use crate::ids::ClientId;
use crate::slab::MustExist;
use crate::time::{Instant, Now, UnixSeconds};

/// The time in which sweeps examine every entry once. A sweep examines the share for the time since the last one.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// The maximum of entries that one sweep examines, which takes some tens of microseconds. More than 240,000 entries
/// take longer than [`SWEEP_PERIOD`] at 60 turns per second.
const MAX_SWEPT_AT_ONCE: usize = 4096;

/// A set of used keys, each with its expiry.
pub(super) struct UsedSet<K> {
    entries: Vec<UsedEntry<K>>,
    indices: HashTable<u32>,
    hash: HashKey,
    /// The entry that was examined last. The sweep goes downwards, so an entry that fills a gap was examined before.
    cursor: usize,
    /// The number of entries when the present round of the sweep began.
    round: usize,
    swept: Instant,
}

/// A used key.
#[derive(Clone, Copy)]
struct UsedEntry<K> {
    key: K,
    used: KeyUse,
    /// The expiry by the monotonic clock. A wall clock that is stepped forward must not empty the history.
    until: Instant,
}

/// The use of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KeyUse {
    pub(super) expires: UnixSeconds,
    /// The client that used it, if that is known.
    pub(super) client_id: Option<ClientId>,
    /// The clock epoch in which it was used.
    pub(super) epoch: Epoch,
}

impl<K: Copy + Eq + Hash> UsedSet<K> {
    /// Returns an empty set that holds `capacity` entries without another allocation. More entries allocate: the memory
    /// doubles each time.
    pub(super) fn new(capacity: usize, hash: HashKey) -> Self {
        Self {
            entries: Vec::with_capacity(capacity),
            // A table that is at most half full clears its tombstones in place instead of growing.
            indices: HashTable::with_capacity(capacity.saturating_mul(2)),
            hash,
            cursor: 0,
            round: 0,
            swept: Instant::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        !self.entries.is_empty()
            && self.indices.find(self.hash.hash(key), |index| self.is_key_at(*index, key)).is_some()
    }

    fn is_key_at(&self, index: u32, key: &K) -> bool {
        self.entries.get(index as usize).is_some_and(|entry| entry.key == *key)
    }

    /// Inserts a key that is not in the set.
    pub(super) fn insert(&mut self, key: K, used: KeyUse, now: Now) {
        debug_assert!(!self.contains(&key), "a key is used once");
        // The remaining lifetime, measured once, so that later steps of the wall clock do not matter.
        let until =
            now.monotonic.after(Duration::from_secs(used.expires.0.saturating_sub(UnixSeconds::from(now.unix).0)));
        let index = self.entries.len() as u32;
        self.entries.push(UsedEntry { key, used, until });
        let Self { entries, indices, hash, .. } = self;
        let rehash = |index: &u32| entries.get(*index as usize).map_or(0, |entry| hash.hash(&entry.key));
        indices.insert_unique(hash.hash(&key), index, rehash);
    }

    /// Removes a key and returns its use, or `None` if it is not in the set.
    pub(super) fn remove(&mut self, key: &K) -> Option<KeyUse> {
        let index = self.indices.find(self.hash.hash(key), |index| self.is_key_at(*index, key)).copied()?;
        let used = self.entries.get(index as usize)?.used;
        self.remove_at(index);
        Some(used)
    }

    fn remove_at(&mut self, index: u32) {
        let removed = self.entries.get(index as usize).copied();
        let Some(removed) = removed.must_exist("the entry of a known key") else { return };
        if let Ok(entry) = self.indices.find_entry(self.hash.hash(&removed.key), |other| *other == index) {
            entry.remove();
        }
        // The last entry moves into the gap, so its index changes.
        self.entries.swap_remove(index as usize);
        let last = self.entries.len() as u32;
        if let Some(moved) = self.entries.get(index as usize)
            && let Some(moved_index) = self.indices.find_mut(self.hash.hash(&moved.key), |other| *other == last)
        {
            *moved_index = index;
        }
    }

    /// Removes entries that have expired by both clocks, and passes the use of each to `on_forgotten`. The wall clock
    /// does not count for entries of earlier clock epochs: their expiry is unknown by it.
    ///
    /// It examines the share of entries for the time since the last sweep, so that each is examined about once per
    /// second.
    pub(super) fn sweep(&mut self, now: Now, epoch: Epoch, mut on_forgotten: impl FnMut(KeyUse)) {
        let elapsed = now.monotonic.since(self.swept).min(SWEEP_PERIOD);
        // The maximum: shards read the clock separately, and a sweep by a slower one must not count time twice.
        self.swept = self.swept.max(now.monotonic);
        let all = self.entries.len().max(self.round);
        let share = (all as u128 * elapsed.as_micros()).div_ceil(SWEEP_PERIOD.as_micros()) as usize;
        let share = share.min(MAX_SWEPT_AT_ONCE);
        let today = UnixSeconds::from(now.unix);
        for _ in 0..share {
            if !(1..=self.entries.len()).contains(&self.cursor) {
                (self.cursor, self.round) = (self.entries.len(), self.entries.len());
            }
            let Some(index) = self.cursor.checked_sub(1) else { return };
            self.cursor = index;
            let entry = self.entries.get(index).copied();
            let Some(entry) = entry.must_exist("the entry at the cursor") else { return };
            let is_due = entry.used.expires <= today || entry.used.epoch != epoch;
            if is_due && entry.until <= now.monotonic {
                on_forgotten(entry.used);
                self.remove_at(index as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::key::Seed;
    use crate::time::UnixMillis;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn used(capacity: usize) -> UsedSet<u16> {
        UsedSet::new(capacity, HashKey::derive(&Seed::from([5; 32]), "used"))
    }

    fn at(millis: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_millis(millis)), unix: UnixMillis(millis) }
    }

    fn until(expires: u64) -> KeyUse {
        KeyUse { expires: UnixSeconds(expires), client_id: None, epoch: Epoch::default() }
    }

    #[derive(Clone, Copy, Debug)]
    enum SetStep {
        Insert(u16, u64),
        Remove(u16),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<SetStep>> {
        let step = prop_oneof![
            4 => (0..80_u16, 0..20_u64).prop_map(|(key, seconds)| SetStep::Insert(key, seconds)),
            1 => (0..80_u16).prop_map(SetStep::Remove),
            2 => (0..1500_u64).prop_map(SetStep::Pass),
        ];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        #[test]
        fn set_matches_a_map_and_forgets_4_s_after_expiry(steps in steps()) {
            let (mut used, mut model) = (used(80), BTreeMap::<u16, u64>::new());
            let mut now = 0;
            for step in steps {
                match step {
                    SetStep::Insert(key, seconds) if !used.contains(&key) => {
                        let expires = now / 1000 + seconds;
                        used.insert(key, until(expires), at(now));
                        model.insert(key, expires);
                    }
                    SetStep::Insert(..) => {}
                    SetStep::Remove(key) => {
                        used.remove(&key);
                        model.remove(&key);
                    }
                    SetStep::Pass(millis) => {
                        // Ten sweeps, like ten turns of a server.
                        for _ in 0..10 {
                            now += millis / 10;
                            let is_due = |forgotten: KeyUse| assert!(forgotten.expires.0 <= now / 1000);
                            used.sweep(at(now), Epoch::default(), is_due);
                        }
                    }
                }
                for key in 0..80 {
                    match model.get(&key) {
                        Some(expires) if now / 1000 < *expires => prop_assert!(used.contains(&key)),
                        Some(expires) if now / 1000 <= expires + 4 => {}
                        _ => prop_assert!(!used.contains(&key), "{} at {}", key, now),
                    }
                }
                model.retain(|key, _| used.contains(key));
                prop_assert_eq!(used.len(), model.len());
            }
        }
    }

    #[test]
    fn one_sweep_examines_only_its_share() {
        let mut used = used(6000);
        (0..6000).for_each(|key| used.insert(key, until(1), at(0)));
        used.sweep(at(2000), Epoch::default(), |_| ());
        assert_eq!(used.len(), 6000 - MAX_SWEPT_AT_ONCE, "one sweep examines no more, even after 2 s");
        used.sweep(at(3000), Epoch::default(), |_| ());
        assert_eq!(used.len(), 0);
        (0..6000).for_each(|key| used.insert(key, until(4), at(3000)));
        let mut forgotten = 0;
        used.sweep(at(3900), Epoch::default(), |_| forgotten += 1);
        for turn in 1..=120 {
            let before = forgotten;
            used.sweep(at(4000 + turn * 17), Epoch::default(), |_| forgotten += 1);
            assert!(forgotten - before <= 710, "turn {turn}");
        }
        assert_eq!((forgotten, used.len()), (6000, 0));
    }
}
