//! Clients in the same program, for host-and-play: they hold a slot like others, without tokens, packets or time-outs.

use alloc::boxed::Box;
use core::fmt;

use super::register::{Claim, Refused};
use super::slots::{Loopback, Newcomer};
use super::{ClientHandle, Event, Server};
use crate::PayloadError;
use crate::crypto::lane::Lane;
use crate::loopback::{PayloadQueue, QUEUE_PAYLOADS};
use crate::time::Now;
use crate::wire::{MAX_PAYLOAD_BYTES, UserData};

/// Why a client in the same program got no slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LoopbackError {
    /// No slot is free, or nobody is admitted any more.
    Full,
    /// The client id is connected already.
    ClientIdConnected,
}

impl fmt::Display for LoopbackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the server has no free slot",
            Self::ClientIdConnected => "this client id is connected already",
        })
    }
}

impl core::error::Error for LoopbackError {}

impl Server {
    /// Gives a client in the same program a slot. Its `Connected` event comes as for others.
    ///
    /// # Errors
    /// See [`LoopbackError`].
    pub fn connect_loopback(
        &mut self,
        client_id: u64,
        user_data: UserData,
        now: Now,
    ) -> Result<ClientHandle, LoopbackError> {
        if self.slots.of_client(client_id).is_some() {
            return Err(LoopbackError::ClientIdConnected);
        }
        if !self.admitting || !self.has_room_for_events() {
            return Err(LoopbackError::Full);
        }
        let claim = Claim { shard: self.shard, client_id, age: None, token: None };
        let index = self.common.with(Err(Refused::Full), |register| register.claim(&claim, now));
        let index = index.map_err(|refused| match refused {
            Refused::Full => LoopbackError::Full,
            Refused::Discard(_) => LoopbackError::ClientIdConnected,
        })?;
        let newcomer = Newcomer {
            index,
            client_id,
            user_data,
            age: None,
            address: None,
            keys: None,
            lane: Lane::slot(0),
            timeout: None,
        };
        let Some(client) = self.slots.assign(newcomer, now.monotonic) else {
            debug_assert!(false, "there are as many slots as indices");
            self.take_back(&claim, Some(index));
            return Err(LoopbackError::Full);
        };
        if let Some(profile) = self.slots.profile_mut(client.slot()) {
            let queues = Loopback { to_client: PayloadQueue::new(), to_server: PayloadQueue::new() };
            profile.loopback = Some(Box::new(queues));
        }
        self.pending.remove_client(client_id);
        self.stats.connects += 1;
        self.slots.announce(client.slot());
        self.events.push_back(Event::Connected { client, client_id });
        Ok(client)
    }

    /// The client's side: sends a payload to the server's application. Up to 256 wait.
    ///
    /// # Errors
    /// `Gone`, `Empty`, `TooLarge`, or `Backlogged` when 256 payloads wait.
    pub fn loopback_send(&mut self, client: ClientHandle, payload: &[u8]) -> Result<(), PayloadError> {
        let (slot, _) = self.slots.live(client).ok_or(PayloadError::Gone)?;
        let most_waiting = QUEUE_PAYLOADS * self.slots.count() as usize;
        let profile = self.slots.profile_mut(slot).ok_or(PayloadError::Gone)?;
        let queues = profile.loopback.as_mut().ok_or(PayloadError::Gone)?;
        // Entries of clients that are gone count until they are polled: an application that never polls is told.
        if self.loopbacks.len() >= most_waiting {
            return Err(PayloadError::Backlogged);
        }
        queues.to_server.push(payload)?;
        if let Some(link) = self.slots.link(slot) {
            link.confirmed = true;
        }
        self.loopbacks.push_back(client);
        Ok(())
    }

    /// The client's side: takes the next payload from the server's application, and answers its length. What was sent
    /// before the client was disconnected can be taken afterwards, until the next one in its slot is disconnected.
    pub fn loopback_receive(&mut self, client: ClientHandle, buffer: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<usize> {
        self.slots.for_loopback(client)?.pop(buffer)
    }

    /// The server's side: takes the next payload that a client in the same program sent.
    pub fn poll_loopback(&mut self, buffer: &mut [u8; MAX_PAYLOAD_BYTES]) -> Option<(ClientHandle, usize)> {
        while let Some(client) = self.loopbacks.pop_front() {
            let Some((slot, _)) = self.slots.live(client) else { continue };
            let queues = self.slots.profile_mut(slot).and_then(|profile| profile.loopback.as_mut());
            if let Some(length) = queues.and_then(|queues| queues.to_server.pop(buffer)) {
                self.stats.payloads_received += 1;
                return Some((client, length));
            }
        }
        None
    }

    pub(super) fn send_loopback(&mut self, slot: u32, payload: &[u8]) -> Result<(), PayloadError> {
        let profile = self.slots.profile_mut(slot).ok_or(PayloadError::Gone)?;
        let queues = profile.loopback.as_mut().ok_or(PayloadError::Gone)?;
        queues.to_client.push(payload)?;
        self.stats.payloads_sent += 1;
        Ok(())
    }
}
