//! A channel of blocks among the others: its machine, which comes into being when it is needed.

use alloc::boxed::Box;

use super::block::{self, Blocks, HashingGrant, Part, PartialBlock};
use super::layout::ChannelConfig;
use crate::reliability::MemoryBudget;
use slipgate_netcode::time::Instant;

/// Which end of a connection this is: who takes which blocks by default depends on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Server,
    Other,
}

/// One channel of blocks. Without a block it is as large as a pointer and a time.
#[derive(Default)]
pub(super) struct BlockLane {
    blocks: Option<Box<Blocks>>,
    /// Since when there has been something to write.
    since: Option<Instant>,
}

impl BlockLane {
    /// The machine, if there has been any need for it.
    pub(super) fn get(&self) -> Option<&Blocks> {
        self.blocks.as_deref()
    }

    /// The machine. `None` if its settings make no sense, which the layout has checked.
    pub(super) fn machine(
        &mut self,
        config: &ChannelConfig,
        memory: Option<&MemoryBudget>,
        hashing: Option<&HashingGrant>,
        end: End,
    ) -> Option<&mut Blocks> {
        if self.blocks.is_none() {
            let config = config.blocks.clone();
            let config = if end == End::Server { config.of_server() } else { config };
            self.blocks = Blocks::new(config, memory.cloned()).ok().map(Box::new);
            if let (Some(blocks), Some(grant)) = (&mut self.blocks, hashing) {
                blocks.hash_within(grant.clone());
            }
        }
        self.blocks.as_deref_mut()
    }

    pub(super) fn wants_room(&self) -> bool {
        self.get().is_some_and(Blocks::wants_room)
    }

    /// Whether polling would go on with hashing what has arrived.
    pub(super) fn has_work(&self) -> bool {
        self.get().is_some_and(Blocks::has_work)
    }

    /// Since when there has been something to write, if there is.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.since.filter(|_| self.wants_room())
    }

    /// A packet begins.
    pub(super) fn note_wish(&mut self, now: Instant) {
        self.since = if self.wants_room() { self.since.or(Some(now)) } else { None };
    }

    pub(super) fn write(&mut self, room: &mut [u8]) -> Option<(usize, Part)> {
        self.blocks.as_deref_mut()?.write(room)
    }

    pub(super) fn on_acked(&mut self, part: Part) {
        if let Some(blocks) = &mut self.blocks {
            blocks.on_acked(part);
        }
    }

    pub(super) fn on_lost(&mut self, part: Part) {
        if let Some(blocks) = &mut self.blocks {
            blocks.on_lost(part);
        }
    }

    pub(super) fn poll_event(&mut self) -> Option<block::Event> {
        self.blocks.as_deref_mut()?.poll_event()
    }

    pub(super) fn into_partials(self) -> impl Iterator<Item = PartialBlock> {
        self.blocks.into_iter().flat_map(|blocks| blocks.into_partials())
    }
}
