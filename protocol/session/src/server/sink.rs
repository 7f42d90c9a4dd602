//! Where a line's packets leave: through netcode, which seals them, into the outbox.

use crate::reliability::Sink;
use slipgate_netcode::Outbox;
use slipgate_netcode::server::{ClientHandle, Server};
use slipgate_netcode::time::Now;
use slipgate_netcode::wire::MAX_PAYLOAD_BYTES;

/// Bytes on the path of a packet's headers below its payload: IPv4, UDP, and netcode's prefix, number and tag.
pub(super) const HEADER_BYTES: u64 = 28 + 21;

pub(super) struct ClientSink<'a, O> {
    netcode: &'a mut Server,
    client: ClientHandle,
    now: Now,
    outbox: &'a mut O,
    room: &'a mut [u8; MAX_PAYLOAD_BYTES],
    /// Datagrams that each packet takes: two while a keep-alive goes before it (§1.13).
    datagrams: usize,
    /// Bytes on the path that have left.
    pub(super) left: u64,
    /// A packet found no room.
    pub(super) full: bool,
}

impl<'a, O: Outbox> ClientSink<'a, O> {
    pub(super) fn new(
        netcode: &'a mut Server,
        client: ClientHandle,
        now: Now,
        outbox: &'a mut O,
        room: &'a mut [u8; MAX_PAYLOAD_BYTES],
    ) -> Self {
        let confirmed = netcode.client(client).is_some_and(|info| info.confirmed);
        Self { netcode, client, now, outbox, room, datagrams: if confirmed { 1 } else { 2 }, left: 0, full: false }
    }
}

impl<O: Outbox> Sink for ClientSink<'_, O> {
    fn rooms(&self) -> usize {
        self.outbox.rooms() / self.datagrams
    }

    fn room(&mut self) -> Option<&mut [u8]> {
        if self.rooms() == 0 {
            self.full = true;
            return None;
        }
        Some(self.room)
    }

    fn commit(&mut self, bytes: usize) {
        // A packet that cannot be sealed, because the client has gone or its used token is not durable yet, is lost as any
        // may be.
        let payload = self.room.get(..bytes).unwrap_or_default();
        if self.netcode.send(self.client, payload, self.now, self.outbox).is_ok() {
            self.left += bytes as u64 + HEADER_BYTES;
        }
    }
}
