//! An index of messages by key, so that a newer message finds the older one in constant time.

use alloc::boxed::Box;

use slipgate_netcode::crypto::key::Seed;
use slipgate_netcode::crypto::keyed::{HashKey, KeyedMap};

/// The entries of messages with keys, one for each key. An unused index takes no memory. A used one keeps its memory,
/// for at most as many keys as the channel may hold messages.
#[derive(Default)]
pub(crate) struct KeyIndex {
    entries: Option<Box<KeyedMap<u64, u64>>>,
}

impl KeyIndex {
    pub(crate) const fn new() -> Self {
        Self { entries: None }
    }

    /// Returns the entry of the newest message with this key.
    pub(crate) fn get(&self, key: u64) -> Option<u64> {
        self.entries.as_ref()?.get(&key).copied()
    }

    /// Sets the newest message with this key.
    pub(crate) fn insert(&mut self, key: u64, entry: u64) {
        self.entries.get_or_insert_with(|| Box::new(KeyedMap::with_hasher(hash_key()))).insert(key, entry);
    }

    /// Removes the message of this entry. A newer one with the same key stays.
    pub(crate) fn remove(&mut self, key: Option<u64>, entry: u64) {
        if let (Some(key), Some(entries)) = (key, &mut self.entries)
            && entries.get(&key) == Some(&entry)
        {
            entries.remove(&key);
        }
    }
}

/// Returns the key of the hash.
///
/// DECISION: the key is not secret, because no entropy reaches a channel. Message keys are chosen by the application.
/// If an attacker makes it choose keys that collide, a lookup costs at most one pass over the channel's bounded queue.
fn hash_key() -> HashKey {
    HashKey::derive(&Seed::from([0; 32]), "channel keys")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_message_with_a_key_is_known_until_removed() {
        let mut index = KeyIndex::new();
        assert_eq!(index.get(7), None);
        index.insert(7, 1);
        index.insert(8, 2);
        index.insert(7, 3);
        index.remove(Some(7), 1);
        index.remove(None, 3);
        assert_eq!([index.get(7), index.get(8)], [Some(3), Some(2)]);
        index.remove(Some(7), 3);
        assert_eq!([index.get(7), index.get(8)], [None, Some(2)]);
    }
}
