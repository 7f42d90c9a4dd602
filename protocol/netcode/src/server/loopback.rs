//! Clients in the same process (host-and-play). They have a slot, but neither token nor packets nor timeout.

use alloc::boxed::Box;
use core::fmt;

use super::registry::{ClaimError, IndexClaim};
use super::slots::{LoopbackQueues, NewClient};
use super::{ClientHandle, NetcodeEvent, NetcodeServer};
use crate::PayloadError;
use crate::crypto::lane::Lane;
use crate::ids::{ClientId, SlotIndex};
use crate::loopback::{PayloadQueue, QUEUE_PAYLOADS};
use crate::time::Now;
use crate::wire::{MAX_PAYLOAD_BYTES, UserData};

/// Why a client in the same process got no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoopbackSlotError {
    /// No slot is free, the server admits no clients, or the event queue is full.
    Full,
    /// The client id is already connected.
    ClientIdConnected,
}

impl fmt::Display for LoopbackSlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the server has no free slot",
            Self::ClientIdConnected => "this client id is already connected",
        })
    }
}

impl core::error::Error for LoopbackSlotError {}

impl NetcodeServer {
    /// Gives a client in the same process a slot, and queues its `Connected` event.
    ///
    /// # Errors
    /// - `ClientIdConnected` when the client id is connected.
    /// - `Full` when no slot is free, the server admits no clients, or the event queue is full.
    pub fn connect_loopback(
        &mut self,
        client_id: impl Into<ClientId>,
        user_data: UserData,
        now: Now,
    ) -> Result<ClientHandle, LoopbackSlotError> {
        let client_id = client_id.into();
        if self.slots.of_client(client_id).is_some() {
            return Err(LoopbackSlotError::ClientIdConnected);
        }
        if !self.accepts_clients || !self.has_event_capacity() {
            return Err(LoopbackSlotError::Full);
        }
        let client = self.assign_loopback(client_id, user_data, now)?;
        let queues = LoopbackQueues { to_client: PayloadQueue::new(), to_server: PayloadQueue::new() };
        self.slots.profile_mut(client.slot()).loopback = Some(Box::new(queues));
        // The same player may have started to connect over the network as well.
        self.pending.remove_client(client_id);
        self.stats.connects += 1;
        // There is no token, so there is no record to wait for.
        self.slots.set_durable(client.slot());
        self.events.push_back(NetcodeEvent::Connected { client, client_id });
        Ok(client)
    }

    /// Claims a client index and a slot for a client in the same process.
    fn assign_loopback(
        &mut self,
        client_id: ClientId,
        user_data: UserData,
        now: Now,
    ) -> Result<ClientHandle, LoopbackSlotError> {
        let claim = IndexClaim { shard: self.shard, client_id, age: None, token: None };
        let index = self.registry.lock().claim(&claim, now);
        let index = index.map_err(|error| match error {
            ClaimError::Full => LoopbackSlotError::Full,
            ClaimError::Discard(_) => LoopbackSlotError::ClientIdConnected,
        })?;
        // No keys and no timeout: nothing leaves the process, so nothing can be lost or forged.
        let new_client = NewClient {
            index,
            client_id,
            user_data,
            age: None,
            address: None,
            keys: None,
            lane: Lane::slot(0),
            timeout: None,
        };
        self.slots.assign(new_client, now.monotonic).ok_or_else(|| {
            debug_assert!(false, "there are as many slots as client indices");
            self.revert_claim(&claim, Some(index));
            LoopbackSlotError::Full
        })
    }

    /// Sends a payload from a client in the same process to the server's application. The queue holds at most 256
    /// payloads.
    ///
    /// # Errors
    /// - `Gone` when the connection has ended, or the client is not in the same process.
    /// - `Empty` and `TooLarge` unless the payload has 1 to 1200 bytes.
    /// - `Backlogged` when 256 payloads are queued.
    pub fn loopback_send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), PayloadError> {
        let (slot, _) = self.slots.get(client).ok_or(PayloadError::Gone)?;
        let max_queued = QUEUE_PAYLOADS * self.slots.count() as usize;
        let queues = self.slots.profile_mut(slot).loopback.as_mut().ok_or(PayloadError::Gone)?;
        // Entries of ended connections count until they are polled, so an application that never polls gets an error.
        if self.loopbacks.len() >= max_queued {
            return Err(PayloadError::Backlogged);
        }
        queues.to_server.push(payload)?;
        // Its payload proves that the client knows of its slot.
        self.slots.link_mut(slot).confirmed = true;
        self.loopbacks.push_back(client);
        Ok(())
    }

    /// Receives the next payload for a client in the same process and returns its length in bytes. Payloads from before
    /// a disconnect can be received until the next client in the slot disconnects.
    pub fn loopback_receive(&mut self, client: ClientHandle, buf: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        self.slots.loopback_payloads(client)?.pop(buf)
    }

    /// Returns whether payloads wait for a client in the same process, even after its connection has ended.
    #[must_use]
    pub fn has_loopback_payloads(&self, client: ClientHandle) -> bool {
        self.slots.has_loopback_payloads(client)
    }

    /// Takes the next payload that a client in the same process sent, and returns its length in bytes.
    pub fn poll_loopback(&mut self, buf: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<(ClientHandle, usize)> {
        while let Some(client) = self.loopbacks.pop_front() {
            // Payloads of an ended connection are dropped.
            let Some((slot, _)) = self.slots.get(client) else { continue };
            let queues = self.slots.profile_mut(slot).loopback.as_mut();
            if let Some(length) = queues.and_then(|queues| queues.to_server.pop(buf)) {
                self.stats.payloads_received += 1;
                return Some((client, length));
            }
        }
        None
    }

    pub(super) fn send_loopback(&mut self, slot: SlotIndex, payload: &[u8]) -> Result<(), PayloadError> {
        let queues = self.slots.profile_mut(slot).loopback.as_mut().ok_or(PayloadError::Gone)?;
        queues.to_client.push(payload)?;
        self.stats.payloads_sent += 1;
        Ok(())
    }
}
