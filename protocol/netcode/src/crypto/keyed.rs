//! Hash maps with a keyed hash, so that an attacker cannot choose keys that collide.
//!
//! The hash is SipHash-1-3 (Aumasson and Bernstein, 2012) with 128 random key bits. Addresses, client ids and token
//! digests come from untrusted peers.

use core::hash::{BuildHasher, Hash};

use hashbrown::HashMap;
use siphasher::sip::SipHasher13;

use crate::crypto::key::Seed;

/// A hash map under a random key.
pub type KeyedMap<K, V> = HashMap<K, V, HashKey>;

/// The key of a keyed hash.
#[derive(Clone)]
pub struct HashKey(SipHasher13);

impl HashKey {
    /// Derives the hash key for the purpose `label`.
    #[must_use]
    pub fn derive(seed: &Seed, label: &str) -> Self {
        let bytes = seed.derive(label);
        // SipHash has a key of two 64-bit halves.
        let half = |from: usize| bytes.iter().skip(from).take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Self(SipHasher13::new_with_keys(half(0), half(8)))
    }

    /// Returns the keyed hash of a value.
    #[inline]
    #[must_use]
    pub(crate) fn hash(&self, value: &impl Hash) -> u64 {
        self.hash_one(value)
    }
}

impl BuildHasher for HashKey {
    type Hasher = SipHasher13;

    #[inline]
    fn build_hasher(&self) -> SipHasher13 {
        self.0
    }
}

/// Returns a map that holds up to `capacity` entries without another allocation.
#[must_use]
pub(crate) fn map_with_capacity<K: Eq + Hash, V>(capacity: usize, key: HashKey) -> KeyedMap<K, V> {
    // Twice the capacity: a hash table that is at most half full clears its tombstones in place instead of growing.
    HashMap::with_capacity_and_hasher(capacity.saturating_mul(2), key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_depend_on_seed_and_label() {
        let key = |seed, label| HashKey::derive(&Seed::from([seed; 32]), label);
        assert_eq!(key(1, "a").hash(&7_u64), key(1, "a").hash(&7_u64));
        assert_ne!(key(1, "a").hash(&7_u64), key(2, "a").hash(&7_u64), "another start has other collisions");
        assert_ne!(key(1, "a").hash(&7_u64), key(1, "b").hash(&7_u64));
        assert_ne!(key(1, "a").hash(&7_u64), key(1, "a").hash(&8_u64));
    }
}
