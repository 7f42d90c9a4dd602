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

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::crypto::key::{Key, Seed};
    use crate::server::ServerConfig;
    use crate::time::{Instant, UnixMillis};
    use crate::wire::USER_DATA_BYTES;

    #[test]
    fn each_error_has_a_text_of_its_own() {
        let texts = [LoopbackSlotError::Full, LoopbackSlotError::ClientIdConnected].map(|error| error.to_string());
        assert!(texts[0].contains("slot") && texts[1].contains("client id"), "{texts:?}");
    }

    fn now() -> Now {
        Now { monotonic: Instant::default(), unix: UnixMillis(1_000_000) }
    }

    fn server(slots: u32) -> NetcodeServer {
        let advertised = core::net::SocketAddr::from(([192, 0, 2, 1], 40_000));
        let config = ServerConfig::new(1, slots, &[advertised]);
        NetcodeServer::new(config, Key::from([1; 32]).into(), &Seed::from([2; 32]), now()).unwrap()
    }

    fn connect(server: &mut NetcodeServer, id: u64) -> Result<ClientHandle, LoopbackSlotError> {
        server.connect_loopback(id, [0; USER_DATA_BYTES], now())
    }

    #[test]
    fn payloads_wait_for_the_client_that_they_were_sent_to() {
        let (mut server, mut buf) = (server(1), [0; MAX_PAYLOAD_BYTES]);
        let first = connect(&mut server, 1).unwrap();
        assert!(!server.has_loopback_payloads(first));
        let (slot, _) = server.slots.get(first).unwrap();
        server.send_loopback(slot, b"for the first").unwrap();
        assert!(server.has_loopback_payloads(first));
        server.disconnect(first);
        while server.poll_event().is_some() {}

        let second = connect(&mut server, 2).unwrap();
        assert_eq!(second.slot(), first.slot());
        assert!(server.has_loopback_payloads(first) && !server.has_loopback_payloads(second));
        assert_eq!(server.loopback_receive(first, &mut buf), Some(b"for the first".len()));
        assert!(!server.has_loopback_payloads(first));
        assert_eq!((server.stats().connects, server.stats().payloads_sent), (2, 1));
    }

    #[test]
    fn each_client_may_queue_256_payloads() {
        let (mut server, mut buf) = (server(3), [0; MAX_PAYLOAD_BYTES]);
        let clients = [1, 2, 3].map(|id| connect(&mut server, id).unwrap());
        for client in clients {
            assert!((0..QUEUE_PAYLOADS).all(|_| server.loopback_send(client, b"x").is_ok()));
            assert_eq!(server.loopback_send(client, b"x"), Err(PayloadError::Backlogged));
        }
        while server.poll_loopback(&mut buf).is_some() {}
        assert_eq!(server.stats().payloads_received, 3 * QUEUE_PAYLOADS as u64);
    }

    #[test]
    fn admission_stops_at_two_untaken_events_for_each_slot() {
        let mut server = server(8);
        for id in 0..8 {
            let client = connect(&mut server, id).unwrap();
            server.disconnect(client);
        }
        assert_eq!(connect(&mut server, 8), Err(LoopbackSlotError::Full));
        assert!(server.poll_event().is_some());
        assert!(connect(&mut server, 8).is_ok());
    }
}
