//! How much of the queue to the game each client takes.
//!
//! One client must not fill the queue for all others. The shard knows what it pushed and how much of that the game has
//! popped, in order, so it needs no message from the game's thread.

use std::collections::VecDeque;

use slipgate_netcode::ids::SlotIndex;
use slipgate_netcode::server::ClientHandle;
use slipgate_netcode::slab::MustExist;

use super::spsc::QueueCapacity;

/// The part of a queue that one client may take: an eighth.
const SHARE: usize = 8;

/// An entry in the queue.
struct PushedEntry {
    slot: SlotIndex,
    bytes: usize,
}

/// The shares of all clients of a shard.
pub(super) struct QueueShares {
    max: QueueCapacity,
    pushed: VecDeque<PushedEntry>,
    /// What each slot has in the queue.
    taken: Vec<QueueCapacity>,
}

impl QueueShares {
    /// Creates the shares of a queue of this capacity.
    pub(super) fn new(queue: QueueCapacity) -> Self {
        let max = QueueCapacity { entries: queue.entries / SHARE, bytes: queue.bytes / SHARE };
        Self { max, pushed: VecDeque::with_capacity(queue.entries), taken: Vec::new() }
    }

    /// Records an entry of a client.
    pub(super) fn on_pushed(&mut self, client: ClientHandle, bytes: usize) {
        let index = client.slot().0 as usize;
        if index >= self.taken.len() {
            self.taken.resize(index + 1, QueueCapacity::ZERO);
        }
        self.pushed.push_back(PushedEntry { slot: client.slot(), bytes });
        if let Some(taken) = self.taken.get_mut(index).must_exist("the share of a slot") {
            taken.entries += 1;
            taken.bytes += bytes;
        }
    }

    /// Returns whether a client has used up its share.
    pub(super) fn is_used_up(&self, client: ClientHandle) -> bool {
        self.taken(client).is_some_and(|taken| taken.entries >= self.max.entries || taken.bytes >= self.max.bytes)
    }

    /// Forgets the entries that the game has popped: all but the newest `queued`.
    pub(super) fn on_popped(&mut self, queued: usize) {
        while self.pushed.len() > queued {
            let Some(PushedEntry { slot, bytes }) = self.pushed.pop_front() else { return };
            if let Some(taken) = self.taken.get_mut(slot.0 as usize).must_exist("the share of a slot") {
                taken.entries = taken.entries.saturating_sub(1);
                taken.bytes = taken.bytes.saturating_sub(bytes);
            }
        }
    }

    /// Returns whether a client has less than half of its share in the queue, so that it may go on.
    pub(super) fn has_room(&self, client: ClientHandle) -> bool {
        self.taken(client)
            .is_none_or(|taken| taken.entries <= self.max.entries / 2 && taken.bytes <= self.max.bytes / 2)
    }

    fn taken(&self, client: ClientHandle) -> Option<&QueueCapacity> {
        self.taken.get(client.slot().0 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::with_connected_client;

    #[test]
    fn client_may_go_on_when_half_of_its_share_is_popped() {
        let (_server, _player, _, client) = with_connected_client();
        let queue = QueueCapacity { entries: 80, bytes: 8000 };
        for (pushes, bytes) in [(10, 1), (2, 600)] {
            let mut shares = QueueShares::new(queue);
            for _ in 0..pushes {
                assert!(!shares.is_used_up(client));
                shares.on_pushed(client, bytes);
            }
            assert!(shares.is_used_up(client) && !shares.has_room(client));
            shares.on_popped(pushes / 2 + 1);
            assert!(!shares.has_room(client));
            shares.on_popped(pushes / 4);
            assert!(shares.has_room(client) && !shares.is_used_up(client));
            shares.on_popped(0);
            assert_eq!(shares.taken(client), Some(&QueueCapacity::ZERO));
        }
    }
}
