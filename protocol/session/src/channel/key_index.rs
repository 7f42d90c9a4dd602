//! Where the message under a key is, so that a newer one finds it without looking through all others.

use alloc::boxed::Box;

use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::crypto::keyed::{HashKey, KeyedMap};

/// The places of messages under keys, one for each key. What is not used takes no memory; what is used keeps what it has
/// taken, for at most as many keys as the channel may hold messages.
#[derive(Default)]
pub(super) struct KeyIndex {
    places: Option<Box<KeyedMap<u64, u64>>>,
}

impl KeyIndex {
    pub(super) const fn new() -> Self {
        Self { places: None }
    }

    pub(super) fn place(&self, key: u64) -> Option<u64> {
        self.places.as_ref()?.get(&key).copied()
    }

    /// Notes the newest message under a key.
    pub(super) fn note(&mut self, key: u64, place: u64) {
        self.places.get_or_insert_with(|| Box::new(KeyedMap::with_hasher(hash_key()))).insert(key, place);
    }

    /// Forgets the message at this place; a newer one under the same key stays.
    pub(super) fn forget(&mut self, key: Option<u64>, place: u64) {
        if let (Some(key), Some(places)) = (key, &mut self.places)
            && places.get(&key) == Some(&place)
        {
            places.remove(&key);
        }
    }
}

/// DECISION: the hash has a key that is not secret, because no entropy reaches a channel. These keys are the
/// application's own, and at worst, when somebody makes it choose keys that collide, a look-up is one through the
/// channel's queue, which is bounded.
fn hash_key() -> HashKey {
    HashKey::derive(&Seed::from_bytes([0; 32]), "channel keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_message_under_a_key_is_known_until_it_is_forgotten() {
        let mut index = KeyIndex::new();
        assert_eq!(index.place(7), None);
        index.note(7, 1);
        index.note(8, 2);
        index.note(7, 3);
        index.forget(Some(7), 1);
        index.forget(None, 3);
        assert_eq!([index.place(7), index.place(8)], [Some(3), Some(2)]);
        index.forget(Some(7), 3);
        assert_eq!([index.place(7), index.place(8)], [None, Some(2)]);
    }
}
