//! A channel of transfers among the others. Its state is created when it is first needed.

use alloc::boxed::Box;

use crate::channel::config::ChannelConfig;
use crate::channel::transfer::{HashingGrant, PartialTransfer, SentTransferFrame, TransferEvent, Transfers};
use crate::reliability::MemoryBudget;
use slipgate_netcode::time::Instant;

/// The end of a connection. It decides which transfers are accepted by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TransferRole {
    Server,
    Other,
}

/// One channel of transfers. Without a transfer it is as large as a pointer and a time.
#[derive(Default)]
pub(crate) struct TransferChannel {
    transfers: Option<Box<Transfers>>,
    /// Since when there has been a frame to write.
    waiting_since: Option<Instant>,
    /// Nothing has changed since a poll found no event, so that the next poll visits no transfer.
    is_quiet: bool,
}

impl TransferChannel {
    /// Returns the transfers, if there were any.
    pub(crate) fn get(&self) -> Option<&Transfers> {
        self.transfers.as_deref()
    }

    /// Returns the transfers. `None` if the settings are out of bounds, which the layout has ruled out.
    pub(crate) fn get_or_create(
        &mut self,
        config: &ChannelConfig,
        memory: Option<&MemoryBudget>,
        hashing: Option<&HashingGrant>,
        role: TransferRole,
    ) -> Option<&mut Transfers> {
        self.is_quiet = false;
        // Created on demand: most connections never have a transfer.
        if self.transfers.is_none() {
            let config = config.transfers.clone();
            // Only the server refuses uploads by default.
            let config = if role == TransferRole::Server { config.for_server() } else { config };
            self.transfers = Transfers::new(config, memory.cloned()).ok().map(Box::new);
            if let (Some(transfers), Some(grant)) = (&mut self.transfers, hashing) {
                transfers.hash_within(grant.clone());
            }
        }
        self.transfers.as_deref_mut()
    }

    pub(crate) fn has_frames(&self) -> bool {
        self.get().is_some_and(Transfers::has_frames)
    }

    /// Returns whether polling would hash received data.
    pub(crate) fn has_unhashed(&self) -> bool {
        self.get().is_some_and(Transfers::has_unhashed)
    }

    /// Returns since when there has been a frame to write, if there is one.
    pub(crate) fn waiting_since(&self) -> Option<Instant> {
        self.waiting_since.filter(|_| self.has_frames())
    }

    /// Updates the waiting time at the start of a packet.
    pub(crate) fn update_waiting_since(&mut self, now: Instant) {
        // The scheduler needs the time to detect starvation.
        self.waiting_since = if self.has_frames() { self.waiting_since.or(Some(now)) } else { None };
    }

    pub(crate) fn write(&mut self, buf: &mut [u8]) -> Option<(usize, SentTransferFrame)> {
        self.is_quiet = false;
        self.transfers.as_deref_mut()?.write(buf)
    }

    pub(crate) fn on_acked(&mut self, sent: SentTransferFrame) {
        self.is_quiet = false;
        if let Some(transfers) = &mut self.transfers {
            transfers.on_acked(sent);
        }
    }

    pub(crate) fn on_lost(&mut self, sent: SentTransferFrame) {
        self.is_quiet = false;
        if let Some(transfers) = &mut self.transfers {
            transfers.on_lost(sent);
        }
    }

    pub(crate) fn poll_event(&mut self) -> Option<TransferEvent> {
        if self.is_quiet {
            return None;
        }
        let transfers = self.transfers.as_deref_mut()?;
        let event = transfers.poll_event();
        // Each poll hashes a part of what has arrived.
        self.is_quiet = event.is_none() && !transfers.has_unhashed();
        event
    }

    pub(crate) fn into_partials(self) -> impl Iterator<Item = PartialTransfer> {
        self.transfers.into_iter().flat_map(|transfers| transfers.into_partials())
    }
}
