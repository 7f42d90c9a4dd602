//! Which keys were used until when: entries side by side, and a table of their places.
//!
//! A hash table takes room for twice what it holds. Here that is four bytes for each place, and what an entry says lies
//! apart, as close as it gets.

use alloc::vec::Vec;
use core::hash::Hash;
use core::time::Duration;

use hashbrown::HashTable;

use crate::crypto::keyed::HashKey;
use crate::time::{Instant, Now, UnixSeconds};

/// In which time every entry is looked at once. Between two moments its share of them is, so that no turn looks at all.
const SWEEP: Duration = Duration::from_secs(1);

/// Entries that a sweep looks at in any case no more than: some tens of microseconds. Of a million it takes a while longer.
const MOST_AT_ONCE: usize = 4096;

/// What is used, and until when that matters.
pub(super) struct Used<K> {
    entries: Vec<Entry<K>>,
    places: HashTable<u32>,
    hash: HashKey,
    /// The entry that was looked at last. The sweep goes downwards: what takes a removed one's place has been seen.
    cursor: usize,
    /// How many entries there were when the sweep began with the last one.
    round: usize,
    swept: Instant,
}

/// One that is used.
#[derive(Clone, Copy)]
struct Entry<K> {
    key: K,
    expires: UnixSeconds,
    /// When it has expired by the monotonic clock. A wall clock that jumps forward must not empty the history.
    until: Instant,
}

impl<K: Copy + Eq + Hash> Used<K> {
    /// An empty one, that holds `capacity` entries without asking for memory again.
    pub(super) fn new(capacity: usize, hash: HashKey) -> Self {
        Self {
            entries: Vec::with_capacity(capacity),
            // A table that is at most half full clears its tombstones in place instead of growing.
            places: HashTable::with_capacity(capacity.saturating_mul(2)),
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
        !self.entries.is_empty() && self.places.find(self.hash.hash(key), |place| self.is_at(*place, key)).is_some()
    }

    fn is_at(&self, place: u32, key: &K) -> bool {
        self.entries.get(place as usize).is_some_and(|entry| entry.key == *key)
    }

    /// Remembers a key that is not remembered yet.
    pub(super) fn insert(&mut self, key: K, expires: UnixSeconds, now: Now) {
        debug_assert!(!self.contains(&key), "a key is used once");
        let until = now.monotonic.after(Duration::from_secs(expires.0.saturating_sub(now.unix.seconds().0)));
        let place = self.entries.len() as u32;
        self.entries.push(Entry { key, expires, until });
        let Self { entries, places, hash, .. } = self;
        let rehash = |place: &u32| entries.get(*place as usize).map_or(0, |entry| hash.hash(&entry.key));
        places.insert_unique(hash.hash(&key), place, rehash);
    }

    /// Forgets a key.
    pub(super) fn remove(&mut self, key: &K) {
        let place = self.places.find(self.hash.hash(key), |place| self.is_at(*place, key));
        if let Some(place) = place.copied() {
            self.remove_at(place);
        }
    }

    fn remove_at(&mut self, place: u32) {
        let Some(gone) = self.entries.get(place as usize).copied() else { return };
        if let Ok(entry) = self.places.find_entry(self.hash.hash(&gone.key), |other| *other == place) {
            entry.remove();
        }
        // The last one moves to the place of the one that goes.
        self.entries.swap_remove(place as usize);
        let last = self.entries.len() as u32;
        if let Some(moved) = self.entries.get(place as usize)
            && let Some(its_place) = self.places.find_mut(self.hash.hash(&moved.key), |other| *other == last)
        {
            *its_place = place;
        }
    }

    /// Forgets entries that have expired by both clocks, and tells when each of them did. It looks at a share of all,
    /// for the time since the last sweep: at each about once a second.
    pub(super) fn sweep(&mut self, now: Now, mut forgets: impl FnMut(UnixSeconds)) {
        let elapsed = now.monotonic.since(self.swept).min(SWEEP);
        // Shards read the clock each for themselves.
        self.swept = self.swept.max(now.monotonic);
        let all = self.entries.len().max(self.round);
        let share = (all as u128 * elapsed.as_micros()).div_ceil(SWEEP.as_micros()) as usize;
        let share = share.min(MOST_AT_ONCE);
        let today = now.unix.seconds();
        for _ in 0..share {
            if !(1..=self.entries.len()).contains(&self.cursor) {
                (self.cursor, self.round) = (self.entries.len(), self.entries.len());
            }
            let Some(place) = self.cursor.checked_sub(1) else { return };
            self.cursor = place;
            let Some(entry) = self.entries.get(place).copied() else { return };
            if entry.expires <= today && entry.until <= now.monotonic {
                forgets(entry.expires);
                self.remove_at(place as u32);
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

    fn used(capacity: usize) -> Used<u16> {
        Used::new(capacity, HashKey::derive(&Seed::from_bytes([5; 32]), "used"))
    }

    fn at(millis: u64) -> Now {
        Now { monotonic: Instant::from_start(Duration::from_millis(millis)), unix: UnixMillis(millis) }
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Insert(u16, u64),
        Remove(u16),
        Pass(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..80_u16, 0..20_u64).prop_map(|(key, seconds)| Step::Insert(key, seconds)),
            1 => (0..80_u16).prop_map(Step::Remove),
            2 => (0..1500_u64).prop_map(Step::Pass),
        ];
        prop::collection::vec(step, 1..400)
    }

    proptest! {
        #[test]
        fn it_knows_what_a_plain_map_knows_and_forgets_within_four_seconds_of_the_expiry(steps in steps()) {
            let (mut used, mut model) = (used(80), BTreeMap::<u16, u64>::new());
            let mut now = 0;
            for step in steps {
                match step {
                    Step::Insert(key, seconds) if !used.contains(&key) => {
                        let expires = now / 1000 + seconds;
                        used.insert(key, UnixSeconds(expires), at(now));
                        model.insert(key, expires);
                    }
                    Step::Insert(..) => {}
                    Step::Remove(key) => {
                        used.remove(&key);
                        model.remove(&key);
                    }
                    Step::Pass(millis) => {
                        // As turns would.
                        for _ in 0..10 {
                            now += millis / 10;
                            used.sweep(at(now), |expired| assert!(expired.0 <= now / 1000));
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
    fn a_turn_looks_at_its_share_only() {
        let mut used = used(6000);
        (0..6000).for_each(|key| used.insert(key, UnixSeconds(1), at(0)));
        used.sweep(at(2000), |_| ());
        assert_eq!(used.len(), 6000 - MOST_AT_ONCE, "a second and more has passed, and no turn looks at more");
        used.sweep(at(3000), |_| ());
        assert_eq!(used.len(), 0);
        (0..6000).for_each(|key| used.insert(key, UnixSeconds(4), at(3000)));
        let mut forgotten = 0;
        used.sweep(at(3900), |_| forgotten += 1);
        for turn in 1..=120 {
            let before = forgotten;
            used.sweep(at(4000 + turn * 17), |_| forgotten += 1);
            assert!(forgotten - before <= 710, "turn {turn}");
        }
        assert_eq!((forgotten, used.len()), (6000, 0));
    }
}
