//! How connections end: by the application, by a takeover on another shard, or with the server.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::handshake::{HandshakeOutcome, OpenedToken};
use super::registry::OwnerQuery;
use super::slots::SlotState;
use super::{ClientHandle, DisconnectReason, NetcodeEvent, NetcodeServer};
use crate::discard::Discard;
use crate::ids::{ClientId, SlotIndex};
use crate::time::Instant;
use crate::timing::DISCONNECT_PACKETS;

impl NetcodeServer {
    /// Replies to the queries of other shards about this shard's clients.
    pub(super) fn reply_to_queries(&mut self, now: Instant) {
        // One relaxed load per turn while there are no queries.
        let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed) && flag.swap(false, Ordering::Acquire);
        if !self.has_queries.as_ref().is_some_and(is_set) {
            return;
        }
        let shard = self.shard;
        // Each guard is dropped at the end of its statement: `end` locks the registry again.
        loop {
            let query = self.registry.lock().next_query(shard);
            let Some((client_id, query)) = query else { return };
            let Some(slot) = self.slots.of_client(client_id) else { continue };
            // Unread packets count as received, because they may be from this client.
            let last = self.slots.link(slot).last_receive.max(self.backlog_until);
            let is_silent = self.config.takeover_time().is_some_and(|after| now.reached(last, after));
            // Without capacity for the `Disconnected` event, the client stays connected until the next query.
            if query == OwnerQuery::Takeover && is_silent && self.has_event_capacity() {
                // The reservation comes first: `end` would otherwise remove the id, and another token could claim it.
                self.registry.lock().reserve(client_id, now);
                self.end(slot, DisconnectReason::TakenOver, 0);
            } else {
                self.registry.lock().report_last_receive(client_id, last);
            }
        }
    }

    /// Disconnects a client, queues its event, and makes ten disconnect packets due. Returns whether it had a slot.
    /// Before the record of its token is durable, it has neither event nor packets.
    pub fn disconnect(&mut self, client: ClientHandle) -> bool {
        self.disconnect_for(client, DisconnectReason::Kicked)
    }

    /// Disconnects a client like [`disconnect`](Self::disconnect), with a reason from a higher layer.
    pub fn disconnect_for(&mut self, client: ClientHandle, reason: DisconnectReason) -> bool {
        let Some((slot, _)) = self.slots.get(client) else { return false };
        // Ten packets, because UDP may lose some and none is acknowledged (§1.2).
        self.end(slot, reason, DISCONNECT_PACKETS);
        true
    }

    /// Disconnects all clients and stops admitting new ones.
    pub fn stop(&mut self) {
        self.accepts_clients = false;
        // Closing and free slots are skipped: their connections have ended.
        for slot in self.slots.used() {
            if self.slots.get(self.slots.handle_for(slot)).is_some() {
                self.end(slot, DisconnectReason::ServerStopped, DISCONNECT_PACKETS);
            }
        }
    }

    /// Ends a connection and queues its event. The slot is free at once, or after `disconnects` packets.
    pub(super) fn end(&mut self, slot: SlotIndex, reason: DisconnectReason, disconnects: u8) {
        let (client, client_id) = (self.slots.handle_for(slot), self.slots.profile(slot).client_id);
        let was_durable = self.slots.is_durable(slot);
        // The event comes first, because it needs the slot's present generation.
        self.emit_disconnected(client, client_id, reason);
        self.registry.lock().leave(self.shard, client_id);
        let has_network = self.slots.link(slot).state == SlotState::Connected;
        // Without a durable record the client does not know of its slot, so there is nothing to disconnect.
        if disconnects > 0 && has_network && was_durable {
            self.slots.close(slot, disconnects);
        } else {
            self.vacate(slot);
        }
    }

    /// Counts the end of a connection and queues its `Disconnected` event, if its `Connected` event was queued.
    pub(super) fn emit_disconnected(&mut self, client: ClientHandle, client_id: ClientId, reason: DisconnectReason) {
        if let Some(address) = self.slots.link(client.slot()).address {
            self.ended.insert(address, self.last_tick);
        }
        if self.slots.is_durable(client.slot()) {
            self.stats.disconnects += 1;
            self.events.push_back(NetcodeEvent::Disconnected { client, client_id, reason });
            return;
        }
        // Neither the client nor the application knows of its slot: this step is the only sign of it.
        let profile = self.slots.profile(client.slot());
        if let Some((age, address)) = profile.age.zip(self.slots.link(client.slot()).address) {
            let outcome = HandshakeOutcome::Dropped(Discard::HistoryUnavailable);
            self.handshakes.add_opened(address, OpenedToken::of_age(client_id, age), outcome);
        }
    }

    /// Frees a slot and its client's index.
    pub(super) fn vacate(&mut self, slot: SlotIndex) {
        // Read before the slot is reset. The index is free for other shards only after the slot is.
        let index = self.slots.link(slot).index;
        self.slots.vacate(slot);
        self.registry.lock().release(self.shard, index);
    }
}

impl Drop for NetcodeServer {
    /// Frees the client ids and indices of a shard that ends, even by a panic.
    fn drop(&mut self) {
        if self.registry.is_shared() {
            self.registry.lock().leave_all(self.shard);
        }
    }
}

#[cfg(feature = "std")]
#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;
    use crate::crypto::key::{Key, Seed};
    use crate::server::registry::{ClientRegistry, ShardId, SharedRegistry};
    use crate::server::{ServerConfig, ShardSetup};
    use crate::time::{Now, UnixMillis};

    #[test]
    fn only_shards_have_a_flag_of_queries_and_replies_clear_it() {
        let now = Now { monotonic: Instant::default(), unix: UnixMillis(1_000_000) };
        let config = ServerConfig::new(1, 2, &[SocketAddr::from(([192, 0, 2, 1], 40_000))]);
        let (keys, seed) = (|| Key::from([1; 32]).into(), Seed::from([2; 32]));
        let alone = NetcodeServer::new(config.clone(), keys(), &seed, now).unwrap();
        assert!(alone.has_queries.is_none());

        let registry = SharedRegistry::from(ClientRegistry::new(&config, 1, &seed, now, None).unwrap());
        let setup = ShardSetup { shard: ShardId(0), registry, journal: None };
        let mut shard = NetcodeServer::shard(config, keys(), &seed, now, setup).unwrap();
        let flag = Arc::clone(shard.has_queries.as_ref().unwrap());
        flag.store(true, Ordering::Relaxed);
        shard.tick(now);
        assert!(!flag.load(Ordering::Relaxed), "there is nothing to reply to");
    }
}
