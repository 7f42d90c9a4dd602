//! The uplink of a server without shards, or one shard's part of the uplink that all shards share.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

#[cfg(feature = "std")]
use super::scheduling::SharedUplink;
use super::scheduling::{Uplink, Weight};
use super::uplink_lock::UplinkLock;
use crate::congestion::BytesPerSecond;
use slipgate_netcode::ids::SlotIndex;
use slipgate_netcode::server::ShardId;
use slipgate_netcode::slab::MustExist;
use slipgate_netcode::time::Instant;

/// An uplink may send in one burst what it gains in this time: a tick, and the lateness of the program's clock.
const BURST: Duration = Duration::from_millis(50);

/// Returns the uplink of a server with `shards` shards, initially without a limit, for
/// [`SessionServer::join_uplink`](super::SessionServer::join_uplink).
#[cfg(feature = "std")]
#[must_use]
pub fn shared_uplink(shards: u16) -> UplinkLock {
    SharedUplink::new(shards.into(), BURST).into()
}

/// The uplink that the clients of one server or shard share.
pub(super) struct ServerUplink {
    clients: usize,
    /// One weight per slot; the default beyond the end. Weights outlive the limit.
    weights: Vec<Weight>,
    limit: Option<Uplink<SlotIndex>>,
    shard: Option<ShardUplink>,
}

/// A shard's connection to the uplink of the whole server.
struct ShardUplink {
    shared: UplinkLock,
    /// Whether any shard has set a limit. It is read without the lock in every tick.
    is_limited: Arc<AtomicBool>,
    shard: ShardId,
}

impl Drop for ShardUplink {
    fn drop(&mut self) {
        // The other shards share what this one no longer needs.
        self.shared.lock().remove_shard(self.shard);
    }
}

impl ServerUplink {
    /// Creates an uplink without a limit, for this many client slots.
    pub(super) const fn new(clients: usize) -> Self {
        Self { clients, weights: Vec::new(), limit: None, shard: None }
    }

    /// Joins the uplink of the whole server as this shard.
    #[cfg(feature = "std")]
    pub(super) fn join(&mut self, shard: ShardId, shared: UplinkLock) {
        let is_limited = shared.lock().limited();
        self.shard = Some(ShardUplink { shared, is_limited, shard });
        self.sync_limit();
    }

    /// Sets the rate of the whole server; `None` sets no limit.
    pub(super) fn set_rate(&mut self, rate: Option<BytesPerSecond>) {
        match (&self.shard, &mut self.limit, rate) {
            (Some(shard), ..) => {
                shard.shared.lock().set_rate(rate);
                self.sync_limit();
            }
            (None, Some(uplink), Some(rate)) => uplink.set_rate(rate),
            (None, ..) => self.limit = rate.map(|rate| self.new_limit(rate)),
        }
    }

    /// Adopts a limit that another shard has set or removed.
    fn sync_limit(&mut self) {
        let Some(shard) = &self.shard else { return };
        let is_limited = shard.is_limited.load(Ordering::Relaxed);
        if is_limited != self.limit.is_some() {
            if !is_limited {
                shard.shared.lock().remove_shard(shard.shard);
            }
            // The rate of a shard's part comes with its first grant.
            self.limit = is_limited.then(|| self.new_limit(BytesPerSecond::default()));
        }
    }

    /// Returns a limit under which every client keeps its weight.
    fn new_limit(&self, rate: BytesPerSecond) -> Uplink<SlotIndex> {
        let mut uplink = Uplink::new(rate, BURST, self.clients);
        for (slot, weight) in (0..).map(SlotIndex).zip(&self.weights) {
            uplink.set_weight(slot, *weight);
        }
        uplink
    }

    /// Divides the bytes that the uplink gained since the last call; `offer` sets what each slot wants to send.
    pub(super) fn share(&mut self, now: Instant, offer: impl FnOnce(&mut Uplink<SlotIndex>)) {
        self.sync_limit();
        let Some(uplink) = &mut self.limit else { return };
        offer(uplink);
        let Some(ShardUplink { shared, shard, .. }) = &self.shard else { return uplink.share(now) };
        let request = uplink.take_request();
        // The guard is dropped at the end of the statement: other shards wait for the exchange only.
        let grant = shared.lock().exchange(*shard, &request, now);
        uplink.apply_grant(&grant, now);
    }

    /// Sets a client's share relative to other clients.
    pub(super) fn set_weight(&mut self, slot: SlotIndex, weight: Weight) {
        // Slots beyond the end keep the default until a weight is set: most servers set none.
        let index = slot.0 as usize;
        if index >= self.weights.len() && index < self.clients {
            self.weights.resize(index + 1, Weight::default());
        }
        if let Some(entry) = self.weights.get_mut(index).must_exist("the slot of a client") {
            *entry = weight;
        }
        if let Some(uplink) = &mut self.limit {
            uplink.set_weight(slot, weight);
        }
    }

    /// Resets the weight of a slot after its client has gone.
    pub(super) fn reset_slot(&mut self, slot: SlotIndex) {
        if let Some(weight) = self.weights.get_mut(slot.0 as usize) {
            *weight = Weight::default();
        }
        if let Some(uplink) = &mut self.limit {
            // The next client of the slot must not inherit the demand.
            uplink.offer(slot, 0);
            uplink.set_weight(slot, Weight::default());
        }
    }

    pub(super) const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns how many bytes of messages may leave for a client now.
    #[inline]
    pub(super) fn allowance(&self, slot: SlotIndex) -> u64 {
        self.limit.as_ref().map_or(u64::MAX, |uplink| uplink.allowance(slot))
    }

    /// Records that `total` bytes left for a client. `messages` of them count against its allowance; the others could
    /// not be held back.
    pub(super) fn spend(&mut self, slot: SlotIndex, messages: u64, total: u64) {
        if let Some(uplink) = &mut self.limit {
            uplink.spend(slot, messages);
            uplink.spend_unscheduled(total.saturating_sub(messages));
        }
    }

    /// Returns how many bytes a client may expect to send in the tick that is being composed; `None` without a limit.
    pub(super) fn expected_bytes(&self, slot: SlotIndex) -> Option<u64> {
        self.limit.as_ref().map(|uplink| uplink.expected_bytes(slot))
    }
}

#[cfg(feature = "std")]
#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the allowances of two clients after a tick in which both wanted to send much.
    fn allowances(uplink: &mut ServerUplink, seconds: u64) -> [u64; 2] {
        uplink.share(Instant::from_start(Duration::from_secs(seconds)), |uplink| {
            [0, 1].map(SlotIndex).into_iter().for_each(|client| uplink.offer(client, 1_000_000));
        });
        [0, 1].map(|client| uplink.allowance(SlotIndex(client)))
    }

    #[test]
    fn weights_outlive_the_limit_but_not_the_client() {
        let shared = UplinkLock::from(SharedUplink::new(2, BURST));
        let mut shards = [0, 1].map(|shard| {
            let mut uplink = ServerUplink::new(2);
            uplink.join(ShardId(shard), shared.clone());
            uplink
        });
        shards[0].set_weight(SlotIndex(1), Weight(3));
        shards[1].set_rate(Some(BytesPerSecond(80_000.0)));
        assert_eq!(allowances(&mut shards[0], 1), [1000, 3000]);
        shards[1].set_rate(None);
        assert_eq!(allowances(&mut shards[0], 2), [u64::MAX; 2]);
        shards[1].set_rate(Some(BytesPerSecond(80_000.0)));
        assert_eq!(allowances(&mut shards[0], 3), [1000, 3000]);
        shards[1].set_rate(None);
        assert_eq!(allowances(&mut shards[0], 4), [u64::MAX; 2]);
        shards[0].reset_slot(SlotIndex(1));
        shards[1].set_rate(Some(BytesPerSecond(80_000.0)));
        assert_eq!(allowances(&mut shards[0], 5), [2000, 2000]);
    }
}
