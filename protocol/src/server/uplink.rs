//! The uplink of a server, or a shard's end of the uplink of the whole server.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;

use crate::congestion::{BytesPerSecond, Trunk, Uplink, Weight};
use crate::netcode::server::Lend;
use crate::time::Instant;

/// What an uplink gains in this time may leave at once: a tick's worth, and what the clock is late by.
pub(super) const BURST: Duration = Duration::from_millis(50);

/// The uplink that the clients of one server share, if it has a limit; of a shard, its part.
pub(super) struct ServerUplink {
    clients: usize,
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
        Self { clients, limit: None, branch: None }
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
            (None, limit, rate) => *limit = rate.map(|rate| Uplink::new(rate, BURST, self.clients)),
        }
    }

    /// Does what another shard may have been told: that there is a limit, or none any more.
    fn follow(&mut self) {
        let Some(branch) = &self.branch else { return };
        let is_limited = branch.limited.load(Ordering::Relaxed);
        if is_limited != self.limit.is_some() {
            self.limit = is_limited.then(|| Uplink::new(BytesPerSecond::default(), BURST, self.clients));
            if !is_limited {
                branch.trunk.lend(&mut |trunk| trunk.leave(branch.shard));
            }
        }
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

    /// A client's share compared with others. Answers whether there is anything to share.
    pub(super) fn set_weight(&mut self, slot: u32, weight: Weight) -> bool {
        self.follow();
        let Some(uplink) = &mut self.limit else { return false };
        uplink.set_weight(slot as usize, weight);
        true
    }

    /// A slot is free.
    pub(super) fn forget(&mut self, slot: u32) {
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
