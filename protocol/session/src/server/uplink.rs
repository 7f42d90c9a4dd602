//! The uplink of a server, or a shard's end of the uplink of the whole server.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use crate::congestion::{BytesPerSecond, Trunk, Uplink, Weight};
use slipgate_netcode::server::Lend;
use slipgate_netcode::time::Instant;

/// What an uplink gains in this time may leave at once: a tick's worth, and what the clock is late by.
pub(super) const BURST: Duration = Duration::from_millis(50);

/// The uplink that the clients of one server share, if it has a limit; of a shard, its part.
pub(super) struct ServerUplink {
    clients: usize,
    /// By slot; beyond its end they are the default. They outlive the limit.
    weights: Vec<Weight>,
    limit: Option<Uplink>,
    branch: Option<Branch>,
}

/// Where a shard gets its part.
struct Branch {
    trunk: Box<dyn Lend<Trunk>>,
    limited: Arc<AtomicBool>,
    shard: usize,
}

impl Drop for Branch {
    fn drop(&mut self) {
        self.trunk.lend(&mut |trunk| trunk.leave(self.shard));
    }
}

impl ServerUplink {
    /// An uplink without a limit, for so many client slots.
    pub(super) const fn new(clients: usize) -> Self {
        Self { clients, weights: Vec::new(), limit: None, branch: None }
    }

    /// From now on this is a shard's end.
    pub(super) fn join(&mut self, shard: usize, trunk: Box<dyn Lend<Trunk>>) {
        let mut limited = Arc::default();
        trunk.lend(&mut |trunk| limited = trunk.limited());
        self.branch = Some(Branch { trunk, limited, shard });
        self.follow();
    }

    /// Sets the rate of the whole server.
    pub(super) fn set_rate(&mut self, rate: Option<BytesPerSecond>) {
        match (&self.branch, &mut self.limit, rate) {
            (Some(branch), ..) => {
                branch.trunk.lend(&mut |trunk| trunk.set_rate(rate));
                self.follow();
            }
            (None, Some(uplink), Some(rate)) => uplink.set_rate(rate),
            (None, ..) => self.limit = rate.map(|rate| self.new_limit(rate)),
        }
    }

    /// Does what another shard may have been told: that there is a limit, or none any more.
    fn follow(&mut self) {
        let Some(branch) = &self.branch else { return };
        let is_limited = branch.limited.load(Ordering::Relaxed);
        if is_limited != self.limit.is_some() {
            if !is_limited {
                branch.trunk.lend(&mut |trunk| trunk.leave(branch.shard));
            }
            self.limit = is_limited.then(|| self.new_limit(BytesPerSecond::default()));
        }
    }

    /// A limit under which every client has the weight that it was given before.
    fn new_limit(&self, rate: BytesPerSecond) -> Uplink {
        let mut uplink = Uplink::new(rate, BURST, self.clients);
        for (slot, weight) in self.weights.iter().enumerate() {
            uplink.set_weight(slot, *weight);
        }
        uplink
    }

    /// Divides what was gained; `offer` is called before with what every slot wants that is to be asked.
    pub(super) fn share(&mut self, now: Instant, offer: impl FnOnce(&mut Uplink)) {
        self.follow();
        let Some(uplink) = &mut self.limit else { return };
        offer(uplink);
        let Some(Branch { trunk, shard, .. }) = &self.branch else { return uplink.share(now) };
        let (need, mut part) = (uplink.need(), None);
        trunk.lend(&mut |trunk| part = Some(trunk.take(*shard, &need, now)));
        if let Some(part) = part {
            uplink.share_part(&part, now);
        }
    }

    /// A client's share compared with others, whenever there is a limit.
    pub(super) fn set_weight(&mut self, slot: u32, weight: Weight) {
        let slot = slot as usize;
        if slot >= self.weights.len() && slot < self.clients {
            self.weights.resize(slot + 1, Weight::default());
        }
        if let Some(place) = self.weights.get_mut(slot) {
            *place = weight;
        }
        if let Some(uplink) = &mut self.limit {
            uplink.set_weight(slot, weight);
        }
    }

    /// A slot is free.
    pub(super) fn forget(&mut self, slot: u32) {
        if let Some(weight) = self.weights.get_mut(slot as usize) {
            *weight = Weight::default();
        }
        if let Some(uplink) = &mut self.limit {
            uplink.offer(slot as usize, 0);
            uplink.set_weight(slot as usize, Weight::default());
        }
    }

    pub(super) const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// How many bytes of messages may leave for a client now.
    pub(super) fn allowance(&self, slot: u32) -> u64 {
        self.limit.as_ref().map_or(u64::MAX, |uplink| uplink.allowance(slot as usize))
    }

    /// So many bytes left for a client, of which some were messages that its allowance was for. The others could not wait.
    pub(super) fn spend(&mut self, slot: u32, messages: u64, all: u64) {
        if let Some(uplink) = &mut self.limit {
            uplink.spend(slot as usize, messages);
            uplink.charge(all.saturating_sub(messages));
        }
    }

    /// How many bytes a client may expect to send in the tick that is being composed; `None` without a limit.
    pub(super) fn prospect(&self, slot: u32) -> Option<u64> {
        self.limit.as_ref().map(|uplink| uplink.prospect(slot as usize))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Shared(Arc<Mutex<Trunk>>);

    impl Lend<Trunk> for Shared {
        fn lend(&self, work: &mut dyn FnMut(&mut Trunk)) {
            work(&mut self.0.lock().unwrap());
        }
    }

    /// What the two clients of a server or a shard may send after a tick in which both asked for much.
    fn allowances(uplink: &mut ServerUplink, seconds: u64) -> [u64; 2] {
        uplink.share(Instant::from_start(Duration::from_secs(seconds)), |uplink| {
            (0..2).for_each(|client| uplink.offer(client, 1_000_000));
        });
        [0, 1].map(|client| uplink.allowance(client))
    }

    #[test]
    fn weights_outlive_the_limit_of_all_shards_and_not_the_client() {
        let trunk = Arc::new(Mutex::new(Trunk::new(2, BURST)));
        let mut shards = [0, 1].map(|shard| {
            let mut uplink = ServerUplink::new(2);
            uplink.join(shard, Box::new(Shared(Arc::clone(&trunk))));
            uplink
        });
        shards[0].set_weight(1, Weight(3));
        shards[1].set_rate(Some(BytesPerSecond(80_000.0)));
        assert_eq!(allowances(&mut shards[0], 1), [1000, 3000]);
        shards[1].set_rate(None);
        assert_eq!(allowances(&mut shards[0], 2), [u64::MAX; 2]);
        shards[1].set_rate(Some(BytesPerSecond(80_000.0)));
        assert_eq!(allowances(&mut shards[0], 3), [1000, 3000]);
        shards[1].set_rate(None);
        assert_eq!(allowances(&mut shards[0], 4), [u64::MAX; 2]);
        shards[0].forget(1);
        shards[1].set_rate(Some(BytesPerSecond(80_000.0)));
        assert_eq!(allowances(&mut shards[0], 5), [2000, 2000]);
    }
}
